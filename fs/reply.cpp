#include "fs/reply.h"

#include "engine/base/log.h"

namespace fpfs {

void log_fault(const Status& status) {
  if (status.code() == StatusCode::kIoError || status.code() == StatusCode::kCorruption)
    log(LogLevel::kError, "{}", status.message());
}

void reply_status(fuse_req_t request, const Status& status) {
  log_fault(status);
  fuse_reply_err(request, status.errno_value());
}

double attribute_seconds(Inode& inode) {
  if (inode.given_up.load() > 0) return 0;
  if (inode.writers.load(std::memory_order_relaxed) > 0) return kWriterCacheSeconds;
  // What is done in a directory changes its attributes, too.
  if (!inode.is_directory) inode.set_attributes_known(true);
  return kCacheSeconds;
}

Result<fuse_entry_param> make_entry(FileSystem& file_system, const Store::Node& node) {
  FPFS_ASSIGN_OR_RETURN(Inode * inode, file_system.inodes().remember(node.handle, node.attributes, node.is_new));
  file_system.node_added();
  fuse_entry_param entry{};
  entry.ino = file_system.inodes().node(*inode);
  entry.generation = inode->generation;
  entry.attr = node.attributes;
  entry.attr_timeout = attribute_seconds(*inode);
  entry.entry_timeout = kCacheSeconds;
  return entry;
}

void reply_node(fuse_req_t request, Result<Store::Node> node) {
  if (!node.is_ok()) return reply_status(request, node.status());
  FileSystem& file_system = file_system_of(request);
  Result<fuse_entry_param> entry = make_entry(file_system, *node);
  if (!entry.is_ok()) return reply_status(request, entry.status());
  // A caller that was killed meanwhile never learns of the node.
  if (fuse_reply_entry(request, &*entry) != 0) file_system.inodes().forget(entry->ino, 1);
}

}  // namespace fpfs
