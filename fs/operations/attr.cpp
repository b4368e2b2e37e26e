// getattr, setattr: what stat shows, and chmod, chown, utimens, truncate.
#include <cerrno>

#include "fs/operations/calling_process.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs::operations {
namespace {

// Consumes the request. After the reply the kernel may forget the node, so nothing of `inode` is used behind it.
void reply_attributes(fuse_req_t request, Inode& inode, const Result<struct stat>& attributes) {
  if (!attributes.is_ok()) return reply_status(request, attributes.status());
  FileSystem& file_system = file_system_of(request);
  if (file_system.inodes().node(inode) == FUSE_ROOT_ID) file_system.note_root(*attributes);
  fuse_reply_attr(request, &*attributes, attribute_seconds(file_system, inode, *attributes));
}

struct Times {
  struct timespec values[2];
  bool any = false;
};

Times times_to_set(const struct stat& attributes, int to_set) {
  Times times{{{0, UTIME_OMIT}, {0, UTIME_OMIT}}, false};
  auto set = [&times](int index, bool now, bool given, const struct timespec& value) {
    if (!now && !given) return;
    times.values[index] = now ? timespec{0, UTIME_NOW} : value;
    times.any = true;
  };
  set(0, (to_set & FUSE_SET_ATTR_ATIME_NOW) != 0, (to_set & FUSE_SET_ATTR_ATIME) != 0, attributes.st_atim);
  set(1, (to_set & FUSE_SET_ATTR_MTIME_NOW) != 0, (to_set & FUSE_SET_ATTR_MTIME) != 0, attributes.st_mtim);
  return times;
}

Status set_owner_and_mode(FileSystem& file_system, Inode& inode, const struct stat& attributes, int to_set) {
  Store& store = file_system.store();
  if ((to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0) {
    // The filesystem under tree/ drops set-ID bits and capabilities of a file that changes hands.
    const uid_t user = (to_set & FUSE_SET_ATTR_UID) != 0 ? attributes.st_uid : static_cast<uid_t>(-1);
    const gid_t group = (to_set & FUSE_SET_ATTR_GID) != 0 ? attributes.st_gid : static_cast<gid_t>(-1);
    FPFS_RETURN_IF_ERROR(store.chown(inode.handle, user, group));
  }
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) {
    FPFS_RETURN_IF_ERROR(store.chmod(inode.handle, attributes.st_mode & 07777));
    if ((attributes.st_mode & (S_ISUID | S_ISGID)) != 0) inode.may_have_set_id.store(true);
  }
  return Status::ok();
}

// The rest of a setattr once the size is right: times, then the answer.
void finish_setattr(fuse_req_t request, Inode& inode, const Times& times, const Status& status) {
  if (!status.is_ok()) return reply_status(request, status);
  Store& store = file_system_of(request).store();
  reply_attributes(request, inode,
                   times.any ? store.set_times(inode.handle, times.values) : store.attributes(inode.handle));
}

// ftruncate acts on an open file, which commits when it is closed; truncate(2) has no close, so it commits here, unless
// somebody is in the middle of writing, whose close will.
void set_size(fuse_req_t request, Inode& inode, uint64_t size, int to_set, const fuse_file_info* info,
              const Times& times) {
  FileSystem& file_system = file_system_of(request);
  Status status = drop_privileges(file_system, request, inode, (to_set & wire::kSetattrKillSetId) != 0);
  if (!status.is_ok()) return reply_status(request, status);
  std::shared_ptr<File> file;
  std::shared_ptr<Writer> writer;
  if (info != nullptr) {
    writer = OpenHandles::file(info->fh).writer;
    file = OpenHandles::file(info->fh).file;
  } else {
    Store& store = file_system.store();
    HandleShares::Lease handles = store.shares().lease(fuse_req_ctx(request)->uid, store.handles_of_file());
    if (handles.count() == 0) {
      fuse_reply_err(request, ENFILE);
      return;
    }
    Result<std::shared_ptr<File>> opened = store.open_file(inode.handle, true);
    if (!opened.is_ok()) return reply_status(request, opened.status());
    file = std::move(*opened);
    hold_opened(*file, std::move(handles));
  }
  const bool closes = info == nullptr;
  inode.cached_commit.store(0);
  auto truncated = [request, &inode, times, closes, file, writer](const ControlRequest&, const Status& result) {
    FileSystem& owner = file_system_of(request);
    inode.cached_commit.store(0);  // once more: somebody may have opened it meanwhile
    if (!result.is_ok() || !closes) return finish_setattr(request, inode, times, result);
    const Durable durable = owner.durable_of(inode);
    if (durable == Durable::kFsync) {
      file->closed_by_writer();
      return finish_setattr(request, inode, times, result);
    }
    ControlRequest commit;
    commit.kind = ControlRequest::Kind::kClose;
    commit.unfinished = ControlRequest::Unfinished::kLeftAlone;
    owner.control(file, commit,
                  [request, &inode, times, file, durable](const ControlRequest&, const Status& committed) {
                    when_copied(request, durable, file, committed, [request, &inode, times](const Status& outcome) {
                      finish_setattr(request, inode, times, outcome);
                    });
                  });
  };
  ControlRequest truncation;
  truncation.kind = ControlRequest::Kind::kTruncate;
  truncation.offset = FileOffset(size);
  if (writer != nullptr) truncation.origin = {writer.get(), {0, process_of(fuse_req_ctx(request)->pid)}, false};
  file_system.control(file, truncation, std::move(truncated));
}

}  // namespace

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& inode = file_system.inodes().get(node);
  const Result<struct stat> attributes = file_system.store().attributes(inode.handle);
  // fpfs status comes by the root, and is asked for just then.
  if (node == FUSE_ROOT_ID && attributes.status().code() == StatusCode::kIoError) {
    log_fault(attributes.status());
    const struct stat told = file_system.root_as_told();
    fuse_reply_attr(request, &told, 0);
    return;
  }
  reply_attributes(request, inode, attributes);
}

void setattr(fuse_req_t request, fuse_ino_t node, struct stat* attributes, int to_set, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& inode = file_system.inodes().get(node);
  FileSystem::note_change(inode);
  Status status = set_owner_and_mode(file_system, inode, *attributes, to_set);
  if (!status.is_ok()) return reply_status(request, status);
  const Times times = times_to_set(*attributes, to_set);
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0)
    return set_size(request, inode, static_cast<uint64_t>(attributes->st_size), to_set, info, times);
  finish_setattr(request, inode, times, Status::ok());
}

}  // namespace fpfs::operations
