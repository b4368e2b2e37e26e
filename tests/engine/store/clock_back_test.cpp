// The clock goes back while an array is mounted: a machine that starts with a wrong clock mounts before it is set right.
// What a crash leaves behind that is what a crash leaves, not damage.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/engine/file/sim_array.h"
#include "tests/engine/store/expect_clean.h"

namespace fpfs::test {
namespace {

// The whole file anew, in place, and committed.
Status change(SimArray& array, File& file, const Bytes& content) {
  FPFS_RETURN_IF_ERROR(array.write(file, 0, content));
  return array.commit(file);
}

TEST(ClockBackTest, WhatACrashCutShortIsTakenBack) {
  unsigned taken_back = 0;
  for (uint64_t seed = 1; seed <= 80 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const size_t length = seed % 2 == 0 ? 3 * kTestChunk + 1000 : 20'000;  // or it lies in its index
    SimArray array(seed, 2);
    std::shared_ptr<File> file = array.create("file");
    ASSERT_TRUE(change(array, *file, make_bytes(length, 1)).is_ok());
    array.world().turn_clock_back(std::chrono::hours(1));
    array.world().cut_at(array.world().boundaries() + 1 + seed % 60);
    uint64_t durable = 1;
    while (!array.world().is_off() && change(array, *file, make_bytes(length, durable + 1)).is_ok()) ++durable;
    file.reset();
    array.world().cut_at(0);
    array.crash();
    bool is_later = false;
    array.world().executor().post_after(std::chrono::seconds(1), [&is_later] { is_later = true; });
    ASSERT_TRUE(array.world().run_until([&is_later] { return is_later; }));
    array.open();
    taken_back += array.store().recovery().torn_tails;
    Result<std::shared_ptr<File>> again = array.try_open("file");
    ASSERT_TRUE(again.is_ok()) << again.status().message();
    const Result<Bytes> read = array.read_all(**again);
    ASSERT_TRUE(read.is_ok()) << read.status().message();
    EXPECT_TRUE(*read == make_bytes(length, durable) || *read == make_bytes(length, durable + 1));
    again->reset();
    ASSERT_TRUE(array.close().is_ok());
    expect_clean(array);
  }
  EXPECT_GT(taken_back, 0u) << "no commit was cut short";
}

}  // namespace
}  // namespace fpfs::test
