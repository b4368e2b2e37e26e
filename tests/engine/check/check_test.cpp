// What the checker finds, and what it says about it.
#include "engine/check/check.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/engine/check/hand_made_array.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = HandMadeArray::kChunkSize;

// Three files over all members: several chunks, one short chunk, inline content; and an empty one.
class CheckTest : public testing::Test {
 protected:
  CheckTest() {
    image_ = array_.add_file("/run/big.pt", {0x100000011, 0, 10 * kChunk + 1234, 1});
    array_.add_file("/small", {0x200000022, 3, 700, 2});
    SidecarRecord inlined;
    inlined.sequence = 1;
    inlined.has_inline = true;
    inlined.inline_data.assign(100, std::byte{7});
    inlined.size = 100;
    array_.write_sidecar("/inline", 0x300000033, {inlined});
    std::ofstream(array_.sidecar("/empty")).flush();
  }

  std::string object_of(const Extent& extent) const { return array_.object(extent.member, 0x100000011, 0); }

  HandMadeArray array_;
  FileImage image_;  // of /run/big.pt
};

TEST_F(CheckTest, ACleanArrayIsClean) {
  for (const bool verify : {false, true}) {
    const CheckReport report = array_.check(Repair::kNone, verify);
    EXPECT_TRUE(report.clean()) << summary(report);
    EXPECT_EQ(report.files, 4u);
    EXPECT_EQ(report.chunks, 12u);
    EXPECT_EQ(report.bytes_stored, 10u * kChunk + 1234 + 700 + 100) << "content in sidecars counts";
    EXPECT_EQ(report.bytes_verified, verify ? report.bytes_stored : 0);
    EXPECT_EQ(report.orphans, 0u);
    EXPECT_FALSE(report.cancelled);
  }
  EXPECT_TRUE(array_.check(Repair::kYes, true).clean());
}

TEST_F(CheckTest, AFlippedBitInAnyChunkIsNamedExactly) {
  for (const uint64_t chunk : {0, 1, 2, 7, 10}) {
    const Extent extent = image_.extents.get(ChunkIndex(chunk));
    const uint64_t offset = offset_of(extent.slot, kChunk).value() + (chunk == 10 ? 1233 : chunk * 777);
    HandMadeArray::flip_bit(object_of(extent), offset);
    EXPECT_TRUE(array_.check().clean()) << "only reading the data can tell";
    const CheckReport report = array_.check(Repair::kNone, true);
    EXPECT_EQ(summary(report),
              "checksum /run/big.pt " + std::to_string(chunk) + " " + std::to_string(extent.member.value()));
    ASSERT_EQ(report.errors.size(), 1u);
    EXPECT_EQ(report.errors[0].object_offset, static_cast<int64_t>(offset_of(extent.slot, kChunk).value()));
    EXPECT_NE(report.errors[0].detail.find(object_of(extent)), std::string::npos) << report.errors[0].detail;
    EXPECT_EQ(report.bytes_verified, report.bytes_stored - extent.stored_length);
    HandMadeArray::flip_bit(object_of(extent), offset);
  }
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean());
}

TEST_F(CheckTest, SwappedChunksAreToldFromDamagedOnes) {
  // Chunks 0 and 3 lie in slots 0 and 1 of one object.
  const Extent first = image_.extents.get(ChunkIndex(0)), second = image_.extents.get(ChunkIndex(3));
  ASSERT_EQ(first.member, second.member);
  std::vector<std::byte> data(kChunk);
  test::fill(data, 1, 3 * kChunk);
  HandMadeArray::write_at(object_of(first), offset_of(first.slot, kChunk).value(), data);
  test::fill(data, 1, 0);
  HandMadeArray::write_at(object_of(first), offset_of(second.slot, kChunk).value(), data);
  const std::string member = std::to_string(first.member.value());
  const CheckReport report = array_.check(Repair::kNone, true);
  EXPECT_EQ(summary(report), "misplaced /run/big.pt 0 " + member + "; misplaced /run/big.pt 3 " + member);
  EXPECT_NE(report.errors[0].detail.find("the bytes of chunk 3, which belongs on member " + member +
                                         " at object offset 65536"),
            std::string::npos)
      << report.errors[0].detail;
}

TEST_F(CheckTest, ExchangedContentOfTwoMembersIsToldFromDamage) {
  const std::string one = array_.members[1] + "/objects", two = array_.members[2] + "/objects";
  std::filesystem::rename(one, one + ".kept");
  std::filesystem::rename(two, one);
  std::filesystem::rename(one + ".kept", two);
  // The object that is now on member 1 is shorter than the one that belongs there, which is said once; the one on
  // member 2 has chunks 0, 3 and 6 of the other member's in the places of 1, 4 and 7, and in that of the last chunk,
  // which is a short one, bytes that are nobody's.
  const CheckReport report = array_.check(Repair::kNone, true);
  EXPECT_EQ(summary(report),
            "leftover-space - -1 1; misplaced /run/big.pt 1 2; misplaced /run/big.pt 4 2; misplaced /run/big.pt 7 2; "
            "short-object /run/big.pt 9 1; checksum /run/big.pt 10 2; missing-object /small 0 2");
}

TEST_F(CheckTest, ADamagedSidecarIsNamed) {
  HandMadeArray::flip_bit(array_.sidecar("/run/big.pt"), 300);
  const CheckReport report = array_.check(Repair::kNone, true);
  EXPECT_EQ(summary(report), "sidecar /run/big.pt -1 -1");
  EXPECT_NE(report.errors[0].detail.find("offset 128"), std::string::npos) << report.errors[0].detail;
}

TEST_F(CheckTest, ASidecarOfAnotherArrayIsNamed) {
  HandMadeArray other;
  other.add_file("/x", {0x55, 0, 100, 1});
  std::filesystem::copy_file(other.sidecar("/x"), array_.sidecar("/x"));
  const CheckReport report = array_.check();
  EXPECT_EQ(summary(report), "foreign-sidecar /x -1 -1");
  EXPECT_NE(report.errors[0].detail.find("another array"), std::string::npos);
  // It names nothing here, so it keeps no orphan; and it is set aside like any other that cannot be read.
  std::ofstream(array_.object(MemberIndex(1), 0x55, 0)) << "orphan";
  EXPECT_EQ(summary(array_.check(Repair::kYes)), "orphan - -1 1 repaired; foreign-sidecar /x -1 -1 repaired");
  EXPECT_TRUE(array_.check(Repair::kYes, true).clean());
}

TEST_F(CheckTest, AMissingObjectIsNamedOnce) {
  const Extent extent = image_.extents.get(ChunkIndex(1));
  std::filesystem::remove(object_of(extent));
  for (const bool verify : {false, true}) {
    const CheckReport report = array_.check(Repair::kNone, verify);
    EXPECT_EQ(summary(report), "missing-object /run/big.pt 1 " + std::to_string(extent.member.value()));
    EXPECT_NE(report.errors[0].detail.find("4 chunks"), std::string::npos) << report.errors[0].detail;
  }
}

TEST_F(CheckTest, AShortObjectIsNamedOnce) {
  const Extent extent = image_.extents.get(ChunkIndex(9));
  std::filesystem::resize_file(object_of(extent), offset_of(extent.slot, kChunk).value() + 5000);
  for (const bool verify : {false, true})
    EXPECT_EQ(summary(array_.check(Repair::kNone, verify)),
              "short-object /run/big.pt 9 " + std::to_string(extent.member.value()));
}

TEST_F(CheckTest, DamagedAndMissingSuperblocksAreNamed) {
  for (const MemberIndex m : range_to(MemberIndex(HandMadeArray::kMembers))) {
    HandMadeArray::flip_bit(array_.members[m.value()] + "/superblock", 40);
    const CheckReport report = array_.check();
    EXPECT_EQ(summary(report), "superblock - -1 " + std::to_string(m.value()));
    EXPECT_NE(report.errors[0].detail.find(array_.members[m.value()]), std::string::npos);
    HandMadeArray::flip_bit(array_.members[m.value()] + "/superblock", 40);
  }
  std::filesystem::rename(array_.members[1] + "/superblock", array_.members[1] + "/gone");
  EXPECT_EQ(summary(array_.check()), "superblock - -1 1");
  std::filesystem::rename(array_.members[1] + "/gone", array_.members[1] + "/superblock");
  EXPECT_TRUE(array_.check().clean());
}

TEST_F(CheckTest, WithoutAMemberWhatTheOthersHoldIsChecked) {
  const Extent small = array_.add_file("/also", {0x500000000, 0, 700, 6}).extents.get(ChunkIndex(0));
  const MemberIndex gone(small.member == MemberIndex(1) ? 2 : 1);
  const std::string number = std::to_string(gone.value());
  std::erase(array_.directories, array_.members[gone.value()]);
  for (const char* found_instead : {"", "/nonexistent/fpfs"}) {
    if (*found_instead != '\0') array_.directories.emplace_back(found_instead);
    const CheckReport report = array_.check(Repair::kNone, true);
    const std::string text = summary(report);
    EXPECT_EQ(text.find("missing-member - -1 " + number + "; "), 0u) << text;
    EXPECT_NE(report.errors[0].detail.find(found_instead), std::string::npos) << report.errors[0].detail;
    EXPECT_NE(text.find("missing-member /run/big.pt"), std::string::npos) << text;
    EXPECT_EQ(text.find("/also"), std::string::npos) << text;
    EXPECT_GT(report.bytes_verified, 6u * kChunk);
    EXPECT_TRUE(report.was_checked);
    EXPECT_EQ(report.files_missing, 1u);
    uint64_t chunks_missing = 0;
    for (const CheckError& error : report.errors) {
      EXPECT_EQ(error.healing, "") << "nobody knows whether it is lost";
      const bool is_of_file = error.path == "/run/big.pt";
      EXPECT_EQ(error.detail.find(" chunks are there") != std::string::npos, is_of_file) << error.detail;
    }
    image_.extents.for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
      chunks_missing += extent.member == gone ? 1 : 0;
      return true;
    });
    EXPECT_EQ(report.chunks_missing, chunks_missing);
    // Nothing is repaired until the member is back: it may only not be mounted.
    const CheckReport repaired = array_.check(Repair::kYes);
    EXPECT_EQ(summary(repaired), "missing-member - -1 " + number);
    EXPECT_FALSE(repaired.was_checked);
    EXPECT_FALSE(std::filesystem::exists(array_.members[0] + "/lost+found"));
  }
}

TEST_F(CheckTest, WithoutTheMemberThatKeepsTheNamesOnlyThatIsSaid) {
  std::erase(array_.directories, array_.members[0]);
  EXPECT_EQ(summary(array_.check(Repair::kNone, true)), "missing-member - -1 0");
}

TEST_F(CheckTest, AMemberThatHasLostItsObjectsIsNamed) {
  std::filesystem::rename(array_.members[1] + "/objects", array_.members[1] + "/moved");
  const CheckReport report = array_.check();
  EXPECT_EQ(summary(report).find("missing-directory - -1 1; missing-member /run/big.pt"), 0u) << summary(report);
  EXPECT_NE(report.errors[0].detail.find(array_.members[1] + ": member 1: its 'objects' is missing"), std::string::npos)
      << report.errors[0].detail;
  EXPECT_TRUE(report.was_checked) << "what the others hold";
  EXPECT_FALSE(array_.check(Repair::kPreen).was_checked);
  EXPECT_FALSE(std::filesystem::exists(array_.members[1] + "/objects"));
  const CheckReport repaired = array_.check(Repair::kYes);
  EXPECT_EQ(summary(repaired).find("missing-directory - -1 1 repaired"), 0u) << summary(repaired);
  EXPECT_EQ(repaired.set_aside.size(), 1u);
  EXPECT_TRUE(array_.check(Repair::kNone, true).clean()) << summary(array_.check(Repair::kNone, true));
}

// Nothing takes its place: an empty one would make all objects nobody's.
TEST_F(CheckTest, NamesThatAreLostAreNamedAndNotMadeAnew) {
  std::filesystem::rename(array_.members[0] + "/tree", array_.members[0] + "/moved");
  for (const Repair repair : {Repair::kNone, Repair::kYes}) {
    const CheckReport report = array_.check(repair);
    EXPECT_EQ(summary(report), "missing-directory - -1 0");
    EXPECT_FALSE(report.was_checked);
    EXPECT_FALSE(std::filesystem::exists(array_.members[0] + "/tree"));
  }
}

TEST_F(CheckTest, NoArrayInSightIsAFailureToCheck) {
  array_.directories = {"/nonexistent/fpfs"};
  EXPECT_EQ(array_.try_check({}).status().code(), StatusCode::kNotFound);
}

TEST_F(CheckTest, AMemberOfAnotherArrayIsNamed) {
  const HandMadeArray other;
  array_.directories[1] = other.members[1];
  const CheckReport report = array_.check();
  EXPECT_EQ(summary(report), "foreign-member - -1 -1");
  EXPECT_NE(report.errors[0].detail.find(other.members[1] + ": it is member 1 of another array"), std::string::npos)
      << report.errors[0].detail;
  EXPECT_NE(report.errors[0].detail.find("give the directories of one array"), std::string::npos);
}

TEST_F(CheckTest, ADirectoryThatIsGivenTwiceIsNoCopy) {
  array_.directories.push_back(array_.members[1]);
  const CheckReport report = array_.check();
  EXPECT_EQ(summary(report), "duplicate-member - -1 1");
  EXPECT_NE(report.errors[0].detail.find("it is given twice"), std::string::npos) << report.errors[0].detail;
}

TEST_F(CheckTest, ACopiedMemberIsNamed) {
  const test::TemporaryDirectory place;
  const std::string copy = place / "copy";
  std::filesystem::copy(array_.members[1], copy, std::filesystem::copy_options::recursive);
  array_.directories[2] = copy;  // in the place of another, or beside it
  EXPECT_EQ(summary(array_.check()), "duplicate-member - -1 1");
  array_.directories.push_back(array_.members[2]);
  const CheckReport report = array_.check();
  EXPECT_EQ(summary(report), "duplicate-member - -1 1");
  EXPECT_NE(report.errors[0].detail.find("a copy of the other"), std::string::npos) << report.errors[0].detail;
  EXPECT_NE(report.errors[0].detail.find(copy), std::string::npos) << report.errors[0].detail;
}

TEST(CheckElsewhere, NamesInADirectoryThatMovedAreFound) {
  const test::TemporaryDirectory place;
  PosixEnvironment environment{2};
  const std::vector<std::string> directories = {place / "a", place / "b"};
  FormatOptions format;
  format.metadata_directory = place / "names";
  ASSERT_TRUE(Array::format(environment, directories, format).is_ok());
  std::filesystem::rename(place / "names", place / "moved");
  CheckOptions options;
  options.buffered_members = true;
  EXPECT_FALSE(check_array(environment, directories, options).is_ok());
  options.metadata_directory = place / "moved";
  const Result<CheckReport> report = check_array(environment, directories, options);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->clean());
}

TEST_F(CheckTest, TwoChunksInOneSlotAreAnOverlap) {
  const HandMadeArray::Spec spec{0x77, 0, 4 * kChunk, 5};
  array_.add_file("/twice", spec);
  SidecarRecord record;
  record.sequence = 1;
  record.size = spec.size;
  for (uint64_t chunk = 0; chunk < 4; ++chunk) record.extents.emplace_back(chunk, array_.write_chunk(spec, chunk));
  record.extents[3].second.slot = record.extents[0].second.slot;
  ASSERT_EQ(record.extents[3].second.member, record.extents[0].second.member);
  array_.write_sidecar("/twice", spec.file, {record});
  // The slot that is left over shows as well.
  const std::string member = std::to_string(record.extents[0].second.member.value());
  EXPECT_EQ(summary(array_.check()), "leftover-space /twice -1 " + member + "; overlap /twice 3 " + member);
}

TEST_F(CheckTest, ACopiedSidecarIsAnOverlap) {
  std::filesystem::copy_file(array_.sidecar("/run/big.pt"), array_.sidecar("/run/copy.pt"));
  EXPECT_EQ(summary(array_.check()), "overlap /run/copy.pt -1 -1");
}

TEST_F(CheckTest, AHardLinkIsOneFile) {
  std::filesystem::create_hard_link(array_.sidecar("/run/big.pt"), array_.sidecar("/also.pt"));
  const CheckReport report = array_.check(Repair::kNone, true);
  EXPECT_TRUE(report.clean()) << summary(report);
  EXPECT_EQ(report.files, 4u);
  EXPECT_EQ(report.bytes_verified, report.bytes_stored);
}

TEST_F(CheckTest, AnExtentBehindTheEndIsNamed) {
  SidecarRecord record;
  record.sequence = 1;
  record.generation = Generation(3);
  record.size = 700;
  record.extents.emplace_back(0, array_.write_chunk({0x200000022, 3, 700, 2}, 0));
  Extent behind = array_.write_chunk({0x200000022, 3, 3 * kChunk, 2}, 2);
  record.extents.emplace_back(2, behind);
  array_.write_sidecar("/small", 0x200000022, {record});
  EXPECT_EQ(summary(array_.check()), "extent /small 2 " + std::to_string(behind.member.value()));
}

TEST_F(CheckTest, StrangersAmongTheObjectsAreNamedAndLeftAlone) {
  const std::string stranger = array_.members[1] + "/objects/7f/notes.txt";
  std::ofstream(stranger) << "mine";
  // An object's name in the wrong directory.
  const std::string misplaced = array_.members[2] + "/objects/00/" + Array::object_name(FileId(0x11), Generation(0));
  std::ofstream(misplaced) << "x";
  EXPECT_EQ(summary(array_.check(Repair::kYes)), "foreign - -1 1; foreign - -1 2");
  EXPECT_TRUE(std::filesystem::exists(stranger));
  EXPECT_TRUE(std::filesystem::exists(misplaced));
}

TEST_F(CheckTest, StrangersInTheTreeAreNamedAndLeftAlone) {
  const std::map<std::string, std::string> strangers = {
      {"/notes.txt", "mine"}, {"/run/step.pt", std::string(70'000, 'x')}, {"/run/half", std::string(127, '\n')}};
  for (const auto& [path, content] : strangers) std::ofstream(array_.sidecar(path)) << content;
  // What is left of an index is damage: its first sector, or the others.
  std::ofstream(array_.sidecar("/lost")) << std::string(4096, '\0');
  std::ofstream(array_.sidecar("/begun")) << "SIDECAR1" << std::string(200, 'x');
  const std::string expected =
      "sidecar /begun -1 -1; sidecar /lost -1 -1; foreign /notes.txt -1 -1; "
      "foreign /run/half -1 -1; foreign /run/step.pt -1 -1";
  EXPECT_EQ(summary(array_.check()), expected);
  const CheckReport report = array_.check(Repair::kYes);
  EXPECT_EQ(report.files, 6u) << "they are no files";
  for (const CheckError& error : report.errors) EXPECT_EQ(error.repaired, error.kind != "foreign") << error.path;
  array_.leave_dirty();  // written since the mount began: yet no commit that a crash cut short
  EXPECT_TRUE(recover_array(array_.environment, *array_.open(false)).is_ok());
  array_.leave_dirty();
  array_.check(Repair::kPreen);
  for (const auto& [path, content] : strangers) {
    std::ifstream file(array_.sidecar(path));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), content) << path;
  }
}

TEST_F(CheckTest, CancellingStopsAndSaysSo) {
  const std::atomic<bool> cancelled{true};
  CheckOptions options;
  options.verify_data = true;
  options.repair = Repair::kYes;
  options.cancelled = &cancelled;
  std::ofstream(array_.object(MemberIndex(0), 0x9999, 0)) << "orphan";
  const auto report = array_.try_check(options);
  ASSERT_TRUE(report.is_ok());
  EXPECT_TRUE(report->cancelled);
  EXPECT_TRUE(std::filesystem::exists(array_.object(MemberIndex(0), 0x9999, 0)));
}

TEST_F(CheckTest, ProgressEndsAtTheTotal) {
  uint64_t last_done = 0, last_total = 0;
  CheckOptions options;
  options.verify_data = true;
  options.progress = [&](const CheckOptions::Progress& now) {
    last_done = now.bytes_done, last_total = now.bytes_total;
  };
  const auto report = array_.try_check(options);
  ASSERT_TRUE(report.is_ok());
  EXPECT_EQ(last_done, report->bytes_stored);
  EXPECT_EQ(last_total, report->bytes_stored);
}

TEST(CheckOnADrive, ManyFilesOfManyChunksAreAllRead) {
  HandMadeArray array(std::filesystem::temp_directory_path().string());
  uint64_t bytes = 0;
  for (uint64_t file = 1; file <= 40; ++file) {
    array.add_file("/many/" + std::to_string(file), {file << 30, 1, file * 60'000, file});
    bytes += file * 60'000;
  }
  array.add_file("/many/long", {0x4141, 0, 250 * kChunk, 9});
  bytes += 250 * kChunk;
  const CheckReport report = array.check(Repair::kNone, true);
  EXPECT_TRUE(report.clean()) << summary(report);
  EXPECT_EQ(report.bytes_verified, bytes);
  EXPECT_EQ(report.files, 41u);
}

}  // namespace
}  // namespace fpfs
