// Limits of memory, out of directories as the kernel shows them.
#include "engine/base/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

class ControlGroup : public testing::Test {
 protected:
  void say(const std::string& group, const std::string& file, const std::string& text) {
    std::filesystem::create_directories(root() / group);
    std::ofstream(root() / group / file) << text << '\n';
  }
  uint64_t limit_of(const std::string& groups) {
    std::istringstream text(groups);
    return control_group_memory(text, root());
  }
  std::filesystem::path root() const { return directory_.path(); }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(ControlGroup, TheLeastOnTheWayUpCounts) {
  say("", "memory.max", "max");
  say("jobs", "memory.max", "4096");
  say("jobs/one", "memory.max", "8192");
  EXPECT_EQ(limit_of("0::/jobs/one\n"), 4096u);
  say("jobs/one", "memory.max", "1024");
  EXPECT_EQ(limit_of("0::/jobs/one\n"), 1024u);
}

TEST_F(ControlGroup, NoneIsNoLimit) {
  EXPECT_EQ(limit_of(""), UINT64_MAX);
  EXPECT_EQ(limit_of("0::/\n"), UINT64_MAX);
  say("jobs", "memory.max", "max");
  EXPECT_EQ(limit_of("0::/jobs\n"), UINT64_MAX);
  EXPECT_EQ(limit_of("nonsense"), UINT64_MAX);
}

TEST_F(ControlGroup, VersionOneHasAHierarchyForMemory) {
  say("memory", "memory.limit_in_bytes", "9223372036854771712");
  say("memory/a", "memory.limit_in_bytes", "4096");
  say("memory/b", "memory.limit_in_bytes", "1");
  EXPECT_EQ(limit_of("3:cpu,cpuacct:/b\n2:memory:/a\n1:name=systemd:/b\n0::/\n"), 4096u);
}

// A container of version 1 sees its own group as the root of the hierarchy.
TEST_F(ControlGroup, OfAContainerThoseAboveCount) {
  say("memory", "memory.limit_in_bytes", "4096");
  EXPECT_EQ(limit_of("2:memory:/docker/0123\n"), 4096u);
}

// Another namespace's.
TEST_F(ControlGroup, WhatIsNotBelowTheRootIsUnknown) {
  say("", "memory.max", "4096");
  EXPECT_EQ(limit_of("0::/../other\n"), UINT64_MAX);
}

}  // namespace
}  // namespace fpfs
