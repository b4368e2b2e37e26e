// The end of an array that was opened read-only: it changes nothing, whatever there would be to do.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/io/posix_environment.h"
#include "tests/engine/store/small_store.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

// A writer that synced and never closed leaves what was allocated ahead. The next close of the file gives it back.
TEST(ReadOnlyClose, WhatIsAllocatedAheadStays) {
  const test::TemporaryDirectory place(test::quick_place());
  const std::vector<std::string> directories = {place / "a"};
  PosixEnvironment environment(2);
  test::format_small_array(environment, directories);
  std::vector<std::byte> content(24 * test::kSmallChunk);
  test::fill(content, 3, 0);
  std::unique_ptr<Store> store = test::open_small_store(environment, directories, false);
  {
    Result<Store::Created> created = store->create(store->root(), "file", 0600);
    ASSERT_TRUE(created.is_ok());
    for (size_t at = 0; at < content.size(); at += test::kSmallChunk)
      ASSERT_TRUE(
          store->write_sync(*created->file, FileOffset(at), std::span(content).subspan(at, test::kSmallChunk)).is_ok());
    ASSERT_TRUE(store->commit_sync(*created->file).is_ok());
  }
  for (int i = 0; i < 5000 && store->status().open_files > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(store->close().is_ok());
  store.reset();

  store = test::open_small_store(environment, directories, true);
  {
    Result<Store::Node> node = store->lookup(store->root(), "file");
    ASSERT_TRUE(node.is_ok());
    Result<std::shared_ptr<File>> file = store->open_file(node->handle.get(), false);
    ASSERT_TRUE(file.is_ok());
    node->handle.reset();
    std::vector<std::byte> found(content.size());
    ASSERT_EQ(store->read_sync(**file, FileOffset(0), found).value(), found.size());
    EXPECT_TRUE(found == content);
    const Status closed = store->close();  // with the file open, as at the end of a mount that is asked to end
    EXPECT_TRUE(closed.is_ok()) << closed.message();
  }
}

}  // namespace
}  // namespace fpfs
