// Real directories for the tests of engine/array.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/array/array.h"
#include "engine/io/posix_environment.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {

class ArrayTestBase : public testing::Test {
 protected:
  using Paths = std::vector<std::string>;

  std::string path(const std::string& name) const { return directory_ / name; }
  Paths paths(const std::vector<std::string>& names) const {
    Paths result;
    for (const std::string& name : names) result.push_back(path(name));
    return result;
  }
  static void write_file(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
  static std::string read_file(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  static bool exists(const std::string& file) { return std::filesystem::exists(std::filesystem::symlink_status(file)); }

  // Everything below the test's directory: names, modes, contents and link targets. Two that are equal: nothing was
  // changed.
  std::string snapshot() const {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      std::string line = entry.path().string();
      const auto status = entry.symlink_status();
      line += " " + std::to_string(static_cast<unsigned>(status.permissions())) + " ";
      if (std::filesystem::is_symlink(status)) line += std::filesystem::read_symlink(entry.path()).string();
      if (std::filesystem::is_regular_file(status)) line += read_file(entry.path());
      lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }

  Status format(const Paths& directories, const FormatOptions& options = {}) {
    return Array::format(environment_, directories, options);
  }
  Status force(const Paths& directories, FormatOptions options = {}) {
    options.force = true;
    return format(directories, options);
  }
  void must_format(const Paths& directories, const FormatOptions& options = {}) {
    const Status status = format(directories, options);
    ASSERT_TRUE(status.is_ok()) << status.message();
  }
  Result<std::unique_ptr<Array>> open(const Paths& directories, ArrayOptions options = {}) {
    options.buffered_members = buffered_;
    return Array::open(environment_, directories, options);
  }
  std::unique_ptr<Array> must_open(const Paths& directories, const ArrayOptions& options = {}) {
    Result<std::unique_ptr<Array>> array = open(directories, options);
    EXPECT_TRUE(array.is_ok()) << array.status().message();
    return array.is_ok() ? *std::move(array) : nullptr;
  }

  // A refusal: its code, and words its one line must hold.
  static void expect_refusal(const Status& status, StatusCode code, const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& word : words)
      EXPECT_NE(status.message().find(word), std::string::npos) << "'" << word << "' in: " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }

  test::TemporaryDirectory directory_{test::quick_place()};
  PosixEnvironment environment_;
  // Temporary directories may lie on a filesystem without O_DIRECT; the tests of O_DIRECT itself set this.
  bool buffered_ = true;
};

}  // namespace fpfs
