// What the copier is told: of commits, of names and attributes, and by those who wait for copies.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/tier/tier_copier_impl.h"

namespace fpfs {

void TierCopier::Impl::committed(uint64_t inode, uint64_t sequence, bool is_moved) {
  if (stopping_.load()) return;
  // One that has no name now may be given one, which its next commit tells of.
  const std::optional<Store::OpenFile> open = store_.find_open(inode);
  if (!open.has_value() || is_reserved(open->path)) return;
  TierWaiting file{inode, open->path, sequence, open->size, now_ns()};
  if (is_moved) {
    file.same = {open->file_id, sequence - 1, sequence};
    {
      const MutexLock lock(mutex_);
      moves_.push_back(std::move(file));
      if (moves_.size() > 1) return;
    }
    return post([](Impl& self) { self.note_moves(); });
  }
  {
    const MutexLock lock(mutex_);
    if (!add(std::move(file))) scan_is_due_ = true;
  }
  pump();
}

// One after another: each goes on from the note of the one before.
void TierCopier::Impl::note_moves() {
  for (bool goes_on = true; goes_on;) {
    TierWaiting first;
    {
      const MutexLock lock(mutex_);
      first = moves_.front();
    }
    note_move(first);
    const MutexLock lock(mutex_);
    moves_.pop_front();
    goes_on = !moves_.empty();
  }
}

uint64_t TierCopier::Impl::same_since(const TierWaiting& file, FileId file_id, uint64_t sequence) const {
  const MutexLock lock(mutex_);
  for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) sequence = move->same.first(file_id, sequence);
  TierWaiting of_file;  // as moves wait, also those of a file of several names, each of which waits by itself
  of_file.inode = file.inode;
  if (const TierWaiting* const told = queue_.find(of_file); told != nullptr)
    sequence = told->same.first(file_id, sequence);
  return file.same.first(file_id, sequence);
}

// The copy is as good as before; the note says so from now on. When that is not as simple, a job finds out.
void TierCopier::Impl::note_move(const TierWaiting& file) {
  bool is_simple = false, is_over = false;
  {
    const MutexLock lock(mutex_);
    is_simple =
        std::ranges::none_of(copying_, [&file](const auto& copying) { return copying.second.inode == file.inode; });
    is_over = !queue_.contains(file);  // else the job that waits is to know of it, too
  }
  const Result<Found> found = find(file.path);
  if (is_simple && is_at(found, file.inode)) {
    const Handle node = found.value().node.handle.get();
    std::optional<TierNote> note = note_of(node, file.path);
    // Without, or of another file that has the inode by now, there is nothing to be moved.
    if (!note.has_value() || note->file_id != file.same.file_id || note->sequence >= file.sequence) return;
    const Result<std::shared_ptr<File>> opened = store_.open_file(node, false);
    // Several may have come before this is looked at.
    const bool is_same =
        note->sequence + 1 == file.sequence || (opened.is_ok() && (*opened)->content_since() <= note->sequence);
    is_simple = opened.is_ok() && is_same && note->size == file.bytes;
    if (is_simple) {
      note->sequence = file.sequence;
      is_simple = (*opened)->set_note(TierNote::kAttribute, encode_note(*note)).is_ok();
    }
  }
  if (is_simple && is_over) return;
  {
    const MutexLock lock(mutex_);
    if (!add(file)) scan_is_due_ = true;
  }
  pump();
}

void TierCopier::Impl::changed(const Store::NameEvent& event) {
  using Kind = Store::NameEvent::Kind;
  if (stopping_.load()) return;
  if (options_.shares) {
    const MutexLock lock(mutex_);
    if (is_silent(event)) return;
  }
  if (event.is_ahead) return keep_copies(event);
  if (options_.shares) {
    const auto note = [this](Handle node, const std::string& path) { return note_of(node, path); };
    const std::vector<uint64_t> lost = lost_->note(event, note);
    const MutexLock lock(mutex_);
    for (const uint64_t place : lost) seen_.erase(place);
    if (event.kind == Kind::kMoved && event.is_directory) note_moved_directory(event);
  }
  const char* const end = event.is_directory ? "/" : "";
  const bool is_removal = event.kind == Kind::kRemoved;
  // A file that has no note, and is not being copied, has no copy.
  const bool has_note = !is_removal || event.lost_inode == 0 || note_of(event.lost, event.path).has_value();
  keep_copies(event);  // again: with whoever has opened it since
  const uint64_t now = now_ns();
  {
    const MutexLock lock(mutex_);
    const auto changes = [&](TierWaiting file) FPFS_NO_THREAD_SAFETY_ANALYSIS {
      if (!is_reserved(file.path) && !add(std::move(file))) scan_is_due_ = true;
    };
    const bool has_copy = has_note || copying_.contains(event.path);
    if (is_removal && !(follows() && has_copy)) return;
    TierWaiting file{event.inode, event.path + end, 0, 0, now};
    file.from = event.inode != 0 && !is_reserved(event.from) ? event.from : "";
    file.was_here = is_removal;
    file.is_link = event.kind == Kind::kMade && event.inode != 0;
    file.is_awaited = options_.shares && event.is_directory && !is_removal;  // by what is in it
    changes(std::move(file));
    // A file takes its copy along; of what is in a directory a scan finds it.
    if (event.kind == Kind::kMoved && event.inode == 0 && follows()) {
      TierWaiting left{0, event.from + end, 0, 0, now};
      left.was_here = true;
      changes(std::move(left));
    }
    if (event.kind == Kind::kMoved && event.is_directory) scan_is_due_ = true;
  }
  pump();
}

// What is moved needs the copy where it was until it has one where it is. Of what loses its name, whoever has it open
// goes on reading it; and under another name that it has, it needs the copy that it had here, until it has one there.
// Ahead of the change as well as behind it: a job that finds another file at that path finds this, too.
void TierCopier::Impl::keep_copies(const Store::NameEvent& event) {
  const bool is_move = event.kind == Store::NameEvent::Kind::kMoved;
  {
    const MutexLock lock(mutex_);
    if (is_move && event.is_directory) strays_.forget(scans_begun_);
    if (!strays_.is_on()) return;
    if (is_move && event.inode != 0) strays_.add(event.from, event.inode, scans_begun_);
  }
  if (event.lost_inode == 0) return;
  const auto attributes = store_.storage().fstat(event.lost);
  const std::string copied_at = this->copied_at(event.lost);
  const bool has_other_names = attributes.is_ok() && attributes->st_nlink > (event.is_ahead ? 1 : 0);
  const bool is_held = !has_other_names && !copied_at.empty() && store_.is_in_use(event.lost_inode);
  bool is_free = false;
  {
    const MutexLock lock(mutex_);
    if (has_other_names) {
      strays_.add(event.path, event.lost_inode, scans_begun_);
      scan_is_due_ = true;
    } else if (is_held) {
      strays_.hold(copied_at, event.lost_inode);
    } else {
      is_free = strays_.has(event.lost_inode);
    }
  }
  if (event.is_ahead) return;
  if (is_held) watch_use(event.lost_inode, event.path);
  if (is_free) free_strays(event.lost_inode, event.path);
}

// Nobody tells when it is closed.
void TierCopier::Impl::watch_use(uint64_t inode, const std::string& path) {
  after(options_.pause_first, [weak = weak_from_this(), inode, path] {
    const Self self = weak.lock();
    if (self == nullptr || self->stopping_.load()) return;
    self->store_.is_in_use(inode) ? self->watch_use(inode, path) : self->free_strays(inode, path);
  });
}

// The file is gone from `path`: once no power cut brings it back, it needs no copy. Else a scan finds that out.
void TierCopier::Impl::free_strays(uint64_t inode, const std::string& path) {
  post([inode, path](Impl& self) {
    if (self.is_stopping() || !self.sync_way_to(path).is_ok()) return;
    {
      const MutexLock lock(self.mutex_);
      if (self.strays_.settle(inode, "")) self.unblock();
    }
    self.pump();
  });
}

void TierCopier::Impl::content_is_away() {
  const MutexLock lock(mutex_);
  strays_.switch_on();
}

// --- those who wait --------------------------------------------------------------------------------------------------

void TierCopier::Impl::wait_for(const std::string& path, Done done) {
  post([path, done = std::move(done)](Impl& self) {
    if (self.is_stopping()) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
    if (is_reserved(path))
      return done(
          Status::error(StatusCode::kInvalidArgument, fmt::format("{} has a reserved name and is not copied", path)));
    Result<Found> found = self.find(path);
    if (!found.is_ok()) return done(found.status());
    if (!found->node.handle.is_open()) return done(Status::error(StatusCode::kNotFound, "there is no " + path));
    const struct stat attributes = found->node.attributes;
    if (!found->is_file()) return done(Status::error(StatusCode::kInvalidArgument, path + " is not a regular file"));
    Result<std::shared_ptr<File>> opened = self.store_.open_file(found->node.handle.get(), false);
    if (!opened.is_ok()) return done(opened.status());
    uint64_t sequence = 0;
    {
      const auto version = (*opened)->hold_version();
      if (!version.is_ok() && version.status().code() != StatusCode::kNotFound) return done(version.status());
      if (version.is_ok()) sequence = version.value()->sequence();
    }
    const bool begins = self.add_waiter({attributes.st_ino, path, sequence, static_cast<uint64_t>(attributes.st_size),
                                         self.now_ns(), false, attributes.st_nlink > 1},
                                        done);
    opened->reset();
    if (!begins) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
    self.pump();
  });
}

bool TierCopier::Impl::add_waiter(TierWaiting file, Done done) {
  const MutexLock lock(mutex_);
  if (stopping_.load()) return false;
  waiters_.emplace(file.inode, Waiter{file.sequence, std::move(done)});
  file.is_awaited = true;
  // A job finds out whether it is copied already.
  const auto copying = copying_.find(file.path);
  if (copying == copying_.end() || copying->second.sequence < file.sequence) queue_.add(std::move(file));
  return true;
}

void TierCopier::Impl::wait_for_commit(uint64_t inode, uint64_t sequence, Done done) {
  post([inode, sequence, done = std::move(done)](Impl& self) { self.await_commit(inode, sequence, done); });
}

void TierCopier::Impl::await_commit(uint64_t inode, uint64_t sequence, const Done& done) {
  if (is_stopping()) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
  const std::optional<Store::OpenFile> open = store_.find_open(inode);
  if (!open.has_value()) return done(Status::ok());
  if (is_reserved(open->path))
    return done(Status::error(StatusCode::kInvalidArgument,
                              fmt::format("{} has a reserved name and is not copied", open->path)));
  // It was not found where it was said to be.
  const auto waits = [weak = weak_from_this(), inode, sequence, done](const Status& status) {
    const Self self = status.code() == StatusCode::kNotFound ? weak.lock() : nullptr;
    if (self == nullptr) return done(status);
    self->after(self->options_.pause_first, [weak, inode, sequence, done] {
      if (const Self later = weak.lock()) later->wait_for_commit(inode, sequence, done);
    });
  };
  if (!add_waiter({inode, open->path, sequence, open->size, now_ns()}, waits))
    return done(Status::error(StatusCode::kCancelled, "copying has ended"));
  pump();
}

void TierCopier::Impl::wait_for_all(const Done& done) {
  bool is_over = false;
  {
    const MutexLock lock(mutex_);
    is_over = stopping_.load();
    if (!is_over) everything_.push_back({scans_begun_ + 1, done});
  }
  if (is_over) return done(Status::error(StatusCode::kCancelled, "copying has ended"));
  scan();
}

}  // namespace fpfs
