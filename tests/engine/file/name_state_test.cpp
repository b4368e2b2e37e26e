#include "engine/file/name_state.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

#include "engine/io/sim/sim_storage.h"

namespace fpfs {
namespace {

class NameStateTest : public ::testing::Test {
 protected:
  ScopedHandle directory() { return {storage_, storage_.open_directory("/m0").value()}; }
  size_t open_handles() { return storage_.open_handles().size(); }
  SimStorage storage_{1, {"/m0"}};
};

TEST_F(NameStateTest, ACommitSyncsTheDirectoryOfANewNameOnce) {
  NameState names({true, directory()});
  EXPECT_TRUE(names.is_new());
  EXPECT_TRUE(names.take_new().directory.is_open());
  EXPECT_FALSE(names.is_new());
  EXPECT_FALSE(names.take_new().exists);
  EXPECT_EQ(open_handles(), 0u);
}

TEST_F(NameStateTest, OnlyWhereItWentLastMatters) {
  NameState names({true, directory()});
  names.moved_to(directory());
  names.moved_to(directory());
  EXPECT_EQ(open_handles(), 1u);
  EXPECT_TRUE(names.is_new());
}

TEST_F(NameStateTest, AFailedFileLeavesItsNewNameToOthers) {
  NameState names({true, directory()});
  EXPECT_TRUE(names.leave_new().directory.is_open());
  EXPECT_TRUE(names.is_new());
}

TEST_F(NameStateTest, WithoutANameUntilItIsLinked) {
  NameState names{NewName()};
  EXPECT_FALSE(names.is_new());
  names.set_unnamed();
  EXPECT_TRUE(names.is_nameless());
  EXPECT_FALSE(names.is_removed());
  names.given_in(directory());
  EXPECT_FALSE(names.is_nameless());
  EXPECT_TRUE(names.is_new());
}

TEST_F(NameStateTest, WhatWasRemovedMakesNoNameDurable) {
  NameState names({true, directory()});
  names.removed_from(directory());
  EXPECT_FALSE(names.is_new());
  EXPECT_EQ(open_handles(), 1u) << "of one directory at most";
}

TEST_F(NameStateTest, RemovedForGood) {
  {
    NameState names{NewName()};
    names.removed_from(directory());
    EXPECT_TRUE(names.is_removed());
    EXPECT_TRUE(names.is_nameless());
    names.removed_from(directory());
    EXPECT_EQ(open_handles(), 1u);
    EXPECT_TRUE(names.take_removed_from().is_open());
    names.removed_from(directory());
  }
  EXPECT_EQ(open_handles(), 0u) << "what nobody took is closed";
}

}  // namespace
}  // namespace fpfs
