#include "engine/codec/decompress.h"

#include <zstd.h>

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/bytes.h"
#include "tests/support/test_data.h"
#include "tests/support/zstd_frame.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
using test::zstd_frame;
constexpr std::byte kUntouched{0xee};
constexpr test::FrameOptions kUnsized{.says_its_size = false};

// Half noise, half the same again: what is decoded copies from what was decoded.
Bytes content(size_t size) {
  Bytes bytes(size);
  test::fill(bytes, 3, 0);
  std::copy_n(bytes.begin(), size / 2, bytes.end() - static_cast<ptrdiff_t>(size / 2));
  return bytes;
}

struct Decoded {
  Status status;
  Bytes bytes;
};

// Into memory that is watched on both sides.
Decoded decode(std::span<const std::byte> frame, size_t size) {
  constexpr size_t kGuard = 64;
  Bytes memory(size + 2 * kGuard, kUntouched);
  Decoded decoded{decompress(frame, std::span(memory).subspan(kGuard, size)), {}};
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kGuard, untouched));
  EXPECT_TRUE(std::all_of(memory.end() - kGuard, memory.end(), untouched));
  decoded.bytes.assign(memory.begin() + kGuard, memory.end() - kGuard);
  return decoded;
}

void expect_refused(std::span<const std::byte> frame, size_t size) {
  const Status status = decode(frame, size).status;
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("zstd frame"), std::string::npos) << status.message();
}

TEST(Decompress, GivesBackWhatWasCompressed) {
  for (const size_t size : {1u, 100u, 4096u, 65536u, 1u << 20})
    for (const int level : {-5, 1, 3, 19})
      for (const bool checksum : {false, true})
        for (const bool says_its_size : {false, true}) {
          const Bytes bytes = content(size);
          const Decoded decoded = decode(zstd_frame(bytes, {level, checksum, says_its_size}), size);
          EXPECT_TRUE(decoded.status.is_ok()) << decoded.status.message();
          EXPECT_EQ(decoded.bytes, bytes) << size << " bytes, level " << level;
        }
}

TEST(Decompress, RefusesAnotherLength) {
  const Bytes frame = zstd_frame(content(5000)), silent = zstd_frame(content(5000), kUnsized);
  for (const size_t size : {0u, 1u, 4999u, 5001u, 65536u}) {
    expect_refused(frame, size);
    expect_refused(silent, size);
  }
}

TEST(Decompress, RefusesWhatIsCutOrContinued) {
  const Bytes frame = zstd_frame(content(5000));
  for (size_t length = 0; length < frame.size(); ++length) expect_refused(std::span(frame).first(length), 5000);
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  expect_refused(longer, 5000);
  const Bytes half = zstd_frame(content(2500));
  Bytes two = half;
  two.insert(two.end(), half.begin(), half.end());
  expect_refused(two, 5000);
}

TEST(Decompress, RefusesOtherKindsOfFrames) {
  Bytes skippable(8 + 100);
  put_u32(skippable.data(), ZSTD_MAGIC_SKIPPABLE_START);
  put_u32(&skippable[4], 100);
  expect_refused(skippable, 100);
  const Bytes frame = zstd_frame(content(5000));
  skippable.insert(skippable.end(), frame.begin(), frame.end());
  expect_refused(skippable, 5000);
  for (uint32_t version = 1; version <= 7; ++version) {  // from before the format was settled
    Bytes old = frame;
    put_u32(old.data(), 0xFD2FB520 + version);
    expect_refused(old, 5000);
  }
  Bytes with_dictionary = frame;
  with_dictionary.insert(with_dictionary.begin() + 5, std::byte{77});
  with_dictionary[4] |= std::byte{1};  // its number has one byte
  expect_refused(with_dictionary, 5000);
}

// 16 TiB by its own account, in a window of 128 GiB and more: neither is believed.
TEST(Decompress, TakesNoMemoryBecauseAFrameSaysSo) {
  Bytes frame = zstd_frame(content(5000), kUnsized);
  frame[5] = std::byte{0xff};  // the window descriptor of a frame without its size
  (void)decode(frame, 5000);
  Bytes sized(4 + 1 + 8);
  put_u32(sized.data(), ZSTD_MAGICNUMBER);
  sized[4] = std::byte{0xe0};  // the size in 8 bytes, no window
  put_u64(&sized[5], uint64_t{1} << 44);
  sized.insert(sized.end(), frame.begin() + 6, frame.end());
  expect_refused(sized, 5000);
}

// Without a checksum of its own a damaged frame may decode to something else (the chunk's checksum sees to that).
TEST(Decompress, SurvivesEveryDamagedBit) {
  for (const bool checksum : {false, true}) {
    const Bytes bytes = content(2000), frame = zstd_frame(bytes, {.checksum = checksum});
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      Bytes damaged = frame;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const Decoded decoded = decode(damaged, bytes.size());
      refused += decoded.status.is_ok() ? 0 : 1;
      // The header's unused bit means nothing to the decoder.
      EXPECT_TRUE(!checksum || !decoded.status.is_ok() || decoded.bytes == bytes) << "bit " << bit;
    }
    EXPECT_GT(refused, checksum ? 8 * frame.size() - 16 : 0);
  }
}

}  // namespace
}  // namespace fpfs
