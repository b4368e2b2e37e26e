#include "fs/nodes/node_pruner.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

constexpr size_t kAtOnce = 512;
constexpr std::chrono::milliseconds kBetweenRuns{20};

}  // namespace

void NodePruner::run(fuse_session* session, bool all) {
  // A quarter goes, so that the next time is far; what the kernel cannot forget is not asked for twice.
  const size_t size = inodes_.size();
  const size_t target = all ? 0 : nodes_max_ - nodes_max_ / 4;
  for (size_t left = size > target ? size - target : 0; left > 0; left -= std::min(left, kAtOnce)) {
    const size_t count = std::min(left, kAtOnce);
    if (by_node_) by_node_ = prune_by_node(session, count);
    if (!by_node_) prune_by_name(session, count);
  }
  not_before_.store(std::chrono::steady_clock::now() + kBetweenRuns);
}

bool NodePruner::prune_by_node(fuse_session* session, size_t count) {
  std::vector<uint64_t> nodes = inodes_.pick_unused(count);
  wire::PruneOut body{static_cast<uint32_t>(nodes.size()), 0, 0};
  wire::OutHeader header{};
  header.error = wire::kNotifyPrune;
  header.length = static_cast<uint32_t>(sizeof header + sizeof body + nodes.size() * sizeof(uint64_t));
  struct iovec parts[] = {
      {&header, sizeof header}, {&body, sizeof body}, {nodes.data(), nodes.size() * sizeof(uint64_t)}};
  return ::writev(fuse_session_fd(session), parts, 3) >= 0 || errno != EINVAL;
}

void NodePruner::prune_by_name(fuse_session* session, size_t count) {
  // A name that is gone, or a directory that the kernel has forgotten meanwhile, is as good.
  for (const InodeTable::Entry& entry : inodes_.pick_unused_entries(count))
    (void)fuse_lowlevel_notify_inval_entry(session, entry.directory, entry.name.c_str(), entry.name.size());
}

}  // namespace fpfs
