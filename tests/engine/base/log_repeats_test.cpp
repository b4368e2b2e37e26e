#include "engine/base/log_repeats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fpfs {
namespace {

// A log on a clock of its own.
class LogRepeatsTest : public testing::Test {
 protected:
  static constexpr uint64_t kStart = 1'000 * LogRepeats::kSecondNs;

  void wait(uint64_t seconds) { now_ += seconds * LogRepeats::kSecondNs; }
  void say(const std::string& key, const std::string& text, LogLevel level = LogLevel::kError) {
    take(repeats_.due(now_));
    if (repeats_.admits(key, {level, text}, now_)) written_.push_back(text);
  }
  void say(const std::string& text) { say(text, text); }
  void look() { take(repeats_.due(now_)); }
  void end() { take(repeats_.rest(now_)); }
  std::vector<std::string> written() { return std::exchange(written_, {}); }

  LogRepeats repeats_;
  uint64_t now_ = kStart;

 private:
  void take(const std::vector<LogRepeats::Line>& lines) {
    for (const LogRepeats::Line& line : lines) written_.push_back(line.text);
  }
  std::vector<std::string> written_;
};

using Lines = std::vector<std::string>;

TEST_F(LogRepeatsTest, TheFirstLineIsWrittenAtOnceAndTheCountOncePerInterval) {
  say("bad");
  for (int i = 0; i < 17; ++i) {
    wait(2);
    say("bad");
  }
  EXPECT_EQ(written(), Lines{"bad"});
  wait(25);
  look();
  EXPECT_EQ(written(), Lines{}) << "second 59";
  wait(1);
  look();
  EXPECT_EQ(written(), Lines{"bad (17 times more in 60 s)"});
  look();
  EXPECT_EQ(written(), Lines{}) << "said once";
}

TEST_F(LogRepeatsTest, OneThingIsOneLineHoweverOftenItIsTriedAtOnce) {
  for (int i = 0; i < 5; ++i) say("bad");
  now_ += LogRepeats::kSecondNs - 1;
  say("bad");
  wait(3600);
  look();
  end();
  EXPECT_EQ(written(), Lines{"bad"});
}

TEST_F(LogRepeatsTest, KeysSayWhatIsTheSame) {
  say("the store", "chunk 1: the store is away");
  say("the store", "chunk 2: the store is away");
  say("chunk 1: damaged");
  say("chunk 2: damaged");
  EXPECT_EQ(written(), (Lines{"chunk 1: the store is away", "chunk 1: damaged", "chunk 2: damaged"}));
}

TEST_F(LogRepeatsTest, WhatGoesOnIsSaidMoreAndMoreRarely) {
  say("away");
  size_t lines = 0;
  for (int minute = 0; minute < 24 * 60; ++minute) {
    wait(60);
    say("away");
    lines += written().size();
  }
  EXPECT_GE(lines, 23U) << "once an hour";
  EXPECT_LE(lines, 32U) << "and a few in the first";
}

TEST_F(LogRepeatsTest, WhatPausedIsALineAgain) {
  say("bad");
  wait(61);
  say("bad");
  EXPECT_EQ(written(), (Lines{"bad", "bad"}));
  wait(119);
  say("bad");
  EXPECT_EQ(written(), Lines{}) << "the interval is longer then";
  wait(1);
  look();
  EXPECT_EQ(written(), Lines{"bad (1 time more in 120 s)"});
  wait(480);
  for (int i = 0; i < 2; ++i) say("bad");
  wait(30);
  say("bad");
  wait(30);
  look();
  EXPECT_EQ(written(), (Lines{"bad", "bad (2 times more in 60 s)"})) << "forgotten, so as at the first time";
}

TEST_F(LogRepeatsTest, TheEndSaysWhatWasCounted) {
  say("bad");
  wait(5);
  say("bad");
  end();
  EXPECT_EQ(written(), (Lines{"bad", "bad (1 time more in 5 s)"}));
  end();
  EXPECT_EQ(written(), Lines{});
}

TEST_F(LogRepeatsTest, TheCountHasTheLevelOfTheLine) {
  ASSERT_TRUE(repeats_.admits("slow", {LogLevel::kWarning, "slow"}, now_));
  wait(2);
  ASSERT_FALSE(repeats_.admits("slow", {LogLevel::kWarning, "slow"}, now_));
  wait(58);
  const std::vector<LogRepeats::Line> lines = repeats_.due(now_);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].level, LogLevel::kWarning);
}

TEST_F(LogRepeatsTest, ADriveFullOfDamagedFilesDoesNotFillTheLog) {
  for (int i = 0; i < 10'000; ++i) {
    say(fmt::format("/{}: damaged", i));
    now_ += LogRepeats::kSecondNs / 1000;
  }
  EXPECT_EQ(written().size(), LogRepeats::kKeysMax);
  wait(60);
  look();
  const Lines lines = written();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(fmt::format("left out ({} times", 10'000 - LogRepeats::kKeysMax)), std::string::npos)
      << lines[0];
  wait(60);
  say("later");
  EXPECT_EQ(written(), Lines{"later"}) << "there is place again";
}

}  // namespace
}  // namespace fpfs
