#include "engine/file/durable.h"

#include <fmt/format.h>

namespace fpfs {

Result<Durable> parse_durable(std::string_view text) {
  for (const Durable one : {Durable::kClose, Durable::kFsync, Durable::kTier})
    if (text == to_string(one)) return one;
  return Status::error(StatusCode::kInvalidArgument,
                       fmt::format("'{}' is no durability; use close, fsync or tier", text));
}

const char* to_string(Durable durable) {
  switch (durable) {
    case Durable::kClose:
      return "close";
    case Durable::kFsync:
      return "fsync";
    case Durable::kTier:
      return "tier";
  }
  return "";
}

}  // namespace fpfs
