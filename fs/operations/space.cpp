// fallocate and lseek: the holes of a file. Chunks get their place when they are written: what fallocate asks for is
// set aside for the file until then (File::reserve), while it is open.
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "engine/base/log.h"
#include "fs/operations/calling_process.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
constexpr unsigned kLooksMax = 2000;  // a drive may hang

struct Allocation {
  fuse_req_t request;
  std::shared_ptr<File> file;
  std::shared_ptr<Writer> writer;
  Actor caller;
  FileOffset offset;
  uint64_t length;
  bool keep_size;
};

// What a call has done so far to find room.
struct Looks {
  unsigned left = kLooksMax;
  Room::Sent sent;
  bool has_freed = false;
};

// Before it fails, what is on its way to the drives arrives (it may have its space already), and what is about to be
// freed is freed; of both, what was there when the call came.
void reserve(const Allocation& call, std::function<void(const Status&)> then, Looks looks = {}) {
  bool in_flight = false;
  const Status status = call.file->reserve(call.offset, call.length, looks.sent, in_flight);
  const bool may_wait = in_flight && looks.left > 0;
  if (status.code() != StatusCode::kNoSpace) return then(status);
  if (!may_wait && looks.has_freed) {
    const std::string name = call.file->path();
    log_about("no room: " + name, LogLevel::kWarning, "{}: {}; fallocate fails with ENOSPC", name, status.message());
    return then(status);
  }
  FileSystem& file_system = file_system_of(call.request);
  file_system.run_later(kBetweenLooks, [&file_system, call, then = std::move(then), looks, may_wait]() mutable {
    if (may_wait) {
      --looks.left;
    } else {
      file_system.store().finish_frees();
      looks.has_freed = true;
    }
    reserve(call, then, looks);
  });
}

void change(const Allocation& call, ControlRequest::Kind kind, FileOffset offset, uint64_t length,
            std::function<void(const Status&)> then) {
  ControlRequest request;
  request.kind = kind;
  request.offset = offset;
  request.length = length;
  request.origin = {call.writer.get(), call.caller, false};
  file_system_of(call.request)
      .control(call.file, request,
               [then = std::move(then)](const ControlRequest&, const Status& status) { then(status); });
}

void extend_then_reply(const Allocation& call) {
  const FileOffset end = call.offset + call.length;
  const auto reply = [request = call.request](const Status& status) { reply_status(request, status); };
  if (end <= FileOffset(call.file->size())) return reply(Status::ok());
  change(call, ControlRequest::Kind::kTruncate, end, 0, reply);
}

void punch(const Allocation& call, std::function<void(const Status&)> then) {
  change(call, ControlRequest::Kind::kPunchHole, call.offset, call.length, std::move(then));
}

void allocate(const Allocation& call) {
  reserve(call, [call](const Status& status) {
    if (!status.is_ok() || call.keep_size) return reply_status(call.request, status);
    extend_then_reply(call);
  });
}

// Nothing is zeroed unless the range fits the drives; the hole that it becomes is set aside once more.
void zero(const Allocation& call) {
  reserve(call, [call](const Status& fits) {
    if (!fits.is_ok()) return reply_status(call.request, fits);
    punch(call, [call](const Status& status) {
      if (!status.is_ok()) return reply_status(call.request, status);
      allocate(call);
    });
  });
}

}  // namespace

void fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
               fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  OpenFile& open = OpenHandles::file(info->fh);
  const bool keep_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  const int kind = mode & ~FALLOC_FL_KEEP_SIZE;
  if (kind != 0 && kind != FALLOC_FL_ZERO_RANGE && !(kind == FALLOC_FL_PUNCH_HOLE && keep_size)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return;
  }
  const Status status =
      drop_privileges(file_system, request, file_system.inodes().get(node), !may_keep_set_id(request));
  if (!status.is_ok()) return reply_status(request, status);
  const Actor caller{0, process_of(fuse_req_ctx(request)->pid)};
  const FileOffset begin(static_cast<uint64_t>(offset));
  const Allocation call{request, open.file, open.writer, caller, begin, static_cast<uint64_t>(length), keep_size};
  if (kind == FALLOC_FL_PUNCH_HOLE)
    return punch(call, [request](const Status& punched) { reply_status(request, punched); });
  if (kind == FALLOC_FL_ZERO_RANGE) return zero(call);
  allocate(call);
}

void lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) noexcept {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  const FileOffset from(static_cast<uint64_t>(offset));
  const Result<FileOffset> found = OpenHandles::file(info->fh).file->seek(from, whence == SEEK_HOLE);
  if (!found.is_ok()) return reply_status(request, found.status());
  fuse_reply_lseek(request, static_cast<off_t>(found->value()));
}

}  // namespace fpfs::operations
