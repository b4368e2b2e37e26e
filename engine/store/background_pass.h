// BackgroundPass: visits every file of an open array in the background, and every chunk of each, at a limited rate,
// beside everything else that the array does. What is done with a chunk is up to its visitor: a scrub reads and checks
// it (scrub.h).
//
// Files come in the order of their paths, compared name by name; the chunks of a file in their order, a few of them in
// flight at once. A file with several names is visited once. What is made, removed or renamed meanwhile is visited or
// not; what is there from beginning to end, under one name, is visited.
//
// One pass at a time. It can be paused, resumed and cancelled. Its place is kept through the visitor, at each command
// and every ten seconds, so that a pass goes on after a remount. After a crash it goes on from an older place: what lay
// between is visited twice.
//
// Thread safety: all methods from any thread, but not from within the visitor. Those from start() to stop() wait for
// the chunks in flight, so not from a thread that the engine needs for those. A lock of the visitor is taken below the
// pass's (begin_pass(), `also` of report()): it is not held while anything of the pass is called, `done` of a chunk
// included.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/store/store.h"

namespace fpfs {

struct FileEntry;

// What is remembered of a pass from mount to mount.
struct PassState {
  enum class Phase : uint8_t { kNone = 0, kRunning = 1, kPaused = 2, kFinished = 3, kCancelled = 4 };

  Phase phase = Phase::kNone;
  uint64_t limit = 0;                              // bytes per second, 0: none
  int64_t started_seconds = 0, ended_seconds = 0;  // since the epoch; 0: not yet
  uint64_t active_ms = 0;                          // time spent running
  uint64_t files = 0, chunks = 0, bytes = 0;       // visited; bytes on the drives
  uint64_t bytes_total = 0;                        // as counted when it last began or went on; 0: not yet
  // Where to go on: in the file `position` (a path as in FileEntry; empty: at the beginning) at chunk `next_chunk` if
  // it still is `file` of `generation`, behind it when `file` is 0.
  std::string position;
  FileId file;
  Generation generation;
  ChunkIndex next_chunk;
};
const char* name_of(PassState::Phase phase);  // "none", "running", "paused", "finished", "cancelled"

// What a pass does. All calls come one after the other: from the thread of the pass, or, while that does not run, from
// a command. Outlives the pass.
class PassVisitor {
 public:
  virtual ~PassVisitor() = default;

  // A pass begins, from the first file: what an earlier one found is forgotten. Under the lock of the pass.
  virtual void begin_pass() = 0;
  // False: nothing is to be done with this chunk. It counts as visited, at no cost.
  virtual bool wants_chunk(File& file, ChunkIndex chunk, const Extent& extent) {
    static_cast<void>(file), static_cast<void>(chunk), static_cast<void>(extent);
    return true;
  }
  // Starts the work on one chunk. `extent` is where it was a moment ago; content that is kept in the sidecar is chunk
  // 0, and its extent does not exist. `done` is called once, from any thread, also before this returns. The chunks in
  // flight are of one file, and `file` stays until they are done.
  virtual void visit_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                           std::function<void()> done) = 0;
  // All chunks that were begun are done: at the end of each file, and before a place within one is kept.
  virtual void file_done(const FileEntry& entry, File& file) = 0;
  // The file cannot be opened; perhaps it was removed meanwhile. It counts as visited.
  virtual void visit_unopened(const FileEntry& entry, const Status& failure) = 0;
  // Every file was visited: waits for what the visitor has begun beyond the chunks in flight. True: once more, from the
  // first file.
  virtual Result<bool> finish() { return false; }
  // The pass has finished. Not when the pass ends in any other way.
  virtual void end_pass(const PassState& state) = 0;

  // The kept state, with what belongs to it. A failure counts as none. Phase kNone: there is none.
  virtual Result<PassState> load() = 0;
  // Replaces it. Afterwards load() returns this one, after a crash it may return the one before.
  virtual Status save(const PassState& state) = 0;
};

class BackgroundPass {
 public:
  struct Progress {
    uint64_t bytes_total =
        0;  // 0 until it was counted; an estimate while files change, and of where an earlier mount was
    // Of chunks that are visited, with those between them; 0 while what it comes by is passed by.
    double bytes_per_second = 0;
    double eta_seconds = -1;  // at that rate; -1: not known
    std::string note;         // why it paused by itself
  };
  struct Report : Progress {
    PassState state;
  };
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kSaveInterval = std::chrono::seconds(10);

  // Store and visitor outlive it. `name` ("scrub") is what messages and the thread call it.
  BackgroundPass(Store& store, PassVisitor& visitor, std::string name, Clock::duration save_interval = kSaveInterval);
  ~BackgroundPass();
  BackgroundPass(const BackgroundPass&) = delete;
  BackgroundPass& operator=(const BackgroundPass&) = delete;

  // Takes up what an earlier mount left: a pass that was running goes on. Of an array that is open read-only nothing is
  // taken up, and nothing is kept; nor before this was called.
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
  // `also` runs in the same moment: what it sees of the visitor belongs to the pass that is reported.
  Report report(const std::function<void()>& also = {}) const;

 private:
  using Phase = PassState::Phase;

  // Under commands_.
  void run_thread(uint64_t limit) FPFS_REQUIRES(commands_);
  void end_thread(Phase phase) FPFS_REQUIRES(commands_);
  Phase phase() const;
  Status refuse(const char* verb) const;

  // The thread's.
  void begin_again();
  void run();
  Status count_remaining();
  uint64_t visited_before(Handle node, uint64_t size);
  bool is_where_it_was(const File::Info& info) const;
  Result<bool> visit(const FileEntry& entry);
  bool visit_file(const FileEntry& entry, Handle node, File& file);
  bool visit_chunks(const FileEntry& entry, Handle node, File& file, const File::Info& info, ChunkIndex& next);
  bool begin_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent, uint64_t bytes);
  bool pass_by(const Extent& extent, uint64_t bytes);
  void stop_passing_by();
  bool passes_by() const FPFS_REQUIRES(mutex_);
  void file_done(const FileEntry& entry, File& file);
  bool is_further_name(const struct stat& attributes, std::unordered_set<uint64_t>& seen) const;
  bool pace(uint64_t bytes);
  void set_position(const std::string& path, const File::Info& info, ChunkIndex next_chunk);
  void finish_file(const std::string& path);
  void save_now_and_then();
  void save();
  bool stopping() const;
  PassState current_state() const FPFS_REQUIRES(mutex_);

  Store& store_;
  PassVisitor& visitor_;
  const std::string name_;
  const Clock::duration save_interval_;
  const unsigned window_;  // chunks in flight

  Mutex commands_;  // one command at a time; held while a thread is waited for
  std::thread thread_ FPFS_GUARDED_BY(commands_);
  bool keeps_state_ = false;  // set once, by open()

  mutable Mutex mutex_;
  CondVar changed_;
  PassState state_ FPFS_GUARDED_BY(mutex_);
  bool stopping_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned in_flight_ FPFS_GUARDED_BY(mutex_) = 0;
  std::string note_ FPFS_GUARDED_BY(mutex_);
  Clock::time_point run_began_ FPFS_GUARDED_BY(mutex_);
  // Where the rate is measured from, and where it will be after the next turn.
  struct Anchor {
    Clock::time_point time;
    uint64_t bytes = 0;
  };
  mutable Anchor rate_from_ FPFS_GUARDED_BY(mutex_);
  mutable Anchor rate_next_ FPFS_GUARDED_BY(mutex_);
  uint64_t passed_by_ FPFS_GUARDED_BY(mutex_) = 0;  // since the last chunk that was visited

  // The thread's own.
  PassState resumed_;  // where this run began
  std::unordered_set<uint64_t> linked_inodes_;
  Clock::time_point saved_;
  Clock::time_point paced_;
  double allowance_ = 0;  // bytes that may be visited now
};

}  // namespace fpfs
