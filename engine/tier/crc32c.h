// CRC32C (Castagnoli; RFC 3720, appendix B.4), by which S3 services can check content (x-amz-checksum-crc32c).
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fpfs {

// By the processor's instruction where it has one (x86-64 with SSE 4.2).
uint32_t crc32c(std::span<const std::byte> bytes);
// By tables: what it is on any other processor. For tests.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes);

}  // namespace fpfs
