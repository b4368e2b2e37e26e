// The golden sidecar: tests/golden/sidecar-v1.hex holds the bytes that format version 1 has for one short history, with
// a comment on each part. A change of this program that changes those bytes, or that cannot read them any more, breaks
// every array in use. docs/format.md explains the same bytes.
#include <gtest/gtest.h>

#include <fstream>
#include <iomanip>
#include <sstream>

#include "engine/base/bytes.h"
#include "tests/engine/index/sidecar_testing.h"

namespace fpfs {
namespace {

using namespace sidecar_testing;

SidecarHeader golden_header() {
  return {test_array(), FileId(0x0123456789abcdef), kChunkSize};
}

// Record 1: 26 bytes inline. Record 2: two chunks of another generation. Record 3, a snapshot: one chunk left.
std::vector<SidecarRecord> golden_records() {
  SidecarRecord inlined;
  inlined.sequence = 1;
  inlined.has_inline = true;
  for (char letter = 'a'; letter <= 'z'; ++letter) inlined.inline_data.push_back(static_cast<std::byte>(letter));
  inlined.size = inlined.inline_data.size();

  SidecarRecord grown;
  grown.sequence = 2;
  grown.generation = Generation(1);
  grown.truncate_from = ChunkIndex(0);
  grown.size = 100'000;
  Extent raw;
  raw.codec = Codec::kRaw;
  raw.member = MemberIndex(2);
  raw.slot = SlotIndex(7);
  raw.checksum = 0xfedcba9876543210;
  raw.stored_length = raw.raw_length = raw.visible_length = kChunkSize;
  Extent packed;
  packed.codec = Codec::kZstd;
  packed.member = MemberIndex(3);
  packed.slot = SlotIndex();
  packed.checksum = 0x8899aabbccddeeff;
  packed.stored_length = 5000;
  packed.raw_length = packed.visible_length = 100'000 - kChunkSize;
  grown.extents = {{ChunkIndex(0), raw}, {ChunkIndex(1), packed}};
  grown.allocated = raw.allocated() + packed.allocated();

  SidecarRecord snapshot = grown;
  snapshot.sequence = 3;
  snapshot.snapshot = true;
  snapshot.truncate_from.reset();
  snapshot.size = 1000;
  raw.visible_length = 1000;
  snapshot.extents = {{ChunkIndex(0), raw}};
  snapshot.allocated = raw.allocated();
  return {inlined, grown, snapshot};
}

std::vector<std::byte> golden_bytes() {
  std::vector<std::byte> bytes = encode_sidecar_header(golden_header());
  for (const SidecarRecord& record : golden_records())
    encode_sidecar_record(golden_header(), record, SidecarOffset(bytes.size()), SidecarOffset(0), bytes);
  return bytes;
}

// "offset: 16 bytes in hex", lines of zeros left out; anything from '#' on is a comment.
std::string to_text(const std::vector<std::byte>& bytes) {
  std::ostringstream text;
  text << std::hex << std::setfill('0');
  for (size_t line = 0; line < bytes.size(); line += 16) {
    const auto part = std::span(bytes).subspan(line, std::min<size_t>(16, bytes.size() - line));
    if (all_zero(part) && line + 16 < bytes.size()) continue;
    text << std::setw(8) << line << ":";
    for (std::byte b : part) text << " " << std::setw(2) << std::to_integer<unsigned>(b);
    text << "\n";
  }
  return text.str();
}

std::vector<std::byte> from_text(std::istream& file) {
  std::vector<std::byte> bytes;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    size_t offset = 0;
    char colon = 0;
    if (!(words >> std::hex >> offset >> colon)) continue;
    bytes.resize(offset);
    for (unsigned value = 0; words >> value;) bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

TEST(SidecarGolden, BytesAreThoseOfVersion1) {
  const std::string path = FPFS_TESTS_DIR "/golden/sidecar-v1.hex";
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path;
  const std::vector<std::byte> stored = from_text(file);
  EXPECT_EQ(stored, golden_bytes()) << "this program writes:\n" << to_text(golden_bytes());

  const auto image = fold(stored);
  ASSERT_TRUE(image.is_ok()) << image.status().message();
  const SidecarRecord last = golden_records().back();
  EXPECT_EQ(image->file_id, golden_header().file_id);
  EXPECT_EQ(image->sequence, 3u);
  EXPECT_EQ(image->generation, Generation(1));
  EXPECT_EQ(image->size, 1000u);
  EXPECT_EQ(image->snapshot_offset, SidecarOffset(4096));
  EXPECT_EQ(image->extents.count(), 1u);
  EXPECT_EQ(image->extents.get(ChunkIndex(0)), last.extents[0].second);
}

TEST(SidecarGolden, EveryRecordOfItIsRead) {
  const std::vector<std::byte> bytes = golden_bytes();
  const auto inlined = fold({bytes.begin(), bytes.begin() + 0x140});
  ASSERT_TRUE(inlined.is_ok()) << inlined.status().message();
  EXPECT_EQ(inlined->inline_data, golden_records()[0].inline_data);
  const auto grown = fold({bytes.begin(), bytes.begin() + 0x230});
  ASSERT_TRUE(grown.is_ok()) << grown.status().message();
  EXPECT_EQ(grown->extents.get(ChunkIndex(1)), golden_records()[1].extents[1].second);
}

}  // namespace
}  // namespace fpfs
