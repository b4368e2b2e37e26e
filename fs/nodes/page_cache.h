// PageCache: what the kernel's page cache may hold of each file, how each handle goes by it, and when it is dropped.
//
// The kernel keeps its pages right for every change made through the mount, except when they are dropped at the wrong
// moment. A write through the cache fills its pages, marks them valid, unlocks them and sends the WRITE after that
// (fuse_fill_write_pages and fuse_send_write_pages in fs/fuse/file.c of Linux; the cache is not a writeback cache). If
// they are dropped before the WRITE has arrived here, a READ can come first: its old content then stays in the cache
// although the write completed, and goes back over what was written when a mapping makes such a page dirty. An answer
// to OPEN without keep_cache drops all pages of the file, in the opener's context, some time after the answer. So:
//
// - Every open keeps the pages. What must go is dropped here, before the open is answered, and only while no handle may
//   have a write through the cache under way; opens of the file wait meanwhile.
// - A notification that drops pages waits for whatever holds them locked, and such a page may belong to a READ of which
//   this process has the answer. A process that is killed then cannot die (its thread waits uninterruptibly, keeps
//   /dev/fuse open, and so the connection is never aborted). So an open drops pages only when no handle of the file is
//   open: nothing can be under way then, and nothing is waited for.
// - The kernel drops what was read while a direct write was on its way when the write returns; but not behind one that
//   was submitted (io_submit, io_uring): fuse_aio_complete() in fs/fuse/file.c, Linux 6.18. So pages that may have been
//   read since the last such write are dropped here, before it is answered. That may wait for a READ, as above, so a
//   daemon that is killed in that moment leaves a mount for umount -f. And it may be the wrong moment for a write
//   through the cache, the first point; not dropping them would leave many more that are old (docs/durability.md).
// - mmap(2) of a handle that goes past the cache drops all pages as well. So no handle writes through the cache beside
//   one that can be mapped and goes past it.
//
// Thread safety: all methods from any thread; none waits but drop_read_beside(). Callbacks run without a lock, maybe
// inside the call, and so may a drop that an open of a small file waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "fs/nodes/inode_table.h"

namespace fpfs {

// One open handle.
struct CacheUse {
  bool may_read = false, may_write = false;
  bool prefers_past = false;  // it has no use for the cache
  bool goes_past = false;     // decided by enter(), for as long as the handle is open
};

class PageCache {
 public:
  using Then = std::function<void()>;
  // Has the kernel drop its pages and attributes of a node; returns when it has.
  using Invalidate = std::function<void(uint64_t node)>;
  using RunInBackground = std::function<void(Then task)>;

  // `inodes` outlives it, and so do the tasks that it runs in the background.
  PageCache(InodeTable& inodes, Invalidate invalidate, RunInBackground run_in_background)
      : inodes_(inodes), invalidate_(std::move(invalidate)), run_in_background_(std::move(run_in_background)) {}

  struct Opening {
    Inode& inode;
    std::function<uint64_t()> commit;  // File::clean_commit() of the file
    CacheUse& use;
    bool is_small;       // dropping its pages takes no longer than handing that to another thread
    bool must_reach_us;  // reads of this opener should, as they move the access time: it is tried
  };
  // A handle is about to be answered; it was counted in Inode::writers. `then`: when it may be. The inode and the use
  // stay until leave().
  void enter(const Opening& opening, const Then& then);
  // It was released, or could not be answered.
  void leave(Inode& inode, const CacheUse& use);
  // For content that was given up although the file is open: READs give the right content already, and now the kernel
  // forgets its pages and attributes. Waits until no handle may write through the cache: the answer to a request of
  // such a handle must not wait for `then`. Meanwhile the kernel may forget the node.
  void drop(Inode& inode, Then then);

  // A write past the cache has changed the content, and is not answered: the kernel may have kept what a READ gave
  // before, and is to forget it now.
  static bool is_read_beside(const Inode& inode) {
    // In this order: who clears the first has raised the second before, until the pages are gone.
    return inode.has_pages.load() || inode.drops.load() > 0;
  }
  void drop_read_beside(Inode& inode);  // waits

  // A request comes whose bytes the kernel keeps.
  static void note_pages(Inode& inode) {
    if (!inode.has_pages.load(std::memory_order_relaxed)) inode.has_pages.store(true);
  }

 private:
  struct Waiting {
    std::vector<Then> opens;  // for the drop that runs
    std::vector<Then> drops;  // each for one that is still to begin
  };
  enum class Verdict : uint8_t { kGoOn, kWait, kDrop };
  Verdict judge(const Opening& opening) FPFS_REQUIRES(mutex_);
  static void count(const Opening& opening);
  void start_drop(Inode& inode, std::vector<Then> then);
  void run_drop(Inode& inode, const std::vector<Then>& then);
  std::vector<Then> take_due_drops(Inode& inode) FPFS_REQUIRES(mutex_);

  InodeTable& inodes_;
  const Invalidate invalidate_;
  const RunInBackground run_in_background_;
  Mutex mutex_;  // also guards Inode::cache
  std::unordered_map<const Inode*, Waiting> waiting_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
