// A pass over an array with a visitor that only takes notes: the order of the walk, its rate, its commands, and where
// it goes on.
#include "engine/store/background_pass.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "engine/check/scan.h"
#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Phase = PassState::Phase;
using Names = std::vector<std::string>;
constexpr uint32_t kChunk = test::kSmallChunk;

// Writes down what it is told, keeps the state in memory.
class NotingVisitor final : public PassVisitor {
 public:
  void begin_pass() override { note("begin"); }
  bool wants_chunk(File& file, ChunkIndex, const Extent&) override {
    const MutexLock lock(mutex_);
    return passed_by_.empty() || file.path() != passed_by_;
  }
  void visit_chunk(const FileEntry& entry, File&, ChunkIndex chunk, const Extent& extent,
                   std::function<void()> done) override {
    {
      const MutexLock lock(mutex_);
      notes_.push_back(entry.path + (extent.exists() ? " " + std::to_string(chunk.value()) : " content"));
      if (holds_) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done();
  }
  void file_done(const FileEntry& entry, File&) override { note("settle " + entry.path); }
  void visit_unopened(const FileEntry& entry, const Status& failure) override {
    EXPECT_FALSE(failure.is_ok());
    note("unopened " + entry.path);
  }
  void end_pass(const PassState& state) override {
    EXPECT_EQ(state.phase, Phase::kFinished);
    note("end");
  }
  Result<PassState> load() override {
    const MutexLock lock(mutex_);
    if (!load_status_.is_ok()) return load_status_;
    return saved_.empty() ? PassState() : saved_.back();
  }
  Status save(const PassState& state) override {
    const MutexLock lock(mutex_);
    saved_.push_back(state);
    return save_status_;
  }

  // Of this file nothing is to be done.
  void pass_by(const std::string& path) {
    const MutexLock lock(mutex_);
    passed_by_ = path;
  }
  // From now on chunks stay in flight.
  void hold() {
    const MutexLock lock(mutex_);
    holds_ = true;
  }
  size_t held() const {
    const MutexLock lock(mutex_);
    return held_.size();
  }
  void release() {
    std::deque<std::function<void()>> held;
    {
      const MutexLock lock(mutex_);
      holds_ = false;
      held.swap(held_);
    }
    for (const auto& done : held) done();
  }
  // What was noted since it was last asked.
  Names take_notes() {
    const MutexLock lock(mutex_);
    return std::exchange(notes_, {});
  }
  size_t chunks_since_begin() const {
    const MutexLock lock(mutex_);
    const auto begin = std::find(notes_.rbegin(), notes_.rend(), "begin");
    return static_cast<size_t>(
        std::count_if(notes_.rbegin(), begin, [](const std::string& note) { return note.starts_with('/'); }));
  }
  // Chunks only.
  Names take_chunks() {
    Names notes = take_notes();
    std::erase_if(notes, [](const std::string& note) { return !note.starts_with('/'); });
    return notes;
  }
  std::vector<PassState> saved() const {
    const MutexLock lock(mutex_);
    return saved_;
  }
  void keep_only(const PassState& state) {
    const MutexLock lock(mutex_);
    saved_ = {state};
  }
  void fail_load(const Status& status) { load_status_ = status; }
  void fail_save(const Status& status) { save_status_ = status; }

 private:
  void note(const std::string& what) {
    const MutexLock lock(mutex_);
    notes_.push_back(what);
  }

  mutable Mutex mutex_;
  Names notes_ FPFS_GUARDED_BY(mutex_);
  bool holds_ FPFS_GUARDED_BY(mutex_) = false;
  std::string passed_by_ FPFS_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> held_ FPFS_GUARDED_BY(mutex_);
  std::vector<PassState> saved_ FPFS_GUARDED_BY(mutex_);
  Status load_status_, save_status_;  // before a pass is there
};

// Directories cannot be listed on command.
class UnlistableStorage final : public PosixStorage {
 public:
  explicit UnlistableStorage(std::atomic<bool>& fails) : fails_(fails) {}
  Status list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) override {
    if (fails_) return Status::error(StatusCode::kIoError, "no list today");
    return PosixStorage::list(directory, visit);
  }

 private:
  std::atomic<bool>& fails_;
};

class BackgroundPassTest : public testing::Test {
 protected:
  BackgroundPassTest() {
    test::format_small_array(environment_, directories_);
    open();
  }
  ~BackgroundPassTest() override { close(); }

  void open(bool read_only = false) {
    store_ = test::open_small_store(environment_, directories_, read_only);
    ASSERT_NE(store_, nullptr);
    open_pass();
  }
  void open_pass(BackgroundPass::Clock::duration save_interval = BackgroundPass::kSaveInterval) {
    pass_ = std::make_unique<BackgroundPass>(*store_, visitor_, "copy", save_interval);
    pass_->open();
  }
  void close() {
    if (store_ == nullptr) return;
    pass_.reset();
    EXPECT_TRUE(store_->close().is_ok());
    store_.reset();
  }

  Result<Handle> directory_of(const std::string& path) {
    const size_t slash = path.find('/');
    if (slash == std::string::npos) return store_->storage().open_at(store_->root(), ".", O_RDONLY | O_DIRECTORY);
    static_cast<void>(store_->make_directory(store_->root(), path.substr(0, slash), 0755));
    return store_->storage().open_at(store_->root(), path.substr(0, slash), O_RDONLY | O_DIRECTORY);
  }
  // "name" or "directory/name".
  void write_file(const std::string& path, uint64_t size) {
    const Result<Handle> directory = directory_of(path);
    ASSERT_TRUE(directory.is_ok());
    auto created = store_->create(*directory, path.substr(path.find('/') + 1), 0644);
    store_->storage().close(*directory);
    ASSERT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    std::vector<std::byte> data(size);
    test::fill(data, 1, 0);
    if (size > 0) {
      ASSERT_TRUE(store_->write_sync(*created->file, FileOffset(0), data).is_ok());
    }
    ASSERT_TRUE(store_->commit_sync(*created->file).is_ok());
  }

  BackgroundPass::Report wait_for(const std::function<bool(const BackgroundPass::Report&)>& holds) {
    for (int i = 0; i < 10'000; ++i) {
      BackgroundPass::Report report = pass_->report();
      if (holds(report)) return report;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "waited in vain";
    return pass_->report();
  }
  BackgroundPass::Report wait_for_end() {
    return wait_for([](const auto& report) { return report.state.phase != Phase::kRunning; });
  }
  void wait_for_chunks(uint64_t count) {
    wait_for([count](const auto& report) { return report.state.chunks >= count; });
  }
  static Names chunks(const std::string& path, int first, int end) {
    Names names;
    for (int chunk = first; chunk < end; ++chunk) names.push_back(path + " " + std::to_string(chunk));
    return names;
  }
  static Names joined(Names a, const Names& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  const test::TemporaryDirectory place_{test::quick_place()};
  const std::vector<std::string> directories_ = {place_ / "a", place_ / "b"};
  std::atomic<bool> is_unlistable_ = false;
  PosixEnvironment environment_{4, std::make_unique<UnlistableStorage>(is_unlistable_)};
  NotingVisitor visitor_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<BackgroundPass> pass_;
};

TEST_F(BackgroundPassTest, FilesComeInTheOrderOfTheirPathsChunksInTheirs) {
  // As bytes "/a.b" lies before "/a/x": names are compared, not paths.
  write_file("a.b", 2 * kChunk);
  write_file("a/x", 3 * kChunk + 1);
  write_file("a/w", 100);  // lives in its sidecar
  write_file("empty", 0);
  write_file("Z", kChunk);
  EXPECT_EQ(pass_->report().state.phase, Phase::kNone);
  ASSERT_TRUE(pass_->start(0).is_ok());
  const BackgroundPass::Report report = wait_for_end();
  pass_->stop();
  const Names expected = {"begin",  "/Z 0",   "settle /Z",   "/a/w content",  "settle /a/w",
                          "/a/x 0", "/a/x 1", "/a/x 2",      "/a/x 3",        "settle /a/x",
                          "/a.b 0", "/a.b 1", "settle /a.b", "settle /empty", "end"};
  EXPECT_EQ(visitor_.take_notes(), expected);
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.state.files, 5U);
  EXPECT_EQ(report.state.chunks, 7U) << "content in a sidecar is no chunk";
  EXPECT_EQ(report.state.bytes, 6 * kChunk + 4096 + 512);
  EXPECT_EQ(report.bytes_total, report.state.bytes);
  EXPECT_GT(report.state.ended_seconds, 0);
  EXPECT_EQ(report.state.position, "");
}

TEST_F(BackgroundPassTest, AFileWithSeveralNamesIsVisitedOnce) {
  write_file("a", 2 * kChunk);
  auto node = store_->lookup(store_->root(), "a");
  ASSERT_TRUE(store_->link(node->handle.get(), store_->root(), "z").is_ok());
  node->handle.reset();
  ASSERT_TRUE(pass_->start(0).is_ok());
  wait_for_end();
  EXPECT_EQ(visitor_.take_chunks(), chunks("/a", 0, 2));
}

TEST_F(BackgroundPassTest, AFileThatCannotBeOpenedIsTold) {
  write_file("a", kChunk);
  write_file("b", kChunk);
  close();
  {
    std::fstream file(place_ / "a/tree/a", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(70);
    file << "damage";
  }
  open();
  visitor_.take_notes();
  ASSERT_TRUE(pass_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.files, 2U);
  pass_->stop();
  EXPECT_EQ(visitor_.take_notes(), (Names{"begin", "unopened /a", "/b 0", "settle /b", "end"}));
}

TEST_F(BackgroundPassTest, KeepsToItsRate) {
  write_file("file", 60 * kChunk);
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&began] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  ASSERT_TRUE(pass_->start(20 * kChunk).is_ok());
  wait_for_chunks(5);
  EXPECT_GT(seconds(), 0.15);
  const BackgroundPass::Report report = pass_->report();
  EXPECT_EQ(report.state.limit, 20 * kChunk);
  EXPECT_EQ(report.bytes_total, 60 * kChunk);
  EXPECT_GT(report.bytes_per_second, 0);
  EXPECT_GT(report.eta_seconds, 0);
  ASSERT_TRUE(pass_->resume(uint64_t{10 * kChunk}).is_ok()) << "a new limit while it runs";
  const double before = seconds();
  wait_for_chunks(pass_->report().state.chunks + 5);
  EXPECT_GT(seconds() - before, 0.25);
  ASSERT_TRUE(pass_->resume(uint64_t{0}).is_ok());
  const BackgroundPass::Report end = wait_for_end();
  EXPECT_EQ(end.state.chunks, 60U);
  EXPECT_LT(seconds(), 8);
  EXPECT_GE(end.state.active_ms, 400U);
}

// As that of a removal that goes on: what it moved before is passed by in no time, and says nothing of what is left.
TEST_F(BackgroundPassTest, TheTimeThatIsLeftIsOfWhatIsVisited) {
  write_file("before", 200 * kChunk);
  write_file("now", 40 * kChunk);
  visitor_.pass_by("/before");
  ASSERT_TRUE(pass_->start(20 * kChunk).is_ok());
  wait_for_chunks(200 + 6);
  const BackgroundPass::Report report = pass_->report();
  EXPECT_GE(report.state.bytes, 206 * kChunk);
  EXPECT_EQ(report.bytes_total, 240 * kChunk);
  EXPECT_LT(report.bytes_per_second, 40 * kChunk);
  EXPECT_GT(report.eta_seconds, 0.5);
  EXPECT_LT(report.eta_seconds, 10);
}

TEST_F(BackgroundPassTest, WhatIsPassedByHasNoRate) {
  write_file("before", 200 * kChunk);
  write_file("now", kChunk);
  visitor_.pass_by("/before");
  visitor_.hold();
  ASSERT_TRUE(pass_->start(0).is_ok());
  wait_for_chunks(200);
  const BackgroundPass::Report report = pass_->report();
  EXPECT_LE(report.bytes_per_second, 0);
  EXPECT_LT(report.eta_seconds, 0);
  visitor_.release();
  wait_for_end();
}

TEST_F(BackgroundPassTest, PausesAndGoesOnWithoutVisitingTwice) {
  write_file("first", 60 * kChunk);
  write_file("second", 5 * kChunk);
  ASSERT_TRUE(pass_->start(60 * kChunk).is_ok());
  wait_for_chunks(3);
  ASSERT_TRUE(pass_->pause().is_ok());
  const BackgroundPass::Report paused = pass_->report();
  EXPECT_EQ(paused.state.phase, Phase::kPaused);
  EXPECT_EQ(paused.state.position, "/first");
  EXPECT_EQ(paused.state.next_chunk.value(), paused.state.chunks);
  EXPECT_LT(paused.state.chunks, 60U);
  const Names before = visitor_.take_chunks();
  EXPECT_EQ(before.size(), paused.state.chunks);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(pass_->report().state.chunks, paused.state.chunks);
  ASSERT_TRUE(pass_->resume(uint64_t{0}).is_ok());
  const BackgroundPass::Report end = wait_for_end();
  EXPECT_EQ(end.state.chunks, 65U);
  EXPECT_EQ(end.state.bytes, 65 * kChunk);
  EXPECT_EQ(end.bytes_total, end.state.bytes) << "what was visited of a file counts once";
  EXPECT_EQ(joined(before, visitor_.take_chunks()), joined(chunks("/first", 0, 60), chunks("/second", 0, 5)));
}

TEST_F(BackgroundPassTest, CommandsSayWhatMakesNoSense) {
  EXPECT_EQ(pass_->pause().message(), "nothing to pause: the copy was never started");
  EXPECT_EQ(pass_->resume({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(pass_->cancel().code(), StatusCode::kInvalidArgument);
  write_file("file", 30 * kChunk);
  ASSERT_TRUE(pass_->start(10 * kChunk).is_ok());
  EXPECT_EQ(pass_->start(0).code(), StatusCode::kBusy);
  EXPECT_EQ(pass_->start(0).message(), "a copy is running; let it finish or cancel it first");
  EXPECT_EQ(pass_->resume({}).message(), "nothing to resume: the copy is running");
  ASSERT_TRUE(pass_->pause().is_ok());
  EXPECT_EQ(pass_->start(0).message(), "a copy is paused; resume or cancel it first");
  ASSERT_TRUE(pass_->cancel().is_ok());
  EXPECT_EQ(pass_->resume({}).message(), "nothing to resume: the copy was cancelled");
  ASSERT_TRUE(pass_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 30U) << "from the beginning";
  EXPECT_EQ(pass_->cancel().message(), "nothing to cancel: the copy has finished");
}

TEST_F(BackgroundPassTest, GoesOnAfterARemountWhereItWas) {
  write_file("a.b", 10 * kChunk);
  write_file("a/x", 10 * kChunk);
  ASSERT_TRUE(pass_->start(100 * kChunk).is_ok());
  wait_for_chunks(13);
  close();
  EXPECT_EQ(visitor_.saved().back().phase, Phase::kRunning);
  EXPECT_EQ(visitor_.saved().back().position, "/a.b");
  open();
  EXPECT_EQ(wait_for_end().state.chunks, 20U);
  close();
  Names notes = visitor_.take_notes();
  EXPECT_EQ(std::count(notes.begin(), notes.end(), "begin"), 1);
  std::erase_if(notes, [](const std::string& note) { return !note.starts_with('/'); });
  EXPECT_EQ(notes, joined(chunks("/a/x", 0, 10), chunks("/a.b", 0, 10)));
  open();
  EXPECT_EQ(pass_->report().state.phase, Phase::kFinished);
}

TEST_F(BackgroundPassTest, WhatWasPausedStaysPausedOverARemount) {
  write_file("file", 30 * kChunk);
  ASSERT_TRUE(pass_->start(50 * kChunk).is_ok());
  wait_for_chunks(2);
  ASSERT_TRUE(pass_->pause().is_ok());
  close();
  open();
  EXPECT_EQ(pass_->report().state.phase, Phase::kPaused);
  EXPECT_EQ(pass_->report().state.limit, 50 * kChunk);
  ASSERT_TRUE(pass_->resume(uint64_t{0}).is_ok());
  const BackgroundPass::Report end = wait_for_end();
  EXPECT_EQ(end.state.chunks, 30U);
  EXPECT_EQ(end.bytes_total, 30 * kChunk);
  pass_->stop();
  EXPECT_EQ(visitor_.take_chunks(), chunks("/file", 0, 30));
}

// Whatever a crash leaves of the states that were kept: what comes behind is visited, and nothing else.
TEST_F(BackgroundPassTest, GoesOnFromEveryKeptPlace) {
  write_file("a/x", 3 * kChunk);
  write_file("a.b", 70 * kChunk);  // more than are looked at in one go
  write_file("c", 3 * kChunk);
  const Names all = joined(joined(chunks("/a/x", 0, 3), chunks("/a.b", 0, 70)), chunks("/c", 0, 3));
  open_pass(std::chrono::seconds(0));
  ASSERT_TRUE(pass_->start(0).is_ok());
  wait_for_end();
  pass_->stop();
  const std::vector<PassState> kept = visitor_.saved();
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const PassState& state) {
    return state.next_chunk > ChunkIndex(0);
  })) << "places within a file";
  for (const PassState& state : kept) {
    if (state.phase != Phase::kRunning) continue;
    SCOPED_TRACE(state.position + " " + std::to_string(state.next_chunk.value()));
    visitor_.take_notes();
    visitor_.keep_only(state);
    open_pass();
    const BackgroundPass::Report end = wait_for_end();
    EXPECT_EQ(end.state.chunks, all.size());
    EXPECT_EQ(end.bytes_total, all.size() * kChunk);
    pass_->stop();
    EXPECT_EQ(visitor_.take_chunks(), Names(all.begin() + static_cast<ptrdiff_t>(state.chunks), all.end()));
  }
}

TEST_F(BackgroundPassTest, AFileThatIsAnotherByNowIsVisitedFromItsBeginning) {
  write_file("a", 10 * kChunk);
  write_file("b", 10 * kChunk);
  ASSERT_TRUE(pass_->start(100 * kChunk).is_ok());
  wait_for_chunks(3);
  ASSERT_TRUE(pass_->pause().is_ok());
  visitor_.take_notes();
  ASSERT_TRUE(store_->unlink(store_->root(), "a").is_ok());
  write_file("a", 4 * kChunk);
  ASSERT_TRUE(pass_->resume(uint64_t{0}).is_ok());
  wait_for_end();
  pass_->stop();
  EXPECT_EQ(visitor_.take_chunks(), joined(chunks("/a", 0, 4), chunks("/b", 0, 10)));
}

TEST_F(BackgroundPassTest, StopsWhenWhatIsInFlightIsDone) {
  write_file("file", 30 * kChunk);
  visitor_.hold();
  ASSERT_TRUE(pass_->start(0).is_ok());
  for (int i = 0; i < 5000 && visitor_.held() < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(visitor_.held(), 4U) << "two for each member";
  std::atomic<bool> stops = false, has_stopped = false;
  std::thread stopper([&] {
    stops = true;
    pass_->stop();
    has_stopped = true;
  });
  while (!stops) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it may wait long for a busy machine
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(has_stopped);
  visitor_.release();
  stopper.join();
  EXPECT_EQ(visitor_.take_notes(), joined(joined({"begin"}, chunks("/file", 0, 4)), {"settle /file"}));
  const PassState kept = visitor_.saved().back();
  EXPECT_EQ(kept.phase, Phase::kRunning);
  EXPECT_EQ(kept.next_chunk, ChunkIndex(4));
  EXPECT_EQ(kept.chunks, 4U);
}

TEST_F(BackgroundPassTest, StopsWhileItWaitsForItsTurn) {
  write_file("file", 30 * kChunk);
  ASSERT_TRUE(pass_->start(1).is_ok());  // the second chunk has its turn after 18 hours
  wait_for_chunks(1);
  pass_->stop();
  EXPECT_EQ(visitor_.take_chunks(), chunks("/file", 0, 1));
}

TEST_F(BackgroundPassTest, AWalkThatFailsPausesItAndSaysWhy) {
  write_file("file", 3 * kChunk);
  is_unlistable_ = true;
  ASSERT_TRUE(pass_->start(0).is_ok());
  const BackgroundPass::Report report = wait_for_end();
  EXPECT_EQ(report.state.phase, Phase::kPaused);
  EXPECT_NE(report.note.find("no list today"), std::string::npos) << report.note;
  is_unlistable_ = false;
  ASSERT_TRUE(pass_->resume({}).is_ok());
  EXPECT_EQ(wait_for_end().state.phase, Phase::kFinished);
  EXPECT_EQ(pass_->report().note, "");
  pass_->stop();
  EXPECT_EQ(visitor_.take_notes(), joined(joined({"begin"}, chunks("/file", 0, 3)), {"settle /file", "end"}));
}

TEST_F(BackgroundPassTest, KeepsNothingReadOnly) {
  write_file("file", 3 * kChunk);
  close();
  PassState paused;
  paused.phase = Phase::kPaused;
  visitor_.keep_only(paused);
  open(true);
  EXPECT_EQ(pass_->report().state.phase, Phase::kNone) << "nothing is taken up";
  ASSERT_TRUE(pass_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 3U);
  pass_->stop();
  EXPECT_EQ(visitor_.saved().size(), 1U);
}

TEST_F(BackgroundPassTest, WorksWhenItsPlaceCannotBeKept) {
  write_file("file", 3 * kChunk);
  visitor_.fail_load(Status::error(StatusCode::kCorruption, "not valid"));
  visitor_.fail_save(Status::error(StatusCode::kNoSpace, "full"));
  open_pass();
  EXPECT_EQ(pass_->report().state.phase, Phase::kNone);
  ASSERT_TRUE(pass_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 3U);
}

// Somebody who asks all the time never sees the end of one pass with the notes of the next.
TEST_F(BackgroundPassTest, AReportAndWhatTheVisitorHasBelongTogether) {
  write_file("file", 3 * kChunk);
  std::atomic<bool> is_over = false;
  std::thread starter([&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(pass_->start(0).is_ok());
      wait_for_end();
    }
    is_over = true;
  });
  while (!is_over) {
    size_t noted = 0;
    const BackgroundPass::Report report = pass_->report([&] { noted = visitor_.chunks_since_begin(); });
    EXPECT_GE(noted, report.state.chunks);
  }
  starter.join();
}

}  // namespace
}  // namespace fpfs
