// Headers of safetensors files that no encoder writes.
#pragma once

#include <cstdint>
#include <string>

namespace fpfs::test {

// With its length in front, 8 bytes, little-endian, as the file begins.
inline std::string with_length(const std::string& header) {
  std::string encoded;
  for (unsigned i = 0; i < 8; ++i) encoded.push_back(static_cast<char>(uint64_t{header.size()} >> (8 * i) & 0xff));
  return encoded + header;
}

}  // namespace fpfs::test
