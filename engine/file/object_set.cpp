#include "engine/file/object_set.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>

#include "engine/file/spare_objects.h"

namespace fpfs {

namespace {
// Allocate ahead what the object already holds, within these bounds: few extents for large checkpoints, little to give
// back for small ones.
constexpr uint64_t kAheadMin = 4 * kMiB;
constexpr uint64_t kAheadMax = 128 * kMiB;

// What lies where an object belongs and is none (a link, something mounted there, a FIFO) is a fault of the drive, not
// of the call that reads or writes content: EIO, whatever open(2) says. ENOENT is for the caller to judge.
Status as_fault(const Status& status) {
  switch (status.errno_value()) {
    case ENOENT:
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return status;
    default:
      return Status::error(StatusCode::kIoError, status.message());
  }
}

bool lacks_descriptors(const Status& status) {
  return status.errno_value() == EMFILE || status.errno_value() == ENFILE;
}
}  // namespace

ObjectSet::ObjectSet(Storage& storage, Array& array, SpareObjects* spares, uint16_t members, FileId file,
                     Generation generation, bool may_exist)
    : storage_(storage),
      array_(array),
      spares_(spares),
      file_(file),
      generation_(generation),
      may_exist_(may_exist),
      recorded_(may_exist),
      objects_(members) {
  for (Object& object : objects_) object.storage = &storage;
}

ObjectSet::~ObjectSet() {
  for (const MemberIndex m : members()) array_.handles(m).remove(objects_[m]);
}

void ObjectSet::Object::before_close(Handle handle) {
  if (has_unsynced()) sync(handle);
}

void ObjectSet::Object::sync(Handle handle) {
  const uint64_t covers = changes.load();
  const Status status = storage->fdatasync(handle);
  if (!status.is_ok()) {
    MutexLock lock(mutex);
    if (sync_failure.is_ok()) sync_failure = status;
  }
  synced.store(covers);
}

Result<HandleCache::Pin> ObjectSet::open_for_transfer(MemberIndex member, Use use) {
  HandleCache& handles = array_.handles(member);
  Object& object = objects_[member];
  if (HandleCache::Pin pin = handles.find(object); pin.is_set()) return pin;
  const MutexLock lock(object.opening);
  if (HandleCache::Pin pin = handles.find(object); pin.is_set()) return pin;
  Result<ScopedHandle> opened = open(member, use);
  // Every other handle that can be opened again is worth less than this call.
  if (lacks_descriptors(opened.status()) && handles.make_room()) opened = open(member, use);
  if (!opened.is_ok()) return as_fault(opened.status());
  object.exists.store(true, std::memory_order_release);
  return handles.insert(object, std::move(*opened));
}

// Not set: it was dropped, also at this moment.
Result<HandleCache::Pin> ObjectSet::open_again(MemberIndex member) {
  Object& object = objects_[member];
  if (object.dropped.load()) return HandleCache::Pin();
  Result<HandleCache::Pin> opened = open_for_transfer(member, Use::kRead);
  if (!opened.is_ok() && object.dropped.load()) return HandleCache::Pin();
  return opened;
}

Result<ScopedHandle> ObjectSet::open(MemberIndex member, Use use) {
  const bool for_write = use != Use::kRead;
  Object& object = objects_[member];
  const Result<HandleCache::Pin> found = array_.object_directory(member, file_);
  // Not the file that is saved is missing.
  if (found.status().code() == StatusCode::kNotFound && for_write && !array_.is_removed(member))
    return Status::error(StatusCode::kIoError, found.status().message() + "; fsck.fastpersistfs -n says what to do")
        .at(member.value(), 0, 0);
  if (!found.is_ok()) return found.status();
  const HandleCache::Pin& directory = *found;
  const std::string name = Array::object_name(file_, generation_);
  const int flags = array_.object_flags(member) | (array_.read_only() ? O_RDONLY : O_RDWR);
  const bool exists = object.exists.load(std::memory_order_acquire);
  if (exists || may_exist_ || !for_write) {
    Result<ScopedHandle> existing = open_existing(member, directory.get(), name, flags, for_write);
    // Somebody may have made it who came to no commit, and whose sync of its name failed.
    if (existing.is_ok() && !exists && for_write) object.new_name.store(array_.note_new_name(member, file_));
    if (existing.is_ok() || exists || !for_write || existing.status().code() != StatusCode::kNotFound) return existing;
  }
  const auto gone = [&name] {
    return Status::error(StatusCode::kNotFound, name + " belongs to content that was given up");
  };
  if (is_superseded()) return gone();
  FPFS_ASSIGN_OR_RETURN(ScopedHandle made, make(member, directory.get(), name, flags, use));
  // Who gives it up says so before he removes what there is: either he finds this one, or it is seen here.
  if (is_superseded()) {
    made.reset();
    const Status removed = storage_.unlink(directory.get(), name);
    return removed.is_ok() || removed.code() == StatusCode::kNotFound ? gone() : removed;
  }
  object.dropped.store(false);
  object.new_name.store(array_.note_new_name(member, file_));
  touch(member);
  return made;
}

Result<ScopedHandle> ObjectSet::open_existing(MemberIndex member, Handle directory, const std::string& name, int flags,
                                              bool for_write) {
  Object& object = objects_[member];
  Result<Handle> existing = storage_.open_at(directory, name, flags);
  // A filesystem that has turned read-only still gives what it holds.
  const bool only_readable = !for_write && !existing.is_ok() && existing.status().errno_value() == EROFS;
  if (only_readable) existing = storage_.open_at(directory, name, array_.object_flags(member) | O_RDONLY);
  if (!existing.is_ok()) return existing.status();
  ScopedHandle handle(storage_, *existing);
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(handle.get()));
  if (!S_ISREG(attributes.st_mode))
    return Status::error(StatusCode::kIoError, storage_.describe(handle.get()) + " is not a regular file");
  // As if nothing were allocated, so that a write that comes later is refused by preallocate().
  if (only_readable)
    object.allocated_end.store(ObjectOffset(0));
  else if (!object.exists.load())
    object.allocated_end.store(ObjectOffset(static_cast<uint64_t>(attributes.st_size)));
  return handle;
}

// An object that is found under this name was never named by a commit: it is what a crash left.
Result<ScopedHandle> ObjectSet::make(MemberIndex member, Handle directory, const std::string& name, int flags,
                                     Use use) {
  if (use == Use::kStream && spares_ != nullptr)
    if (std::optional<SpareObjects::Taken> spare = spares_->take(member, directory, name, flags)) {
      objects_[member].allocated_end.store(ObjectOffset(spare->length));
      objects_[member].ahead_from.store(ObjectOffset(0));
      return std::move(spare->handle);
    }
  Result<Handle> created = storage_.open_at(directory, name, flags | O_CREAT | O_EXCL, 0600);
  if (!created.is_ok() && created.status().code() == StatusCode::kExists) {
    FPFS_RETURN_IF_ERROR(storage_.unlink(directory, name));
    created = storage_.open_at(directory, name, flags | O_CREAT | O_EXCL, 0600);
  }
  if (!created.is_ok()) return created.status();
  return ScopedHandle(storage_, *created);
}

Status ObjectSet::preallocate(MemberIndex member, Handle handle, ObjectOffset begin, ObjectOffset end,
                              uint64_t ahead_max) {
  Object& object = objects_[member];
  touch(member);
  const ObjectOffset have = object.allocated_end.load(std::memory_order_relaxed);
  if (end <= have) return Status::ok();
  const ObjectOffset from = std::max(begin, have);
  const uint64_t ahead = round_down(std::min(ahead_max, std::clamp(have.value(), kAheadMin, kAheadMax)), kIoAlignment);
  ObjectOffset want = std::max(end, from + ahead);
  Status status = storage_.fallocate(handle, 0, from.value(), want - from);
  if (status.code() == StatusCode::kNoSpace && want > end) {
    want = end;
    status = storage_.fallocate(handle, 0, from.value(), want - from);
  }
  if (status.errno_value() == EBADF) return Status::from_errno(EROFS, "write to an object of a read-only filesystem");
  // A filesystem without fallocate: the writes extend the file themselves, only slower.
  if (!status.is_ok() && status.code() != StatusCode::kUnsupported) return status;
  if (want > end && end < object.ahead_from.load(std::memory_order_relaxed))
    object.ahead_from.store(end, std::memory_order_relaxed);
  object.allocated_end.store(want, std::memory_order_relaxed);
  return Status::ok();
}

Status ObjectSet::trim(MemberIndex member, ObjectOffset end) {
  Object& object = objects_[member];
  object.ahead_from.store(kNotAhead, std::memory_order_relaxed);
  if (allocated_end(member) <= end) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin handle, open_again(member));
  if (!handle.is_set()) return Status::ok();
  FPFS_RETURN_IF_ERROR(storage_.ftruncate(handle.get(), end.value()));
  touch(member);
  object.allocated_end.store(std::min(object.allocated_end.load(), end));
  object.shared_end.store(std::min(object.shared_end.load(), end));
  return Status::ok();
}

void ObjectSet::note_shared(MemberIndex member, ObjectOffset end) {
  std::atomic<ObjectOffset>& shared = objects_[member].shared_end;
  for (ObjectOffset before = shared.load(); before < end && !shared.compare_exchange_weak(before, end);) {
  }
  touch(member);
}

// Nobody opens it meanwhile, and nobody has it open afterwards.
Result<bool> ObjectSet::drop(MemberIndex member) {
  Object& object = objects_[member];
  const MutexLock lock(object.opening);
  if (object.dropped.load()) return true;
  if (!array_.handles(member).close(object)) return false;
  FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin directory, array_.object_directory(member, file_));
  object.dropped.store(true);
  const Status removed = storage_.unlink(directory.get(), Array::object_name(file_, generation_));
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) {
    object.dropped.store(false);
    return removed;
  }
  object.exists.store(false);
  object.synced.store(object.changes.load());
  object.touched.store(false);
  object.new_name.store(0);
  object.ahead_from.store(kNotAhead);
  object.allocated_end.store(ObjectOffset());
  object.shared_end.store(ObjectOffset());
  return true;
}

Status ObjectSet::sync(MemberIndex member) {
  Mutex& syncing = objects_[member].syncing;
  // Of two at once, a commit and who heals, the kernel would tell one of a failure.
  if (!syncing.try_lock()) {
    FPFS_RETURN_IF_ERROR(array_.check_running(member));  // refused when the drive does not answer
    syncing.lock();
  }
  const Status synced = sync_alone(member);
  syncing.unlock();
  return synced;
}

Status ObjectSet::sync_alone(MemberIndex member) {
  Object& object = objects_[member];
  if (object.dropped.load()) return Status::ok();
  // Else it was synced when its handle was closed to make room for another.
  if (object.has_unsynced()) {
    FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin handle, open_again(member));
    if (!handle.is_set()) return Status::ok();
    if (object.has_unsynced()) object.sync(handle.get());
  }
  {
    MutexLock lock(object.mutex);
    FPFS_RETURN_IF_ERROR(object.sync_failure);
  }
  if (const uint64_t name = object.new_name.exchange(0); name != 0) {
    if (const Status synced = array_.sync_new_name(member, file_, name); !synced.is_ok()) {
      uint64_t none = 0;
      object.new_name.compare_exchange_strong(none, name);
      return synced;
    }
  }
  return array_.check_running(member);
}

void ObjectSet::forget_failures() {
  for (Object& object : objects_) {
    MutexLock lock(object.mutex);
    object.sync_failure = Status::ok();
  }
}

Status ObjectSet::punch(MemberIndex member, ObjectOffset offset, uint64_t length) {
  const auto punch_in = [&](Handle object) -> Status {
    // Nothing lies behind its end, where damage may place a chunk and a filesystem refuses to punch.
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(object));
    const ObjectOffset size(static_cast<uint64_t>(attributes.st_size));
    if (offset >= size) return Status::ok();
    FPFS_RETURN_IF_ERROR(storage_.fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset.value(),
                                            std::min(length, size - offset)));
    objects_[member].changes.fetch_add(1);
    return Status::ok();
  };
  const HandleCache::Pin handle = array_.handles(member).find(objects_[member]);
  if (handle.is_set()) return punch_in(handle.get());
  // A handle of our own: the shared one is made by the member's queue thread.
  FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin directory, array_.object_directory(member, file_));
  Result<Handle> opened = storage_.open_at(directory.get(), Array::object_name(file_, generation_), O_RDWR);
  if (!opened.is_ok()) return opened.status().code() == StatusCode::kNotFound ? Status::ok() : opened.status();
  const ScopedHandle own(storage_, *opened);
  return punch_in(own.get());
}

}  // namespace fpfs
