// A profile: what `fpfs tune` found to be best for some drives, and what a mount takes by `-o profile=FILE`.
//
// A text file, one NAME=VALUE a line. Names and values are those of the mount options; kProfileNames has all that may
// be there, each once at most. Lines that are empty or begin with '#' say nothing; blanks around a name or a value and
// line ends of the other kind (CR LF) do not matter. What is not there stays at its default.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace fpfs {

inline constexpr std::array<std::string_view, 5> kProfileNames = {"queue_depth", "transfer_size", "submit_batch",
                                                                  "workers", "read_ahead"};
// More than this is not a profile, in bytes.
constexpr size_t kProfileBytesMax = 16 * 1024;

struct ProfileLine {
  size_t number = 0;  // from 1
  std::string name, value;
};

// kInvalidArgument: "line 3: WHAT; WHAT IS ALLOWED", one line of printable characters. Values are not looked at, but
// none is empty.
Result<std::vector<ProfileLine>> parse_profile(std::string_view text);

// The text of a file. kInvalidArgument when it is none that could be a profile (a directory, a device, too large); else
// what the system says. Never waits for a writer of a FIFO.
Result<std::string> read_profile(const std::string& path);

}  // namespace fpfs
