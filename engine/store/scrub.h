// Scrub: reads every stored byte of an open array back in the background and checks it, file after file in the order of
// their paths, at a limited rate, beside everything else that the array does.
//
// One pass at a time. It can be paused, resumed and cancelled; where it is, and what it found, is kept in the array
// (scrub_state.h), so that a pass goes on after a remount or a crash. Reading is File::verify_chunk's: past every
// cache, a few chunks in flight, in buffers of the pool. Damage is logged and listed; nothing is changed.
//
// Thread safety: all methods from any thread. start() to stop() wait for the chunks in flight, so not from a thread
// that the engine needs for those.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/store/scrub_state.h"
#include "engine/store/store.h"

namespace fpfs {

struct FileEntry;

class Scrub {
 public:
  struct Report {
    ScrubState state;
    uint64_t bytes_total = 0;  // 0 until it was counted; an estimate while files change
    double bytes_per_second = 0;
    double eta_seconds = -1;  // -1: not known
    std::string note;         // why it stopped by itself
  };

  // The store outlives it.
  explicit Scrub(Store& store);
  ~Scrub();
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  // Takes up what an earlier mount left: a pass that was running goes on. Of an array that is open read-only nothing is
  // taken up, and nothing is kept.
  void open();
  // From the beginning, at `limit` bytes per second (0: as fast as it goes). kBusy while one is running or paused.
  Status start(uint64_t limit);
  // kInvalidArgument, saying what is, when there is nothing to pause, resume or cancel.
  Status pause();
  // Also of one that is running, when there is a new limit.
  Status resume(std::optional<uint64_t> limit);
  Status cancel();
  // Ends the work and keeps the place: what was running goes on after the next open(). Before Store::close().
  void stop();
  Report report() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Phase = ScrubState::Phase;
  struct Failure {
    ChunkIndex chunk = 0;
    Extent extent;  // there is none when the content is in the sidecar
    Status status;
  };

  // Under commands_.
  void run_thread(uint64_t limit) FPFS_REQUIRES(commands_);
  void end_thread(Phase phase) FPFS_REQUIRES(commands_);
  Phase phase() const;

  // The thread's.
  void run();
  Status count_remaining();
  Result<bool> visit(const FileEntry& entry);
  bool scrub_file(const FileEntry& entry, Handle node, File& file);
  bool scrub_inline(const FileEntry& entry, File& file, uint64_t bytes);
  bool scrub_extent(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent);
  bool begin_reading(const FileEntry& entry, const File& file, uint64_t bytes);
  void report_unopened(const FileEntry& entry, const Status& failure);
  void report_failures(const std::string& path, const File& file);
  std::string kind_of(const Failure& failure, const File::Info& info) const;
  void add_damage(CheckError error);
  bool is_further_name(const struct stat& attributes, std::unordered_set<uint64_t>& seen) const;
  bool pace(uint64_t bytes);
  void drain();
  void checked(ChunkIndex chunk, const Extent& extent, uint64_t bytes, const Status& status);
  void set_position(const std::string& path, const File::Info& info, ChunkIndex next_chunk);
  void finish_file(const std::string& path);
  void save_now_and_then();
  void save();
  bool stopping() const;
  ScrubState current_state() const FPFS_REQUIRES(mutex_);

  Store& store_;
  const unsigned window_;  // chunks in flight

  Mutex commands_;  // one command at a time; held while a thread is waited for
  std::thread thread_ FPFS_GUARDED_BY(commands_);
  bool keeps_state_ = false;  // set once, by open()

  mutable Mutex mutex_;
  CondVar changed_;
  ScrubState state_ FPFS_GUARDED_BY(mutex_);
  bool stopping_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned in_flight_ FPFS_GUARDED_BY(mutex_) = 0;
  std::vector<Failure> failures_ FPFS_GUARDED_BY(mutex_);  // of the file being read, not reported yet
  uint64_t bytes_total_ FPFS_GUARDED_BY(mutex_) = 0;
  std::string note_ FPFS_GUARDED_BY(mutex_);
  Clock::time_point run_began_ FPFS_GUARDED_BY(mutex_);
  // Where the rate is measured from, and where it will be after the next turn.
  struct Anchor {
    Clock::time_point time;
    uint64_t bytes = 0;
  };
  mutable Anchor rate_from_ FPFS_GUARDED_BY(mutex_);
  mutable Anchor rate_next_ FPFS_GUARDED_BY(mutex_);

  // The thread's own.
  ScrubState resumed_;  // where this run began
  std::unordered_set<uint64_t> linked_inodes_;
  Clock::time_point saved_;
  Clock::time_point paced_;
  double allowance_ = 0;  // bytes that may be read now
};

}  // namespace fpfs
