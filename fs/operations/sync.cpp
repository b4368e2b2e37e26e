// flush (every close of a descriptor), fsync, fsyncdir: where durability is promised and failures are told.
#include "fs/operations/operations.h"

#include <chrono>
#include <string>
#include <thread>

#include "engine/base/log.h"
#include "engine/io/own_task.h"
#include "fs/operations/calling_process.h"
#include "fs/operations/descriptor_holders.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

// Who closes: mostly who has opened, whose number need not be asked about again. (Should that process be gone and its number
// be a thread's of another one, that one counts as the opener.)
uint32_t closing_process(fuse_req_t request, const OpenFile& open) {
  const pid_t thread = fuse_req_ctx(request)->pid;
  const uint32_t opener = open.writer->description().opener.process;
  return opener != 0 && static_cast<uint32_t>(thread) == opener ? opener : process_of(thread);
}

// Whether a half-written replacement is to be given up. Where the caller has no number the kernel cannot be asked.
bool is_killed_saver(fuse_req_t request, const OpenFile& open) {
  FileSystem& file_system = file_system_of(request);
  if (!file_system.settings().killed_keeps_old || !open.file->is_replacing()) return false;
  const std::optional<bool> dying = is_dying_of_signal(fuse_req_ctx(request)->pid);
  if (!dying) file_system.say_killed_is_unknown();
  return dying.value_or(false);
}

// Whether a close by who has emptied the file, and written nothing, may end nothing, as the save is to come through
// another descriptor of the description: its own (dup2(2) and close(2), as dd does, and shells for `>`) or a child's. Only
// where content that is committed is at stake. (Of who has written it is not asked: that takes a microsecond for each
// descriptor of the process, and its close may be the last that counts.)
bool may_be_to_come(const OpenFile& open, const Origin& closer) {
  return open.file->is_replacing() && open.file->has_only_emptied(closer);
}

// Whether it is. Blocks for a moment. What no longer has descriptors, as the save before, may still be on its way to be
// released; beside a description that has some nobody can say which is held.
bool is_to_come(const FileSystem& file_system, pid_t thread, const OpenFile& open) {
  constexpr std::chrono::milliseconds kReleaseMax{10}, kBetween{1};
  for (auto left = kReleaseMax; open.inode->writers.load() > 1 && left.count() > 0; left -= kBetween)
    std::this_thread::sleep_for(kBetween);
  if (open.inode->writers.load() != 1) return false;
  const std::string path = open.file->path();
  return holds(thread, {file_system.device(), open.inode->number, path.substr(path.rfind('/') + 1)}, true);
}

void end_save(fuse_req_t request, const OpenFile& open, const ControlRequest& close) {
  FileSystem& file_system = file_system_of(request);
  const Durable durable = file_system.durable_of(*open.inode);
  if (durable == Durable::kFsync && !close.killed) {
    open.file->closed_by_writer(close.origin);
    return reply_status(request, open.file->error());
  }
  FileSystem::note_change(*open.inode);
  file_system.control(open.file, close, [request, &open, durable](const ControlRequest& done, const Status& status) {
    // What the kernel has of the half must go. (Its pages when this handle is gone, should it write through the cache.)
    if (done.was_reverted) {
      open.inode->size_doubts.fetch_add(1);
      file_system_of(request).invalidate_attributes(*open.inode);
      file_system_of(request).page_cache().drop(*open.inode, [] {});
    }
    // What committed nothing has nothing to wait for.
    const bool waits = !done.was_reverted && !done.was_left_alone;
    when_copied(request, waits ? durable : Durable::kClose, open.file, status,
                [request](const Status& outcome) { reply_status(request, outcome); });
  });
}

}  // namespace

// Called for each close of a descriptor of the handle, by whatever process (dup, fork, exec), maybe at the same time:
// each waits until what it ends is durable (engine/file/writer.h). Pages of a mapping may still come; see release.
void flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  const OpenFile& open = OpenHandles::file(info->fh);
  if (!open.may_write()) {
    fuse_reply_err(request, 0);
    return;
  }
  ControlRequest close;
  close.kind = ControlRequest::Kind::kClose;
  close.origin = {open.writer.get(), {info->lock_owner, closing_process(request, open)}, false};
  close.killed = is_killed_saver(request, open);
  if (close.killed || !may_be_to_come(open, close.origin)) return end_save(request, open, close);
  const OwnTask::Suspension another_waits;  // this one may be the only one to receive what it waits for
  file_system_of(request).run_in_background([request, &open, close, thread = fuse_req_ctx(request)->pid] {
    is_to_come(file_system_of(request), thread, open) ? reply_status(request, open.file->error())
                                                      : end_save(request, open, close);
  });
}

// Also with data_only: the size and the extents are what makes data reachable, and they are the whole commit.
void fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  const OpenFile& open = OpenHandles::file(info->fh);
  FileSystem::note_change(*open.inode);  // the commit moves the sidecar's other times
  const Durable durable = file_system.durable_of(*open.inode);
  file_system.control(open.file, ControlRequest::Kind::kCommit, [request, &open, durable](const Status& status) {
    when_copied(request, durable, open.file, status,
                [request](const Status& outcome) { reply_status(request, outcome); });
  });
}

void fsyncdir(fuse_req_t request, fuse_ino_t node, int, fuse_file_info*) noexcept {
  FileSystem& file_system = file_system_of(request);
  file_system.run_in_background([request, node] {
    FileSystem& owner = file_system_of(request);
    reply_status(request, owner.store().sync_directory(owner.inodes().get(node).handle));
  });
}

}  // namespace fpfs::operations
