#include "fs/transport/ring_entry.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace fpfs {
namespace {

constexpr size_t kPayloadBytes = 8192;

class RingEntryTest : public testing::Test {
 protected:
  RingEntry& add(unsigned queue = 0) { return **entries_.add(queue); }

  // As the kernel does.
  static void put_request(RingEntry& entry, uint64_t kernels_number, const std::string& payload = "",
                          uint32_t operation_bytes = 0) {
    wire::InHeader in{};
    in.length = static_cast<uint32_t>(sizeof in + operation_bytes + payload.size());
    in.unique = kernels_number;
    std::memcpy(entry.header().in_out, &in, sizeof in);
    std::memcpy(entry.payload().data(), payload.data(), payload.size());
    entry.header().commit_id = kernels_number;
    entry.header().payload_bytes = static_cast<uint32_t>(payload.size());
    entry.begin_request();
  }

  ssize_t answer(uint64_t unique, int error, std::vector<std::string> parts = {}) {
    wire::OutHeader header{sizeof header, error, unique};
    std::vector<struct iovec> vector{{&header, sizeof header}};
    for (std::string& part : parts) vector.push_back({part.data(), part.size()});
    return entries_.answer(vector.data(), static_cast<int>(vector.size()));
  }

  static wire::OutHeader answer_in(RingEntry& entry) {
    wire::OutHeader out;
    std::memcpy(&out, entry.header().in_out, sizeof out);
    return out;
  }

  RingEntries entries_{4, kPayloadBytes};
};

TEST_F(RingEntryTest, AnswerGoesIntoTheEntryWithTheKernelsNumber) {
  add();
  RingEntry& entry = add(1);
  EXPECT_EQ(entry.queue(), 1U);
  put_request(entry, 42, "name");
  EXPECT_TRUE(RingEntries::has_number(entry.unique()));
  EXPECT_FALSE(RingEntries::has_number(42));
  EXPECT_EQ(answer(entry.unique(), 0, {"one ", "two"}), static_cast<ssize_t>(sizeof(wire::OutHeader)) + 7);
  EXPECT_EQ(answer_in(entry).unique, 42U);
  EXPECT_EQ(answer_in(entry).error, 0);
  EXPECT_EQ(entry.header().payload_bytes, 7U);
  EXPECT_EQ(std::memcmp(entry.payload().data(), "one two", 7), 0);
  entry.wait_until_answered();
}

TEST_F(RingEntryTest, OnlyTheFirstAnswerCounts) {
  RingEntry& entry = add();
  put_request(entry, 2);
  const uint64_t first = entry.unique();
  EXPECT_GT(answer(first, -EIO), 0);
  EXPECT_EQ(answer(first, 0, {"late"}), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(answer_in(entry).error, -EIO);
  // Nor does it answer the entry's next request.
  put_request(entry, 4);
  EXPECT_NE(entry.unique(), first);
  EXPECT_EQ(answer(first, 0, {"very late"}), -1);
  EXPECT_GT(answer(entry.unique(), 0), 0);
  EXPECT_EQ(answer_in(entry).unique, 4U);
  EXPECT_EQ(entry.header().payload_bytes, 0U);
}

TEST_F(RingEntryTest, AnswersToNobodyFind) {
  EXPECT_EQ(answer(uint64_t{1} << 62, 0), -1);  // no such entry yet
  RingEntry& entry = add();
  EXPECT_EQ(answer(entry.unique(), 0), -1);  // no request yet
  put_request(entry, 2);
  EXPECT_EQ(answer(entry.unique() + (uint64_t{1} << 40), 0), -1);
  EXPECT_EQ(answer(UINT64_MAX, 0), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(RingEntryTest, AnswerThatDoesNotFitIsAnError) {
  RingEntry& entry = add();
  put_request(entry, 2);
  EXPECT_GT(answer(entry.unique(), 0, {std::string(kPayloadBytes, 'x'), "y"}), 0);
  EXPECT_EQ(answer_in(entry).error, -EIO);
  EXPECT_EQ(entry.header().payload_bytes, 0U);
  put_request(entry, 4);
  EXPECT_GT(answer(entry.unique(), 0, {std::string(kPayloadBytes, 'x')}), 0);
  EXPECT_EQ(answer_in(entry).error, 0);
}

TEST_F(RingEntryTest, LengthsThatContradictEachOtherAreSeen) {
  RingEntry& entry = add();
  size_t operation = 0, payload = 0;
  put_request(entry, 2, "payload", 40);
  ASSERT_TRUE(entry.measure(operation, payload));
  EXPECT_EQ(operation, 40U);
  EXPECT_EQ(payload, 7U);
  put_request(entry, 2, "payload", sizeof(wire::RingEntryHeader::operation));
  EXPECT_TRUE(entry.measure(operation, payload));
  put_request(entry, 2, "payload", sizeof(wire::RingEntryHeader::operation) + 1);
  EXPECT_FALSE(entry.measure(operation, payload));
  put_request(entry, 2, "payload");
  entry.header().payload_bytes = 8;  // more than the request's length says
  EXPECT_FALSE(entry.measure(operation, payload));
  entry.header().payload_bytes = UINT32_MAX;
  EXPECT_FALSE(entry.measure(operation, payload));
}

TEST_F(RingEntryTest, NoMoreThanTheLimit) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(entries_.add(0).is_ok());
  EXPECT_EQ(entries_.add(0).status().code(), StatusCode::kBusy);
}

// Many requests, each answered by two threads at once: by one of them.
TEST_F(RingEntryTest, OneOfManyAnswersCounts) {
  RingEntry& entry = add();
  std::atomic<uint64_t> open{0};
  std::atomic<uint64_t> sent{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (sent.load() < 1000)
        if (const uint64_t unique = open.load(); unique != 0 && answer(unique, 0, {std::to_string(unique)}) > 0)
          sent.fetch_add(1);
    });
  for (uint64_t i = 1; i <= 1000; ++i) {
    put_request(entry, 2 * i);
    open = entry.unique();
    entry.wait_until_answered();
    EXPECT_EQ(answer_in(entry).unique, 2 * i);
    const std::string expected = std::to_string(entry.unique());
    ASSERT_EQ(entry.header().payload_bytes, expected.size());
    ASSERT_EQ(std::memcmp(entry.payload().data(), expected.data(), expected.size()), 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent, 1000U);
}

}  // namespace
}  // namespace fpfs
