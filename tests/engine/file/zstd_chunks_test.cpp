// Files with chunks that are stored as zstd frames: read, changed, checked. No release writes them yet, so they are
// made by hand.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/store/store.h"
#include "tests/engine/check/hand_made_array.h"
#include "tests/support/zstd_frame.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;
using test::zstd_frame;
constexpr uint32_t kChunk = HandMadeArray::kChunkSize;
constexpr uint64_t kFile = 0x77;
constexpr uint64_t kChunks = 5, kSize = (kChunks - 1) * kChunk + 1000;

class ZstdChunks : public testing::Test {
 protected:
  // /packed: chunk 2 is stored raw, the others as frames.
  ZstdChunks() : content_(kSize) {
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) test::fill(part(chunk).first(part(chunk).size() / 3), chunk, 0);
    record_.sequence = 1;
    record_.size = kSize;
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      const Bytes bytes(part(chunk).begin(), part(chunk).end());
      store(chunk, chunk == 2 ? bytes : zstd_frame(bytes), chunk == 2 ? Codec::kRaw : Codec::kZstd);
    }
  }
  ~ZstdChunks() override { close(); }

  std::span<std::byte> part(uint64_t chunk) {
    return std::span(content_).subspan(chunk * kChunk, std::min<uint64_t>(kChunk, kSize - chunk * kChunk));
  }
  void store(uint64_t chunk, const Bytes& stored, Codec codec) {
    const auto raw_length = static_cast<uint32_t>(part(chunk).size());
    const Extent extent = array_.store_chunk({kFile, 0, kSize, 0}, chunk, stored, codec, raw_length);
    std::erase_if(record_.extents, [chunk](const auto& placed) { return placed.first == ChunkIndex(chunk); });
    record_.extents.emplace_back(chunk, extent);
    std::sort(record_.extents.begin(), record_.extents.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    record_.allocated = 0;
    for (const auto& [index, placed] : record_.extents) record_.allocated += placed.allocated();
    array_.write_sidecar("/packed", kFile, {record_});
  }

  void open(bool verify = true) {
    StoreOptions options;
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    options.verify = verify;
    auto store = Store::open(array_.environment, array_.directories, options);
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
    Result<Store::Node> node = store_->lookup(store_->root(), "packed");
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    auto file = store_->open_file(node->handle.get(), true);
    node->handle.reset();
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    file_ = *file;
  }
  void close() {
    if (store_ == nullptr) return;
    EXPECT_TRUE(store_->close().is_ok());
    file_.reset();
    store_.reset();
  }
  Result<Bytes> read(uint64_t offset, size_t length) {
    Bytes bytes(length);
    FPFS_ASSIGN_OR_RETURN(const size_t got, store_->read_sync(*file_, FileOffset(offset), bytes));
    bytes.resize(got);
    return bytes;
  }
  void expect_content() {
    for (const size_t step : {size_t{3 * kChunk}, size_t{7000}})
      for (uint64_t at = 0; at < content_.size(); at += step) {
        const Result<Bytes> bytes = read(at, step);
        ASSERT_TRUE(bytes.is_ok()) << bytes.status().message();
        EXPECT_TRUE(std::ranges::equal(*bytes, std::span(content_).subspan(at, bytes->size()))) << "from " << at;
      }
  }

  HandMadeArray array_;
  Bytes content_;
  SidecarRecord record_;
  std::unique_ptr<Store> store_;
  std::shared_ptr<File> file_;
};

TEST_F(ZstdChunks, AreRead) {
  for (const bool verify : {true, false}) {
    open(verify);
    expect_content();
    const File::Info info = file_->info();
    EXPECT_EQ(info.codec_chunks[static_cast<size_t>(Codec::kZstd)], kChunks - 1);
    EXPECT_EQ(info.codec_chunks[static_cast<size_t>(Codec::kRaw)], 1u);
    close();
  }
  const CheckReport report = array_.check(Repair::kNone, true);
  EXPECT_TRUE(report.clean()) << summary(report);
  EXPECT_EQ(report.bytes_verified, report.bytes_stored);
}

TEST_F(ZstdChunks, AreChangedInPartAndCut) {
  open();
  const Bytes written(5000, std::byte{0x5a});
  // The end of one, the beginning of the next.
  ASSERT_TRUE(store_->write_sync(*file_, FileOffset(kChunk - 2000), written).is_ok());
  std::copy(written.begin(), written.end(), content_.begin() + kChunk - 2000);
  ASSERT_TRUE(store_->punch_sync(*file_, FileOffset(3 * kChunk + 10), 20).is_ok());
  std::fill_n(content_.begin() + 3 * kChunk + 10, 20, std::byte{0});
  expect_content();
  ASSERT_TRUE(store_->commit_sync(*file_).is_ok());
  close();
  open();
  expect_content();
  ASSERT_TRUE(store_->truncate_sync(*file_, 4 * kChunk + 500).is_ok());
  ASSERT_TRUE(store_->truncate_sync(*file_, kSize).is_ok());
  std::fill(content_.begin() + 4 * kChunk + 500, content_.end(), std::byte{0});
  ASSERT_TRUE(store_->commit_sync(*file_).is_ok());
  close();
  open();
  expect_content();
  close();
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

// Right checksums over what does not decode, from a writer that is broken or means harm: the chunk fails, the others
// do not, and whoever checks says so.
TEST_F(ZstdChunks, ThatDoNotDecodeFail) {
  Bytes frame = zstd_frame(part(1));
  const std::vector<std::pair<std::string, Bytes>> damages = {
      {"no frame", Bytes(part(1).begin(), part(1).begin() + 4000)},
      {"cut", Bytes(frame.begin(), frame.end() - 1)},
      {"too short", zstd_frame(part(1).first(kChunk - 1))},
      {"too long", zstd_frame(std::span(content_).subspan(kChunk, kChunk + 1))},
      {"two frames",
       [&] {
         frame.insert(frame.end(), frame.begin(), frame.end());
         return frame;
       }()},
  };
  for (const auto& [what, stored] : damages) {
    SCOPED_TRACE(what);
    store(1, stored, Codec::kZstd);
    for (const bool verify : {true, false}) {
      open(verify);
      const Result<Bytes> failed = read(kChunk + 100, 100);
      EXPECT_EQ(failed.status().code(), StatusCode::kCorruption);
      EXPECT_NE(failed.status().message().find("zstd frame"), std::string::npos) << failed.status().message();
      EXPECT_FALSE(store_->write_sync(*file_, FileOffset(kChunk), Bytes(10)).is_ok())
          << "what is kept of it is not known";
      for (const uint64_t other : {0, 2, 3, 4}) {
        const Result<Bytes> bytes = read(other * kChunk, part(other).size());
        ASSERT_TRUE(bytes.is_ok()) << bytes.status().message();
        EXPECT_TRUE(std::ranges::equal(*bytes, part(other))) << "chunk " << other;
      }
      close();
    }
    const CheckReport report = array_.check(Repair::kNone, true);
    EXPECT_EQ(summary(report), "checksum /packed 1 " + std::to_string(record_.extents[1].second.member.value()));
    ASSERT_FALSE(report.errors.empty());
    EXPECT_NE(report.errors[0].detail.find("zstd frame"), std::string::npos) << report.errors[0].detail;
  }
}

}  // namespace
}  // namespace fpfs
