// Any bytes as the kept state of a scrub: refused, or exactly what encode_scrub_state() writes for what was read.
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "engine/codec/hash.h"
#include "engine/store/scrub_state.h"
#include "tests/fuzz/fuzz.h"

namespace {

fpfs::Uuid array_id() {
  fpfs::Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

void check(std::string_view text) {
  const fpfs::Result<fpfs::ScrubState> read = fpfs::decode_scrub_state(text, array_id());
  if (!read.is_ok()) {
    fpfs::fuzz::require(!read.status().message().empty(), "a refusal says why");
    return;
  }
  fpfs::fuzz::require(read->damage.size() <= fpfs::ScrubState::kDamageMax, "a bounded list of damage");
  fpfs::fuzz::require(fpfs::encode_scrub_state(*read, array_id()) == text, "what is read is what would be written");
}

void check_sealed(std::string_view content) {
  const uint64_t checksum = fpfs::hash_bytes(std::as_bytes(std::span(content)));
  check(fmt::format(R"({{"checksum":"{:016x}","scrub":{}}})", checksum, content) + "\n");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  // The same as a content with the checksum made right, and as what follows version and array in one.
  check_sealed(text);
  check_sealed(fmt::format(R"({{"version":2,"array":"{}",{})", fpfs::to_string(array_id()), text));
  return 0;
}
