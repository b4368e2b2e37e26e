// What requests came to is counted once each, with the time it took, whichever thread answers and however many wait.
#include "fs/protocol/operation_times.h"

#include <cerrno>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr uint32_t kLookupOpcode = 1;
constexpr uint64_t kUs = 1000;

void answer(OperationTimes& times, uint64_t unique, uint64_t now_ns, int errno_value = 0, size_t bytes = 0) {
  static const std::vector<char> data(1 << 20);
  wire::OutHeader header{0, -errno_value, unique};
  iovec parts[] = {{&header, sizeof header}, {const_cast<char*>(data.data()), bytes}};
  times.end(parts, bytes > 0 ? 2 : 1, now_ns);
}

OperationTotals of(const OperationTimes& times, Operation operation) {
  return times.totals().operations[static_cast<size_t>(operation)];
}

TEST(OperationTimes, ADurationIsInTheBucketWhoseBoundIsNotBelowIt) {
  EXPECT_EQ(latency_bucket(0), 0U);
  for (size_t bucket = 0; bucket + 1 < kLatencyBuckets; ++bucket) {
    EXPECT_EQ(latency_bucket(latency_bound_us(bucket) * kUs), bucket);
    EXPECT_EQ(latency_bucket(latency_bound_us(bucket) * kUs + 1), bucket + 1);
  }
  EXPECT_EQ(latency_bucket(UINT64_MAX / 2), kLatencyBuckets - 1);
}

TEST(OperationTimes, AnAnswerIsCountedOnceWithItsDurationBytesAndFailure) {
  OperationTimes times;
  times.begin(2, wire::kOpcodeRead, 1000 * kUs);
  times.begin(4, wire::kOpcodeRead, 1000 * kUs);
  times.begin(6, kLookupOpcode, 1000 * kUs);
  EXPECT_EQ(times.totals().under_way, 3U);
  answer(times, 2, 1003 * kUs, 0, 4096);
  answer(times, 2, 1003 * kUs, 0, 4096);  // a second answer, which the kernel would not take
  answer(times, 4, 1100 * kUs, EIO);
  answer(times, 6, 1005 * kUs, ENOENT);
  answer(times, 8, 1005 * kUs);  // never begun
  const OperationTotals reads = of(times, Operation::kRead);
  EXPECT_EQ(reads.count(), 2U);
  EXPECT_EQ(reads.buckets[0], 1U);
  EXPECT_EQ(reads.buckets[latency_bucket(100 * kUs)], 1U);
  EXPECT_EQ(reads.duration_ns, 103 * kUs);
  EXPECT_EQ(reads.failures[static_cast<size_t>(Failure::kIo)], 1U);
  EXPECT_EQ(of(times, Operation::kLookup).failures[static_cast<size_t>(Failure::kCaller)], 1U);
  EXPECT_EQ(times.totals().bytes_read, 4096U);
  EXPECT_EQ(times.totals().under_way, 0U);
}

TEST(OperationTimes, WrittenIsWhatTheAnswerSays) {
  OperationTimes times;
  times.begin(2, wire::kOpcodeWrite, 0);
  wire::OutHeader header{0, 0, 2};
  uint32_t written[] = {12345, 0};
  iovec parts[] = {{&header, sizeof header}, {written, sizeof written}};
  times.end(parts, 2, 1);
  EXPECT_EQ(times.totals().bytes_written, 12345U);
}

TEST(OperationTimes, WhatIsNotAnsweredIsNotWaitedFor) {
  OperationTimes times;
  for (const uint32_t opcode :
       {wire::kOpcodeForget, wire::kOpcodeForgetMany, wire::kOpcodeInterrupt, wire::kOpcodeInit})
    times.begin(opcode * 2, opcode, 0);
  EXPECT_EQ(times.totals().under_way, 0U);
}

TEST(OperationTimes, MoreUnderWayThanHavePlacesAreAllCounted) {
  OperationTimes times;
  constexpr uint64_t kRequests = 5000, kRing = uint64_t{1} << 62;
  for (uint64_t i = 1; i <= kRequests; ++i) {
    times.begin(2 * i, kLookupOpcode, 0);
    times.begin(kRing | i << 40 | 1, wire::kOpcodeFlush, 0);
  }
  EXPECT_EQ(times.totals().under_way, 2 * kRequests);
  for (uint64_t i = 1; i <= kRequests; ++i) {
    answer(times, kRing | i << 40 | 1, 8 * kUs);
    answer(times, 2 * i, 4 * kUs);
  }
  EXPECT_EQ(of(times, Operation::kLookup).buckets[0], kRequests);
  EXPECT_EQ(of(times, Operation::kFlush).buckets[1], kRequests);
  EXPECT_EQ(times.totals().under_way, 0U);
}

TEST(OperationTimes, ThreadsCountTogether) {
  OperationTimes times;
  constexpr uint64_t kThreads = 4, kEach = 20000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&times, t] {
      for (uint64_t i = 1; i <= kEach; ++i) {
        const uint64_t unique = 2 * (i * kThreads + t);
        times.begin(unique, wire::kOpcodeRead, 0);
        answer(times, unique, 5 * kUs, 0, 100);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(of(times, Operation::kRead).buckets[1], kThreads * kEach);
  EXPECT_EQ(times.totals().bytes_read, kThreads * kEach * 100);
}

TEST(OperationTimes, EachOperationAndFailureHasAName) {
  EXPECT_STREQ(to_string(operation_of(kLookupOpcode)), "lookup");
  EXPECT_STREQ(to_string(operation_of(45)), "rename");
  EXPECT_STREQ(to_string(operation_of(wire::kOpcodeIoctl)), "ioctl");
  EXPECT_STREQ(to_string(operation_of(4711)), "other");
  EXPECT_STREQ(to_string(failure_of(ENOSPC)), "space");
}

}  // namespace
}  // namespace fpfs
