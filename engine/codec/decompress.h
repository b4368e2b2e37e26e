// Chunks that are stored as a zstd frame (RFC 8878). Stored bytes are decoded after their checksum was found right.
#pragma once

#include <cstddef>
#include <span>

#include "engine/base/status.h"

namespace fpfs {

// Decodes `frame` into all of `out`. kCorruption: it is not one zstd frame, whole and alone, that needs no dictionary
// and decodes to out.size() bytes; what `out` holds then means nothing. Never writes outside of `out`, and takes no
// memory by what the frame says of itself. Pure.
Status decompress(std::span<const std::byte> frame, std::span<std::byte> out);

}  // namespace fpfs
