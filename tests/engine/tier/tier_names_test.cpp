// Copies follow names and attributes, over a simulated array and a simulated store.
#include <gtest/gtest.h>

#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/engine/tier/sim_tier.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 5 * kTestChunk + 1000;  // three parts

class TierNamesTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  explicit TierNamesTest(const TierCopyOptions& options = tier_copy_options())
      : tier_(GetParam(), SimObjectStore::Options(), options) {}
  void SetUp() override {
    tier_.copier().open();
    ASSERT_TRUE(tier_.wait_for_all().is_ok());
  }
  Store& store() { return tier_.array().store(); }
  Handle root() { return store().root(); }
  const auto& objects() { return tier_.objects().objects(); }
  // What was told is enough.
  void settle() {
    ASSERT_TRUE(tier_.world().run_until([this] {
      const TierCopyStatus status = tier_.copier().status();
      return status.files_waiting == 0 && !status.is_scanning && !status.is_scan_due;
    }));
  }
  NodeHandle node(const std::string& name) {
    Result<Store::Node> found = store().lookup(root(), name);
    EXPECT_TRUE(found.is_ok()) << name;
    return std::move(found->handle);
  }
  void save_below(const std::string& directory, const std::string& name, const Bytes& content) {
    const NodeHandle parent = node(directory);
    Result<Store::Created> created = store().create(parent.get(), name, 0644);
    ASSERT_TRUE(created.is_ok());
    created->node.handle.reset();
    ASSERT_TRUE(tier_.write(*created->file, content).is_ok());
    ASSERT_TRUE(tier_.array().control(*created->file, ControlRequest::Kind::kClose).is_ok());
  }
  void expect_copy(const std::string& path, const Bytes& content) {
    const auto copy = tier_.copy(path);
    ASSERT_TRUE(copy.has_value()) << path;
    EXPECT_TRUE(*copy == content) << path;
    EXPECT_EQ(tier_.manifest(path)->path, path);
    EXPECT_TRUE(SimTier::is_described(*tier_.manifest(path), *copy)) << path;
  }
  void expect_nothing_at(const std::string& path) {
    EXPECT_FALSE(objects().contains(path)) << path;
    EXPECT_FALSE(objects().contains(manifest_key(path))) << path;
  }
  uint64_t bytes_copied() { return tier_.copier().status().bytes_copied; }

  SimTier tier_;
};

class TierKeepsNamesTest : public TierNamesTest {
 protected:
  TierKeepsNamesTest() : TierNamesTest(options()) {}
  static TierCopyOptions options() {
    TierCopyOptions options = tier_copy_options();
    options.tier_delete = TierDelete::kKeep;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Seeds, TierNamesTest, ::testing::Range<uint64_t>(1, 7));
INSTANTIATE_TEST_SUITE_P(Seeds, TierKeepsNamesTest, ::testing::Range<uint64_t>(1, 4));

TEST_P(TierNamesTest, TheCopyOfARemovedFileGoes) {
  tier_.save("a", make_bytes(kLength, 1)).reset();
  tier_.save("b", make_bytes(100, 2)).reset();
  settle();
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  settle();
  expect_nothing_at("a");
  expect_copy("b", make_bytes(100, 2));
  EXPECT_EQ(tier_.copier().status().copies_removed, 1u);
}

TEST_P(TierNamesTest, AFileThatWasNeverCopiedCostsNoCallOfTheStore) {
  const std::shared_ptr<File> file = tier_.array().create("a");
  const uint64_t calls = tier_.objects().calls();
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  settle();
  EXPECT_EQ(tier_.objects().calls(), calls);
}

TEST_P(TierNamesTest, WhatWasRemovedWhileNobodyListenedIsFoundByAScan) {
  ASSERT_TRUE(store().make_directory(root(), "d", 0755).is_ok());
  save_below("d", "a", make_bytes(kLength, 1));
  tier_.save("b", make_bytes(kLength, 1)).reset();
  tier_.save("c", make_bytes(100, 1)).reset();
  settle();
  tier_.set_deaf(true);
  {
    const NodeHandle directory = node("d");
    ASSERT_TRUE(store().unlink(directory.get(), "a").is_ok());
  }
  ASSERT_TRUE(store().remove_directory(root(), "d").is_ok());
  ASSERT_TRUE(store().unlink(root(), "b").is_ok());
  // As a crash in the middle of a removal leaves it.
  tier_.objects().objects().erase(manifest_key("b"));
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (const char* const path : {"d/a", "d/", "b"}) expect_nothing_at(path);
  EXPECT_EQ(objects().size(), 2u) << "c";
}

TEST_P(TierNamesTest, WhatIsSomebodyElsesStays) {
  TierManifest manifest;
  manifest.array_id[3] = std::byte{7};
  manifest.path = "theirs";
  manifest.mode = S_IFREG | 0644;
  manifest.content_tag = "t";
  auto& stored = tier_.objects().objects();
  stored["theirs"] = {{}, {{"fastpersistfs", "00.1"}}, "t"};
  stored[manifest_key("theirs")] = {encode_manifest(manifest), {}, "u"};
  stored["data"] = {Bytes(10), {}, "v"};
  stored[manifest_key("unreadable")] = {Bytes(10), {}, "w"};
  stored[".fastpersistfs-store/identity"] = {Bytes(10), {}, "x"};
  stored["d/.fastpersistfs/mine"] = {Bytes(10), {}, "y"};
  const auto before = stored;
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  const uint64_t calls = tier_.objects().calls();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(stored.size(), before.size());
  EXPECT_LE(tier_.objects().calls() - calls, 12u) << "it is not looked at again and again";
}

TEST_P(TierKeepsNamesTest, CopiesStayWhenTheyAreToBeKept) {
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("a", content).reset();
  tier_.save("b", content).reset();
  settle();
  const uint64_t sent = bytes_copied();
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  ASSERT_TRUE(store().rename(root(), "b", root(), "c", 0).is_ok());
  settle();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (const char* const path : {"a", "b", "c"}) expect_copy(path, content);
  EXPECT_EQ(bytes_copied(), sent);
}

TEST_P(TierNamesTest, AFileThatMovesSendsNoContent) {
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("a", content).reset();
  settle();
  const uint64_t sent = bytes_copied();
  ASSERT_TRUE(store().rename(root(), "a", root(), "b", 0).is_ok());
  ASSERT_TRUE(store().rename(root(), "b", root(), "c", 0).is_ok());
  settle();
  expect_copy("c", content);
  expect_nothing_at("a");
  expect_nothing_at("b");
  EXPECT_EQ(bytes_copied(), sent);
  EXPECT_TRUE(tier_.note("c")->verified);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(bytes_copied(), sent);
}

TEST_P(TierNamesTest, ADirectoryThatMovesSendsNoContent) {
  ASSERT_TRUE(store().make_directory(root(), "d", 0750).is_ok());
  save_below("d", "a", make_bytes(kLength, 1));
  save_below("d", "b", make_bytes(kLength, 2));
  settle();
  const uint64_t sent = bytes_copied();
  if (GetParam() % 2 == 0) tier_.set_deaf(true);  // by a scan alone
  ASSERT_TRUE(store().rename(root(), "d", root(), "e", 0).is_ok());
  settle();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("e/a", make_bytes(kLength, 1));
  expect_copy("e/b", make_bytes(kLength, 2));
  EXPECT_EQ(tier_.manifest("e/")->mode, S_IFDIR | 0750U);
  for (const char* const path : {"d/a", "d/b", "d/"}) expect_nothing_at(path);
  EXPECT_EQ(bytes_copied(), sent);
}

TEST_P(TierNamesTest, FilesThatChangePlaces) {
  const Bytes first = make_bytes(kLength, 1), second = make_bytes(kLength, 2);
  tier_.save("a", first).reset();
  tier_.save("b", second).reset();
  settle();
  ASSERT_TRUE(store().rename(root(), "a", root(), "b", RENAME_EXCHANGE).is_ok());
  settle();
  expect_copy("a", second);
  expect_copy("b", first);
}

TEST_P(TierNamesTest, AttributesBringAManifestAndNoContent) {
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("a", content).reset();
  settle();
  const std::string tag = objects().at("a").tag;
  const uint64_t sent = bytes_copied();
  const NodeHandle file = node("a");
  const struct timespec times[2] = {{5, 6}, {7, 8}};
  const std::string_view value = "red";
  ASSERT_TRUE(store().chmod(file.get(), 0600).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("a")->mode, S_IFREG | 0600U);
  ASSERT_TRUE(store().chown(file.get(), 11, 12).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("a")->uid, 11u);
  ASSERT_TRUE(store().set_times(file.get(), times).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("a")->mtime_seconds, 7);
  ASSERT_TRUE(store().set_xattr(file.get(), "user.tag", std::as_bytes(std::span(value)), 0).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("a")->xattrs.at("user.tag"), "red");
  ASSERT_TRUE(store().remove_xattr(file.get(), "user.tag").is_ok());
  settle();
  EXPECT_TRUE(tier_.manifest("a")->xattrs.empty());
  // What users say of a file to the mount is theirs, too; what the copier notes there is not.
  ASSERT_TRUE(store().set_setting(file.get(), Store::kDurableAttribute, "tier", 0).is_ok());
  ASSERT_TRUE(store().set_setting(file.get(), Store::kCompressAttribute, "off", 0).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("a")->xattrs, (std::map<std::string, std::string>{{Store::kDurableAttribute, "tier"},
                                                                             {Store::kCompressAttribute, "off"}}));
  tier_.set_deaf(true);
  ASSERT_TRUE(store().chmod(file.get(), 0640).is_ok());
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(tier_.manifest("a")->mode, S_IFREG | 0640U) << "a scan finds it as well";
  expect_copy("a", content);
  EXPECT_EQ(objects().at("a").tag, tag);
  EXPECT_EQ(bytes_copied(), sent);
  EXPECT_EQ(tier_.note("a")->manifest_tag, TierNote::tag_of(objects().at(manifest_key("a")).tag));
}

TEST_P(TierNamesTest, WhateverHasANameHasAManifest) {
  ASSERT_TRUE(store().make_directory(root(), "d", 0750).is_ok());
  ASSERT_TRUE(store().symlink("somewhere", root(), "l").is_ok());
  ASSERT_TRUE(store().make_node(root(), "p", S_IFIFO | 0600, 0).is_ok());
  ASSERT_TRUE(store().make_node(root(), "c", S_IFCHR | 0600, makedev(1, 3)).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("d/")->mode, S_IFDIR | 0750U);
  EXPECT_EQ(tier_.manifest("d/")->path, "d");
  EXPECT_EQ(tier_.manifest("l")->target, "somewhere");
  EXPECT_EQ(tier_.manifest("p")->mode, S_IFIFO | 0600U);
  EXPECT_EQ(tier_.manifest("c")->device, makedev(1, 3));
  EXPECT_EQ(objects().size(), 4u);
  ASSERT_TRUE(store().chmod(node("d").get(), 0700).is_ok());
  ASSERT_TRUE(store().unlink(root(), "l").is_ok());
  ASSERT_TRUE(store().rename(root(), "p", root(), "q", 0).is_ok());
  settle();
  EXPECT_EQ(tier_.manifest("d/")->mode, S_IFDIR | 0700U);
  expect_nothing_at("l");
  expect_nothing_at("p");
  EXPECT_EQ(tier_.manifest("q")->mode, S_IFIFO | 0600U);
  ASSERT_TRUE(store().remove_directory(root(), "d").is_ok());
  settle();
  expect_nothing_at("d/");
  // Looked at once, then remembered.
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  const uint64_t calls = tier_.objects().calls();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(tier_.objects().calls() - calls, 2u);
}

TEST_P(TierNamesTest, SomethingElseComesToAPath) {
  tier_.save("a", make_bytes(kLength, 1)).reset();
  tier_.save("b", make_bytes(kLength, 2)).reset();
  settle();
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  ASSERT_TRUE(store().make_directory(root(), "a", 0755).is_ok());
  save_below("a", "x", make_bytes(100, 3));
  ASSERT_TRUE(store().unlink(root(), "b").is_ok());
  ASSERT_TRUE(store().symlink("x", root(), "b").is_ok());
  settle();
  expect_nothing_at("a");
  expect_copy("a/x", make_bytes(100, 3));
  EXPECT_FALSE(objects().contains("b"));
  EXPECT_EQ(tier_.manifest("b")->target, "x");
  ASSERT_TRUE(store().unlink(root(), "b").is_ok());
  tier_.save("b", make_bytes(kLength, 4)).reset();
  settle();
  expect_copy("b", make_bytes(kLength, 4));
}

TEST_P(TierNamesTest, EveryNameOfAFileHasACopy) {
  const Bytes first = make_bytes(kLength, 1), second = make_bytes(kLength, 2);
  const std::shared_ptr<File> file = tier_.save("a", first);
  settle();
  const uint64_t sent = bytes_copied();
  {
    const NodeHandle linked = node("a");
    ASSERT_TRUE(store().link(linked.get(), root(), "b").is_ok());
  }
  settle();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("a", first);
  expect_copy("b", first);
  EXPECT_EQ(tier_.manifest("a")->file_id, tier_.manifest("b")->file_id) << "which tells that they are one";
  EXPECT_EQ(bytes_copied(), sent) << "the store has copied it";
  ASSERT_TRUE(tier_.replace(*file, second).is_ok());
  settle();
  expect_copy("a", second);
  expect_copy("b", second);
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  settle();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_nothing_at("a");
  expect_copy("b", second);
}

// A power cut may undo a removal that nobody has synced.
TEST_P(TierNamesTest, ARemovalIsFollowedWhenItIsDurable) {
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("a", content).reset();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  ASSERT_TRUE(tier_.array().sync_all().is_ok());
  SimFault fault;
  fault.call = SimFault::Call::kSyncDirectory;
  fault.role = SimRole::kTree;
  fault.count = SimFault::kForever;
  tier_.array().sim().inject(fault);
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  for (int steps = 0; steps < 2000; ++steps) tier_.world().step();
  expect_copy("a", content);
}

TEST_P(TierNamesTest, OnePathIsWrittenByOneCopyAtATime) {
  SimObjectStore::Options options;
  options.delay_ms_max = 500;
  tier_.objects().set_options(options);
  Bytes content;
  for (uint64_t round = 1; round < 12; ++round) {
    content = make_bytes(round % 3 == 0 ? 100 : kLength, round);
    tier_.save("new", content).reset();
    for (uint64_t steps = tier_.world().random().below(150); steps > 0; --steps) tier_.world().step();
    ASSERT_TRUE(store().rename(root(), "new", root(), "latest", 0).is_ok());
    if (round % 4 == 1) {
      ASSERT_TRUE(store().unlink(root(), "latest").is_ok());
    }
    for (uint64_t steps = tier_.world().random().below(150); steps > 0; --steps) tier_.world().step();
  }
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("latest", content);
  EXPECT_EQ(tier_.objects().conflicts(), 0u);
}

}  // namespace
}  // namespace fpfs::test
