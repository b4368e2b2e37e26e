// AutoCompression: whether a chunk is encoded with compress=auto.
//
// Encoding makes a save faster when the drives are what it waits for, and processors idle that can encode what comes.
// Otherwise it takes the time of whoever fills the drives. The first is seen at each chunk: its drive has more to write
// already than it can start. The second is measured in a *look*: for kLook all chunks are stored as they are, and what
// idled meanwhile is held against what encoding them would have taken. What it says holds for a while: kWhileMin, and
// twice as long each time that it is "encode" again, up to kWhileMax. A while in which processors idled although chunks
// were encoded needs no look behind it: encoding took nobody's time. Time in which nothing is written does not count.
//
// Thread safety: all methods from any thread, with any lock held.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "engine/base/mutex.h"
#include "engine/io/environment.h"

namespace fpfs {

class AutoCompression {
 public:
  static constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(50);
  static constexpr std::chrono::nanoseconds kWhileMin = std::chrono::milliseconds(200), kWhileMax = 8 * kWhileMin;
  // So long without a chunk, and whatever wrote is not writing any more.
  static constexpr std::chrono::nanoseconds kSilence = 4 * kLook;

  // It outlives this one. Asked for the processors' times at the begin and end of a look or a while.
  explicit AutoCompression(Environment& environment) : environment_(environment) {}

  // A chunk of so many bytes is to be written at `now`, in ns of CLOCK_MONOTONIC. True: it is encoded, and encoded() or
  // not_encoded() follows. `drive_is_busy`: it would wait for its drive.
  bool encodes(uint64_t now, size_t bytes, bool drive_is_busy);
  // It took so much of one processor.
  void encoded(size_t bytes, uint64_t processor_ns);
  // Nothing came of it.
  void not_encoded();

 private:
  // Chunks are stored as they are in all phases but kEncoding. kEnding: the last that are encoded end, as a look would
  // count what they take.
  enum class Phase : uint8_t { kEnding, kLooking, kEncoding, kRaw };
  void note_silence(uint64_t now) FPFS_REQUIRES(mutex_);
  void look(uint64_t now, size_t bytes, bool drive_is_busy) FPFS_REQUIRES(mutex_);
  void encode_for_a_while(uint64_t now, const ProcessorTimes& times) FPFS_REQUIRES(mutex_);
  bool is_worth_it(const ProcessorTimes& times) const FPFS_REQUIRES(mutex_);
  bool is_for_nothing(const ProcessorTimes& times) const FPFS_REQUIRES(mutex_);
  uint64_t idle_ns(const ProcessorTimes& times) const FPFS_REQUIRES(mutex_);

  Environment& environment_;
  Mutex mutex_;
  Phase phase_ FPFS_GUARDED_BY(mutex_) = Phase::kEnding;
  uint64_t last_ FPFS_GUARDED_BY(mutex_) = 0;                           // chunk, in ns
  uint64_t until_ FPFS_GUARDED_BY(mutex_) = 0;                          // kEncoding and kRaw, in ns
  std::chrono::nanoseconds while_ FPFS_GUARDED_BY(mutex_) = kWhileMin;  // the next one of encoding
  unsigned encoding_ FPFS_GUARDED_BY(mutex_) = 0;                       // chunks
  double ns_per_byte_ FPFS_GUARDED_BY(mutex_) = 1.0;                    // that encoding takes of one processor
  uint64_t encoding_ns_ FPFS_GUARDED_BY(mutex_) = 0;                    // in this while, of one processor
  ProcessorTimes begin_ FPFS_GUARDED_BY(mutex_);                        // of the look, or of the while
  // Of the look.
  uint64_t bytes_ FPFS_GUARDED_BY(mutex_) = 0, chunks_ FPFS_GUARDED_BY(mutex_) = 0, busy_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
