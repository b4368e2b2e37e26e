// The names of the stored codecs in output.
#pragma once

#include <cstdint>
#include <string>

#include "engine/index/extent_table.h"

namespace fpfs::tools {

inline std::string codec_name(uint8_t codec) {
  switch (static_cast<Codec>(codec)) {
    case Codec::kNone:
      return "hole";
    case Codec::kRaw:
      return "raw";
    case Codec::kZstd:
      return "zstd";
    case Codec::kBlocks:
      return "blocks";
    case Codec::kAway:
      return "away";
  }
  return "codec-" + std::to_string(codec);
}

}  // namespace fpfs::tools
