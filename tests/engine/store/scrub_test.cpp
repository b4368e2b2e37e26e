// Scrubbing an open array: everything is read once, what is wrong is named, pausing and remounting lose nothing.
#include "engine/store/scrub.h"

#include <chrono>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Phase = ScrubState::Phase;
constexpr uint32_t kChunk = test::kSmallChunk;

class ScrubTest : public testing::Test {
 protected:
  ScrubTest() {
    for (const char* name : {"a", "b", "c"}) directories_.push_back(place_ / name);
    test::format_small_array(environment_, directories_);
    open();
  }
  ~ScrubTest() override { close(); }

  void open(bool read_only = false) {
    store_ = test::open_small_store(environment_, directories_, read_only);
    ASSERT_NE(store_, nullptr);
    scrub_ = std::make_unique<Scrub>(*store_);
    scrub_->open();
  }
  void close() {
    if (store_ == nullptr) return;
    scrub_->stop();
    scrub_.reset();
    EXPECT_TRUE(store_->close().is_ok());
    store_.reset();
  }
  // As a crash would leave it: nothing is said to anybody.
  void crash() {
    scrub_.reset();
    store_.reset();
  }

  void write_file(const std::string& name, uint64_t size, uint64_t seed = 1) {
    auto created = store_->create(store_->root(), name, 0644);
    ASSERT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    std::vector<std::byte> data(size);
    test::fill(data, seed, 0);
    ASSERT_TRUE(store_->write_sync(*created->file, FileOffset(0), data).is_ok());
    ASSERT_TRUE(store_->commit_sync(*created->file).is_ok());
  }
  void make_directory(const std::string& name) {
    ASSERT_TRUE(store_->make_directory(store_->root(), name, 0755).is_ok());
  }

  Scrub::Report wait_for_end() {
    for (int i = 0; i < 3000; ++i) {
      Scrub::Report report = scrub_->report();
      if (report.state.phase != Phase::kRunning) return report;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "the scrub does not end";
    return scrub_->report();
  }
  void wait_for_chunks(uint64_t count) {
    for (int i = 0; i < 3000 && scrub_->report().state.chunks < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<std::string> objects() const {
    std::vector<std::string> found;
    for (const std::string& directory : directories_)
      for (const auto& entry : std::filesystem::recursive_directory_iterator(directory + "/objects"))
        if (entry.is_regular_file()) found.push_back(entry.path().string());
    return found;
  }
  static void flip_bit(const std::string& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 4);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
    EXPECT_TRUE(file.good()) << path;
  }

  const test::TemporaryDirectory place_{test::quick_place()};
  PosixEnvironment environment_{4};
  std::vector<std::string> directories_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Scrub> scrub_;
};

TEST_F(ScrubTest, ReadsEveryChunkOnce) {
  write_file("big", 30 * kChunk + 77);
  write_file("small", 1000);  // lives in its sidecar
  make_directory("empty");
  EXPECT_EQ(scrub_->report().state.phase, Phase::kNone);
  ASSERT_TRUE(scrub_->start(0).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.state.files, 2u);
  EXPECT_EQ(report.state.chunks, 31u);
  EXPECT_EQ(report.state.bytes, 30u * kChunk + 4096 + 1024) << "content in a sidecar counts";
  EXPECT_EQ(report.bytes_total, report.state.bytes);
  EXPECT_EQ(report.state.errors, 0u);
  EXPECT_GE(report.bytes_total, report.state.bytes);
  EXPECT_GT(report.state.ended_seconds, 0);
  ASSERT_TRUE(scrub_->start(0).is_ok()) << "and again";
  EXPECT_EQ(wait_for_end().state.chunks, 31u);
}

// Who looks at one that waits is told of how much there is in all, and where it is of that.
TEST_F(ScrubTest, AfterARemountItIsStillAShareOfAll) {
  write_file("big", 60 * kChunk);
  ASSERT_TRUE(scrub_->start(8 * kChunk).is_ok());
  wait_for_chunks(2);
  ASSERT_TRUE(scrub_->pause().is_ok());
  const uint64_t total = scrub_->report().bytes_total;
  EXPECT_EQ(total, 60u * kChunk);
  close();
  open();
  const Scrub::Report report = scrub_->report();
  EXPECT_EQ(report.state.phase, Phase::kPaused);
  EXPECT_LT(report.state.bytes, total);
  EXPECT_EQ(report.bytes_total, total);
}

// What was committed before cannot be read while it is open. Nothing is known to be wrong with it.
TEST_F(ScrubTest, AFileWhoseSaveHasFailedIsNamed) {
  for (const auto& entry : std::filesystem::directory_iterator(directories_[1] + "/objects"))
    std::filesystem::remove(entry.path());
  auto created = store_->create(store_->root(), "failed", 0644);
  ASSERT_TRUE(created.is_ok());
  const std::vector<std::byte> data(6 * kChunk, std::byte{7});
  static_cast<void>(store_->write_sync(*created->file, FileOffset(0), data));
  ASSERT_FALSE(store_->commit_sync(*created->file).is_ok());
  ASSERT_TRUE(scrub_->start(0).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.errors, 0u);
  EXPECT_EQ(report.state.failed_saves, 1u);
  ASSERT_EQ(report.state.damage.size(), 1u);
  EXPECT_EQ(report.state.damage[0].path, "/failed");
  EXPECT_EQ(report.state.damage[0].kind, ScrubFindings::kFailedSave);
  EXPECT_NE(report.state.damage[0].detail.find("a save of it has failed"), std::string::npos);
  created->file.reset();
  created->node.handle.reset();
  crash();
}

TEST_F(ScrubTest, NamesWhatIsWrongAndGoesOn) {
  write_file("flipped", 6 * kChunk, 1);
  const std::string flipped = objects().front();
  flip_bit(flipped, 5);
  write_file("gone", 3 * kChunk, 2);
  write_file("good", 3 * kChunk, 3);
  write_file("short", 3 * kChunk, 4);
  write_file("unindexed", 3 * kChunk, 5);
  close();
  // Objects carry the file's id; which file that is, its sidecar says.
  open();
  const auto id_of = [&](const std::string& name) {
    auto node = store_->lookup(store_->root(), name);
    auto file = store_->open_file(node->handle.get(), false);
    node->handle.reset();
    return (*file)->info().file_id;
  };
  const std::string gone = Array::object_name(id_of("gone"), Generation(0)),
                    cut = Array::object_name(id_of("short"), Generation(0));
  close();
  bool removed = false, truncated = false;
  for (const std::string& object : objects()) {
    if (!removed && object.ends_with(gone)) removed = std::filesystem::remove(object);
    if (!truncated && object.ends_with(cut)) {
      std::filesystem::resize_file(object, 4096);
      truncated = true;
    }
  }
  flip_bit(directories_[0] + "/tree/unindexed", 200);
  open();
  ASSERT_TRUE(scrub_->start(0).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  std::string found;
  for (const CheckError& error : report.state.damage) found += error.path + " " + error.kind + "; ";
  EXPECT_EQ(found, "/flipped checksum; /gone missing-object; /short short-object; /unindexed sidecar; ");
  EXPECT_EQ(report.state.errors, 4u);
  EXPECT_EQ(report.state.files, 5u);
  const CheckError& error = report.state.damage[0];
  EXPECT_EQ(error.object_offset, 0);
  EXPECT_NE(flipped.find(directories_[static_cast<size_t>(error.member)]), std::string::npos) << error.detail;
  EXPECT_GE(store_->status().members[static_cast<size_t>(error.member)].checksum_errors, 1u);
}

TEST_F(ScrubTest, KeepsToItsLimit) {
  write_file("file", 20 * kChunk);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(scrub_->start(40 * kChunk).is_ok());
  wait_for_chunks(5);
  const Scrub::Report report = scrub_->report();
  EXPECT_EQ(report.state.limit, 40u * kChunk);
  EXPECT_GT(report.bytes_per_second, 0);
  EXPECT_GT(report.eta_seconds, 0);
  EXPECT_EQ(wait_for_end().state.chunks, 20u);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(seconds, 0.4);
  EXPECT_LT(seconds, 5);
}

// Whoever has the file open has its content in memory: what is on the drive is looked at all the same.
TEST_F(ScrubTest, ReadsContentInSidecarsFromTheDrive) {
  write_file("kept", 1000, 1);
  write_file("wrong", 2000, 2);
  std::vector<std::shared_ptr<File>> open_files;
  for (const char* name : {"kept", "wrong"}) {
    auto node = store_->lookup(store_->root(), name);
    open_files.push_back(store_->open_file(node->handle.get(), false).value());
    node->handle.reset();
  }
  flip_bit(directories_[0] + "/tree/wrong", 700);
  ASSERT_TRUE(scrub_->start(0).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.bytes, 1024u + 2048);
  ASSERT_EQ(report.state.errors, 1u);
  const CheckError& error = report.state.damage.at(0);
  EXPECT_EQ(error.path, "/wrong");
  EXPECT_EQ(error.kind, "sidecar");
  EXPECT_EQ(error.chunk, -1);
  EXPECT_NE(error.detail.find("offset 128"), std::string::npos) << error.detail;
  uint64_t errors = 0;
  for (const MemberStatus& member : store_->status().members) errors += member.checksum_errors;
  EXPECT_EQ(errors, 1u);
}

TEST_F(ScrubTest, TheLimitHoldsForContentInSidecars) {
  for (int i = 0; i < 20; ++i) write_file("small" + std::to_string(i), 5000, 1);
  ASSERT_TRUE(scrub_->start(20'000).is_ok());
  // 20 files of 5 KiB at 20 KB a second: five seconds. It is stopped long before it can have read all.
  for (int i = 0; i < 3000 && scrub_->report().state.files < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(scrub_->pause().is_ok());
  EXPECT_LT(scrub_->report().state.files, 20u);
  ASSERT_TRUE(scrub_->resume(uint64_t{0}).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.files, 20u);
  EXPECT_EQ(report.state.bytes, 20u * 5120) << "nothing is read twice";
}

TEST_F(ScrubTest, PausesAndGoesOnWithoutReadingTwice) {
  write_file("first", 60 * kChunk, 1);
  write_file("second", 20 * kChunk, 2);
  ASSERT_TRUE(scrub_->start(60 * kChunk).is_ok());
  wait_for_chunks(3);
  ASSERT_TRUE(scrub_->pause().is_ok());
  const uint64_t chunks = scrub_->report().state.chunks;
  EXPECT_GE(chunks, 3u);
  EXPECT_LT(chunks, 60u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(scrub_->report().state.chunks, chunks);
  ASSERT_TRUE(scrub_->resume(uint64_t{0}).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.state.chunks, 80u);
  EXPECT_EQ(report.state.files, 2u);
}

TEST_F(ScrubTest, GoesOnAfterARemountButNotWhenPaused) {
  write_file("a", 20 * kChunk, 1);
  make_directory("b");
  write_file("c", 180 * kChunk, 2);
  ASSERT_TRUE(scrub_->start(100 * kChunk).is_ok());
  wait_for_chunks(25);
  close();
  open();  // goes on by itself
  EXPECT_EQ(scrub_->report().state.phase, Phase::kRunning);
  EXPECT_GE(scrub_->report().state.chunks, 25u);
  ASSERT_TRUE(scrub_->pause().is_ok());
  close();
  open(true);
  EXPECT_EQ(scrub_->report().state.phase, Phase::kNone) << "read-only: nothing is taken up";
  close();
  open();
  EXPECT_EQ(scrub_->report().state.phase, Phase::kPaused);
  ASSERT_TRUE(scrub_->resume(uint64_t{0}).is_ok());
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.chunks, 200u);
  EXPECT_EQ(report.state.files, 2u);
  close();
  open();
  EXPECT_EQ(scrub_->report().state.phase, Phase::kFinished);
}

TEST_F(ScrubTest, GoesOnAfterACrashFromAnOlderPlace) {
  write_file("a", 30 * kChunk, 1);
  ASSERT_TRUE(scrub_->start(100 * kChunk).is_ok());
  wait_for_chunks(10);
  const std::string state = place_ / "kept";
  std::filesystem::copy_file(directories_[0] + "/scrub", state);  // as of the start
  close();
  std::filesystem::copy_file(state, directories_[0] + "/scrub", std::filesystem::copy_options::overwrite_existing);
  open();
  EXPECT_EQ(wait_for_end().state.chunks, 30u);
}

TEST_F(ScrubTest, GivesUpAStateThatIsDamaged) {
  write_file("a", 30 * kChunk, 1);
  ASSERT_TRUE(scrub_->start(10 * kChunk).is_ok());
  wait_for_chunks(2);
  close();
  flip_bit(directories_[0] + "/scrub", 60);
  open();
  EXPECT_EQ(scrub_->report().state.phase, Phase::kNone);
  ASSERT_TRUE(scrub_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 30u);
}

TEST_F(ScrubTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(scrub_->pause().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scrub_->resume({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scrub_->cancel().code(), StatusCode::kInvalidArgument);
  write_file("a", 30 * kChunk, 1);
  ASSERT_TRUE(scrub_->start(10 * kChunk).is_ok());
  EXPECT_EQ(scrub_->start(0).code(), StatusCode::kBusy);
  EXPECT_EQ(scrub_->resume({}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(scrub_->resume(uint64_t{5 * kChunk}).is_ok()) << "a new limit";
  EXPECT_EQ(scrub_->report().state.limit, 5u * kChunk);
  ASSERT_TRUE(scrub_->pause().is_ok());
  EXPECT_EQ(scrub_->pause().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(scrub_->start(0).code(), StatusCode::kBusy);
  ASSERT_TRUE(scrub_->cancel().is_ok());
  EXPECT_EQ(scrub_->report().state.phase, Phase::kCancelled);
  EXPECT_EQ(scrub_->resume({}).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(scrub_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.phase, Phase::kFinished);
}

TEST_F(ScrubTest, FilesThatChangeUnderItAreNoErrors) {
  for (int i = 0; i < 6; ++i) write_file("file" + std::to_string(i), 12 * kChunk, 1);
  ASSERT_TRUE(scrub_->start(400 * kChunk).is_ok());
  // Rewritten, truncated and removed while it comes by.
  std::vector<std::byte> data(3 * kChunk);
  for (int round = 0; scrub_->report().state.phase == Phase::kRunning && round < 500; ++round) {
    const std::string name = "file" + std::to_string(round % 5);
    auto node = store_->lookup(store_->root(), name);
    ASSERT_TRUE(node.is_ok());
    auto file = store_->open_file(node->handle.get(), true);
    node->handle.reset();
    ASSERT_TRUE(file.is_ok());
    test::fill(data, static_cast<uint64_t>(round), 0);
    if (round % 7 == 0) {
      ASSERT_TRUE(store_->truncate_sync(**file, 0).is_ok());
    }
    ASSERT_TRUE(store_->write_sync(**file, FileOffset(static_cast<uint64_t>(round % 9) * kChunk), data).is_ok());
    ASSERT_TRUE(store_->commit_sync(**file).is_ok());
    if (round == 3) {
      ASSERT_TRUE(store_->unlink(store_->root(), "file5").is_ok());
    }
  }
  const Scrub::Report report = wait_for_end();
  EXPECT_EQ(report.state.phase, Phase::kFinished);
  EXPECT_EQ(report.state.errors, 0u) << report.state.damage.at(0).path << " " << report.state.damage.at(0).detail;
}

TEST_F(ScrubTest, AHardLinkIsReadOnce) {
  write_file("a", 10 * kChunk, 1);
  auto node = store_->lookup(store_->root(), "a");
  ASSERT_TRUE(store_->link(node->handle.get(), store_->root(), "z").is_ok());
  node->handle.reset();
  ASSERT_TRUE(scrub_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 10u);
}

TEST_F(ScrubTest, WorksReadOnlyWithoutLeavingATrace) {
  write_file("a", 10 * kChunk, 1);
  close();
  open(true);
  ASSERT_TRUE(scrub_->start(0).is_ok());
  EXPECT_EQ(wait_for_end().state.chunks, 10u);
  close();
  EXPECT_FALSE(std::filesystem::exists(directories_[0] + "/scrub"));
}

TEST_F(ScrubTest, EndsWithTheStore) {
  write_file("a", 100 * kChunk, 1);
  ASSERT_TRUE(scrub_->start(kChunk).is_ok());
  crash();  // the destructor stops it
}

}  // namespace
}  // namespace fpfs
