// Files without a name that somebody keeps (Store::Removed): they can be opened and changed until they are let go of,
// and leave nothing behind.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <map>
#include <memory>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kLong = 5 * kTestChunk + 777;

class RemovedTest : public ::testing::TestWithParam<size_t> {
 protected:
  RemovedTest() { remake(/*seed=*/7); }
  void remake(uint64_t seed) {
    array_ = std::make_unique<SimArray>(seed);
    store().keep_removed(
        [this](uint64_t inode, std::unique_ptr<Store::Removed> removed) { kept_[inode] = std::move(removed); });
  }

  Store& store() { return array_->store(); }
  Storage& storage() { return store().storage(); }
  std::function<bool()> is_freed() {
    return [this] { return store().status().open_files == 0 && store().status().pending_frees == 0; };
  }

  void save(const std::string& name, const Bytes& content) {
    const std::shared_ptr<File> file = array_->create(name);
    append(*file, content);
    ASSERT_TRUE(array_->control(*file, ControlRequest::Kind::kClose).is_ok());
  }
  void append(File& file, const Bytes& content) {
    for (size_t at = 0; at < content.size(); at += 50'000) {
      const size_t piece = std::min<size_t>(50'000, content.size() - at);
      ASSERT_TRUE(array_->write(file, file.size(), std::span(content).subspan(at, piece)).is_ok());
    }
  }
  void look_up(const std::string& name) {
    Result<Store::Node> node = store().lookup(store().root(), name);
    ASSERT_TRUE(node.is_ok()) << node.status().message();
    node_ = std::move(*node);
  }
  std::shared_ptr<File> open_node() {
    Result<std::shared_ptr<File>> file = store().open_file(node_.handle.get(), true);
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return file.is_ok() ? *file : nullptr;
  }
  // What was kept is let go of: no opener finds it any more, and it left nothing on the drives.
  void let_go() {
    ASSERT_EQ(kept_.size(), 1u);
    kept_.clear();
    ASSERT_TRUE(array_->world().run_until(is_freed()));
    EXPECT_EQ(store().open_file(node_.handle.get(), false).status().errno_value(), ESTALE);
    node_.handle.reset();
    ASSERT_TRUE(array_->close().is_ok());
    const Result<CheckReport> report = check_array(array_->world(), array_->paths(), {});
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_TRUE(report->clean()) << report->errors.front().kind << " " << report->errors.front().detail;
    EXPECT_EQ(report->orphans, 0u);
    array_->open();
  }

  std::unique_ptr<SimArray> array_;
  std::map<uint64_t, std::unique_ptr<Store::Removed>> kept_;
  Store::Node node_;
};

TEST_P(RemovedTest, CanBeOpenedAndChangedUntilItIsLetGoOf) {
  const Bytes old_content = make_bytes(GetParam(), 1), more = make_bytes(kLong, 2);
  save("file", old_content);
  look_up("file");
  ASSERT_TRUE(store().unlink(store().root(), "file").is_ok());
  ASSERT_EQ(kept_.size(), 1u);
  ASSERT_EQ(kept_.count(node_.attributes.st_ino), 1u);
  {
    const std::shared_ptr<File> file = open_node();
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(*array_->read_all(*file), old_content);
    append(*file, more);
    ASSERT_TRUE(array_->control(*file, ControlRequest::Kind::kClose).is_ok());
  }
  Bytes both = old_content;
  both.insert(both.end(), more.begin(), more.end());
  {
    const std::shared_ptr<File> file = open_node();
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(*array_->read_all(*file), both);
  }
  let_go();
}

TEST_P(RemovedTest, NobodyOpenedIt) {
  save("file", make_bytes(GetParam(), 1));
  look_up("file");
  ASSERT_TRUE(store().unlink(store().root(), "file").is_ok());
  let_go();
}

// A power cut may bring back any of its names, each with what had been committed.
TEST_P(RemovedTest, PowerGoesWhenTheLastOfItsNamesHasBeenFreed) {
  const Bytes content = make_bytes(GetParam(), 1);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    remake(seed);
    ASSERT_TRUE(store().make_directory(store().root(), "one", 0700).is_ok());
    ASSERT_TRUE(store().make_directory(store().root(), "other", 0700).is_ok());
    save("file", content);
    look_up("file");
    const auto in_directory = [this](const char* name, const auto& call) {
      const Result<Handle> directory = storage().open_at(store().root(), name, O_RDONLY | O_DIRECTORY);
      ASSERT_TRUE(directory.is_ok()) << directory.status().message();
      EXPECT_TRUE(call(*directory).is_ok());
      storage().close(*directory);
    };
    for (const char* name : {"one", "other"})
      in_directory(name, [this](Handle directory) { return store().link(node_.handle.get(), directory, "file"); });
    ASSERT_TRUE(store().unlink(store().root(), "file").is_ok());
    ASSERT_TRUE(array_->sync_all().is_ok());
    node_.handle.reset();
    for (const char* name : {"one", "other"})
      in_directory(name, [this](Handle directory) { return store().unlink(directory, "file"); });
    kept_.clear();
    ASSERT_TRUE(array_->world().run_until(is_freed()));
    array_->crash();
    array_->open();
    for (const char* name : {"one", "other"})
      in_directory(name, [&](Handle directory) {
        Result<Store::Node> node = store().lookup(directory, "file");
        if (!node.is_ok()) return node.status().errno_value() == ENOENT ? Status::ok() : node.status();
        const Result<std::shared_ptr<File>> file = store().open_file(node->handle.get(), false);
        node->handle.reset();
        FPFS_RETURN_IF_ERROR(file.status());
        const Result<Bytes> read = array_->read_all(**file);
        EXPECT_TRUE(read.is_ok() && *read == content) << "in " << name << ": " << read.status().message();
        return read.status();
      });
  }
}

// With its name, a power cut may bring back what had been committed under it, whole.
TEST_P(RemovedTest, PowerGoesWhenWhatWasMadeOfItHasBeenFreed) {
  const Bytes old_content = make_bytes(GetParam(), 1);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    remake(seed);
    save("file", old_content);
    look_up("file");
    ASSERT_TRUE(store().unlink(store().root(), "file").is_ok());
    {
      const std::shared_ptr<File> file = open_node();
      append(*file, make_bytes(kLong, 2));
      ASSERT_TRUE(array_->control(*file, ControlRequest::Kind::kClose).is_ok());
    }
    kept_.clear();
    ASSERT_TRUE(array_->world().run_until(is_freed()));
    node_.handle.reset();
    array_->crash();
    array_->open();
    Result<std::shared_ptr<File>> file = array_->try_open("file");
    if (!file.is_ok()) {
      EXPECT_EQ(file.status().errno_value(), ENOENT);
      continue;
    }
    const Result<Bytes> content = array_->read_all(**file);
    ASSERT_TRUE(content.is_ok()) << content.status().message();
    EXPECT_EQ(*content, old_content);
  }
}

TEST_P(RemovedTest, ReplacedByARenameWhileOpen) {
  const Bytes content = make_bytes(GetParam(), 1);
  save("new", make_bytes(kLong, 2));
  {
    const std::shared_ptr<File> file = array_->create("file");
    look_up("file");
    append(*file, content);  // nobody commits it
    ASSERT_TRUE(store().rename(store().root(), "new", store().root(), "file", 0).is_ok());
  }
  EXPECT_EQ(*array_->read_all(*open_node()), content);
  let_go();
  EXPECT_EQ(*array_->read_all(*array_->open("file")), make_bytes(kLong, 2));
}

TEST_P(RemovedTest, MadeWithoutAName) {
  const Bytes content = make_bytes(GetParam(), 1);
  {
    Result<Store::Created> created = store().create_unnamed(store().root(), 0600);
    ASSERT_TRUE(created.is_ok());
    node_ = std::move(created->node);
    kept_[node_.attributes.st_ino] = std::move(created->unnamed);
    append(*created->file, content);
    ASSERT_TRUE(array_->control(*created->file, ControlRequest::Kind::kClose).is_ok());
  }
  EXPECT_EQ(*array_->read_all(*open_node()), content);
  let_go();
}

INSTANTIATE_TEST_SUITE_P(Sizes, RemovedTest, ::testing::Values(0, 100, kLong));

}  // namespace
}  // namespace fpfs::test
