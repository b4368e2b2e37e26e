// write: the payload has landed in the engine, or stays in the receive buffer that it came in until the engine has
// taken it; the worker goes on with another buffer. The answer comes as soon as the bytes are in the engine's memory:
// durability is close's and fsync's business, except for O_SYNC and O_DSYNC.
#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "engine/base/log.h"
#include "fs/operations/calling_process.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"
#include "fs/protocol/request_context.h"

namespace fpfs::operations {
namespace {

void finish(WriteCall& call, const Status& status) {
  FileSystem& file_system = *call.file_system;
  if (status.is_ok()) {
    call.open->bytes_written.fetch_add(call.request.length, std::memory_order_relaxed);
    fuse_reply_write(call.reply_to, call.request.length);
  } else {
    reply_status(call.reply_to, status);
  }
  file_system.write_calls().give_back(call);
}

// Pages that were read while a direct write was on its way go before it is answered.
void end(WriteCall& call, const Status& status) {
  PageCache& pages = call.file_system->page_cache();
  if (status.is_ok() && call.is_direct && PageCache::is_read_beside(*call.open->inode)) {
    call.file_system->run_in_background([&call, &pages] {
      pages.drop_read_beside(*call.open->inode);
      finish(call, Status::ok());
    });
    return;
  }
  finish(call, status);
}

void commit_done(ControlRequest& engine_request, const Status& status) {
  end(*static_cast<WriteCall*>(engine_request.owner), status);
}

// May run inside File::write() or later on an engine thread.
void write_done(WriteRequest& engine_request, const Status& status) {
  WriteCall& call = *static_cast<WriteCall*>(engine_request.owner);
  KeptPayload payload = std::move(call.payload);
  if (status.is_ok() && call.synchronous) {
    payload = nullptr;
    call.commit = ControlRequest{};
    call.commit.complete = commit_done;
    call.commit.owner = &call;
    call.open->file->control(call.commit);
    return;
  }
  // Answered first: the caller is waiting for this, the buffer is not.
  end(call, status);
}

// A page of a mapping has nobody's name, although it may carry somebody's number.
Actor writer_of(fuse_req_t request, const fuse_file_info& info) {
  if (is_past_cache(info) || info.writepage != 0) return {info.lock_owner, 0};
  return {0, process_of(fuse_req_ctx(request)->pid)};
}

}  // namespace

void write(fuse_req_t request, fuse_ino_t node, const char* data, size_t size, off_t offset,
           fuse_file_info* info) noexcept {
  if (size > kRequestBytesMax) {
    log(LogLevel::kError, "the kernel sent {} bytes at once, but {} were agreed; the write is refused", size,
        kRequestBytesMax);
    fuse_reply_err(request, EIO);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  OpenFile& open = OpenHandles::file(info->fh);
  RequestContext& context = *RequestContext::current();
  Status status = drop_privileges(file_system, request, file_system.inodes().get(node), context.facts.kill_set_id);
  if (!status.is_ok()) return reply_status(request, status);
  FileSystem::note_change(*open.inode);
  const bool is_past = is_past_cache(*info);
  if (!is_past) PageCache::note_pages(*open.inode);
  WriteCall& call = file_system.write_calls().take();
  call.file_system = &file_system;
  call.open = &open;
  call.reply_to = request;
  call.is_direct = is_past && (info->flags & O_DIRECT) != 0;
  call.landing = std::exchange(context.landing, Landing());
  call.request.landing = call.landing.file != nullptr ? &call.landing : nullptr;
  const bool all_landed = call.request.landing != nullptr && call.landing.capacity >= size;
  call.payload = all_landed ? nullptr : std::move(context.payload);
  call.synchronous = (info->flags & (O_SYNC | O_DSYNC)) != 0 || file_system.settings().sync_writes;
  call.request.offset = FileOffset(static_cast<uint64_t>(offset));
  call.request.length = static_cast<uint32_t>(size);
  call.request.data = reinterpret_cast<const std::byte*>(data);
  call.request.origin = {open.writer.get(), writer_of(request, *info), info->writepage != 0};
  call.request.complete = write_done;
  call.request.owner = &call;
  // The handle may be released as soon as the answer is out, while File::write() is still returning.
  const std::shared_ptr<File> file = open.file;
  file->write(call.request);
}

}  // namespace fpfs::operations
