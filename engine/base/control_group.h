// What a process's control groups let it have (cgroups(7), Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>

namespace fpfs {

// The least that a group of `groups` (/proc/PID/cgroup) or one above it may use of memory, in bytes: `memory.max`, or
// `memory.limit_in_bytes` of version 1. UINT64_MAX: as much as there is, or nobody says. `root`: where the hierarchies are
// mounted; in a container its own groups are there, whose paths are not those in `groups`: then those above count.
uint64_t control_group_memory(std::istream& groups, const std::filesystem::path& root = "/sys/fs/cgroup");

}  // namespace fpfs
