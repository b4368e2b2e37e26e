// Several arrays that share a store, each in a machine of its own, while programs save, rename and remove files of the
// same names, and change their modes, on all of them, in any order, with power cuts, kills, and a store that fails and
// loses answers. What holds:
//
//   - what was saved durably, and was then neither replaced nor removed by somebody who saw it, is there in the end, on
//     every node, under its name or as a conflict
//   - nobody sees what nobody has saved
//   - in the end all nodes have the same files, of the same modes, which are those of the store
//   - without a conflict nothing is kept twice
//   - the arrays have nothing to complain of
//
// Each mistake that is planted must be noticed by some seed.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "engine/check/check.h"
#include "tests/engine/tier/healing_world.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

enum class ShareMistake : uint8_t {
  kNone,
  kNotCompared,   // one node copies as if it were alone
  kChangeUnsaid,  // a file that was changed still says that it is as another node has copied it
  kModeOwns,      // who changes the mode of a file counts as who has its content
};

class Node {
 public:
  Node(uint64_t seed, const SimObjectStore::Options& options, bool shares) : world_(seed, options), shares_(shares) {
    world_.tier().options().shares = shares_;
    world_.tier().options().look_timeout = std::chrono::milliseconds(600'000);
    world_.tier().leave_store();
    begin();
  }
  HealingWorld& world() { return world_; }
  bool shares() const { return shares_; }
  Store& store() { return world_.store(); }
  bool is_off() { return world_.world().is_off(); }

  void begin() {
    world_.tier().connect();
    world_.connect();
    world_.tier().copier().open();
  }
  // Whether it shows what the others have copied by now.
  bool look(const std::string& directory = "") {  // with a slash at its end
    const auto seen = std::make_shared<bool>(false);
    const struct timespec now = world_.world().now();
    const uint64_t now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    if (!world_.tier().copier().look(directory, now_ns, [seen] { *seen = true; })) return false;
    world_.world().run_until([&] { return *seen || is_off(); });
    return *seen;
  }
  // What a mount does now and then, and when it ends.
  void save_lost() {
    if (shares_) world_.tier().options().lost->save();
  }
  // Everything is copied. Nothing: the power went before.
  std::optional<Status> copy() {
    const auto copied = std::make_shared<std::optional<Status>>();
    world_.tier().copier().wait_for_all([copied](const Status& status) { *copied = status; });
    world_.world().run_until([&] { return copied->has_value() || is_off(); });
    return *copied;
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    static_cast<void>(store().storage().list(store().root(), [&found](const DirectoryEntry& entry) {
      found.push_back(entry.name);
      return true;
    }));
    return found;
  }
  NodeHandle handle_of(const std::string& name) {
    Result<Store::Node> node = store().lookup(store().root(), name);
    return node.is_ok() ? std::move(node->handle) : NodeHandle();
  }
  struct stat attributes_of(const std::string& name) {
    const Result<struct stat> attributes = store().storage().stat_at(store().root(), name);
    return attributes.is_ok() ? *attributes : (struct stat){};
  }
  // The file says that it is as it was.
  void say_unchanged(File& file, const std::string& name, const struct stat& then) {
    const struct timespec times[2] = {{0, UTIME_OMIT}, then.st_mtim};
    static_cast<void>(store().set_times(handle_of(name).get(), times));
    static_cast<void>(file.set_note(ChunkSource::kOthersAttribute, {}));
  }
  bool is_link(const std::string& name) { return S_ISLNK(attributes_of(name).st_mode); }
  Result<Bytes> target_of(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const Store::Node node, store().lookup(store().root(), name));
    FPFS_ASSIGN_OR_RETURN(const std::string target, store().storage().read_link(node.handle.get()));
    return bytes_of(target);
  }
  static Bytes bytes_of(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  // What another node has copied is noted as this one's.
  void take_over(const std::string& name) {
    std::optional<TierNote> note = world_.tier().note(name);
    const Result<std::shared_ptr<File>> file = world_.array().try_open(name);
    if (!note.has_value() || !file.is_ok()) return;
    note->is_others = false;
    static_cast<void>((*file)->set_note(TierNote::kAttribute, encode_note(*note)));
  }
  // 0: there is none.
  uint64_t inode_of(const std::string& name) {
    const Result<struct stat> attributes = store().storage().stat_at(store().root(), name);
    return attributes.is_ok() ? attributes->st_ino : 0;
  }

 private:
  HealingWorld world_;
  const bool shares_;
};

class SharingNodes {
 public:
  explicit SharingNodes(uint64_t seed, ShareMistake mistake = ShareMistake::kNone)
      : random_(SimRandom(seed ^ 0x7368617265).next()), mistake_(mistake) {
    const uint64_t count = random_.between(2, 3);
    for (uint64_t i = 0; i < count; ++i) {
      const bool shares = mistake != ShareMistake::kNotCompared || i > 0;
      nodes_.push_back(std::make_unique<Node>(seed * 7 + i, options(i), shares));
    }
  }
  std::string run() {
    for (uint64_t calls = random_.between(10, 40); calls > 0 && wrong_.empty(); --calls) act();
    if (wrong_.empty()) end_well();
    return wrong_;
  }
  // A file that one node has saved, another one moves; behind a power cut there, and a look here, back again.
  std::string move_and_move_back() {
    for (const size_t i : {0U, 1U}) {
      Node& node = turn_to(i);
      node.world().objects().set_options({.tags = std::string(1, static_cast<char>('p' + i))});
    }
    const Bytes saved = saved_and_copied(turn_to(0), "c");
    if (!sees(turn_to(1), "c", true)) return "it is not shown";
    move(turn_to(1), "c", "a");
    turn_to(1).world().array().crash();
    turn_to(1).world().array().open();
    turn_to(1).begin();
    if (!sees(turn_to(0), "c", false)) return "it is not moved for the others";
    move(turn_to(1), "a", "c");
    const auto there = content(turn_to(1), "c");
    return there.has_value() && *there == std::optional(saved) ? wrong_ : "it is lost";
  }
  uint64_t conflicts() const { return conflicts_; }
  uint64_t shown() const { return shown_; }
  uint64_t ends() const { return ends_; }

 private:
  static constexpr const char* kNames[] = {"a", "b", "c"};
  static constexpr const char* kLinks[] = {"l", "m"};

  SimObjectStore::Options options(uint64_t node) {
    SimObjectStore::Options options;
    options.delay_ms_max = static_cast<unsigned>(random_.between(1, 60));
    options.tags = std::string(1, static_cast<char>('p' + node));
    if (random_.chance(30)) {
      options.failed_percent = static_cast<unsigned>(random_.below(10));
      options.lost_percent = static_cast<unsigned>(random_.below(10));
    }
    return options;
  }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  // What the store has is one thing, whoever looks.
  Node& turn_to(size_t number) {
    if (number != now_) nodes_[number]->world().objects().objects().swap(nodes_[now_]->world().objects().objects());
    now_ = number;
    return *nodes_[number];
  }
  Bytes make() {
    const size_t length = random_.chance(20) ? random_.below(3000) : random_.between(1, 3 * kTestChunk);
    Bytes content = make_bytes(length + 8, ++salt_);
    written_.insert(content);
    return content;
  }
  void trace(const std::string& what) {
    if (std::getenv("FPFS_SHARE_TRACE") != nullptr) fmt::print("node {}: {}\n", now_, what);
  }
  void act() {
    Node& node = turn_to(random_.below(nodes_.size()));
    const uint64_t what = random_.below(100);
    const std::string name = kNames[random_.below(std::size(kNames))];
    if (random_.chance(10)) node.world().world().cut_at(node.world().world().boundaries() + random_.between(1, 120));
    trace(fmt::format("{} {}", what, name));
    if (what < 25)
      save(node, name);
    else if (what < 30)
      change(node, name);
    else if (what < 37)
      remove(node, name);
    else if (what < 45)
      rename(node, name);
    else if (what < 55)
      read(node, name);
    else if (what < 60)
      change_mode(node, name);
    else if (what < 75)
      node.look();
    else if (what < 80)
      send_away(node, name);
    else if (what < 83)
      node.world().tier().copier().scan();
    else if (what < 86)
      node.save_lost();
    else if (what < 94)
      link(node);
    for (uint64_t steps = random_.below(150); steps > 0 && !node.is_off(); --steps) node.world().world().step();
    if (random_.chance(15) && !node.is_off()) static_cast<void>(node.copy());
    if (node.is_off() || random_.chance(4)) end(node);
  }
  void end(Node& node) {
    ++ends_;
    trace("ends");
    const bool is_killed = !node.is_off() && random_.chance(50);
    if (is_killed && random_.chance(50)) node.save_lost();
    note(node);
    node.world().tier().leave();
    is_killed ? node.world().array().kill() : node.world().array().crash();
    node.world().array().open();
    node.begin();
  }
  void note(Node& node) {
    const TierCopyStatus status = node.world().tier().copier().status();
    conflicts_ += status.conflicts;
    shown_ += status.files_shared;
  }
  // What is there by that name, for somebody who looks; nothing: that cannot be read.
  std::optional<std::optional<Bytes>> content(Node& node, const std::string& name) {
    const uint64_t before = node.inode_of(name);
    const Result<Bytes> got = node.is_link(name) ? node.target_of(name) : node.world().read(name);
    if (node.is_off() || node.inode_of(name) != before) return std::nullopt;  // another one by now
    if (got.status().code() == StatusCode::kNotFound) return std::optional<Bytes>();
    if (!got.is_ok()) return std::nullopt;
    if (!written_.contains(*got)) fail(name + " has a content that nobody has saved");
    return *got;
  }
  // Who replaces or removes it has seen it: from now on it need not be there.
  bool let_go(Node& node, const std::string& name) {
    const auto there = content(node, name);
    if (!there.has_value() || node.is_off()) return false;
    if (there->has_value()) live_.erase(**there);
    return true;
  }
  void save(Node& node, const std::string& name) {
    const Bytes made = make();
    const std::string unfinished = fmt::format(".{}.new{}", name, now_);
    static_cast<void>(node.store().unlink(node.store().root(), unfinished));
    Result<Store::Created> created = node.store().create(node.store().root(), unfinished, 0644);
    if (!created.is_ok()) return;
    created->node.handle.reset();
    const bool is_saved = node.world().tier().write(*created->file, made).is_ok() &&
                          node.world().array().control(*created->file, ControlRequest::Kind::kClose).is_ok();
    trace(fmt::format("saves {} {:x} {}", name, hash_bytes(made) & 0xffff, made.size()));
    if (!is_saved || !let_go(node, name)) return;
    // Nothing happens in between.
    if (!node.store().rename(node.store().root(), unfinished, node.store().root(), name, 0).is_ok()) return;
    if (node.store().sync_directory(node.store().root()).is_ok() && !node.is_off()) live_.insert(made);
    trace(fmt::format("saved {} {:x}", name, hash_bytes(made) & 0xffff));
  }
  // In place, a part of it.
  void change(Node& node, const std::string& name) {
    if (!is_here(node, name) && content(node, name).has_value()) node.world().pass(400);
    const uint64_t before = node.inode_of(name);
    const auto there = content(node, name);
    Result<std::shared_ptr<File>> file = node.world().array().try_open(name);
    if (!there.has_value() || !there->has_value() || (*there)->empty() || !file.is_ok()) return;
    if (!is_here(node, name) || node.inode_of(name) != before) return;
    Bytes changed = **there;
    const Bytes piece = make_bytes(std::min<size_t>(changed.size(), 1000), ++salt_);
    std::copy(piece.begin(), piece.end(), changed.begin());
    written_.insert(changed);
    live_.erase(**there);
    const bool is_others =
        node.world().world().sim().get_xattr(node.handle_of(name).get(), ChunkSource::kOthersAttribute, {}).is_ok();
    const struct stat then = node.attributes_of(name);
    const bool is_changed = node.world().array().write(**file, 0, piece).is_ok() &&
                            node.world().array().control(**file, ControlRequest::Kind::kClose).is_ok();
    if (is_others && mistake_ == ShareMistake::kChangeUnsaid) node.say_unchanged(**file, name, then);
    if (is_changed && !node.is_off() && node.inode_of(name) == before) live_.insert(changed);
    trace(fmt::format("changed {} to {:x}", name, hash_bytes(changed) & 0xffff));
  }
  // Which is nobody's content.
  void change_mode(Node& node, const std::string& name) {
    const mode_t mode = random_.chance(50) ? 0600 : 0640;
    const NodeHandle file = node.handle_of(name);
    if (!file.is_open() || !node.store().chmod(file.get(), mode).is_ok()) return;
    trace(fmt::format("changes the mode of {} to {:o}", name, mode));
    if (mistake_ == ShareMistake::kModeOwns) node.take_over(name);
  }
  void remove(Node& node, const std::string& name) {
    if (!let_go(node, name)) return;
    trace(fmt::format("removes {}", name));
    static_cast<void>(node.store().unlink(node.store().root(), name));
    if (random_.chance(50)) static_cast<void>(node.store().sync_directory(node.store().root()));
  }
  // What lies in the store only, under its old name, is lost when another node replaces it there before it has a copy
  // under the new one.
  bool is_here(Node& node, const std::string& name) {
    const Result<std::shared_ptr<File>> file = node.world().array().try_open(name);
    return file.is_ok() && (*file)->info().codec_chunks[static_cast<size_t>(Codec::kAway)] == 0;
  }
  void rename(Node& node, const std::string& name) {
    const std::string to = kNames[random_.below(std::size(kNames))];
    if (!is_here(node, name)) return;
    const auto moved = content(node, name);
    const uint64_t inode = node.inode_of(name);
    if (to == name || !moved.has_value() || !moved->has_value() || !let_go(node, to)) return;
    // Nothing happens between the look at what is replaced, and the rename.
    if (node.inode_of(name) != inode) return;
    const bool was_live = live_.erase(**moved) > 0;
    trace(fmt::format("renames {} to {}, {:x}", name, to, hash_bytes(**moved) & 0xffff));
    if (!node.store().rename(node.store().root(), name, node.store().root(), to, 0).is_ok()) return;
    if (node.store().sync_directory(node.store().root()).is_ok() && !node.is_off() && was_live) live_.insert(**moved);
  }
  // While the store fails, later.
  static bool looks(Node& node) {
    bool has_looked = node.look();
    for (unsigned tries = 0; tries < 20 && !has_looked; ++tries) {
      node.world().pass(1000);
      has_looked = node.look();
    }
    return has_looked;
  }
  // That it is there, or not there any more.
  static bool sees(Node& node, const std::string& name, bool is_there) {
    for (unsigned round = 0; round < 4 && (node.inode_of(name) != 0) != is_there; ++round) {
      if (!looks(node) || !node.copy().has_value()) return false;
      node.world().settle();
    }
    return (node.inode_of(name) != 0) == is_there;
  }
  Bytes saved_and_copied(Node& node, const std::string& name) {
    save(node, name);
    if (live_.size() != 1 || !node.copy().has_value()) fail("nothing is saved");
    return live_.empty() ? Bytes() : *live_.begin();
  }
  void move(Node& node, const std::string& from, const std::string& to) {
    Store& store = node.store();
    const bool is_moved = store.rename(store.root(), from, store.root(), to, 0).is_ok() &&
                          store.sync_directory(store.root()).is_ok() && node.copy().has_value();
    if (!is_moved) fail("it is not moved");
    node.world().settle();
  }
  void read(Node& node, const std::string& name) { static_cast<void>(content(node, name)); }
  // Of others only, as ArrayTier does.
  void send_away(Node& node, const std::string& name) {
    const std::optional<TierNote> note = node.world().tier().note(name);
    if (note.has_value() && note->is_others) static_cast<void>(node.world().send_away(name));
  }

  // Symbolic links are saved as files are, moved and removed.
  void link(Node& node) {
    const std::string name = kLinks[random_.below(std::size(kLinks))];
    const uint64_t what = random_.below(10);
    if (what < 2) return remove(node, name);
    if (what < 3) return move_link(node, name);
    const std::string target = fmt::format("target-{}", ++salt_), unfinished = fmt::format(".{}.new{}", name, now_);
    const Bytes made = Node::bytes_of(target);
    written_.insert(made);
    static_cast<void>(node.store().unlink(node.store().root(), unfinished));
    if (!node.store().symlink(target, node.store().root(), unfinished).is_ok() || !let_go(node, name)) return;
    if (!node.store().rename(node.store().root(), unfinished, node.store().root(), name, 0).is_ok()) return;
    if (node.store().sync_directory(node.store().root()).is_ok() && !node.is_off()) live_.insert(made);
    trace(fmt::format("links {} to {}, {:x}", name, target, hash_bytes(made) & 0xffff));
  }
  void move_link(Node& node, const std::string& name) {
    const std::string to = kLinks[random_.below(std::size(kLinks))];
    const auto moved = content(node, name);
    const uint64_t inode = node.inode_of(name);
    if (to == name || !moved.has_value() || !moved->has_value() || !let_go(node, to)) return;
    if (node.inode_of(name) != inode) return;
    const bool was_live = live_.erase(**moved) > 0;
    trace(fmt::format("moves link {} to {}", name, to));
    if (!node.store().rename(node.store().root(), name, node.store().root(), to, 0).is_ok()) return;
    if (node.store().sync_directory(node.store().root()).is_ok() && !node.is_off() && was_live) live_.insert(**moved);
  }

  // --- the end -------------------------------------------------------------------------------------------------------
  struct Shown {
    Bytes content;
    mode_t mode = 0;
    bool operator==(const Shown&) const = default;
  };
  using Tree = std::map<std::string, Shown>;
  bool is_own(const std::string& name) { return name.front() != '.'; }
  std::optional<Tree> tree_of(Node& node) {
    Tree tree;
    for (const std::string& name : node.names()) {
      std::optional<std::optional<Bytes>> is;
      for (unsigned i = 0; i < 20 && !is.has_value(); ++i) {
        is = content(node, name);
        if (!is.has_value()) node.world().pass(1000);
      }
      if (!is.has_value()) return std::nullopt;
      if (is->has_value() && is_own(name)) tree[name] = {**is, node.attributes_of(name).st_mode};
    }
    return tree;
  }
  std::optional<Bytes> copied(const std::string& name, const Shown& shown) {
    SimTier& tier = nodes_[now_]->world().tier();
    if (!S_ISLNK(shown.mode)) return tier.copy(name);
    const std::optional<TierManifest> manifest = tier.manifest(name);
    return manifest.has_value() ? std::optional(Node::bytes_of(manifest->target)) : std::nullopt;
  }
  void end_well() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = turn_to(i);
      if (node.is_off()) end(node);
      node.world().world().cut_at(0);
      node.world().objects().set_options({.tags = std::string(1, static_cast<char>('p' + i))});
      for (const std::string& name : node.names())
        if (!is_own(name)) static_cast<void>(node.store().unlink(node.store().root(), name));
    }
    std::vector<Tree> trees(nodes_.size());
    for (unsigned round = 0; round < 4; ++round)
      for (size_t i = 0; i < nodes_.size(); ++i) {
        Node& node = turn_to(i);
        trace("round");
        if (node.shares() && !looks(node)) return fail("nobody can look");
        const std::optional<Status> copied = node.copy();
        if (!copied.has_value()) return fail("never copied");
        if (!copied->is_ok() && round > 1) return fail("not copied in the end: " + copied->message());
        node.world().settle();
      }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const std::optional<Tree> tree = tree_of(turn_to(i));
      if (!wrong_.empty()) return;
      if (!tree.has_value()) return fail(fmt::format("node {} has what cannot be read", i));
      trees[i] = *tree;
      // What has come to the drives by that is moved, and may be copied once more.
      if (const auto copied = nodes_[i]->copy(); !copied.has_value() || !copied->is_ok())
        return fail("not copied then");
    }
    for (size_t i = 1; i < nodes_.size(); ++i)
      if (trees[i] != trees[0]) return fail(fmt::format("nodes differ: {} and {}", text(trees[0]), text(trees[i])));
    std::set<Bytes> there;
    for (const auto& [name, is] : trees[0]) {
      there.insert(is.content);
      if (copied(name, is) != std::optional(is.content)) return fail(name + " is copied as another: " + text(trees[0]));
    }
    for (const Bytes& content : live_)
      if (!there.contains(content))
        return fail(
            fmt::format("what was saved last is lost: {:x} of {}", hash_bytes(content) & 0xffff, text(trees[0])));
    for (size_t i = 0; i < nodes_.size(); ++i) close(turn_to(i));
    if (conflicts_ > 0 || ends_ > 0) return;  // who has ended in the middle of one has not counted it
    for (const auto& [name, is] : trees[0])
      if (name.find(".conflict-") != std::string::npos) return fail(name + " is there without a conflict");
  }
  static std::string text(const Tree& tree) {
    std::string text;
    for (const auto& [name, is] : tree)
      text += fmt::format("{} {:x} {:o}, ", name, hash_bytes(is.content) & 0xffff, is.mode & 0777);
    return text;
  }
  void close(Node& node) {
    note(node);
    if (!node.world().tier().stop()) return fail("does not stop");
    node.world().tier().leave_store();
    if (const Status closed = node.world().array().close(); !closed.is_ok())
      return fail("not closed: " + closed.message());
    const Result<CheckReport> report = check_array(node.world().world(), node.world().array().paths(), {});
    if (!report.is_ok()) return fail("cannot be checked: " + report.status().message());
    for (const CheckError& error : report->errors) fail(error.kind + ": " + error.detail);
  }

  SimRandom random_;
  const ShareMistake mistake_;
  std::vector<std::unique_ptr<Node>> nodes_;
  size_t now_ = 0;  // whose store has the objects
  std::set<Bytes> written_{Bytes()}, live_;
  uint64_t salt_ = 0, conflicts_ = 0, shown_ = 0, ends_ = 0;
  std::string wrong_;
};

uint64_t share_number(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

TEST(TierShareTest, WhatIsMovedBackIsNotTakenForRemoved) {
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(SharingNodes(seed).move_and_move_back(), "") << "seed " << seed;
}

// FPFS_SHARE_SEED=N: one seed. FPFS_SHARE_SEEDS=N: so many, from FPFS_SHARE_FIRST=N on.
TEST(TierShareTest, NothingIsLostThatIsShared) {
  if (const uint64_t seed = share_number("FPFS_SHARE_SEED", 0); seed > 0) {
    EXPECT_EQ(SharingNodes(seed).run(), "") << "seed " << seed;
    return;
  }
  const uint64_t seeds = alike(share_number("FPFS_SHARE_SEEDS", 200));
  const uint64_t first = share_number("FPFS_SHARE_FIRST", 1);
  uint64_t conflicts = 0, shown = 0, ends = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SharingNodes nodes(seed);
    ASSERT_EQ(nodes.run(), "") << "seed " << seed;
    conflicts += nodes.conflicts();
    shown += nodes.shown();
    ends += nodes.ends();
  }
  EXPECT_GT(conflicts, seeds / 10);
  EXPECT_GT(shown, seeds);
  EXPECT_GT(ends, seeds / 4);
  fmt::print("{} seeds, {} ends without order, {} files shown, {} conflicts\n", seeds, ends, shown, conflicts);
}

TEST(TierShareTest, EveryPlantedMistakeIsNoticed) {
  if (kIsSanitized) GTEST_SKIP() << "whether a seed notices it is the same with a sanitizer";
  for (uint8_t i = 1; i <= static_cast<uint8_t>(ShareMistake::kModeOwns); ++i) {
    bool is_noticed = false;
    constexpr uint64_t first = 200;  // seeds from there on find each soon
    for (uint64_t seed = first; seed < first + 2000 && !is_noticed; ++seed) {
      const std::string wrong = SharingNodes(seed, static_cast<ShareMistake>(i)).run();
      is_noticed = !wrong.empty();
      if (is_noticed) fmt::print("mistake {}: seed {}: {}\n", i, seed, wrong);
    }
    EXPECT_TRUE(is_noticed) << "mistake " << int{i};
  }
}

// Who waits for the copy of a file knows that others can see it.
TEST(TierShareTest, ADirectoryIsStoredBeforeWhatIsInIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Node node(seed, {.tags = "p"}, true);
    node.world().settle();
    Store& store = node.store();
    ASSERT_TRUE(store.make_directory(store.root(), "d", 0755).is_ok());
    const Result<Handle> opened = store.storage().open_at(store.root(), "d", O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(opened.is_ok());
    const ScopedHandle directory(store.storage(), *opened);
    Result<Store::Created> created = store.create(directory.get(), "file", 0644);
    ASSERT_TRUE(created.is_ok());
    created->node.handle.reset();
    ASSERT_TRUE(node.world().tier().write(*created->file, make_bytes(1000, seed)).is_ok());
    ASSERT_TRUE(node.world().array().control(*created->file, ControlRequest::Kind::kClose).is_ok());
    ASSERT_TRUE(node.world().tier().wait_for("d/file").is_ok());
    EXPECT_TRUE(node.world().tier().manifest("d/").has_value()) << "seed " << seed;
  }
}

// A node that removes its own copy may remove what another one has stored there in between.
TEST(TierShareTest, WhatIsMissingInTheStoreIsSentAgainAtTheNextLook) {
  Node node(1, {.tags = "p"}, true);
  const Bytes content = make_bytes(2 * kTestChunk + 5, 1);
  node.world().save("x", content);
  ASSERT_TRUE(node.copy().value().is_ok());
  node.world().objects().objects().erase(manifest_key("x"));
  node.world().objects().objects().erase("x");
  ASSERT_TRUE(node.look());
  node.world().pass(3000);
  EXPECT_TRUE(node.world().tier().copy("x") == std::optional(content));
}

TEST(TierShareTest, LinksThatAreAlikeAreNoConflict) {
  Node a(1, {.tags = "p"}, true), b(2, {.tags = "q"}, true);
  ASSERT_TRUE(a.store().symlink("step-1", a.store().root(), "latest").is_ok());
  ASSERT_TRUE(a.copy().value().is_ok());
  a.world().objects().objects().swap(b.world().objects().objects());
  b.world().pass(3000);  // made at another time
  ASSERT_TRUE(b.store().symlink("step-1", b.store().root(), "latest").is_ok());
  ASSERT_TRUE(b.copy().value().is_ok());
  ASSERT_TRUE(b.look());
  EXPECT_EQ(b.names(), std::vector<std::string>{"latest"});
  EXPECT_EQ(b.world().tier().copier().status().conflicts, 0U);
}

// A filesystem has no directory beside a file of that name: who has the directory keeps the file that is in its way, and
// the other one follows.
TEST(TierShareTest, AFileIsInTheWayOfADirectory) {
  Node a(1, {.tags = "p"}, true), b(2, {.tags = "q"}, true);
  const auto swap = [&] { a.world().objects().objects().swap(b.world().objects().objects()); };
  const Bytes content = make_bytes(2 * kTestChunk + 5, 1);
  a.world().save("x", content);
  ASSERT_TRUE(a.copy().value().is_ok());
  swap();
  b.world().objects().refuse(Status::error(StatusCode::kExists, "there is a file"), manifest_key("x/"));
  ASSERT_TRUE(b.store().make_directory(b.store().root(), "x", 0755).is_ok());
  EXPECT_FALSE(b.copy().value().is_ok());
  ASSERT_TRUE(b.look());
  const auto kept = [](Node& node) {
    std::vector<std::string> names = node.names();
    std::erase_if(names, [](const std::string& name) { return name.find("x.conflict-") != 0; });
    return names;
  };
  ASSERT_EQ(kept(b).size(), 1U);
  const std::string name = kept(b).front();
  EXPECT_TRUE(b.world().read(name).value() == content);
  swap();
  ASSERT_TRUE(a.look());
  EXPECT_EQ(a.inode_of("x"), 0U);
  EXPECT_TRUE(a.world().read(name).value() == content);
  ASSERT_TRUE(a.copy().value().is_ok());
  EXPECT_FALSE(a.world().tier().manifest("x").has_value());
  swap();
  b.world().objects().refuse(Status::ok());
  b.world().pass(6000);
  ASSERT_TRUE(b.copy().value().is_ok());
  swap();
  ASSERT_TRUE(a.look());
  EXPECT_TRUE(S_ISDIR(a.attributes_of("x").st_mode));
  EXPECT_EQ(kept(a), kept(b));
}

// And where the store can have both, or the directory came first, the file gets another name.
// Other files by the same names, in a directory made anew, are no conflict with those that went with the old one.
TEST(TierShareTest, ADirectoryThatIsMovedTakesItsFilesAlong) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Node a(seed, {.tags = "p"}, true), b(seed + 100, {.tags = "q"}, true);
    const auto move = [](Node& from, Node& to) {
      from.world().objects().objects().swap(to.world().objects().objects());
    };
    const auto put = [](Node& node, const std::string& directory, const Bytes& content) {
      Store& store = node.store();
      static_cast<void>(store.make_directory(store.root(), directory, 0755));
      const ScopedHandle opened(store.storage(),
                                *store.storage().open_at(store.root(), directory, O_RDONLY | O_DIRECTORY));
      Result<Store::Created> created = store.create(opened.get(), "x", 0644);
      ASSERT_TRUE(created.is_ok());
      created->node.handle.reset();
      ASSERT_TRUE(node.world().tier().write(*created->file, content).is_ok());
      ASSERT_TRUE(node.world().array().control(*created->file, ControlRequest::Kind::kClose).is_ok());
    };
    const auto got = [](Node& node, const std::string& directory) -> Result<Bytes> {
      Store& store = node.store();
      FPFS_ASSIGN_OR_RETURN(const Handle handle, store.storage().open_at(store.root(), directory, O_PATH));
      const ScopedHandle opened(store.storage(), handle);
      FPFS_ASSIGN_OR_RETURN(const Store::Node found, store.lookup(opened.get(), "x"));
      FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, store.open_file(found.handle.get(), true));
      return node.world().array().read_all(*file);
    };
    const auto has = [&got](Node& node, const std::string& directory, const Bytes& content) {
      const Result<Bytes> found = got(node, directory);
      EXPECT_TRUE(found.is_ok()) << found.status().message();
      return found.is_ok() && *found == content;
    };
    const Bytes before = make_bytes(1000 + seed, 1), after = make_bytes(2000 + seed, 2);
    put(a, "d", before);
    ASSERT_TRUE(a.copy().value().is_ok());
    move(a, b);
    for (const char* const directory : {"", "d/"}) ASSERT_TRUE(b.look(directory));
    b.world().settle();
    ASSERT_TRUE(has(b, "d", before)) << "seed " << seed;
    ASSERT_TRUE(b.store().rename(b.store().root(), "d", b.store().root(), "d.old", 0).is_ok());
    put(b, "d", after);
    ASSERT_TRUE(b.copy().value().is_ok());
    b.world().settle();
    EXPECT_EQ(b.world().tier().copier().status().conflicts, 0U) << "seed " << seed;
    EXPECT_TRUE(has(b, "d.old", before)) << "seed " << seed;
    EXPECT_TRUE(has(b, "d", after)) << "seed " << seed;
    move(b, a);
    for (unsigned round = 0; round < 4; ++round) {
      for (const char* const directory : {"", "d/", "d.old/"}) static_cast<void>(a.look(directory));
      a.world().settle();
    }
    ASSERT_TRUE(a.copy().value().is_ok());
    EXPECT_EQ(a.world().tier().copier().status().conflicts, 0U) << "seed " << seed;
    EXPECT_EQ(a.names().size(), 2U);
    EXPECT_TRUE(has(a, "d.old", before)) << "seed " << seed;
    EXPECT_TRUE(has(a, "d", after)) << "seed " << seed;
  }
}

TEST(TierShareTest, ADirectoryKeepsItsName) {
  Node a(1, {.tags = "p"}, true), b(2, {.tags = "q"}, true), c(3, {.tags = "r"}, true);
  const auto move = [](Node& from, Node& to) { from.world().objects().objects().swap(to.world().objects().objects()); };
  const Bytes content = make_bytes(2 * kTestChunk + 5, 1);
  a.world().save("x", content);
  ASSERT_TRUE(a.copy().value().is_ok());
  move(a, c);
  ASSERT_TRUE(c.look());
  EXPECT_NE(c.inode_of("x"), 0U);
  move(c, b);
  ASSERT_TRUE(b.store().make_directory(b.store().root(), "x", 0755).is_ok());
  ASSERT_TRUE(b.copy().value().is_ok());
  ASSERT_TRUE(b.look());
  EXPECT_TRUE(S_ISDIR(b.attributes_of("x").st_mode));
  move(b, c);
  for (unsigned i = 0; i < 2; ++i) ASSERT_TRUE(c.look());
  EXPECT_TRUE(S_ISDIR(c.attributes_of("x").st_mode));
  EXPECT_EQ(c.names().size(), 1U);
  move(c, a);
  ASSERT_TRUE(a.look());
  ASSERT_TRUE(a.copy().value().is_ok());
  EXPECT_TRUE(S_ISDIR(a.attributes_of("x").st_mode));
  ASSERT_EQ(a.names().size(), 2U);
  move(a, c);
  ASSERT_TRUE(c.look());
  EXPECT_EQ(a.names(), c.names());
  for (const std::string& name : c.names()) EXPECT_TRUE(name == "x" || c.world().read(name).value() == content) << name;
  for (Node* const node : {&a, &b, &c}) EXPECT_EQ(node->world().tier().copier().status().files_failed, 0U);
}

}  // namespace
}  // namespace fpfs::test
