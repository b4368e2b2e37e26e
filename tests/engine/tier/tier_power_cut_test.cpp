// Copies of committed files, while the power of the machine goes at any step, the process is killed, and the store
// fails calls, loses answers and goes away. The store outlives all of that. What holds after every life:
//
//   - what the store has as a copy is what one commit made of one file: not mixed, not a state between two commits
//   - that commit is durable: the file is that one or a later one
//   - what the array says of a copy (its note) is there, or a later copy is
//
// and in the end, when the store is well: every file's copy is its last commit. No two calls write one key at a time.
// What becomes of names and attributes: tier_names_power_cut_test.cpp.
//
// Each mistake that is planted must be noticed by some seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/engine/tier/sim_tier.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

enum class Mistake : uint8_t {
  kNone,
  kContentNotAwaited,  // of the store's user
  kManifestNotAwaited,
  kPartsMixed,
  kNoScan,          // of whoever runs the copier: what a crash has left out is not looked for
  kCommitsNotTold,  // and neither is what is committed
};

// What every content is: all of them differ.
struct Version {
  unsigned file = 0;
  unsigned number = 0;        // of the file, ascending
  bool is_committed = false;  // or may be: a commit was asked for
};

class Lives {
 public:
  Lives(uint64_t seed, Mistake mistake)
      : random_(SimRandom(seed ^ 0x6c69766573).next()), mistake_(mistake), tier_(seed, store_options()) {
    plant();
  }

  // The first thing that was wrong.
  std::string run() {
    begin();
    const uint64_t lives = random_.between(1, 3);
    for (uint64_t life = 0; life < lives && wrong_.empty(); ++life) live();
    if (wrong_.empty()) heal();
    if (mistake_ == Mistake::kNone && tier_.objects().conflicts() > 0) fail("two copies wrote one path at a time");
    return wrong_;
  }
  uint64_t cuts() const { return cuts_; }
  uint64_t copies_seen() const { return copies_seen_; }
  uint64_t lost_calls() const { return tier_.objects_failed(); }

 private:
  // One more than SimTier has.
  class Tier : public SimTier {
   public:
    using SimTier::SimTier;
    uint64_t objects_failed() const { return const_cast<Tier*>(this)->objects().failed_calls(); }
  };
  struct Model {
    unsigned file = 0;
    Bytes content;
    unsigned number = 0;
  };

  SimObjectStore::Options store_options() {
    SimObjectStore::Options options;
    if (random_.chance(60)) {
      options.failed_percent = static_cast<unsigned>(random_.below(20));
      options.lost_percent = static_cast<unsigned>(random_.below(20));
    }
    options.delay_ms_max = static_cast<unsigned>(random_.between(1, 200));
    return options;
  }
  void plant() {
    using Planted = SimObjectStore::Planted;
    if (mistake_ == Mistake::kContentNotAwaited) tier_.objects().plant(Planted::kContentNotAwaited);
    if (mistake_ == Mistake::kManifestNotAwaited) tier_.objects().plant(Planted::kManifestNotAwaited);
    if (mistake_ == Mistake::kPartsMixed) tier_.objects().plant(Planted::kPartsMixed);
  }
  void begin() {
    tier_.set_deaf(mistake_ == Mistake::kCommitsNotTold);
    if (mistake_ != Mistake::kNoScan) tier_.copier().open();
  }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  bool is_off() { return tier_.world().is_off(); }
  Store& store() { return tier_.array().store(); }
  Handle root() { return store().root(); }
  std::string any_name() { return std::string(1, static_cast<char>('a' + random_.below(4))); }

  // --- what programs do, until the power goes ------------------------------------------------------------------------
  void live() {
    SimEnvironment& world = tier_.world();
    if (random_.chance(70)) world.cut_at(world.boundaries() + random_.between(1, 400));
    for (uint64_t calls = random_.between(2, 12); calls > 0 && !is_off() && wrong_.empty(); --calls) {
      act();
      for (uint64_t steps = random_.below(150); steps > 0 && !is_off(); --steps) world.step();
      if (random_.chance(10)) tier_.objects().set_away(true);
      if (random_.chance(30)) tier_.objects().set_away(false);
    }
    end();
  }
  void act() {
    const std::string name = any_name();
    const uint64_t what = random_.below(100);
    if (what < 55) return save(name);
    if (what < 75) return change(name);
    if (what < 90) return move(name, any_name());
    remove(name);
  }
  void save(const std::string& name) {
    std::shared_ptr<File> file;
    const auto known = models_.find(name);
    if (known == models_.end()) {
      Result<Store::Created> created = store().create(root(), name, 0644);
      if (!created.is_ok()) return;
      created->node.handle.reset();
      file = std::move(created->file);
      models_[name] = {++files_, {}, 0};
    } else {
      Result<std::shared_ptr<File>> opened = tier_.array().try_open(name);
      if (!opened.is_ok()) return;
      file = std::move(*opened);
      if (!tier_.array().control(*file, ControlRequest::Kind::kTruncate, 0).is_ok()) return;
    }
    const bool is_small = random_.chance(30);
    const Bytes content = make_bytes(random_.between(1, is_small ? 3000 : 6 * kTestChunk), ++salt_);
    write(name, *file, 0, content);
    models_[name].content = content;
    commit(name, *file);
  }
  // A part is written over; or written over and not committed, for another call to go on with, or none.
  void change(const std::string& name) {
    const auto known = models_.find(name);
    if (known == models_.end() || known->second.content.empty()) return;
    Result<std::shared_ptr<File>> file = tier_.array().try_open(name);
    if (!file.is_ok()) return;
    Bytes& content = known->second.content;
    const size_t at = random_.below(content.size());
    const Bytes piece = make_bytes(std::min<size_t>(random_.between(8, 2 * kTestChunk), content.size() - at), ++salt_);
    write(name, **file, at, piece);
    std::copy(piece.begin(), piece.end(), content.begin() + static_cast<ptrdiff_t>(at));
    if (random_.chance(70)) return commit(name, **file);
    note_version(known->second, false);
    kept_open_.push_back(*file);
  }
  void write(const std::string& name, File& file, uint64_t offset, const Bytes& bytes) {
    const Status written = tier_.array().write(file, offset, bytes);
    if (!written.is_ok() && !is_off()) fail("write to " + name + ": " + written.message());
  }
  void commit(const std::string& name, File& file) {
    note_version(models_[name], true);
    const auto kind = random_.chance(50) ? ControlRequest::Kind::kClose : ControlRequest::Kind::kCommit;
    const Status committed = tier_.array().control(file, kind);
    if (!committed.is_ok() && !is_off()) fail("commit of " + name + ": " + committed.message());
  }
  void move(const std::string& from, const std::string& to) {
    const auto known = models_.find(from);
    if (known == models_.end() || from == to) return;
    // As a mount does: what takes the place of another is committed before.
    for (const auto& [name, model] : models_) note_version(models_[name], true);
    std::optional<Status> moved;
    store().rename_async(root(), from, root(), to, 0, [&moved](const Status& status) { moved = status; });
    if (!tier_.world().run_until([&moved] { return moved.has_value(); }) || !moved->is_ok()) return;
    models_[to] = std::move(known->second);
    models_.erase(from);
  }
  void remove(const std::string& name) {
    if (models_.contains(name) && store().unlink(root(), name).is_ok()) models_.erase(name);
  }
  // This content is the file's now.
  void note_version(Model& model, bool is_committed) {
    const uint64_t hash = hash_bytes(model.content);
    const auto [found, is_new] = versions_.try_emplace(hash, Version{model.file, 0, false});
    if (is_new) found->second.number = ++model.number;
    found->second.is_committed |= is_committed;
  }

  void end() {
    kept_open_.clear();
    const bool goes_in_order = !is_off() && random_.chance(30);
    const bool is_killed = !is_off() && random_.chance(50);
    if (goes_in_order) {
      tier_.world().cut_at(0);
      for (auto& [name, model] : models_) note_version(model, true);
      if (!tier_.stop()) fail("does not stop");
      tier_.leave_store();
      const Status closed = tier_.array().close();
      if (!closed.is_ok()) fail("the array is not closed: " + closed.message());
    } else {
      ++cuts_;
      tier_.leave();
      is_killed ? tier_.array().kill() : tier_.array().crash();
    }
    if (!wrong_.empty()) return;
    tier_.array().open();
    tier_.connect();
    look_at_array();
    look_at_store();
    begin();
  }

  // --- what must hold ------------------------------------------------------------------------------------------------
  void look_at_array() {
    std::map<std::string, Model> found;
    present_.clear();
    for (const char name : {'a', 'b', 'c', 'd'}) {
      const std::string path(1, name);
      Result<std::shared_ptr<File>> file = tier_.array().try_open(path);
      if (!file.is_ok()) continue;
      Result<Bytes> content = tier_.array().read_all(**file);
      if (!content.is_ok()) return fail(path + " cannot be read: " + content.status().message());
      if (content->empty()) {
        found[path] = {++files_, {}, 0};
        continue;
      }
      const auto version = versions_.find(hash_bytes(*content));
      if (version == versions_.end()) return fail(path + " has a content that nobody wrote");
      found[path] = {version->second.file, std::move(*content), next_number_of(version->second.file)};
      present_[version->second.file] = std::max(present_[version->second.file], version->second.number);
    }
    models_ = std::move(found);
  }
  unsigned next_number_of(unsigned file) const {
    unsigned number = 0;
    for (const auto& [hash, version] : versions_)
      if (version.file == file) number = std::max(number, version.number);
    return number;
  }
  void look_at_store() {
    for (const auto& [key, object] : tier_.objects().objects()) {
      const std::string path(path_of_manifest(key));
      if (!path.empty()) look_at_copy(path);
    }
    for (const auto& [path, model] : models_) look_at_note(path);
  }
  void look_at_copy(const std::string& path) {
    const auto content = tier_.copy(path);
    if (!content.has_value()) return;
    ++copies_seen_;
    const TierManifest manifest = *tier_.manifest(path);
    if (manifest.path != path) return fail(path + " has the manifest of " + manifest.path);
    if (!SimTier::is_described(manifest, *content)) return fail(path + ": the manifest describes other content");
    if (content->empty()) return;
    const auto version = versions_.find(hash_bytes(*content));
    if (version == versions_.end()) return fail(path + ": the copy is what no commit made");
    if (!version->second.is_committed) return fail(path + ": the copy was never committed");
    const auto present = present_.find(version->second.file);
    if (present != present_.end() && present->second < version->second.number)
      fail(fmt::format("{}: version {} is copied, and the file is version {}", path, version->second.number,
                       present->second));
  }
  void look_at_note(const std::string& path) {
    const std::optional<TierNote> note = tier_.note(path);
    if (!note.has_value() || note->place != TierNote::place_of("sim://store", path)) return;
    const auto& objects = tier_.objects().objects();
    const auto found = objects.find(path);
    const std::optional<TierManifest> manifest = tier_.manifest(path);
    if (found == objects.end() || !manifest.has_value()) {
      // It was moved away and back, its copy followed it there, and the note of that was not durable.
      if (!is_copied_elsewhere(*note)) fail(path + " is noted as copied, and is not there");
      return;
    }
    // Another file may have been copied to this path since; and content that is newer comes before its manifest.
    if (manifest->file_id != note->file_id) return;
    if (manifest->sequence < note->sequence)
      return fail(fmt::format("{}: commit {} is noted, {} is copied", path, note->sequence, manifest->sequence));
    const bool is_noted = TierNote::tag_of(found->second.tag) == note->content_tag;
    if (manifest->sequence == note->sequence && is_noted && !tier_.copy(path).has_value())
      fail(path + " is noted as copied, and the manifest is of another object");
  }
  bool is_copied_elsewhere(const TierNote& note) {
    for (const char* const path : {"a", "b", "c", "d"}) {
      const std::optional<TierManifest> manifest = tier_.manifest(path);
      if (manifest.has_value() && manifest->file_id == note.file_id && manifest->sequence >= note.sequence &&
          tier_.copy(path).has_value())
        return true;
    }
    return false;
  }
  void heal() {
    SimObjectStore::Options options;
    options.delay_ms_max = 20;
    tier_.objects().set_options(options);
    tier_.objects().set_away(false);
    if (mistake_ == Mistake::kNoScan) {
      wait_for_events();
    } else {
      const Status copied = tier_.wait_for_all();
      if (!copied.is_ok()) return fail("not everything is copied: " + copied.message());
    }
    look_whether_all_is_copied();
    if (!wrong_.empty()) return;
    // Without a scan: what is told is enough.
    for (int calls = 0; calls < 3; ++calls) save(any_name());
    wait_for_events();
    look_whether_all_is_as_it_is_now();
    // While files take the place of others that are being copied. No scan asks the store any more.
    for (uint64_t calls = random_.between(0, 6); calls > 0 && wrong_.empty(); --calls) {
      const std::string name = any_name();
      random_.chance(50) ? save(name) : move(name, any_name());
      for (uint64_t steps = random_.below(60); steps > 0; --steps) tier_.world().step();
    }
    if (mistake_ == Mistake::kNoScan) return;
    const Status copied = tier_.wait_for_all();
    if (!copied.is_ok()) return fail("not everything is copied: " + copied.message());
    look_whether_all_is_as_it_is_now();
  }
  void look_whether_all_is_as_it_is_now() {
    present_.clear();
    for (const auto& [path, model] : models_) present_[model.file] = model.number;
    look_whether_all_is_copied();
  }
  void wait_for_events() {
    tier_.world().run_until([this] {
      const TierCopyStatus status = tier_.copier().status();
      return status.files_waiting == 0 && !status.is_scanning;
    });
  }
  void look_whether_all_is_copied() {
    look_at_store();
    for (const auto& [path, model] : models_) {
      const auto copy = tier_.copy(path);
      if (!copy.has_value()) return fail(path + " has no copy in the end");
      if (*copy != model.content) {
        const auto version = versions_.find(hash_bytes(*copy));
        const TierManifest manifest = *tier_.manifest(path);
        return fail(fmt::format(
            "{} is version {} of file {} in the end, its copy is version {} of {}, by commit {}, and {} is noted", path,
            model.number, model.file, version == versions_.end() ? 0 : version->second.number,
            version == versions_.end() ? 0 : version->second.file, manifest.sequence,
            tier_.note(path).value_or(TierNote()).sequence));
      }
      const std::optional<TierNote> note = tier_.note(path);
      if (!note.has_value() || note->content_tag != TierNote::tag_of(tier_.manifest(path)->content_tag))
        return fail(path + " is copied, and not noted");
    }
  }

  SimRandom random_;
  const Mistake mistake_;
  Tier tier_;
  std::map<std::string, Model> models_;   // by name
  std::map<uint64_t, Version> versions_;  // by the hash of the content
  std::map<unsigned, unsigned> present_;  // file: the version that the array has
  std::vector<std::shared_ptr<File>> kept_open_;
  unsigned files_ = 0;
  uint64_t salt_ = 0, cuts_ = 0, copies_seen_ = 0;
  std::string wrong_;
};

// FPFS_TIER_SEED=N: one seed. FPFS_TIER_SEEDS=N: so many.
uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

const uint64_t kSeeds = number_of("FPFS_TIER_SEEDS", 1500);

TEST(TierPowerCutTest, ACopyIsACommitAndInTheEndTheLastOne) {
  if (const uint64_t seed = number_of("FPFS_TIER_SEED", 0); seed > 0) {
    EXPECT_EQ(Lives(seed, Mistake::kNone).run(), "") << "seed " << seed;
    return;
  }
  uint64_t cuts = 0, copies = 0, failed = 0;
  for (uint64_t seed = 1; seed <= alike(kSeeds); ++seed) {
    Lives lives(seed, Mistake::kNone);
    ASSERT_EQ(lives.run(), "") << "seed " << seed;
    cuts += lives.cuts();
    copies += lives.copies_seen();
    failed += lives.lost_calls();
  }
  EXPECT_GT(cuts, alike(kSeeds) / 2);
  EXPECT_GT(copies, alike(kSeeds));
  EXPECT_GT(failed, alike(kSeeds));
}

TEST(TierPowerCutTest, EveryPlantedMistakeIsNoticed) {
  if (kIsSanitized) GTEST_SKIP() << "whether a seed notices it is the same with a sanitizer";
  for (const Mistake mistake : {Mistake::kContentNotAwaited, Mistake::kManifestNotAwaited, Mistake::kPartsMixed,
                                Mistake::kNoScan, Mistake::kCommitsNotTold}) {
    std::string wrong;
    uint64_t seed = 0;
    while (wrong.empty() && ++seed <= kSeeds) wrong = Lives(seed, mistake).run();
    EXPECT_NE(wrong, "") << "mistake " << static_cast<int>(mistake);
    RecordProperty("mistake " + std::to_string(static_cast<int>(mistake)), fmt::format("seed {}: {}", seed, wrong));
    fmt::print("mistake {}: seed {}: {}\n", static_cast<int>(mistake), seed, wrong);
  }
}

}  // namespace
}  // namespace fpfs::test
