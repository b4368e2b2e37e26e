// What fsck -p and -y and recovery change, and what they leave alone.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "engine/check/check.h"
#include "engine/check/set_aside.h"
#include "engine/store/store.h"
#include "tests/engine/check/hand_made_array.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = HandMadeArray::kChunkSize;
constexpr uint64_t kBig = 0x100000011;

class RepairTest : public testing::Test {
 protected:
  RepairTest() {
    image_ = array_.add_file("/run/big.pt", {kBig, 2, 10 * kChunk + 1234, 1});
    array_.add_file("/small", {0x200000022, 0, 700, 2});
  }

  // What a crash may leave: objects of files that were never committed or are unlinked, of a generation before and
  // after; a commit cut short; space preallocated ahead and a chunk that was replaced.
  void leave_what_crashes_leave() {
    array_.leave_dirty();
    for (const MemberIndex m : range_to(MemberIndex(HandMadeArray::kMembers)))
      std::ofstream(array_.object(m, 0xabc, 0)) << std::string(10'000, 'x');
    std::ofstream(array_.object(MemberIndex(1), kBig, 1)) << std::string(5000, 'o');
    std::ofstream(array_.object(MemberIndex(1), kBig, 3)) << std::string(5000, 'n');
    std::ofstream(array_.sidecar("/small"), std::ios::app | std::ios::binary) << std::string(300, '\0');
    const std::string object = array_.object(image_.extents.get(ChunkIndex(9)).member, kBig, 2);
    const auto replaced = std::vector<std::byte>(kChunk, std::byte{0x5a});
    HandMadeArray::write_at(object, 20 * kChunk, replaced);
  }
  static std::string crash_findings(bool repaired) {
    std::string text =
        "orphan - -1 0; orphan - -1 1; orphan - -1 1; orphan - -1 1; orphan - -1 2; "
        "leftover-space /run/big.pt -1 1; torn-tail /small -1 -1";
    if (!repaired) return text;
    for (size_t at = 0; (at = text.find(';', at)) != std::string::npos; at += 10) text.insert(at, " repaired");
    return text + " repaired";
  }
  uint64_t sidecar_size(const std::string& path) const { return std::filesystem::file_size(array_.sidecar(path)); }

  HandMadeArray array_;
  FileImage image_;
};

TEST_F(RepairTest, CheckingAloneChangesNothing) {
  leave_what_crashes_leave();
  const CheckReport first = array_.check(Repair::kNone, true);
  EXPECT_EQ(summary(first), crash_findings(false));
  EXPECT_EQ(first.orphans, 5u);
  EXPECT_EQ(first.repaired, 0u);
  EXPECT_EQ(summary(array_.check(Repair::kNone, true)), crash_findings(false));
}

TEST_F(RepairTest, PreenRepairsWhatCrashesLeaveOnce) {
  const uint64_t size = sidecar_size("/small");
  leave_what_crashes_leave();
  const CheckReport first = array_.check(Repair::kPreen);
  EXPECT_EQ(summary(first), crash_findings(true));
  EXPECT_EQ(first.repaired, 7u);
  EXPECT_EQ(sidecar_size("/small"), size);
  EXPECT_FALSE(std::filesystem::exists(array_.object(MemberIndex(0), 0xabc, 0)));
  EXPECT_TRUE(array_.check(Repair::kPreen).clean());
  const CheckReport verified = array_.check(Repair::kNone, true);
  EXPECT_TRUE(verified.clean()) << summary(verified);
  EXPECT_EQ(verified.bytes_verified, 10u * kChunk + 1234 + 700);
}

TEST_F(RepairTest, RecoveryDoesTheSameAndCounts) {
  leave_what_crashes_leave();
  {
    const auto array = array_.open(false);
    const auto counts = recover_array(array_.environment, *array);
    ASSERT_TRUE(counts.is_ok()) << counts.status().message();
    EXPECT_EQ(counts->orphans_removed, 5u);
    EXPECT_EQ(counts->torn_tails, 1u);
    EXPECT_GE(counts->bytes_freed, 3u * 10'000 + 2 * 5000 + kChunk);
    const auto again = recover_array(array_.environment, *array);
    ASSERT_TRUE(again.is_ok());
    EXPECT_EQ(again->orphans_removed, 0u);
    EXPECT_EQ(again->torn_tails, 0u);
    EXPECT_EQ(again->bytes_freed, 0u);
  }
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(RepairTest, AChunkReplacedInTheMiddleIsGivenBack) {
  array_.leave_dirty();
  // A hole in the middle of /holes: chunks 3 to 8 were removed by a commit, their slots not yet punched.
  const HandMadeArray::Spec spec{0x4400, 0, 12 * kChunk, 4};
  SidecarRecord record;
  record.sequence = 1;
  record.size = spec.size;
  for (uint64_t chunk = 0; chunk < 12; ++chunk) {
    const Extent extent = array_.write_chunk(spec, chunk);
    if (chunk < 3 || chunk > 8) record.extents.emplace_back(chunk, extent);
  }
  array_.write_sidecar("/holes", spec.file, {record});
  EXPECT_EQ(summary(array_.check()),
            "leftover-space /holes -1 0; leftover-space /holes -1 1; leftover-space /holes -1 2");
  struct stat before, after;
  ASSERT_EQ(::stat(array_.object(MemberIndex(1), spec.file, 0).c_str(), &before), 0);
  array_.check(Repair::kPreen);
  ASSERT_EQ(::stat(array_.object(MemberIndex(1), spec.file, 0).c_str(), &after), 0);
  EXPECT_EQ((before.st_blocks - after.st_blocks) * 512, 2 * kChunk);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(RepairTest, AHoleBehindTheLastChunkIsNoSpaceButAllocatedBlocksAre) {
  array_.leave_dirty();
  const std::string object = array_.object(image_.extents.get(ChunkIndex(9)).member, kBig, 2);
  const uint64_t size = std::filesystem::file_size(object);
  std::filesystem::resize_file(object, size + 8 * kChunk);
  EXPECT_TRUE(array_.check().clean());
  const int fd = ::open(object.c_str(), O_RDWR);
  ASSERT_EQ(::fallocate(fd, 0, static_cast<off_t>(size), 8 * kChunk), 0);
  ::close(fd);
  EXPECT_EQ(array_.check(Repair::kPreen).errors.at(0).kind, "leftover-space");
  EXPECT_LE(std::filesystem::file_size(object), size);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(RepairTest, AFirstCommitCutShortBecomesAnEmptyFile) {
  array_.leave_dirty();
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), 400);
  EXPECT_EQ(array_.check(Repair::kPreen).orphans, 3u);
  EXPECT_EQ(sidecar_size("/run/big.pt"), 0u);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(RepairTest, TheTimesOfAFileSurviveCuttingItsTornTail) {
  leave_what_crashes_leave();
  const struct timespec times[2] = {{1000, 5}, {2000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, array_.sidecar("/small").c_str(), times, 0), 0);
  array_.check(Repair::kPreen);
  struct stat attributes;
  ASSERT_EQ(::stat(array_.sidecar("/small").c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mtim.tv_sec, 2000);
  EXPECT_EQ(attributes.st_mtim.tv_nsec, 7);
}

TEST_F(RepairTest, ObjectsOfAnUnreadableSidecarAreKept) {
  HandMadeArray::flip_bit(array_.sidecar("/run/big.pt"), 200);  // the header still tells whose it is
  std::ofstream(array_.object(MemberIndex(0), 0xabc, 0)) << "x";
  {
    const auto array = array_.open(false);
    const auto counts = recover_array(array_.environment, *array);
    ASSERT_TRUE(counts.is_ok());
    EXPECT_EQ(counts->orphans_removed, 1u);
  }
  HandMadeArray::flip_bit(array_.sidecar("/run/big.pt"), 200);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(RepairTest, WhenASidecarDoesNotTellWhoseItIsEverythingIsKept) {
  std::vector<std::byte> garbage(sidecar_size("/run/big.pt"));
  test::fill(garbage, 99, 0);
  HandMadeArray::write_at(array_.sidecar("/run/big.pt"), 0, garbage);
  std::ofstream(array_.object(MemberIndex(0), 0xabc, 0)) << "x";
  {
    const auto array = array_.open(false);
    const auto counts = recover_array(array_.environment, *array);
    ASSERT_TRUE(counts.is_ok());
    EXPECT_EQ(counts->orphans_removed, 0u);
  }
  EXPECT_EQ(summary(array_.check(Repair::kYes)), "foreign /run/big.pt -1 -1") << "nothing of it is an index";
  EXPECT_TRUE(std::filesystem::exists(array_.object(MemberIndex(0), 0xabc, 0)));
  for (const MemberIndex m : range_to(MemberIndex(HandMadeArray::kMembers)))
    EXPECT_TRUE(std::filesystem::exists(array_.object(m, kBig, 2)));
}

// What a clean end leaves has no torn tails and nothing left over: that is damage, and may be the newest content.
class CleanEndTest : public RepairTest {
 protected:
  std::vector<std::string> objects_of(uint64_t file) const {
    std::vector<std::string> found;
    char digits[24];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(file));
    for (const std::string& member : array_.members)
      for (const auto& entry : std::filesystem::recursive_directory_iterator(member + "/objects"))
        if (entry.is_regular_file() && entry.path().filename().string().starts_with(digits))
          found.push_back(entry.path().string() + " " + std::to_string(std::filesystem::file_size(entry.path())));
    std::sort(found.begin(), found.end());
    return found;
  }
  void recover() {
    const auto array = array_.open(false);
    const auto counts = recover_array(array_.environment, *array);
    ASSERT_TRUE(counts.is_ok()) << counts.status().message();
    EXPECT_EQ(counts->orphans_removed, 0u);
    EXPECT_EQ(counts->torn_tails, 0u);
    EXPECT_EQ(counts->bytes_freed, 0u);
  }
  // `path`, whose sidecar lost its end: said, kept by -p and by a mount after a crash, set aside by -y with its
  // objects.
  void is_damage_that_keeps(const std::string& path, uint64_t file) {
    const std::vector<std::string> objects = objects_of(file);
    const uint64_t size = sidecar_size(path);
    ASSERT_FALSE(objects.empty());
    const std::string expected = "sidecar " + path + " -1 -1";
    EXPECT_EQ(summary(array_.check()), expected);
    EXPECT_EQ(summary(array_.check(Repair::kPreen)), expected);
    EXPECT_EQ(sidecar_size(path), size);
    EXPECT_EQ(objects_of(file), objects);
    EXPECT_EQ(summary(array_.check(Repair::kYes)), expected + " repaired");
    EXPECT_FALSE(std::filesystem::exists(array_.sidecar(path)));
    EXPECT_EQ(objects_of(file), objects);
    EXPECT_TRUE(array_.check(Repair::kYes, true).clean());
    array_.leave_dirty();
    recover();
    EXPECT_TRUE(array_.check(Repair::kPreen).clean());
    EXPECT_EQ(objects_of(file), objects);
  }
  // Two commits of one file, of which the sidecar shows the first only.
  void write_and_forget_the_second(const std::string& path, uint64_t file, SidecarRecord first, SidecarRecord second) {
    first.sequence = 1;
    second.sequence = 2;
    array_.write_sidecar(path, file, {first});
    const uint64_t boundary = sidecar_size(path);
    array_.write_sidecar(path, file, {first, second});
    ASSERT_TRUE(array_.check(Repair::kNone, true).clean()) << summary(array_.check(Repair::kNone, true));
    std::filesystem::resize_file(array_.sidecar(path), boundary);
  }
};

TEST_F(CleanEndTest, ASidecarCutInTheMiddleIsDamage) {
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), sidecar_size("/run/big.pt") - 20);
  is_damage_that_keeps("/run/big.pt", kBig);
}

TEST_F(CleanEndTest, ASidecarCutToItsHeaderIsDamage) {
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), kSidecarHeaderSize);
  is_damage_that_keeps("/run/big.pt", kBig);
}

TEST_F(CleanEndTest, ASidecarCutInItsHeaderIsDamage) {
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), 100);
  is_damage_that_keeps("/run/big.pt", kBig);
}

TEST_F(CleanEndTest, ASidecarWithoutItsLastSectorsIsDamage) {
  const uint64_t size = sidecar_size("/run/big.pt");
  HandMadeArray::write_at(array_.sidecar("/run/big.pt"), 512, std::vector<std::byte>(size - 512));
  is_damage_that_keeps("/run/big.pt", kBig);
}

TEST_F(CleanEndTest, ASidecarCutBehindAnOlderGenerationIsDamage) {
  SidecarRecord first, second;
  first.has_inline = true;
  first.inline_data.assign(100, std::byte{1});
  first.size = 100;
  const HandMadeArray::Spec spec{0x4400, 1, 5 * kChunk, 4};
  second.generation = Generation(1);
  second.size = spec.size;
  for (uint64_t chunk = 0; chunk < 5; ++chunk) second.extents.emplace_back(chunk, array_.write_chunk(spec, chunk));
  write_and_forget_the_second("/replaced", spec.file, first, second);
  is_damage_that_keeps("/replaced", spec.file);
}

TEST_F(CleanEndTest, SpaceThatAForgottenCommitNamedIsKept) {
  const HandMadeArray::Spec spec{0x4400, 0, 36 * kChunk, 4};
  SidecarRecord first, second;
  for (uint64_t chunk = 0; chunk < 36; ++chunk)
    (chunk < 3 ? first : second).extents.emplace_back(chunk, array_.write_chunk(spec, chunk));
  first.size = 3 * kChunk;
  second.size = spec.size;
  write_and_forget_the_second("/grown", spec.file, first, second);
  const std::vector<std::string> objects = objects_of(spec.file);
  const std::string expected = "leftover-space /grown -1 0; leftover-space /grown -1 1; leftover-space /grown -1 2";
  EXPECT_EQ(summary(array_.check()), expected);
  const CheckReport preened = array_.check(Repair::kPreen);
  EXPECT_EQ(summary(preened), expected);
  EXPECT_NE(preened.errors[0].detail.find("ended cleanly"), std::string::npos) << preened.errors[0].detail;
  EXPECT_EQ(objects_of(spec.file), objects);
  EXPECT_EQ(array_.check(Repair::kYes).repaired, 3u);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(CleanEndTest, ObjectsThatAnEmptiedSidecarMayHaveNamedAreKept) {
  const std::vector<std::string> objects = objects_of(kBig);
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), 0);
  const CheckReport preened = array_.check(Repair::kPreen);
  EXPECT_EQ(summary(preened), "orphan - -1 0; orphan - -1 1; orphan - -1 2");
  EXPECT_NE(preened.errors[0].detail.find("1 of its files is empty (/run/big.pt), which"), std::string::npos)
      << preened.errors[0].detail;
  EXPECT_EQ(objects_of(kBig), objects);
  // Among those that should be empty it is to be found.
  for (int number = 0; number < 9; ++number) std::ofstream(array_.sidecar("/empty" + std::to_string(number)));
  const CheckReport among = array_.check();
  EXPECT_EQ(among.empty_files.size(), 10u);
  EXPECT_NE(std::find(among.empty_files.begin(), among.empty_files.end(), "/run/big.pt"), among.empty_files.end());
  EXPECT_NE(among.errors[0].detail.find("10 of its files are empty ("), std::string::npos) << among.errors[0].detail;
  EXPECT_NE(among.errors[0].detail.find("/empty5"), std::string::npos) << "several are named";
  EXPECT_NE(among.errors[0].detail.find("--json lists them"), std::string::npos) << among.errors[0].detail;
  EXPECT_EQ(array_.check(Repair::kYes).repaired, 3u);
  const CheckReport clean = array_.check(Repair::kNone, true);
  EXPECT_TRUE(clean.clean());
  EXPECT_TRUE(clean.empty_files.empty()) << "nobody asks";
}

TEST_F(CleanEndTest, ObjectsThatNobodyCanHaveNamedAreFreed) {
  std::ofstream(array_.object(MemberIndex(1), 0xabc, 0)) << "x";
  EXPECT_EQ(summary(array_.check(Repair::kPreen)), "orphan - -1 1 repaired");
  EXPECT_TRUE(array_.check().clean());
}

TEST_F(CleanEndTest, AMountRefusesAFileWhoseSidecarWasCut) {
  std::filesystem::resize_file(array_.sidecar("/run/big.pt"), sidecar_size("/run/big.pt") - 20);
  const std::vector<std::string> objects = objects_of(kBig);
  StoreOptions options;
  options.array.buffered_members = true;
  options.buffer_memory = 64 * kChunk;
  // Twice without a clean end: the second mount recovers, and knows that nobody was writing the file.
  for (int mount = 0; mount < 2; ++mount) {
    ::usleep(20'000);  // the clock that stamps files ticks every few milliseconds
    auto store = Store::open(array_.environment, array_.directories, options);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    EXPECT_EQ((*store)->recovery().was_dirty, mount == 1);
    const Handle directory = *(*store)->storage().open_at((*store)->root(), "run", O_RDONLY | O_DIRECTORY);
    auto node = (*store)->lookup(directory, "big.pt");
    ASSERT_TRUE(node.is_ok());
    const auto file = (*store)->open_file(node->handle.get(), false);
    EXPECT_EQ(file.status().code(), StatusCode::kCorruption) << file.status().message();
    node->handle.reset();
    (*store)->storage().close(directory);
  }
  EXPECT_EQ(objects_of(kBig), objects);
}

class SetAsideTest : public RepairTest {
 protected:
  std::string lost_and_found() const { return array_.members[0] + "/lost+found"; }
  std::set<std::string> names_there() const {
    std::set<std::string> names;
    if (!std::filesystem::exists(lost_and_found())) return names;
    for (const auto& entry : std::filesystem::directory_iterator(lost_and_found()))
      names.insert(entry.path().filename().string().substr(17));  // behind the inode
    return names;
  }
  std::string text_there() const {
    for (const auto& entry : std::filesystem::directory_iterator(lost_and_found()))
      if (entry.path().extension() == ".txt") {
        std::ifstream file(entry.path());
        return {std::istreambuf_iterator<char>(file), {}};
      }
    return "";
  }
};

TEST_F(SetAsideTest, ADamagedFileMovesWithATextOfWhatSurvives) {
  const Extent extent = image_.extents.get(ChunkIndex(4));
  HandMadeArray::flip_bit(array_.object(extent.member, kBig, 2), offset_of(extent.slot, kChunk).value() + 99);
  EXPECT_TRUE(array_.check(Repair::kPreen, true).errors.at(0).repaired == false);
  EXPECT_TRUE(names_there().empty());
  EXPECT_EQ(summary(array_.check(Repair::kYes, true)),
            "checksum /run/big.pt 4 " + std::to_string(extent.member.value()) + " repaired");
  EXPECT_EQ(names_there(), (std::set<std::string>{"big.pt.sidecar", "big.pt.txt"}));
  EXPECT_FALSE(std::filesystem::exists(array_.sidecar("/run/big.pt")));
  const std::string text = text_there();
  EXPECT_NE(text.find("/run/big.pt"), std::string::npos) << text;
  EXPECT_NE(text.find("checksum, chunk 4, member"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes 0 to 262143 (262144 bytes)"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes 327680 to 656593 (328914 bytes)"), std::string::npos) << text;
  // What is left is clean, and what was set aside keeps its objects through every later repair.
  for (const Repair repair : {Repair::kNone, Repair::kPreen, Repair::kYes})
    EXPECT_TRUE(array_.check(repair, true).clean());
  {
    const auto array = array_.open(false);
    EXPECT_EQ(recover_array(array_.environment, *array)->orphans_removed, 0u);
  }
  for (const MemberIndex m : range_to(MemberIndex(HandMadeArray::kMembers)))
    EXPECT_TRUE(std::filesystem::exists(array_.object(m, kBig, 2)));
}

// Once nobody needs what was set aside: -p frees it, but not while a file is empty, whose index may have been emptied.
TEST_F(SetAsideTest, WhatWasRemovedFromThereIsNobodys) {
  std::filesystem::remove(array_.object(MemberIndex(0), kBig, 2));
  ASSERT_EQ(array_.check(Repair::kYes).set_aside.size(), 1u);
  std::filesystem::remove_all(lost_and_found());
  std::ofstream(array_.sidecar("/run/empty")) << "";
  const CheckReport kept = array_.check(Repair::kPreen);
  EXPECT_EQ(summary(kept), "orphan - -1 1; orphan - -1 2");
  EXPECT_NE(kept.errors[0].detail.find("1 of its files is empty (/run/empty)"), std::string::npos)
      << kept.errors[0].detail;
  std::filesystem::remove(array_.sidecar("/run/empty"));
  EXPECT_EQ(summary(array_.check(Repair::kPreen)), "orphan - -1 1 repaired; orphan - -1 2 repaired");
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(SetAsideTest, AllNamesOfADamagedFileMove) {
  std::filesystem::create_hard_link(array_.sidecar("/run/big.pt"), array_.sidecar("/big.pt"));
  std::filesystem::remove(array_.object(MemberIndex(0), kBig, 2));
  array_.check(Repair::kYes);
  EXPECT_EQ(names_there(), (std::set<std::string>{"big.pt.sidecar", "big.pt.txt", "big.pt-2.sidecar", "big.pt-2.txt"}));
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(SetAsideTest, AnUnreadableSidecarMovesAndStillProtectsItsObjects) {
  HandMadeArray::flip_bit(array_.sidecar("/run/big.pt"), 200);
  EXPECT_EQ(summary(array_.check(Repair::kYes)), "sidecar /run/big.pt -1 -1 repaired");
  EXPECT_NE(text_there().find("0000000100000011"), std::string::npos) << text_there();
  EXPECT_TRUE(array_.check(Repair::kYes, true).clean());
  EXPECT_TRUE(std::filesystem::exists(array_.object(MemberIndex(1), kBig, 2)));
}

TEST_F(SetAsideTest, WhatSurvivesWasReadAlsoWithoutVerifyingEverything) {
  // One object is missing, which the structure shows; a bit of another is wrong, which only reading shows.
  const Extent flipped = image_.extents.get(ChunkIndex(4));
  const MemberIndex missing((flipped.member.value() + 1U) % HandMadeArray::kMembers);
  std::filesystem::remove(array_.object(missing, kBig, 2));
  HandMadeArray::flip_bit(array_.object(flipped.member, kBig, 2), offset_of(flipped.slot, kChunk).value() + 99);
  const CheckReport report = array_.check(Repair::kYes);
  ASSERT_EQ(report.set_aside.size(), 1u);
  const FileSetAside& aside = report.set_aside[0];
  EXPECT_EQ(aside.path, "/run/big.pt");
  EXPECT_TRUE(std::filesystem::exists(array_.members[0] + "/" + aside.moved_to)) << aside.moved_to;
  EXPECT_EQ(aside.size, 10u * kChunk + 1234);
  uint64_t surviving = 0;
  for (const FileSetAside::Range& range : aside.surviving) surviving += range.length;
  uint64_t lost = kChunk;
  image_.extents.for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
    if (extent.member == missing) lost += extent.stored_length;
    return true;
  });
  EXPECT_EQ(surviving, aside.size - lost);
  EXPECT_NE(text_there().find("checksum, chunk 4"), std::string::npos) << text_there();
}

TEST(SurvivingRanges, AreWhatLostChunksLeave) {
  using Ranges = std::vector<FileSetAside::Range>;
  const auto surviving = [](uint64_t size, const std::vector<uint64_t>& lost) {
    return surviving_ranges(size, 10, {lost.begin(), lost.end()});
  };
  EXPECT_EQ(surviving(0, {}), Ranges{});
  EXPECT_EQ(surviving(25, {}), (Ranges{{FileOffset(0), 25}}));
  EXPECT_EQ(surviving(25, {1}), (Ranges{{FileOffset(0), 10}, {FileOffset(20), 5}}));
  EXPECT_EQ(surviving(25, {0, 2}), (Ranges{{FileOffset(10), 10}}));
  EXPECT_EQ(surviving(25, {0, 1, 2, 900}), Ranges{});
  EXPECT_EQ(surviving(5, {UINT64_MAX}), (Ranges{{FileOffset(0), 5}}));
}

}  // namespace
}  // namespace fpfs
