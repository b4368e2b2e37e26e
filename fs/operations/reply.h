// Answers that several operations give. Each consumes the request.
#pragma once

#include <functional>
#include <utility>

#include "engine/base/status.h"
#include "engine/store/store.h"
#include "fs/nodes/file_system.h"
#include "fs/protocol/fuse_library.h"
#include "fs/protocol/request_context.h"

namespace fpfs {

// How long the kernel may keep names and attributes: nobody else changes the tree while it is mounted.
constexpr double kCacheSeconds = 86400;
// While a file is open for writing, what it occupies on the drives changes behind the kernel's back.
constexpr double kWriterCacheSeconds = 1;

inline FileSystem& file_system_of(fuse_req_t request) {
  return static_cast<Session*>(fuse_req_userdata(request))->file_system;
}

// Success without data, or the failure's errno. `what` and the message go to the log when it is a fault of the drives
// (EIO) rather than of the caller.
void reply_status(fuse_req_t request, const Status& status);
// Logs failures that an operator must see.
void log_fault(const Status& status);

// Fills in a reply entry for a node just found or made; takes its handle, which `handles` are for, counts a lookup.
Result<fuse_entry_param> make_entry(FileSystem& file_system, Store::Node node, HandleShares::Lease handles);
// The same for a node that the kernel knows; counts nothing.
fuse_entry_param entry_of(FileSystem& file_system, Inode& inode, const struct stat& attributes);
// Answers with a node just found or made, or the failure.
void reply_node(fuse_req_t request, Result<Store::Node> node, HandleShares::Lease handles);
void wait_for_handles(fuse_req_t request, size_t count, std::function<void(HandleShares::Lease)> then);
// Calls `then(HandleShares::Lease)` with `count` handles that the caller of a request may make the daemon hold: at
// once, or when others were given back. ENFILE when none are for long.
template <typename Then>
void with_handles(fuse_req_t request, size_t count, Then then) {
  HandleShares::Lease handles = file_system_of(request).store().shares().lease(fuse_req_ctx(request)->uid, count);
  if (handles.count() > 0) return then(std::move(handles));
  wait_for_handles(request, count, std::move(then));
}
// A file that was opened by somebody who leased Store::handles_of_file() for it.
void hold_opened(File& file, HandleShares::Lease handles);
// How long the kernel may keep the attributes that it is about to be given.
double attribute_seconds(FileSystem& file_system, Inode& inode, const struct stat& attributes);

// Calls `then` when what is committed of the file by now is copied, too, if Durable::kTier asks for that and somebody is
// left who waits; else at once, as with a failure. The file stays open until then.
void when_copied(fuse_req_t request, Durable durable, const std::shared_ptr<File>& file, const Status& committed,
                 std::function<void(const Status&)> then);

}  // namespace fpfs
