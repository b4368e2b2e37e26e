// Where the receiver of the only stream runs that is written: wherever the scheduler has it, or beside its writer, on the
// same processor, where its answers give way (fs/transport/give_way.h).
//
// A writer and its receiver take turns: one sleeps while the other works. On one processor neither has to be woken out
// of a halt, and what the one wrote is in the cache that the other copies from. But what the receiver does behind its
// answer is in the writer's way there, and others may want that processor. Which is faster depends on the machine and on
// what else it does, so both ways are tried, and the time between two requests decides.
//
// What it brings: docs/benchmarks/row13.md.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "engine/base/mutex.h"

namespace fpfs {

// Which of the two ways. Thread safety: all methods from any thread; what counts is the tendency.
class ReceiverPlace {
 public:
  // A long write of the only stream was received, at monotonic_ns() `now_ns`.
  void came(uint64_t handle, uint64_t now_ns);
  // The receiver gave way for too long, as others want the processor.
  void called_back();
  bool is_beside() const { return is_beside_.load(std::memory_order_relaxed); }

  // Requests by which a way is judged: their mean interval, of which none counts for more than kLongestTimes the median
  // (torch.save computes a CRC-32 now and then). Those that follow a change at once do not count.
  static constexpr unsigned kJudgedBy = 32;
  static constexpr unsigned kLongestTimes = 4;
  static constexpr unsigned kSettling = 4;
  // A way is faster when its interval is shorter by this: 1/32.
  static constexpr unsigned kGainShift = 5;
  // A trial is given up after so many, or twice as many, ..., when mean and median are longer by a quarter.
  static constexpr unsigned kLostBy = 8;
  static constexpr unsigned kLostShift = 2;
  // The other way is tried when it was faster than this one is now, and else after so many times kJudgedBy requests;
  // after twice as many each time that it was not.
  static constexpr unsigned kStayMin = 4;
  static constexpr unsigned kStayMax = 128;
  // A trial beside the writer ends when so many answers gave way for too long.
  static constexpr unsigned kCalledBackMax = 3;
  // A longer interval is none: the writer did something else.
  static constexpr uint64_t kPauseNs = 100'000'000;

 private:
  static bool is_faster(uint64_t one_ns, uint64_t other_ns) {
    return one_ns != 0 && one_ns + (one_ns >> kGainShift) < other_ns;
  }
  static bool is_far_slower(uint64_t one_ns, uint64_t other_ns) { return one_ns > other_ns + (other_ns >> kLostShift); }
  void judge(uint64_t interval_ns) FPFS_REQUIRES(mutex_);
  void change() FPFS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::atomic<bool> is_beside_{false};  // changed under mutex_
  uint64_t handle_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t last_ns_ FPFS_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kJudgedBy> intervals_ns_ FPFS_GUARDED_BY(mutex_){};
  unsigned count_ FPFS_GUARDED_BY(mutex_) = 0;
  unsigned settling_ FPFS_GUARDED_BY(mutex_) = 0;
  unsigned called_back_ FPFS_GUARDED_BY(mutex_) = 0;             // in this trial
  std::array<uint64_t, 2> judged_ns_ FPFS_GUARDED_BY(mutex_){};  // the last of each way: apart, beside; 0: none yet
  bool is_trial_ FPFS_GUARDED_BY(mutex_) = false;                // of the way that was not the faster one
  unsigned stays_ FPFS_GUARDED_BY(mutex_) = 1;                   // judgements until the next trial
  unsigned stays_next_ FPFS_GUARDED_BY(mutex_) = kStayMin;
};

// The processors that the thread which calls it may run on. Thread safety: none; of one thread.
class ProcessorBinding {
 public:
  bool is_bound() const { return is_bound_; }
  // To the processor where that thread ran last (`thread`: its number here; 0: not known), if this one may run there.
  // While the thread waits for an answer; a file of /proc is read. True: this one was elsewhere. Not to one of SCHED_FIFO
  // or SCHED_RR, which may keep its processor.
  bool follow(uint32_t thread);
  // To those that it could run on before, unless somebody else has said meanwhile where it may run.
  void release();
  const cpu_set_t& elsewhere() const { return elsewhere_; }  // these; while it is bound

 private:
  static bool is_just(const cpu_set_t& set, unsigned processor);

  bool is_bound_ = false;
  unsigned processor_ = 0;  // that it is bound to
  cpu_set_t before_{};
  cpu_set_t elsewhere_{};
};

}  // namespace fpfs
