// Any bytes as the kept state of a scrub: refused, or a state that survives being written and read again.
#include <cstring>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/store/scrub_state.h"
#include "tests/fuzz/fuzz.h"

namespace {

// As in docs/format.md.
constexpr size_t kLengthOffset = 12, kArrayIdOffset = 16, kFixedSize = 136, kChecksumSize = 8;

fpfs::Uuid array_id() {
  fpfs::Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

void check(std::span<const std::byte> bytes) {
  const fpfs::Result<fpfs::ScrubState> read = fpfs::decode_scrub_state(bytes, array_id());
  if (!read.is_ok()) return;
  fpfs::fuzz::require(read->damage.size() <= fpfs::ScrubState::kDamageMax, "a bounded list of damage");
  const std::vector<std::byte> written = fpfs::encode_scrub_state(*read, array_id());
  const fpfs::Result<fpfs::ScrubState> again = fpfs::decode_scrub_state(written, array_id());
  fpfs::fuzz::require(again.is_ok() && again->position == read->position && again->bytes == read->bytes &&
                          again->next_chunk == read->next_chunk && again->phase == read->phase,
                      "what was read can be written and read again");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> raw(reinterpret_cast<const std::byte*>(data), size);
  check(raw);
  // The same with magic, version, length, array and checksum made right.
  std::vector<std::byte> bytes(raw.begin(), raw.end());
  bytes.resize(std::max(size, kFixedSize));
  std::memcpy(bytes.data(), "FPFSSCRB", 8);
  fpfs::put_u32(&bytes[8], 1);
  fpfs::put_u32(&bytes[kLengthOffset], static_cast<uint32_t>(bytes.size() + kChecksumSize));
  const fpfs::Uuid id = array_id();
  std::copy(id.begin(), id.end(), bytes.begin() + kArrayIdOffset);
  const uint64_t checksum = fpfs::hash_bytes(bytes);
  bytes.resize(bytes.size() + kChecksumSize);
  fpfs::put_u64(&bytes[bytes.size() - kChecksumSize], checksum);
  check(bytes);
  return 0;
}
