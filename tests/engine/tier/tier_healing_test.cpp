// Chunks that their members do not give any more, and what becomes of them: every kind of damage with every state of
// the copy. Readers get right bytes or an error, never others.
#include <gtest/gtest.h>

#include "engine/check/check.h"
#include "engine/tier/noted_copy.h"
#include "tests/engine/tier/healing_world.h"

namespace fpfs::test {
namespace {

constexpr size_t kChunks = 9;
constexpr size_t kLength = (kChunks - 1) * size_t{kTestChunk} + 777;
constexpr uint64_t kDamaged = 4;

struct Case {
  Damage damage = Damage::kBit;
  bool compressed = false;
};

class TierHealingTest : public ::testing::TestWithParam<Case> {
 protected:
  Bytes make(uint64_t salt) {
    return GetParam().compressed ? make_compressible(kLength, salt) : make_bytes(kLength, salt);
  }
  // A file with a copy, opened anew, and one chunk spoilt.
  void begin(HealingWorld& world, bool read_only = false) {
    world.save("a", content_, GetParam().compressed);
    world.copy();
    world.reopen(read_only);
    if (HasFatalFailure()) return;
    EXPECT_EQ(world.extent(*world.array().open("a"), kDamaged).codec == Codec::kBlocks, GetParam().compressed);
    world.damage("a", kDamaged, GetParam().damage);
  }
  void expect_right(HealingWorld& world) {
    const Result<Bytes> read = world.read("a");
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == content_);
  }
  // Never other bytes; what cannot be read fails.
  void expect_failure(HealingWorld& world) {
    std::shared_ptr<File> file = world.array().open("a");
    unsigned failures = 0;
    for (size_t begin = 0; begin < kLength; begin += kTestChunk) {
      const size_t length = std::min<size_t>(kTestChunk, kLength - begin);
      const Result<Bytes> read = world.array().read(*file, begin, static_cast<uint32_t>(length));
      failures += read.is_ok() ? 0 : 1;
      if (!read.is_ok()) {
        EXPECT_EQ(read.status().errno_value(), EIO) << read.status().message();
      } else {
        EXPECT_TRUE(std::equal(read->begin(), read->end(), content_.begin() + static_cast<ptrdiff_t>(begin))) << begin;
      }
    }
    EXPECT_GE(failures, 1u);
    EXPECT_EQ(world.status().chunks_from_copy, 0u);
  }
  struct stat attributes(HealingWorld& world) {
    Result<Store::Node> node = world.store().lookup(world.store().root(), "a");
    EXPECT_TRUE(node.is_ok());
    node->handle.reset();
    return node->attributes;
  }
  bool stays_unreadable() const { return GetParam().damage == Damage::kReadError; }

  const Bytes content_ = make(1);
};

TEST_P(TierHealingTest, IsReadFromTheCopyAndWrittenBack) {
  HealingWorld world(1);
  begin(world);
  expect_right(world);
  EXPECT_GE(world.status().chunks_from_copy, 1u);
  world.settle();
  const StoreStatus healed = world.status();
  EXPECT_EQ(healed.chunks_without_copy, 0u);
  EXPECT_GE(healed.chunks_healed, 1u);
  if (stays_unreadable()) return expect_right(world);
  EXPECT_EQ(healed.chunks_healed, healed.chunks_from_copy);
  // From the members alone, in this life and the next; and the array has nothing to complain of.
  world.objects().objects().clear();
  world.reopen();
  expect_right(world);
  EXPECT_EQ(world.status().chunks_from_copy, 0u);
  ASSERT_TRUE(world.tier().stop());
  world.tier().leave_store();
  ASSERT_TRUE(world.array().close().is_ok());
  const Result<CheckReport> report = check_array(world.world(), world.array().paths(), {});
  ASSERT_TRUE(report.is_ok());
  for (const CheckError& error : report->errors) ADD_FAILURE() << error.kind << ": " << error.detail;
}

TEST_P(TierHealingTest, TheHealedChunkLiesElsewhereAndTheRestWhereItWas) {
  if (stays_unreadable()) GTEST_SKIP();
  HealingWorld world(2);
  begin(world);
  std::shared_ptr<File> file = world.array().open("a");
  const auto before = file->map(ChunkIndex(0), kChunks);
  const uint64_t sequence = file->info().sequence;
  const struct stat was = attributes(world);
  expect_right(world);
  world.settle();
  const auto after = file->map(ChunkIndex(0), kChunks);
  ASSERT_EQ(after.size(), before.size());
  // One read that fails may be that of another chunk of the member.
  const bool is_any = GetParam().damage == Damage::kReadErrorOnce;
  size_t healed = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const bool is_same = after[i].extent.slot == before[i].extent.slot;
    EXPECT_TRUE(is_same || after[i].extent.member == before[kDamaged].extent.member) << i;
    healed += is_same ? 0 : 1;
    EXPECT_TRUE(i != kDamaged || is_any || !is_same);
  }
  EXPECT_GE(healed, 1u);
  // What comes together is committed together; what comes while that commit ends, by one more.
  EXPECT_LE(file->info().sequence, sequence + 2);
  const struct stat is = attributes(world);
  EXPECT_EQ(is.st_mtim.tv_sec, was.st_mtim.tv_sec);
  EXPECT_EQ(is.st_mtim.tv_nsec, was.st_mtim.tv_nsec);
  EXPECT_EQ(is.st_ctim.tv_nsec, was.st_ctim.tv_nsec);
  EXPECT_FALSE(file->is_dirty());
}

// Also what is damaged one after the other, when the copy is of a commit before those that healed.
TEST_P(TierHealingTest, OneChunkAfterTheOther) {
  if (stays_unreadable()) GTEST_SKIP();
  HealingWorld world(3);
  begin(world);
  for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
    expect_right(world);
    world.settle();
    world.reopen();
    world.damage("a", chunk, GetParam().damage);
  }
  expect_right(world);
  world.settle();
  EXPECT_GE(world.status().chunks_healed, 1u);
  EXPECT_EQ(world.status().chunks_without_copy, 0u);
}

TEST_P(TierHealingTest, WithoutACopyItFailsAsEver) {
  HealingWorld world(4);
  begin(world);
  world.objects().objects().clear();
  expect_failure(world);
  EXPECT_GE(world.status().chunks_without_copy, 1u);
}

TEST_P(TierHealingTest, WithoutASourceItFailsAsEver) {
  HealingWorld world(5);
  begin(world);
  world.disconnect();
  expect_failure(world);
  EXPECT_EQ(world.status().chunks_without_copy, 0u);
  world.connect();
  if (GetParam().damage != Damage::kReadErrorOnce) expect_right(world);
}

// The damaged chunk is another one in the copy: that has what the file was.
TEST_P(TierHealingTest, ACopyOfAnOlderCommitHelpsWithWhatIsStillTheSame) {
  HealingWorld world(6);
  world.save("a", content_, GetParam().compressed);
  world.copy();
  ASSERT_TRUE(world.tier().stop());
  // One chunk is written over, and this commit is not copied.
  Bytes now = content_;
  {
    std::shared_ptr<File> file = world.array().open("a");
    if (GetParam().compressed) file->set_compression(Compression{Compression::Mode::kZstd, 1});
    const Bytes other = make(2);
    const size_t begin = kDamaged * kTestChunk;
    std::copy_n(other.begin() + static_cast<ptrdiff_t>(begin), kTestChunk, now.begin() + static_cast<ptrdiff_t>(begin));
    ASSERT_TRUE(world.array().write(*file, begin, std::span(now).subspan(begin, kTestChunk)).is_ok());
    ASSERT_TRUE(world.array().commit(*file).is_ok());
  }
  world.reopen();
  const auto chunk_is = [&](uint64_t chunk) {
    std::shared_ptr<File> file = world.array().open("a");
    const Result<Bytes> read = world.array().read(*file, chunk * kTestChunk, kTestChunk);
    if (!read.is_ok()) return std::string("failed");
    const auto begin = now.begin() + static_cast<ptrdiff_t>(chunk * kTestChunk);
    return std::string(std::equal(read->begin(), read->end(), begin) ? "right" : "wrong");
  };
  const bool is_one = GetParam().damage == Damage::kBit || GetParam().damage == Damage::kReadErrorOnce;
  world.damage("a", kDamaged, GetParam().damage);
  EXPECT_EQ(chunk_is(kDamaged), "failed") << "the copy has what it was before";
  EXPECT_EQ(world.status().chunks_from_copy, 0u);
  if (is_one) {
    world.damage("a", kDamaged + 1, GetParam().damage);
    EXPECT_EQ(chunk_is(kDamaged + 1), "right");
    EXPECT_EQ(world.status().chunks_from_copy, 1u);
  }
}

TEST_P(TierHealingTest, ADamagedCopyIsNotBelieved) {
  HealingWorld world(7);
  begin(world);
  SimObjectStore::Object& object = world.objects().objects().at("a");
  for (size_t chunk = 0; chunk < kChunks; ++chunk) object.content[chunk * kTestChunk + 5] ^= std::byte{1};
  expect_failure(world);
  EXPECT_GE(world.status().chunks_without_copy, 1u);
}

// Even when its manifest says so: of a chunk that is stored as it is the record knows better.
TEST_P(TierHealingTest, ACopyThatFitsItsManifestAndNotTheRecordIsNotBelieved) {
  HealingWorld world(8);
  begin(world);
  TierManifest manifest = *world.tier().manifest("a");
  SimObjectStore::Object& object = world.objects().objects().at("a");
  for (size_t chunk = 0; chunk < kChunks; ++chunk) {
    object.content[chunk * kTestChunk + 5] ^= std::byte{1};
    const size_t begin = chunk * kTestChunk;
    manifest.checksums[chunk] = hash_bytes(
        std::span(object.content).subspan(begin, std::min<size_t>(kTestChunk, object.content.size() - begin)));
    if (GetParam().compressed) ++manifest.stored_checksums[chunk];
  }
  world.objects().objects().at(manifest_key("a")).content = encode_manifest(manifest);
  expect_failure(world);
}

TEST_P(TierHealingTest, ADamagedManifestIsNotBelieved) {
  HealingWorld world(9);
  begin(world);
  world.objects().objects().at(manifest_key("a")).content[50] ^= std::byte{1};
  expect_failure(world);
}

TEST_P(TierHealingTest, ContentWithoutItsManifestIsNoCopy) {
  HealingWorld world(10);
  begin(world);
  world.objects().objects().at("a").tag = "another";
  expect_failure(world);
}

// And it is asked again later.
TEST_P(TierHealingTest, AStoreThatIsAwayHelpsWhenItIsBack) {
  HealingWorld world(11);
  begin(world);
  world.objects().set_away(true);
  if (GetParam().damage == Damage::kReadErrorOnce) {
    EXPECT_FALSE(world.read("a").is_ok());
  } else {
    expect_failure(world);
  }
  world.objects().set_away(false);
  world.pass(12'000);
  if (GetParam().damage == Damage::kReadErrorOnce) world.damage("a", kDamaged, GetParam().damage);
  expect_right(world);
}

TEST_P(TierHealingTest, CallsThatFailNowAndThen) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    HealingWorld world(100 + seed);
    begin(world);
    SimObjectStore::Options options;
    options.failed_percent = 30;
    world.objects().set_options(options);
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Result<Bytes> read = world.read("a");
      if (read.is_ok()) {
        EXPECT_TRUE(*read == content_) << seed;
      }
      world.pass(12'000);
    }
    world.objects().set_options({});
    expect_right(world);
  }
}

TEST_P(TierHealingTest, WhatIsOpenReadOnlyIsReadAndNotWritten) {
  HealingWorld world(12);
  begin(world, true);
  expect_right(world);
  world.settle();
  expect_right(world);
  EXPECT_GE(world.status().chunks_from_copy, 1u);
  EXPECT_EQ(world.status().chunks_healed, 0u);
}

TEST_P(TierHealingTest, AFileThatIsBeingWrittenIsNotCommittedForIt) {
  if (stays_unreadable()) GTEST_SKIP();
  HealingWorld world(13);
  begin(world);
  std::shared_ptr<File> file = world.array().open("a");
  const uint64_t sequence = file->info().sequence;
  Bytes changed = content_;
  const Bytes piece = make_bytes(1000, 99);
  std::copy(piece.begin(), piece.end(), changed.begin() + 300);
  ASSERT_TRUE(world.array().write(*file, 300, piece).is_ok());
  const Result<Bytes> read = world.array().read_all(*file);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == changed);
  world.settle();
  EXPECT_EQ(file->info().sequence, sequence);
  EXPECT_TRUE(file->is_dirty());
  ASSERT_TRUE(world.array().commit(*file).is_ok());
  EXPECT_EQ(file->info().sequence, sequence + 1);
}

// The part of it that is not overwritten has to be there.
TEST_P(TierHealingTest, ADamagedChunkCanBePartlyOverwritten) {
  if (stays_unreadable()) GTEST_SKIP();
  HealingWorld world(14);
  begin(world);
  std::shared_ptr<File> file = world.array().open("a");
  Bytes changed = content_;
  const Bytes piece = make_bytes(1000, 99);
  std::copy(piece.begin(), piece.end(), changed.begin() + kDamaged * kTestChunk + 500);
  const Status written = world.array().write(*file, kDamaged * kTestChunk + 500, piece);
  ASSERT_TRUE(written.is_ok()) << written.message();
  ASSERT_TRUE(world.array().commit(*file).is_ok());
  file = nullptr;
  world.settle();
  world.reopen();
  const Result<Bytes> read = world.read("a");
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_TRUE(*read == changed);
}

// Of a chunk that was cut off only the rest is left to compare: the record's checksum is of more.
TEST_P(TierHealingTest, AChunkThatWasCutOff) {
  HealingWorld world(15);
  world.save("a", content_, GetParam().compressed);
  {
    std::shared_ptr<File> file = world.array().open("a");
    const size_t end = kDamaged * kTestChunk + 1000;
    ASSERT_TRUE(world.array().control(*file, ControlRequest::Kind::kTruncate, end).is_ok());
    ASSERT_TRUE(world.array().control(*file, ControlRequest::Kind::kTruncate, kLength).is_ok());
    ASSERT_TRUE(world.array().commit(*file).is_ok());
    Bytes cut = content_;
    std::fill(cut.begin() + static_cast<ptrdiff_t>(end), cut.end(), std::byte{0});
    world.copy();
    file = nullptr;
    world.reopen();
    world.damage("a", kDamaged, GetParam().damage);
    for (int again = 0; again < 2; ++again) {
      const Result<Bytes> read = world.read("a");
      ASSERT_TRUE(read.is_ok()) << read.status().message();
      EXPECT_TRUE(*read == cut);
      world.settle();
    }
    EXPECT_GE(world.status().chunks_from_copy, 1u);
  }
}

TEST_P(TierHealingTest, AFullDriveKeepsNobodyFromReading) {
  HealingWorld world(16);
  begin(world);
  SimFault fault;
  fault.call = SimFault::Call::kAllocate;
  fault.error = ENOSPC;
  fault.count = SimFault::kForever;
  world.world().sim().inject(fault);
  expect_right(world);
  world.settle();
  expect_right(world);
  EXPECT_EQ(world.status().chunks_healed, 0u);
  EXPECT_TRUE(world.array().open("a")->error().is_ok());
}

TEST_P(TierHealingTest, ADriveThatTakesNothingKeepsNobodyFromReading) {
  for (const SimFault::Call call : {SimFault::Call::kWrite, SimFault::Call::kSyncFile}) {
    HealingWorld world(17);
    begin(world);
    SimFault fault;
    fault.call = call;
    fault.role = SimRole::kObjects;
    fault.count = SimFault::kForever;
    world.world().sim().inject(fault);
    std::shared_ptr<File> file = world.array().open("a");
    expect_right(world);
    world.settle();
    expect_right(world);
    EXPECT_EQ(world.status().chunks_healed, 0u);
    EXPECT_TRUE(file->error().is_ok()) << file->error().message();
    EXPECT_FALSE(world.status().read_only);
    // Nor, when it takes what comes again, from writing: of theirs nothing was lost.
    world.world().sim().clear_faults();
    const size_t begin = kDamaged * kTestChunk, end = std::min<size_t>(begin + kTestChunk, kLength);
    ASSERT_TRUE(world.array().write(*file, begin, Bytes(content_.begin() + begin, content_.begin() + end)).is_ok());
    const Status committed = world.array().commit(*file);
    EXPECT_TRUE(committed.is_ok()) << committed.message();
    expect_right(world);
  }
}

TEST_P(TierHealingTest, RemovedMeanwhile) {
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    HealingWorld world(200 + seed);
    begin(world);
    std::shared_ptr<File> file = world.array().open("a");
    SimArray::Read read(kDamaged * kTestChunk, 1000);
    file->read(read.request);
    for (uint64_t steps = seed * 4; steps > 0; --steps) world.world().step();
    ASSERT_TRUE(world.store().unlink(world.store().root(), "a").is_ok());
    static_cast<void>(world.array().wait(read));
    file = nullptr;
    world.settle();
    world.reopen();
    EXPECT_FALSE(world.array().try_open("a").is_ok());
  }
}

// What verify and scrub are told.
TEST_P(TierHealingTest, WhatVerifyingTells) {
  using Remedy = ChunkVerifier::Remedy;
  // What a drive does not give now it may give again.
  const bool is_unread = stays_unreadable() || GetParam().damage == Damage::kReadErrorOnce;
  const Remedy without_copy = is_unread ? Remedy::kUnknown : Remedy::kLost;
  struct Told {
    Status status;
    Remedy remedy = Remedy::kUnknown;
  };
  const auto verify = [](HealingWorld& world) {
    std::shared_ptr<File> file = world.array().open("a");
    std::optional<Told> told;
    file->verify_chunk(ChunkIndex(kDamaged), [&told](const Status& status, Remedy remedy) { told = {status, remedy}; });
    EXPECT_TRUE(world.world().run_until([&told] { return told.has_value(); }));
    return told.value_or(Told());
  };
  {
    HealingWorld world(18);
    begin(world);
    const Told told = verify(world);
    EXPECT_FALSE(told.status.is_ok());
    EXPECT_EQ(told.remedy, Remedy::kHealed);
    if (!stays_unreadable()) {
      EXPECT_TRUE(verify(world).status.is_ok());
    } else {
      EXPECT_EQ(verify(world).remedy, Remedy::kHealable);
    }
  }
  {
    HealingWorld world(19);
    begin(world, true);
    EXPECT_EQ(verify(world).remedy, Remedy::kHealable);
  }
  {
    HealingWorld world(20);
    begin(world);
    world.objects().objects().clear();
    EXPECT_EQ(verify(world).remedy, without_copy);
  }
  {
    HealingWorld world(21);
    begin(world);
    world.objects().set_away(true);
    EXPECT_EQ(verify(world).remedy, Remedy::kUnknown);
  }
  {
    HealingWorld world(22);
    begin(world);
    world.disconnect();
    EXPECT_EQ(verify(world).remedy, without_copy);
  }
}

// What fsck says, which asks no store: by the notes.
TEST(TierNotedCopyTest, WhatFsckSaysOfDamage) {
  HealingWorld world(30);
  const Bytes content = make_bytes(kLength, 1);
  for (const char* const name : {"copied", "changed", "moved"}) world.save(name, content);
  world.copy();
  world.tier().set_deaf(true);
  world.save("new", content);
  ASSERT_TRUE(world.tier().stop());
  {
    std::shared_ptr<File> file = world.array().open("changed");
    ASSERT_TRUE(world.array().write(*file, 5, make_bytes(10, 2)).is_ok());
    ASSERT_TRUE(world.array().commit(*file).is_ok());
  }
  const Handle root = world.store().root();
  ASSERT_TRUE(world.store().rename(root, "moved", root, "there", 0).is_ok());
  for (const char* const name : {"copied", "changed", "there", "new"})
    world.damage(name, kDamaged, Damage::kMissingObject);
  world.tier().leave_store();
  ASSERT_TRUE(world.array().close().is_ok());

  const auto said = [&world](const CheckOptions::IsCopied& is_copied) {
    CheckOptions options;
    options.copies = [&is_copied](Storage&, const Array&) { return is_copied; };
    const Result<CheckReport> report = check_array(world.world(), world.array().paths(), options);
    EXPECT_TRUE(report.is_ok());
    std::map<std::string, std::string> by_path;
    for (const CheckError& error : report->errors) {
      EXPECT_EQ(error.kind, "missing-object") << error.detail;
      by_path[error.path] = error.healing;
    }
    return by_path;
  };
  const auto noted_in = [](const std::string& store) {
    return [store](Storage& storage, Handle sidecar, const std::string& path, const FileImage& image) {
      return is_noted_as_copied(storage, sidecar, path, {image.file_id, image.sequence, image.size}, store);
    };
  };
  using Said = std::map<std::string, std::string>;
  EXPECT_EQ(said(nullptr), (Said{{"/copied", "lost"}, {"/changed", "lost"}, {"/there", "lost"}, {"/new", "lost"}}));
  EXPECT_EQ(said(noted_in("")),
            (Said{{"/copied", "healable"}, {"/changed", "lost"}, {"/there", "healable"}, {"/new", "lost"}}));
  EXPECT_EQ(said(noted_in("sim://store")),
            (Said{{"/copied", "healable"}, {"/changed", "lost"}, {"/there", "lost"}, {"/new", "lost"}}))
      << "where it is matters";
  EXPECT_EQ(said(noted_in("sim://other")),
            (Said{{"/copied", "lost"}, {"/changed", "lost"}, {"/there", "lost"}, {"/new", "lost"}}));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Damage damage : kDamages)
    for (const bool compressed : {false, true}) cases.push_back({damage, compressed});
  return cases;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const char* const names[] = {"Bit", "ShortObject", "MissingObject", "ReadErrorOnce", "ReadError"};
  return std::string(names[static_cast<size_t>(info.param.damage)]) + (info.param.compressed ? "Encoded" : "Raw");
}

INSTANTIATE_TEST_SUITE_P(All, TierHealingTest, ::testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace fpfs::test
