// lookup, forget: the kernel learns of a node by name, and lets go of it.
#include <cerrno>
#include <chrono>
#include <span>

#include "fs/operations/operations.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

// Who lists a large directory may look names up faster than the kernel is made to forget others (NodePruner): the
// lookup waits for that. Not for ever: what is forgotten by name takes the directory's lock, which this caller holds.
constexpr unsigned kTriesMax = 100;
constexpr auto kBetweenTries = std::chrono::milliseconds(10);

void look_up(fuse_req_t request, fuse_ino_t parent, const char* name, unsigned tries_left,
             HandleShares::Lease handles) {
  FileSystem& file_system = file_system_of(request);
  Result<Store::Node> node = file_system.store().lookup(file_system.inodes().get(parent).handle, name);
  if (!node.is_ok() && node.status().errno_value() == EMFILE && tries_left > 0) {
    return file_system.run_later(kBetweenTries, [request, parent, text = std::string(name), tries_left] {
      with_handles(request, 1, [request, parent, text, tries_left](HandleShares::Lease again) {
        look_up(request, parent, text.c_str(), tries_left - 1, std::move(again));
      });
    });
  }
  if (!node.is_ok() && node.status().code() == StatusCode::kNotFound) {
    // A negative entry: the kernel need not ask again until somebody makes the name, which it sees itself.
    fuse_entry_param absent{};
    absent.entry_timeout = file_system.kept_seconds(kCacheSeconds);
    fuse_reply_entry(request, &absent);
    return;
  }
  reply_node(request, std::move(node), std::move(handles));
}

}  // namespace

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  const auto look = [request, parent, text = std::string(name)] {
    with_handles(request, 1, [request, parent, text](HandleShares::Lease handles) {
      look_up(request, parent, text.c_str(), kTriesMax, std::move(handles));
    });
  };
  FileSystem& file_system = file_system_of(request);
  if (file_system.is_alone()) return look();
  file_system.when_shown(file_system.inodes().get(parent), look);
}

void forget(fuse_req_t request, fuse_ino_t node, uint64_t count) noexcept {
  FileSystem& file_system = file_system_of(request);
  file_system.caught_requests().when_unused(node,
                                            [&file_system, node, count] { file_system.inodes().forget(node, count); });
  fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) noexcept {
  FileSystem& file_system = file_system_of(request);
  for (const fuse_forget_data& each : std::span(forgets, count))
    file_system.caught_requests().when_unused(
        each.ino, [&file_system, each] { file_system.inodes().forget(each.ino, each.nlookup); });
  fuse_reply_none(request);
}

}  // namespace fpfs::operations
