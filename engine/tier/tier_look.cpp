// Somebody looks into a directory: what other arrays have copied there is to be shown. The store lists the manifests of
// that one directory, and jobs bring each path up to date whose manifest is another than this array has seen, or that
// it has from others and the store has no more (tier_share_job.cpp).
//
// Who looks waits for that, for look_timeout at most: what is left then goes on, and is seen by who looks later. When
// it took too long, or the store did not answer, nobody waits for a while.
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "engine/base/log.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {
namespace {

constexpr uint64_t kNoWaiting_ns = 10'000'000'000;

}  // namespace

bool TierCopier::Impl::look(const std::string& path, uint64_t since_ns, std::function<void()> done) {
  uint64_t number = 0, joined = 0;
  bool waits = false;
  {
    const MutexLock lock(mutex_);
    const bool may_begin = options_.shares && is_open_.load() && !stopping_.load() && away_attempts_ == 0;
    waits = may_begin && now_ns() >= looks_wait_from_ns_;
    if (!may_begin) return false;
    if (!looks_.contains(path)) number = begin_look(path);
    if (waits) looks_[path].waiters.push_back({since_ns, std::move(done)});
    if (waits && number == 0) joined = looks_[path].number;
  }
  if (joined != 0) limit_look(path, joined);
  if (number != 0) list_for(path, number, "");
  return waits;
}

bool TierCopier::Impl::shows_others() const {
  const MutexLock lock(mutex_);
  return options_.shares && is_open_.load() && !stopping_.load() && away_attempts_ == 0 &&
         now_ns() >= looks_wait_from_ns_;
}

uint64_t TierCopier::Impl::begin_look(const std::string& path) {
  Look& look = looks_[path];
  look.number = ++next_look_;
  look.begun_ns = now_ns();
  return look.number;
}

void TierCopier::Impl::limit_look(const std::string& path, uint64_t number) {
  after(options_.look_timeout, [weak = weak_from_this(), path, number] {
    if (const Self self = weak.lock()) self->give_up_look(path, number);
  });
}

// Nobody waits any more.
void TierCopier::Impl::give_up_look(const std::string& path, uint64_t number) {
  std::vector<LookWaiter> waiters;
  {
    const MutexLock lock(mutex_);
    const auto look = looks_.find(path);
    if (look == looks_.end() || look->second.number != number || look->second.waiters.empty()) return;
    waiters.swap(look->second.waiters);
    looks_wait_from_ns_ = now_ns() + kNoWaiting_ns;
  }
  log(LogLevel::kWarning, "tier: what others have copied to {} is not shown after {} ms; nobody waits for that now",
      "/" + path, options_.look_timeout.count());
  for (const LookWaiter& waiter : waiters) waiter.done();
}

void TierCopier::Impl::list_for(const std::string& path, uint64_t number, const std::string& position) {
  if (position.empty()) limit_look(path, number);
  ListRequest request;
  request.prefix = std::string(kTierReserved) + "/" + path;
  request.one_level = true;
  request.position = position;
  begin_task();
  objects_.list(request, [self = shared_from_this(), path, number](const Result<ListPage>& page) {
    self->listed_for(path, number, page);
    self->task_ended();
  });
}

void TierCopier::Impl::listed_for(const std::string& path, uint64_t number, const Result<ListPage>& page) {
  std::vector<LookWaiter> waiters;
  bool is_news = false;
  {
    const MutexLock lock(mutex_);
    const auto look = looks_.find(path);
    if (look == looks_.end() || look->second.number != number) return;
    if (page.is_ok()) {
      std::map<std::string, uint64_t>& stored = look->second.stored;
      for (const ObjectInfo& object : page->objects)
        stored.insert_or_assign(std::string(path_of_manifest(object.key)), TierNote::tag_of(object.tag));
      for (const std::string& key : page->directories) stored.try_emplace(std::string(path_of_manifest(key)), 0);
    } else {
      waiters.swap(look->second.waiters);
      if (look->second.is_for_itself) add_looked_at(path, page.status().code() == StatusCode::kNotFound);
      looks_.erase(look);
      if (page.status().code() != StatusCode::kNotFound) {
        is_news = !waiters.empty();
        looks_wait_from_ns_ = now_ns() + kNoWaiting_ns;
      }
    }
  }
  if (is_news)
    log(LogLevel::kWarning, "tier: what others have copied to {} is not shown; nobody waits for that now: {}",
        "/" + path, page.status().message());
  for (const LookWaiter& waiter : waiters) waiter.done();
  if (!page.is_ok()) return pump();
  if (!page->position.empty()) return list_for(path, number, page->position);
  post([path, number](Impl& self) { self.compare_listed(path, number); });
}

// Finds what is to be brought up to date.
void TierCopier::Impl::compare_listed(const std::string& path, uint64_t number) {
  std::map<std::string, uint64_t> stored;
  {
    const MutexLock lock(mutex_);
    const auto look = looks_.find(path);
    if (look == looks_.end() || look->second.number != number) return;
    stored.swap(look->second.stored);
  }
  const Result<Found> directory = find(path + std::string(kTierReserved));  // its node is not asked for
  std::set<std::string> pending, gone, missing;
  stored.erase("");
  for (const auto& [at, tag] : stored)
    if (!is_reserved(at) && (!directory.is_ok() || is_to_be_shown(directory.value(), at, tag))) pending.insert(at);
  // Behind what is in it.
  std::string itself = pending.extract(path).empty() ? "" : path;
  // What it has from others, and the store has no more.
  if (directory.is_ok())
    static_cast<void>(store_.storage().list(directory->directory.get(), [&](const DirectoryEntry& entry) {
      const std::string at = path + entry.name;
      if (stored.contains(at) || stored.contains(at + "/") || is_reserved(entry.name)) return true;
      const Result<Handle> opened = store_.storage().open_at(directory->directory.get(), entry.name, O_PATH);
      if (!opened.is_ok()) return true;
      const ScopedHandle node(store_.storage(), *opened);
      const Result<struct stat> attributes = store_.storage().fstat(node.get());
      const std::string known = attributes.is_ok() && S_ISDIR(attributes->st_mode) ? at + "/" : at;
      const std::optional<TierNote> note = note_of(node.get(), known);
      if (!note.has_value() || note->place != place_of(known)) return true;
      if (note->is_others) (known.ends_with('/') ? gone : pending).insert(known);
      // Its own was stored, and another array has removed it that took it for that one's before.
      if (!note->is_others && note->manifest_tag != 0 && !known.ends_with('/')) missing.insert(known);
      return true;
    }));
  if (directory.is_ok() && !path.empty() && !stored.contains(path)) {
    const std::optional<TierNote> note = note_of(directory->directory.get(), path);
    if (note.has_value() && note->is_others && note->place == place_of(path)) itself = path;
  }
  Calls calls;
  {
    const MutexLock lock(mutex_);
    const auto look = looks_.find(path);
    if (look == looks_.end() || look->second.number != number) return;
    std::erase_if(pending, [this](const std::string& at) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      return failed_.contains(at) || blocked_.contains(at);  // each tries again by itself
    });
    look->second.is_listed = true;
    look->second.pending = pending;
    if (look->second.is_for_itself) itself = path;
    look->second.itself = std::move(itself);
    for (const std::string& at : pending) add_looked_at(at);
    for (const std::string& at : missing)
      if (!add({0, at, 0, 0, now_ns()})) scan_is_due_ = true;
    look->second.pending.insert(gone.begin(), gone.end());
    end_looks("", calls);
  }
  for (const auto& call : calls) call();
  pump();
  // What is in them goes before.
  for (const std::string& at : gone) {
    const auto looked = [self = shared_from_this(), at] {
      Calls ended;
      {
        const MutexLock lock(self->mutex_);
        self->end_looks(at, ended);
      }
      for (const auto& call : ended) call();
    };
    if (!look(at, 0, looked)) looked();
  }
}

// The directory is to go, and has something in it: what is gone of that goes, and then it is looked at once more. False:
// that was done.
bool TierCopier::Impl::look_below(const std::string& path) {
  uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    if (!looks_.contains(path)) number = begin_look(path);
    Look& look = looks_[path];
    if (look.is_listed && look.pending.contains(path)) return false;
    if (look.is_listed) look.itself = path;
    look.is_for_itself = true;
  }
  if (number != 0) list_for(path, number, "");
  return true;
}

void TierCopier::Impl::add_looked_at(const std::string& path, bool has_looked_below) {
  TierWaiting file{0, path, 0, 0, now_ns()};
  file.is_awaited = true;
  file.is_looked_at = true;
  file.has_looked_below = has_looked_below;
  queue_.add(std::move(file));
}

bool TierCopier::Impl::is_to_be_shown(const Found& directory, const std::string& path, uint64_t tag) {
  const uint64_t place = place_of(path);
  const std::string name = path.substr(path.rfind('/', path.size() - 2) + 1);
  {
    const MutexLock lock(mutex_);
    const auto seen = seen_.find(place);
    if (tag != 0 && seen != seen_.end() && seen->second == tag) return false;
  }
  const bool is_itself = path.ends_with('/') && tag != 0;  // the manifest of the directory that is looked into
  Storage& storage = store_.storage();
  const Result<Handle> opened =
      is_itself ? storage.reopen(directory.directory.get(), O_RDONLY | O_DIRECTORY)
                : storage.open_at(directory.directory.get(),
                                  path.ends_with('/') ? name.substr(0, name.size() - 1) : name, O_PATH);
  if (!opened.is_ok()) return true;
  const ScopedHandle node(storage, *opened);
  if (tag == 0) {  // a directory, of which whoever looks into it sees what is new
    const Result<struct stat> attributes = storage.fstat(node.get());
    return attributes.is_ok() && !S_ISDIR(attributes->st_mode);
  }
  const std::optional<TierNote> note = note_of(node.get(), path);
  if (!note.has_value() || note->place != place || note->manifest_tag != tag) return true;
  const MutexLock lock(mutex_);
  note_seen(place, tag);
  return false;
}

void TierCopier::Impl::note_seen(uint64_t place, uint64_t tag) {
  if (!options_.shares) return;
  if (seen_.size() >= options_.waiting_max && !seen_.contains(place)) seen_.clear();
  seen_[place] = tag;
}

// The path was brought up to date, if that can be done now. Who came meanwhile, and wants to see what was there then,
// waits for another look.
void TierCopier::Impl::end_looks(const std::string& path, Calls& calls) {
  for (auto at = looks_.begin(); at != looks_.end();) {
    Look& look = at->second;
    look.pending.erase(path);
    if (look.is_listed && look.pending.empty() && !look.itself.empty()) {
      add_looked_at(look.itself, true);
      look.pending.insert(std::exchange(look.itself, ""));
    }
    if (!look.is_listed || !look.pending.empty()) {
      ++at;
      continue;
    }
    std::vector<LookWaiter> later;
    for (LookWaiter& waiter : look.waiters)
      if (waiter.since_ns > look.begun_ns)
        later.push_back(std::move(waiter));
      else
        calls.push_back(std::move(waiter.done));
    if (later.empty() || stopping_.load()) {
      for (LookWaiter& waiter : later) calls.push_back(std::move(waiter.done));
      at = looks_.erase(at);
      continue;
    }
    look = {};
    look.waiters = std::move(later);
    const uint64_t number = begin_look(at->first);
    calls.push_back([self = shared_from_this(), path = at->first, number] { self->list_for(path, number, ""); });
    ++at;
  }
}

}  // namespace fpfs
