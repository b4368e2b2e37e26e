// The tree of an array that is gone, made anew in an empty one from its copies: names, attributes and content, also
// when the power goes in the middle, and when the store has what no name can be.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <map>

#include "engine/check/check.h"
#include "engine/tier/tier_restore.h"
#include "tests/engine/tier/healing_world.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

// What a path leads to.
struct Entry {
  mode_t mode = 0;
  uid_t uid = 0;
  int64_t mtime = 0;
  nlink_t links = 0;
  std::string target, xattr;
  std::optional<Bytes> content;
  bool operator==(const Entry&) const = default;
};
using Tree = std::map<std::string, Entry>;

class Arrays {
 public:
  explicit Arrays(uint64_t seed) : lost_(seed), now_(seed + 1'000'000) { now_.tier().copier().content_is_away(); }
  HealingWorld& lost() { return lost_; }
  HealingWorld& now() { return now_; }

  void make_tree() {
    Store& store = lost_.store();
    lost_.save("a", make_bytes(3 * kTestChunk + 5, 1));
    lost_.save("small", make_bytes(100, 2));
    lost_.save("empty", {});
    lost_.save("compressed", make_compressible(2 * kTestChunk, 3), true);
    ASSERT_TRUE(store.make_directory(store.root(), "d", 0755).is_ok());
    const NodeHandle directory = node(store, store.root(), "d");
    ASSERT_TRUE(store.make_directory(directory.get(), "e", 0700).is_ok());
    ASSERT_TRUE(store.symlink("../a", directory.get(), "link").is_ok());
    ASSERT_TRUE(store.make_node(directory.get(), "pipe", S_IFIFO | 0600, 0).is_ok());
    {
      std::shared_ptr<File> sparse = lost_.array().create("sparse");
      ASSERT_TRUE(lost_.array().write(*sparse, 2 * kTestChunk, make_bytes(1000, 4)).is_ok());
      ASSERT_TRUE(lost_.array().commit(*sparse).is_ok());
    }
    const NodeHandle a = node(store, store.root(), "a");
    ASSERT_TRUE(store.link(a.get(), directory.get(), "b").is_ok());
    const std::string_view value = "seven";
    ASSERT_TRUE(store.set_xattr(a.get(), "user.x", std::as_bytes(std::span(value)), 0).is_ok());
    ASSERT_TRUE(store.chmod(a.get(), 0640).is_ok());
    ASSERT_TRUE(store.chown(a.get(), 7, 8).is_ok());
    const struct timespec times[2] = {{1, 2}, {300, 400}};
    ASSERT_TRUE(store.set_times(a.get(), times).is_ok());
    ASSERT_TRUE(store.set_times(directory.get(), times).is_ok());
  }
  // The array is gone, and an empty one has its store.
  void lose() {
    lost_.copy();
    tree_ = tree_of(lost_);
    now_.objects().objects() = lost_.objects().objects();
  }
  const Tree& tree() const { return tree_; }

  Status restore(TierRestoreStatus* status = nullptr) {
    TierRestoreOptions options;
    options.array_id = to_string(lost_.store().array().id());
    options.store_id = "sim://store";
    const auto restore = TierRestore::create(now_.world(), now_.store(), now_.objects(), options);
    const auto answer = std::make_shared<std::optional<Status>>();
    restore->start([answer](const Status& ended) { *answer = ended; });
    now_.world().run_until([answer] { return answer->has_value(); });
    if (status != nullptr) *status = restore->status();
    return answer->value_or(Status::error(StatusCode::kCancelled, "no answer"));
  }

  static NodeHandle node(Store& store, Handle directory, const std::string& name) {
    Result<Store::Node> found = store.lookup(directory, name);
    EXPECT_TRUE(found.is_ok()) << name;
    return std::move(found->handle);
  }
  // `reads`: content too.
  static Tree tree_of(HealingWorld& world, bool reads = true) {
    Tree tree;
    add(world, world.store().root(), "", reads, tree);
    return tree;
  }

 private:
  static void add(HealingWorld& world, Handle directory, const std::string& path, bool reads, Tree& tree) {
    Store& store = world.store();
    std::vector<std::string> names;
    ASSERT_TRUE(store.storage()
                    .list(directory,
                          [&names](const DirectoryEntry& entry) {
                            names.push_back(entry.name);
                            return true;
                          })
                    .is_ok());
    for (const std::string& name : names) {
      Result<Store::Node> found = store.lookup(directory, name);
      ASSERT_TRUE(found.is_ok());
      const struct stat& attributes = found->attributes;
      Entry entry{attributes.st_mode, attributes.st_uid, attributes.st_mtim.tv_sec, attributes.st_nlink, {}, {}, {}};
      if (S_ISDIR(attributes.st_mode)) entry.links = 0;
      if (S_ISLNK(attributes.st_mode)) entry.target = *store.storage().read_link(found->handle.get());
      std::array<std::byte, 100> value;
      if (const auto length = store.storage().get_xattr(found->handle.get(), "user.x", value); length.is_ok())
        entry.xattr.assign(reinterpret_cast<const char*>(value.data()), *length);
      if (S_ISREG(attributes.st_mode) && reads) {
        Result<std::shared_ptr<File>> file = store.open_file(found->handle.get(), false);
        ASSERT_TRUE(file.is_ok());
        const Result<Bytes> read = world.array().read_all(**file);
        EXPECT_TRUE(read.is_ok()) << path << name << ": " << read.status().message();
        if (read.is_ok()) entry.content = *read;
      } else if (S_ISREG(attributes.st_mode)) {
        entry.content = Bytes(static_cast<size_t>(attributes.st_size));
      }
      tree[path + name] = std::move(entry);
      if (!S_ISDIR(attributes.st_mode)) continue;
      const Result<Handle> opened = store.storage().open_at(directory, name, O_RDONLY | O_DIRECTORY);
      ASSERT_TRUE(opened.is_ok());
      const ScopedHandle below(store.storage(), *opened);
      add(world, below.get(), path + name + "/", reads, tree);
    }
  }

  HealingWorld lost_, now_;
  Tree tree_;
};

std::string difference(const Tree& is, const Tree& expected) {
  for (const auto& [path, entry] : expected) {
    const auto found = is.find(path);
    if (found == is.end()) return path + " is missing";
    if (!(found->second == entry))
      return fmt::format("{} is another: mode {:o} {:o}, times {} {}, links {} {}, content {}", path,
                         found->second.mode, entry.mode, found->second.mtime, entry.mtime, found->second.links,
                         entry.links, found->second.content == entry.content);
  }
  for (const auto& [path, entry] : is)
    if (!expected.contains(path)) return path + " should not be there";
  return "";
}

void expect_sound(HealingWorld& world) {
  ASSERT_TRUE(world.tier().stop());
  world.tier().leave_store();
  ASSERT_TRUE(world.array().close().is_ok());
  const Result<CheckReport> report = check_array(world.world(), world.array().paths(), {});
  ASSERT_TRUE(report.is_ok());
  for (const CheckError& error : report->errors) ADD_FAILURE() << error.kind << ": " << error.detail;
}

TEST(TierRestoreTest, TheWholeTreeIsThereAtOnceAndContentComesWhenItIsRead) {
  Arrays arrays(1);
  arrays.make_tree();
  arrays.lose();
  TierRestoreStatus status;
  ASSERT_TRUE(arrays.restore(&status).is_ok());
  EXPECT_EQ(status.files, 6u);
  EXPECT_EQ(status.others, 4u);
  EXPECT_EQ(status.failed, 0u);
  Tree names = arrays.tree();
  for (auto& [path, entry] : names)
    if (entry.content.has_value()) entry.content = Bytes(entry.content->size());
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now(), false), names), "");
  EXPECT_EQ(arrays.now().status().chunks_fetched, 0u);
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "");
  EXPECT_GT(arrays.now().status().chunks_fetched, 0u);
  arrays.now().settle();
  expect_sound(arrays.now());
}

// The copies become this array's: manifests are stored anew, and no content.
TEST(TierRestoreTest, NothingIsSentAgain) {
  Arrays arrays(2);
  arrays.make_tree();
  arrays.lose();
  ASSERT_TRUE(arrays.restore().is_ok());
  arrays.now().copy();
  EXPECT_EQ(arrays.now().tier().copier().status().bytes_copied, 0u);
  EXPECT_EQ(arrays.now().status().chunks_fetched, 0u);
  for (const char* const path : {"a", "small", "compressed", "sparse", "d/b"}) {
    const std::optional<TierManifest> manifest = arrays.now().tier().manifest(path);
    ASSERT_TRUE(manifest.has_value()) << path;
    EXPECT_EQ(manifest->array_id, arrays.now().store().array().id()) << path;
    // Of a second name the store makes a copy of its own.
    const bool is_linked = std::string_view(path).ends_with('a') || std::string_view(path).ends_with('b');
    const std::string was = arrays.lost().objects().objects().at(path).tag;
    EXPECT_TRUE(is_linked || arrays.now().objects().objects().at(path).tag == was) << path;
  }
  // And it goes on as with copies that it has made itself.
  ASSERT_TRUE(arrays.now().store().unlink(arrays.now().store().root(), "small").is_ok());
  ASSERT_TRUE(arrays.now().tier().wait_for_all().is_ok());
  EXPECT_FALSE(arrays.now().objects().objects().contains("small"));
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()),
                       [&] {
                         Tree left = arrays.tree();
                         left.erase("small");
                         return left;
                       }()),
            "");
  arrays.now().settle();
  expect_sound(arrays.now());
}

// One request for it, and it is on the drives: of what is larger the content follows.
TEST(TierRestoreTest, ASmallFileComesWithItsManifest) {
  Arrays arrays(8);
  const uint32_t limit = tier_store_options().inline_max;
  arrays.lost().save("small", make_bytes(100, 3));
  arrays.lost().save("limit", make_bytes(limit, 1));
  arrays.lost().save("beyond", make_bytes(limit + 1, 2));
  {
    std::shared_ptr<File> longer = arrays.lost().array().create("longer");
    ASSERT_TRUE(arrays.lost().array().write(*longer, 0, make_bytes(10, 4)).is_ok());
    ASSERT_TRUE(arrays.lost().array().control(*longer, ControlRequest::Kind::kTruncate, 500).is_ok());
    ASSERT_TRUE(arrays.lost().array().commit(*longer).is_ok());
  }
  arrays.lose();
  EXPECT_EQ(arrays.now().tier().manifest("beyond")->content.size(), 0u);
  for (const char* const path : {"small", "limit", "longer"}) {
    const Bytes content = arrays.now().tier().manifest(path)->content;
    EXPECT_TRUE(arrays.now().tier().copy(path) == std::optional(content)) << path;
    // Nobody needs this any more.
    arrays.now().objects().objects().at(path).content.clear();
  }
  ASSERT_TRUE(arrays.restore().is_ok());
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "");
  EXPECT_EQ(arrays.now().status().chunks_fetched, 1u);
  arrays.now().tier().leave();
  arrays.now().array().crash();
  arrays.now().array().open();
  arrays.now().tier().connect();
  arrays.now().tier().copier().content_is_away();
  arrays.now().connect();
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "") << "it is durable";
}

// It comes with its manifest, but is no part of its record here.
TEST(TierRestoreTest, ContentThatThisArrayKeepsBesideItsRecordIsCommittedToo) {
  Arrays arrays(9);
  const size_t limit = tier_store_options().inline_max;
  const std::array<Bytes, 3> contents{make_bytes(limit, 1), make_bytes(limit + 1, 2), make_bytes(2 * limit, 3)};
  for (size_t i = 0; i < contents.size(); ++i) arrays.lost().save(fmt::format("f{}", i), contents[i]);
  arrays.lose();
  for (size_t i = 0; i < contents.size(); ++i) {
    const std::string path = fmt::format("f{}", i);
    TierManifest manifest = *arrays.now().tier().manifest(path);
    manifest.content = contents[i];
    arrays.now().objects().objects().at(manifest_key(path)).content = encode_manifest(manifest);
    arrays.now().objects().objects().at(path).content.clear();  // nobody needs this any more
  }
  ASSERT_TRUE(arrays.restore().is_ok());
  arrays.now().tier().leave();
  arrays.now().array().crash();
  arrays.now().array().open();
  arrays.now().tier().connect();
  arrays.now().connect();
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "");
  EXPECT_EQ(arrays.now().status().chunks_fetched, 0u);
  expect_sound(arrays.now());
}

TEST(TierRestoreTest, SmallFilesAreSyncedTogether) {
  Arrays arrays(10);
  constexpr unsigned kFiles = 100;
  for (unsigned i = 0; i < kFiles; ++i) arrays.lost().save(fmt::format("f{}", i), make_bytes(50 + i, i));
  arrays.lose();
  SimStorage& sim = arrays.now().array().sim();
  SimFault counts;
  counts.call = SimFault::Call::kSyncFile;
  counts.nth = SimFault::kForever;
  sim.inject(counts);
  ASSERT_TRUE(arrays.restore().is_ok());
  EXPECT_EQ(sim.fault_calls(), 0u) << "of single files";
  sim.clear_faults();
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "");
  for (unsigned i = 0; i < kFiles; ++i) {
    const std::shared_ptr<File> file = arrays.now().array().open(fmt::format("f{}", i));
    EXPECT_FALSE(file->is_dirty());
    EXPECT_TRUE(file->hold_version().is_ok()) << "its commit counts as durable";
  }
}

// What it was to make durable may be lost (P4): none of that gets a name, and the array takes nothing more.
TEST(TierRestoreTest, ASyncOfManyThatFails) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Arrays arrays(200 + seed);
    for (unsigned i = 0; i < 50; ++i) arrays.lost().save(fmt::format("f{}", i), make_bytes(50 + i, i));
    arrays.lose();
    HealingWorld& now = arrays.now();
    SimFault fault;
    fault.call = SimFault::Call::kSyncFilesystem;
    fault.nth = 1 + seed % 2;
    now.array().sim().inject(fault);
    ASSERT_FALSE(arrays.restore().is_ok());
    now.array().sim().clear_faults();
    EXPECT_FALSE(arrays.restore().is_ok()) << "an array that takes nothing more";
    now.tier().leave();
    now.array().crash();
    now.array().open();
    now.tier().connect();
    now.connect();
    for (const auto& [path, entry] : Arrays::tree_of(now)) {
      ASSERT_TRUE(arrays.tree().contains(path)) << path << ", seed " << seed;
      EXPECT_TRUE(entry.content == arrays.tree().at(path).content) << path << ", seed " << seed;
    }
    ASSERT_TRUE(arrays.restore().is_ok());
    ASSERT_EQ(difference(Arrays::tree_of(now), arrays.tree()), "") << "seed " << seed;
    expect_sound(now);
  }
}

TEST(TierRestoreTest, WhatIsThereStays) {
  Arrays arrays(3);
  arrays.make_tree();
  arrays.lose();
  const Bytes mine = make_bytes(500, 9);
  arrays.now().save("a", mine);
  arrays.now().save("d", mine);  // where the other array has a directory
  TierRestoreStatus status;
  ASSERT_TRUE(arrays.restore(&status).is_ok());
  EXPECT_EQ(status.were_there, 2u);
  EXPECT_GT(status.failed, 0u) << "what belongs into that directory";
  EXPECT_EQ(arrays.now().read("a").value(), mine);
  EXPECT_EQ(arrays.now().read("d").value(), mine);
  EXPECT_EQ(arrays.now().read("compressed").value(), *arrays.tree().at("compressed").content);
  // Once more: nothing is made twice.
  ASSERT_TRUE(arrays.restore(&status).is_ok());
  EXPECT_EQ(status.files + status.others, 0u);
}

TEST(TierRestoreTest, WhatNoNameCanBeIsRefused) {
  Arrays arrays(4);
  arrays.lost().save("a", make_bytes(1000, 1));
  arrays.lose();
  auto& objects = arrays.now().objects().objects();
  const TierManifest good = *arrays.now().tier().manifest("a");
  unsigned number = 0;
  const auto plant = [&](const std::string& key, const std::string& path) {
    TierManifest manifest = good;
    manifest.path = path;
    objects[key] = {encode_manifest(manifest), {}, fmt::format("x{}", ++number)};
  };
  for (const char* const path : {"../out", "d/../../out", "./x", "d//x", "/etc", ".fastpersistfs-store/x"})
    plant(std::string(".fastpersistfs/") + path, path);
  plant(".fastpersistfs/b", "c");  // of another path
  plant(".fastpersistfs/" + std::string(300, 'n'), std::string(300, 'n'));
  objects[".fastpersistfs/garbage"] = {make_bytes(200, 5), {}, "g"};
  TierManifest foreign = good;
  foreign.array_id[3] ^= std::byte{1};
  foreign.path = "foreign";
  objects[".fastpersistfs/foreign"] = {encode_manifest(foreign), {}, "f"};
  TierRestoreStatus status;
  ASSERT_TRUE(arrays.restore(&status).is_ok());
  EXPECT_EQ(status.files, 1u);
  EXPECT_GE(status.failed, 8u);
  EXPECT_FALSE(status.last_error.empty());
  EXPECT_EQ(Arrays::tree_of(arrays.now()).size(), 1u);
}

TEST(TierRestoreTest, ChunksOfAnotherSizeAreSaidAtOnce) {
  Arrays arrays(5);
  arrays.lost().save("a", make_bytes(40'000, 1));
  arrays.lose();
  TierManifest manifest = *arrays.now().tier().manifest("a");
  manifest.chunk_size *= 2;
  arrays.now().objects().objects().at(manifest_key("a")).content = encode_manifest(manifest);
  const Status status = arrays.restore();
  EXPECT_EQ(status.code(), StatusCode::kTooLarge);
  EXPECT_NE(status.message().find("--chunk-size"), std::string::npos) << status.message();
}

TEST(TierRestoreTest, AStoreThatGoesAwayEndsIt) {
  Arrays arrays(6);
  arrays.make_tree();
  arrays.lose();
  arrays.now().objects().set_away(true);
  EXPECT_EQ(arrays.restore().code(), StatusCode::kUnreachable);
  arrays.now().objects().set_away(false);
  ASSERT_TRUE(arrays.restore().is_ok());
  EXPECT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "");
}

// The power goes at any step, again and again: what has a name is whole, and in the end everything is there.
TEST(TierRestoreTest, ThePowerGoesInTheMiddle) {
  const uint64_t seeds = alike(120);
  uint64_t cuts = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Arrays arrays(100 + seed);
    arrays.make_tree();
    for (unsigned i = 0; i < 5; ++i) arrays.lost().save(fmt::format("small{}", i), make_bytes(50 + i, 20 + i));
    arrays.lose();
    SimRandom random(seed);
    for (unsigned life = 0; life < 4; ++life) {
      HealingWorld& now = arrays.now();
      now.world().cut_at(now.world().boundaries() + random.between(1, 60));
      static_cast<void>(arrays.restore());
      cuts += now.world().is_off() ? 1 : 0;
      now.tier().leave();
      random.chance(50) || now.world().is_off() ? now.array().crash() : now.array().kill();
      now.array().open();
      now.tier().connect();
      now.tier().copier().content_is_away();
      now.connect();
      for (const auto& [path, entry] : Arrays::tree_of(now)) {
        const auto expected = arrays.tree().find(path);
        ASSERT_TRUE(expected != arrays.tree().end()) << path << ", seed " << seed;
        EXPECT_TRUE(entry.content == expected->second.content) << path << ", seed " << seed;
        if (entry.content.has_value()) {
          EXPECT_EQ(entry.mode, expected->second.mode) << path << ", seed " << seed;
          EXPECT_EQ(entry.xattr, expected->second.xattr) << path << ", seed " << seed;
          EXPECT_EQ(entry.mtime, expected->second.mtime) << path << ", seed " << seed;
        }
      }
      // What was read is committed, with the power on. (A commit that is killed behind its record and before it sets
      // the modification time leaves the time of the record: that is not what this is about.)
      now.pass(20);
    }
    arrays.now().world().cut_at(0);
    ASSERT_TRUE(arrays.restore().is_ok());
    ASSERT_EQ(difference(Arrays::tree_of(arrays.now()), arrays.tree()), "") << "seed " << seed;
    arrays.now().settle();
    expect_sound(arrays.now());
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(cuts, seeds);
}

}  // namespace
}  // namespace fpfs::test
