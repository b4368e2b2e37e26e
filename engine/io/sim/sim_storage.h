// SimStorage: the Storage of a simulated world. Over SimKernel's well-behaved calls it puts what happens in real life:
//
// - the power: every call that changes something is a boundary, counted; at the boundary that cut_at() named, the call
// in
//   progress happens or does not, and from then on every call fails with kIoError ("power is off") and changes nothing.
//   crash() then decides what survived (SimWorld, SimContent say how) and turns the power on again.
// - faults: plans for calls that fail, writes that are lost or land elsewhere, bits that flip.
// - planted bugs: syncs that do not happen and the like, to show that tests notice.
//
// Handles outlive neither the process nor the power: crash() and forget_handles() end them all. A handle number is
// never used twice; open_handles() tells what was not closed.
//
// Thread safety: all methods from any thread; but only single-threaded use is reproducible.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/io/io_queue.h"
#include "engine/io/sim/sim_faults.h"
#include "engine/io/sim/sim_kernel.h"

namespace fpfs {

class SimStorage final : public Storage {
 public:
  // An empty filesystem at each path ("/m0"); "/" exists besides them.
  SimStorage(uint64_t seed, const std::vector<std::string>& mount_paths);

  // --- the test's side ---------------------------------------------------------------------------------------------
  void cut_at(uint64_t boundary);  // counted from the beginning of the world; 0: never
  uint64_t boundaries() const;
  bool is_off() const;
  void cut_now();
  // The process is gone, the power comes back. No engine object may be left that holds a handle.
  void crash();
  // The process is gone (kill -9), the kernel is not: everything that calls saw stays, durable or not.
  void kill();
  std::vector<std::string> open_handles() const;
  void set_time(uint64_t nanoseconds);

  // Told of every call that changes something, in a line, before it happens. For reading what a seed does.
  using Trace = std::function<void(const std::string& line)>;
  void set_trace(Trace trace);
  void inject(const SimFault& fault);
  // What is left to chance here (what a failed sync loses, what a power cut leaves) is drawn from this from now on.
  void reseed(uint64_t seed);
  void clear_faults();
  uint64_t fault_hits() const;
  uint64_t fault_calls() const;     // that matched plans, whether they went wrong or not
  std::string last_fault() const;   // what the last call that went wrong was; empty: there was none
  uint64_t index_punches() const;   // holes punched into files of the tree: compactions of sidecars
  uint64_t object_renames() const;  // objects that a file took over from another
  void plant(SimPlantedBug bug);
  void set_journal_order(SimFilesystem::JournalOrder order);  // of all filesystems
  void set_syncs_own_names(bool do_so);                       // they, too
  void set_direct_io(unsigned filesystem, bool has);
  void set_shares_blocks(unsigned filesystem, bool shares);
  uint64_t clones() const;                                 // ranges of more than one block that were cloned
  void set_capacity(unsigned filesystem, uint64_t bytes);  // 0: the root's; 1 on: of the mount paths, in order
  // The whole world, for tests that begin alike. No handle may be open. How its filesystems keep names stays this storage's.
  SimWorld save() const;
  void restore(const SimWorld& world);
  // Looking and damaging past the engine, by absolute path. False: no such file.
  bool flip_bit(const std::string& path, uint64_t offset, unsigned bit);
  std::vector<std::string> files_below(const std::string& path) const;  // regular files, absolute paths, in order
  std::vector<std::byte> content_of(const std::string& path) const;

  // --- the environment's side: one step of the world, and transfers --------------------------------------------------
  void tick();
  struct Transfer {
    uint64_t number = 0;  // 0: nothing is on the drive
    uint64_t bytes = 0;   // that will be written
    Status outcome;
  };
  Transfer start_write(const IoRequest& request);
  Status finish_write(const IoRequest& request, const Transfer& transfer);
  Result<size_t> read_direct(const IoRequest& request);

  // --- Storage -------------------------------------------------------------------------------------------------------
  Result<Handle> open_directory(const std::string& path) override;
  Result<Handle> open_at(Handle directory, const std::string& name, int flags, mode_t mode = 0) override;
  Result<Handle> reopen(Handle handle, int flags) override;
  Result<Handle> duplicate(Handle handle) override;
  void close(Handle handle) override;
  Status retire(Handle handle) override;
  std::string describe(Handle handle) override;
  Result<size_t> pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) override;
  Status pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) override;
  Status fsync(Handle handle) override;
  Status fdatasync(Handle handle) override;
  Status check_running(Handle file) override;
  Status sync_filesystem(Handle handle) override;
  void drop_cache(Handle file) override;
  Status ftruncate(Handle handle, uint64_t size) override;
  Status fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) override;
  Result<uint64_t> seek_data(Handle handle, uint64_t offset) override;
  Result<struct stat> fstat(Handle handle) override;
  Result<struct statvfs> fstatvfs(Handle handle) override;
  bool overwrites_in_place(Handle handle) override;
  bool syncs_own_names(Handle handle) override;
  bool logs_names_in_order(Handle handle) override { return syncs_own_names(handle); }
  Result<std::string> identity(Handle handle) override;
  Status clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) override;
  Result<bool> has_shared_blocks(Handle file) override;
  Status lock(Handle handle, bool exclusive) override;
  static constexpr pid_t kProcessId = 47110;
  pid_t process_id() const override { return kProcessId; }
  Result<struct stat> stat_at(Handle directory, const std::string& name) override;
  Status make_directory(Handle directory, const std::string& name, mode_t mode) override;
  Status unlink(Handle directory, const std::string& name) override;
  Status remove_directory(Handle directory, const std::string& name) override;
  Status rename(Handle from, const std::string& from_name, Handle to, const std::string& to_name,
                unsigned flags) override;
  Status link(Handle handle, Handle directory, const std::string& name) override;
  Status symlink(const std::string& target, Handle directory, const std::string& name) override;
  Result<std::string> read_link(Handle handle) override;
  Status make_node(Handle directory, const std::string& name, mode_t mode, dev_t device) override;
  Status list(Handle directory, const std::function<bool(const DirectoryEntry&)>& visit) override;
  Status chmod(Handle handle, mode_t mode) override;
  Status chown(Handle handle, uid_t uid, gid_t gid) override;
  Status set_times(Handle handle, const struct timespec times[2]) override;
  Result<size_t> get_xattr(Handle handle, const std::string& name, std::span<std::byte> value) override;
  Status set_xattr(Handle handle, const std::string& name, std::span<const std::byte> value, int flags) override;
  Result<size_t> list_xattr(Handle handle, std::span<std::byte> names) override;
  Status remove_xattr(Handle handle, const std::string& name) override;

 private:
  // begin() tells whether a changing call takes effect, end() what its caller hears.
  bool begin() FPFS_REQUIRES(mutex_);
  bool begin(const char* call, Handle handle, const std::string& detail) FPFS_REQUIRES(mutex_);
  Status end(Status status) const FPFS_REQUIRES(mutex_);
  bool tick_locked() FPFS_REQUIRES(mutex_);
  SimFault* match(SimFault::Call call, Handle handle) FPFS_REQUIRES(mutex_);
  // What a plan makes of a call that does all of its work or nothing.
  Status fault_of(SimFault::Call call, Handle handle, const char* what) FPFS_REQUIRES(mutex_);
  Status sync_file(Handle handle, bool only_data) FPFS_REQUIRES(mutex_);
  // Whether the planted bug happens to this call on this inode, now.
  bool errs(SimPlantedBug bug, const SimInode& inode, SimRole role, bool directory = false) FPFS_REQUIRES(mutex_);
  bool sync_errs(SimInode& inode) FPFS_REQUIRES(mutex_);
  enum class Late : uint8_t { kDue, kOfRecord, kAll };
  void make_late_syncs(Late which) FPFS_REQUIRES(mutex_);
  static Status power_off();

  mutable Mutex mutex_;
  SimKernel kernel_ FPFS_GUARDED_BY(mutex_);
  SimRandom random_ FPFS_GUARDED_BY(mutex_);
  Trace trace_ FPFS_GUARDED_BY(mutex_);
  std::vector<SimFault> faults_ FPFS_GUARDED_BY(mutex_);
  std::string last_fault_ FPFS_GUARDED_BY(mutex_);
  SimFilesystem::JournalOrder order_ FPFS_GUARDED_BY(mutex_) = SimFilesystem::JournalOrder::kWhole;
  bool syncs_own_names_ FPFS_GUARDED_BY(mutex_) = false;
  SimPlantedBug planted_ FPFS_GUARDED_BY(mutex_) = SimPlantedBug::kNone;
  // Syncs that a planted bug has put off: the inode, and the boundary from which on they are made.
  std::vector<std::pair<uint64_t, uint64_t>> late_syncs_ FPFS_GUARDED_BY(mutex_);
  uint64_t index_punches_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t object_renames_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t clones_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t boundaries_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t cut_at_ FPFS_GUARDED_BY(mutex_) = 0;
  bool off_ FPFS_GUARDED_BY(mutex_) = false;
};

}  // namespace fpfs
