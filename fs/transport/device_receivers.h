// DeviceReceivers: the workers that wait for requests at /dev/fuse.
//
//   worker:  wait → read one request (see that another waits, unless it cannot block) → have it handled → ...
//
// A few of them, the receivers, wait for requests, each in an epoll set of its own (EPOLLEXCLUSIVE: the kernel wakes
// one of them); the others wait to become receivers. There are kReceivers of them, so that the next request of a client
// that creates files finds one waiting and nobody has to be woken for it. While much is read or written
// there is one: a single stream is served by one thread, whose caches know it. A receiver that got a request which
// cannot block (READ, WRITE, FLUSH, ...) and sees no further one handles it and stays a receiver; before anything else
// it makes sure that there is another.
//
// While a file is being written front to back, the next request's bytes go to the engine's memory right away, behind
// what was written last (engine/file/landing.h). When it was another request after all, they are moved to the receive
// buffer, as if they had come there. Where several files are written at once that is mostly so, and costs a copy:
// LandingOdds keeps account.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <memory>

#include "engine/base/mutex.h"
#include "engine/file/file.h"
#include "fs/transport/receive_buffers.h"
#include "fs/transport/worker.h"

namespace fpfs {

// Whether to expect the next write behind the last one. A right guess saves a copy of the payload, a wrong one costs
// one. Thread safety: all methods from any thread; what counts is the tendency.
class LandingOdds {
 public:
  bool are_good() { return pause_.load(std::memory_order_relaxed) == 0 || pause_.fetch_sub(1) <= 1; }
  void guessed(bool right);

 private:
  static constexpr int kCreditMax = 8;
  static constexpr int kWrongCosts = 2;
  static constexpr int kPause = 64;  // requests
  std::atomic<int> credit_{0};
  std::atomic<int> pause_{0};
};

class DeviceReceivers {
 public:
  // `discards`: writes go nowhere (null_write), so that none costs a copy. All outlive it.
  DeviceReceivers(RequestHandler& handler, ReceiveBuffers& buffers, bool discards)
      : handler_(handler), buffers_(buffers), discards_(discards) {}

  // A worker's life: until the connection ends, the handler is stopping, or another took its place.
  void serve(Worker& worker);
  // It is caught in a call: another is to receive in its place.
  void retire(Worker& worker);
  // After the handler began to stop.
  void wake_all();

 private:
  void become(Worker& worker);
  unsigned wanted() const { return transfers_seen_.load(std::memory_order_relaxed) > 0 ? 1 : kReceivers; }
  bool wait_for_request(const Worker& worker);
  bool receive(Worker& worker, size_t& length);
  void settle_landing(Worker& worker, size_t length);
  void note_transfer(const Worker& worker, size_t length);
  void expect_more_of(const std::shared_ptr<File>& file);
  bool may_stay(const Worker& worker);

  RequestHandler& handler_;
  ReceiveBuffers& buffers_;
  const bool discards_;
  static constexpr unsigned kReceivers = 2;
  Mutex mutex_;
  CondVar wanted_changed_;
  std::atomic<unsigned> receivers_{0};  // changed under mutex_
  Mutex stream_mutex_;
  std::weak_ptr<File> stream_ FPFS_GUARDED_BY(stream_mutex_);  // written last
  std::atomic<bool> streaming_{false};                         // stream_ is somebody
  LandingOdds odds_;
  // Counts down from the last request that moved much data, request by request.
  std::atomic<int> transfers_seen_{0};
};

}  // namespace fpfs
