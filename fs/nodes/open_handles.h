// What the kernel's file handles stand for: OpenFile and OpenDirectory, and the list of all that are open (status, and
// what an aborted connection never released).
//
// Thread safety: OpenHandles from any thread. An open handle stays valid until its release, which the kernel sends after
// the answers to everything else on the handle, and as long as a request is caught that may be one on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/check/error_lines.h"
#include "engine/file/file.h"
#include "engine/io/scoped_handle.h"
#include "fs/nodes/inode_table.h"
#include "fs/nodes/page_cache.h"

namespace fpfs {

// What FPFS_IOC_VERIFY has found wrong through one description: logged at its end, a line for each kind, however many
// calls there were.
class VerifyFaults {
 public:
  // `error.kind`: "damaged", "unreadable".
  void add(CheckError error);
  void log_all();

 private:
  Mutex mutex_;
  FileErrors errors_ FPFS_GUARDED_BY(mutex_);
};

// Of one open file description: it has no copies, however many descriptors there are.
struct OpenFile {
  std::shared_ptr<File> file;
  Inode* inode = nullptr;
  std::shared_ptr<Writer> writer;  // null: opened for reading
  bool may_write() const { return writer != nullptr; }
  CacheUse cache;
  ReadCursor cursor;  // guarded by the file
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0};
  VerifyFaults verify_faults;
};

// A listing is read from the directory under tree/ as it goes on, so that one that is open holds nothing of it. Offsets
// are that filesystem's own positions, which stay what they are while names come and go.
struct OpenDirectory {
  explicit OpenDirectory(std::atomic<unsigned>& all) : streams(all) {}
  ~OpenDirectory() { close_stream(); }
  OpenDirectory(const OpenDirectory&) = delete;
  OpenDirectory& operator=(const OpenDirectory&) = delete;
  void close_stream() FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (!stream.is_open()) return;
    stream.reset();
    streams.fetch_sub(1);
  }

  Mutex mutex;
  std::atomic<unsigned>& streams;  // open ones, of all directories
  // From the first part that is read to the end; beyond kStreamsMax for one part only. (Some filesystems remember at a
  // descriptor what it has listed.)
  static constexpr unsigned kStreamsMax = 256;
  ScopedHandle stream FPFS_GUARDED_BY(mutex);
  // Of a listing that is read from its beginning on, as long as the kernel knows the attributes of all that was listed:
  // InodeTable::listings_outdated() when it was begun, and where it goes on.
  uint64_t listed_at FPFS_GUARDED_BY(mutex) = Inode::kNeverListed;
  uint64_t next FPFS_GUARDED_BY(mutex) = 0;
};

class OpenHandles {
 public:
  // `writer`: attached to the file; null for a reader.
  OpenFile& add(std::shared_ptr<File> file, Inode& inode, std::shared_ptr<Writer> writer);
  // What is removed is open no more; it is gone when the caller lets go of it (fs/nodes/caught_requests.h). The file's
  // writer was detached.
  std::shared_ptr<OpenFile> remove(OpenFile& open);
  OpenDirectory& add_directory();
  std::shared_ptr<OpenDirectory> remove(OpenDirectory& open);
  // Calls visit for every open file, with the list locked: visit must be quick.
  void for_each_file(const std::function<void(const OpenFile&)>& visit) const;
  // Forgets all that is left after the connection ended.
  void clear();

  static OpenFile& file(uint64_t handle) { return *reinterpret_cast<OpenFile*>(static_cast<uintptr_t>(handle)); }
  static OpenDirectory& directory(uint64_t handle) {
    return *reinterpret_cast<OpenDirectory*>(static_cast<uintptr_t>(handle));
  }
  template <typename Open>
  static uint64_t handle(const Open& open) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&open));
  }

 private:
  template <typename Open>
  using Set = std::unordered_map<const Open*, std::shared_ptr<Open>>;
  template <typename Open>
  std::shared_ptr<Open> take_out(const Open& open, Set<Open>& set) FPFS_REQUIRES(mutex_);
  mutable Mutex mutex_;
  std::atomic<unsigned> streams_{0};
  Set<OpenFile> files_ FPFS_GUARDED_BY(mutex_);
  Set<OpenDirectory> directories_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
