#include "fs/nodes/file_system.h"

#include <sys/stat.h>

#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "fs/nodes/look_below.h"

namespace fpfs {
namespace {

// Enough objects for the usual load, made at the start; the limits are what the kernel could have under way when very
// many processes wait for the drives at once.
constexpr size_t kCallsInitial = 128;
constexpr size_t kReadCallsMax = 16384;  // about 1 KiB each
constexpr size_t kWriteCallsMax = 1024;  // more than receive buffers can exist
constexpr size_t kControlCallsMax = 65536;
constexpr int64_t kDaySeconds = 86400;

}  // namespace

FileSystem::FileSystem(Environment& environment, Store& store, ArrayTier& tier, Settings settings,
                       const struct stat& root)
    : root_as_told_(root),
      environment_(environment),
      store_(store),
      tier_(tier),
      settings_(std::move(settings)),
      inodes_(store.storage(), store.root(), root,
              [this](std::function<void()> task) { run_later(InodeTable::Late::kGathered, std::move(task)); }),
      page_cache_(
          inodes_, [this](uint64_t node) { invalidate(node, 0); },
          [this](std::function<void()> task) { run_in_background(std::move(task)); }),
      caught_requests_([this](std::function<void()> task) { run_in_background(std::move(task)); }),
      pruner_(inodes_, settings_.nodes_max),
      scrub_(store),
      rebalance_(store),
      read_calls_(kCallsInitial, kReadCallsMax),
      write_calls_(kCallsInitial, kWriteCallsMax),
      control_calls_(kCallsInitial, kControlCallsMax),
      copy_waits_(environment, tier, others_under_way_, settings_.tier_timeout) {
  store_.keep_removed(
      [this](uint64_t number, std::unique_ptr<Store::Removed> removed) { inodes_.keep(number, std::move(removed)); });
  tier_.when_named([this](uint64_t directory, const std::string& name) { name_appeared(directory, name); });
  tier_.when_moved([this](uint64_t number) {
    run_in_background([this, number] {
      Inode* const inode = inodes_.find_and_hold(number);
      if (inode == nullptr) return;
      invalidate_attributes(*inode);
      inodes_.forget(inodes_.node(*inode), 1);
    });
  });
}

FileSystem::~FileSystem() {
  tier_.when_moved(nullptr);
  tier_.when_named(nullptr);
}

// The kernel may know that it was not there, and what the directory had. Of a store that is shared it keeps that for a
// short time only; and whoever waits for the name, in when_shown(), has the lock that telling it would take.
void FileSystem::name_appeared(uint64_t directory, const std::string& name) {
  if (!is_alone()) return inodes_.outdate_listings();
  Inode* const inode = inodes_.find_and_hold(directory);
  if (inode == nullptr) return;
  const uint64_t node = inodes_.node(*inode);
  if (session_ != nullptr && !name.empty())
    (void)fuse_lowlevel_notify_inval_entry(session_, node, name.c_str(), name.size());
  invalidate(node, 0);
  inodes_.outdate_listings();
  inodes_.forget(node, 1);
}

// From `offset` on. Fails when the kernel does not know the node, which is as good.
void FileSystem::invalidate(uint64_t node, off_t offset) {
  if (session_ != nullptr) (void)fuse_lowlevel_notify_inval_inode(session_, node, offset, 0);
}

void FileSystem::invalidate_attributes(const Inode& inode) {
  invalidate(inodes_.node(inode), -1);  // a negative offset: attributes only
}

void FileSystem::move_access_time(Inode& inode) {
  if (inode.access_noted.exchange(environment_.now().tv_sec) == 0 && settings_.file_access_times)
    storage().note_access(inode.handle);
}

bool FileSystem::access_is_due(Inode& inode) const {
  if (!settings_.file_access_times) return false;
  if (environment_.now().tv_sec - inode.access_noted.load() > kDaySeconds) note_change(inode);
  return inode.access_noted.load() == 0;
}

bool FileSystem::listing_is_due(const Inode& directory) const {
  if (!settings_.directory_access_times) return false;
  const int64_t noted = directory.access_noted.load();
  return noted == 0 || environment_.now().tv_sec - noted > kDaySeconds;
}

void FileSystem::when_shown(Inode& directory, const std::function<void()>& then) {
  if (is_alone()) return then();
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
  const int64_t looked_at = directory.looked_at.load(std::memory_order_relaxed);
  if (looked_at != INT64_MIN && now.count() - looked_at < settings_.shared_for->count()) return then();
  const std::optional<std::string> path = store_.path_of(directory.handle);
  if (!path.has_value()) return then();
  others_under_way_.begin();
  const bool waits = tier_.look(*path, [this, &directory, then, now] {
    directory.looked_at.store(now.count(), std::memory_order_relaxed);
    then();
    others_under_way_.end();
  });
  if (waits) return;
  then();
  others_under_way_.end();
}

void FileSystem::when_names_shown(const std::vector<ShownName>& names, std::function<void()> then) {
  std::vector<DirectoryToLookAt> directories;
  for (const ShownName& shown : names) {
    if (is_alone()) break;
    const Result<struct stat> attributes = storage().stat_at(shown.directory.handle, shown.name);
    if (!attributes.is_ok() || !S_ISDIR(attributes->st_mode)) continue;
    const std::optional<std::string> path = store_.path_of(shown.directory.handle);
    if (path.has_value()) directories.push_back({*path + shown.name + "/", shown.is_deep});
  }
  if (directories.empty()) return then();
  others_under_way_.begin();
  look_below({store_, tier_, [this](std::function<void()> task) { run_in_background(std::move(task)); },
              [this] { return ending_.load(); }},
             std::move(directories), [this, then = std::move(then)] {
               then();
               others_under_way_.end();
             });
}

void FileSystem::fetch(const std::shared_ptr<File>& file, std::function<bool()> is_wanted,
                       std::function<void(const Status&)> then) {
  others_under_way_.begin();
  tier_.fetch_begins();
  file->recall([this, is_wanted = std::move(is_wanted)] { return !ending_ && (is_wanted == nullptr || is_wanted()); },
               [this, then = std::move(then)](const Status& status) {
                 tier_.fetch_ends();
                 then(status);
                 others_under_way_.end();
               });
}

void FileSystem::start_pruning(bool all) {
  run_in_background([this, all] {
    if (session_ != nullptr) pruner_.run(session_, all);
    pruning_.store(false);
  });
}

void FileSystem::run_in_background(std::function<void()> task) {
  environment_.executor().post(others_under_way_.counted(std::move(task)));
}

void FileSystem::run_later(std::chrono::milliseconds delay, std::function<void()> task) {
  environment_.executor().post_after(delay, others_under_way_.counted(std::move(task)));
}

void FileSystem::control(std::shared_ptr<File> file, ControlRequest::Kind kind,
                         std::function<void(const Status&)> then) {
  ControlRequest request;
  request.kind = kind;
  control(std::move(file), request,
          [then = std::move(then)](const ControlRequest&, const Status& status) { then(status); });
}

void FileSystem::control(std::shared_ptr<File> file, const ControlRequest& wanted, ControlDone then) {
  ControlCall& call = control_calls_.take();
  call.request = wanted;
  call.request.owner = &call;
  call.request.complete = [](ControlRequest& request, const Status& status) {
    ControlCall& done = *static_cast<ControlCall*>(request.owner);
    // The call goes back last, but what it holds goes with it: drain() must find nothing left of it.
    FileSystem& file_system = *done.file_system;
    auto callback = std::move(done.then);
    done.then = nullptr;
    std::shared_ptr<File> kept = std::move(done.file);
    callback(request, status);
    callback = nullptr;
    kept = nullptr;
    file_system.control_calls_.give_back(done);
  };
  call.file_system = this;
  call.then = std::move(then);
  call.file = std::move(file);
  call.file->control(call.request);
}

void FileSystem::say_killed_is_unknown() {
  if (killed_is_unknown_.exchange(true)) return;
  log(LogLevel::kWarning,
      "a process of another PID namespace closes a file that it was replacing: whether it was killed in the middle of "
      "that cannot be seen from here, so its replacement is committed (killed_saver); run the mount where its "
      "processes "
      "have numbers");
}

void FileSystem::populate_buffers() {
  run_in_background([this] {
    if (!ending_.load() && store_.populate_buffers()) populate_buffers();
  });
}

Durable FileSystem::durable_of(Inode& inode) {
  if (inode.settings.is_absent()) return settings_.durable;
  const unsigned changes = inode.settings.changes();
  const Result<std::optional<Durable>> said = store_.durable(inode.handle);
  if (!said.is_ok()) return Durable::kClose;
  if (!said->has_value()) inode.settings.note_absent(changes);
  return said->value_or(settings_.durable);
}

void FileSystem::drain() {
  ending_.store(true);
  inodes_.close_at_once();
  tier_.when_moved(nullptr);
  tier_.when_named(nullptr);
  copy_waits_.end();
  read_calls_.wait_until_idle();
  write_calls_.wait_until_idle();
  do {
    others_under_way_.wait_until_idle();
    control_calls_.wait_until_idle();  // what ends there may go on in the background
  } while (!others_under_way_.is_idle() || control_calls_.in_use() > 0);
}

}  // namespace fpfs
