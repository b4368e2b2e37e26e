// The way through the tree: finds the files whose note is not of their last commit, at their path, in this store. A few
// entries at a time, so that nobody waits for the executor's thread; and no further while enough files wait.
//
// It asks the store, directory by directory, whether it still has the objects that the notes name. A note alone may be
// wrong: a file that had taken the place of another was copied over its copy, and then the other one came back, by a
// rename, or by a power cut that undid one. (And somebody else may have removed objects.)
#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/tier/object_key.h"
#include "engine/tier/tier_copier_impl.h"

namespace fpfs {
namespace {

constexpr unsigned kEntriesAtOnce = 64;

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
  ++scans_begun_;
  refused_ = 0;
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
  if (levels_.empty()) FPFS_RETURN_IF_ERROR(enter("", store_.root(), ""));
  Level& level = levels_.back();
  if (level.next < level.entries.size()) return look_at(level, level.entries[level.next++]);
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

// Goes on with scan_some().
void TierCopier::Impl::list_stored(bool manifests, const std::string& position) {
  ListRequest request;
  const std::string& path = levels_.back().path;
  request.prefix = manifests ? manifest_key(path) : path;
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
      level.stored.emplace_back(TierNote::tag_of(object.key), TierNote::tag_of(object.tag));
    if (!page.value().position.empty()) return list_stored(manifests, page.value().position);
    if (!manifests) return list_stored(true, "");
  }
  // A store that is away is asked by a later scan; this one goes by the notes.
  if (!page.is_ok()) asks_store_ = false;
  std::sort(level.stored.begin(), level.stored.end());
  level.is_listed = true;
  post([](Impl& self) { self.scan_some(); });
}

bool TierCopier::Impl::is_stored(const Level& level, const TierNote& note, const std::string& path) const {
  // A file with several names has its copy at one of them.
  if (!asks_store_ || note.place != TierNote::place_of(place_, path)) return true;
  const auto has = [&level](const std::string& key, uint64_t tag) {
    return std::binary_search(level.stored.begin(), level.stored.end(), std::pair(TierNote::tag_of(key), tag));
  };
  return has(path, note.content_tag) && has(manifest_key(path), note.manifest_tag);
}

Status TierCopier::Impl::look_at(Level& level, const DirectoryEntry& entry) {
  unsigned char type = entry.type;
  if (type == DT_UNKNOWN) {
    const Result<struct stat> attributes = store_.storage().stat_at(level.handle.get(), entry.name);
    if (attributes.status().code() == StatusCode::kNotFound) return Status::ok();
    if (!attributes.is_ok()) return attributes.status();
    type = static_cast<unsigned char>(IFTODT(attributes->st_mode));
  }
  const std::string path = level.path + entry.name;
  if (type != DT_REG && type != DT_DIR) return Status::ok();
  if (is_reserved(entry.name)) {
    refuse(path, "its name is reserved");
    return Status::ok();
  }
  if (const Status usable = check_key(manifest_key(path), 0); !usable.is_ok()) {
    refuse(path, usable.message());
    return Status::ok();
  }
  // `level` is gone after this.
  if (type == DT_DIR) return enter(path + "/", level.handle.get(), entry.name);
  look_at_file(path, level, entry.name);
  return Status::ok();
}

void TierCopier::Impl::look_at_file(const std::string& path, const Level& level, const std::string& name) {
  Result<Store::Node> node = store_.lookup(level.handle.get(), name);
  if (!node.is_ok() || !S_ISREG(node->attributes.st_mode)) return;  // gone, or a job will say why
  const uint64_t inode = node->attributes.st_ino;
  const Result<SidecarSummary> record = store_.last_record(node->handle.get());
  const std::optional<TierNote> note = note_of(node->handle.get(), inode);
  const bool is_noted =
      record.is_ok() && note.has_value() && is_copied(*note, *record, path, node->attributes.st_nlink > 1);
  // What it has may be older than the note: whether it is to be copied is for a job to find out.
  if (is_noted && is_stored(level, *note, path)) return;
  {
    const MutexLock lock(mutex_);
    const uint64_t sequence = record.is_ok() ? record.value().sequence : 0;
    const auto copying = copying_.find(inode);
    if (copying != copying_.end() && copying->second.path == path && copying->second.sequence >= sequence) return;
    const TierWaiting file{inode, path, sequence, static_cast<uint64_t>(node->attributes.st_size), now_ns()};
    if (!add(file)) queue_.add(file);  // one more than may wait: the scan stops behind it
  }
  pump();
}

void TierCopier::Impl::refuse(const std::string& path, const std::string& why) {
  {
    const MutexLock lock(mutex_);
    ++refused_;
    if (std::exchange(refused_logged_, true)) return;
  }
  log(LogLevel::kWarning, "tier: {} is not copied, nor are others like it: {}", path, why);
}

void TierCopier::Impl::end_scan(const Status& status) {
  levels_.clear();
  bool begins = false, waits = false;
  {
    const MutexLock lock(mutex_);
    is_scanning_ = false;
    counted_.files_refused = refused_;
    if (!status.is_ok()) {
      note_failure(status);
      scan_is_due_ = true;
    }
    if (status.is_ok() && !asks_store_) scan_is_due_ = true;
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
