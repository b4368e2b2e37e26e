// A file is saved in one step, whenever the power goes.
#include "engine/tensors/save_file.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/file/sim_array.h"
#include "tests/engine/store/expect_clean.h"

namespace fpfs::test {
namespace {

constexpr size_t kLength = 3 * kTestChunk + 1000;

Status save(SimArray& array, const std::string& name, uint64_t salt, size_t length = kLength) {
  const Bytes content = make_bytes(length, salt);
  const std::span<const std::byte> all(content);
  const std::vector<std::span<const std::byte>> pieces{all.first(length / 3), {}, all.subspan(length / 3)};
  return save_file(array.store(), array.store().root(), name, 0644, pieces, salt,
                   [&array](const std::function<void(Answered)>& start) {
                     std::optional<Status> answer;
                     start([&answer](const Status& status) { answer = status; });
                     array.world().run_until([&] { return answer.has_value(); });  // also without power
                     return answer.value_or(Status::error(StatusCode::kIoError, "the power is off"));
                   });
}

std::vector<std::string> names(SimArray& array) {
  std::vector<std::string> found;
  EXPECT_TRUE(array.store()
                  .storage()
                  .list(array.store().root(),
                        [&](const DirectoryEntry& entry) {
                          if (entry.name != "." && entry.name != "..") found.push_back(entry.name);
                          return true;
                        })
                  .is_ok());
  return found;
}

// A small file lies in its index, another one on the members.
class SaveFileTest : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SaveFileTest, testing::Values(1000, kLength));

TEST_P(SaveFileTest, APowerCutLeavesTheOldFileOrTheNewOne) {
  unsigned old_ones = 0, new_ones = 0;
  uint64_t length = 0;
  for (uint64_t cut = 0; cut <= length && !testing::Test::HasFailure(); ++cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + " of " + std::to_string(length));
    SimArray array(cut + 1, 2);
    ASSERT_TRUE(save(array, "file", 1, GetParam()).is_ok());
    const uint64_t begin = array.world().boundaries();
    if (cut > 0) array.world().cut_at(begin + cut);
    const bool is_saved = save(array, "file", 2, GetParam()).is_ok();
    if (cut == 0) length = array.world().boundaries() - begin;
    array.world().cut_at(0);
    array.crash();
    array.open();
    ASSERT_TRUE(array.try_open("file").is_ok());
    const Bytes content = *array.read_all(*array.open("file"));
    const bool is_new = content == make_bytes(GetParam(), 2);
    if (!is_new) {
      EXPECT_EQ(content, make_bytes(GetParam(), 1));
      EXPECT_FALSE(is_saved) << "what was told is durable";
    }
    ++(is_new ? new_ones : old_ones);
    for (const std::string& name : names(array))
      if (name != "file") {
        EXPECT_EQ(name, ".fastpersist-0000000000000002");
        EXPECT_EQ(*array.read_all(*array.open(name)), make_bytes(GetParam(), 2));
      }
    ASSERT_TRUE(save(array, "file", 3, GetParam()).is_ok());
    EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(GetParam(), 3));
    ASSERT_TRUE(array.close().is_ok());
    expect_clean(array);
  }
  EXPECT_GT(old_ones, 0u);
  EXPECT_GT(new_ones, 0u);
}

TEST_P(SaveFileTest, APowerCutLeavesANewFileOrNone) {
  unsigned files = 0, none = 0;
  uint64_t length = 0;
  for (uint64_t cut = 0; cut <= length && !testing::Test::HasFailure(); ++cut) {
    SCOPED_TRACE("cut at " + std::to_string(cut) + " of " + std::to_string(length));
    SimArray array(cut + 1, 2);
    const uint64_t begin = array.world().boundaries();
    if (cut > 0) array.world().cut_at(begin + cut);
    const bool is_saved = save(array, "file", 2, GetParam()).is_ok();
    if (cut == 0) length = array.world().boundaries() - begin;
    array.world().cut_at(0);
    array.crash();
    array.open();
    const std::vector<std::string> found = names(array);
    if (found.empty()) {
      EXPECT_FALSE(is_saved);
      ++none;
    } else {
      ASSERT_EQ(found, std::vector<std::string>{"file"});
      EXPECT_EQ(*array.read_all(*array.open("file")), make_bytes(GetParam(), 2));
      ++files;
    }
    ASSERT_TRUE(array.close().is_ok());
    expect_clean(array);
  }
  EXPECT_GT(none, 0u);
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace fpfs::test
