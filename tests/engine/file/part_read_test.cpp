// Short reads at random of chunks that are stored as blocks: they read and decode the blocks that they need, verified
// (promise P3), and whatever else happens to the chunk meanwhile, readers get its content.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "engine/codec/block_format.h"
#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

constexpr uint32_t kChunk = 512 * kKiB, kBlock = 64 * kKiB;
constexpr uint64_t kChunks = 5, kLength = kChunks * kChunk - 1234;
constexpr unsigned kMembers = 2;

class PartReadTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  PartReadTest() : random_(GetParam()), array_(GetParam(), kMembers, options(), kChunk) {
    content_ = make(kLength);
    file_ = array_.create("a");
    save(0, content_);
    reopen();
  }
  ~PartReadTest() override { EXPECT_EQ(usable(), all_) << "buffers are lost"; }

  static StoreOptions options() {
    StoreOptions options;
    options.compression.mode = Compression::Mode::kZstd;
    options.inline_max = 0;
    options.read_ahead = 2;
    return options;
  }
  Bytes make(size_t length) {
    Bytes data = make_bytes(length, random_.next());
    make_shrink(data);
    return data;
  }
  void save(uint64_t offset, const Bytes& data) {
    write(offset, data);
    ASSERT_TRUE(array_.commit(*file_).is_ok());
  }
  void write(uint64_t offset, const Bytes& data) {
    for (size_t at = 0; at < data.size(); at += kRequestBytesMax) {
      const auto piece = std::span(data).subspan(at, std::min<size_t>(kRequestBytesMax, data.size() - at));
      ASSERT_TRUE(array_.write(*file_, offset + at, piece).is_ok());
    }
  }
  // What is in memory is forgotten.
  void reopen() {
    file_.reset();
    ASSERT_TRUE(array_.close().is_ok());
    array_.open();
    file_ = array_.open("a");
    all_ = usable();
  }
  uint64_t usable() {
    array_.world().drain();
    const auto buffers = array_.store().status().buffers;
    return buffers.free + buffers.evictable;
  }
  uint64_t bytes_read() { return array_.bytes_read(); }
  uint64_t damages() {
    return array_.sum_over_members([](const MemberStatus& member) { return member.checksum_errors; });
  }
  Extent extent(uint64_t chunk) {
    const auto found = file_->map(ChunkIndex(chunk), 1);
    EXPECT_EQ(found.at(0).chunk, ChunkIndex(chunk));
    EXPECT_EQ(found.at(0).extent.codec, Codec::kBlocks);
    EXPECT_GT(found.at(0).extent.stored_length, 2 * kBlock);
    return found.at(0).extent;
  }
  std::string object_of(uint64_t chunk) {
    const std::vector<std::string> objects =
        array_.sim().files_below(array_.paths()[extent(chunk).member.value()] + "/objects");
    EXPECT_EQ(objects.size(), 1u);
    return objects.at(0);
  }
  static uint64_t place(const Extent& extent) { return offset_of(extent.slot, kChunk).value(); }
  // What is stored of a chunk, in the object as it is now.
  Bytes stored(uint64_t chunk) {
    const Bytes object = array_.sim().content_of(object_of(chunk));
    const auto begin = object.begin() + static_cast<ptrdiff_t>(place(extent(chunk)));
    return {begin, begin + extent(chunk).stored_length};
  }
  // Where the block with a byte of the content begins, within what is stored of its chunk.
  uint64_t block_of(uint64_t chunk, uint64_t offset_in_chunk) {
    const Bytes bytes = stored(chunk);
    uint64_t at = blocks::index_length(extent(chunk).raw_length, kBlock);
    for (uint64_t i = 0; i < offset_in_chunk / kBlock; ++i)
      at += blocks::get_entry(&bytes[blocks::kHeaderLength + i * blocks::kEntryLength]).stored_length;
    return at;
  }
  // Drives that hold something else than was written.
  void plant(uint64_t chunk, uint64_t offset, const Bytes& bytes) {
    const std::string object = object_of(chunk);
    const uint64_t at = place(extent(chunk)) + offset;
    const Bytes now = array_.sim().content_of(object);
    for (size_t i = 0; i < bytes.size() && at + i < now.size(); ++i)
      for (unsigned bit = 0; bit < 8; ++bit)
        if (((bytes[i] ^ now[at + i]) >> bit & std::byte{1}) != std::byte{0}) {
          ASSERT_TRUE(array_.sim().flip_bit(object, at + i, bit));
        }
  }
  void expect_read(uint64_t offset, uint32_t length, ReadCursor* cursor = nullptr) {
    const Result<Bytes> data = array_.read(*file_, offset, length, cursor);
    ASSERT_TRUE(data.is_ok()) << data.status().message();
    ASSERT_EQ(data->size(), std::min<uint64_t>(length, content_.size() - offset));
    EXPECT_TRUE(std::equal(data->begin(), data->end(), content_.begin() + static_cast<ptrdiff_t>(offset)));
  }
  Status failure(uint64_t offset, uint32_t length = 4096) { return array_.read(*file_, offset, length).status(); }

  SimRandom random_;
  SimArray array_;
  Bytes content_;
  std::shared_ptr<File> file_;
  uint64_t all_ = 0;
};

TEST_P(PartReadTest, TakesNoMoreThanTheBlocksItNeeds) {
  for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
    const uint32_t length = static_cast<uint32_t>(random_.between(1, 5000));
    const uint64_t begin = random_.below(std::min<uint64_t>(kChunk, kLength - chunk * kChunk) - length);
    const uint64_t before = bytes_read();
    ReadCursor elsewhere;
    elsewhere.next_offset = FileOffset(kLength);
    expect_read(chunk * kChunk + begin, length, random_.chance(50) ? &elsewhere : nullptr);
    const uint64_t blocks = (begin + length - 1) / kBlock - begin / kBlock + 1;
    EXPECT_LE(bytes_read() - before, 2 * kIoAlignment + blocks * kBlock / 2) << "blocks of this content are that short";
    EXPECT_GT(bytes_read(), before);
  }
}

TEST_P(PartReadTest, WhoComesAgainHasTheChunkLoaded) {
  expect_read(kChunk + 100'000, 4096);
  const uint64_t before = bytes_read();
  expect_read(kChunk + 300'000, 4096);
  EXPECT_EQ(bytes_read() - before, round_up(extent(1).stored_length, kIoAlignment));
  expect_read(kChunk + 500'000, 4096);
  EXPECT_EQ(bytes_read() - before, round_up(extent(1).stored_length, kIoAlignment)) << "it is in memory";
}

TEST_P(PartReadTest, SequentialReadersLoadEachChunkOnce) {
  ReadCursor cursor;
  for (uint64_t at = 0; at < kLength; at += 8192) expect_read(at, 8192, &cursor);
  uint64_t all = 0;
  for (uint64_t chunk = 0; chunk < kChunks; ++chunk) all += round_up(extent(chunk).stored_length, kIoAlignment);
  EXPECT_EQ(bytes_read(), all);
}

TEST_P(PartReadTest, LongReadsLoadTheChunk) {
  expect_read(kChunk + 1000, kBlock + 1);
  EXPECT_EQ(bytes_read(), round_up(extent(1).stored_length, kIoAlignment));
}

TEST_P(PartReadTest, OfManyReadersAtOnceEachGetsItsBytes) {
  std::vector<std::unique_ptr<SimArray::Read>> reads;
  for (int i = 0; i < 60; ++i) {
    reads.push_back(std::make_unique<SimArray::Read>(random_.below(kLength), random_.between(1, 6000)));
    file_->read(reads.back()->request);
  }
  for (auto& read : reads) {
    ASSERT_TRUE(array_.wait(*read).is_ok()) << read->status.message();
    const uint64_t offset = read->request.offset.value();
    EXPECT_EQ(read->data.size(), std::min<uint64_t>(read->request.length, kLength - offset));
    EXPECT_TRUE(std::equal(read->data.begin(), read->data.end(), content_.begin() + static_cast<ptrdiff_t>(offset)));
  }
}

// --- damage ----------------------------------------------------------------------------------------------------------

TEST_P(PartReadTest, DamageToABlockFailsWhoReadsIt) {
  const uint64_t hit = random_.below(8) * kBlock;
  const uint64_t offset = block_of(2, hit) + random_.below(5000);
  ASSERT_TRUE(array_.sim().flip_bit(object_of(2), place(extent(2)) + offset, static_cast<unsigned>(random_.below(8))));
  expect_read(2 * kChunk + (hit + kBlock) % kChunk, 4096);
  reopen();
  const Status failed = failure(2 * kChunk + hit + random_.below(60'000));
  EXPECT_EQ(failed.code(), StatusCode::kCorruption) << failed.message();
  EXPECT_EQ(failed.errno_value(), EIO);
  EXPECT_NE(failed.message().find("a, chunk 2: member"), std::string::npos) << failed.message();
  EXPECT_NE(failed.message().find("at offset"), std::string::npos) << failed.message();
  EXPECT_EQ(failed.member(), extent(2).member.value());
  EXPECT_EQ(damages(), 1u);
  EXPECT_EQ(failure(2 * kChunk + hit).code(), StatusCode::kCorruption) << "and who comes again";
  EXPECT_EQ(damages(), 2u);
  expect_read(kChunk + hit, 4096);
}

TEST_P(PartReadTest, DamageToTheIndexFails) {
  const uint64_t offset = random_.below(32 + 8 * 16);
  ASSERT_TRUE(array_.sim().flip_bit(object_of(2), place(extent(2)) + offset, static_cast<unsigned>(random_.below(8))));
  // The checksum of the blocks is one of those that vouch for the whole.
  EXPECT_EQ(failure(2 * kChunk + random_.below(kChunk - 4096)).code(), StatusCode::kCorruption);
  EXPECT_EQ(damages(), 1u);
}

// Whole in itself, with an index that fits: but of another place, or of another time.
TEST_P(PartReadTest, BlocksOfAnotherPlaceOrTimeFail) {
  const Bytes elsewhere = stored(3);
  const Bytes before = stored(1);
  plant(0, 0, elsewhere);
  EXPECT_EQ(failure(1000).code(), StatusCode::kCorruption);
  const Bytes changed = make(kChunk);
  save(kChunk, changed);
  std::copy(changed.begin(), changed.end(), content_.begin() + kChunk);
  reopen();
  plant(1, 0, before);
  EXPECT_EQ(failure(kChunk + 1000).code(), StatusCode::kCorruption);
}

// The index is of now, the block is of another time: as long, and where a block was before.
TEST_P(PartReadTest, ABlockOfAnotherTimeFails) {
  const Bytes before = stored(1);
  Bytes changed(content_.begin() + kChunk, content_.begin() + 2 * kChunk);
  std::swap(changed[5 * kBlock + 77], changed[5 * kBlock + 78]);
  changed[5 * kBlock + 79] ^= std::byte{1};
  save(kChunk, changed);
  std::copy(changed.begin(), changed.end(), content_.begin() + kChunk);
  reopen();
  const uint64_t begin = block_of(1, 5 * kBlock);
  plant(1, begin,
        {before.begin() + static_cast<ptrdiff_t>(begin), before.begin() + static_cast<ptrdiff_t>(begin + 20'000)});
  EXPECT_EQ(failure(kChunk + 5 * kBlock).code(), StatusCode::kCorruption);
}

TEST_P(PartReadTest, FailedReadsAreReportedAndNotRemembered) {
  for (uint64_t nth = 1; nth <= 2; ++nth)  // the index, the blocks
    for (const SimFault::Effect effect : {SimFault::Effect::kError, SimFault::Effect::kShort}) {
      const uint64_t chunk = 1 + nth;
      SimFault plan{.call = SimFault::Call::kRead, .effect = effect, .filesystem = {}, .role = SimRole::kObjects};
      plan.nth = nth;
      array_.sim().inject(plan);
      EXPECT_EQ(failure(chunk * kChunk + 300'000).code(), StatusCode::kIoError);
      EXPECT_EQ(array_.sim().fault_hits(), 1u);
      array_.sim().clear_faults();
      EXPECT_GE(array_.sum_over_members([](const MemberStatus& member) { return member.read_errors; }), 1u);
      expect_read(chunk * kChunk + 300'000, 4096);
      reopen();
    }
}

// --- changes meanwhile -----------------------------------------------------------------------------------------------

// Whoever reads while a chunk is replaced, cut off or punched gets what was there at some moment; nothing is damaged.
TEST_P(PartReadTest, ChangesMeanwhileAreNoDamage) {
  for (int round = 0; round < 25; ++round) {
    if (random_.chance(40)) reopen();
    std::vector<std::unique_ptr<SimArray::Read>> reads;
    const auto begin_reads = [&] {
      for (uint64_t i = random_.between(1, 6); i > 0; --i) {
        reads.push_back(std::make_unique<SimArray::Read>(random_.below(content_.size() - 4096), 4096));
        file_->read(reads.back()->request);
      }
      for (uint64_t steps = random_.below(6); steps > 0; --steps) (void)array_.world().step();
    };
    begin_reads();
    Bytes other = make(kLength);
    const uint64_t chunk = random_.below(kChunks - 1) * kChunk;
    // Chunks of `other` take the place of those of content_.
    const auto change = [&](uint64_t offset, uint64_t length) {
      write(offset,
            {other.begin() + static_cast<ptrdiff_t>(offset), other.begin() + static_cast<ptrdiff_t>(offset + length)});
    };
    switch (random_.below(5)) {
      case 0:  // twice over, the second time maybe over what nothing has committed
        change(chunk, kChunk);
        begin_reads();
        change(chunk, kChunk);
        std::copy_n(other.begin() + static_cast<ptrdiff_t>(chunk), kChunk,
                    content_.begin() + static_cast<ptrdiff_t>(chunk));
        break;
      case 1:
        std::fill_n(other.begin() + static_cast<ptrdiff_t>(chunk), kChunk, std::byte{0});
        ASSERT_TRUE(array_.control(*file_, ControlRequest::Kind::kPunchHole, chunk, kChunk).is_ok());
        std::copy_n(other.begin() + static_cast<ptrdiff_t>(chunk), kChunk,
                    content_.begin() + static_cast<ptrdiff_t>(chunk));
        break;
      case 2:
        ASSERT_TRUE(array_.control(*file_, ControlRequest::Kind::kTruncate, 0).is_ok());
        change(0, kLength);
        content_ = other;
        break;
      default:
        change(chunk, kChunk);
        std::copy_n(other.begin() + static_cast<ptrdiff_t>(chunk), kChunk,
                    content_.begin() + static_cast<ptrdiff_t>(chunk));
        break;
    }
    begin_reads();
    ASSERT_TRUE(array_.commit(*file_).is_ok());
    begin_reads();
    for (auto& read : reads) EXPECT_TRUE(array_.wait(*read).is_ok()) << read->status.message();
    ASSERT_EQ(damages(), 0u);
    array_.world().drain();
    for (uint64_t at = random_.below(kChunk); at + 4096 < kLength; at += 300'000) expect_read(at, 4096);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PartReadTest, ::testing::Range<uint64_t>(0, 12));

}  // namespace
}  // namespace fpfs::test
