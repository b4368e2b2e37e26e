// NodePruner: keeps the nodes that the kernel remembers within what the daemon can hold.
//
// Every node holds a descriptor on its entry of tree/, and the kernel remembers names for as long as it has memory: a
// hundred thousand files that somebody listed are as many descriptors. When there are too many, the kernel is asked to
// forget some that nobody uses: by node since Linux 6.18 (FUSE_NOTIFY_PRUNE), by name before.
//
// Thread safety: is_due() from any thread; run() from one thread at a time, which no request may wait for: the kernel
// may take a directory's lock, which the sender of a request holds.
#pragma once

#include <atomic>
#include <chrono>

#include "fs/nodes/inode_table.h"
#include "fs/protocol/fuse_library.h"

namespace fpfs {

class NodePruner {
 public:
  NodePruner(InodeTable& inodes, size_t nodes_max) : inodes_(inodes), nodes_max_(nodes_max) {}

  bool is_due() const { return inodes_.size() > nodes_max_ && std::chrono::steady_clock::now() >= not_before_.load(); }
  // `all`: everything that nobody uses goes; somebody finds no handle for one more.
  void run(fuse_session* session, bool all);

 private:
  // False: this kernel does not know the request.
  bool prune_by_node(fuse_session* session, size_t count);
  void prune_by_name(fuse_session* session, size_t count);

  InodeTable& inodes_;
  const size_t nodes_max_;
  // What is in use is not forgotten: there may be too many for long.
  std::atomic<std::chrono::steady_clock::time_point> not_before_{};
  bool by_node_ = true;
};

}  // namespace fpfs
