// fastpersist-array as a program outside uses it. What others see of its files, kills and full drives:
// tests/tools/test_library.py.
#include "engine/tensors/array.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/array/array.h"
#include "engine/io/posix_environment.h"
#include "tests/support/temporary_directory.h"

namespace fastpersist {
namespace {

using Numbers = std::vector<uint32_t>;

Numbers numbers(size_t count, uint32_t seed) {
  Numbers made(count);
  for (size_t i = 0; i < count; ++i) made[i] = static_cast<uint32_t>(i) * 2654435761U + seed;
  return made;
}

Tensor tensor(const std::string& name, const Numbers& from) {
  return {name, "U32", {from.size()}, from.data(), from.size() * sizeof(uint32_t)};
}

Target target(const std::string& name, Numbers& to) {
  return {name, to.data(), to.size() * sizeof(uint32_t)};
}

class ArrayLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    fpfs::PosixEnvironment environment;
    fpfs::FormatOptions format;
    format.chunk_size = 64 * fpfs::kKiB;
    ASSERT_TRUE(fpfs::Array::format(environment, {directory_ / "0", directory_ / "1"}, format).is_ok());
    open(false);
  }
  void open(bool read_only) {
    array_.reset();
    Error error;
    array_ =
        Array::open(members(), {.read_only = read_only, .buffer_memory = 16 << 20, .buffered_members = true}, error);
    ASSERT_NE(array_, nullptr) << error.message;
  }
  std::string members() const { return (directory_ / "0") + ":" + (directory_ / "1"); }
  void expect_ok(const Error& error) { EXPECT_TRUE(error.is_ok()) << error.message; }
  void expect(int number, const Error& error, const std::string& words) {
    EXPECT_EQ(error.number, number) << error.message;
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
  }

  const fpfs::test::TemporaryDirectory directory_;
  std::unique_ptr<Array> array_;
};

TEST_F(ArrayLibraryTest, SomeTensorsOfAFile) {
  const Numbers first = numbers(100'003, 1), second = numbers(7, 2), none;
  const double scalar = 2.5;
  for (const char* const path : {"/file", "/file", "file"}) {
    expect_ok(array_->save(path,
                           {tensor("first", first),
                            tensor("none", none),
                            tensor("second", second),
                            {"scalar", "F64", {}, &scalar, sizeof scalar}},
                           {.metadata = {{"key", "value"}}}));
    Numbers read(7);
    double number = 0;
    expect_ok(array_->load(path, {target("second", read), {"scalar", &number, sizeof number}}));
    EXPECT_EQ(read, second);
    EXPECT_EQ(number, 2.5);
  }
  expect_ok(array_->close());
  expect_ok(array_->close());
  open(true);
  Contents contents;
  expect_ok(array_->list("file", contents));
  ASSERT_EQ(contents.tensors.size(), 4u);
  EXPECT_EQ(contents.tensors[0].name, "scalar");
  EXPECT_EQ(contents.tensors[1].shape, std::vector<uint64_t>{100'003});
  EXPECT_EQ(contents.metadata.at("key"), "value");
  Numbers read(first.size());
  expect_ok(array_->load("file", {target("first", read)}));
  EXPECT_EQ(read, first);
}

TEST_F(ArrayLibraryTest, WhatIsRefused) {
  const Numbers some = numbers(10, 1);
  Numbers read(10);
  expect_ok(array_->save("/file", {tensor("a", some), tensor("b", some)}));
  expect(EINVAL, array_->save("/x", {{"a", "U32", {11}, some.data(), 40}}), "need 44");
  expect(EINVAL, array_->save("/x", {{"a", "U32", {10}, nullptr, 40}}), "in memory");
  expect(EINVAL, array_->save("/x", {tensor("a", some), tensor("a", some)}), "name of its own");
  expect(EINVAL, array_->save("/x", {{"a", "u32", {10}, some.data(), 40}}), "'u32'");
  expect(EINVAL, array_->save("/", {tensor("a", some)}), "names no file");
  expect(EINVAL, array_->save(std::string("/x\0y", 4), {tensor("a", some)}), "null byte");
  expect(ENOENT, array_->save("/no/file", {tensor("a", some)}), "/no");
  expect(ENOTDIR, array_->save("/file/x", {tensor("a", some)}), "/file");
  expect(ENAMETOOLONG, array_->save(std::string(256, 'x'), {tensor("a", some)}), "xxx");
  expect(ENOENT, array_->load("/file", {target("c", read)}), "'c'");
  expect(EINVAL, array_->load("/file", {target("a", read), target("a", read)}), "twice");
  expect(EINVAL, array_->load("/file", {{"a", read.data(), 36}}), "memory for 36");
  expect(ENOENT, array_->load("/none", {}), "/none");
  expect(ENOENT, array_->remove("/none"), "/none");
  expect_ok(array_->make_directories("//a/./b/"));
  expect_ok(array_->make_directories("a/b"));
  expect_ok(array_->make_directories(""));
  expect(EISDIR, array_->save("a/b", {tensor("a", some)}), "a/b");
  expect(EISDIR, array_->remove("a/b"), "a/b");
  expect(EINVAL, array_->make_directories("a/../c"), "'..'");
  expect(ENOTDIR, array_->make_directories("file/c"), "file");
  Contents contents;
  expect(ENOENT, array_->list("/x", contents), "/x");
  // Nobody else has it.
  Error error;
  EXPECT_EQ(Array::open(members(), {.buffered_members = true}, error), nullptr);
  EXPECT_EQ(error.number, EBUSY) << error.message;
  EXPECT_EQ(Array::open(directory_ / "0", {.buffered_members = true}, error), nullptr);
  EXPECT_FALSE(error.is_ok());
  open(true);
  expect(EROFS, array_->save("/x", {tensor("a", some)}), "/x");
  expect(EROFS, array_->remove("/file"), "/file");
  expect(EROFS, array_->make_directories("/y"), "/y");
  expect_ok(array_->load("/file", {target("b", read)}));
  EXPECT_EQ(read, some);
}

TEST_F(ArrayLibraryTest, RemovedAndGone) {
  const Numbers some = numbers(100'000, 1);
  expect_ok(array_->save("/file", {tensor("a", some)}));
  expect_ok(array_->remove("/file"));
  Contents contents;
  expect(ENOENT, array_->list("/file", contents), "/file");
  expect_ok(array_->save("/file", {}));
  expect_ok(array_->list("/file", contents));
  EXPECT_TRUE(contents.tensors.empty());
}

// Also of one file: whoever loads finds one of those that were saved, whole.
TEST_F(ArrayLibraryTest, FromSeveralThreads) {
  constexpr unsigned kThreads = 4, kRounds = 12;
  constexpr size_t kCount = 50'000;
  expect_ok(array_->save("/shared", {tensor("a", numbers(kCount, 0))}));
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        const std::string own = "/own" + std::to_string(thread);
        const Numbers saved = numbers(kCount, 100 * thread + round);
        Numbers read(kCount);
        expect_ok(array_->save(own, {tensor("a", saved)}));
        expect_ok(array_->load(own, {target("a", read)}));
        EXPECT_EQ(read, saved);
        expect_ok(array_->save("/shared", {tensor("a", saved)}));
        expect_ok(array_->load("/shared", {target("a", read)}));
        EXPECT_EQ(read, numbers(kCount, read[0]));
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect_ok(array_->close());
}

}  // namespace
}  // namespace fastpersist
