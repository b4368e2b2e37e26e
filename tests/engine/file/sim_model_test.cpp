// Model check of open files: random operations on several files against a vector of bytes each, in the simulated world
// where every completion comes in a seeded order and buffers are always short.
#include <gtest/gtest.h>

#include <map>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

constexpr uint64_t kLargest = 20 * kTestChunk;

class ModelTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  ModelTest()
      : random_(GetParam()),
        array_(GetParam(), static_cast<unsigned>(random_.between(1, 4)), choose_options(), chunk_size()) {}

  StoreOptions choose_options() {
    StoreOptions options;
    options.inline_max = random_.chance(50) ? kInlineSizeMax : static_cast<uint32_t>(random_.below(5000));
    options.queue_depth = static_cast<unsigned>(random_.between(1, 5));
    options.read_ahead = static_cast<unsigned>(random_.below(6));
    options.buffer_memory = (buffers_least() + random_.below(10)) * chunk_size();
    options.durable = random_.chance(50) ? StoreOptions::Durable::kClose : StoreOptions::Durable::kFsync;
    options.background_commit_ms = 1;
    options.spare_least = random_.chance(60) ? 1 : UINT64_MAX;
    options.spare_life = {};
    options.array.handles_kept = random_.below(6);
    if (compresses()) options.compression.mode = Compression::Mode::kZstd;
    return options;
  }

  static bool compresses() { return GetParam() % 3 == 0; }
  // Of several blocks in half of the runs that have any.
  static uint32_t chunk_size() { return GetParam() % 6 == 0 ? 4 * kTestChunk : kTestChunk; }
  // Twice what the longest request needs; fewer than the files have chunks.
  static uint64_t buffers_least() { return chunk_size() > kTestChunk ? 16 : 34; }
  Bytes make_data(size_t length) {
    Bytes data = make_bytes(length, random_.next());
    if (compresses() && random_.chance(70)) make_shrink(data);
    return data;
  }

  struct OpenFile {
    std::shared_ptr<File> file;
    Bytes content;
    ReadCursor cursor;
  };

  uint64_t random_offset(const OpenFile& file) {
    if (random_.chance(30)) return random_.below(kLargest);
    if (random_.chance(30)) return round_down(random_.below(kLargest), kTestChunk);
    return random_.below(file.content.size() + 1);
  }
  size_t random_length() {
    switch (random_.below(4)) {
      case 0:
        return random_.between(1, 100);
      case 1:
        return kTestChunk;
      case 2:
        return random_.between(1, 3 * kTestChunk);
      default:
        return random_.between(1, 20'000);
    }
  }

  // Several writes at once; where they overlap nobody could tell which comes last, so they do not.
  void write(OpenFile& file) {
    struct Pending {
      Bytes data;
      SimArray::Answer<WriteRequest> answer;
    };
    std::vector<std::unique_ptr<Pending>> writes;
    uint64_t offset = random_offset(file);
    for (uint64_t count = random_.between(1, 4); count > 0; --count) {
      auto write = std::make_unique<Pending>();
      write->data = make_data(random_length());
      write->answer.request.offset = FileOffset(offset);
      write->answer.request.length = static_cast<uint32_t>(write->data.size());
      write->answer.request.data = write->data.data();
      file.content.resize(std::max<size_t>(file.content.size(), offset + write->data.size()));
      std::copy(write->data.begin(), write->data.end(), file.content.begin() + static_cast<ptrdiff_t>(offset));
      offset += write->data.size() + random_.below(100);
      writes.push_back(std::move(write));
    }
    for (auto& write : writes) file.file->write(write->answer.request);
    for (auto& write : writes) {
      const Status status = array_.wait(write->answer);
      ASSERT_TRUE(status.is_ok()) << status.message();
    }
  }

  // A stream, as the FUSE front writes one: what comes next is received into the landing, when there is one, or turns
  // out to be something else, which may be a chunk of any file. Commits and reads that come meanwhile wait for it or
  // not, but see either state of the file.
  void stream(OpenFile& file) {
    const bool is_of_chunks = random_.chance(40);
    uint64_t offset = is_of_chunks ? round_down(random_.below(kLargest), chunk_size()) : random_offset(file);
    for (uint64_t count = random_.between(2, 6); count > 0; --count) {
      const size_t length = is_of_chunks         ? chunk_size()
                            : random_.chance(80) ? random_.between(File::kLandingWriteMin, 3 * kTestChunk)
                                                 : random_length();
      const Bytes data = make_data(length);
      OpenFile* written = &file;
      uint64_t place = offset;
      Landing landing;
      if (file.file->begin_landing(landing)) {
        ASSERT_EQ(landing.capacity, landing.parts[0].iov_len + (landing.part_count > 1 ? landing.parts[1].iov_len : 0));
        const bool expected = landing.offset == FileOffset(offset) && random_.chance(80);
        const bool is_chunk = !expected && is_of_chunks;
        const Bytes other = make_bytes(landing.capacity, random_.next());
        const Bytes& received = expected || is_chunk ? data : other;
        for (uint32_t at = 0; at < std::min<size_t>(received.size(), landing.capacity); ++at)
          *landing.find(at) = received[at];
        if (is_chunk) {
          written = &std::next(files_.begin(), static_cast<ptrdiff_t>(random_.below(files_.size())))->second;
          place = random_.chance(80) ? round_down(random_offset(*written), chunk_size()) : random_offset(*written);
        }
        if (!expected && !(is_chunk && written->file->take_landing(landing, FileOffset(place), chunk_size())))
          landing.file->cancel_landing(landing);
        if (is_chunk && landing.file != nullptr) {
          ASSERT_EQ(landing.file, written->file);
          ASSERT_EQ(place % chunk_size(), 0u);
          ++taken_;
        }
      }
      SimArray::Answer<ControlRequest> commit;
      const bool commits = random_.chance(20);
      if (commits) written->file->control(commit.request);
      SimArray::Answer<WriteRequest> write;
      write.request.offset = FileOffset(place);
      write.request.length = static_cast<uint32_t>(length);
      Bytes rest = data;
      if (landing.file != nullptr) {
        write.request.landing = &landing;
        std::fill_n(rest.begin(), std::min<size_t>(length, landing.capacity), std::byte{0xEE});  // not to be looked at
        landings_ += 1;
      }
      write.request.data = rest.data();
      written->file->write(write.request);
      const Status status = array_.wait(write);
      ASSERT_TRUE(status.is_ok()) << status.message();
      ASSERT_EQ(landing.file, nullptr);
      ASSERT_EQ(landing.spare, nullptr);
      if (commits) {
        const Status committed = array_.wait(commit);
        ASSERT_TRUE(committed.is_ok()) << committed.message();
      }
      written->content.resize(std::max<size_t>(written->content.size(), place + length));
      std::copy(data.begin(), data.end(), written->content.begin() + static_cast<ptrdiff_t>(place));
      if (written == &file) offset = place + length;
      if (random_.chance(20)) read(*written);
    }
  }

  void read(OpenFile& file) {
    const bool sequential = random_.chance(60);
    uint64_t offset = sequential ? file.cursor.next_offset.value() : random_offset(file);
    for (int reads = 0; reads < 3; ++reads) {
      const auto length = static_cast<uint32_t>(random_length());
      const Result<Bytes> data = array_.read(*file.file, offset, length, sequential ? &file.cursor : nullptr);
      ASSERT_TRUE(data.is_ok()) << data.status().message();
      const uint64_t end = std::min<uint64_t>(file.content.size(), offset + length);
      const uint64_t expected = offset < end ? end - offset : 0;
      ASSERT_EQ(data->size(), expected);
      ASSERT_TRUE(std::equal(data->begin(), data->end(),
                             file.content.begin() + static_cast<ptrdiff_t>(expected > 0 ? offset : 0)))
          << "at " << offset << ", " << length << " bytes of " << file.content.size();
      offset += length;
    }
  }

  void truncate(OpenFile& file) {
    const uint64_t size = random_.chance(20) ? 0 : random_offset(file);
    const Status status = array_.control(*file.file, ControlRequest::Kind::kTruncate, size);
    ASSERT_TRUE(status.is_ok()) << status.message();
    file.content.resize(size);
  }

  void punch(OpenFile& file) {
    const uint64_t offset = random_offset(file), length = random_length();
    const Status status = array_.control(*file.file, ControlRequest::Kind::kPunchHole, offset, length);
    ASSERT_TRUE(status.is_ok()) << status.message();
    const uint64_t end = std::min<uint64_t>(file.content.size(), offset + length);
    if (offset < end) std::fill_n(file.content.begin() + static_cast<ptrdiff_t>(offset), end - offset, std::byte{0});
  }

  void commit(OpenFile& file) {
    const auto kind = random_.chance(30) ? ControlRequest::Kind::kClose : ControlRequest::Kind::kCommit;
    const Status status = array_.control(*file.file, kind);
    ASSERT_TRUE(status.is_ok()) << status.message();
    EXPECT_FALSE(file.file->is_dirty());
  }

  // What the metadata say must be what the content is.
  void look(OpenFile& file) {
    ASSERT_EQ(file.file->size(), file.content.size());
    const uint64_t offset = random_.below(file.content.size() + 1);
    const Result<FileOffset> data = file.file->seek(FileOffset(offset), false);
    const uint64_t first_data = data.is_ok() ? data->value() : file.content.size();
    ASSERT_GE(first_data, offset);
    ASSERT_TRUE(std::all_of(file.content.begin() + static_cast<ptrdiff_t>(offset),
                            file.content.begin() + static_cast<ptrdiff_t>(first_data),
                            [](std::byte byte) { return byte == std::byte{0}; }))
        << "SEEK_DATA from " << offset << " passes over data before " << first_data;
  }

  void close_all() {
    for (auto& [name, file] : files_) {
      const Status committed = array_.control(*file.file, ControlRequest::Kind::kClose);
      ASSERT_TRUE(committed.is_ok()) << committed.message();
      file.file.reset();
    }
    const Status closed = array_.close();
    ASSERT_TRUE(closed.is_ok()) << closed.message();
  }

  void reopen() {
    close_all();
    array_.open();
    for (auto& [name, file] : files_) {
      ASSERT_EQ(array_.size_of(name), file.content.size()) << name;
      file.file = array_.open(name);
      file.cursor = {};
    }
  }

  void step() {
    const std::string name = "f" + std::to_string(random_.below(4));
    if (!files_.contains(name)) {
      files_[name].file = array_.create(name);
      return;
    }
    OpenFile& file = files_[name];
    switch (random_.below(16)) {
      case 0:
      case 1:
      case 2:
        return write(file);
      case 3:
      case 4:
        return stream(file);
      case 5:
      case 6:
      case 7:
      case 8:
        return read(file);
      case 9:
        return truncate(file);
      case 10:
        return punch(file);
      case 11:
      case 12:
        return commit(file);
      case 13:
        return look(file);
      case 14:
        return file.file->closed_by_writer();
      default:
        if (random_.chance(20)) reopen();
    }
  }

  SimRandom random_;
  SimArray array_;
  std::map<std::string, OpenFile> files_;
  unsigned landings_ = 0;  // writes that had one
  unsigned taken_ = 0;     // of these, in the place of another's
};

TEST_P(ModelTest, FilesHoldWhatWasWritten) {
  for (int i = 0; i < 500 && !HasFatalFailure(); ++i) step();
  if (HasFatalFailure()) return;
  reopen();
  for (auto& [name, file] : files_) {
    const Result<Bytes> content = array_.read_all(*file.file);
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    EXPECT_TRUE(*content == file.content) << name;
    EXPECT_GT(landings_, 0U);
  }
  EXPECT_GT(taken_, 0U);
  close_all();
  CheckOptions options;
  options.verify_data = true;
  const Result<CheckReport> report = check_array(array_.world(), array_.paths(), options);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->clean()) << report->errors.front().kind << ": " << report->errors.front().detail;
  array_.open();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Range<uint64_t>(0, 40));

// The file was emptied while the pages were on their way; also where they come to the landing of another's chunk.
TEST(Landings, OfAMappingMakeNoFileLonger) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SimArray array(seed, 2);
    std::shared_ptr<File> stream = array.create("stream"), mapped = array.create("mapped");
    const Bytes chunk = make_bytes(kTestChunk, seed);
    ASSERT_TRUE(array.write(*stream, 0, chunk).is_ok());
    ASSERT_TRUE(array.write(*mapped, 0, chunk).is_ok());
    ASSERT_TRUE(array.control(*mapped, ControlRequest::Kind::kTruncate, 0).is_ok());
    Landing landing;
    ASSERT_TRUE(stream->begin_landing(landing));
    std::copy(chunk.begin(), chunk.end(), landing.find(0));
    ASSERT_TRUE(mapped->take_landing(landing, FileOffset(0), kTestChunk));
    SimArray::Answer<WriteRequest> write;
    write.request.offset = FileOffset(0);
    write.request.length = kTestChunk;
    write.request.data = chunk.data();
    write.request.origin.by_mapping = true;
    write.request.landing = &landing;
    mapped->write(write.request);
    ASSERT_TRUE(array.wait(write).is_ok());
    EXPECT_EQ(mapped->size(), 0u);
    EXPECT_EQ(landing.spare, nullptr);
    stream.reset();
    mapped.reset();
    EXPECT_TRUE(array.close().is_ok());
  }
}

}  // namespace
}  // namespace fpfs::test
