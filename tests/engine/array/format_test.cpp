// Formatting real directories: what it makes, what it refuses without touching, what force removes and what it keeps.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "tests/engine/array/array_testing.h"

namespace fpfs {
namespace {

class FormatTest : public ArrayTestBase {
 protected:
  // A refused format leaves everything as it was.
  void expect_refused(const Paths& directories, const FormatOptions& options, StatusCode code,
                      const std::vector<std::string>& words) {
    const std::string before = snapshot();
    expect_refusal(format(directories, options), code, words);
    EXPECT_EQ(snapshot(), before) << "a refused format changes nothing";
  }
  Superblock superblock_of(const std::string& name) {
    const std::string bytes = read_file(path(name) + "/superblock");
    return decode_superblock(std::as_bytes(std::span(bytes)), true).value();
  }
  static mode_t mode_of(const std::string& file) {
    struct stat attributes {};
    EXPECT_EQ(::stat(file.c_str(), &attributes), 0) << file;
    return attributes.st_mode & 07777;
  }
  static FormatOptions forced() {
    FormatOptions options;
    options.force = true;
    return options;
  }
};

TEST_F(FormatTest, MakesDirectoriesAndTheirParts) {
  std::filesystem::create_directory(path("b"));
  FormatOptions options;
  options.chunk_size = kChunkSizeMin;
  options.label = "run 7";
  must_format(paths({"a", "b", "c"}), options);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(mode_of(path(name)), 0700u);
    for (unsigned i = 0; i < 256; ++i) {
      char sub[3];
      std::snprintf(sub, sizeof sub, "%02x", i);
      EXPECT_EQ(mode_of(path(name) + "/objects/" + sub), 0700u);
    }
    EXPECT_EQ(std::filesystem::file_size(path(name) + "/superblock"), kSuperblockSize);
    EXPECT_EQ(exists(path(name) + "/tree"), name == std::string("a"));
    EXPECT_FALSE(exists(path(name) + "/state"));
    EXPECT_FALSE(exists(path(name) + "/superblock.new"));
  }
  EXPECT_EQ(mode_of(path("a/tree")), 0755u);
}

// The daemon of an unmount that has just returned.
class EndingDaemon final : public PosixStorage {
 public:
  Result<struct stat> stat_at(Handle directory, const std::string& name) override {
    if (name == "state") {
      EXPECT_EQ(::unlinkat(directory, "state", 0), 0);
    }
    return PosixStorage::stat_at(directory, name);
  }
};

TEST_F(FormatTest, WhatGoesWhileItIsLookedAtIsPassedOver) {
  must_format(paths({"a"}));
  write_file(path("a") + "/state", "open");
  EndingDaemon storage;
  const ScopedHandle directory(storage, storage.open_directory(path("a")).value());
  const Result<DirectoryFindings> findings = examine_directory(storage, directory.get());
  ASSERT_TRUE(findings.is_ok()) << findings.status().message();
  EXPECT_TRUE(findings->has_superblock);
  EXPECT_FALSE(exists(path("a") + "/state"));
}

TEST_F(FormatTest, SuperblocksSayWhoIsWho) {
  FormatOptions options;
  options.label = "run 7";
  must_format(paths({"a", "b"}), options);
  const Superblock a = superblock_of("a"), b = superblock_of("b");
  EXPECT_EQ(a.array_id, b.array_id);
  EXPECT_NE(a.member_id, b.member_id);
  EXPECT_EQ(a.member_index, MemberIndex(0));
  EXPECT_EQ(b.member_index, MemberIndex(1));
  EXPECT_EQ(a.member_count, 2);
  EXPECT_EQ(a.metadata_member, MemberIndex(0));
  EXPECT_EQ(a.chunk_size, kMiB);
  EXPECT_EQ(a.label, "run 7");
  EXPECT_GT(a.created_seconds, 1'700'000'000);
  EXPECT_EQ(static_cast<unsigned>(a.array_id[6]) >> 4, 4u) << "a random UUID says so";
  must_format(paths({"c", "d"}));
  EXPECT_NE(superblock_of("c").array_id, a.array_id);
}

TEST_F(FormatTest, AUmaskDoesNotShowInTheArray) {
  const mode_t old = ::umask(0777);
  const Status status = format(paths({"a"}));
  ::umask(old);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(mode_of(path("a")), 0700u);
  EXPECT_EQ(mode_of(path("a/objects/00")), 0700u);
  EXPECT_EQ(mode_of(path("a/tree")), 0755u);
  EXPECT_NE(must_open(paths({"a"})), nullptr);
}

TEST_F(FormatTest, AMetadataDirectoryHoldsTheTreeAlone) {
  FormatOptions options;
  options.metadata_directory = path("names");
  must_format(paths({"a", "b"}), options);
  EXPECT_FALSE(exists(path("a/tree")));
  EXPECT_FALSE(exists(path("names/objects")));
  EXPECT_TRUE(exists(path("names/tree")));
  EXPECT_EQ(superblock_of("names").member_index, kMetadataOnlyMember);
  EXPECT_EQ(superblock_of("a").metadata_member, kMetadataOnlyMember);
  EXPECT_EQ(superblock_of("a").metadata_path, path("names"));
}

TEST_F(FormatTest, ARelativeMetadataPathIsRecordedWhole) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  FormatOptions options;
  options.metadata_directory = "names";
  const Status status = format({"a"}, options);
  std::filesystem::current_path(before);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(superblock_of("a").metadata_path, std::filesystem::canonical(path("names")).string());
  EXPECT_NE(must_open(paths({"a"})), nullptr);
}

TEST_F(FormatTest, RefusesWhatHoldsSomething) {
  std::filesystem::create_directory(path("b"));
  write_file(path("b/thesis.txt"), "ten years");
  expect_refused(paths({"a", "b"}), {}, StatusCode::kExists, {path("b"), "thesis.txt", "--force"});
  EXPECT_FALSE(exists(path("a"))) << "everything is checked before anything is made";
}

TEST_F(FormatTest, RefusesAnArraysMember) {
  FormatOptions options;
  options.label = "old";
  must_format(paths({"a", "b"}), options);
  expect_refused(paths({"c", "b"}), {}, StatusCode::kExists,
                 {path("b"), "member 1", to_string(superblock_of("b").array_id), "old", "--force"});
}

TEST_F(FormatTest, RefusesADamagedMember) {
  std::filesystem::create_directory(path("a"));
  write_file(path("a/superblock"), "FPFSSUPR and then nothing");
  expect_refused(paths({"a"}), {}, StatusCode::kExists, {path("a"), "cannot be read", "--force"});
}

TEST_F(FormatTest, RefusesTheSameDirectoryTwice) {
  std::filesystem::create_directory(path("a"));
  std::filesystem::create_directory_symlink(path("a"), path("alias"));
  expect_refused({path("a"), path("a")}, {}, StatusCode::kInvalidArgument, {path("a"), "same directory"});
  expect_refused({path("a"), path("alias")}, {}, StatusCode::kInvalidArgument,
                 {path("alias"), "same directory", path("a")});
  expect_refused({path("a"), path("a") + "/"}, forced(), StatusCode::kInvalidArgument, {"same directory"});
  expect_refused({path("new"), path("./new/")}, {}, StatusCode::kInvalidArgument, {path("new"), "same directory"});
  FormatOptions options;
  options.metadata_directory = path("a");
  expect_refused({path("a"), path("b")}, options, StatusCode::kInvalidArgument, {path("a"), "same directory"});
}

TEST_F(FormatTest, RefusesDirectoriesInsideEachOther) {
  std::filesystem::create_directories(path("a/deep/deeper"));
  std::filesystem::create_directory_symlink(path("a/deep/deeper"), path("alias"));
  for (const FormatOptions& options : {FormatOptions(), forced()}) {
    expect_refused({path("a"), path("a/deep/deeper")}, options, StatusCode::kInvalidArgument,
                   {path("a/deep/deeper"), "inside", path("a")});
    expect_refused({path("a/deep/deeper"), path("a")}, options, StatusCode::kInvalidArgument, {"inside"});
    expect_refused({path("a"), path("alias")}, options, StatusCode::kInvalidArgument, {path("alias"), "inside"});
    expect_refused({path("a"), path("a/new")}, options, StatusCode::kInvalidArgument, {path("a/new"), "inside"});
  }
}

TEST_F(FormatTest, RefusesWhatIsNoDirectory) {
  write_file(path("file"), "x");
  expect_refused(paths({"file"}), forced(), StatusCode::kSystem, {path("file"), "Not a directory; name directories"});
  expect_refused({path("absent/a")}, {}, StatusCode::kNotFound, {path("absent/a"), path("absent"), "mounted"});
  expect_refused({""}, {}, StatusCode::kInvalidArgument, {"empty"});
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  expect_refused(paths({"b", "dangling"}), {}, StatusCode::kInvalidArgument, {path("dangling"), "symbolic link"});
}

TEST_F(FormatTest, RefusesImpossibleOptions) {
  FormatOptions options;
  for (const uint32_t size : {0u, 1u, kChunkSizeMin / 2, kChunkSizeMax * 2, 3u << 19}) {
    options.chunk_size = size;
    expect_refused(paths({"a"}), options, StatusCode::kInvalidArgument, {"chunk size", std::to_string(size)});
  }
  options = {};
  options.label = std::string(64, 'x');
  expect_refused(paths({"a"}), options, StatusCode::kInvalidArgument, {"label"});
  options.label = "\xff";
  expect_refused(paths({"a"}), options, StatusCode::kInvalidArgument, {"label"});
  options = {};
  options.metadata_directory = "/" + std::string(kMetadataPathSizeMax, 'm');
  expect_refused(paths({"a"}), options, StatusCode::kInvalidArgument, {"metadata"});
  expect_refused({}, {}, StatusCode::kInvalidArgument, {"0 directories"});
  expect_refused(Paths(kMemberCountMax + 1, "/x"), {}, StatusCode::kInvalidArgument, {"257"});
}

TEST_F(FormatTest, LostAndFoundOfTheFilesystemCountsAsNothing) {
  std::filesystem::create_directories(path("a/lost+found"));
  EXPECT_TRUE(Array::is_blank(environment_, paths({"a"})).value());
  must_format(paths({"a"}));
  EXPECT_TRUE(exists(path("a/lost+found")));
}

TEST_F(FormatTest, AnInterruptedFormatIsRepeatedWithoutForce) {
  std::filesystem::create_directories(path("a/objects/00"));
  std::filesystem::create_directories(path("a/objects/fe"));
  std::filesystem::create_directories(path("a/tree"));
  write_file(path("a/lock"), "123\n");
  write_file(path("a/superblock.new"), "torn");
  EXPECT_TRUE(Array::is_blank(environment_, paths({"a"})).value());
  must_format(paths({"a"}));
  EXPECT_NE(must_open(paths({"a"})), nullptr);
}

TEST_F(FormatTest, WhatLooksLikeAnArrayAndHoldsSomethingIsNotBlank) {
  const auto expect_kept = [&](const std::string& made) {
    EXPECT_FALSE(Array::is_blank(environment_, paths({"a"})).value()) << made;
    expect_refused(paths({"a"}), {}, StatusCode::kExists, {path("a")});
    std::filesystem::remove_all(path("a"));
  };
  std::filesystem::create_directories(path("a/objects/00"));
  write_file(path("a/objects/00/0000000000000100.00000000"), "data");
  expect_kept("an object");
  std::filesystem::create_directories(path("a/objects/mine"));
  expect_kept("a stranger in objects");
  std::filesystem::create_directories(path("a/tree/run1"));
  expect_kept("a name");
  std::filesystem::create_directories(path("a"));
  write_file(path("a/lock"), std::string(100, 'x'));
  expect_kept("someone's file named lock");
  std::filesystem::create_directories(path("a"));
  write_file(path("a/tree"), "a file");
  expect_kept("someone's file named tree");
  std::filesystem::create_directories(path("a"));
  write_file(path("a/state"), "dirty\n");
  expect_kept("a state");
  std::filesystem::create_directories(path("a/lost+found"));
  write_file(path("a/lost+found/#12"), "rescued");
  expect_kept("a rescued file");
}

TEST_F(FormatTest, BlankIsAbsentOrEmpty) {
  EXPECT_TRUE(Array::is_blank(environment_, paths({"a", "b"})).value());
  std::filesystem::create_directory(path("a"));
  EXPECT_TRUE(Array::is_blank(environment_, paths({"a", "b"})).value());
  write_file(path("a/x"), "");
  EXPECT_FALSE(Array::is_blank(environment_, paths({"b", "a"})).value());
  must_format(paths({"b"}));
  EXPECT_FALSE(Array::is_blank(environment_, paths({"b"})).value());
  EXPECT_FALSE(Array::is_blank(environment_, {path("a/x")}).is_ok());
}

TEST_F(FormatTest, ForceRemovesTheFormerArrayAndKeepsTheRest) {
  must_format(paths({"a", "b"}));
  const Uuid former = superblock_of("a").array_id;
  std::filesystem::create_directories(path("a/tree/run1/deep"));
  write_file(path("a/tree/run1/deep/step.pt"), "sidecar");
  std::filesystem::create_symlink("/etc/passwd", path("a/tree/run1/link"));
  std::filesystem::create_directory_symlink(path("kept"), path("a/tree/outside"));
  write_file(path("b/objects/07/0000000000000107.00000000"), "data");
  write_file(path("a/state"), "dirty\n");
  write_file(path("a/notes.txt"), "mine");
  std::filesystem::create_directory(path("a/lost+found"));
  write_file(path("a/lost+found/0000000000000c0d-step.pt.sidecar"), "set aside");
  write_file(path("a/lost+found/0000000000000c0d-step.pt.txt"), "set aside");
  write_file(path("a/lost+found/#1234"), "the filesystem's own");
  std::filesystem::create_directory(path("kept"));
  write_file(path("kept/file"), "outside");
  ASSERT_EQ(::chmod(path("a/tree/run1/deep").c_str(), 0), 0);

  const Status status = force(paths({"b", "a"}));
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_NE(superblock_of("a").array_id, former);
  EXPECT_EQ(superblock_of("a").member_index, MemberIndex(1));
  EXPECT_TRUE(std::filesystem::is_empty(path("b/objects/07")));
  EXPECT_TRUE(std::filesystem::is_empty(path("b/tree")));
  EXPECT_FALSE(exists(path("a/tree"))) << "names are kept on member 0 now";
  EXPECT_FALSE(exists(path("a/state")));
  EXPECT_FALSE(exists(path("a/.fastpersistfs-former")));
  EXPECT_EQ(read_file(path("a/notes.txt")), "mine");
  EXPECT_FALSE(exists(path("a/lost+found/0000000000000c0d-step.pt.sidecar")));
  EXPECT_FALSE(exists(path("a/lost+found/0000000000000c0d-step.pt.txt")));
  EXPECT_EQ(read_file(path("a/lost+found/#1234")), "the filesystem's own");
  EXPECT_EQ(read_file(path("kept/file")), "outside") << "links are removed, not followed";
  EXPECT_NE(must_open(paths({"a", "b"})), nullptr);
}

TEST_F(FormatTest, ForceTakesATreeDeeperThanThereAreHandles) {
  must_format(paths({"a"}));
  int directory = ::open(path("a/tree").c_str(), O_RDONLY | O_DIRECTORY);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(::mkdirat(directory, "d", 0700), 0);
    const int inner = ::openat(directory, "d", O_RDONLY | O_DIRECTORY);
    ASSERT_GE(inner, 0);
    ::close(directory);
    directory = inner;
  }
  ::close(directory);
  const Status status = force(paths({"a"}));
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_TRUE(std::filesystem::is_empty(path("a/tree")));
}

TEST_F(FormatTest, ForceFormatsADamagedMember) {
  must_format(paths({"a"}));
  write_file(path("a/superblock"), "torn");
  write_file(path("a/tree/step.pt"), "sidecar");
  EXPECT_TRUE(force(paths({"a"})).is_ok());
  EXPECT_TRUE(std::filesystem::is_empty(path("a/tree")));
  EXPECT_NE(must_open(paths({"a"})), nullptr);
}

TEST_F(FormatTest, ForceDoesNotRemoveWhatNoSuperblockClaims) {
  std::filesystem::create_directories(path("a/objects/museum"));
  write_file(path("a/objects/museum/vase"), "ming");
  expect_refused(paths({"a"}), forced(), StatusCode::kExists, {path("a"), "objects", "move"});
  std::filesystem::create_directories(path("b/tree"));
  write_file(path("b/tree/oak"), "leaves");
  expect_refused(paths({"b"}), forced(), StatusCode::kExists, {path("b"), "tree", "move"});
}

TEST_F(FormatTest, ForceFinishesAnInterruptedRemoval) {
  must_format(paths({"a"}));
  std::filesystem::create_directories(path("a/.fastpersistfs-former/3/rest"));
  write_file(path("a/.fastpersistfs-former/0"), "superblock of before");
  write_file(path("a/.fastpersistfs-former/3/rest/file"), "x");
  write_file(path("a/tree/step.pt"), "sidecar");
  std::filesystem::remove(path("a/superblock"));
  expect_refused(paths({"a"}), {}, StatusCode::kExists, {path("a"), "did not finish", "--force"});
  expect_refusal(open(paths({"a"})).status(), StatusCode::kNotFound,
                 {path("a"), "did not finish", "mkfs.fastpersistfs"});
  EXPECT_FALSE(Array::is_blank(environment_, paths({"a"})).value());
  const Status status = force(paths({"a"}));
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_FALSE(exists(path("a/.fastpersistfs-former")));
  EXPECT_TRUE(std::filesystem::is_empty(path("a/tree")));
  EXPECT_NE(must_open(paths({"a"})), nullptr);
}

TEST_F(FormatTest, ForceDoesNotFormatAMountedArray) {
  must_format(paths({"a", "b"}));
  const std::unique_ptr<Array> mounted = must_open(paths({"a", "b"}));
  expect_refused(paths({"c", "b"}), forced(), StatusCode::kBusy,
                 {path("b"), "held by process " + std::to_string(::getpid())});
  EXPECT_FALSE(exists(path("c")));
}

TEST_F(FormatTest, AMemberTakenByForceLeavesTheOthersIncomplete) {
  must_format(paths({"a", "b"}));
  ASSERT_TRUE(force(paths({"b"})).is_ok());
  expect_refusal(open(paths({"a", "b"})).status(), StatusCode::kInvalidArgument, {path("b"), path("a"), "one array"});
  expect_refusal(open(paths({"a"})).status(), StatusCode::kNotFound, {"missing 1"});
}

}  // namespace
}  // namespace fpfs
