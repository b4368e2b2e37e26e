// Names that go at an awkward moment: while a first commit ends, or when handles run out. What the file had on the
// members goes with it, or the name stays; and if neither can be had, the next mount sees to it. What takes the place
// of content is durable first.
#include <gtest/gtest.h>
#include <linux/fs.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/check/check.h"
#include "engine/io/posix_environment.h"
#include "engine/store/store.h"
#include "engine/tensors/save_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * kKiB;

constexpr int kMany = 1'000'000;

// What a test wants to happen in front of a call, or instead of it.
struct Plan {
  std::function<void()> before_removal;   // of a name, once
  std::function<void()> behind_link;      // that finds the name taken, once
  int open_error = 0;                     // errno of every open_at
  int reopen_error = 0;                   // of the next reopen
  std::atomic<int> handles_left = kMany;  // after so many, one open_at or reopen finds none
  std::atomic<bool> synced = false;       // a file was
};

class PlannedStorage final : public PosixStorage {
 public:
  explicit PlannedStorage(Plan& plan) : plan_(plan) {}
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode) override {
    if (plan_.open_error != 0) return Status::from_errno(plan_.open_error, "open " + name);
    if (out_of_handles()) return Status::from_errno(EMFILE, "open " + name);
    return PosixStorage::open_at(directory, name, flags, mode);
  }
  Result<Handle> reopen(Handle handle, int flags) override {
    if (const int error = std::exchange(plan_.reopen_error, 0); error != 0) return Status::from_errno(error, "reopen");
    if (out_of_handles()) return Status::from_errno(EMFILE, "reopen");
    return PosixStorage::reopen(handle, flags);
  }
  Status fsync(Handle handle) override {
    const Result<struct stat> attributes = fstat(handle);
    if (attributes.is_ok() && S_ISREG(attributes->st_mode)) plan_.synced = true;
    return PosixStorage::fsync(handle);
  }
  Status link(Handle handle, Handle directory, const std::string& name) override {
    const Status linked = PosixStorage::link(handle, directory, name);
    if (linked.code() == StatusCode::kExists)
      if (const auto run = std::exchange(plan_.behind_link, nullptr)) run();
    return linked;
  }
  Status unlink(Handle directory, const std::string& name) override {
    about_to_remove(name);
    return PosixStorage::unlink(directory, name);
  }
  Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                unsigned flags) override {
    about_to_remove(from_name);
    return PosixStorage::rename(from, from_name, to, to_name, flags);
  }

 private:
  void about_to_remove(const std::string& name) {
    if (name != "new" && name != "file") return;  // an object
    if (const auto run = std::exchange(plan_.before_removal, nullptr)) run();
  }
  bool out_of_handles() { return plan_.handles_left-- == 0; }
  Plan& plan_;
};

class UnlinkRaceTest : public ::testing::Test {
 protected:
  UnlinkRaceTest()
      : directories_{place_ / "a", place_ / "b"}, environment_(4, std::make_unique<PlannedStorage>(plan_)) {
    FormatOptions format;
    format.chunk_size = kChunk;
    EXPECT_TRUE(Array::format(environment_, directories_, format).is_ok());
    open();
  }
  void open(StoreOptions options = {}) {
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    options.spare_least = UINT64_MAX;  // without a handle for a freed object there is a new one, and nothing is refused
    auto store = Store::open(environment_, directories_, options);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    store_ = std::move(*store);
  }
  void close() {
    EXPECT_TRUE(store_->close().is_ok());
    store_ = nullptr;
  }
  uint64_t orphans() {
    CheckOptions options;
    options.buffered_members = true;
    const Result<CheckReport> report = check_array(environment_, directories_, options);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    return report.is_ok() ? report->orphans : 0;
  }

  struct stat index(const std::string& name) {
    const Result<struct stat> found = store_->storage().stat_at(store_->root(), name);
    return found.is_ok() ? *found : (struct stat){};
  }
  uint64_t inode(const std::string& name) { return index(name).st_ino; }  // 0: no such name
  std::pair<uint64_t, uint64_t> names() { return {inode("new"), inode("file")}; }
  bool is_committed(const std::string& name) { return index(name).st_size > 0; }
  Status rename(const std::string& from, const std::string& to, unsigned flags) {
    std::promise<Status> answer;
    store_->rename_async(store_->root(), from, store_->root(), to, flags,
                         [&answer](const Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  }

  uint64_t stored() {
    uint64_t bytes = 0;
    for (const MemberStatus& member : store_->status().members) bytes += member.bytes_written;
    return bytes;
  }
  // Some chunks on both members, not committed. Full ones are on their drives: storing them takes handles as well.
  std::shared_ptr<File> create(const std::string& name) {
    const uint64_t before = stored();
    Result<Store::Created> created = store_->create(store_->root(), name, 0600);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    created->node.handle.reset();
    std::vector<std::byte> data(3 * kChunk + 777);
    test::fill(data, 1, 0);
    EXPECT_TRUE(store_->write_sync(*created->file, FileOffset(0), data).is_ok());
    while (created->file->error().is_ok() && stored() < before + 3 * kChunk) std::this_thread::yield();
    return created->file;
  }
  void save(const std::string& name) { EXPECT_TRUE(store_->commit_sync(*create(name)).is_ok()); }
  bool exists(const std::string& name) {
    Result<Store::Node> node = store_->lookup(store_->root(), name);
    if (node.is_ok()) node->handle.reset();
    return node.is_ok();
  }
  // Its first commit ends, and nobody has it open any more, when the removal has looked at the name already.
  void commit_during_removal(std::shared_ptr<File> file) {
    plan_.before_removal = [this, file = std::move(file)]() mutable {
      EXPECT_TRUE(store_->commit_sync(*file).is_ok());
      file = nullptr;
      while (store_->status().open_files > 0) std::this_thread::yield();  // the commit's own threads let go of it
    };
  }

  Plan plan_;
  test::TemporaryDirectory place_{test::quick_place()};
  std::vector<std::string> directories_;
  PosixEnvironment environment_;
  std::unique_ptr<Store> store_;
};

TEST_F(UnlinkRaceTest, UnlinkedWhileTheFirstCommitEnds) {
  commit_during_removal(create("file"));
  ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
  close();
  EXPECT_EQ(orphans(), 0u);
}

TEST_F(UnlinkRaceTest, ReplacedWhileTheFirstCommitEnds) {
  save("new");
  commit_during_removal(create("file"));
  ASSERT_TRUE(store_->rename(store_->root(), "new", store_->root(), "file", 0).is_ok());
  close();
  EXPECT_EQ(orphans(), 0u);
}

// Nothing is known of a file that cannot be opened: its name stays.
TEST_F(UnlinkRaceTest, OutOfHandlesTheNameStays) {
  save("file");
  save("new");
  plan_.open_error = EMFILE;
  EXPECT_EQ(store_->unlink(store_->root(), "file").errno_value(), EMFILE);
  EXPECT_EQ(store_->rename(store_->root(), "new", store_->root(), "file", 0).errno_value(), EMFILE);
  plan_.open_error = 0;
  EXPECT_TRUE(exists("file"));
  EXPECT_TRUE(exists("new"));
  EXPECT_TRUE(store_->unlink(store_->root(), "file").is_ok());
  EXPECT_EQ(store_->unlink(store_->root(), "file").errno_value(), ENOENT);
  EXPECT_TRUE(store_->rename(store_->root(), "new", store_->root(), "file", 0).is_ok());
  close();
  EXPECT_EQ(orphans(), 0u);
}

// The name is gone when that shows: the array is not marked clean, so the next mount frees what is left.
TEST_F(UnlinkRaceTest, OutOfHandlesBehindTheRemoval) {
  save("file");
  plan_.before_removal = [this] { plan_.reopen_error = EMFILE; };
  ASSERT_TRUE(store_->unlink(store_->root(), "file").is_ok());
  EXPECT_FALSE(exists("file"));
  close();
  EXPECT_EQ(orphans(), 2u);
  open();
  EXPECT_TRUE(store_->recovery().was_dirty);
  EXPECT_EQ(store_->recovery().orphans_removed, 2u);
  close();
  EXPECT_EQ(orphans(), 0u);
}

// Handles run out for a moment, each moment of a rename in turn: it fails and no name has changed, or it is done, and
// what replaced content was committed when it did.
TEST_F(UnlinkRaceTest, OutOfHandlesNothingIsReplacedByUncommittedContent) {
  std::map<unsigned, int> refused;
  bool ran_out = true;
  for (int moment = 0; ran_out; ++moment) {
    ran_out = false;
    for (const unsigned flags : {0u, static_cast<unsigned>(RENAME_EXCHANGE)}) {
      SCOPED_TRACE(testing::Message() << "after " << moment << " handles, flags " << flags);
      save("file");
      const std::shared_ptr<File> file = create("new");
      const auto before = names();
      store_->finish_frees();  // which takes handles as well
      plan_.before_removal = [&] { EXPECT_TRUE(is_committed("new")); };
      plan_.handles_left = moment;
      const Status status = rename("new", "file", flags);
      ran_out |= plan_.handles_left.exchange(kMany) < 0;
      plan_.before_removal = nullptr;
      if (status.is_ok()) {
        EXPECT_EQ(inode("file"), before.first);
        EXPECT_EQ(inode("new"), flags == 0 ? 0 : before.second);
      } else {
        ++refused[flags];
        EXPECT_TRUE(ran_out) << status.message();
        EXPECT_EQ(status.errno_value(), EMFILE);
        EXPECT_EQ(names(), before);
      }
      if (exists("new")) {
        EXPECT_TRUE(store_->unlink(store_->root(), "new").is_ok());
      }
      EXPECT_TRUE(store_->unlink(store_->root(), "file").is_ok());
    }
  }
  EXPECT_GT(refused[0], 0);
  EXPECT_GT(refused[RENAME_EXCHANGE], 0);
}

// The same for a file that was closed and has not reached the drives.
TEST_F(UnlinkRaceTest, OutOfHandlesNothingIsReplacedByUnsyncedContent) {
  close();
  StoreOptions options;
  options.durable = StoreOptions::Durable::kFsync;
  open(options);
  int refused = 0;
  bool ran_out = true;
  for (int moment = 0; ran_out; ++moment) {
    SCOPED_TRACE(testing::Message() << "after " << moment << " handles");
    save("file");
    save("new");
    const auto before = names();
    while (store_->status().open_files > 0) std::this_thread::yield();
    plan_.synced = false;
    store_->finish_frees();
    plan_.before_removal = [&] { EXPECT_TRUE(plan_.synced); };
    plan_.handles_left = moment;
    const Status status = rename("new", "file", 0);
    ran_out = plan_.handles_left.exchange(kMany) < 0;
    plan_.before_removal = nullptr;
    if (!status.is_ok()) {
      ++refused;
      EXPECT_EQ(status.errno_value(), EMFILE);
      EXPECT_EQ(names(), before);
      EXPECT_TRUE(store_->unlink(store_->root(), "new").is_ok());
    }
    EXPECT_TRUE(store_->unlink(store_->root(), "file").is_ok());
  }
  EXPECT_GT(refused, 1);
}

// Which of the two is named first does not matter when both change places.
TEST_F(UnlinkRaceTest, ExchangedOnceBothAreCommitted) {
  save("file");
  const std::shared_ptr<File> file = create("new");
  plan_.before_removal = [&] { EXPECT_TRUE(is_committed("new")); };
  const auto before = names();
  ASSERT_TRUE(rename("file", "new", RENAME_EXCHANGE).is_ok());
  EXPECT_FALSE(plan_.before_removal) << "the exchange was not seen";
  EXPECT_EQ(names(), std::pair(before.second, before.first));
}

// Who saves in one step has seen that there is something to replace, and then it goes.
TEST_F(UnlinkRaceTest, RemovedWhileItIsAboutToBeReplaced) {
  save("file");
  const auto before = inode("file");
  plan_.behind_link = [this] { EXPECT_TRUE(store_->unlink(store_->root(), "file").is_ok()); };
  const std::vector<std::byte> data(3 * kChunk);
  const std::vector<std::span<const std::byte>> pieces{data};
  const Status saved = save_file(*store_, store_->root(), "file", 0600, pieces, 1, [](const auto& start) {
    std::promise<Status> answer;
    start([&answer](const Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  });
  EXPECT_TRUE(saved.is_ok()) << saved.message();
  EXPECT_FALSE(plan_.behind_link) << "the link was not seen";
  EXPECT_TRUE(is_committed("file"));
  EXPECT_NE(inode("file"), before);
  close();
  EXPECT_EQ(orphans(), 0u);
}

// An unnamed file that cannot be given a name durably gets none.
TEST_F(UnlinkRaceTest, OutOfHandlesNoFirstName) {
  Result<Store::Created> created = store_->create_unnamed(store_->root(), 0600);
  ASSERT_TRUE(created.is_ok()) << created.status().message();
  const Handle node = created->node.handle.get();
  plan_.reopen_error = EMFILE;
  EXPECT_EQ(store_->link(node, store_->root(), "file").errno_value(), EMFILE);
  EXPECT_FALSE(exists("file"));
  EXPECT_TRUE(store_->link(node, store_->root(), "file").is_ok());
  EXPECT_TRUE(exists("file"));
}

}  // namespace
}  // namespace fpfs
