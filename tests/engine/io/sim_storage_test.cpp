// The simulated storage: what a power cut may and may not do, faults, and the strictness that catches engine bugs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <stdio.h>

#include <cstdlib>
#include <set>

#include "engine/base/units.h"
#include "engine/io/sim/sim_storage.h"

namespace fpfs {
namespace {

std::vector<std::byte> pattern(size_t length, uint64_t salt) {
  std::vector<std::byte> data(length);
  SimRandom random(salt);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

class SimStorageTest : public ::testing::Test {
 protected:
  explicit SimStorageTest(uint64_t seed = 1) : storage_(seed, {"/m0", "/m1"}) { mount(); }
  void mount() {
    root_ = storage_.open_directory("/m0").value();
    other_ = storage_.open_directory("/m1").value();
  }
  void crash_and_mount() {
    storage_.crash();
    mount();
  }
  Handle make(const std::string& name, int flags = 0) {
    return storage_.open_at(root_, name, O_RDWR | O_CREAT | flags, 0600).value();
  }
  void make_durable(const std::string& name, const std::vector<std::byte>& content) {
    const Handle file = make(name);
    ASSERT_TRUE(storage_.pwrite(file, content, 0).is_ok());
    ASSERT_TRUE(storage_.fsync(file).is_ok());
    ASSERT_TRUE(storage_.fsync(root_).is_ok());
    storage_.close(file);
  }
  bool exists(const std::string& name) { return storage_.stat_at(root_, name).is_ok(); }

  SimStorage storage_;
  Handle root_ = kNoHandle;
  Handle other_ = kNoHandle;
};

TEST_F(SimStorageTest, KeepsWhatWasSyncedAndNamed) {
  const auto content = pattern(10'000, 1);
  make_durable("a", content);
  for (int i = 0; i < 5; ++i) {
    crash_and_mount();
    EXPECT_EQ(storage_.content_of("/m0/a"), content);
  }
}

TEST_F(SimStorageTest, ReadsBackSparseContent) {
  const Handle file = make("a");
  const auto data = pattern(5000, 2);
  ASSERT_TRUE(storage_.pwrite(file, data, 100'000).is_ok());
  EXPECT_EQ(storage_.seek_data(file, 0).value(), 98'304u);
  std::vector<std::byte> back(6000);
  EXPECT_EQ(storage_.pread(file, back, 99'000).value(), 6000u);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(back[i], std::byte{0});
  EXPECT_TRUE(std::equal(back.begin() + 1000, back.end(), data.begin()));
  EXPECT_EQ(storage_.pread(file, back, 104'000).value(), 1000u);
  ASSERT_TRUE(storage_.fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 98'304, 4096).is_ok());
  EXPECT_EQ(storage_.seek_data(file, 0).value(), 102'400u);
  ASSERT_TRUE(storage_.ftruncate(file, 102'500).is_ok());
  ASSERT_TRUE(storage_.ftruncate(file, 105'000).is_ok());
  EXPECT_EQ(storage_.pread(file, std::span(back).first(200), 102'400).value(), 200u);
  EXPECT_EQ(back[99], data[2499]);
  EXPECT_EQ(back[100], std::byte{0}) << "what was cut off comes back as zeros";
  storage_.close(file);
}

TEST_F(SimStorageTest, FallocateBeyondKeepsOrExtendsSize) {
  const Handle file = make("a");
  ASSERT_TRUE(storage_.fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 8192).is_ok());
  EXPECT_EQ(storage_.fstat(file)->st_size, 0);
  EXPECT_EQ(storage_.fstat(file)->st_blocks, 16);
  ASSERT_TRUE(storage_.fallocate(file, 0, 0, 12'288).is_ok());
  EXPECT_EQ(storage_.fstat(file)->st_size, 12'288);
  EXPECT_EQ(storage_.seek_data(file, 0).status().code(), StatusCode::kNotFound);
  storage_.close(file);
}

// Over many seeds an unsynced overwrite must show every kind of outcome: kept, dropped, torn; sectors never mix inside.
TEST(SimStorageCrash, TearsUnsyncedWritesBySector) {
  const auto old_content = pattern(8192, 3);
  const auto new_content = pattern(8192, 4);
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage(seed, {"/m0"});
    const Handle root = storage.open_directory("/m0").value();
    const Handle file = storage.open_at(root, "a", O_RDWR | O_CREAT, 0600).value();
    ASSERT_TRUE(storage.pwrite(file, old_content, 0).is_ok());
    ASSERT_TRUE(storage.fdatasync(file).is_ok());
    ASSERT_TRUE(storage.fsync(root).is_ok());
    ASSERT_TRUE(storage.pwrite(file, new_content, 0).is_ok());
    storage.crash();
    const auto content = storage.content_of("/m0/a");
    ASSERT_EQ(content.size(), 8192u);
    std::string outcome;
    for (size_t s = 0; s < 8192; s += 512) {
      const bool is_old = std::equal(&content[s], &content[s] + 512, &old_content[s]);
      ASSERT_TRUE(is_old || std::equal(&content[s], &content[s] + 512, &new_content[s]));
      outcome.push_back(is_old ? 'o' : 'n');
    }
    outcomes.insert(outcome);
  }
  EXPECT_TRUE(outcomes.contains(std::string(16, 'o')));
  EXPECT_TRUE(outcomes.contains(std::string(16, 'n')));
  EXPECT_GT(outcomes.size(), 20u);
}

TEST(SimStorageCrash, ExtendedSizeMaySurviveWithUnwrittenSectors) {
  bool short_file = false, zero_sector = false, whole = false;
  const auto data = pattern(4096, 5);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage(seed, {"/m0"});
    const Handle root = storage.open_directory("/m0").value();
    const Handle file = storage.open_at(root, "a", O_RDWR | O_CREAT, 0600).value();
    ASSERT_TRUE(storage.fsync(root).is_ok());
    ASSERT_TRUE(storage.pwrite(file, data, 0).is_ok());
    storage.crash();
    const auto content = storage.content_of("/m0/a");
    short_file |= content.size() < 4096;
    whole |= content == data;
    for (size_t s = 0; s + 512 <= content.size(); s += 512)
      zero_sector |= std::all_of(&content[s], &content[s] + 512, [](std::byte b) { return b == std::byte{0}; });
  }
  EXPECT_TRUE(short_file);
  EXPECT_TRUE(zero_sector);
  EXPECT_TRUE(whole);
}

TEST(SimStorageCrash, SyncCoversFinishedTransfersOnly) {
  alignas(4096) static std::byte buffer[4096];
  std::fill(std::begin(buffer), std::end(buffer), std::byte{7});
  bool lost = false, kept = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimStorage storage(seed, {"/m0"});
    const Handle root = storage.open_directory("/m0").value();
    const Handle file = storage.open_at(root, "a", O_RDWR | O_CREAT | O_DIRECT, 0600).value();
    ASSERT_TRUE(storage.fsync(root).is_ok());
    IoRequest request;
    request.kind = IoRequest::Kind::kWrite;
    request.handle = file;
    request.data = buffer;
    request.length = 4096;
    const SimStorage::Transfer transfer = storage.start_write(request);
    ASSERT_TRUE(transfer.outcome.is_ok());
    EXPECT_EQ(storage.fstat(file)->st_size, 0) << "not visible before it is finished";
    ASSERT_TRUE(storage.fdatasync(file).is_ok());
    storage.crash();
    const auto content = storage.content_of("/m0/a");
    (content.empty() ? lost : kept) = true;
  }
  EXPECT_TRUE(lost);
  EXPECT_TRUE(kept);
}

TEST(SimStorageCrash, NamesNeedTheirFileOrDirectorySynced) {
  enum Sync { kData, kFile, kFileThatCoversThem, kDirectory };
  for (const Sync sync : {kData, kFile, kFileThatCoversThem, kDirectory}) {
    bool lost = false, kept = false;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      SimStorage storage(seed, {"/m0"});
      storage.set_syncs_own_names(sync == kFileThatCoversThem);
      const Handle root = storage.open_directory("/m0").value();
      const Handle file = storage.open_at(root, "a", O_RDWR | O_CREAT, 0600).value();
      EXPECT_EQ(storage.syncs_own_names(root), sync == kFileThatCoversThem);
      const Status synced = sync == kData ? storage.fdatasync(file) : storage.fsync(sync == kDirectory ? root : file);
      ASSERT_TRUE(synced.is_ok());
      storage.crash();
      (storage.files_below("/m0").empty() ? lost : kept) = true;
    }
    EXPECT_EQ(lost, sync == kData || sync == kFile) << sync;
    EXPECT_TRUE(kept) << sync;
  }
}

TEST(SimStorageCrash, RenameOverIsOldOrNewInBothNames) {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage(seed, {"/m0"});
    storage.set_journal_order(seed % 2 == 0 ? SimFilesystem::JournalOrder::kWhole
                                            : SimFilesystem::JournalOrder::kPerDirectory);
    const Handle root = storage.open_directory("/m0").value();
    for (const char* name : {"x", "y"}) ASSERT_TRUE(storage.make_directory(root, name, 0700).is_ok());
    const Handle x = storage.open_at(root, "x", O_RDONLY | O_DIRECTORY).value();
    const Handle y = storage.open_at(root, "y", O_RDONLY | O_DIRECTORY).value();
    const Handle from = storage.open_at(x, "a", O_RDWR | O_CREAT, 0600).value();
    const Handle to = storage.open_at(y, "b", O_RDWR | O_CREAT, 0600).value();
    const uint64_t from_inode = storage.fstat(from)->st_ino, to_inode = storage.fstat(to)->st_ino;
    for (const Handle directory : {x, y, root}) ASSERT_TRUE(storage.fsync(directory).is_ok());
    ASSERT_TRUE(storage.rename(x, "a", y, "b", 0).is_ok());
    storage.crash();
    const auto names = storage.files_below("/m0");
    if (names.size() == 2) {
      EXPECT_EQ(names, (std::vector<std::string>{"/m0/x/a", "/m0/y/b"}));
      outcomes.insert("old");
    } else {
      ASSERT_EQ(names, (std::vector<std::string>{"/m0/y/b"}));
      const Handle again = storage.open_directory("/m0/y").value();
      EXPECT_EQ(storage.stat_at(again, "b")->st_ino, from_inode);
      EXPECT_NE(storage.stat_at(again, "b")->st_ino, to_inode);
      outcomes.insert("new");
    }
  }
  EXPECT_EQ(outcomes.size(), 2u);
}

// With one ordered journal a later operation never survives an earlier one; per directory it may.
TEST(SimStorageCrash, JournalOrder) {
  for (const bool whole : {true, false}) {
    bool second_without_first = false;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      SimStorage storage(seed, {"/m0"});
      storage.set_journal_order(whole ? SimFilesystem::JournalOrder::kWhole
                                      : SimFilesystem::JournalOrder::kPerDirectory);
      const Handle root = storage.open_directory("/m0").value();
      for (const char* name : {"x", "y"}) ASSERT_TRUE(storage.make_directory(root, name, 0700).is_ok());
      const Handle x = storage.open_at(root, "x", O_RDONLY | O_DIRECTORY).value();
      const Handle y = storage.open_at(root, "y", O_RDONLY | O_DIRECTORY).value();
      ASSERT_TRUE(storage.fsync(root).is_ok());
      storage.close(storage.open_at(x, "a", O_RDWR | O_CREAT, 0600).value());
      storage.close(storage.open_at(y, "b", O_RDWR | O_CREAT, 0600).value());
      if (seed % 2 == 0) {
        ASSERT_TRUE(storage.fsync(y).is_ok());
      }
      storage.crash();
      const auto names = storage.files_below("/m0");
      const std::set<std::string> found(names.begin(), names.end());
      if (seed % 2 == 0) {
        EXPECT_TRUE(found.contains("/m0/y/b"));
      }
      second_without_first |= found.contains("/m0/y/b") && !found.contains("/m0/x/a");
    }
    EXPECT_EQ(second_without_first, !whole);
  }
}

TEST(SimStorageCrash, UnlinkedComesBackUntilItsDirectoryIsSynced) {
  const auto content = pattern(3000, 6);
  bool back = false;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SimStorage storage(seed, {"/m0"});
    const Handle root = storage.open_directory("/m0").value();
    const Handle file = storage.open_at(root, "a", O_RDWR | O_CREAT, 0600).value();
    ASSERT_TRUE(storage.pwrite(file, content, 0).is_ok());
    ASSERT_TRUE(storage.fsync(file).is_ok());
    ASSERT_TRUE(storage.fsync(root).is_ok());
    storage.close(file);
    ASSERT_TRUE(storage.unlink(root, "a").is_ok());
    const bool synced = seed % 2 == 0;
    if (synced) {
      ASSERT_TRUE(storage.fsync(root).is_ok());
    }
    storage.crash();
    const auto names = storage.files_below("/m0");
    if (synced) {
      EXPECT_TRUE(names.empty());
    }
    if (!names.empty()) {
      back = true;
      EXPECT_EQ(storage.content_of("/m0/a"), content);
    }
  }
  EXPECT_TRUE(back);
}

TEST_F(SimStorageTest, CutStopsTheWorldAndNothingBecomesDurable) {
  make_durable("a", pattern(100, 7));
  const Handle file = make("a");
  storage_.cut_at(storage_.boundaries() + 1);
  EXPECT_EQ(storage_.pwrite(file, pattern(100, 8), 0).code(), StatusCode::kIoError);
  EXPECT_TRUE(storage_.is_off());
  EXPECT_EQ(storage_.fsync(file).code(), StatusCode::kIoError);
  EXPECT_EQ(storage_.unlink(root_, "a").code(), StatusCode::kIoError);
  EXPECT_FALSE(storage_.open_directory("/m0").is_ok());
  crash_and_mount();
  EXPECT_FALSE(storage_.is_off());
  EXPECT_TRUE(exists("a"));
}

TEST_F(SimStorageTest, HardLinksShareContentAndCount) {
  const Handle file = make("a");
  ASSERT_TRUE(storage_.link(file, root_, "b").is_ok());
  EXPECT_EQ(storage_.fstat(file)->st_nlink, 2u);
  ASSERT_TRUE(storage_.unlink(root_, "a").is_ok());
  EXPECT_EQ(storage_.fstat(file)->st_nlink, 1u);
  ASSERT_TRUE(storage_.pwrite(file, pattern(50, 9), 0).is_ok());
  storage_.close(file);
  EXPECT_EQ(storage_.content_of("/m0/b"), pattern(50, 9));
  ASSERT_TRUE(storage_.fsync(root_).is_ok());
  crash_and_mount();
  EXPECT_FALSE(exists("a"));
  EXPECT_EQ(storage_.stat_at(root_, "b")->st_nlink, 1u);
}

TEST_F(SimStorageTest, UnnamedFilesAreLinkedOrVanish) {
  const Handle file = storage_.open_at(root_, ".", O_RDWR | O_TMPFILE, 0600).value();
  EXPECT_EQ(storage_.fstat(file)->st_nlink, 0u);
  ASSERT_TRUE(storage_.link(file, root_, "a").is_ok());
  ASSERT_TRUE(storage_.unlink(root_, "a").is_ok());
  EXPECT_EQ(storage_.link(file, root_, "b").errno_value(), ENOENT);
  storage_.close(file);
}

TEST_F(SimStorageTest, RenameFollowsTheRulesOfTheKernel) {
  ASSERT_TRUE(storage_.make_directory(root_, "d", 0700).is_ok());
  ASSERT_TRUE(storage_.make_directory(root_, "e", 0700).is_ok());
  const Handle d = storage_.open_at(root_, "d", O_RDONLY | O_DIRECTORY).value();
  storage_.close(make("f"));
  EXPECT_EQ(storage_.rename(root_, "d", d, "x", 0).errno_value(), EINVAL);
  EXPECT_EQ(storage_.rename(root_, "f", root_, "d", 0).errno_value(), EISDIR);
  EXPECT_EQ(storage_.rename(root_, "d", root_, "f", 0).errno_value(), ENOTDIR);
  EXPECT_EQ(storage_.rename(root_, "f", root_, "e", RENAME_NOREPLACE).errno_value(), EEXIST);
  EXPECT_EQ(storage_.rename(root_, "f", other_, "f", 0).errno_value(), EXDEV);
  EXPECT_EQ(storage_.rename(root_, "none", root_, "f", 0).errno_value(), ENOENT);
  ASSERT_TRUE(storage_.rename(root_, "f", d, "f", 0).is_ok());
  EXPECT_EQ(storage_.rename(root_, "e", root_, "d", 0).errno_value(), ENOTEMPTY);
  ASSERT_TRUE(storage_.rename(root_, "d", root_, "e", 0).is_ok());
  EXPECT_EQ(storage_.rename(d, "f", root_, "e", RENAME_EXCHANGE).errno_value(), EINVAL);
  ASSERT_TRUE(storage_.make_directory(root_, "g", 0700).is_ok());
  ASSERT_TRUE(storage_.rename(d, "f", root_, "g", RENAME_EXCHANGE).is_ok());
  EXPECT_EQ(storage_.files_below("/m0"), std::vector<std::string>{"/m0/g"});
  EXPECT_EQ(storage_.remove_directory(root_, "g").errno_value(), ENOTDIR);
  EXPECT_EQ(storage_.remove_directory(root_, "e").errno_value(), ENOTEMPTY);
  EXPECT_TRUE(storage_.remove_directory(d, "f").is_ok());
}

TEST_F(SimStorageTest, LocksExcludeAndVanish) {
  const Handle first = make("lock");
  const Handle second = make("lock");
  ASSERT_TRUE(storage_.lock(first, true).is_ok());
  EXPECT_EQ(storage_.lock(second, true).code(), StatusCode::kBusy);
  EXPECT_EQ(storage_.lock(second, false).code(), StatusCode::kBusy);
  storage_.close(first);
  EXPECT_TRUE(storage_.lock(second, true).is_ok());
  ASSERT_TRUE(storage_.fsync(root_).is_ok());
  crash_and_mount();
  EXPECT_TRUE(storage_.lock(make("lock"), true).is_ok());
}

TEST_F(SimStorageTest, SymlinksAreNotFollowed) {
  ASSERT_TRUE(storage_.symlink("d/target", root_, "link").is_ok());
  EXPECT_EQ(storage_.open_at(root_, "link", O_RDONLY).status().errno_value(), ELOOP);
  const Handle link = storage_.open_at(root_, "link", O_PATH).value();
  EXPECT_EQ(storage_.read_link(link).value(), "d/target");
  EXPECT_TRUE(S_ISLNK(storage_.fstat(link)->st_mode));
}

TEST_F(SimStorageTest, AttributesAndXattrs) {
  const Handle file = make("a");
  const auto value = pattern(20, 10);
  ASSERT_TRUE(storage_.set_xattr(file, "user.k", value, 0).is_ok());
  std::vector<std::byte> back(20);
  EXPECT_EQ(storage_.get_xattr(file, "user.k", back).value(), 20u);
  EXPECT_EQ(back, value);
  EXPECT_EQ(storage_.get_xattr(file, "user.none", {}).status().errno_value(), ENODATA);
  ASSERT_TRUE(storage_.chmod(file, 0640).is_ok());
  ASSERT_TRUE(storage_.fsync(file).is_ok());
  ASSERT_TRUE(storage_.fsync(root_).is_ok());
  crash_and_mount();
  EXPECT_EQ(storage_.stat_at(root_, "a")->st_mode & 07777, 0640u);
}

TEST_F(SimStorageTest, FaultsHitTheCallTheyName) {
  const Handle file = make("a");
  storage_.inject({.call = SimFault::Call::kSyncFile, .error = EIO, .filesystem = 1, .role = {}, .nth = 2});
  EXPECT_TRUE(storage_.fdatasync(file).is_ok());
  ASSERT_TRUE(storage_.pwrite(file, pattern(64 * 1024, 11), 0).is_ok());
  EXPECT_EQ(storage_.fdatasync(file).code(), StatusCode::kIoError);
  EXPECT_TRUE(storage_.fdatasync(file).is_ok());
  EXPECT_EQ(storage_.fault_hits(), 1u);
  ASSERT_TRUE(storage_.fsync(root_).is_ok());
  const auto seen = storage_.content_of("/m0/a");
  crash_and_mount();
  EXPECT_NE(storage_.content_of("/m0/a"), seen) << "a sync that failed is not made good by the next";
}

TEST_F(SimStorageTest, ClonesAreFilesOfTheirOwn) {
  const auto content = pattern(12'288, 21);
  make_durable("a", content);
  const Handle from = storage_.open_at(root_, "a", O_RDWR).value(), to = make("b");
  ASSERT_TRUE(storage_.pwrite(to, pattern(4096, 22), 0).is_ok());
  EXPECT_FALSE(*storage_.has_shared_blocks(from));
  ASSERT_TRUE(storage_.clone_range(from, 4096, 8192, to, 8192).is_ok());
  EXPECT_TRUE(*storage_.has_shared_blocks(from));
  EXPECT_TRUE(*storage_.has_shared_blocks(to));
  ASSERT_TRUE(storage_.fsync(to).is_ok());
  ASSERT_TRUE(storage_.pwrite(from, pattern(12'288, 23), 0).is_ok());
  EXPECT_EQ(storage_.clone_range(from, 100, 4096, to, 0).errno_value(), EINVAL);
  EXPECT_EQ(storage_.clone_range(from, 8192, 8192, to, 0).errno_value(), EINVAL) << "past the end";
  const Handle elsewhere = storage_.open_at(other_, "c", O_RDWR | O_CREAT, 0600).value();
  EXPECT_EQ(storage_.clone_range(from, 0, 4096, elsewhere, 0).errno_value(), EXDEV);
  storage_.set_shares_blocks(1, false);
  EXPECT_EQ(storage_.clone_range(from, 0, 4096, to, 0).errno_value(), EOPNOTSUPP);
  crash_and_mount();
  const auto cloned = storage_.content_of("/m0/b");
  ASSERT_EQ(cloned.size(), 16'384U);
  EXPECT_TRUE(std::equal(cloned.begin() + 8192, cloned.end(), content.begin() + 4096));
  EXPECT_TRUE(std::equal(cloned.begin(), cloned.begin() + 4096, pattern(4096, 22).begin()));
}

TEST(SimStorageCrash, ClonesThatWereNotSyncedAreLostInParts) {
  const auto content = pattern(8192, 3);
  std::set<size_t> kept;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimStorage storage(seed, {"/m0"});
    const Handle root = storage.open_directory("/m0").value();
    const Handle from = storage.open_at(root, "a", O_RDWR | O_CREAT, 0600).value();
    const Handle to = storage.open_at(root, "b", O_RDWR | O_CREAT, 0600).value();
    ASSERT_TRUE(storage.pwrite(from, content, 0).is_ok());
    ASSERT_TRUE(storage.ftruncate(to, 8192).is_ok());
    for (const Handle handle : {from, to, root}) ASSERT_TRUE(storage.fsync(handle).is_ok());
    ASSERT_TRUE(storage.clone_range(from, 0, 8192, to, 0).is_ok());
    storage.crash();
    EXPECT_EQ(storage.content_of("/m0/a"), content);
    const auto cloned = storage.content_of("/m0/b");
    size_t sectors = 0;
    for (size_t s = 0; s < 8192; s += 512) sectors += std::equal(&cloned[s], &cloned[s] + 512, &content[s]) ? 1 : 0;
    kept.insert(sectors);
  }
  EXPECT_TRUE(kept.contains(0));
  EXPECT_TRUE(kept.contains(16));
  EXPECT_GT(kept.size(), 5U);
}

TEST_F(SimStorageTest, FullFilesystem) {
  storage_.set_capacity(1, 64 * 1024);
  const Handle file = make("a");
  ASSERT_TRUE(storage_.pwrite(file, pattern(60 * 1024, 12), 0).is_ok());
  EXPECT_EQ(storage_.pwrite(file, pattern(8 * 1024, 12), 60 * 1024).code(), StatusCode::kNoSpace);
  EXPECT_EQ(storage_.fstatvfs(file)->f_bavail, 1u);
  EXPECT_TRUE(storage_.pwrite(file, pattern(8 * 1024, 13), 0).is_ok()) << "overwriting needs no space";
}

TEST_F(SimStorageTest, FlippedBitsStay) {
  make_durable("a", pattern(100, 14));
  ASSERT_TRUE(storage_.flip_bit("/m0/a", 50, 3));
  crash_and_mount();
  auto expected = pattern(100, 14);
  expected[50] ^= std::byte{8};
  EXPECT_EQ(storage_.content_of("/m0/a"), expected);
}

TEST_F(SimStorageTest, SavedWorldsAreIndependent) {
  make_durable("a", pattern(5000, 15));
  for (const Handle handle : {root_, other_}) storage_.close(handle);
  const SimWorld world = storage_.save();
  SimStorage copy(2, {"/m0", "/m1"});
  copy.restore(world);
  const Handle root = copy.open_directory("/m0").value();
  const Handle file = copy.open_at(root, "a", O_RDWR).value();
  ASSERT_TRUE(copy.pwrite(file, pattern(5000, 16), 0).is_ok());
  EXPECT_EQ(storage_.content_of("/m0/a"), pattern(5000, 15));
  EXPECT_EQ(copy.content_of("/m0/a"), pattern(5000, 16));
}

TEST_F(SimStorageTest, ReportsOpenHandles) {
  const Handle file = make("a");
  EXPECT_EQ(storage_.open_handles().size(), 3u);
  storage_.close(file);
  EXPECT_EQ(storage_.open_handles().size(), 2u);
}

using SimStorageDeathTest = SimStorageTest;

TEST_F(SimStorageDeathTest, AbortsOnMisuse) {
  const Handle file = make("a", O_DIRECT);
  alignas(4096) static std::byte buffer[8192];
  EXPECT_DEATH((void)storage_.pwrite(file, std::span(buffer).first(512), 0), "misaligned length");
  EXPECT_DEATH((void)storage_.pwrite(file, std::span(buffer).first(4096), 512), "misaligned offset");
  EXPECT_DEATH((void)storage_.pwrite(file, std::span(buffer).subspan(8, 4096), 0), "misaligned memory");
  storage_.close(file);
  EXPECT_DEATH(storage_.close(file), "not open");
  EXPECT_DEATH((void)storage_.fstat(12345), "not open");
}

TEST_F(SimStorageDeathTest, AbortsWhenABufferChangesUnderATransfer) {
  const Handle file = make("a", O_DIRECT);
  alignas(4096) static std::byte buffer[4096];
  IoRequest request;
  request.kind = IoRequest::Kind::kWrite;
  request.handle = file;
  request.data = buffer;
  request.length = 4096;
  const SimStorage::Transfer transfer = storage_.start_write(request);
  EXPECT_DEATH(storage_.close(file), "transfer");
  buffer[77] = std::byte{1};
  EXPECT_DEATH((void)storage_.finish_write(request, transfer), "changed");
}

}  // namespace
}  // namespace fpfs
