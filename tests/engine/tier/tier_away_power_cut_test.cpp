// Content that leaves for the store and comes back, while the power of the machine goes at any step, the process is
// killed, the store fails calls, loses answers and goes away, and programs read, change, replace, rename and remove the
// files. What holds:
//
//   - whoever reads gets the content as it is, or an error, never other bytes; also of a file that was replaced or removed
//     while it is open
//   - after every life a file is one that was committed, whole: the last, or the one whose commit was under way
//   - with the store well again, everything can be read, and is copied
//   - the array has nothing to complain of
//
// Each mistake that is planted must be noticed by some seed.
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

enum class AwayMistake : uint8_t {
  kNone,
  kSentBeforeItIsCopied,  // content leaves although its last commit is not copied
  kCopyReplaced,          // the copier does not know that content may lie in the store only
  kPathNotSaid,           // the sidecar does not say where the copy is
  kRecordNotSynced,       // space is given back before the record is on the drive
};

class AwayLives {
 public:
  explicit AwayLives(uint64_t seed, AwayMistake mistake = AwayMistake::kNone)
      : random_(SimRandom(seed ^ 0x61776179).next()),
        mistake_(mistake),
        world_(seed, store_options(), array_options(seed)) {}

  // The first thing that was wrong.
  std::string run() {
    begin();
    for (uint64_t lives = random_.between(1, 4); lives > 0 && wrong_.empty(); --lives) live();
    if (wrong_.empty()) end_well();
    return wrong_;
  }
  uint64_t cuts() const { return cuts_; }
  uint64_t sent() const { return sent_; }
  uint64_t fetched() const { return fetched_; }

 private:
  static constexpr size_t kChunksMax = 6;
  static constexpr const char* kNames[] = {"a", "b", "c"};

  // One file, by whatever name.
  struct Model {
    Bytes committed, written;
    std::optional<Bytes> pending;  // whose commit was asked for
    bool uncommitted = false, is_unclear = false;
    std::shared_ptr<File> file;
    const Bytes& current() const { return uncommitted ? written : committed; }
  };
  using Models = std::map<std::string, std::shared_ptr<Model>>;

  // Content that comes back sooner is away for a shorter time: half of the seeds have it the other way.
  static StoreOptions array_options(uint64_t seed) {
    StoreOptions options = tier_store_options();
    options.commits_when_all_came = seed % 2 == 1;
    return options;
  }
  SimObjectStore::Options store_options() {
    SimObjectStore::Options options;
    options.delay_ms_max = static_cast<unsigned>(random_.between(1, 60));
    if (random_.chance(40)) {
      options.failed_percent = static_cast<unsigned>(random_.below(15));
      options.lost_percent = static_cast<unsigned>(random_.below(15));
    }
    return options;
  }
  void fail(const std::string& what) {
    if (wrong_.empty() && !is_off()) wrong_ = what;
  }
  bool is_off() { return world_.world().is_off(); }
  Store& store() { return world_.store(); }
  Bytes make() {
    const size_t length = random_.between(1, kChunksMax) * kTestChunk - random_.below(kTestChunk);
    return random_.chance(30) ? make_compressible(length, ++salt_) : make_bytes(length, ++salt_);
  }
  void connect() {
    if (mistake_ != AwayMistake::kCopyReplaced) world_.tier().copier().content_is_away();
    world_.tier().copier().open();
  }
  void begin() {
    for (const char* const name : kNames) {
      const auto model = std::make_shared<Model>();
      model->committed = make();
      world_.save(name, model->committed);
      files_[name] = model;
    }
    connect();
    static_cast<void>(world_.tier().wait_for_all());
    if (mistake_ == AwayMistake::kRecordNotSynced) world_.world().sim().plant(SimPlantedBug::kSidecarSyncSkipped);
  }

  // --- a life --------------------------------------------------------------------------------------------------------
  void live() {
    SimEnvironment& world = world_.world();
    if (random_.chance(70)) world.cut_at(world.boundaries() + random_.between(1, 150));
    for (uint64_t calls = random_.between(4, 25); calls > 0 && !is_off() && wrong_.empty(); --calls) {
      act();
      for (uint64_t steps = random_.below(100); steps > 0 && !is_off(); --steps) world.step();
      if (random_.chance(7)) world_.objects().set_away(true);
      if (random_.chance(50)) world_.objects().set_away(false);
    }
    const bool is_clear = std::ranges::none_of(files_, [](const auto& file) { return file.second->is_unclear; });
    const bool goes_in_order = !is_off() && is_clear && random_.chance(30);
    if (goes_in_order) {
      world.cut_at(0);
      for (auto& [name, model] : files_) commit(name, *model, true);
    }
    fetched_ += world_.status().chunks_fetched;
    for (auto& [name, model] : files_) model->file = nullptr;
    for (const std::shared_ptr<Model>& model : lost_) model->file = nullptr;
    lost_.clear();
    if (names_before_.has_value())
      for (auto& [name, model] : *names_before_) model->file = nullptr;
    if (!wrong_.empty()) return;
    if (goes_in_order) {
      if (!world_.tier().stop()) fail("does not stop");
      world_.tier().leave_store();
      const Status closed = world_.array().close();
      if (!closed.is_ok()) fail("the array is not closed: " + closed.message());
    } else {
      ++cuts_;
      const bool is_killed = !is_off() && random_.chance(50);
      world_.tier().leave();
      is_killed ? world_.array().kill() : world_.array().crash();
    }
    if (!wrong_.empty()) return;
    world_.array().open();
    world_.tier().connect();
    world_.connect();
    look();
    if (wrong_.empty()) connect();
  }

  bool open(const std::string& name, Model& model) {
    if (model.file != nullptr) return true;
    Result<std::shared_ptr<File>> opened = world_.array().try_open(name);
    if (opened.is_ok()) model.file = std::move(*opened);
    if (!opened.is_ok()) fail(name + " cannot be opened: " + opened.status().message());
    return opened.is_ok();
  }
  void act() {
    const std::string name = kNames[random_.below(std::size(kNames))];
    const auto found = files_.find(name);
    const uint64_t what = random_.below(100);
    if (!lost_.empty() && random_.chance(25)) return read_lost();
    if (found == files_.end()) return what < 50 ? make_new(name) : void();
    Model& model = *found->second;
    if (what < 30) return send_away(name, model);
    if (what < 55) return read(name, model);
    if (what < 63) return change(name, model);
    if (what < 68) return cut(name, model);
    if (what < 80) return commit(name, model, random_.chance(50));
    if (what < 88) return rename(name);
    if (what < 92) return remove(name);
    if (what < 96) return commit(name, model, true);
    world_.tier().copier().scan();
  }
  void make_new(const std::string& name) {
    const auto model = std::make_shared<Model>();
    unsure_.insert(name);
    Result<Store::Created> created = store().create(store().root(), name, 0644);
    if (!created.is_ok()) return fail(name + " cannot be made: " + created.status().message());
    created->node.handle.reset();
    model->file = created->file;
    files_[name] = model;
    model->written = make();
    model->uncommitted = true;
    if (!world_.tier().write(*model->file, model->written).is_ok()) fail(name + " cannot be written");
    commit(name, *model, false);
  }
  void send_away(const std::string& name, Model& model) {
    if (!open(name, model)) return;
    const std::optional<TierNote> note = world_.tier().note(name);
    const std::optional<TierManifest> manifest = world_.tier().manifest(name);
    const File::Info info = model.file->info();
    const bool is_copied = note.has_value() && note->place == TierNote::place_of("sim://store", name) &&
                           note->file_id == info.file_id && note->sequence == info.sequence &&
                           note->size == info.size && manifest.has_value() && world_.tier().copy(name).has_value() &&
                           TierNote::tag_of(manifest->content_tag) == note->content_tag;
    std::vector<uint64_t> checksums = manifest.has_value() ? manifest->checksums : std::vector<uint64_t>();
    if (mistake_ == AwayMistake::kSentBeforeItIsCopied && !model.uncommitted && info.size == model.committed.size()) {
      checksums.clear();
      for (size_t at = 0; at < info.size; at += kTestChunk)
        checksums.push_back(
            hash_bytes(std::span(model.committed).subspan(at, std::min<size_t>(kTestChunk, info.size - at))));
    } else if (!is_copied) {
      return;
    }
    if (mistake_ != AwayMistake::kPathNotSaid &&
        !model.file->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(name)), true).is_ok())
      return;
    // What is copied may be another by now: whoever sends it away looks once more.
    const Status left = world_.send_away(*model.file, info.sequence, checksums);
    sent_ += left.is_ok() ? 1 : 0;
    if (!left.is_ok() && left.code() != StatusCode::kBusy && left.code() != StatusCode::kInvalidArgument)
      fail(name + " does not leave: " + left.message());
  }
  bool is_part(const Bytes& content, size_t at, const Bytes& part, size_t length) {
    return part.size() == length && std::equal(part.begin(), part.end(), content.begin() + static_cast<ptrdiff_t>(at));
  }
  void read(const std::string& name, Model& model) {
    if (model.is_unclear || !open(name, model)) return;
    const Bytes now = model.current();
    if (now.empty()) return;
    const size_t at = random_.below(now.size());
    const size_t length = std::min<size_t>(random_.between(1, 3 * kTestChunk), now.size() - at);
    const Result<Bytes> got = world_.array().read(*model.file, at, static_cast<uint32_t>(length));
    if (!got.is_ok() || is_off()) return;
    if (!is_part(now, at, *got, length)) fail(fmt::format("wrong bytes of {} were read at {}", name, at));
  }
  // Whoever still has a file open whose name is gone reads it, all of it, whatever becomes of names and copies.
  void read_lost() {
    const std::shared_ptr<Model> model = lost_[random_.below(lost_.size())];
    if (model->is_unclear) return;
    const Bytes now = model->current();
    const Result<Bytes> got = world_.array().read_all(*model->file);
    if (is_off()) return;
    if (got.is_ok() && *got != now) fail("wrong bytes of a file without a name were read");
    if (!random_.chance(30)) return;
    model->file = nullptr;
    std::erase(lost_, model);
  }
  void change(const std::string& name, Model& model) {
    if (model.is_unclear || !open(name, model) || model.current().empty()) return;
    if (!model.uncommitted) model.written = model.committed;
    const size_t at = random_.below(model.written.size());
    const Bytes piece =
        make_bytes(std::min<size_t>(random_.between(1, 2 * kTestChunk), model.written.size() - at), ++salt_);
    const Status status = world_.array().write(*model.file, at, piece);
    model.uncommitted = true;
    // A part may be taken when a chunk cannot be read; the rest of this life is not looked at then.
    model.is_unclear = !status.is_ok();
    if (status.is_ok()) std::copy(piece.begin(), piece.end(), model.written.begin() + static_cast<ptrdiff_t>(at));
  }
  void cut(const std::string& name, Model& model) {
    if (model.is_unclear || !open(name, model)) return;
    if (!model.uncommitted) model.written = model.committed;
    const size_t length = random_.chance(20) ? 0 : random_.below(kChunksMax * kTestChunk);
    const Status status = world_.array().control(*model.file, ControlRequest::Kind::kTruncate, length);
    model.uncommitted = true;
    model.is_unclear = !status.is_ok();
    if (status.is_ok()) model.written.resize(length);
  }
  void commit(const std::string& name, Model& model, bool closes) {
    if (model.is_unclear || !open(name, model)) return;
    if (model.uncommitted) model.pending = model.written;
    const auto kind = closes ? ControlRequest::Kind::kClose : ControlRequest::Kind::kCommit;
    const Status committed = world_.array().control(*model.file, kind);
    if (!committed.is_ok()) return fail(name + " is not committed: " + committed.message());
    if (is_off()) return;
    take_pending(model);
    unsure_.erase(name);
    if (closes) model.file = nullptr;
  }
  static void take_pending(Model& model) {
    if (model.pending.has_value()) model.committed = *model.pending;
    model.pending.reset();
    model.uncommitted = false;
  }
  // As a saver does; the directory is synced, so that the names are sure.
  void rename(const std::string& name) {
    const std::string to = kNames[random_.below(std::size(kNames))];
    if (to == name) return;
    const std::shared_ptr<Model> model = files_[name];
    if (model->uncommitted || model->is_unclear) return;
    names_before_ = files_;
    lose(to);
    files_[to] = model;
    files_.erase(name);
    if (!store().rename(store().root(), name, store().root(), to, 0).is_ok()) fail(name + " is not renamed");
    sync_names();
  }
  void remove(const std::string& name) {
    names_before_ = files_;
    lose(name);
    if (!store().unlink(store().root(), name).is_ok()) fail(name + " is not removed");
    sync_names();
  }
  void lose(const std::string& name) {
    const auto found = files_.find(name);
    if (found == files_.end()) return;
    if (found->second->file != nullptr) lost_.push_back(found->second);
    files_.erase(found);
    unsure_.erase(name);
  }
  void sync_names() {
    if (!store().sync_directory(store().root()).is_ok()) fail("names are not synced");
    if (!is_off()) names_before_.reset();
  }

  // --- what must hold ------------------------------------------------------------------------------------------------
  std::optional<Bytes> content(const std::string& name) {
    for (unsigned i = 0; i < 50; ++i) {
      const Result<Bytes> got = world_.read(name);
      if (got.is_ok()) return *got;
      if (got.status().code() == StatusCode::kNotFound) return std::nullopt;
      last_ = got.status().message();
      world_.pass(3000);
    }
    fail(name + " cannot be read: " + last_);
    return std::nullopt;
  }
  // By names as they were before, or behind the change that was under way.
  bool are(const Models& files, const std::map<std::string, std::optional<Bytes>>& seen, std::string& why) {
    for (const auto& [name, is] : seen) {
      const auto found = files.find(name);
      const bool may_miss = unsure_.contains(name) || found == files.end();
      if (!is.has_value()) {
        if (!may_miss) why = name + " is missing";
      } else if (found == files.end()) {
        if (!unsure_.contains(name) || !is->empty()) why = name + " is there again";
      } else {
        const Model& model = *found->second;
        const bool is_old = *is == model.committed, is_new = model.pending.has_value() && *is == *model.pending;
        if (!is_old && !is_new && !(unsure_.contains(name) && is->empty())) why = name + " is no content of before";
      }
      if (!why.empty()) return false;
    }
    return true;
  }
  void look() {
    world_.objects().set_away(false);
    std::map<std::string, std::optional<Bytes>> seen;
    for (const char* const name : kNames) seen[name] = content(name);
    if (!wrong_.empty()) return;
    std::string why, why_before;
    if (!are(files_, seen, why)) {
      if (!names_before_.has_value() || !are(*names_before_, seen, why_before)) return fail(why);
      files_ = *names_before_;
    }
    names_before_.reset();
    unsure_.clear();
    for (const auto& [name, is] : seen) {
      if (!is.has_value()) files_.erase(name);
      if (!is.has_value()) continue;
      const auto model = std::make_shared<Model>();
      model->committed = *is;
      files_[name] = model;
    }
  }
  void end_well() {
    world_.objects().set_options({});
    world_.objects().set_away(false);
    look();
    if (!wrong_.empty()) return;
    const Status copied = world_.tier().wait_for_all();
    if (!copied.is_ok()) return fail("not copied in the end: " + copied.message());
    for (const auto& [name, model] : files_)
      if (world_.tier().copy(name) != std::optional(model->committed)) return fail(name + " is copied as another");
    world_.settle();
    static_cast<void>(world_.tier().stop());
    world_.tier().leave_store();
    if (const Status closed = world_.array().close(); !closed.is_ok()) return fail("not closed: " + closed.message());
    const Result<CheckReport> report = check_array(world_.world(), world_.array().paths(), {});
    if (!report.is_ok()) return fail("cannot be checked: " + report.status().message());
    for (const CheckError& error : report->errors) fail(error.kind + ": " + error.detail);
  }

  SimRandom random_;
  const AwayMistake mistake_;
  HealingWorld world_;
  Models files_;
  std::optional<Models> names_before_;        // until the change of names is durable
  std::set<std::string> unsure_;              // names that were made and never committed
  std::vector<std::shared_ptr<Model>> lost_;  // open, and without a name
  uint64_t salt_ = 0, cuts_ = 0, sent_ = 0, fetched_ = 0;
  std::string wrong_, last_;
};

// FPFS_AWAY_SEED=N: one seed. FPFS_AWAY_SEEDS=N: so many.
uint64_t away_number(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

TEST(TierAwayPowerCutTest, NothingIsLostThatLeaves) {
  if (const uint64_t seed = away_number("FPFS_AWAY_SEED", 0); seed > 0) {
    EXPECT_EQ(AwayLives(seed).run(), "") << "seed " << seed;
    return;
  }
  const uint64_t seeds = alike(away_number("FPFS_AWAY_SEEDS", 400));
  uint64_t cuts = 0, sent = 0, fetched = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    AwayLives lives(seed);
    ASSERT_EQ(lives.run(), "") << "seed " << seed;
    cuts += lives.cuts();
    sent += lives.sent();
    fetched += lives.fetched();
  }
  EXPECT_GT(cuts, seeds / 2);
  EXPECT_GT(sent, seeds);
  EXPECT_GT(fetched, seeds);
  fmt::print("{} seeds, {} ends without order, {} files sent away, {} chunks fetched\n", seeds, cuts, sent, fetched);
}

TEST(TierAwayPowerCutTest, EveryPlantedMistakeIsNoticed) {
  if (kIsSanitized) GTEST_SKIP() << "whether a seed notices it is the same with a sanitizer";
  for (uint8_t i = 1; i <= static_cast<uint8_t>(AwayMistake::kRecordNotSynced); ++i) {
    bool is_noticed = false;
    for (uint64_t seed = 1; seed <= 2000 && !is_noticed; ++seed) {
      const std::string wrong = AwayLives(seed, static_cast<AwayMistake>(i)).run();
      is_noticed = !wrong.empty();
      if (is_noticed) fmt::print("mistake {}: seed {}: {}\n", i, seed, wrong);
    }
    EXPECT_TRUE(is_noticed) << "mistake " << int{i};
  }
}

}  // namespace
}  // namespace fpfs::test
