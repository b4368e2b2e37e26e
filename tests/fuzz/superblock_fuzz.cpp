// Any bytes as a superblock: refused with a sentence, or exactly what encode_superblock() writes for what was read.
#include <array>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/index/superblock.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr size_t kChecksumOffset = fpfs::kSuperblockSize - 8;

void check(std::span<const std::byte> bytes, bool for_writing) {
  const fpfs::Result<fpfs::Superblock> read = fpfs::decode_superblock(bytes, for_writing);
  if (!read.is_ok()) {
    fpfs::fuzz::require(!read.status().message().empty(), "a refusal says why");
    return;
  }
  const auto written = fpfs::encode_superblock(*read);
  fpfs::fuzz::require(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()),
                      "what is read is what would be written");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> raw(reinterpret_cast<const std::byte*>(data), size);
  check(raw, false);
  // The same with the checksum made right: what lies behind it is looked at, too.
  std::array<std::byte, fpfs::kSuperblockSize> bytes{};
  std::memcpy(bytes.data(), data, std::min(size, kChecksumOffset));
  fpfs::put_u64(&bytes[kChecksumOffset], fpfs::hash_bytes(bytes));
  check(bytes, false);
  check(bytes, true);
  return 0;
}
