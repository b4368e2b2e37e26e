// read: answered from the engine's buffers as soon as the bytes are there and checked.
#include <fcntl.h>

#include <cerrno>

#include "engine/base/log.h"
#include "fs/operations/operations.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

// May run inside File::read() or later on an engine thread. The buffers are valid during this call only; the kernel
// copies out of them before fuse_reply_iov returns.
void read_done(ReadRequest& engine_request, const Status& status) {
  ReadCall& call = *static_cast<ReadCall*>(engine_request.owner);
  FileSystem& file_system = *call.file_system;
  if (status.is_ok()) {
    call.open->bytes_read.fetch_add(engine_request.bytes, std::memory_order_relaxed);
    fuse_reply_iov(call.reply_to, engine_request.iov.data(), static_cast<int>(engine_request.iov_count));
  } else {
    fuse_reply_err(call.reply_to, status.errno_value());  // the file has logged it
  }
  file_system.read_calls().give_back(call);
}

}  // namespace

void read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  if (size > file_system.settings().read_bytes_max) {
    log(LogLevel::kError, "the kernel asked for {} bytes at once, but {} were agreed; the read is refused", size,
        file_system.settings().read_bytes_max);
    fuse_reply_err(request, EIO);
    return;
  }
  OpenFile& open = OpenHandles::file(info->fh);
  file_system.note_access(*open.inode);
  // Also by a handle that goes past the cache: a page of a mapping comes by the same request.
  if (!is_past_cache(*info)) PageCache::note_pages(*open.inode);
  ReadCall& call = file_system.read_calls().take();
  call.file_system = &file_system;
  call.open = &open;
  call.reply_to = request;
  call.request.offset = FileOffset(static_cast<uint64_t>(offset));
  call.request.length = static_cast<uint32_t>(size);
  call.request.cursor = &open.cursor;
  // What the kernel keeps need not stay here as well. A short stay keeps the buffers that a load goes through few, and
  // warm in the processor's cache; what is in the others stays.
  call.request.reader_caches = !open.may_write() && file_system.cached_reads() && (info->flags & O_DIRECT) == 0;
  call.request.complete = read_done;
  call.request.owner = &call;
  // The handle may be released as soon as the answer is out, while File::read() is still returning.
  const std::shared_ptr<File> file = open.file;
  file->read(call.request);
}

}  // namespace fpfs::operations
