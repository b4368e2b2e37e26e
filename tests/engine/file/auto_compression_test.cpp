// When chunks are encoded with compress=auto: drives that are busy, processors that idle, and for how long that holds.
#include "engine/file/auto_compression.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/io/posix_environment.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;

constexpr size_t kChunk = 1'000'000;

// A machine of which the test says what its processors do.
class TestEnvironment : public PosixEnvironment {
 public:
  ProcessorTimes processor_times() override {
    ++asked;
    return times;
  }
  ProcessorTimes times{.now_ns = 1'000'000'000'000, .idle_ns = 1'000'000};
  int asked = 0;
};

class AutoCompressionTest : public ::testing::Test {
 protected:
  // So many processors idle meanwhile.
  void pass(milliseconds time, double idle) {
    const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
    environment_.times.now_ns += ns;
    environment_.times.idle_ns += static_cast<uint64_t>(static_cast<double>(ns) * idle);
  }
  // A chunk comes each millisecond for so long. So many processors idle, less the `taken` ones while it is encoded. How
  // many chunks are.
  int write(milliseconds time, double idle, double taken = 1, bool busy = true) {
    int encoded = 0;
    for (milliseconds past(0); past < time; ++past) {
      const bool is_encoded = choice_.encodes(environment_.times.now_ns, kChunk, busy);
      pass(milliseconds(1), is_encoded ? std::max(idle - taken, 0.0) : idle);
      if (!is_encoded) continue;
      ++encoded;
      choice_.encoded(kChunk, static_cast<uint64_t>(taken * 1e6));
    }
    return encoded;
  }

  TestEnvironment environment_;
  AutoCompression choice_{environment_};
};

constexpr milliseconds kLook = std::chrono::duration_cast<milliseconds>(AutoCompression::kLook);
constexpr milliseconds kWhileMin = std::chrono::duration_cast<milliseconds>(AutoCompression::kWhileMin);
constexpr milliseconds kWhileMax = std::chrono::duration_cast<milliseconds>(AutoCompression::kWhileMax);

TEST_F(AutoCompressionTest, EncodesWhatWaitsForDrivesWhileProcessorsIdle) {
  EXPECT_EQ(write(kLook, 1.5), 0);
  EXPECT_EQ(write(kWhileMin, 1.5), kWhileMin.count());
}

TEST_F(AutoCompressionTest, LeavesChunksAloneWhoseDriveIsNotBusy) {
  EXPECT_EQ(write(milliseconds(1000), 1.5, 1, false), 0);
  // Each by itself, also when others are encoded.
  while (write(milliseconds(1), 1.5) == 0) {
  }
  EXPECT_EQ(write(milliseconds(50), 1.5, 1, false), 0);
  EXPECT_EQ(write(milliseconds(50), 1.5), 50);
}

TEST_F(AutoCompressionTest, LeavesChunksAloneWhenProcessorsHaveNoTime) {
  EXPECT_EQ(write(milliseconds(3000), 0.9), 0);
  EXPECT_GT(write(milliseconds(3000), 1.1), 0);
}

TEST_F(AutoCompressionTest, LearnsWhatEncodingTakes) {
  EXPECT_GT(write(milliseconds(3000), 1.5, 3), 0);
  EXPECT_EQ(write(milliseconds(3000), 1.5, 3), 0);
  EXPECT_GT(write(milliseconds(3000), 3.5, 3), 0);
}

TEST_F(AutoCompressionTest, LooksAgainMoreAndMoreSeldom) {
  write(kLook, 1.1);
  for (milliseconds encoding = kWhileMin; encoding <= kWhileMax; encoding *= 2) {
    EXPECT_EQ(write(encoding, 1.1), encoding.count());
    EXPECT_EQ(write(kLook, 1.1), 0);
  }
  EXPECT_EQ(write(kWhileMax, 1.1), kWhileMax.count());
  // Once it says no, it begins anew.
  EXPECT_EQ(write(kLook, 0.1), 0);
  EXPECT_EQ(write(kWhileMin, 1.1), 0);
  EXPECT_EQ(write(kLook, 1.1), 0);
  EXPECT_EQ(write(kWhileMin + milliseconds(20), 1.1), kWhileMin.count());
}

TEST_F(AutoCompressionTest, NeedsNoLookWhileProcessorsIdleBesides) {
  write(kLook, 1.5);
  EXPECT_EQ(write(10 * kWhileMax, 1.5), 10 * kWhileMax.count());
  write(2 * kWhileMax, 1.1);
  EXPECT_LT(write(2 * kWhileMax, 1.1), 2 * kWhileMax.count());
}

TEST_F(AutoCompressionTest, ProcessorsAreAskedSeldom) {
  write(milliseconds(10'000), 0.1);
  EXPECT_LE(environment_.asked, 2 * 10'000 / (kLook + kWhileMin).count());
}

TEST_F(AutoCompressionTest, AnHourOfSilenceSaysNothing) {
  write(kLook, 1.1);
  EXPECT_EQ(write(milliseconds(20), 1.1), 20);
  pass(std::chrono::hours(1), 2);
  EXPECT_EQ(write(kWhileMin, 1.1), kWhileMin.count() - 20 + 1);  // the chunk that ends the silence comes besides
  // Nor does one in the middle of a look count as time that idled.
  EXPECT_EQ(write(milliseconds(20), 0.1), 0);
  pass(std::chrono::hours(1), 2);
  EXPECT_EQ(write(milliseconds(3000), 0.1), 0);
}

TEST_F(AutoCompressionTest, ALookWaitsForWhatIsStillEncoded) {
  write(kLook, 1.1);
  pass(milliseconds(1), 0.1);
  ASSERT_TRUE(choice_.encodes(environment_.times.now_ns, kChunk, true));
  write(kWhileMin + milliseconds(1), 1.1);
  const int asked = environment_.asked;
  EXPECT_EQ(write(milliseconds(300), 1.1), 0);
  EXPECT_EQ(environment_.asked, asked);
  choice_.not_encoded();
  EXPECT_EQ(write(kLook, 1.1), 0);
  EXPECT_GT(write(kWhileMin, 1.1), 0);
}

TEST_F(AutoCompressionTest, NothingIsEncodedWhereNobodyKnowsWhatIdles) {
  for (int i = 0; i < 3000; ++i) {
    environment_.times.now_ns += 1'000'000;
    environment_.times.idle_ns = 0;
    EXPECT_FALSE(choice_.encodes(environment_.times.now_ns, kChunk, true));
  }
}

TEST(ProcessorTimes, AreKnownHere) {
  PosixEnvironment environment;
  const ProcessorTimes times = environment.processor_times();
  EXPECT_GT(times.now_ns, 0u);
  EXPECT_GT(times.idle_ns, 0u);
}

}  // namespace
}  // namespace fpfs
