// Store::on_names(): what is told of changes of names and attributes, over a simulated array.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

class NameEventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    array_.store().on_names([this](const Store::NameEvent& event) {
      if (event.is_ahead) return ahead(event);
      static const char* const kKinds[] = {"made", "removed", "moved", "attributes"};
      told_.push_back(fmt::format("{} {}{}{}{}{}", kKinds[static_cast<size_t>(event.kind)], event.path,
                                  event.is_directory ? "/" : "", event.from.empty() ? "" : " from " + event.from,
                                  event.inode != 0 ? " file" : "", event.lost_inode != 0 ? " of file" : ""));
    });
    array_.store().tell_names(true);
  }
  // 0: there is nothing.
  uint64_t inode_at(const std::string& path) {
    const size_t slash = path.find('/');
    const NodeHandle parent = slash != std::string::npos ? node(root(), path.substr(0, slash)) : NodeHandle();
    const Result<Store::Node> found =
        parent.is_open() ? store().lookup(parent.get(), path.substr(slash + 1)) : store().lookup(root(), path);
    return found.is_ok() ? found->attributes.st_ino : 0;
  }
  // Everything is as it was.
  void ahead(const Store::NameEvent& event) {
    using Kind = Store::NameEvent::Kind;
    if (event.kind == Kind::kMoved && event.inode != 0) {
      EXPECT_EQ(inode_at(event.from), event.inode);
    }
    if (event.lost_inode != 0) {
      EXPECT_EQ(inode_at(event.path), event.lost_inode);
    }
    EXPECT_NE(inode_at(event.kind == Kind::kMoved ? event.from : event.path), 0U) << event.path;
    told_ahead_.push_back(fmt::format("{}{}{}", event.path, event.from.empty() ? "" : " from " + event.from,
                                      event.lost_inode != 0 ? " of file" : ""));
  }
  Store& store() { return array_.store(); }
  Handle root() { return store().root(); }
  NodeHandle node(Handle directory, const std::string& name) {
    Result<Store::Node> found = store().lookup(directory, name);
    EXPECT_TRUE(found.is_ok()) << name;
    return std::move(found->handle);
  }
  std::vector<std::string> told() { return std::exchange(told_, {}); }

  SimArray array_{1};
  std::vector<std::string> told_, told_ahead_;
};

using Told = std::vector<std::string>;

TEST_F(NameEventsTest, NamesThatAreMadeMovedAndRemoved) {
  ASSERT_TRUE(store().make_directory(root(), "d", 0755).is_ok());
  const NodeHandle directory = node(root(), "d");
  ASSERT_TRUE(store().symlink("x", directory.get(), "l").is_ok());
  ASSERT_TRUE(store().make_node(directory.get(), "p", S_IFIFO | 0600, 0).is_ok());
  EXPECT_EQ(told(), (Told{"made d/", "made d/l", "made d/p"}));
  array_.create("a").reset();
  EXPECT_EQ(told(), Told()) << "the first commit is told";
  {
    const NodeHandle file = node(root(), "a");
    ASSERT_TRUE(store().link(file.get(), directory.get(), "b").is_ok());
  }
  EXPECT_EQ(told(), Told{"made d/b from a file"});
  ASSERT_TRUE(store().rename(root(), "a", directory.get(), "c", 0).is_ok());
  ASSERT_TRUE(store().rename(directory.get(), "c", directory.get(), "l", RENAME_EXCHANGE).is_ok());
  ASSERT_TRUE(store().rename(root(), "d", root(), "e", 0).is_ok());
  EXPECT_EQ(told(),
            (Told{"moved d/c from a file", "moved d/l from d/c file", "moved d/c from d/l", "moved e/ from d"}));
  EXPECT_FALSE(store().unlink(directory.get(), "none").is_ok());
  EXPECT_FALSE(store().rename(directory.get(), "p", root(), "e", 0).is_ok());
  EXPECT_EQ(told(), Told()) << "what has failed";
  for (const char* const name : {"b", "c", "l", "p"}) ASSERT_TRUE(store().unlink(directory.get(), name).is_ok());
  ASSERT_TRUE(store().remove_directory(root(), "e").is_ok());
  EXPECT_EQ(told(), (Told{"removed e/b of file", "removed e/c", "removed e/l of file", "removed e/p", "removed e/"}));
}

TEST_F(NameEventsTest, WhoHadTheNameBefore) {
  for (const char* const name : {"a", "b"}) array_.create(name).reset();
  ASSERT_TRUE(store().rename(root(), "a", root(), "b", 0).is_ok());
  EXPECT_EQ(told(), Told{"moved b from a file of file"});
  {
    const NodeHandle file = node(root(), "b");
    ASSERT_TRUE(store().link(file.get(), root(), "c").is_ok());
  }
  told();
  ASSERT_TRUE(store().rename(root(), "b", root(), "c", 0).is_ok());
  EXPECT_EQ(told(), Told{"moved c from b file"}) << "names of one file: nothing changes";
}

// Whoever looks finds no name that has lost something which this was not told of.
TEST_F(NameEventsTest, AheadOfWhatIsLost) {
  for (const char* const name : {"a", "b", "c"}) array_.create(name).reset();
  const auto ahead = [this] { return std::exchange(told_ahead_, {}); };
  EXPECT_EQ(ahead(), Told());
  ASSERT_TRUE(store().rename(root(), "a", root(), "b", 0).is_ok());
  EXPECT_EQ(ahead(), Told{"b from a of file"});
  ASSERT_TRUE(store().rename(root(), "b", root(), "c", RENAME_EXCHANGE).is_ok());
  EXPECT_EQ(ahead(), (Told{"c from b", "b from c"}));
  ASSERT_TRUE(store().unlink(root(), "c").is_ok());
  EXPECT_EQ(ahead(), Told{"c of file"});
  told();
  EXPECT_FALSE(store().rename(root(), "b", root(), "x/y", 0).is_ok());
  EXPECT_EQ(told(), Told()) << "it has failed";
}

TEST_F(NameEventsTest, Attributes) {
  array_.create("a").reset();
  ASSERT_TRUE(store().make_directory(root(), "d", 0755).is_ok());
  const NodeHandle file = node(root(), "a"), directory = node(root(), "d");
  const struct timespec times[2] = {{1, 2}, {3, 4}};
  const std::string_view value = "x";
  told();
  ASSERT_TRUE(store().chmod(file.get(), 0600).is_ok());
  ASSERT_TRUE(store().chown(directory.get(), 1, 2).is_ok());
  ASSERT_TRUE(store().set_times(file.get(), times).is_ok());
  ASSERT_TRUE(store().set_xattr(file.get(), "user.x", std::as_bytes(std::span(value)), 0).is_ok());
  ASSERT_TRUE(store().remove_xattr(file.get(), "user.x").is_ok());
  ASSERT_TRUE(store().set_setting(directory.get(), Store::kCompressAttribute, "zstd", 0).is_ok());
  ASSERT_TRUE(store().remove_setting(directory.get(), Store::kCompressAttribute).is_ok());
  const std::string of_file = "attributes a file", of_directory = "attributes d/";
  EXPECT_EQ(told(), (Told{of_file, of_directory, of_file, of_file, of_file, of_directory, of_directory}));
  ASSERT_TRUE(store().unlink(root(), "a").is_ok());
  told();
  ASSERT_TRUE(store().chmod(file.get(), 0644).is_ok());
  EXPECT_EQ(told(), Told()) << "of what has no name";
}

TEST_F(NameEventsTest, NothingIsToldToWhoDoesNotListen) {
  store().tell_names(false);
  ASSERT_TRUE(store().make_directory(root(), "d", 0755).is_ok());
  ASSERT_TRUE(store().rename(root(), "d", root(), "e", 0).is_ok());
  ASSERT_TRUE(store().remove_directory(root(), "e").is_ok());
  EXPECT_EQ(told(), Told());
}

}  // namespace
}  // namespace fpfs::test
