// The way through the tree: finds the files whose note is not of their last commit, attributes and path, in this store,
// and whatever else has another manifest than it should. A few entries at a time, so that nobody waits for the
// executor's thread; and no further while enough files wait.
//
// It asks the store, directory by directory, whether it still has the objects that the notes name. A note alone may be
// wrong: a file that had taken the place of another was copied over its copy, and then the other one came back, by a
// rename, or by a power cut that undid one. (And somebody else may have removed objects.)
//
// What the store has and the array has not is gone, or was moved: which of both is known at the end of the scan. Then
// the files that were moved get their copies made of those, and the rest is looked at, to be removed.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/log.h"
#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/tier/object_key.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {
namespace {

constexpr unsigned kEntriesAtOnce = 64;
constexpr size_t kRefusalsNamed = 5;

}  // namespace

void TierCopier::Impl::scan() {
  bool begins = false;
  {
    const MutexLock lock(mutex_);
    scan_is_scheduled_ = false;
    if (stopping_.load()) return;
    begins = !is_scanning_;
    if (begins) begin_scan();
    scan_wanted_ = !begins;
  }
  if (begins) post([](Impl& self) { self.scan_some(); });
}

void TierCopier::Impl::begin_scan() {
  is_scanning_ = true;
  scan_wanted_ = false;
  scan_is_due_ = false;
  ++scans_begun_;
  refused_ = 0;
  refusals_.clear();
}

void TierCopier::Impl::scan_some() {
  bool is_at_end = false;
  Status status;
  bool is_full = false;
  for (unsigned i = 0; i < kEntriesAtOnce && !is_at_end && status.is_ok() && !is_full; ++i) {
    if (stopping_.load()) return end_scan(Status::ok());
    if (asks_store_ && !levels_.empty() && !levels_.back().is_listed) return list_stored(false, "");
    status = scan_step(is_at_end);
    const MutexLock lock(mutex_);
    is_full = queue_.size() >= options_.waiting_max;
  }
  if (is_at_end || !status.is_ok()) return end_scan(status);
  if (is_full) {
    {
      const MutexLock lock(mutex_);
      scan_waits_ = true;
    }
    return pump();  // which goes on here when fewer wait
  }
  post([](Impl& self) { self.scan_some(); });
}

// One entry.
Status TierCopier::Impl::scan_step(bool& is_at_end) {
  if (levels_.empty()) {
    const Status entered = enter("", store_.root(), "");
    is_at_end = levels_.empty();
    return entered;
  }
  Level& level = levels_.back();
  if (level.next < level.entries.size()) return look_at(level, level.entries[level.next++]);
  if (!level.stored_only.empty()) {
    enter_stored(level.stored_only.extract(level.stored_only.begin()).value());
    return Status::ok();
  }
  levels_.pop_back();
  is_at_end = levels_.empty();
  return Status::ok();
}

// A directory that vanishes is passed over.
Status TierCopier::Impl::enter(const std::string& path, Handle directory, const std::string& name) {
  Storage& storage = store_.storage();
  const int flags = O_RDONLY | O_DIRECTORY;
  const Result<Handle> opened =
      name.empty() ? storage.reopen(directory, flags) : storage.open_at(directory, name, flags);
  if (opened.status().code() == StatusCode::kNotFound || opened.status().errno_value() == ENOTDIR) return Status::ok();
  if (!opened.is_ok()) return opened.status();
  Level level;
  level.path = path;
  level.handle = ScopedHandle(storage, *opened);
  FPFS_RETURN_IF_ERROR(storage.list(*opened, [&level](const DirectoryEntry& entry) {
    level.entries.push_back(entry);
    return true;
  }));
  std::sort(level.entries.begin(), level.entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  levels_.push_back(std::move(level));
  return Status::ok();
}

void TierCopier::Impl::enter_stored(const std::string& path) {
  Level level;
  level.path = path;
  levels_.push_back(std::move(level));
}

// Goes on with scan_some().
void TierCopier::Impl::list_stored(bool manifests, const std::string& position) {
  ListRequest request;
  const std::string& path = levels_.back().path;
  request.prefix = (manifests ? std::string(kTierReserved) + "/" : "") + path;
  request.one_level = true;
  request.position = position;
  begin_task();
  objects_.list(request, [self = shared_from_this(), manifests](const Result<ListPage>& page) {
    self->stored_listed(manifests, page);
    self->task_ended();
  });
}

void TierCopier::Impl::stored_listed(bool manifests, const Result<ListPage>& page) {
  Level& level = levels_.back();
  if (page.is_ok()) {
    for (const ObjectInfo& object : page.value().objects)
      note_stored(level, std::string(manifests ? path_of_manifest(object.key) : object.key), object.key, object.tag);
    for (const std::string& key : page.value().directories)
      note_stored_directory(level, std::string(manifests ? path_of_manifest(key) : key));
    if (!page.value().position.empty()) return list_stored(manifests, page.value().position);
    if (!manifests) return list_stored(true, "");
  }
  // A store that is away is asked by a later scan; this one goes by the notes.
  if (!page.is_ok()) asks_store_ = false;
  std::sort(level.stored.begin(), level.stored.end());
  level.is_listed = true;
  post([](Impl& self) {
    const Level& listed = self.levels_.back();
    if (listed.handle.is_open() && !listed.path.empty() && !self.stopping_.load())
      self.look_at_node(listed.path, listed, listed.handle.get());
    self.scan_some();
  });
}

// --- what the store has ----------------------------------------------------------------------------------------------

const DirectoryEntry* TierCopier::Impl::entry_of(const Level& level, const std::string& name) {
  const auto found =
      std::lower_bound(level.entries.begin(), level.entries.end(), name,
                       [](const DirectoryEntry& entry, const std::string& key) { return entry.name < key; });
  return found != level.entries.end() && found->name == name ? &*found : nullptr;
}

void TierCopier::Impl::note_stored(Level& level, const std::string& path, const std::string& key,
                                   const std::string& tag) {
  const std::pair stored(TierNote::tag_of(key), TierNote::tag_of(tag));
  level.stored.push_back(stored);
  if (!follows() || path.empty() || is_reserved(path) || is_foreign(stored.first, stored.second)) return;
  bool is_known = level.handle.is_open();
  if (path != level.path) {
    const DirectoryEntry* const entry = entry_of(level, path.substr(level.path.size()));
    is_known = entry != nullptr && entry->type != DT_DIR;
  }
  if (is_known || orphans_.size() >= options_.waiting_max) return;
  orphans_.emplace(place_of(path), path);
}

void TierCopier::Impl::note_stored_directory(Level& level, const std::string& path) {
  if (!follows() || is_reserved(path) || path.size() <= level.path.size() + 1) return;
  const DirectoryEntry* const entry =
      entry_of(level, path.substr(level.path.size(), path.size() - level.path.size() - 1));
  if (entry == nullptr || (entry->type != DT_DIR && entry->type != DT_UNKNOWN)) level.stored_only.insert(path);
}

bool TierCopier::Impl::is_foreign(uint64_t key, uint64_t tag) const {
  const MutexLock lock(mutex_);
  return foreign_.contains({key, tag});
}

bool TierCopier::Impl::is_stored(const Level& level, const TierNote& note, const std::string& path) const {
  if (!asks_store_) return true;
  const auto has = [&level](const std::string& key, uint64_t tag) {
    return std::binary_search(level.stored.begin(), level.stored.end(), std::pair(TierNote::tag_of(key), tag));
  };
  return (note.content_tag == 0 || has(path, note.content_tag)) && has(manifest_key(path), note.manifest_tag);
}

// Of a content that is where none should be; not of what is somebody else's.
bool TierCopier::Impl::has_content(const Level& level, const std::string& path) const {
  const uint64_t key = TierNote::tag_of(path);
  const auto found = std::lower_bound(level.stored.begin(), level.stored.end(), std::pair(key, uint64_t{0}));
  return found != level.stored.end() && found->first == key && !is_foreign(found->first, found->second);
}

// --- what the array has ----------------------------------------------------------------------------------------------

Status TierCopier::Impl::look_at(Level& level, const DirectoryEntry& entry) {
  unsigned char type = entry.type;
  if (type == DT_UNKNOWN) {
    const Result<struct stat> attributes = store_.storage().stat_at(level.handle.get(), entry.name);
    if (attributes.status().code() == StatusCode::kNotFound) return Status::ok();
    if (!attributes.is_ok()) return attributes.status();
    type = static_cast<unsigned char>(IFTODT(attributes->st_mode));
  }
  const std::string path = level.path + entry.name;
  if (is_reserved(entry.name)) {
    refuse(path, "its name is reserved");
    return Status::ok();
  }
  if (const Status usable = check_key(manifest_key(type == DT_DIR ? path + "/" : path), 0); !usable.is_ok()) {
    refuse(path, usable.message());
    return Status::ok();
  }
  // `level` is gone after this.
  if (type == DT_DIR) return enter(path + "/", level.handle.get(), entry.name);
  if (type == DT_REG) {
    look_at_file(path, level, entry.name);
    return Status::ok();
  }
  const Result<Handle> node = store_.storage().open_at(level.handle.get(), entry.name, O_PATH);
  if (!node.is_ok()) return node.status().code() == StatusCode::kNotFound ? Status::ok() : node.status();
  const ScopedHandle opened(store_.storage(), *node);
  look_at_node(path, level, opened.get());
  return Status::ok();
}

// What no content is of. A store that is away is asked by a later scan.
void TierCopier::Impl::look_at_node(const std::string& path, const Level& level, Handle node) {
  TierManifest manifest;
  if (!asks_store_ || is_reserved(path) || !describe(node, manifest).is_ok()) return;
  std::optional<TierNote> note = options_.shares ? note_of(node, path) : kept_note(path);
  if (note.has_value() && note->place != place_of(path)) {
    note_lost(*note);  // it was moved
    note.reset();
  }
  const bool is_noted = note.has_value() && note->attributes == attributes_of(manifest);
  TierWaiting file{0, path, 0, 0, now_ns()};
  file.is_missing = follows() && !path.ends_with('/') && has_content(level, path);
  if (!file.is_missing && is_noted && is_stored(level, *note, path)) return;
  found_stale(std::move(file));
}

// One more than may wait, if need be: the scan stops behind it.
void TierCopier::Impl::found_stale(TierWaiting file) {
  {
    const MutexLock lock(mutex_);
    const auto copying = copying_.find(file.path);
    if (file.inode != 0 && copying != copying_.end() && copying->second.inode == file.inode &&
        copying->second.sequence >= file.sequence && file.sequence > 0)
      return;
    if (!add(file)) queue_.add(std::move(file));
  }
  pump();
}

void TierCopier::Impl::look_at_file(const std::string& path, const Level& level, const std::string& name) {
  Result<Store::Node> node = store_.lookup(level.handle.get(), name);
  if (!node.is_ok() || !S_ISREG(node->attributes.st_mode)) return;  // gone, or a job will say why
  const uint64_t inode = node->attributes.st_ino;
  const Result<SidecarSummary> record = store_.last_record(node->handle.get());
  const std::optional<TierNote> note = note_of(node->handle.get(), path);
  const std::string copied_at = this->copied_at(node->handle.get());
  const bool is_stray = !copied_at.empty() && copied_at != path;
  {
    const MutexLock lock(mutex_);
    is_stray ? strays_.add(copied_at, inode, scans_begun_) : strays_.saw(inode, scans_begun_);
  }
  TierManifest manifest;
  const bool is_copied = record.is_ok() && note.has_value() && is_of_commit(*note, *record);
  const bool is_here = is_copied && note->place == place_of(path) && !is_stray;
  if (is_here && describe(node->handle.get(), manifest).is_ok() && note->attributes == attributes_hash(manifest) &&
      is_stored(level, *note, path)) {
    const MutexLock lock(mutex_);
    if (asks_store_ && strays_.settle(inode, path)) unblock();
    return;
  }
  // What it has may be older than the note: whether it is to be copied is for a job to find out.
  TierWaiting file{inode, path, record.is_ok() ? record.value().sequence : 0,
                   static_cast<uint64_t>(node->attributes.st_size), now_ns()};
  file.is_link = node->attributes.st_nlink > 1;
  if (is_stray) file.from = copied_at;
  const bool has_moved = is_copied && !is_here && !is_stray && !file.is_link && follows() && asks_store_;
  if (has_moved && moved_.size() < options_.waiting_max)
    moved_.emplace_back(std::move(file), note->place);
  else
    found_stale(std::move(file));
}

// At the end of a scan. What the store did not say is left to the next one.
void TierCopier::Impl::settle_names(bool is_complete) {
  if (is_complete) {
    const MutexLock lock(mutex_);
    for (auto& [file, place] : moved_) {
      const auto orphan = orphans_.find(place);
      if (orphan != orphans_.end()) file.from = orphan->second;
      if (orphan != orphans_.end()) orphans_.erase(orphan);
      if (!add(std::move(file))) scan_is_due_ = true;
    }
    for (const auto& [place, path] : orphans_)
      if (!add({0, path, 0, 0, now_ns()})) scan_is_due_ = true;
    if (orphans_.size() >= options_.waiting_max && foreign_.size() < options_.waiting_max) scan_is_due_ = true;
  }
  moved_.clear();
  orphans_.clear();
}

void TierCopier::Impl::refuse(const std::string& path, const std::string& why) {
  {
    const MutexLock lock(mutex_);
    ++refused_;
    if (refusals_.size() < kRefusalsNamed) refusals_.push_back(fmt::format("{} ({})", one_line(path), why));
    if (std::exchange(refused_logged_, true)) return;
  }
  log(LogLevel::kWarning, "tier: {} is not copied, nor are others like it: {}", path, why);
}

void TierCopier::Impl::end_scan(const Status& ended) {
  levels_.clear();
  settle_names(ended.is_ok() && asks_store_ && !stopping_.load());
  Status status = ended;
  bool misses = false;
  {
    const MutexLock lock(mutex_);
    misses = status.is_ok() && !stopping_.load() && strays_.misses_any(scans_begun_);
  }
  if (misses) status = store_.sync_names();
  bool begins = false, waits = false;
  {
    const MutexLock lock(mutex_);
    is_scanning_ = false;
    counted_.files_refused = refused_;
    refusal_ = refused_ == 0
                   ? Status::ok()
                   : Status::error(StatusCode::kRefused,
                                   fmt::format("{} cannot be copied, nor what is in a directory among them: {}{}; give "
                                               "them other names",
                                               format_count(refused_, "path"), fmt::join(refusals_, ", "),
                                               refused_ > refusals_.size() ? ", ..." : ""));
    if (!status.is_ok()) {
      note_failure(status);
      scan_is_due_ = true;
    }
    if (status.is_ok() && !asks_store_) scan_is_due_ = true;
    if (status.is_ok() && !stopping_.load() && strays_.scan_ended(scans_begun_)) unblock();
    asks_store_ = true;
    begins = scan_wanted_ && !stopping_.load();
    if (begins) begin_scan();
    waits = !begins && !interval_runs_ && options_.scan_interval.count() > 0 && !stopping_.load();
    interval_runs_ |= waits;
  }
  if (!status.is_ok()) log(LogLevel::kError, "tier: cannot look for what is to be copied: {}", status.message());
  if (begins) return post([](Impl& self) { self.scan_some(); });
  if (waits)
    after(options_.scan_interval, [weak = weak_from_this()] {
      const Self self = weak.lock();
      if (self == nullptr) return;
      {
        const MutexLock lock(self->mutex_);
        self->interval_runs_ = false;
      }
      self->scan();
    });
  pump();
}

}  // namespace fpfs
