#include "engine/base/intrusive_list.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace fpfs {
namespace {

struct Item {
  int value = 0;
  ListLink<Item> link;
  ListLink<Item> other_link;
};
using List = IntrusiveList<Item, &Item::link>;

class IntrusiveListTest : public ::testing::Test {
 protected:
  IntrusiveListTest() {
    for (int i = 0; i < 5; ++i) items_[i].value = i;
  }
  template <typename AnyList>
  static std::vector<int> values(const AnyList& list) {
    std::vector<int> found;
    list.for_each([&found](const Item& item) { found.push_back(item.value); });
    EXPECT_EQ(found.size(), list.count());
    return found;
  }
  Item items_[5];
  List list_;
};

TEST_F(IntrusiveListTest, KeepsTheOrderOfBothEnds) {
  EXPECT_TRUE(list_.is_empty());
  EXPECT_EQ(list_.pop_front(), nullptr);
  list_.push_back(items_[1]);
  list_.push_back(items_[2]);
  list_.push_front(items_[0]);
  EXPECT_EQ(values(list_), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(list_.back(), &items_[2]);
  EXPECT_EQ(list_.pop_front(), &items_[0]);
  EXPECT_FALSE(items_[0].link.is_linked());
  EXPECT_EQ(values(list_), (std::vector<int>{1, 2}));
}

TEST_F(IntrusiveListTest, TakesAnyOff) {
  for (Item& item : items_) list_.push_back(item);
  list_.remove(items_[2]);
  list_.remove(items_[4]);
  list_.remove(items_[0]);
  EXPECT_EQ(values(list_), (std::vector<int>{1, 3}));
  EXPECT_EQ(list_.front(), &items_[1]);
  EXPECT_EQ(list_.back(), &items_[3]);
  list_.push_back(items_[0]);
  EXPECT_EQ(values(list_), (std::vector<int>{1, 3, 0}));
}

TEST_F(IntrusiveListTest, WhoIsVisitedMayGo) {
  for (Item& item : items_) list_.push_back(item);
  list_.for_each([this](Item& item) {
    if (item.value % 2 == 0) list_.remove(item);
  });
  EXPECT_EQ(values(list_), (std::vector<int>{1, 3}));
}

TEST_F(IntrusiveListTest, AppendsAndMoves) {
  List more;
  list_.append(std::move(more));
  EXPECT_TRUE(list_.is_empty());
  more.push_back(items_[0]);
  list_.append(std::move(more));
  more.push_back(items_[1]);
  more.push_back(items_[2]);
  list_.append(std::move(more));
  EXPECT_EQ(values(list_), (std::vector<int>{0, 1, 2}));
  List moved = std::move(list_);
  EXPECT_EQ(values(moved), (std::vector<int>{0, 1, 2}));
  while (moved.pop_front() != nullptr) {
  }
  EXPECT_EQ(moved.back(), nullptr);
}

TEST_F(IntrusiveListTest, OneListForEachLink) {
  IntrusiveList<Item, &Item::other_link> other;
  list_.push_back(items_[0]);
  other.push_back(items_[0]);
  EXPECT_EQ(values(list_), values(other));
  Item copy = items_[0];
  EXPECT_FALSE(copy.link.is_linked());
}

using IntrusiveListDeathTest = IntrusiveListTest;

TEST_F(IntrusiveListDeathTest, NothingIsOnTwoListsOrOnNone) {
  list_.push_back(items_[0]);
  List other;
  EXPECT_DEATH(list_.push_back(items_[0]), "one list at a time");
  EXPECT_DEATH(other.push_front(items_[0]), "one list at a time");
  EXPECT_DEATH(list_.remove(items_[1]), "is on it");
  EXPECT_DEATH(items_[0] = Item(), "not made another one");
}

}  // namespace
}  // namespace fpfs
