// Streams: who writes or reads much at the moment, as the requests show it that come at /dev/fuse. It says
// - how many there are: each is worth a receiver of its own, as who receives a write copies its payload
//   (fs/transport/device_receivers.h);
// - which file's write is likely to come next, so that its payload can be received where it belongs.
//
//   expect() ── the stream that most likely comes next ──► receive it ──► received(), what came ──► handled()
//                                                                     └─► gave_up()
//
// A stream is an open handle whose requests are long, with what is short and goes on where they end. It ends when it is
// closed, or when many other long requests have come since its last long one.
//
// Nobody can know whose request is next: the kernel says so only by handing it over, payload and all. But a caller has
// one request under way, so a stream whose request is being received or handled is not next. Receivers that are at it have
// each claimed the stream that they expect. Of the others the one that was answered longest ago is next: callers return
// mostly in the order in which they were answered. So with one stream it is that one. With as many receivers as streams each finds
// the stream that it has just served, as the others are claimed.
//
// A receiver that got another's stream leaves its own claim to that one, which cannot get what it expected any more, and
// may well be getting this. So claims say what is being received also after a mistake. A stream that did not come
// kMissesMax times is not expected until it is seen again.
//
// Bounded: kStreamsMax streams; the one that was quiet longest makes room.
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/base/mutex.h"
#include "engine/base/units.h"

namespace fpfs {

class File;

class Streams {
 public:
  // What one receiver expects. Stays where it is from expect() to received() or gave_up().
  class Claim {
   public:
    Claim() = default;
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // Null: nothing.
    const std::shared_ptr<File>& file() const { return file_; }
    FileOffset offset() const { return offset_; }
    bool is(uint64_t handle, FileOffset offset) const { return handle == handle_ && offset == offset_; }

   private:
    friend class Streams;
    std::shared_ptr<File> file_;
    uint64_t handle_ = 0;   // through which it is written,
    FileOffset offset_;     // and where, if it goes on
    uint64_t claimed_ = 0;  // what is claimed now, which a mistake of another's may have changed; 0: nothing
  };

  // Streams that are active, at most kStreamsMax.
  unsigned active() const { return active_.load(std::memory_order_relaxed); }
  void expect(Claim& claim);
  // A long request of an open handle came. `file`: of a write that ends at `end`, whose next one is worth expecting; null
  // for a read.
  void received(Claim& claim, uint64_t handle, const std::shared_ptr<File>& file, FileOffset end);
  // A short write of an open handle came. True: it goes on where the stream's last request ended, so it stands between two
  // long ones, as the length before each tensor does (torch.save, legacy format). More than kShortsMax in a row are no
  // stream's, and nothing is expected of it until it is seen again.
  bool received_short(Claim& claim, uint64_t handle, FileOffset begin, FileOffset end);
  // The request that was received last of this handle is answered, or left for somebody else to answer.
  void handled(uint64_t handle);
  // Something else that is short came, or nothing.
  void gave_up(Claim& claim);
  // The handle is being closed. It may go on all the same: then it is seen again.
  void end(uint64_t handle);

  static constexpr unsigned kStreamsMax = 64;
  static constexpr unsigned kMissesMax = 4;
  static constexpr unsigned kShortsMax = 8;
  // A stream is active until so many requests for each active one, and kQuietMin, have come without one of its own.
  static constexpr unsigned kQuietTimes = 8;
  static constexpr unsigned kQuietMin = 8;

 private:
  struct Stream {
    uint64_t handle = 0;
    std::weak_ptr<File> file;  // not owned: whoever closes it must find itself the last
    FileOffset end;            // of its last request
    uint64_t seen = 0;         // the number of its last long request
    uint64_t turn = 0;         // when it was last received or handled
    bool in_hand = false;      // received and not handled yet
    unsigned misses = 0;
    unsigned shorts = 0;  // since then
    Claim* claim = nullptr;
  };
  static bool comes_before(const Stream& one, const Stream& other);
  Stream* find(uint64_t handle) FPFS_REQUIRES(mutex_);
  Stream* claimed_by(const Claim& claim) FPFS_REQUIRES(mutex_);
  void settle(Claim& claim, uint64_t came, bool is_long) FPFS_REQUIRES(mutex_);
  Stream& add(uint64_t handle) FPFS_REQUIRES(mutex_);
  void end_quiet() FPFS_REQUIRES(mutex_);
  void remove(Stream& stream) FPFS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::array<Stream, kStreamsMax> streams_ FPFS_GUARDED_BY(mutex_);  // the first count_ of them
  unsigned count_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t requests_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t turns_ FPFS_GUARDED_BY(mutex_) = 0;
  std::atomic<unsigned> active_{0};
};

// Whether guesses come true: one that does saves a copy of the payload, another costs one. A guess has also come true
// when something else came that lies there just as well. What was guessed and not acted upon counts too. Thread safety:
// all methods from any thread; what counts is the tendency.
class LandingOdds {
 public:
  bool are_good() const { return credit_.load(std::memory_order_relaxed) >= kCreditMin; }
  void guessed(bool right);

 private:
  static constexpr int kCreditMax = 8;
  static constexpr int kCreditMin = 4;
  static constexpr int kWrongCosts = 2;
  std::atomic<int> credit_{kCreditMax};
};

}  // namespace fpfs
