#include "engine/base/log.h"

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
  ~LogTest() override { EXPECT_TRUE(configure_log(LogLevel::kInfo, "").is_ok()); }
  test::TemporaryDirectory directory_;
};

TEST_F(LogTest, LinesHaveTimeLevelAndMessage) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log(LogLevel::kInfo, path).is_ok());
  log(LogLevel::kWarning, "member {} is slow", 2);
  EXPECT_TRUE(std::regex_match(
      content_of(path), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d warning member 2 is slow\n)")))
      << content_of(path);
}

TEST_F(LogTest, LevelsBelowTheChosenOneAreLeftOut) {
  const std::string path = directory_ / "log";
  ASSERT_TRUE(configure_log(LogLevel::kWarning, path).is_ok());
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
  ASSERT_TRUE(configure_log(LogLevel::kInfo, path).is_ok());
  log(LogLevel::kError, "cannot read {}", "a\n2030-01-01 info all is well");
  const std::string text = content_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(LogTest, AppendsToAFileThatIsThere) {
  const std::string path = directory_ / "log";
  for (const char* line : {"first", "second"}) {
    ASSERT_TRUE(configure_log(LogLevel::kInfo, path).is_ok());
    log_line(LogLevel::kInfo, line);
  }
  EXPECT_NE(content_of(path).find("first"), std::string::npos);
  EXPECT_NE(content_of(path).find("second"), std::string::npos);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const std::string path = directory_.path();
  const Status status = configure_log(LogLevel::kInfo, path);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
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
