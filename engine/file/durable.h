// Durable: when content is durable, as a mount is told by `durable=` and single nodes by an attribute.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/status.h"

namespace fpfs {

enum class Durable : uint8_t {
  kClose,  // when close(2) has returned 0
  kFsync,  // ext4's contract: when fsync(2) has, else soon
  kTier,   // of single nodes only: as kClose, and its copy outside this machine is complete then, too
};

// "close", "fsync" or "tier". kInvalidArgument for anything else.
Result<Durable> parse_durable(std::string_view text);
// The reverse.
const char* to_string(Durable durable);

}  // namespace fpfs
