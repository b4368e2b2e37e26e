#include "engine/file/writer_set.h"

#include <gtest/gtest.h>

namespace fpfs::test {
namespace {

constexpr Actor kSaver{.owner = 1, .process = 10};
constexpr Actor kChild{.owner = 2, .process = 20};

class WriterSetTest : public ::testing::Test {
 protected:
  ~WriterSetTest() override {
    for (Writer* writer : {&writer_, &mapper_}) set_.remove(*writer);
  }
  WriterSetTest() {
    for (Writer* writer : {&writer_, &mapper_}) set_.add(*writer);
  }
  void write(Writer& writer, const Actor& actor) { set_.changed({&writer, actor, false}); }
  bool close(Writer& writer, const Actor& actor) { return set_.finish({&writer, actor, false}, false); }
  void commit() { set_.covered(set_.last_change()); }

  Writer writer_{{.opener = kSaver, .may_map = false, .appends = false, .is_new = false}};
  Writer mapper_{{.opener = kChild, .may_map = true, .appends = false, .is_new = false}};
  WriterSet set_;
};

TEST_F(WriterSetTest, OnlyWhoWroteEndsASave) {
  EXPECT_FALSE(set_.has_uncommitted());
  write(writer_, kSaver);
  EXPECT_TRUE(set_.has_uncommitted());
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_FALSE(close(writer_, kChild)) << "a child that inherited the descriptor";
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_TRUE(close(writer_, kSaver));
  EXPECT_FALSE(set_.is_unfinished(false));
  commit();
  EXPECT_FALSE(close(writer_, kSaver)) << "nothing is left to end";
}

TEST_F(WriterSetTest, PagesOfMappingsAreFinishedByWhoMayHaveMapped) {
  set_.changed({&writer_, kSaver, true});
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_FALSE(close(writer_, kSaver)) << "opened write-only: no page is its own";
  EXPECT_TRUE(close(mapper_, kChild));
  EXPECT_FALSE(set_.is_unfinished(false));
}

TEST_F(WriterSetTest, TheEndOfADescriptionFinishesAllThatCameThroughIt) {
  write(writer_, kSaver);
  write(writer_, kChild);
  EXPECT_TRUE(set_.finish({&writer_, {}, false}, true));
  EXPECT_FALSE(set_.is_unfinished(false));
}

TEST_F(WriterSetTest, WhoElseWroteIsKnown) {
  write(writer_, kSaver);
  EXPECT_FALSE(set_.is_by_others_than({&writer_, kSaver, false}));
  EXPECT_TRUE(set_.is_by_others_than({&writer_, kChild, false}));
  write(mapper_, kSaver);
  EXPECT_TRUE(set_.is_by_others_than({&writer_, kSaver, false})) << "through another description";
  commit();
  EXPECT_FALSE(set_.is_by_others_than({&writer_, kChild, false}));
}

TEST_F(WriterSetTest, ChangesWithoutAWriterAreNobodysToFinish) {
  set_.changed({});
  EXPECT_TRUE(set_.has_unowned());
  EXPECT_FALSE(set_.is_unfinished(false));
  commit();
  EXPECT_FALSE(set_.has_unowned());
}

TEST_F(WriterSetTest, WhatWasCutOffStaysUnfinished) {
  write(writer_, kSaver);
  set_.cut_off();
  EXPECT_TRUE(close(writer_, kSaver));
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_TRUE(set_.is_unfinished(true));
}

TEST_F(WriterSetTest, ANewNameIsAChange) {
  Writer maker({.opener = kSaver, .may_map = false, .appends = false, .is_new = true});
  set_.add(maker);
  EXPECT_TRUE(set_.has_uncommitted());
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_TRUE(close(maker, kSaver));
  set_.remove(maker);
}

TEST_F(WriterSetTest, WhoHasOnlyEmptiedTheFileIsKnown) {
  const Origin saver{&writer_, kSaver, false}, child{&writer_, kChild, false};
  EXPECT_FALSE(set_.has_only_emptied(saver)) << "has changed nothing";
  write(writer_, kSaver);
  EXPECT_TRUE(set_.has_only_emptied(saver));
  EXPECT_FALSE(set_.has_only_emptied(child)) << "a child that closes what it inherited";
  write(writer_, kChild);
  writer_.wrote(kChild, 100, {.tv_sec = 1, .tv_nsec = 0}, 65536, 30'000);
  EXPECT_TRUE(set_.has_only_emptied(saver));
  EXPECT_FALSE(set_.has_only_emptied(child));
  set_.changed({&writer_, kChild, true});
  EXPECT_FALSE(set_.has_only_emptied(saver)) << "a mapping has written, and may be its";
  commit();
  EXPECT_FALSE(set_.has_only_emptied(saver));
  write(writer_, kSaver);
  EXPECT_TRUE(set_.has_only_emptied(saver));
  write(writer_, {});
  EXPECT_FALSE(set_.has_only_emptied(saver)) << "somebody has written";
}

TEST_F(WriterSetTest, ATrickleIsNoStream) {
  write(writer_, kSaver);
  writer_.wrote({}, 100, {.tv_sec = 1, .tv_nsec = 0}, 65536, 30'000);
  EXPECT_TRUE(set_.is_unfinished(false));
  EXPECT_FALSE(set_.is_unfinished(true)) << "it is committed by itself";
  writer_.wrote({}, 100'000, {.tv_sec = 2, .tv_nsec = 0}, 65536, 30'000);
  EXPECT_TRUE(set_.is_unfinished(true));
}

}  // namespace
}  // namespace fpfs::test
