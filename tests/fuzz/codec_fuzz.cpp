// Any bytes as the stored frame of a chunk, and frames that the library makes of any content with any settings, whole
// or damaged in a few places. It is refused, or all of the chunk is there: the same when it is decoded again, and what
// was compressed when nothing was damaged.
#include <vector>

#include "engine/codec/decompress.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/zstd_frame.h"

namespace {

using fpfs::fuzz::Input;
using fpfs::fuzz::require;
using Bytes = std::vector<std::byte>;

constexpr size_t kChunkSize = 64 * 1024;

// Noise, runs and repetitions, as an input says.
Bytes build_content(Input& input) {
  Bytes content;
  while (!input.empty() && content.size() < kChunkSize) {
    const size_t count = 1 + input.number(2) % 4096;
    switch (input.byte() % 3) {
      case 0: {
        const std::span<const std::byte> taken = input.bytes(count);
        content.insert(content.end(), taken.begin(), taken.end());
        break;
      }
      case 1:
        content.resize(content.size() + count, static_cast<std::byte>(input.byte()));
        break;
      default: {
        const size_t distance = 1 + input.number(2) % (content.size() + 1);
        for (size_t i = 0; i < count && distance <= content.size(); ++i)
          content.push_back(content[content.size() - distance]);
      }
    }
  }
  content.resize(std::clamp<size_t>(content.size(), 1, kChunkSize));
  return content;
}

// In memory of exactly its size, so that ASan sees a byte too many.
bool decode(const Bytes& frame, size_t size, Bytes& out) {
  out.assign(size, std::byte{0});
  const fpfs::Status status = fpfs::decompress(frame, out);
  require(status.is_ok() || (status.code() == fpfs::StatusCode::kCorruption && !status.message().empty()),
          "a refusal says why");
  return status.is_ok();
}

void check(const Bytes& frame, size_t size) {
  Bytes first, second;
  if (!decode(frame, size, first)) return;
  require(decode(frame, size, second) && first == second, "a frame decodes to one content");
  require(size == 0 || !decode(frame, size - 1, second), "and to no shorter one");
  require(!decode(frame, size + 1, second), "and to no longer one");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  if (input.byte() % 2 == 0) {
    const size_t raw_length = input.number(3) % (2 * kChunkSize);
    const std::span<const std::byte> rest = input.rest();
    check(Bytes(rest.begin(), rest.end()), raw_length);
    return 0;
  }
  const int level = static_cast<int>(input.byte() % 12) - 5;
  const uint8_t flags = input.byte();
  const fpfs::test::FrameOptions options{level, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
  const fpfs::fuzz::Damage damage(input);
  const Bytes content = build_content(input);
  Bytes frame = fpfs::test::zstd_frame(content, options), decoded;
  require(decode(frame, content.size(), decoded) && decoded == content, "what was compressed comes back");
  damage.apply(frame);
  check(frame, content.size());
  return 0;
}
