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
}  // namespace

ObjectSet::ObjectSet(Storage& storage, Array& array, SpareObjects* spares, FileId file, Generation generation,
                     bool may_exist)
    : storage_(storage),
      array_(array),
      spares_(spares),
      file_(file),
      generation_(generation),
      may_exist_(may_exist),
      recorded_(may_exist),
      objects_(std::make_unique<Object[]>(array.member_count())) {}

ObjectSet::~ObjectSet() {
  for (MemberIndex m = 0; m < array_.member_count(); ++m)
    if (objects_[m].handle.load() != kNoHandle) storage_.close(objects_[m].handle.load());
}

Result<Handle> ObjectSet::open_for_transfer(MemberIndex member, Use use) {
  const bool for_write = use != Use::kRead;
  Object& object = objects_[member];
  Handle handle = object.handle.load(std::memory_order_acquire);
  if (handle != kNoHandle) return handle;
  const Result<Handle> opened = array_.object_directory(member, file_);
  if (!opened.is_ok()) return as_fault(opened.status());
  const Handle directory = *opened;
  const std::string name = Array::object_name(file_, generation_);
  const int flags = array_.object_flags(member) | (array_.read_only() ? O_RDONLY : O_RDWR);
  if (may_exist_ || !for_write) {
    Result<Handle> existing = storage_.open_at(directory, name, flags);
    // A filesystem that has turned read-only still gives what it holds.
    const bool only_readable = !for_write && !existing.is_ok() && existing.status().errno_value() == EROFS;
    if (only_readable) existing = storage_.open_at(directory, name, array_.object_flags(member) | O_RDONLY);
    if (existing.is_ok()) {
      const Result<struct stat> attributes = storage_.fstat(*existing);
      Status usable = attributes.status();
      if (attributes.is_ok() && !S_ISREG(attributes->st_mode))
        usable = Status::error(StatusCode::kIoError, storage_.describe(*existing) + " is not a regular file");
      if (!usable.is_ok()) {
        storage_.close(*existing);
        return usable;
      }
      // As if nothing were allocated, so that a write that comes later is refused by preallocate().
      object.allocated_end.store(only_readable ? 0 : static_cast<uint64_t>(attributes->st_size));
      object.handle.store(*existing, std::memory_order_release);
      return *existing;
    }
    if (existing.status().code() != StatusCode::kNotFound || !for_write) return as_fault(existing.status());
  }
  const Result<Handle> made = make(member, directory, name, flags, use);
  if (!made.is_ok()) return as_fault(made.status());
  object.name_is_new.store(true);
  object.touched.store(true);
  object.handle.store(*made, std::memory_order_release);
  return *made;
}

// An object that is found under this name was never named by a commit: it is what a crash left.
Result<Handle> ObjectSet::make(MemberIndex member, Handle directory, const std::string& name, int flags, Use use) {
  if (use == Use::kStream && spares_ != nullptr)
    if (const std::optional<SpareObjects::Taken> spare = spares_->take(member, directory, name, flags)) {
      objects_[member].allocated_end.store(spare->length);
      objects_[member].allocated_ahead.store(true);
      return spare->handle;
    }
  Result<Handle> created = storage_.open_at(directory, name, flags | O_CREAT | O_EXCL, 0600);
  if (!created.is_ok() && created.status().code() == StatusCode::kExists) {
    FPFS_RETURN_IF_ERROR(storage_.unlink(directory, name));
    created = storage_.open_at(directory, name, flags | O_CREAT | O_EXCL, 0600);
  }
  return created;
}

Status ObjectSet::preallocate(MemberIndex member, uint64_t begin, uint64_t end, uint64_t ahead_max) {
  Object& object = objects_[member];
  object.touched.store(true, std::memory_order_release);
  const uint64_t have = object.allocated_end.load(std::memory_order_relaxed);
  if (end <= have) return Status::ok();
  const uint64_t from = std::max(begin, have);
  const uint64_t ahead = round_down(std::min(ahead_max, std::clamp(have, kAheadMin, kAheadMax)), kIoAlignment);
  uint64_t want = std::max(end, from + ahead);
  Status status = storage_.fallocate(object.handle.load(), 0, from, want - from);
  if (status.code() == StatusCode::kNoSpace && want > end) {
    want = end;
    status = storage_.fallocate(object.handle.load(), 0, from, want - from);
  }
  if (status.errno_value() == EBADF) return Status::from_errno(EROFS, "write to an object of a read-only filesystem");
  // A filesystem without fallocate: the writes extend the file themselves, only slower.
  if (!status.is_ok() && status.code() != StatusCode::kUnsupported) return status;
  if (want > end) object.allocated_ahead.store(true, std::memory_order_relaxed);
  object.allocated_end.store(want, std::memory_order_relaxed);
  return Status::ok();
}

Status ObjectSet::trim(MemberIndex member, uint64_t end) {
  Object& object = objects_[member];
  object.allocated_ahead.store(false, std::memory_order_relaxed);
  if (object.handle.load() == kNoHandle || object.allocated_end.load() <= end) return Status::ok();
  FPFS_RETURN_IF_ERROR(storage_.ftruncate(object.handle.load(), end));
  object.allocated_end.store(end);
  object.touched.store(true);
  return Status::ok();
}

Status ObjectSet::sync(MemberIndex member) {
  Object& object = objects_[member];
  FPFS_RETURN_IF_ERROR(storage_.fdatasync(object.handle.load()));
  if (object.name_is_new.load()) {
    FPFS_ASSIGN_OR_RETURN(const Handle directory, array_.object_directory(member, file_));
    FPFS_RETURN_IF_ERROR(storage_.fsync(directory));
    object.name_is_new.store(false);
  }
  return array_.check_running(member);
}

Status ObjectSet::punch(MemberIndex member, uint64_t offset, uint64_t length) {
  const auto punch_in = [&](Handle object) -> Status {
    // Nothing lies behind its end, where damage may place a chunk and a filesystem refuses to punch.
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(object));
    const auto size = static_cast<uint64_t>(attributes.st_size);
    if (offset >= size) return Status::ok();
    return storage_.fallocate(object, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                              std::min(length, size - offset));
  };
  const Handle handle = objects_[member].handle.load(std::memory_order_acquire);
  if (handle != kNoHandle) return punch_in(handle);
  // Not used since the file was opened. A handle of our own: the shared one is made by the member's queue thread.
  FPFS_ASSIGN_OR_RETURN(const Handle directory, array_.object_directory(member, file_));
  Result<Handle> opened = storage_.open_at(directory, Array::object_name(file_, generation_), O_RDWR);
  if (!opened.is_ok()) return opened.status().code() == StatusCode::kNotFound ? Status::ok() : opened.status();
  const Status status = punch_in(*opened);
  storage_.close(*opened);
  return status;
}

}  // namespace fpfs
