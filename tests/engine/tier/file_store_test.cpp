// FileStore in a real directory, and with a simulated filesystem that fails.
#include "engine/tier/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include <gtest/gtest.h>

#include "engine/io/posix_storage.h"
#include "engine/io/thread_executor.h"
#include "tests/engine/tier/blocking_store.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

using test::BlockingStore;

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() : store_(open(directory_.path()).value()), calls_(*store_) {}
  Result<std::unique_ptr<FileStore>> open(const std::string& path) {
    return FileStore::open(storage_, executor_, path, [this] { return ++random_; });
  }
  std::vector<std::string> unfinished() {
    std::vector<std::string> names;
    const std::string path = directory_ / ".fastpersistfs-unfinished-objects";
    if (!std::filesystem::exists(path)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename());
    return names;
  }

  test::TemporaryDirectory directory_{test::quick_place()};
  PosixStorage storage_;
  ThreadExecutor executor_{4};
  std::atomic<uint64_t> random_ = 0;
  std::unique_ptr<FileStore> store_;
  BlockingStore calls_;
};

TEST_F(FileStoreTest, AnObjectIsAPlainFile) {
  EXPECT_TRUE(calls_.check().is_ok());
  const StoredObject stored = calls_.put("a/b/c", "content").value();
  EXPECT_FALSE(stored.verified);
  std::ifstream file(directory_ / "a/b/c");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "content");
  const ObjectInfo info = calls_.head("a/b/c").value();
  EXPECT_EQ(info.size, 7u);
  EXPECT_EQ(info.tag, stored.tag);
  EXPECT_TRUE(unfinished().empty());
}

TEST_F(FileStoreTest, ReplacingGivesANewTag) {
  const std::string before = calls_.put("a", "old").value().tag;
  EXPECT_EQ(calls_.get("a", 0, 10, before).value(), "old");
  const std::string after = calls_.put("a", "new").value().tag;
  EXPECT_NE(before, after);
  EXPECT_EQ(calls_.get("a", 0, 10, before).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(calls_.get("a", 0, 10, after).value(), "new");
}

TEST_F(FileStoreTest, RangesEndWithTheObject) {
  ASSERT_TRUE(calls_.put("a", "0123456789").is_ok());
  EXPECT_EQ(calls_.get("a", 3, 4).value(), "3456");
  EXPECT_EQ(calls_.get("a", 8, 4).value(), "89");
  EXPECT_EQ(calls_.get("a", 10, 4).value(), "");
  EXPECT_EQ(calls_.get("a", 1000, 4).value(), "");
  ASSERT_TRUE(calls_.put("empty", "").is_ok());
  EXPECT_EQ(calls_.get("empty").value(), "");
}

TEST_F(FileStoreTest, MetadataAreKept) {
  const ObjectMetadata metadata = {{"mode", "0644"}, {"odd", std::string("\0\n %\xff", 5)}, {"empty", ""}};
  const Result<StoredObject> stored = calls_.put("a", "x", metadata);
  if (!stored.is_ok() && stored.status().code() == StatusCode::kUnsupported)
    GTEST_SKIP() << "no extended attributes here: " << stored.status().message();
  ASSERT_TRUE(stored.is_ok()) << stored.status().message();
  EXPECT_EQ(calls_.head("a").value().metadata, metadata);
  const Upload upload = calls_.begin("b", metadata).value();
  EXPECT_TRUE(calls_.put_part(upload, 1, 0, "y").is_ok());
  EXPECT_TRUE(calls_.finish(upload, {{1, 1, ""}}).is_ok());
  EXPECT_EQ(calls_.head("b").value().metadata, metadata);
}

TEST_F(FileStoreTest, OddNames) {
  std::vector<std::string> keys = test::odd_keys();
  keys.push_back("line\nbreak");
  keys.push_back("back\\slash");
  keys.push_back("\xff\xfe");
  for (const std::string& key : keys) ASSERT_TRUE(calls_.put(key, "of " + key).is_ok()) << key;
  for (const std::string& key : keys) EXPECT_EQ(calls_.get(key).value(), "of " + key);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(calls_.names().value(), keys);
  EXPECT_TRUE(calls_.remove_many(keys).value().empty());
  EXPECT_TRUE(calls_.names().value().empty());
}

TEST_F(FileStoreTest, PagesAreInTheOrderOfKeysAndComplete) {
  std::vector<std::string> keys;
  keys.reserve(305);
  for (int i = 0; i < 300; ++i) keys.push_back(fmt::format("d{}/{}{}", i % 7, i % 3 == 0 ? "sub/" : "", i));
  for (const char* key : {"d1-x", "d1.x", "d10", "a", "z"}) keys.push_back(key);
  for (const std::string& key : keys) ASSERT_TRUE(calls_.put(key, "x").is_ok());
  std::sort(keys.begin(), keys.end());
  for (const unsigned page : {1u, 2u, 7u, 1000u}) {
    ListRequest request;
    request.keys_max = page;
    EXPECT_EQ(calls_.names(request).value(), keys) << page;
  }
  ListRequest request;
  request.prefix = "d1";
  EXPECT_EQ(calls_.names(request).value().size(), 43u + 3);
  request.prefix = "d1/";
  EXPECT_EQ(calls_.names(request).value().size(), 43u);
  request.prefix = "nothing/here";
  EXPECT_TRUE(calls_.names(request).value().empty());
}

TEST_F(FileStoreTest, OneLevelSumsUpWhatIsBelow) {
  for (const char* key : {"a/1", "a/b/2", "a/b/3", "a/c/4", "a/z", "ab"}) ASSERT_TRUE(calls_.put(key, "x").is_ok());
  ListRequest request;
  request.one_level = true;
  request.prefix = "a/";
  const ListPage page = calls_.page(request).value();
  EXPECT_EQ(page.directories, (std::vector<std::string>{"a/b/", "a/c/"}));
  ASSERT_EQ(page.objects.size(), 2u);
  EXPECT_EQ(page.objects[0].key, "a/1");
  EXPECT_EQ(page.objects[1].key, "a/z");
  request.keys_max = 1;
  EXPECT_EQ(calls_.names(request).value(), (std::vector<std::string>{"a/1", "a/b/", "a/c/", "a/z"}));
  request.prefix = "a";
  EXPECT_EQ(calls_.names(request).value(), (std::vector<std::string>{"a/", "ab"}));
}

TEST_F(FileStoreTest, PartsBecomeAnObjectAtTheEnd) {
  const Upload upload = calls_.begin("d/x").value();
  EXPECT_EQ(calls_.put_part(upload, 2, 4, "5678").value().size, 4u);
  EXPECT_EQ(calls_.put_part(upload, 1, 0, "xxxx").value().size, 4u);
  EXPECT_EQ(calls_.put_part(upload, 1, 0, "1234").value().size, 4u) << "a part may come again";
  EXPECT_EQ(calls_.head("d/x").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(calls_.names().value().empty());
  ASSERT_EQ(calls_.uploads("d/").value().size(), 1u);
  EXPECT_EQ(calls_.uploads("d/").value()[0].key, "d/x");
  EXPECT_TRUE(calls_.uploads("e").value().empty());
  EXPECT_EQ(calls_.finish(upload, {{1, 4, ""}}).status().code(), StatusCode::kInvalidArgument) << "a part is missing";
  EXPECT_TRUE(calls_.finish(upload, {{1, 4, ""}, {2, 4, ""}}).is_ok());
  EXPECT_EQ(calls_.get("d/x").value(), "12345678");
  EXPECT_EQ(calls_.put_part(upload, 1, 0, "1").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(calls_.finish(upload, {}).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(unfinished().empty());
}

TEST_F(FileStoreTest, ACopyHasTheContentAndTheMetadata) {
  for (const size_t size : {0, 1, 4096, 3 * 4096 + 5, 3'000'001}) {
    const std::string content = test::content_of(size, size);
    const std::string tag = calls_.put("a/x", content, {{"mode", "1"}}).value().tag;
    const Result<StoredObject> copied = calls_.copy("a/x", "b/c/y", tag);
    ASSERT_TRUE(copied.is_ok()) << copied.status().message();
    EXPECT_FALSE(copied->verified) << "nobody compared anything";
    EXPECT_TRUE(calls_.get("b/c/y", 0, size + 1, copied->tag).value() == content);
    EXPECT_EQ(calls_.head("b/c/y").value().metadata, (ObjectMetadata{{"mode", "1"}}));
    EXPECT_TRUE(calls_.copy("a/x", "b/c/y", "", ObjectMetadata{{"owner", "2"}}).is_ok()) << "it is replaced";
    EXPECT_EQ(calls_.head("b/c/y").value().metadata, (ObjectMetadata{{"owner", "2"}}));
    EXPECT_TRUE(calls_.get("a/x", 0, size + 1, tag).value() == content) << "the source stays";
  }
  EXPECT_TRUE(unfinished().empty());
}

// A filesystem that shares some blocks and fails then, copies a little at a time, and gives up in the middle.
class HalfCopyingStorage final : public PosixStorage {
 public:
  Status clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) override {
    ++clones_;
    if (clones_work_) {  // as a filesystem with shared blocks does
      std::vector<std::byte> bytes(length);
      FPFS_RETURN_IF_ERROR(pread(from, bytes, from_offset).status());
      return pwrite(to, bytes, to_offset);
    }
    FPFS_RETURN_IF_ERROR(pwrite(to, test::bytes_of(std::string(length / 2, '?')), to_offset));
    return Status::from_errno(EIO, "share");
  }
  Result<uint64_t> copy_range(Handle from, uint64_t from_offset, uint64_t length, Handle to,
                              uint64_t to_offset) override {
    if (++copies_ > 3) return Status::from_errno(EXDEV, "copy");
    return PosixStorage::copy_range(from, from_offset, std::min<uint64_t>(length, 5000), to, to_offset);
  }
  std::atomic<int> clones_ = 0, copies_ = 0;
  std::atomic<bool> clones_work_ = false;
};

TEST(FileStoreCopyTest, WhateverTheFilesystemCanDoTheContentIsRight) {
  test::TemporaryDirectory directory(test::quick_place());
  HalfCopyingStorage storage;
  ThreadExecutor executor(1);
  uint64_t random = 0;
  const auto store = FileStore::open(storage, executor, directory.path(), [&] { return ++random; }).value();
  test::BlockingStore calls(*store);
  for (const size_t size : {size_t{100'001}, size_t{3'000'001}, size_t{8192}}) {
    const std::string content = test::content_of(size, 3);
    ASSERT_TRUE(calls.put("a", content).is_ok());
    for (const bool clones_work : {false, true}) {
      storage.clones_work_ = clones_work;
      storage.copies_ = 0;
      const Result<StoredObject> copied = calls.copy("a", "b");
      ASSERT_TRUE(copied.is_ok()) << copied.status().message();
      EXPECT_TRUE(calls.get("b", 0, size + 1).value() == content) << size;
      EXPECT_TRUE(!clones_work || storage.copies_ == (size % 4096 == 0 ? 0 : 1)) << "only what is behind whole blocks";
      ASSERT_TRUE(calls.remove("b").is_ok());
    }
  }
  EXPECT_EQ(storage.clones_, 6);
}

TEST_F(FileStoreTest, ACopyOfWhatIsNotThere) {
  const std::string old = calls_.put("x", "1").value().tag;
  ASSERT_TRUE(calls_.put("x", "22").is_ok());
  EXPECT_EQ(calls_.copy("x", "y", old).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(calls_.copy("missing", "y").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(calls_.copy("x", "x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.copy("x", "../y").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.copy("x", "y", "", ObjectMetadata{{"Bad", ""}}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.copy("x", "x/y").status().code(), StatusCode::kExists);
  EXPECT_EQ(calls_.names().value(), std::vector<std::string>{"x"});
  EXPECT_TRUE(unfinished().empty());
}

TEST_F(FileStoreTest, AnAbortedUploadLeavesNothing) {
  const Upload upload = calls_.begin("x").value();
  ASSERT_TRUE(calls_.put_part(upload, 1, 0, "1234").is_ok());
  EXPECT_TRUE(calls_.abort(upload).is_ok());
  EXPECT_TRUE(calls_.abort(upload).is_ok());
  EXPECT_TRUE(unfinished().empty());
  EXPECT_EQ(calls_.put_part(upload, 1, 0, "1234").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(calls_.put_part({"x", "../../x"}, 1, 0, "1234").status().code(), StatusCode::kNotFound);
}

TEST_F(FileStoreTest, WhatACutOffPutLeftGoesAfterADay) {
  ASSERT_TRUE(calls_.put("x", "1").is_ok());
  const std::string place = directory_ / ".fastpersistfs-unfinished-objects/";
  for (const char* name : {"put-old", "put-new"}) std::ofstream(place + name) << "half";
  const struct timespec old[2] = {{time(nullptr) - 25 * 3600, 0}, {time(nullptr) - 25 * 3600, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (place + "put-old").c_str(), old, 0), 0);
  EXPECT_TRUE(calls_.uploads().value().empty());
  EXPECT_EQ(unfinished(), std::vector<std::string>{"put-new"});
}

TEST_F(FileStoreTest, DirectoriesGoWithTheirLastObject) {
  ASSERT_TRUE(calls_.put("a/b/c", "x").is_ok());
  ASSERT_TRUE(calls_.put("a/d", "x").is_ok());
  EXPECT_TRUE(calls_.remove("a/b/c").is_ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a/b"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "a"));
  EXPECT_TRUE(calls_.remove("a/d").is_ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a"));
  EXPECT_TRUE(calls_.remove("a/d").is_ok()) << "it is not there, as wanted";
  EXPECT_TRUE(std::filesystem::exists(directory_.path()));
}

TEST_F(FileStoreTest, WritersAndRemoversOfOneDirectory) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> failures = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = fmt::format("a/b/{}", t);
        if (!calls_.put(key, "x").is_ok() || !calls_.get(key).is_ok() || !calls_.remove(key).is_ok()) ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(calls_.names().value().empty());
}

TEST_F(FileStoreTest, WhatIsNoFileIsNoObject) {
  test::TemporaryDirectory elsewhere;
  std::ofstream(elsewhere / "secret") << "secret";
  std::filesystem::create_symlink(elsewhere / "secret", directory_ / "link");
  std::filesystem::create_directory_symlink(elsewhere.path(), directory_ / "dir");
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(directory_ / "real");
  for (const char* key : {"link", "dir/secret", "fifo", "real", "not-there", "no/such/thing"})
    EXPECT_EQ(calls_.get(key).status().code(), StatusCode::kNotFound) << key;
  EXPECT_TRUE(calls_.names().value().empty());
  EXPECT_EQ(calls_.put("dir/new", "x").status().code(), StatusCode::kExists);
  EXPECT_EQ(calls_.put("real", "x").status().code(), StatusCode::kExists);
  EXPECT_TRUE(unfinished().empty());
  EXPECT_TRUE(calls_.put("link", "x").is_ok()) << "replaces the link itself";
  std::ifstream file(elsewhere / "secret");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "secret");
}

TEST_F(FileStoreTest, BadKeysAreRefused) {
  EXPECT_EQ(calls_.put("../x", "x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.get("/etc/passwd").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.remove("a//b").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls_.put("x", "x", {{"Bad", "x"}}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(FileStoreTest, ADirectoryThatIsNotThereIsTheWrongStore) {
  const auto missing = open(directory_ / "missing");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kWrongStore);
  EXPECT_NE(missing.status().message().find("is it mounted?"), std::string::npos);
  std::ofstream(directory_ / "file") << "x";
  EXPECT_EQ(open(directory_ / "file").status().code(), StatusCode::kWrongStore);
}

TEST_F(FileStoreTest, AfterCloseEverythingIsCancelled) {
  ASSERT_TRUE(calls_.put("a", "x").is_ok());
  store_->close();
  EXPECT_EQ(calls_.put("a", "y").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls_.get("a").status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls_.check().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace fpfs
