// Copying committed files out, over a simulated array and a simulated store.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "engine/tier/tier_memory.h"
#include "engine/tier/tier_pace.h"
#include "engine/tier/tier_queue.h"
#include "tests/engine/tier/sim_tier.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 5 * kTestChunk + 1000;  // three parts

class TierCopierTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { tier_.copier().open(); }
  void expect_copy(const std::string& path, const Bytes& content) {
    const auto copy = tier_.copy(path);
    ASSERT_TRUE(copy.has_value()) << path;
    EXPECT_TRUE(*copy == content) << path;
    EXPECT_TRUE(SimTier::is_described(*tier_.manifest(path), *copy)) << path;
  }
  SimTier tier_{GetParam()};
};

TEST_P(TierCopierTest, AFileIsCopiedWithWhatIsKnownOfIt) {
  const Bytes content = make_bytes(kLength, 1);
  const std::shared_ptr<File> file = tier_.save("a", content);
  ASSERT_TRUE(tier_.wait_for("a").is_ok());
  expect_copy("a", content);
  const TierManifest manifest = *tier_.manifest("a");
  EXPECT_EQ(manifest.path, "a");
  EXPECT_EQ(manifest.array_id, tier_.array().store().array().id());
  EXPECT_EQ(manifest.file_id, file->info().file_id);
  EXPECT_EQ(manifest.sequence, file->info().sequence);
  EXPECT_EQ(manifest.mode, S_IFREG | 0644U);
  EXPECT_TRUE(manifest.xattrs.empty());
  const TierNote note = *tier_.note("a");
  EXPECT_EQ(note.sequence, manifest.sequence);
  EXPECT_EQ(note.content_tag, TierNote::tag_of(tier_.objects().objects().at("a").tag));
  EXPECT_EQ(note.manifest_tag, TierNote::tag_of(tier_.objects().objects().at(manifest_key("a")).tag));
  EXPECT_TRUE(note.verified);
  const TierCopyStatus status = tier_.copier().status();
  EXPECT_EQ(status.files_copied, 1u);
  EXPECT_EQ(status.bytes_copied, content.size());
  EXPECT_EQ(status.files_waiting, 0u);
  EXPECT_EQ(status.errors, 0u);
}

TEST_P(TierCopierTest, SmallEmptyAndSparseFiles) {
  const Bytes small = make_bytes(100, 1), chunk = make_bytes(kTestChunk, 2);
  tier_.save("small", small);
  tier_.save("chunk", chunk);
  tier_.save("empty", {});
  const std::shared_ptr<File> sparse = tier_.array().create("sparse");
  ASSERT_TRUE(tier_.array().write(*sparse, 3 * kTestChunk + 7, small).is_ok());
  ASSERT_TRUE(tier_.array().control(*sparse, ControlRequest::Kind::kTruncate, kLength).is_ok());
  ASSERT_TRUE(tier_.array().commit(*sparse).is_ok());
  const std::shared_ptr<File> inlined = tier_.save("inlined", small);
  ASSERT_TRUE(tier_.array().control(*inlined, ControlRequest::Kind::kTruncate, kTestChunk + 5).is_ok());
  ASSERT_TRUE(tier_.array().commit(*inlined).is_ok());
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("small", small);
  expect_copy("chunk", chunk);
  expect_copy("empty", {});
  Bytes content(kLength);
  std::copy(small.begin(), small.end(), content.begin() + 3 * kTestChunk + 7);
  expect_copy("sparse", content);
  content.assign(kTestChunk + 5, std::byte{0});
  std::copy(small.begin(), small.end(), content.begin());
  expect_copy("inlined", content);
}

TEST_P(TierCopierTest, TheEventOfAnEmptyFileIsEnough) {
  tier_.world().drain();
  tier_.save("_SUCCESS", {});
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().files_copied == 1; }));
  expect_copy("_SUCCESS", {});
  EXPECT_EQ(tier_.manifest("_SUCCESS")->sequence, 0u);
}

TEST_P(TierCopierTest, NothingUncommittedIsCopied) {
  const Bytes content = make_bytes(kLength, 1);
  const std::shared_ptr<File> file = tier_.save("a", content);
  const std::shared_ptr<File> fresh = tier_.array().create("fresh");
  ASSERT_TRUE(tier_.array().write(*fresh, 0, content).is_ok());
  ASSERT_TRUE(tier_.array().write(*file, 100, make_bytes(kTestChunk, 2)).is_ok());
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("a", content);
  EXPECT_FALSE(tier_.objects().objects().contains("fresh"));
  ASSERT_TRUE(tier_.array().commit(*fresh).is_ok());
  ASSERT_TRUE(tier_.wait_for("fresh").is_ok());
  expect_copy("fresh", content);
}

TEST_P(TierCopierTest, WhatIsReplacedMeanwhileIsCopiedAsItWasOrAsItIs) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(kLength, 1));
  for (uint64_t round = 2; round < 8; ++round) {
    const Bytes content = make_bytes(kLength - round * 1000, round);
    ASSERT_TRUE(tier_.replace(*file, content).is_ok());
    for (uint64_t steps = tier_.world().random().below(300); steps > 0; --steps) tier_.world().step();
    const auto copy = tier_.copy("a");
    if (!copy.has_value()) continue;
    bool is_one = false;
    for (uint64_t past = 1; past <= round; ++past)
      is_one |= *copy == make_bytes(past == 1 ? kLength : kLength - past * 1000, past);
    EXPECT_TRUE(is_one) << round;
  }
  ASSERT_TRUE(tier_.wait_for("a").is_ok());
  expect_copy("a", make_bytes(kLength - 7000, 7));
}

TEST_P(TierCopierTest, AttributesComeAlong) {
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(10, 1));
  Result<Store::Node> node = tier_.array().store().lookup(tier_.array().store().root(), "a");
  ASSERT_TRUE(node.is_ok());
  const struct timespec times[2] = {{5, 6}, {7, 8}};
  ASSERT_TRUE(tier_.array().store().chmod(node->handle.get(), 0600).is_ok());
  ASSERT_TRUE(tier_.array().store().chown(node->handle.get(), 11, 12).is_ok());
  ASSERT_TRUE(tier_.array().store().set_times(node->handle.get(), times).is_ok());
  const std::string_view value = "red";
  ASSERT_TRUE(
      tier_.array().sim().set_xattr(node->handle.get(), "user.tag", std::as_bytes(std::span(value)), 0).is_ok());
  const struct stat before = tier_.array().store().attributes(node->handle.get()).value();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  const TierManifest manifest = *tier_.manifest("a");
  EXPECT_EQ(manifest.mode, S_IFREG | 0600U);
  EXPECT_EQ(manifest.uid, 11u);
  EXPECT_EQ(manifest.gid, 12u);
  EXPECT_EQ(manifest.mtime_seconds, 7);
  EXPECT_EQ(manifest.mtime_nanoseconds, 8u);
  EXPECT_EQ(manifest.xattrs, (std::map<std::string, std::string>{{"user.tag", "red"}}));
  const struct stat after = tier_.array().store().attributes(node->handle.get()).value();
  EXPECT_EQ(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
  EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec) << "the note is no change of the file";
  node->handle.reset();
}

TEST_P(TierCopierTest, AFileThatIsRenamedBeforeItIsCopiedIsCopiedWhereItIs) {
  tier_.objects().set_away(true);
  const Bytes content = make_bytes(kLength, 1);
  const Handle root = tier_.array().store().root();
  ASSERT_TRUE(tier_.array().store().make_directory(root, "d", 0755).is_ok());
  tier_.save("a.tmp", content).reset();
  tier_.save("b.tmp", content).reset();
  tier_.world().drain();
  ASSERT_TRUE(tier_.array().store().rename(root, "a.tmp", root, "a", 0).is_ok());
  Result<Store::Node> directory = tier_.array().store().lookup(root, "d");
  ASSERT_TRUE(directory.is_ok());
  ASSERT_TRUE(tier_.array().store().rename(root, "b.tmp", directory->handle.get(), "b", 0).is_ok());
  directory->handle.reset();
  tier_.objects().set_away(false);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("a", content);
  expect_copy("d/b", content);
  ASSERT_TRUE(tier_.manifest("d/b").has_value());
  EXPECT_EQ(tier_.manifest("d/b")->path, "d/b");
}

TEST_P(TierCopierTest, FilesThatWereMadeUnderOneNameAreFoundWithoutAScan) {
  const Handle root = tier_.array().store().root();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  tier_.objects().set_away(true);
  for (uint64_t file = 1; file <= 3; ++file) {
    tier_.save("new", make_bytes(kLength, file)).reset();
    if (file == 3) break;
    ASSERT_TRUE(tier_.array().store().rename(root, "new", root, "step" + std::to_string(file), 0).is_ok());
  }
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().files_copying == 0; }));
  tier_.objects().set_away(false);
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().files_waiting == 0; }));
  expect_copy("step1", make_bytes(kLength, 1));
  expect_copy("step2", make_bytes(kLength, 2));
  expect_copy("new", make_bytes(kLength, 3));
  EXPECT_FALSE(tier_.copier().status().is_scanning);
}

TEST_P(TierCopierTest, AFileThatTakesThePlaceOfAnotherIsCopiedLast) {
  const Handle root = tier_.array().store().root();
  Bytes content;
  for (uint64_t round = 1; round < 6; ++round) {
    content = make_bytes(kLength, round);
    tier_.save("latest.tmp", content).reset();
    ASSERT_TRUE(tier_.array().store().rename(root, "latest.tmp", root, "latest", 0).is_ok());
    for (uint64_t steps = tier_.world().random().below(200); steps > 0; --steps) tier_.world().step();
  }
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("latest", content);
}

TEST_P(TierCopierTest, ReservedNamesAreNotCopied) {
  const Handle root = tier_.array().store().root();
  ASSERT_TRUE(tier_.array().store().make_directory(root, ".fastpersistfs", 0755).is_ok());
  Result<Store::Node> directory = tier_.array().store().lookup(root, ".fastpersistfs");
  Result<Store::Created> created = tier_.array().store().create(directory->handle.get(), "a", 0644);
  ASSERT_TRUE(created.is_ok());
  ASSERT_TRUE(tier_.array().write(*created->file, 0, make_bytes(100, 1)).is_ok());
  ASSERT_TRUE(tier_.array().commit(*created->file).is_ok());
  created->node.handle.reset();
  directory->handle.reset();
  const Status refused = tier_.wait_for_all();
  EXPECT_EQ(refused.code(), StatusCode::kRefused);
  EXPECT_NE(refused.message().find(".fastpersistfs (its name is reserved)"), std::string::npos) << refused.message();
  EXPECT_TRUE(tier_.objects().objects().empty());
  EXPECT_EQ(tier_.copier().status().files_refused, 1u) << "the directory, with all in it";
  EXPECT_EQ(tier_.wait_for(".fastpersistfs/a").code(), StatusCode::kInvalidArgument);
}

TEST_P(TierCopierTest, WhatWasMadeBeforeIsFoundByTheScan) {
  tier_.set_deaf(true);
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("a", content).reset();
  tier_.save("b", content).reset();
  tier_.world().drain();
  EXPECT_TRUE(tier_.objects().objects().empty());
  ASSERT_TRUE(tier_.wait_for("b").is_ok());
  expect_copy("b", content);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  expect_copy("a", content);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(tier_.copier().status().files_copied, 2u) << "what is copied is not copied again";
}

// As when a power cut undoes a rename that nobody had synced: the copy at the path was that of the other file.
TEST_P(TierCopierTest, AFileThatComesBackToItsPathIsCopiedAgain) {
  const Handle root = tier_.array().store().root();
  const auto rename = [&](const std::string& from, const std::string& to) {
    ASSERT_TRUE(tier_.array().store().rename(root, from, root, to, 0).is_ok());
  };
  const Bytes first = make_bytes(kLength, 1), second = make_bytes(kLength, 2);
  tier_.save("latest", first).reset();
  ASSERT_TRUE(tier_.wait_for("latest").is_ok());
  rename("latest", "kept");
  tier_.save("latest", second).reset();
  ASSERT_TRUE(tier_.wait_for("latest").is_ok());
  expect_copy("latest", second);
  rename("kept", "latest");
  if (GetParam() % 2 == 0) {
    ASSERT_TRUE(tier_.wait_for("latest").is_ok());
  } else {
    ASSERT_TRUE(tier_.wait_for_all().is_ok());
  }
  expect_copy("latest", first);
}

TEST_P(TierCopierTest, AScanLooksWhetherTheStoreHasWhatIsNoted) {
  const Handle root = tier_.array().store().root();
  const Bytes content = make_bytes(kLength, 1);
  ASSERT_TRUE(tier_.array().store().make_directory(root, "d", 0755).is_ok());
  for (const char* const name : {"gone", "other", "undescribed", "whole"}) tier_.save(name, content).reset();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  ASSERT_TRUE(tier_.array().sync_all().is_ok());
  auto& objects = tier_.objects().objects();
  objects.erase("gone");
  objects.erase(manifest_key("undescribed"));
  objects["other"] = {make_bytes(100, 2), {}, "another"};
  tier_.leave();
  tier_.array().crash();
  tier_.array().open();
  tier_.connect();
  if (GetParam() % 2 == 0) {
    // It is looked for again when the store is back.
    tier_.objects().set_away(true);
    tier_.copier().open();
    tier_.world().drain();
    tier_.objects().set_away(false);
  } else {
    tier_.copier().open();
  }
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (const char* const name : {"gone", "other", "undescribed", "whole"}) expect_copy(name, content);
  EXPECT_EQ(tier_.copier().status().files_copied, 3u);
}

TEST_P(TierCopierTest, AFileThatTakesNoNoteIsCopiedOnceAsLongAsTheCopierLives) {
  SimFault fault;
  fault.call = SimFault::Call::kAttribute;
  fault.error = EACCES;
  fault.role = SimRole::kTree;
  fault.count = SimFault::kForever;
  const std::shared_ptr<File> file = tier_.save("a", make_bytes(100, 1));
  tier_.array().sim().inject(fault);
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(tier_.copier().status().errors, 1u) << "which is said";
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_EQ(tier_.copier().status().files_copied, 1u);
  tier_.array().sim().clear_faults();
  ASSERT_TRUE(tier_.replace(*file, make_bytes(200, 2)).is_ok());
  ASSERT_TRUE(tier_.wait_for("a").is_ok());
  expect_copy("a", make_bytes(200, 2));
}

TEST_P(TierCopierTest, FilesWithoutANameAreNobodysBusiness) {
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  Result<Store::Created> unnamed = tier_.array().store().create_unnamed(tier_.array().store().root(), 0644);
  ASSERT_TRUE(unnamed.is_ok());
  ASSERT_TRUE(tier_.array().write(*unnamed->file, 0, make_bytes(100, 1)).is_ok());
  ASSERT_TRUE(tier_.array().commit(*unnamed->file).is_ok());
  tier_.world().drain();
  EXPECT_EQ(tier_.copier().status().files_waiting, 0u);
  ASSERT_TRUE(tier_.array().store().link(unnamed->node.handle.get(), tier_.array().store().root(), "named").is_ok());
  ASSERT_TRUE(tier_.array().commit(*unnamed->file).is_ok());
  unnamed->node.handle.reset();
  ASSERT_TRUE(tier_.wait_for("named").is_ok());
  expect_copy("named", make_bytes(100, 1));
}

TEST_P(TierCopierTest, AStoreThatIsAwayDelaysCopiesAndNothingElse) {
  tier_.objects().set_away(true);
  const Bytes content = make_bytes(kLength, 1);
  const std::shared_ptr<File> file = tier_.save("a", content);
  for (uint64_t round = 0; round < 20; ++round) ASSERT_TRUE(tier_.replace(*file, make_bytes(2000, round)).is_ok());
  ASSERT_TRUE(tier_.replace(*file, content).is_ok());
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().is_store_away; }));
  const TierCopyStatus away = tier_.copier().status();
  EXPECT_EQ(away.files_waiting, 1u);
  EXPECT_EQ(away.bytes_waiting, content.size());
  EXPECT_GT(away.oldest_waiting_s, 0);
  EXPECT_GE(away.errors, 1u);
  EXPECT_NE(away.last_error.find("does not answer"), std::string::npos) << away.last_error;
  // It asks again, less and less often: two hours are no more than that many calls.
  const uint64_t calls = tier_.objects().calls();
  const time_t begin = tier_.world().now().tv_sec;
  ASSERT_TRUE(tier_.world().run_until([&] { return tier_.world().now().tv_sec > begin + 7200; }));
  EXPECT_LT(tier_.objects().calls() - calls, 3u * 7200 + 100);
  tier_.objects().set_away(false);
  ASSERT_TRUE(tier_.wait_for("a").is_ok());
  expect_copy("a", content);
  EXPECT_FALSE(tier_.copier().status().is_store_away);
}

TEST_P(TierCopierTest, WhileTheStoreIsAwayNoVersionIsHeld) {
  tier_.objects().set_away(true);
  tier_.save("a", make_bytes(kLength, 1)).reset();
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().is_store_away; }));
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().files_copying == 0; }));
  ASSERT_TRUE(tier_.array().store().unlink(tier_.array().store().root(), "a").is_ok());
  tier_.world().drain();
  size_t objects = 0;
  for (const std::string& member : tier_.array().paths())
    objects += tier_.array().sim().files_below(member + "/objects").size();
  EXPECT_EQ(objects, 0u);
}

TEST_P(TierCopierTest, AFileThatIsRefusedDoesNotKeepOthers) {
  tier_.objects().refuse(Status::error(StatusCode::kRefused, "no such names here"), "bad");
  const Bytes content = make_bytes(kLength, 1);
  tier_.save("bad", content).reset();
  tier_.save("good", content).reset();
  ASSERT_TRUE(tier_.wait_for("good").is_ok());
  const Status failed = tier_.wait_for("bad");
  EXPECT_EQ(failed.code(), StatusCode::kRefused) << failed.message();
  EXPECT_FALSE(tier_.wait_for_all().is_ok());
  const TierCopyStatus status = tier_.copier().status();
  EXPECT_EQ(status.files_failed, 1u);
  EXPECT_EQ(status.files_waiting, 1u);
  EXPECT_FALSE(status.is_store_away);
  EXPECT_NE(status.last_error.find("bad: no such names here"), std::string::npos) << status.last_error;
  tier_.objects().refuse(Status::ok());
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().files_waiting == 0; })) << "tried again";
  expect_copy("bad", content);
  EXPECT_EQ(tier_.objects().uploads_open(), 0u);
}

TEST_P(TierCopierTest, AStoreThatRefusesThisUserIsAskedByOneFileAtATime) {
  tier_.objects().refuse(Status::error(StatusCode::kPermission, "your key has expired"));
  for (int i = 0; i < 8; ++i) tier_.save("f" + std::to_string(i), make_bytes(3000, 1)).reset();
  ASSERT_TRUE(tier_.world().run_until([this] { return tier_.copier().status().is_store_away; }));
  const time_t begin = tier_.world().now().tv_sec;
  ASSERT_TRUE(tier_.world().run_until([&] { return tier_.world().now().tv_sec > begin + 100; }));
  EXPECT_EQ(tier_.copier().status().files_waiting, 8u);
  EXPECT_LE(tier_.copier().status().files_copying, 1u);
  EXPECT_LT(tier_.copier().status().errors, 150u);
  tier_.objects().refuse(Status::ok());
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (int i = 0; i < 8; ++i) expect_copy("f" + std::to_string(i), make_bytes(3000, 1));
}

TEST_P(TierCopierTest, AnswersThatAreLostAndCallsThatFail) {
  SimObjectStore::Options options;
  options.failed_percent = 15;
  options.lost_percent = 15;
  tier_.objects().set_options(options);
  for (uint64_t i = 0; i < 6; ++i) tier_.save("f" + std::to_string(i), make_bytes(kLength - i, i)).reset();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  for (uint64_t i = 0; i < 6; ++i) expect_copy("f" + std::to_string(i), make_bytes(kLength - i, i));
}

TEST_P(TierCopierTest, DamagedContentIsNotCopied) {
  tier_.objects().set_away(true);
  tier_.save("a", make_bytes(kLength, 1)).reset();
  tier_.world().drain();
  const std::string object = tier_.array().sim().files_below("/m1/objects").front();
  ASSERT_TRUE(tier_.array().sim().flip_bit(object, 100, 3));
  tier_.objects().set_away(false);
  const Status failed = tier_.wait_for("a");
  EXPECT_EQ(failed.code(), StatusCode::kCorruption) << failed.message();
  EXPECT_FALSE(tier_.objects().objects().contains("a"));
  EXPECT_EQ(tier_.objects().uploads_open(), 0u) << "what was begun is aborted";
  EXPECT_FALSE(tier_.copier().status().is_store_away);
}

TEST_P(TierCopierTest, MemoryIsWhatTheOptionsSay) {
  for (uint64_t i = 0; i < 5; ++i) tier_.save("f" + std::to_string(i), make_bytes(2 * kLength, i)).reset();
  ASSERT_TRUE(tier_.wait_for_all().is_ok());
  EXPECT_LE(tier_.objects().bytes_held_max(), tier_copy_options().memory + 3 * 1024) << "manifests are beside it";
  EXPECT_GT(tier_.objects().bytes_held_max(), 2 * kTestChunk) << "parts go side by side";
}

TEST_P(TierCopierTest, StopsInTheMiddle) {
  const Bytes content = make_bytes(2 * kLength, 1);
  for (int i = 0; i < 5; ++i) tier_.save("f" + std::to_string(i), content).reset();
  for (uint64_t steps = tier_.world().random().below(400); steps > 0; --steps) tier_.world().step();
  std::optional<Status> told;
  tier_.copier().wait_for_all([&told](const Status& status) { told = status; });
  if (GetParam() % 2 == 0) tier_.objects().close();
  ASSERT_TRUE(tier_.stop());
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->is_ok() || told->code() == StatusCode::kCancelled);
  const Status closed = tier_.array().close();
  EXPECT_TRUE(closed.is_ok()) << "no version is held: " << closed.message();
}

INSTANTIATE_TEST_SUITE_P(Seeds, TierCopierTest, ::testing::Range<uint64_t>(1, 7));

TEST(TierCopierLimitsTest, MemoryThatIsTooSmallIsRefused) {
  SimTier tier(1);
  TierCopyOptions options = tier_copy_options();
  options.memory = 3 * kTestChunk;
  EXPECT_EQ(TierCopier::create(tier.world(), tier.array().store(), tier.objects(), options).status().code(),
            StatusCode::kInvalidArgument);
  SimObjectStore::Options large;
  large.part_size_min = 5 * kMiB;
  tier.objects().set_options(large);
  options.memory = 8 * kMiB;
  const Status refused = TierCopier::create(tier.world(), tier.array().store(), tier.objects(), options).status();
  EXPECT_NE(refused.message().find("at least 10 MiB"), std::string::npos) << refused.message();
}

TEST(TierCopierLimitsTest, PartsGrowWithTheFileAndAFileThatIsTooLargeIsRefused) {
  SimObjectStore::Options store;
  store.part_count_max = 3;
  SimTier tier(1, store);
  tier.copier().open();
  const Bytes fits = make_bytes(3 * 3 * kTestChunk, 1);
  tier.save("fits", fits).reset();
  ASSERT_TRUE(tier.wait_for("fits").is_ok());
  EXPECT_TRUE(tier.copy("fits") == fits);
  tier.save("large", make_bytes(3 * 4 * kTestChunk + 1, 1)).reset();
  EXPECT_EQ(tier.wait_for("large").code(), StatusCode::kTooLarge);
}

TEST(TierCopierLimitsTest, FewerMayWaitThanThereAre) {
  TierCopyOptions options = tier_copy_options();
  options.waiting_max = 3;
  options.connections = 1;
  SimTier tier(5, {}, options);
  for (int i = 0; i < 30; ++i) tier.save("f" + std::to_string(i), make_bytes(500, 1)).reset();
  tier.copier().open();
  ASSERT_TRUE(tier.wait_for_all().is_ok());
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(tier.copy("f" + std::to_string(i)).has_value()) << i;
}

TEST(TierCopierLimitsTest, ARateIsKept) {
  TierCopyOptions options = tier_copy_options();
  options.rate = 100'000;
  SimTier tier(3, {}, options);
  tier.copier().open();
  const time_t begin = tier.world().now().tv_sec;
  tier.save("a", make_bytes(30 * kTestChunk, 1)).reset();
  ASSERT_TRUE(tier.wait_for("a").is_ok());
  // In a simulation some delayed tasks run early.
  EXPECT_GT(tier.world().now().tv_sec - begin, 10);
}

TEST(TierPaceTest, SendsAtItsRateAfterASecondOfCredit) {
  TierPace pace(1000);
  uint64_t now = 1'000'000'000'000;
  EXPECT_EQ(pace.send(1000, now).count(), 0) << "saved up";
  EXPECT_EQ(pace.send(500, now).count(), 0);
  EXPECT_EQ(pace.send(500, now).count(), 500);
  EXPECT_EQ(pace.send(500, now).count(), 1000);
  now += 5'000'000'000;
  EXPECT_EQ(pace.send(3000, now).count(), 0);
  EXPECT_EQ(pace.send(1, now).count(), 2000);
  now -= 4'000'000'000;  // the clock is set back
  EXPECT_LE(pace.send(1, now).count(), 2);
  pace.set_rate(0);
  EXPECT_EQ(pace.send(UINT32_MAX, now).count(), 0);
}

// As often as somebody begins to save, or ends.
TEST(TierPaceTest, WhatWasSentAheadStaysSoWhenTheRateChanges) {
  TierPace pace(1000);
  const uint64_t now = 1'000'000'000'000;
  EXPECT_EQ(pace.send(5000, now).count(), 0);  // 4 s ahead
  pace.set_rate(1000);
  EXPECT_EQ(pace.send(1000, now).count(), 4000);
  pace.set_rate(2000);
  EXPECT_EQ(pace.send(1000, now).count(), 2500);
  pace.set_rate(0);
  EXPECT_EQ(pace.send(1000, now).count(), 0);
}

TEST(TierMemoryTest, IsHandedOutInTurn) {
  TierMemory memory(8 * kIoAlignment, kIoAlignment, 3);
  EXPECT_EQ(memory.largest(), 4u * kIoAlignment);
  std::vector<std::span<std::byte>> pieces;
  const auto take = [&](size_t bytes) {
    memory.take(bytes, [&pieces](std::span<std::byte> piece) { pieces.push_back(piece); });
  };
  take(1);
  take(4 * kIoAlignment);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].size(), kIoAlignment);
  take(4 * kIoAlignment);  // there are three left
  take(1);
  EXPECT_EQ(pieces.size(), 2u) << "nobody overtakes";
  memory.give_back(pieces[0]);
  EXPECT_EQ(pieces.size(), 2u) << "four, but not in a row";
  memory.give_back(pieces[1]);
  ASSERT_EQ(pieces.size(), 4u);
  take(1);
  ASSERT_EQ(pieces.size(), 5u);
  take(1);
  EXPECT_EQ(pieces.size(), 5u) << "three at a time";
  EXPECT_EQ(memory.in_use(), 6u * kIoAlignment);
  memory.close();
  ASSERT_EQ(pieces.size(), 6u);
  EXPECT_TRUE(pieces.back().empty());
  take(1);
  EXPECT_TRUE(pieces.at(6).empty());
}

TEST(TierQueueTest, TheOneThatHasWaitedLongestGoesFirst) {
  TierQueue queue;
  EXPECT_TRUE(queue.add({1, "a", 1, 10, 100}));
  EXPECT_TRUE(queue.add({2, "b", 1, 20, 50}));
  EXPECT_FALSE(queue.add({1, "a2", 2, 15, 200})) << "keeps its turn";
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.bytes(), 35u);
  EXPECT_EQ(queue.oldest_ns(), 50u);
  const auto any = [](const TierWaiting&) { return true; };
  EXPECT_FALSE(queue.take([](const TierWaiting& file) { return file.inode == 3; }).has_value());
  EXPECT_EQ(queue.take(any)->path, "b");
  const TierWaiting last = *queue.take(any);
  EXPECT_EQ(last.path, "a2");
  EXPECT_EQ(last.sequence, 2u);
  EXPECT_EQ(last.since_ns, 100u);
  EXPECT_EQ(queue.bytes(), 0u);
  EXPECT_FALSE(queue.take(any).has_value());
}

TEST(TierQueueTest, WhatTheStoreHasNoRoomForGoesBehindTheOthers) {
  TierQueue queue;
  const auto any = [](const TierWaiting&) { return true; };
  queue.add({.inode = 1, .path = "large", .bytes = 100, .since_ns = 10, .is_awaited = true, .no_room = 2});
  queue.add({.inode = 2, .path = "once", .bytes = 10, .since_ns = 20, .no_room = 1});
  queue.add({.inode = 3, .path = "first", .bytes = 10, .since_ns = 30});
  queue.add({.inode = 1, .path = "large", .sequence = 2, .bytes = 100, .since_ns = 40});
  EXPECT_EQ(queue.oldest_ns(), 10u) << "whichever goes first";
  EXPECT_EQ(queue.take(any)->path, "first");
  EXPECT_EQ(queue.take(any)->path, "once");
  EXPECT_EQ(queue.oldest_ns(), 10u);
  EXPECT_EQ(queue.take(any)->path, "large") << "a newer commit of it changes nothing";
  EXPECT_EQ(queue.oldest_ns(), 0u);
  queue.add({.inode = 1, .path = "large", .bytes = 100, .since_ns = 10, .no_room = 2});
  queue.add({.inode = 2, .path = "awaited", .bytes = 100, .since_ns = 20, .is_awaited = true, .no_room = 1});
  queue.add({.inode = 3, .path = "new", .bytes = 100, .since_ns = 30});
  queue.forget_no_room();
  for (const char* path : {"awaited", "large", "new"}) EXPECT_EQ(queue.take(any)->path, path);
}

}  // namespace
}  // namespace fpfs::test
