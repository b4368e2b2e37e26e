// Fields of the text files that Linux shows of a process: /proc/PID/stat and /proc/PID/status (proc(5)).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fpfs {

// What is in /proc/THREAD/`name`, up to 4096 bytes of it; empty when it cannot be read.
std::string read_proc(pid_t thread, const char* name);

// The field of a `stat` with this number, as proc(5) counts them, from 3 on (the second, a name, may hold anything).
// Empty: there is none.
std::string_view proc_stat_field(std::string_view stat, unsigned number);
std::optional<uint64_t> proc_stat_number(std::string_view stat, unsigned number);
// Of the line "KEY:\t..." of a `status`, which is not its first.
std::optional<uint64_t> proc_status_number(std::string_view status, std::string_view key, int base = 10);

}  // namespace fpfs
