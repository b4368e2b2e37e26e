// Mount records: bytes; the power cut at every step of raising them, in the simulated world; copies of real directories
// put back.
#include "engine/index/mount_record.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/io/sim/sim_environment.h"
#include "tests/engine/array/array_testing.h"

namespace fpfs {
namespace {

// --- bytes -----------------------------------------------------------------------------------------------------------

MountRecord sample() {
  MountRecord record;
  for (size_t i = 0; i < 16; ++i) {
    record.array_id[i] = static_cast<std::byte>(0xa0 + i);
    record.member_id[i] = static_cast<std::byte>(0xe0 + i);
  }
  record.settled = false;
  record.stamp = {7, 0x1122334455667788, 4, 1'767'225'600};
  record.before = {6, 0x99aabbccddeeff00, 3, 1'767'139'200};
  return record;
}

// The bytes of version 1 for ever (docs/format.md shows them).
TEST(MountRecordTest, GoldenBytes) {
  const uint8_t golden[] = {
      0x46, 0x50, 0x46, 0x53, 0x4d, 0x4e, 0x54, 0x53, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,  //
      0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,  //
      0xe0, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xeb, 0xec, 0xed, 0xee, 0xef,  //
      0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  //
      0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb9, 0x55, 0x69, 0x00, 0x00, 0x00, 0x00,  //
      0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99,  //
      0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x67, 0x54, 0x69, 0x00, 0x00, 0x00, 0x00,  //
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
  };
  const auto bytes = encode_mount_record(sample());
  ASSERT_EQ(sizeof golden, kMountRecordSize - 8);
  EXPECT_EQ(std::memcmp(bytes.data(), golden, sizeof golden), 0);
  EXPECT_EQ(get_u64(&bytes[120]), 0xed93fecb8ec4c9f9u);
}

TEST(MountRecordTest, ComesBackAsItWas) {
  for (const bool settled : {false, true}) {
    MountRecord record = sample();
    record.settled = settled;
    const auto bytes = encode_mount_record(record);
    const Result<MountRecord> decoded = decode_mount_record(bytes);
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    EXPECT_EQ(encode_mount_record(*decoded), bytes);
    EXPECT_EQ(decoded->settled, settled);
    EXPECT_EQ(decoded->last_settled().number, settled ? 7u : 6u);
    EXPECT_EQ(decoded->stamp.seconds, 1'767'225'600);
  }
}

TEST(MountRecordTest, WhatIsOutOfPlaceIsRefused) {
  const auto whole = encode_mount_record(sample());
  for (size_t offset = 0; offset < whole.size(); ++offset) {
    auto bytes = whole;
    bytes[offset] ^= std::byte{1};
    EXPECT_FALSE(decode_mount_record(bytes).is_ok()) << offset;
  }
  EXPECT_FALSE(decode_mount_record(std::span(whole).first(127)).is_ok());
  const auto sealed = [&](size_t offset, uint8_t value) {
    auto bytes = whole;
    bytes[offset] = static_cast<std::byte>(value);
    put_u64(&bytes[120], hash_bytes(std::span(bytes).first(120)));
    return decode_mount_record(bytes).status();
  };
  EXPECT_TRUE(sealed(48, 9).is_ok());
  EXPECT_EQ(sealed(8, 2).code(), StatusCode::kUnsupported);
  EXPECT_EQ(sealed(12, 3).code(), StatusCode::kCorruption) << "a phase that is none";
  EXPECT_EQ(sealed(12, 2).code(), StatusCode::kCorruption) << "settled, with something before it";
  EXPECT_EQ(sealed(48, 6).code(), StatusCode::kCorruption) << "not above the one before";
  EXPECT_EQ(sealed(112, 1).code(), StatusCode::kCorruption) << "reserved";
}

// --- power cuts ------------------------------------------------------------------------------------------------------

const std::vector<std::string> kMembers = {"/m0/a", "/m1/b", "/m2/c"};
const std::vector<std::string> kAll = {"/m0/a", "/m1/b", "/m2/c", "/m0/names"};

class World {
 public:
  explicit World(uint64_t seed) : environment(seed) {
    FormatOptions options;
    options.metadata_directory = "/m0/names";
    EXPECT_TRUE(Array::format(environment, kMembers, options).is_ok());
  }
  Result<std::unique_ptr<Array>> open() { return Array::open(environment, kMembers, {}); }
  std::string why_not() { return open().status().message(); }
  Status mount() {
    FPFS_ASSIGN_OR_RETURN(array, open());
    FPFS_RETURN_IF_ERROR(array->begin_changes());
    changed = true;
    return array->mark_dirty();
  }
  Status unmount() {
    const Status status = array->mark_clean();
    array = nullptr;
    return status;
  }
  void crash() {
    if (!environment.is_off()) environment.sim().cut_now();
    array = nullptr;
    environment.crash();
    environment.cut_at(0);
  }
  // What tells of a directory's age.
  std::vector<std::byte> record_of(const std::string& path) { return environment.sim().content_of(path + "/mount"); }
  void put_back(const std::string& path, const std::vector<std::byte>& bytes) {
    Storage& storage = environment.storage();
    const ScopedHandle directory(storage, storage.open_directory(path).value());
    EXPECT_TRUE(replace_file(storage, directory.get(), kMountName, kMountNewName, bytes).is_ok());
  }

  SimEnvironment environment;
  std::unique_ptr<Array> array;
  bool changed = false;  // since mount() began
};

// Runs `change` once for each moment of it, with the power cut there.
template <typename Prepare, typename Change, typename Check>
void cut_everywhere(Prepare prepare, Change change, Check check) {
  uint64_t length = 1;
  for (uint64_t moment = 0; moment <= length; ++moment) {
    SCOPED_TRACE("cut at " + std::to_string(moment) + " of " + std::to_string(length));
    World world(moment + 1);
    prepare(world);
    const uint64_t begin = world.environment.boundaries();
    if (moment > 0) world.environment.cut_at(begin + moment);
    world.changed = false;
    const Status status = change(world);
    if (moment == 0) {
      ASSERT_TRUE(status.is_ok()) << status.message();
      length = world.environment.boundaries() - begin;
    }
    world.crash();
    check(world, status.is_ok());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(length, 20u);
}

void must_go_on(World& world) {
  ASSERT_TRUE(world.open().is_ok()) << world.why_not();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(world.mount().is_ok());
    ASSERT_TRUE(world.unmount().is_ok());
  }
}

TEST(MountRecordsCutTest, ACutInTheMiddleOfARaiseIsAcceptedAndRepaired) {
  const auto nothing = [](World&) {};
  const auto mounted = [](World& world) { ASSERT_TRUE(world.mount().is_ok()); };
  cut_everywhere(
      nothing, [](World& world) { return world.mount(); }, [](World& world, bool) { must_go_on(world); });
  cut_everywhere(
      mounted, [](World& world) { return world.unmount(); }, [](World& world, bool) { must_go_on(world); });
}

// One cut in the first mount, another in the next one, at every pair of a few moments.
TEST(MountRecordsCutTest, CutsInARowAreAccepted) {
  uint64_t length = 0;
  {
    World world(1);
    const uint64_t begin = world.environment.boundaries();
    ASSERT_TRUE(world.mount().is_ok());
    length = world.environment.boundaries() - begin;
  }
  for (uint64_t first = 1; first <= length; first += 3)
    for (uint64_t second = 1; second <= length; second += 3) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second) + " of " + std::to_string(length));
      World world(first * 1000 + second);
      for (const uint64_t moment : {first, second}) {
        world.environment.cut_at(world.environment.boundaries() + moment);
        (void)world.mount();
        world.crash();
        ASSERT_TRUE(world.open().is_ok()) << world.why_not();
      }
      must_go_on(world);
      if (testing::Test::HasFailure()) return;
    }
}

// Whatever the moment: a directory as it was before is refused as soon as anything may have been changed without it.
TEST(MountRecordsCutTest, ADirectoryThatMissedChangesIsRefused) {
  for (const std::string& path : kAll) {
    SCOPED_TRACE(path);
    unsigned accepted = 0, refused = 0;
    std::vector<std::byte> former;
    cut_everywhere([&](World& world) { former = world.record_of(path); }, [](World& world) { return world.mount(); },
                   [&](World& world, bool) {
                     world.put_back(path, former);
                     const Status status = world.open().status();
                     EXPECT_FALSE(world.changed && status.is_ok());
                     ++(status.is_ok() ? accepted : refused);
                     if (status.is_ok()) return must_go_on(world);
                     EXPECT_EQ(status.code(), StatusCode::kCorruption);
                     EXPECT_NE(status.message().find("older than"), std::string::npos) << status.message();
                   });
    EXPECT_GT(accepted, 0u);
    EXPECT_GT(refused, 0u);
  }
}

// Copied while the array was mounted, and put back after it was closed.
TEST(MountRecordsCutTest, ADirectoryFromWithinAMountIsRefusedAfterItsEnd) {
  for (const std::string& path : kAll) {
    SCOPED_TRACE(path);
    std::vector<std::byte> former;
    cut_everywhere(
        [&](World& world) {
          ASSERT_TRUE(world.mount().is_ok());
          former = world.record_of(path);
        },
        [](World& world) { return world.unmount(); },
        [&](World& world, bool closed) {
          const bool was_dirty = world.open().value()->was_dirty();
          world.put_back(path, former);
          const Status status = world.open().status();
          EXPECT_TRUE(!status.is_ok() || (!closed && was_dirty)) << "an array that is clean was closed";
          if (status.is_ok()) return;
          EXPECT_NE(status.message().find("from within mount 1"), std::string::npos) << status.message();
        });
  }
}

TEST(MountRecordsCutTest, AFailingDriveEndsARaiseWithItsName) {
  for (const SimFault::Call call :
       {SimFault::Call::kSyncFile, SimFault::Call::kSyncDirectory, SimFault::Call::kWrite}) {
    World world(1);
    SimFault fault;
    fault.call = call;
    fault.filesystem = 2;  // "/m1"
    world.environment.sim().inject(fault);
    const Status status = world.mount();
    EXPECT_EQ(status.code(), StatusCode::kIoError);
    EXPECT_NE(status.message().find("/m1/b"), std::string::npos) << status.message();
    EXPECT_FALSE(world.changed);
  }
}

// --- real directories ------------------------------------------------------------------------------------------------

class MountRecordsTest : public ArrayTestBase {
 protected:
  void use(const Paths& directories) {
    const std::unique_ptr<Array> array = must_open(directories);
    ASSERT_NE(array, nullptr);
    ASSERT_TRUE(array->mark_dirty().is_ok());
    ASSERT_TRUE(array->mark_clean().is_ok());
  }
  void copy(const std::string& from, const std::string& to) {
    std::filesystem::remove_all(path(to));
    std::filesystem::copy(path(from), path(to),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  }
  void expect_refused(const Paths& directories, const std::vector<std::string>& words) {
    const std::string before = snapshot();
    for (const bool read_only : {false, true}) {
      ArrayOptions options;
      options.read_only = read_only;
      expect_refusal(open(directories, options).status(), StatusCode::kCorruption, words);
    }
    EXPECT_EQ(snapshot(), before) << "a refused open changes nothing";
  }
  static ArrayOptions degraded() {
    ArrayOptions options;
    options.read_only = options.degraded = true;
    return options;
  }
  // As a program wrote it that did not know of mount records.
  void make_old(const std::string& name) {
    std::filesystem::remove(path(name + "/mount"));
    std::filesystem::remove(path(name + "/superblocks"));
    std::string bytes = read_file(path(name + "/superblock"));
    bytes[24] = 0;
    auto* raw = reinterpret_cast<std::byte*>(bytes.data());
    put_u64(raw + 4088, 0);
    put_u64(raw + 4088, hash_bytes({raw, kSuperblockSize}));
    write_file(path(name + "/superblock"), bytes);
  }
};

TEST_F(MountRecordsTest, AnOlderMemberIsRefusedWithByHowMuch) {
  must_format(paths({"a", "b", "c"}));
  use(paths({"a", "b", "c"}));
  for (const char* name : {"a", "b", "c"}) copy(name, std::string("old-") + name);
  use(paths({"a", "b", "c"}));
  expect_refused(paths({"a", "old-b", "c"}),
                 {path("old-b"), "member 1", "1 mount older", "in mount 1 (", "in mount 2 ("});
  use(paths({"a", "b", "c"}));
  expect_refused(paths({"a", "b", "old-c"}), {path("old-c"), "member 2", "2 mounts older", "nothing was changed"});
  expect_refused(paths({"old-a", "b", "c"}), {path("old-a"), "member 0", "2 mounts older than " + path("b")});
  expect_refused(paths({"a", "old-b", "old-c"}), {path("old-b"), path("old-c")});
  use(paths({"c", "b", "a"}));
  // All of one age: that is what a whole backup looks like.
  use(paths({"old-a", "old-b", "old-c"}));
}

TEST_F(MountRecordsTest, ANewerMemberIsRefusedToo) {
  must_format(paths({"a", "b"}));
  copy("a", "old-a");
  use(paths({"a", "b"}));
  expect_refused(paths({"old-a", "b"}), {path("old-a"), "1 mount older than " + path("b")});
}

TEST_F(MountRecordsTest, CopiesThatWereUsedApartDoNotMix) {
  must_format(paths({"a", "b"}));
  copy("a", "a2");
  copy("b", "b2");
  use(paths({"a", "b"}));
  use(paths({"a2", "b2"}));
  expect_refused(paths({"a", "b2"}), {path("b2"), "used apart"});
}

TEST_F(MountRecordsTest, TheMetadataDirectoryCounts) {
  FormatOptions options;
  options.metadata_directory = path("names");
  must_format(paths({"a", "b"}), options);
  copy("names", "old");
  use(paths({"a", "b"}));
  copy("old", "names");
  expect_refused(paths({"a", "b"}), {path("names"), "the metadata directory", "older"});
}

TEST_F(MountRecordsTest, ReadingAloneDoesNotRaise) {
  must_format(paths({"a", "b"}));
  const std::string before = read_file(path("b/mount"));
  ArrayOptions options;
  options.read_only = true;
  EXPECT_NE(must_open(paths({"a", "b"}), options), nullptr);
  EXPECT_EQ(read_file(path("b/mount")), before);
  EXPECT_NE(must_open(paths({"a", "b"})), nullptr) << "nothing was changed";
  EXPECT_EQ(read_file(path("b/mount")), before);
}

TEST_F(MountRecordsTest, DegradedReadsAnOldMemberToo) {
  must_format(paths({"a", "b"}));
  copy("b", "old-b");
  use(paths({"a", "b"}));
  const std::unique_ptr<Array> array = must_open(paths({"a", "old-b"}), degraded());
  ASSERT_NE(array, nullptr);
  EXPECT_TRUE(array->has_outdated());
  EXPECT_TRUE(array->member(MemberIndex(1)).outdated);
  EXPECT_FALSE(array->member(MemberIndex(0)).outdated);
  EXPECT_FALSE(must_open(paths({"a", "b"}), degraded())->has_outdated());
}

TEST_F(MountRecordsTest, AMissingOrDamagedRecordIsRefused) {
  must_format(paths({"a", "b"}));
  use(paths({"a", "b"}));
  const std::string whole = read_file(path("b/mount"));
  for (const std::string& content : {std::string(), whole.substr(1), whole + "x", read_file(path("a/mount"))}) {
    write_file(path("b/mount"), content);
    expect_refused(paths({"a", "b"}), {path("b"), "mount"});
  }
  std::filesystem::remove(path("b/mount"));
  expect_refused(paths({"a", "b"}), {path("b"), "mount record is missing"});
  ASSERT_EQ(::mkfifo(path("b/mount").c_str(), 0600), 0);
  expect_refusal(open(paths({"a", "b"})).status(), StatusCode::kCorruption, {path("b"), "not a regular file"});
  EXPECT_TRUE(must_open(paths({"a", "b"}), degraded())->member(MemberIndex(1)).outdated);
}

TEST_F(MountRecordsTest, AnArrayOfBeforeIsBroughtUpToDate) {
  must_format(paths({"a", "b"}));
  const std::string superblock = read_file(path("b/superblock"));
  for (const char* name : {"a", "b"}) make_old(name);
  copy("b", "old-b");
  use(paths({"a", "b"}));
  EXPECT_EQ(read_file(path("b/superblock")), superblock) << "programs that do not know of records may only read it now";
  EXPECT_TRUE(exists(path("a/superblocks")));
  use(paths({"a", "b"}));
  expect_refused(paths({"a", "old-b"}), {path("old-b"), "from before mounts were counted"});
}

TEST_F(MountRecordsTest, ALookerOnSeesARaiseOfAnotherAsItIs) {
  must_format(paths({"a", "b"}));
  const std::unique_ptr<Array> mounted = must_open(paths({"a", "b"}));
  ASSERT_TRUE(mounted->begin_changes().is_ok());
  ArrayOptions options;
  options.read_only = true;
  options.lock = false;
  std::atomic<bool> done{false};
  std::thread raising([&] {
    for (int i = 0; i < 300 && !done; ++i) EXPECT_TRUE(mounted->mark_clean().is_ok());
    done = true;
  });
  while (!done) {
    const Status status = open(paths({"a", "b"}), options).status();
    EXPECT_TRUE(status.is_ok()) << status.message();
    if (!status.is_ok()) done = true;
  }
  raising.join();
}

}  // namespace
}  // namespace fpfs
