#include "engine/base/log.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    end_log();  // what was counted is no other test's
    EXPECT_TRUE(configure_log({}).is_ok());
  }
  test::TemporaryDirectory directory_;
};

TEST_F(LogTest, LinesHaveTimeLevelAndMessage) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log({.file = path}).is_ok());
  log(LogLevel::kWarning, "member {} is slow", 2);
  EXPECT_TRUE(std::regex_match(
      content_of(path), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d warning member 2 is slow\n)")))
      << content_of(path);
}

TEST_F(LogTest, LevelsBelowTheChosenOneAreLeftOut) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log({.level = LogLevel::kWarning, .file = path}).is_ok());
  log_line(LogLevel::kDebug, "one");
  log_line(LogLevel::kInfo, "two");
  log_line(LogLevel::kWarning, "three");
  log_line(LogLevel::kError, "four");
  const std::string text = content_of(path);
  EXPECT_EQ(text.find("one"), std::string::npos);
  EXPECT_EQ(text.find("two"), std::string::npos);
  EXPECT_NE(text.find("three"), std::string::npos);
  EXPECT_NE(text.find("four"), std::string::npos);
}

TEST_F(LogTest, AFileNameCannotForgeALine) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log({.file = path}).is_ok());
  log(LogLevel::kError, "cannot read {}", "a\n2030-01-01 info all is well");
  const std::string text = content_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(LogTest, AppendsToAFileThatIsThere) {
  const std::string path = directory_ / "log";
  for (const char* line : {"first", "second"}) {
    ASSERT_TRUE(configure_log({.file = path}).is_ok());
    log_line(LogLevel::kInfo, line);
  }
  EXPECT_NE(content_of(path).find("first"), std::string::npos);
  EXPECT_NE(content_of(path).find("second"), std::string::npos);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const std::string path = directory_.path();
  const Status status = configure_log({.file = path});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
}

TEST_F(LogTest, OthersDoNotReadTheFile) {
  const std::string path = directory_ / "log";
  const mode_t before = ::umask(0);  // the daemon's
  EXPECT_TRUE(configure_log({.file = path}).is_ok());
  ::umask(before);
  struct stat attributes {};
  ASSERT_EQ(::stat(path.c_str(), &attributes), 0);
  EXPECT_EQ(attributes.st_mode & 07777U, 0640U);
}

TEST_F(LogTest, DirectoriesAreNotMade) {
  EXPECT_EQ(configure_log({.file = directory_ / "none/log"}).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "none"));
}

TEST_F(LogTest, AFileThatWasMovedAwayIsMadeAnew) {
  const std::string path = directory_ / "log", moved = directory_ / "log.1";
  ASSERT_TRUE(configure_log({.file = path}).is_ok());
  log_line(LogLevel::kInfo, "first");
  std::filesystem::rename(path, moved);
  log_line(LogLevel::kInfo, "second");
  reopen_log();
  log_line(LogLevel::kInfo, "third");
  const std::string before = content_of(moved), after = content_of(path);
  EXPECT_TRUE(before.find("first") != std::string::npos && before.find("second") != std::string::npos) << before;
  EXPECT_EQ(before.find("third"), std::string::npos) << before;
  EXPECT_NE(after.find("third"), std::string::npos) << after;
}

TEST_F(LogTest, WhatCannotBeOpenedAnewIsLoggedWhereItWas) {
  const std::string path = directory_ / "log", moved = directory_ / "log.1";
  ASSERT_TRUE(configure_log({.file = path}).is_ok());
  std::filesystem::rename(path, moved);
  std::filesystem::create_directory(path);
  reopen_log();
  EXPECT_NE(content_of(moved).find("the log goes on where it went before"), std::string::npos);
}

TEST_F(LogTest, RepetitionsAreOneLineAndACount) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log({.file = path}).is_ok());
  for (int i = 0; i < 5; ++i) {
    log(LogLevel::kError, "/a, chunk 1: damaged");
    log_about("the store", LogLevel::kError, "chunk {}: the store is away", i);
    log_line(LogLevel::kInfo, "said each time");
  }
  const std::string text = content_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;
  EXPECT_NE(text.find("chunk 0: the store is away"), std::string::npos) << text;
  end_log();
  EXPECT_EQ(content_of(path), text) << "all within a second are one event";
}

TEST_F(LogTest, ForDebuggingAllOfThemAreWritten) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log({.level = LogLevel::kDebug, .file = path}).is_ok());
  for (int i = 0; i < 3; ++i) log_line(LogLevel::kError, "the same");
  const std::string text = content_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST_F(LogTest, LevelsAreParsed) {
  EXPECT_EQ(parse_log_level("debug").value(), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("info").value(), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("warning").value(), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("error").value(), LogLevel::kError);
  for (const char* name : {"", "Info", "warn", "trace"}) EXPECT_FALSE(parse_log_level(name).is_ok()) << name;
}

}  // namespace
}  // namespace fpfs
