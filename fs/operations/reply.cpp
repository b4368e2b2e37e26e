#include "fs/operations/reply.h"

#include <cerrno>
#include <chrono>

#include "engine/base/log.h"
#include "fs/operations/calling_process.h"

namespace fpfs {

void log_fault(const Status& status) {
  if (status.code() == StatusCode::kIoError || status.code() == StatusCode::kCorruption)
    log_line(LogLevel::kError, status.message());
}

void reply_status(fuse_req_t request, const Status& status) {
  log_fault(status);
  fuse_reply_err(request, status.errno_value());
}

double attribute_seconds(FileSystem& file_system, Inode& inode, const struct stat& attributes) {
  if (inode.size_doubts.load() > 0 || Store::is_size_unknown(attributes)) return 0;
  if (inode.writers.load(std::memory_order_relaxed) > 0) return kWriterCacheSeconds;
  // What is done in a directory changes its attributes, too.
  if (!inode.is_directory) inode.set_attributes_known(true);
  return file_system.kept_seconds(kCacheSeconds);
}

namespace {

// Nodes that the kernel is made to forget come back by and by. Not for ever, and not for long while none come: the
// caller may hold its directory's lock, which what is forgotten by name takes, and others wait for.
constexpr unsigned kTriesMax = 100;
constexpr unsigned kTriesInVain = 5;
constexpr auto kBetweenTries = std::chrono::milliseconds(10);

struct Waiting {
  unsigned tries = 0, in_vain = 0;
  size_t nodes = 0;
};

void try_again(fuse_req_t request, size_t count, std::function<void(HandleShares::Lease)> then, Waiting waiting) {
  FileSystem& file_system = file_system_of(request);
  HandleShares::Lease handles = file_system.store().shares().lease(fuse_req_ctx(request)->uid, count);
  if (handles.count() > 0) return then(std::move(handles));
  const size_t nodes = file_system.inodes().size();
  const bool asked_again = file_system.forget_unused();
  if (nodes < waiting.nodes)
    waiting.in_vain = 0;
  else if (asked_again)
    ++waiting.in_vain;
  waiting.nodes = nodes;
  if (++waiting.tries > kTriesMax || waiting.in_vain > kTriesInVain) {
    fuse_reply_err(request, ENFILE);
    return;
  }
  file_system.run_later(kBetweenTries, [request, count, then = std::move(then), waiting]() mutable {
    try_again(request, count, std::move(then), waiting);
  });
}

}  // namespace

void wait_for_handles(fuse_req_t request, size_t count, std::function<void(HandleShares::Lease)> then) {
  try_again(request, count, std::move(then), {});
}

void hold_opened(File& file, HandleShares::Lease handles) {
  HandleShares::Lease sidecar = handles.split(1);
  file.hold(std::move(sidecar), std::move(handles));
}

Result<fuse_entry_param> make_entry(FileSystem& file_system, Store::Node node, HandleShares::Lease handles) {
  const struct stat attributes = node.attributes;
  FPFS_ASSIGN_OR_RETURN(Inode * inode, file_system.inodes().remember(std::move(node), std::move(handles)));
  file_system.node_added();
  return entry_of(file_system, *inode, attributes);
}

fuse_entry_param entry_of(FileSystem& file_system, Inode& inode, const struct stat& attributes) {
  fuse_entry_param entry{};
  entry.ino = file_system.inodes().node(inode);
  entry.generation = inode.generation;
  entry.attr = attributes;
  entry.attr_timeout = attribute_seconds(file_system, inode, attributes);
  entry.entry_timeout = file_system.kept_seconds(kCacheSeconds);
  return entry;
}

void reply_node(fuse_req_t request, Result<Store::Node> node, HandleShares::Lease handles) {
  if (!node.is_ok()) return reply_status(request, node.status());
  FileSystem& file_system = file_system_of(request);
  Result<fuse_entry_param> entry = make_entry(file_system, std::move(*node), std::move(handles));
  if (!entry.is_ok()) return reply_status(request, entry.status());
  // A caller that was killed meanwhile never learns of the node.
  if (fuse_reply_entry(request, &*entry) != 0) file_system.inodes().forget(entry->ino, 1);
}

void when_copied(fuse_req_t request, Durable durable, const std::shared_ptr<File>& file, const Status& committed,
                 std::function<void(const Status&)> then) {
  const pid_t caller = fuse_req_ctx(request)->pid;
  if (durable != Durable::kTier || !committed.is_ok() || hears_no_answer(caller)) return then(committed);
  file_system_of(request).copy_waits().wait(
      file->inode(), file->info().sequence, file->path(), [caller] { return hears_no_answer(caller); },
      [file, then = std::move(then)](const Status& outcome) { then(outcome); });
}

}  // namespace fpfs
