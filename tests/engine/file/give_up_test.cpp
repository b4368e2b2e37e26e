// A member that hangs, and one that answers again: whoever waits is told in bounded time, nobody else is harmed, and
// what the drive still holds is not used for anything else.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "engine/check/check.h"
#include "engine/store/store.h"
#include "tests/support/hanging_environment.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
constexpr uint32_t kChunk = 256 * kKiB;  // long enough to be read in part
constexpr unsigned kTimeoutMs = 600;
constexpr unsigned kAmpleTimeoutMs = 2000;  // where a step has to come before the limit, on a machine that is busy too
constexpr auto kBounded = std::chrono::seconds(10);  // far more than any limit here, far less than for ever

// With chunks that are stored as they are, and encoded.
class GiveUpTest : public testing::TestWithParam<Compression::Mode> {
 protected:
  GiveUpTest() {
    for (const char* name : {"a", "b", "c"}) directories_.push_back(place_ / name);
    {
      PosixEnvironment plain{2};
      FormatOptions format;
      format.chunk_size = kChunk;
      EXPECT_TRUE(Array::format(plain, directories_, format).is_ok());
    }
    environment_ = std::make_unique<test::HangingEnvironment>(directories_);
    open();
  }
  ~GiveUpTest() override {
    environment_->answer_again();
    if (store_ != nullptr) {
      wait_until([&] { return !any_stalled(); });  // handles of a member that hangs stay open
      (void)close();
    }
    environment_.reset();
    if (!is_damaged_) expect_clean();
  }

  void open(uint64_t buffers = 64, unsigned io_timeout_ms = kTimeoutMs) {
    StoreOptions options;
    options.compression.mode = GetParam();
    options.buffer_memory = buffers * kChunk;
    options.queue_depth = 4;
    options.io_timeout_ms = io_timeout_ms;
    options.array.buffered_members = true;
    auto store = Store::open(*environment_, directories_, options);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
    all_ = usable();
  }
  // Buffers that are free or may be taken.
  uint64_t usable() const { return store_->status().buffers.free + store_->status().buffers.evictable; }
  void open_with_ample_timeout() {
    EXPECT_TRUE(close().is_ok());
    open(64, kAmpleTimeoutMs);
  }
  Status close() {
    const Status status = store_->close();
    store_.reset();
    return status;
  }
  void expect_clean() {
    PosixEnvironment plain{2};
    CheckOptions options;
    options.verify_data = true;
    options.buffered_members = true;
    options.repair = Repair::kPreen;  // what was given up on may be left over
    const Result<CheckReport> report = check_array(plain, directories_, options);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    for (const CheckError& error : report->errors)  // space is not given back without asking after a clean end
      EXPECT_TRUE(error.repaired || error.kind == "leftover-space")
          << error.path << " " << error.kind << " " << error.detail;
  }

  std::shared_ptr<File> create(const std::string& name) {
    auto created = store_->create(store_->root(), name, 0644);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    return created->file;
  }
  std::shared_ptr<File> open_file(const std::string& name) {
    auto node = store_->lookup(store_->root(), name);
    EXPECT_TRUE(node.is_ok()) << node.status().message();
    auto file = store_->open_file(node->handle.get(), true);
    node->handle.reset();
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return *file;
  }
  static bool compresses() { return GetParam() != Compression::Mode::kOff; }
  static std::vector<std::byte> data(uint64_t size, uint64_t seed) {
    std::vector<std::byte> bytes(size);
    test::fill(bytes, seed, 0);
    if (compresses()) test::make_shrink(bytes);
    return bytes;
  }
  Status write(File& file, uint64_t offset, const std::vector<std::byte>& bytes) {
    return bounded<Status>([&] { return store_->write_sync(file, FileOffset(offset), bytes); });
  }
  Status commit(File& file) {
    return bounded<Status>([&] { return store_->commit_sync(file); });
  }
  // The content is that of `seed`, or the failure of reading it.
  Status read(File& file, uint64_t size, uint64_t seed) {
    std::vector<std::byte> buffer(size);
    const auto got = bounded<Result<size_t>>([&] { return store_->read_sync(file, FileOffset(0), buffer); });
    if (!got.is_ok()) return got.status();
    EXPECT_EQ(*got, size);
    EXPECT_TRUE(buffer == data(size, seed));
    return Status::ok();
  }
  template <typename Outcome, typename Call>
  Outcome bounded(Call call) {
    std::future<Outcome> outcome = std::async(std::launch::async, call);
    if (outcome.wait_for(kBounded) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      environment_->answer_again();
    }
    return outcome.get();
  }
  template <typename Condition>
  void wait_until(Condition condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(2));
    EXPECT_TRUE(condition());
  }
  bool any_stalled() const {
    const StoreStatus status = store_->status();
    return status.metadata_stalled || std::ranges::any_of(status.members, &MemberStatus::stalled);
  }
  MemberStatus member(int index) const { return store_->status().members[static_cast<size_t>(index)]; }

  const test::TemporaryDirectory place_{test::quick_place()};
  std::vector<std::string> directories_;
  uint64_t all_ = 0;  // usable buffers of a store that does nothing
  std::unique_ptr<test::HangingEnvironment> environment_;
  std::unique_ptr<Store> store_;
  bool is_damaged_ = false;
};

TEST_P(GiveUpTest, AHangingWriteFailsTheFileAndNoOther) {
  open_with_ample_timeout();
  const auto other = create("other");
  ASSERT_TRUE(write(*other, 0, data(6 * kChunk, 1)).is_ok());
  ASSERT_TRUE(commit(*other).is_ok());
  const auto file = create("file");
  environment_->hang(1);
  ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 2)).is_ok()) << "taken into memory";
  const Status status = commit(*file);
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.message();
  EXPECT_NE(status.message().find("member 1 (" + directories_[1] + ") has not answered"), std::string::npos)
      << status.message();
  EXPECT_TRUE(member(1).stalled);
  EXPECT_GE(member(1).write_errors, 1u);
  EXPECT_FALSE(member(0).stalled);
  // From now on at once, not after the time limit.
  const auto begin = std::chrono::steady_clock::now();
  const auto third = create("third");
  ASSERT_TRUE(write(*third, 0, data(3 * kChunk, 3)).is_ok());
  EXPECT_FALSE(commit(*third).is_ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(kAmpleTimeoutMs));
  // Names and small files go on, and so does what is in memory.
  const auto small = create("small");
  ASSERT_TRUE(write(*small, 0, data(1000, 4)).is_ok());
  EXPECT_TRUE(commit(*small).is_ok());
  EXPECT_FALSE(store_->status().read_only);

  environment_->answer_again();
  wait_until([&] { return !member(1).stalled; });
  EXPECT_FALSE(commit(*file).is_ok()) << "a failed file stays failed";
  EXPECT_TRUE(read(*other, 6 * kChunk, 1).is_ok());
  const auto again = create("again");
  ASSERT_TRUE(write(*again, 0, data(9 * kChunk, 5)).is_ok());
  EXPECT_TRUE(commit(*again).is_ok());
  EXPECT_TRUE(read(*again, 9 * kChunk, 5).is_ok());
}

TEST_P(GiveUpTest, AShortHangIsSurvived) {
  open_with_ample_timeout();
  const auto file = create("file");
  environment_->hang(2);
  ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
  auto committed = std::async(std::launch::async, [&] { return store_->commit_sync(*file); });
  std::this_thread::sleep_for(milliseconds(200));
  environment_->answer_again();
  EXPECT_TRUE(committed.get().is_ok());
  EXPECT_TRUE(read(*file, 9 * kChunk, 1).is_ok());
}

TEST_P(GiveUpTest, BuffersUnderHangingTransfersAreNotUsedForAnythingElse) {
  open_with_ample_timeout();
  const auto file = create("file");
  environment_->hang(1);
  ASSERT_TRUE(write(*file, 0, data(30 * kChunk, 1)).is_ok());
  EXPECT_FALSE(commit(*file).is_ok());
  wait_until([&] { return environment_->queue(1).on_drive() == 4; });
  // What was only waiting has come back; what the drive has, has not.
  wait_until([&] { return usable() == all_ - 4; });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(usable(), all_ - 4);
  environment_->answer_again();
  wait_until([&] { return usable() == all_; });
}

TEST_P(GiveUpTest, WaitingForBuffersEndsToo) {
  ASSERT_TRUE(close().is_ok());
  open(34);
  environment_->hang(1);
  // More than the pool holds: the writer has to wait for buffers that come no more.
  const auto file = create("file");
  EXPECT_FALSE(write(*file, 0, data(200 * kChunk, 1)).is_ok());
  EXPECT_FALSE(commit(*file).is_ok());
  // Others find buffers again.
  const auto small = create("small");
  EXPECT_TRUE(write(*small, 0, data(1000, 2)).is_ok());
  EXPECT_TRUE(commit(*small).is_ok());
  environment_->answer_again();
}

TEST_P(GiveUpTest, AHangingReadFailsAndTheFileStaysWhole) {
  {
    const auto file = create("file");
    ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
    ASSERT_TRUE(commit(*file).is_ok());
  }
  ASSERT_TRUE(close().is_ok());
  open();
  const auto file = open_file("file");
  environment_->hang(1);
  const Status status = read(*file, 9 * kChunk, 1);
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.message();
  EXPECT_GE(member(1).read_errors, 1u);
  EXPECT_TRUE(file->error().is_ok());
  // What other members hold is read, also from the same file.
  const std::vector<std::byte> written = data(9 * kChunk, 1);
  std::vector<std::byte> chunk(kChunk);
  int good = 0;
  for (uint64_t c = 0; c < 9; ++c) {
    const auto got =
        bounded<Result<size_t>>([&] { return store_->read_sync(*file, offset_of(ChunkIndex(c), kChunk), chunk); });
    if (!got.is_ok()) continue;
    EXPECT_TRUE(std::equal(chunk.begin(), chunk.end(), written.begin() + static_cast<ptrdiff_t>(c * kChunk)));
    ++good;
  }
  EXPECT_EQ(good, 6);
  // A partial overwrite needs the chunk: it fails, and with it nothing but the write.
  environment_->answer_again();
  wait_until([&] { return !member(1).stalled; });
  EXPECT_TRUE(read(*file, 9 * kChunk, 1).is_ok());
}

// Of a chunk that is stored as blocks it has only some of them loaded, for itself.
TEST_P(GiveUpTest, AHangingShortReadFailsAndGivesItsBufferBack) {
  {
    const auto file = create("file");
    ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
    ASSERT_TRUE(commit(*file).is_ok());
  }
  ASSERT_TRUE(close().is_ok());
  open();
  const auto file = open_file("file");
  const std::vector<std::byte> written = data(9 * kChunk, 1);
  const auto failures = [&] {
    int failed = 0;
    for (uint64_t c = 0; c < 9; ++c) {
      std::vector<std::byte> piece(4096);
      const uint64_t at = c * kChunk + 100'000;
      const auto got = bounded<Result<size_t>>([&] { return store_->read_sync(*file, FileOffset(at), piece); });
      if (got.is_ok())
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), written.begin() + static_cast<ptrdiff_t>(at)));
      else
        EXPECT_EQ(got.status().code(), StatusCode::kIoError) << got.status().message();
      failed += got.is_ok() ? 0 : 1;
    }
    return failed;
  };
  environment_->hang(1);
  EXPECT_EQ(failures(), 3);
  EXPECT_GE(member(1).read_errors, 1u);
  EXPECT_TRUE(file->error().is_ok());
  environment_->answer_again();
  wait_until([&] { return !member(1).stalled; });
  EXPECT_EQ(failures(), 0);
  wait_until([&] { return usable() == all_; });
}

TEST_P(GiveUpTest, APartialOverwriteOfAHangingChunkFails) {
  {
    const auto file = create("file");
    ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
    ASSERT_TRUE(commit(*file).is_ok());
  }
  ASSERT_TRUE(close().is_ok());
  open();
  const auto file = open_file("file");
  environment_->hang(1);
  int failures = 0;
  for (uint64_t c = 0; c < 3; ++c)
    if (!write(*file, c * kChunk + 10, data(10, 2)).is_ok()) ++failures;
  EXPECT_EQ(failures, 1);
  environment_->answer_again();
}

TEST_P(GiveUpTest, VerifyingAHangingChunkEnds) {
  const auto file = create("file");
  ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
  ASSERT_TRUE(commit(*file).is_ok());
  environment_->hang(2);
  int failures = 0;
  for (uint64_t c = 0; c < 9; ++c) {
    std::promise<Status> answer;
    file->verify_chunk(ChunkIndex(c),
                       [&answer](const Status& status, ChunkVerifier::Remedy) { answer.set_value(status); });
    auto future = answer.get_future();
    ASSERT_EQ(future.wait_for(kBounded), std::future_status::ready);
    if (!future.get().is_ok()) ++failures;
  }
  EXPECT_EQ(failures, 3);
}

TEST_P(GiveUpTest, AHangingSyncFailsTheCommitAndIsNotMadeUpFor) {
  auto file = create("file");
  ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 1)).is_ok());
  ASSERT_TRUE(commit(*file).is_ok());
  ASSERT_TRUE(write(*file, 0, data(9 * kChunk, 2)).is_ok());
  // The writes go through; only the calls hang.
  wait_until([&] { return usable() == all_; });
  environment_->hangs().hang(directories_[1] + "/objects/");
  const Status status = commit(*file);
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.message();
  EXPECT_GE(member(1).sync_errors, 1u);
  EXPECT_FALSE(store_->status().read_only) << "the index was not touched";
  environment_->answer_again();
  wait_until([&] { return !member(1).stalled && environment_->hangs().caught() == 0; });
  // The sync came through in the end; what was reported as failed must not be committed by that.
  EXPECT_FALSE(commit(*file).is_ok());
  const uint64_t committed = store_->status().commits;
  EXPECT_EQ(committed, 1u);
  file.reset();
  (void)close();
  open();
  EXPECT_TRUE(read(*open_file("file"), 9 * kChunk, 1).is_ok());
}

TEST_P(GiveUpTest, AHangingIndexTurnsTheArrayReadOnly) {
  const auto file = create("file");
  ASSERT_TRUE(write(*file, 0, data(1000, 1)).is_ok());
  environment_->hang(0, "/tree/");
  const Status status = commit(*file);
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status.message();
  EXPECT_TRUE(store_->status().read_only);
  EXPECT_NE(store_->status().read_only_reason.find("has not answered"), std::string::npos);
  EXPECT_TRUE(store_->status().metadata_stalled);
  environment_->answer_again();
  wait_until([&] { return !store_->status().metadata_stalled; });
  EXPECT_FALSE(write(*file, 0, data(1000, 2)).is_ok()) << "its state is unknown until it was looked at";
}

// A commit that is refused before it touches the index fails its file only.
TEST_P(GiveUpTest, NothingIsBegunOnAnIndexThatHangs) {
  const auto caught = create("caught"), file = create("file");
  ASSERT_TRUE(write(*caught, 0, data(9 * kChunk, 1)).is_ok());
  ASSERT_TRUE(commit(*caught).is_ok());
  ASSERT_TRUE(write(*file, 0, data(1000, 2)).is_ok());
  environment_->hang(0, "/tree");
  // Something else that asks the tree is caught first.
  std::thread other([&] { (void)store_->storage().sync_filesystem(store_->root()); });
  wait_until([&] { return store_->names_stalled(); });
  EXPECT_FALSE(commit(*file).is_ok());
  EXPECT_FALSE(store_->sync_directory(store_->root()).is_ok());
  EXPECT_FALSE(store_->status().read_only);
  environment_->answer_again();
  other.join();
  wait_until([&] { return !store_->names_stalled(); });
  EXPECT_TRUE(read(*caught, 9 * kChunk, 1).is_ok());
  const auto after = create("after");
  ASSERT_TRUE(write(*after, 0, data(1000, 3)).is_ok());
  EXPECT_TRUE(commit(*after).is_ok());
}

TEST_P(GiveUpTest, TruncatingUnderAHangingWriteDoesNotHideIt) {
  open_with_ample_timeout();
  const auto file = create("file");
  ASSERT_TRUE(write(*file, 0, data(kChunk, 9)).is_ok());
  ASSERT_TRUE(commit(*file).is_ok());
  environment_->hang(0, "/objects/");
  environment_->hang(1);
  environment_->hang(2);
  ASSERT_TRUE(write(*file, 0, data(6 * kChunk, 1)).is_ok());
  ASSERT_TRUE(store_->truncate_sync(*file, 100).is_ok());
  EXPECT_FALSE(commit(*file).is_ok());
  environment_->answer_again();
}

TEST_P(GiveUpTest, ManyCommitsThatHangDoNotKeepOthersFromTheirs) {
  // More than the executor has threads.
  std::vector<std::shared_ptr<File>> files;
  for (int i = 0; i < 12; ++i) {
    files.push_back(create("file" + std::to_string(i)));
    ASSERT_TRUE(write(*files.back(), 0, data(6 * kChunk, 1)).is_ok());
  }
  wait_until([&] { return usable() == all_; });
  environment_->hangs().hang(directories_[1] + "/objects/");
  std::vector<std::future<Status>> commits;
  commits.reserve(files.size());
  for (const auto& file : files)
    commits.push_back(std::async(std::launch::async, [&] { return store_->commit_sync(*file); }));
  const auto small = create("small");
  ASSERT_TRUE(write(*small, 0, data(1000, 2)).is_ok());
  EXPECT_TRUE(commit(*small).is_ok());
  for (auto& outcome : commits) {
    ASSERT_EQ(outcome.wait_for(kBounded), std::future_status::ready);
    EXPECT_FALSE(outcome.get().is_ok());
  }
  environment_->answer_again();
}

// As when a mount fails half way: whatever is on its way, between the parts of the engine too.
TEST_P(GiveUpTest, AStoreThatGoesWithoutItsEndLeavesNothingRunning) {
  is_damaged_ = true;  // what it leaves is for recovery
  for (uint64_t round = 0; round < 20; ++round) {
    auto file = create("file" + std::to_string(round));
    ASSERT_TRUE(write(*file, 0, data((4 + round) * kChunk, round)).is_ok());
    file.reset();
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    store_.reset();
    open();
  }
}

INSTANTIATE_TEST_SUITE_P(AsItIs, GiveUpTest, testing::Values(Compression::Mode::kOff));
INSTANTIATE_TEST_SUITE_P(Encoded, GiveUpTest, testing::Values(Compression::Mode::kZstd));

}  // namespace
}  // namespace fpfs
