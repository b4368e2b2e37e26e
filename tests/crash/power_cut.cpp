#include "tests/crash/power_cut.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "engine/check/check.h"
#include "engine/io/sim/sim_environment.h"
#include "engine/store/store.h"
#include "tests/crash/client.h"
#include "tests/crash/copier.h"

namespace fpfs::crash {

namespace {

constexpr uint32_t kChunk = 64 * kKiB;
constexpr unsigned kMembersMax = 4;
constexpr const char* kMetadataPath = "/meta";  // holds the tree of some arrays, on a filesystem of its own

std::vector<std::string> member_paths(unsigned count) {
  std::vector<std::string> paths;
  for (unsigned i = 0; i < count; ++i) paths.push_back(fmt::format("/m{}", i));
  return paths;
}

std::vector<std::string> mount_paths(unsigned members) {
  std::vector<std::string> paths = member_paths(members);
  paths.push_back(kMetadataPath);
  return paths;
}

// A freshly formatted array of each kind, made once: seeds begin with a copy.
const SimWorld& formatted_world(unsigned members, bool separate_tree) {
  static std::map<std::pair<unsigned, bool>, SimWorld> worlds;
  const auto found = worlds.find({members, separate_tree});
  if (found != worlds.end()) return found->second;
  const std::vector<std::string> paths = member_paths(members);
  SimEnvironment world(members, {.mount_paths = mount_paths(members)});
  FormatOptions options;
  options.chunk_size = kChunk;
  if (separate_tree) options.metadata_directory = kMetadataPath;
  const Status formatted = Array::format(world, paths, options);
  FPFS_CHECK(formatted.is_ok(), formatted.message().c_str());
  const std::string tree = std::string(separate_tree ? kMetadataPath : "/m0") + "/tree";
  const Handle root = world.storage().open_directory(tree).value();
  for (const char* name : {"d1", "d2"})
    FPFS_CHECK(world.storage().make_directory(root, name, 0755).is_ok(), "directories of the test");
  FPFS_CHECK(world.storage().fsync(root).is_ok(), "directories of the test");
  world.storage().close(root);
  return worlds.emplace(std::pair(members, separate_tree), world.sim().save()).first->second;
}

class Life {
 public:
  Life(uint64_t seed, const SeedOptions& options, Coverage& coverage)
      : options_(options),
        members_(1 + static_cast<unsigned>(seed % kMembersMax)),
        compresses_(seed / kMembersMax % 4 == 0),
        shares_(seed / kMembersMax % 8 < 3),
        makes_many_(seed / kMembersMax % 5 == 0),
        paths_(member_paths(members_)),
        world_(seed, {.mount_paths = mount_paths(members_)}),
        random_(world_.random()),
        scheduler_(random_),
        coverage_(coverage) {
    world_.sim().restore(formatted_world(members_, random_.chance(25)));
    if (!errs_at_the_end()) world_.sim().plant(options.planted);
    if (options.verbose || options.digest != nullptr)
      world_.sim().set_trace([this](const std::string& line) { trace(line); });
    choose_options();
  }
  ~Life() {
    stop();  // what is under way holds on to the store
    forget_machine();
  }

  std::optional<std::string> run() {
    std::optional<std::string> wrong = live();
    coverage_.compactions += world_.sim().index_punches();
    coverage_.objects_recycled += world_.sim().object_renames();
    coverage_.chunks_shared += world_.sim().clones();
    return wrong;
  }

 private:
  std::optional<std::string> live() {
    model_.restart({});
    const uint64_t rounds = random_.between(1, 3);
    const bool damages = random_.chance(15);  // in the last round
    for (uint64_t round = 0; round < rounds; ++round) {
      if (round > 0 && !was_killed_ && random_.chance(20) && !preen()) break;
      if (!mount(round > 0 && random_.chance(40)) || !look()) break;
      if (random_.chance(30) && !recover_again()) break;
      if (damages && round + 1 == rounds) lie();
      if (!work()) break;
      if (!end()) break;
    }
    if (failure_.empty() && damages)
      bear_damage();
    else if (failure_.empty() && mount(false) && look())
      close_and_check();
    if (failure_.empty()) return std::nullopt;
    return failure_;
  }

  void choose_options() {
    constexpr uint32_t kInlineLimits[] = {0, 4096, kInlineSizeMax};
    store_options_.durable = random_.chance(60) ? StoreOptions::Durable::kClose : StoreOptions::Durable::kFsync;
    store_options_.inline_max = kInlineLimits[random_.below(std::size(kInlineLimits))];
    store_options_.queue_depth = static_cast<unsigned>(random_.between(1, 4));
    store_options_.read_ahead = static_cast<unsigned>(random_.below(4));
    store_options_.buffer_memory = (34 + random_.below(20)) * kChunk;
    store_options_.spare_least = random_.chance(60) ? 1 : UINT64_MAX;
    store_options_.spare_life = {};
    store_options_.background_commit_ms = static_cast<unsigned>(random_.between(1, random_.chance(50) ? 100 : 2000));
    store_options_.commit_interval_ms = random_.chance(30) ? 0 : static_cast<unsigned>(random_.between(10, 1000));
    store_options_.commit_idle_ms = random_.chance(30) ? 0 : static_cast<unsigned>(random_.between(5, 500));
    store_options_.array.handles_kept = random_.below(8);
    if (compresses_) {
      store_options_.compression.mode = Compression::Mode::kZstd;
      store_options_.buffer_memory += members_ * kChunk;
    }
    if (makes_many_) {
      store_options_.durable = StoreOptions::Durable::kClose;
      store_options_.inline_max = kInlineSizeMax;
      world_.sim().set_syncs_own_names(true);
      world_.sim().set_journal_order(SimFilesystem::JournalOrder::kWhole);
    }
    if (shares_) store_options_.dedup = StoreOptions::Dedup::kPrevious;
    is_told_ = random_.chance(50);
  }

  bool fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
    return false;
  }
  void trace(const std::string& what) const {
    if (options_.verbose) fmt::print(stderr, "  {}\n", what);
    if (options_.digest != nullptr) *options_.digest = *options_.digest * 31 + std::hash<std::string>()(what);
  }
  // A mistake that is made only while a mount ends.
  bool errs_at_the_end() const { return options_.planted == SimPlantedBug::kFailedSyncTriedAgain; }

  // No process runs any more.
  void stop() {
    world_.stop();
    // What was held begins to be freed, and cannot.
    if (copier_ != nullptr && copier_->let_go()) world_.stop();
  }
  void forget_machine() {
    if (copier_ != nullptr) coverage_.old_versions_read += copier_->old_versions_read();
    copier_.reset();
    machine_.reset();
    session_.reset();
  }
  Result<std::unique_ptr<Store>> open_store() {
    StoreOptions options = store_options_;
    if (options_.planted_call == PlantedCall::kTricklesLeftAlone)
      options.commit_interval_ms = options.commit_idle_ms = 0;
    return Store::open(world_, paths_, options);
  }

  // The engine's objects are gone: nothing of theirs may be left.
  bool check_leaks() {
    const std::vector<std::string> open = world_.sim().open_handles();
    if (open.empty()) return true;
    return fail(fmt::format("{} handles were not closed; the first: {}", open.size(), open.front()));
  }

  // After stop(): the engine is destroyed, then the power comes back or the process is started again.
  bool begin_again(bool power_was_cut) {
    forget_machine();
    store_.reset();
    if (!check_leaks()) return false;
    if (power_was_cut)
      world_.crash();
    else
      world_.kill();
    return true;
  }

  // Opens the array; `cut`: the power goes while it recovers, several times perhaps.
  bool mount(bool cut) {
    const uint64_t all_cuts = cut ? random_.between(1, 3) : 0;
    for (uint64_t cuts = all_cuts; cuts > 0; --cuts) {
      world_.cut_at(world_.boundaries() + 1 + random_.below(uint64_t{8} << random_.below(5)));
      Result<std::unique_ptr<Store>> opened = open_store();
      if (opened.is_ok())
        store_ = std::move(*opened);
      else if (!world_.is_off())
        return fail("mount: " + opened.status().message());
      trace("mounted, cut off");
      if (world_.is_off()) ++(cuts < all_cuts ? coverage_.recoveries_cut_again : coverage_.recoveries_cut);
      stop();
      if (!begin_again(true)) return false;
      was_killed_ = false;
    }
    Result<std::unique_ptr<Store>> opened = open_store();
    if (!opened.is_ok()) return fail("mount: " + opened.status().message());
    store_ = std::move(*opened);
    coverage_.commits_put_back += store_->recovery().commits_put_back;
    if (is_told_)
      store_->on_commit([this](uint64_t inode, uint64_t sequence, bool) {
        if (copier_ != nullptr) copier_->told(inode, sequence);
      });
    // Recovery makes durable what it finds, so what a killed process had done is safe from here on, not before.
    if (std::exchange(was_killed_, false)) model_.killed();
    const RecoveryReport& report = store_->recovery();
    trace(fmt::format("mounted: dirty {}, {} orphans, {} torn tails, {} bytes freed", report.was_dirty,
                      report.orphans_removed, report.torn_tails, report.bytes_freed));
    return true;
  }

  // Runs clients until all have ended or the power is gone.
  bool run_clients(std::vector<Task<bool>>& clients) {
    for (const Task<bool>& client : clients) scheduler_.ready(client.handle());
    const auto all_done = [&clients] {
      return std::all_of(clients.begin(), clients.end(), [](const Task<bool>& client) { return client.done(); });
    };
    while (!all_done() && !world_.is_off()) {
      if (scheduler_.has_ready() && random_.chance(30))
        scheduler_.resume_one();
      else if (!world_.step() && !scheduler_.has_ready())
        return fail("the engine came to rest with requests unanswered");
    }
    if (all_done()) return true;
    // No power: every request must still be answered, and the clients give up.
    do {
      world_.drain();
      while (scheduler_.has_ready()) scheduler_.resume_one();
    } while (world_.events() > 0 && !all_done() && world_.step());
    if (!all_done()) return fail("requests were not answered after the power went");
    return true;
  }

  // Reads everything that the mount shows and compares it with what it may show.
  bool look() {
    std::map<std::string, Model::Seen> seen;
    std::vector<Task<bool>> readers;
    readers.push_back(read_everything(seen));
    if (!run_clients(readers) || !failure_.empty()) return false;
    if (auto wrong = model_.check(seen)) return fail("after the crash " + *wrong);
    model_.restart(seen);
    seen_ = std::move(seen);
    return true;
  }

  Task<bool> read_everything(std::map<std::string, Model::Seen>& seen) {
    Storage& storage = store_->storage();
    for (const std::string& directory : directory_names_) {
      Result<Store::Node> node = store_->lookup(store_->root(), directory);
      if (!node.is_ok()) co_return fail("lookup of " + directory + ": " + node.status().message());
      std::vector<std::string> names;
      const Status listed = storage.list(node->handle.get(), [&names](const DirectoryEntry& entry) {
        if (entry.type == DT_REG) names.push_back(entry.name);
        return true;
      });
      if (!listed.is_ok()) fail("list: " + listed.message());
      for (const std::string& name : names)
        if (!co_await read_file(node->handle.get(), name, seen[directory + "/" + name])) {
          failure_ = fmt::format("{}/{}: {}", directory, name, failure_);
          break;
        }
      node->handle.reset();
      if (!failure_.empty()) co_return false;
    }
    co_return true;
  }

  Attributes attributes_of(const Store::Node& node) {
    Attributes result{.mode = node.attributes.st_mode & 07777,
                      .user = node.attributes.st_uid,
                      .tag = std::string(16, 0),
                      .set_to = node.attributes.st_mtim};
    const Result<size_t> length =
        store_->storage().get_xattr(node.handle.get(), kTagName, std::as_writable_bytes(std::span(result.tag)));
    result.tag.resize(length.is_ok() ? *length : 0);
    return result;
  }

  Task<bool> read_file(Handle directory, const std::string& name, Model::Seen& seen) {
    Result<Store::Node> node = store_->lookup(directory, name);
    if (!node.is_ok()) co_return fail("lookup: " + node.status().message());
    seen.attributes = attributes_of(*node);
    Result<std::shared_ptr<File>> opened = store_->open_file(node->handle.get(), false);
    node->handle.reset();
    if (!opened.is_ok()) co_return fail("open: " + opened.status().message());
    const std::shared_ptr<File> file = *opened;
    seen.inode = node->attributes.st_ino;
    if (file->info().codec_chunks[static_cast<size_t>(Codec::kBlocks)] > 0) ++coverage_.files_encoded;
    const auto size = static_cast<uint64_t>(node->attributes.st_size);
    ReadCursor cursor;
    while (seen.content.size() < size) {
      // Chunk by chunk where some may be damaged, so that all others are looked at.
      const uint32_t length = drives_lied_ ? kChunk : 200'000;
      ReadCall call(scheduler_, *file, seen.content.size(), length, &cursor);
      call.start();
      const Status status = co_await call;
      if (!status.is_ok() && drives_lied_) {
        const size_t begin = seen.content.size();
        seen.content.resize(std::min<uint64_t>(size, begin + length));
        seen.gaps.emplace_back(begin, seen.content.size());
        continue;
      }
      if (!status.is_ok()) co_return fail("read: " + status.message());
      if (call.data.empty()) co_return fail(fmt::format("ends at {}, its size is {}", seen.content.size(), size));
      seen.content.insert(seen.content.end(), call.data.begin(), call.data.end());
    }
    if (seen.content.size() != size) co_return fail("is longer than its size");
    co_return true;
  }

  // A mount that does nothing, killed: the recovery after that must find nothing to do.
  bool recover_again() {
    stop();
    if (!begin_again(false) || !mount(false)) return false;
    const RecoveryReport& report = store_->recovery();
    if (!report.was_dirty) return fail("a killed mount left the array marked clean");
    if (report.orphans_removed + report.torn_tails + report.bytes_freed > 0)
      return fail(fmt::format("a second recovery found {} orphans, {} torn tails and {} bytes to free",
                              report.orphans_removed, report.torn_tails, report.bytes_freed));
    return look();
  }

  bool work() {
    session_.reset(new Session{.world = world_,
                               .store = *store_,
                               .scheduler = scheduler_,
                               .model = model_,
                               .options = store_options_,
                               .planted = options_.planted_call,
                               .synced_by_others = random_.chance(30),
                               .largest_file = random_.chance(shares_ ? 20 : 70) ? 4 * kChunk : 12 * kChunk,
                               .makes_many = makes_many_,
                               .drives_lie = drives_lied_,
                               .failure = {}});
    Session& session = *session_;
    machine_ = std::make_unique<Machine>(session);
    const auto some_boundary = [this] {
      return world_.boundaries() + 1 + random_.below(uint64_t{8} << random_.below(8));
    };
    if (random_.chance(25)) session.ends_at = some_boundary();
    std::vector<NodeHandle> directories;
    for (size_t i = 0; i < directory_names_.size(); ++i) {
      Result<Store::Node> node = store_->lookup(store_->root(), directory_names_[i]);
      if (!node.is_ok()) return fail("lookup of a directory: " + node.status().message());
      directories.push_back(std::move(node->handle));
      session.directories[i] = directories.back().get();
    }
    const auto chores = static_cast<unsigned>(random_.between(1, 12));
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<Task<bool>> tasks;
    for (uint64_t i = random_.between(1, 4); i > 0; --i) {
      clients.push_back(std::make_unique<Client>(session, *machine_, static_cast<unsigned>(i)));
      tasks.push_back(clients.back()->run(chores));
    }
    if (random_.chance(60)) {
      copier_ = std::make_unique<Copier>(session, *machine_);
      session.copier = copier_.get();
      tasks.push_back(copier_->run(static_cast<unsigned>(random_.below(uint64_t{8} << random_.below(6)))));
    }
    // Early and late moments alike: what happens in the first calls and what happens in long logs.
    world_.cut_at(some_boundary());
    const bool ended = run_clients(tasks);
    directories.clear();
    if (!session.failure.empty()) return fail(session.failure);
    return ended;
  }

  bool end() {
    const bool power_cut = random_.chance(75);
    if (world_.is_off() && copier_ != nullptr) coverage_.versions_cut_off += copier_->holds();
    if (!world_.is_off() && random_.chance(session_->is_ending ? 80 : 50)) {
      if (!close()) return false;
      stop();
      model_.killed();  // everything is durable
      return begin_again(power_cut);
    }
    trace(power_cut ? "power cut" : "kill -9");
    stop();
    was_killed_ = !power_cut;
    return begin_again(power_cut);
  }

  bool close() {
    trace("close");
    bool closed = false;
    Status status;
    world_.cut_at(0);
    if (machine_ != nullptr) machine_->cut_off();
    if (copier_ != nullptr && random_.chance(70)) copier_->let_go();
    const bool is_held = copier_ != nullptr && copier_->holds();
    if (errs_at_the_end()) world_.sim().plant(options_.planted);
    if (options_.planted_call == PlantedCall::kEndCommits && !commit_everything()) return false;
    store_->close_async([&](const Status& result) {
      status = result;
      closed = true;
    });
    if (!world_.run_until([&closed] { return closed; })) return fail("close was not answered");
    if (errs_at_the_end()) world_.sim().plant(SimPlantedBug::kNone);
    if (is_held && status.is_ok()) return fail("the array was closed as if no version was held");
    if (drives_lied_) return true;
    const bool is_busy = status.code() == StatusCode::kBusy;
    if (!status.is_ok() && !(machine_ != nullptr && (is_busy || machine_->has_failures())))
      return fail("close: " + status.message());
    if (machine_ != nullptr) machine_->ended(is_held && is_busy ? std::nullopt : std::optional(is_busy));
    return session_ == nullptr || session_->failure.empty() || fail(session_->failure);
  }
  // A planted mistake.
  bool commit_everything() {
    bool done = false;
    store_->commit_all(ControlRequest::Kind::kClose, ControlRequest::Unfinished::kCommitted,
                       [&done](const Store::CommitOutcome&) { done = true; });
    return world_.run_until([&done] { return done; }) || fail("sync of everything was not answered");
  }

  bool close_and_check() {
    if (!close()) return false;
    stop();
    return begin_again(true) && check(Repair::kNone) && expect_clean() && check_leaks();
  }

  // fsck of the array, which nobody has open. Its findings: report_.
  bool check(Repair repair) {
    CheckOptions options;
    options.verify_data = true;
    options.repair = repair;
    Result<CheckReport> report = check_array(world_, paths_, options);
    if (!report.is_ok()) return fail("check: " + report.status().message());
    report_ = std::move(*report);
    return true;
  }
  bool expect_clean() {
    if (report_.clean()) return true;
    const CheckError& first = report_.errors.front();
    return fail(fmt::format("the check found {} errors; the first: {} {}: {}", report_.errors.size(), first.kind,
                            first.path, first.detail));
  }

  // fsck instead of the recovery that a mount does: it finds leftovers and nothing else, and its repair leaves none.
  bool preen() {
    trace("fsck -p");
    if (!check(Repair::kNone)) return false;
    for (const CheckError& error : report_.errors)
      if (error.kind != "orphan" && error.kind != "leftover-space" && error.kind != "torn-tail" &&
          error.kind != "pending-commit")
        return fail(fmt::format("after the crash the check finds {} {}: {}", error.kind, error.path, error.detail));
    return check(Repair::kPreen) && check(Repair::kNone) && expect_clean() && check_leaks();
  }

  // --- damage ------------------------------------------------------------------------------------------------------

  // From now on some writes to objects are reported done and were not, or went elsewhere.
  void lie() {
    drives_lied_ = true;
    for (uint64_t i = random_.between(0, 3); i > 0; --i) {
      SimFault fault;
      fault.call = SimFault::Call::kWrite;
      fault.effect = random_.chance(50) ? SimFault::Effect::kLost : SimFault::Effect::kMisdirected;
      fault.role = SimRole::kObjects;
      fault.nth = 1 + random_.below(uint64_t{2} << random_.below(6));
      world_.sim().inject(fault);
    }
  }

  // Some bits of what is stored turn over.
  void rot() {
    std::vector<std::string> objects;
    for (const std::string& path : paths_)
      for (std::string& object : world_.sim().files_below(path + "/objects")) objects.push_back(std::move(object));
    for (uint64_t i = objects.empty() ? 0 : random_.between(0, 4); i > 0; --i) {
      const std::string& object = objects[random_.below(objects.size())];
      const uint64_t size = world_.sim().content_of(object).size();
      if (size > 0) world_.sim().flip_bit(object, random_.below(size), static_cast<unsigned>(random_.below(8)));
    }
  }

  // What was acknowledged is there bit for bit or cannot be read; the check finds exactly what cannot be read; and when
  // that has been set aside, the rest is whole and as it was.
  bool bear_damage() {
    world_.sim().clear_faults();
    rot();
    if (!mount(random_.chance(30)) || !look() || !close()) return false;
    const std::map<std::string, Model::Seen> before = seen_;
    stop();
    if (!begin_again(true) || !check(Repair::kNone)) return false;
    std::set<uint64_t> unreadable, reported;
    for (const auto& [path, seen] : before)
      if (!seen.gaps.empty()) unreadable.insert(seen.inode);
    for (const CheckError& error : report_.errors) {
      if (error.path.empty() || error.kind == "leftover-space") continue;  // what a failed file has left behind
      const auto found = before.find(key_of(error.path));
      if (found == before.end()) return fail("the check names " + error.path + ", which is not there");
      reported.insert(found->second.inode);
      if (found->second.gaps.empty())
        return fail(fmt::format("the check says {} of {}, which can be read", error.kind, error.path));
    }
    if (unreadable != reported)
      return fail(fmt::format("{} files cannot be read, the check found {}", unreadable.size(), reported.size()));
    coverage_.files_damaged += unreadable.size();
    trace(fmt::format("{} files are damaged", unreadable.size()));
    if (!check(Repair::kYes) || !check(Repair::kNone) || !expect_clean() || !check(Repair::kYes) || !expect_clean())
      return false;
    drives_lied_ = false;
    std::map<std::string, Model::Seen> whole;
    for (const auto& [path, seen] : before)
      if (seen.gaps.empty()) whole.insert({path, seen});
    model_.restart(whole);
    return mount(false) && look() && close_and_check();
  }
  // "/d1/c1-0" and "/c1-0" of a report, as names are kept here.
  static std::string key_of(const std::string& path) {
    return path.find('/', 1) == std::string::npos ? "." + path : path.substr(1);
  }

  const SeedOptions options_;
  const unsigned members_;
  const bool compresses_;  // new chunks are stored encoded where that pays; in every fourth life of each size
  const bool shares_;      // chunks with files before; in three of eight lives of each size, one of which compresses
  const bool makes_many_;  // small files, on drives that log names in order
  const std::vector<std::string> paths_;
  const std::array<std::string, 3> directory_names_ = {".", "d1", "d2"};
  SimEnvironment world_;
  SimRandom& random_;
  Scheduler scheduler_;
  Coverage& coverage_;
  StoreOptions store_options_;
  std::unique_ptr<Store> store_;
  Model model_;
  std::unique_ptr<Session> session_;  // of the last work()
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Copier> copier_;
  std::map<std::string, Model::Seen> seen_;  // by the last look()
  CheckReport report_;
  bool drives_lied_ = false;
  bool was_killed_ = false;
  bool is_told_ = false;  // the copier, of every commit
  std::string failure_;
};

}  // namespace

std::optional<std::string> run_seed(uint64_t seed, const SeedOptions& options, Coverage& coverage) {
  return Life(seed, options, coverage).run();
}

}  // namespace fpfs::crash
