// format and open in the simulated world: the power is cut at every kind of moment; filesystems without O_DIRECT;
// drives of different sizes.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

#include "engine/array/array.h"
#include "engine/io/sim/sim_environment.h"

namespace fpfs {
namespace {

using Paths = std::vector<std::string>;
const Paths kMembers = {"/m0/a", "/m1/b"};
const std::string kNames = "/m2/names";
const std::string kObject = "/m1/b/objects/07/0000000000000107.00000000";
const std::string kSidecar = "/m2/names/tree/run/step.pt";

FormatOptions options_of(bool force) {
  FormatOptions options;
  options.metadata_directory = kNames;
  options.force = force;
  return options;
}

Result<std::unique_ptr<Array>> open(SimEnvironment& world) {
  return Array::open(world, kMembers, {});
}

// Makes a file with some content, and the directory it lies in, durable.
void make_file(SimEnvironment& world, const std::string& directory, const std::string& name) {
  Storage& storage = world.storage();
  const Handle parent = storage.open_directory(directory).value();
  const Handle file = storage.open_at(parent, name, O_RDWR | O_CREAT, 0600).value();
  const std::string content = "content of " + name;
  ASSERT_TRUE(storage.pwrite(file, std::as_bytes(std::span(content)), 0).is_ok());
  ASSERT_TRUE(storage.fsync(file).is_ok());
  ASSERT_TRUE(storage.fsync(parent).is_ok());
  storage.close(file);
  storage.close(parent);
}

// An array that holds something; returns its id.
Uuid make_former(SimEnvironment& world) {
  EXPECT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
  Storage& storage = world.storage();
  const Handle tree = storage.open_directory(kNames + "/tree").value();
  EXPECT_TRUE(storage.make_directory(tree, "run", 0700).is_ok());
  EXPECT_TRUE(storage.fsync(tree).is_ok());
  storage.close(tree);
  make_file(world, kNames + "/tree/run", "step.pt");
  make_file(world, "/m1/b/objects/07", "0000000000000107.00000000");
  const Result<std::unique_ptr<Array>> array = open(world);
  EXPECT_TRUE(array.is_ok()) << array.status().message();
  EXPECT_TRUE((*array)->mark_dirty().is_ok());
  return (*array)->id();
}

bool holds_content(SimEnvironment& world, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string expected = "content of " + name;
  const std::vector<std::byte> content = world.sim().content_of(path);
  return content.size() == expected.size() && std::memcmp(content.data(), expected.data(), expected.size()) == 0;
}

size_t files_in_use(SimEnvironment& world) {
  return world.sim().files_below(kNames + "/tree").size() + world.sim().files_below("/m0/a/objects").size() +
         world.sim().files_below("/m1/b/objects").size();
}

// Runs `change` with the power cut at a random moment of it, then lets `check` look.
template <typename Prepare, typename Change, typename Check>
void cut_power_during(Prepare prepare, Change change, Check check) {
  constexpr uint64_t kSeeds = 80;
  uint64_t length = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimEnvironment world(seed);
    auto prepared = prepare(world);
    const uint64_t begin = world.boundaries();
    // The first run tells how many moments there are. Most cuts go near the beginning and the end, where it is decided
    // which array there is.
    if (seed > 1) {
      const uint64_t edge = std::min<uint64_t>(length, 60);
      const uint64_t moments[] = {world.random().between(1, edge), world.random().between(length - edge + 1, length),
                                  world.random().between(1, length)};
      world.cut_at(begin + moments[seed % 3]);
    }
    const Status status = change(world);
    if (seed == 1) length = world.boundaries() - begin;
    const bool completed = status.is_ok();
    ASSERT_TRUE(seed > 1 || completed) << status.message();
    EXPECT_TRUE(world.sim().open_handles().empty() || world.is_off());
    if (!world.is_off()) world.sim().cut_now();
    world.crash();
    world.cut_at(0);
    check(world, prepared, completed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ArraySimulationTest, AForcedFormatLeavesTheOldTheNewOrNothingThatOpens) {
  unsigned old_count = 0, new_count = 0, none_count = 0;
  cut_power_during(
      make_former, [](SimEnvironment& world) { return Array::format(world, kMembers, options_of(true)); },
      [&](SimEnvironment& world, const Uuid& former, bool completed) {
        {
          const Result<std::unique_ptr<Array>> array = open(world);
          if (!array.is_ok()) {
            EXPECT_FALSE(completed) << "a format that returned is durable: " << array.status().message();
            ++none_count;
          } else if ((*array)->id() == former) {
            EXPECT_FALSE(completed);
            EXPECT_TRUE(holds_content(world, kObject) && holds_content(world, kSidecar)) << "the old array is whole";
            EXPECT_TRUE((*array)->was_dirty());
            ++old_count;
          } else {
            EXPECT_EQ(files_in_use(world), 0u) << "nothing of the old array is in the new one";
            EXPECT_FALSE((*array)->was_dirty());
            ++new_count;
          }
        }
        const Status again = Array::format(world, kMembers, options_of(true));
        ASSERT_TRUE(again.is_ok()) << again.message();
        const Result<std::unique_ptr<Array>> array = open(world);
        ASSERT_TRUE(array.is_ok()) << array.status().message();
        EXPECT_NE((*array)->id(), former);
        EXPECT_EQ(files_in_use(world), 0u);
        EXPECT_FALSE((*array)->was_dirty());
      });
  EXPECT_GT(old_count, 0u);
  EXPECT_GT(new_count, 0u);
  EXPECT_GT(none_count, 0u);
}

TEST(ArraySimulationTest, AFirstFormatMayBeRepeated) {
  unsigned blank_count = 0, begun_count = 0;
  cut_power_during([](SimEnvironment&) { return 0; },
                   [](SimEnvironment& world) { return Array::format(world, kMembers, options_of(false)); },
                   [&](SimEnvironment& world, int, bool completed) {
                     Paths all = kMembers;
                     all.push_back(kNames);
                     const Result<bool> blank = Array::is_blank(world, all);
                     ASSERT_TRUE(blank.is_ok()) << blank.status().message();
                     EXPECT_FALSE(completed && *blank);
                     ++(*blank ? blank_count : begun_count);
                     EXPECT_TRUE(!completed || open(world).is_ok());
                     // Force is needed only once a superblock is there.
                     const Status again = Array::format(world, kMembers, options_of(!*blank));
                     ASSERT_TRUE(again.is_ok()) << again.message();
                     EXPECT_TRUE(open(world).is_ok());
                   });
  EXPECT_GT(blank_count, 0u);
  EXPECT_GT(begun_count, 0u);
}

TEST(ArraySimulationTest, DirtyAndCleanAreDurableWhenTheyReturn) {
  for (const bool dirty : {true, false}) {
    cut_power_during(
        [&](SimEnvironment& world) {
          EXPECT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
          EXPECT_TRUE(dirty || open(world).value()->mark_dirty().is_ok());
          return 0;
        },
        [&](SimEnvironment& world) -> Status {
          FPFS_ASSIGN_OR_RETURN(const std::unique_ptr<Array> array, open(world));
          return dirty ? array->mark_dirty() : array->mark_clean();
        },
        [&](SimEnvironment& world, int, bool completed) {
          const Result<std::unique_ptr<Array>> array = open(world);
          ASSERT_TRUE(array.is_ok()) << array.status().message();
          EXPECT_TRUE(!completed || (*array)->was_dirty() == dirty);
        });
  }
}

// The directory with the names decides, also where it is none of the members.
TEST(ArraySimulationTest, MembersAreAddedToAnArrayWhoseNamesLieElsewhere) {
  unsigned old_count = 0, new_count = 0;
  const Paths grown = {"/m0/a", "/m1/b", "/m0/c"};
  const auto no_needs = [](MemberIndex) { return Status::ok(); };
  cut_power_during(
      [](SimEnvironment& world) {
        EXPECT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
        return 0;
      },
      [&](SimEnvironment& world) -> Status {
        FPFS_ASSIGN_OR_RETURN(const std::unique_ptr<Array> array, open(world));
        FPFS_RETURN_IF_ERROR(array->mark_dirty());
        const Array::Changed added = array->add_members({"/m0/c"}, no_needs);
        EXPECT_TRUE(!added.status.is_ok() || array->member_count() == 3);
        return added.status;
      },
      [&](SimEnvironment& world, int, bool completed) {
        const bool is_old = open(world).is_ok();
        ++(is_old ? old_count : new_count);
        EXPECT_FALSE(is_old && completed);
        if (is_old) {
          EXPECT_TRUE(open(world).value()->add_members({"/m0/c"}, no_needs).status.is_ok());
        }
        const Result<std::unique_ptr<Array>> array = Array::open(world, grown, {});
        ASSERT_TRUE(array.is_ok()) << array.status().message();
        EXPECT_EQ((*array)->member_count(), 3);
        ASSERT_TRUE((*array)->mark_clean().is_ok());
        EXPECT_EQ((*array)->superblock().membership, 1u);
      });
  EXPECT_GT(old_count, 0u);
  EXPECT_GT(new_count, 0u);
}

// Else a seed would be another run whenever the number of the process that runs it has another length.
TEST(ArraySimulationTest, WhatIsWrittenKnowsNothingOfTheProcess) {
  SimEnvironment world(1);
  ASSERT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
  const Result<std::unique_ptr<Array>> array = open(world);
  ASSERT_TRUE(array.is_ok()) << array.status().message();
  Storage& storage = world.storage();
  const Result<Handle> member = storage.open_directory(kMembers.front());
  ASSERT_TRUE(member.is_ok());
  const ScopedHandle directory(storage, *member);
  const Result<Handle> lock = storage.open_at(directory.get(), "lock", O_RDONLY);
  ASSERT_TRUE(lock.is_ok());
  const ScopedHandle file(storage, *lock);
  std::array<char, 16> holder{};
  ASSERT_TRUE(storage.pread(file.get(), std::as_writable_bytes(std::span(holder)), 0).is_ok());
  EXPECT_EQ(std::string(holder.data()), std::to_string(SimStorage::kProcessId) + "\n");
}

TEST(ArraySimulationTest, AMemberWithoutDirectIoIsRefusedUnlessAllowed) {
  SimEnvironment world(1);
  world.sim().set_direct_io(2, false);  // "/m1"
  ASSERT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
  const Status status = open(world).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("/m1/b"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("O_DIRECT"), std::string::npos);
  ArrayOptions options;
  options.buffered_members = true;
  const Result<std::unique_ptr<Array>> array = Array::open(world, kMembers, options);
  ASSERT_TRUE(array.is_ok()) << array.status().message();
  EXPECT_EQ((*array)->object_flags(MemberIndex(0)), O_DIRECT);
  EXPECT_EQ((*array)->object_flags(MemberIndex(1)), 0);
}

TEST(ArraySimulationTest, TheNamesNeedNoDirectIo) {
  SimEnvironment world(1);
  world.sim().set_direct_io(3, false);  // "/m2"
  ASSERT_TRUE(Array::format(world, kMembers, options_of(false)).is_ok());
  const Result<std::unique_ptr<Array>> array = open(world);
  EXPECT_TRUE(array.is_ok()) << array.status().message();
}

TEST(ArraySimulationTest, TheFullestMemberLimitsTheSpace) {
  SimEnvironment world(1);
  const Paths members = {"/m0/a", "/m0/b", "/m1/c"};
  world.sim().set_capacity(1, 100 * kMiB);
  world.sim().set_capacity(2, 80 * kMiB);
  ASSERT_TRUE(Array::format(world, members, {}).is_ok());
  const auto space_of = [&] {
    const Result<std::unique_ptr<Array>> array = Array::open(world, members, {});
    EXPECT_TRUE(array.is_ok()) << array.status().message();
    return (*array)->space().value();
  };
  struct statvfs space = space_of();
  EXPECT_EQ(space.f_frsize, 4096u);
  EXPECT_EQ(space.f_blocks * 4096, 180 * kMiB) << "a device with two members is counted once";
  // a and b share what /m0 has, so each can take half of it, and c no more than they.
  const double free = static_cast<double>(space.f_bavail * 4096);
  EXPECT_NEAR(free, 150 * kMiB, 0.2 * kMiB);

  world.sim().set_capacity(2, 10 * kMiB);
  space = space_of();
  EXPECT_EQ(space.f_blocks * 4096, 110 * kMiB);
  EXPECT_NEAR(static_cast<double>(space.f_bavail * 4096), 30 * kMiB, 0.2 * kMiB);
  EXPECT_EQ(space.f_bfree, space.f_bavail);
}

TEST(ArraySimulationTest, FormatReportsAFailingDrive) {
  for (const SimFault::Call call :
       {SimFault::Call::kSyncFile, SimFault::Call::kSyncDirectory, SimFault::Call::kWrite}) {
    SimEnvironment world(1);
    SimFault fault;
    fault.call = call;
    fault.filesystem = 2;
    world.sim().inject(fault);
    const Status status = Array::format(world, kMembers, options_of(false));
    EXPECT_EQ(status.code(), StatusCode::kIoError);
    EXPECT_NE(status.message().find("/m1/b"), std::string::npos) << status.message();
    EXPECT_TRUE(world.sim().open_handles().empty());
    EXPECT_FALSE(open(world).is_ok());
  }
}

}  // namespace
}  // namespace fpfs
