// Model check of the engine: random operations on files of a real array, each compared with the same operation on bytes
// in memory. Tiny chunks and the smallest pool, so that partial overwrites, eviction and waiting for buffers are
// routine; threads, libaio and the members' filesystem are the real ones. A seed replays its operations
// (FPFS_MODEL_SEED=n), though not the threads' interleaving; the power-cut test replays that too.
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/check/check.h"
#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;
constexpr uint64_t kSizeMax = 40 * kChunk;  // more than the pool holds
constexpr unsigned kFiles = 3;
constexpr unsigned kOperations = 250;

class Model {
 public:
  Model(uint64_t seed, StoreOptions::Durable durable, const Compression& compression = {}) : random_(seed) {
    for (const char* name : {"/a", "/b", "/c"}) directories_.push_back(root_.path() + name);
    FormatOptions format;
    // Of several blocks in half of the runs that have any.
    const uint32_t chunk_size = compression.mode != Compression::Mode::kOff && seed % 2 == 0 ? 4 * kChunk : kChunk;
    format.chunk_size = chunk_size;
    EXPECT_TRUE(Array::format(environment_, directories_, format).is_ok());
    options_.durable = durable;
    options_.compression = compression;
    options_.buffer_memory = uint64_t{chunk_size > kChunk ? 18U : 34U} * chunk_size;
    options_.background_commit_ms = 5;
    options_.array.buffered_members = true;  // the temporary directory may be on any filesystem
    open();
  }

  void run() {
    for (operation_ = 0; operation_ < kOperations && !testing::Test::HasFailure(); ++operation_) step();
    for (unsigned i = 0; i < kFiles; ++i) compare(i);
    close();
    CheckOptions check;
    check.verify_data = true;
    check.buffered_members = true;
    const Result<CheckReport> report = check_array(environment_, directories_, check);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    for (const CheckError& error : report->errors)
      ADD_FAILURE() << error.path << ": " << error.kind << ": " << error.detail;
  }

 private:
  struct Entry {
    std::shared_ptr<File> file;
    std::vector<std::byte> content;
    ReadCursor cursor;
  };

  bool compresses() const { return options_.compression.mode != Compression::Mode::kOff; }
  uint64_t pick(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  // Sizes from a few bytes to several chunks, offsets often at or near chunk boundaries.
  uint64_t pick_length() { return 1 + (pick(3) == 0 ? pick(4 * kChunk) : pick(6000)); }
  uint64_t pick_offset(uint64_t bound) {
    const uint64_t offset = pick(bound + 1);
    return pick(3) == 0 ? round_down(offset, kChunk) : offset;
  }

  void open() {
    Result<std::unique_ptr<Store>> store = Store::open(environment_, directories_, options_);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
    for (unsigned i = 0; i < kFiles; ++i) {
      const std::string name = "file" + std::to_string(i);
      if (Result<Store::Created> created = store_->create(store_->root(), name, 0644); created.is_ok()) {
        entries_[i].file = created->file;
        created->node.handle.reset();
        continue;
      }
      Result<Store::Node> node = store_->lookup(store_->root(), name);
      ASSERT_TRUE(node.is_ok()) << node.status().message();
      EXPECT_EQ(static_cast<uint64_t>(node->attributes.st_size), entries_[i].content.size());
      Result<std::shared_ptr<File>> file = store_->open_file(node->handle.get(), true);
      node->handle.reset();
      ASSERT_TRUE(file.is_ok()) << file.status().message();
      entries_[i].file = std::move(*file);
      entries_[i].cursor = {};
    }
  }

  void close() {
    const Status status = store_->close();  // closes the files, too, as unmounting does
    EXPECT_TRUE(status.is_ok()) << status.message();
    for (Entry& entry : entries_) entry.file = nullptr;
    store_ = nullptr;
  }

  void step() {
    SCOPED_TRACE(fmt::format("operation {}", operation_));
    const auto index = static_cast<unsigned>(pick(kFiles));
    Entry& entry = entries_[index];
    const uint64_t size = entry.content.size();
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
        return write(entry, pick_offset(std::min(size, kSizeMax - 1)), pick_length());
      case 3:
        return write(entry, size, pick_length());
      case 4:
        return write(entry, pick_offset(kSizeMax - 1), pick_length());  // may leave a hole
      case 5:
      case 6:
        return read(entry, pick_offset(size), pick_length());
      case 7:
        return truncate(entry, pick(4) == 0 ? 0 : pick_offset(kSizeMax));
      case 8:
        return punch(entry, pick_offset(size), pick_length());
      case 9:
      case 10:
        return expect_ok(store_->commit_sync(*entry.file));
      default:
        if (pick(4) > 0) return compare(index);
        close();
        return open();
    }
  }

  void expect_ok(const Status& status) { EXPECT_TRUE(status.is_ok()) << status.message(); }

  void write(Entry& entry, uint64_t offset, uint64_t length) {
    length = std::min(length, kSizeMax - std::min(kSizeMax, offset));
    std::vector<std::byte> data(length);
    test::fill(data, random_(), offset);
    if (compresses() && pick(4) != 0) test::make_shrink(data);
    expect_ok(store_->write_sync(*entry.file, FileOffset(offset), data));
    if (length == 0) return;
    entry.content.resize(std::max(entry.content.size(), static_cast<size_t>(offset + length)));
    std::copy(data.begin(), data.end(), entry.content.begin() + static_cast<ptrdiff_t>(offset));
  }

  void read(Entry& entry, uint64_t offset, uint64_t length) {
    std::vector<std::byte> data(length);
    ReadCursor* const cursor = pick(2) == 0 ? &entry.cursor : nullptr;
    const Result<size_t> got = store_->read_sync(*entry.file, FileOffset(offset), data, cursor);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    const uint64_t size = entry.content.size();
    const uint64_t expected = offset >= size ? 0 : std::min(length, size - offset);
    ASSERT_EQ(*got, expected);
    const auto begin = entry.content.begin() + static_cast<ptrdiff_t>(std::min(offset, size));
    const auto [found, _] = std::mismatch(data.begin(), data.begin() + static_cast<ptrdiff_t>(expected), begin);
    EXPECT_EQ(static_cast<uint64_t>(found - data.begin()), expected)
        << "first wrong byte, read from " << offset << " of " << size;
  }

  void compare(unsigned index) {
    Entry& entry = entries_[index];
    EXPECT_EQ(entry.file->size(), entry.content.size());
    for (uint64_t at = 0; at <= entry.content.size(); at += kRequestBytesMax) read(entry, at, kRequestBytesMax);
  }

  void truncate(Entry& entry, uint64_t size) {
    expect_ok(store_->truncate_sync(*entry.file, size));
    entry.content.resize(size);
  }

  void punch(Entry& entry, uint64_t offset, uint64_t length) {
    expect_ok(store_->punch_sync(*entry.file, FileOffset(offset), length));
    const uint64_t end = std::min<uint64_t>(offset + length, entry.content.size());
    for (uint64_t at = offset; at < end; ++at) entry.content[at] = std::byte{0};
  }

  test::TemporaryDirectory root_;
  PosixEnvironment environment_{3};
  std::vector<std::string> directories_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
  std::array<Entry, kFiles> entries_;
  std::mt19937_64 random_;
  unsigned operation_ = 0;
};

void run_seeds(uint64_t first, StoreOptions::Durable durable, const Compression& compression = {}) {
  uint64_t count = test::alike(8);
  if (const char* only = std::getenv("FPFS_MODEL_SEED")) {
    first = std::strtoull(only, nullptr, 10);
    count = 1;
  }
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("replay with FPFS_MODEL_SEED={}", seed));
    Model(seed, durable, compression).run();
  }
}

TEST(EngineModel, DurableAtClose) {
  run_seeds(1, StoreOptions::Durable::kClose);
}

TEST(EngineModel, DurableAtFsync) {
  run_seeds(1001, StoreOptions::Durable::kFsync);
}

TEST(EngineModel, Compressing) {
  run_seeds(2001, StoreOptions::Durable::kClose, {.mode = Compression::Mode::kZstd, .level = 1});
}

}  // namespace
}  // namespace fpfs
