// Any bytes as the manifest or the note of a copy: refused with a sentence, or exactly what is written for what was
// read.
#include <cstring>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_note.h"
#include "tests/fuzz/fuzz.h"

namespace {

void check(std::span<const std::byte> bytes) {
  const fpfs::Result<fpfs::TierManifest> read = fpfs::decode_manifest(bytes);
  if (!read.is_ok()) {
    fpfs::fuzz::require(!read.status().message().empty(), "a refusal says why");
    return;
  }
  fpfs::fuzz::require(fpfs::validate_manifest(*read).is_ok(), "what is read is valid");
  const std::vector<std::byte> written = fpfs::encode_manifest(*read);
  fpfs::fuzz::require(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()),
                      "what is read is what would be written");
}

void check_note(std::span<const std::byte> bytes) {
  const fpfs::Result<fpfs::TierNote> read = fpfs::decode_note(bytes);
  if (!read.is_ok()) {
    fpfs::fuzz::require(!read.status().message().empty(), "a refusal says why");
    return;
  }
  const auto written = fpfs::encode_note(*read);
  fpfs::fuzz::require(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()),
                      "what is read is what would be written");
}

// With the checksum made right.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  if (bytes.size() < sizeof(uint64_t)) return bytes;
  const size_t body = bytes.size() - sizeof(uint64_t);
  fpfs::put_u64(&bytes[body], fpfs::hash_bytes(std::span(bytes).first(body)));
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> raw(reinterpret_cast<const std::byte*>(data), size);
  check(raw);
  check_note(raw);
  std::vector<std::byte> bytes(raw.begin(), raw.end());
  check(sealed(bytes));
  check_note(sealed(bytes));
  // As what follows magic and version, and without its own checksum.
  std::vector<std::byte> framed(12);
  std::memcpy(framed.data(), "FPFSTIER", 8);
  fpfs::put_u32(&framed[8], 1);
  framed.insert(framed.end(), raw.begin(), raw.end());
  framed.resize(framed.size() + sizeof(uint64_t));
  check(sealed(framed));
  return 0;
}
