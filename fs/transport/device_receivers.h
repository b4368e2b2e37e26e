// DeviceReceivers: the workers that wait for requests at /dev/fuse.
//
//   worker:  wait → read one request (see that another waits, unless it cannot block) → have it handled → ...
//
// A few of them, the receivers, wait for requests; the others wait to become receivers. How many there are follows what
// comes:
// - Little is read and written: kReceivers, so that the next request of a client that creates files finds one waiting and
//   nobody has to be woken for it. The kernel wakes them in turn, so with more each has slept for longer: on 16 cores with
//   16 of them, one client is served half as fast, and 16 clients at three quarters.
// - So little that one thread asks for all of it (fs/transport/sole_caller.h): one, which is about to look for the next
//   request when it comes. It serves also what may block, as who asked mostly waits for it anyway (not behind what it has
//   closed or removed). When that takes longer than a millisecond, or another thread asks, there are kReceivers again:
//   another waits for some two milliseconds.
// - One stream (fs/transport/streams.h): one. It is served by one thread, whose caches know it.
// - Several streams: one for each, up to half of the workers. Who receives a write copies its payload, and who answers
//   a read from memory copies it too: as many copies go side by side as there are receivers. The other half of the
//   workers is there for requests that block. By default (twice as many workers as cores) that is one for each core.
// A receiver that got a request which cannot block (READ, WRITE, FLUSH, ...) and sees no further one handles it and stays
// a receiver; before anything else it makes sure that there is another.
//
// They wait in read(2), where the kernel takes turns between them: by epoll one who is awake often takes what another was
// woken for. But while a file is being written (below) each waits in an epoll set of its own (EPOLLEXCLUSIVE: the kernel
// wakes the first of those who wait, whose caches are warm), and reads when something has come, as it has memory of a file
// in hand then. The kernel looks at every set for every request, while nobody else can add one: workers that do not wait
// in theirs have none (measured on 16 cores: with 32 sets the requests of all clients together end at 155,000 a second).
//
// The receiver of the only stream that is written runs beside its writer when that is faster
// (fs/transport/receiver_place.h); elsewhere, when it has answered a write, it looks for the next one before it waits
// (fs/transport/busy_poll.h). So does the receiver of who asks alone.
//
// While a file is being written front to back, the next request's bytes go to the engine's memory right away, behind
// what was written last (engine/file/landing.h). Each receiver guesses which stream is next, no two the same. When it was
// another request after all, they are moved to the receive buffer, as if they had come there. Not so a chunk as a whole
// in the place of another: its file has the memory then (File::take_landing()).
//
// Thread safety: all methods from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>

#include "engine/base/mutex.h"
#include "fs/transport/give_way.h"
#include "fs/transport/looker.h"
#include "fs/transport/receive_buffers.h"
#include "fs/transport/receiver_place.h"
#include "fs/transport/sole_caller.h"
#include "fs/transport/streams.h"
#include "fs/transport/worker.h"

namespace fpfs {

class DeviceReceivers {
 public:
  // `workers` of them serve. `discards`: writes go nowhere (null_write), so that none costs a copy. All outlive it.
  DeviceReceivers(RequestHandler& handler, ReceiveBuffers& buffers, unsigned workers, bool discards)
      : handler_(handler),
        buffers_(buffers),
        workers_(workers),
        receivers_max_(std::max(1U, workers / 2)),
        discards_(discards),
        looks_(processors() > 1),
        may_serve_alone_(looks_ && workers > 1),
        gives_way_(looks_ && GiveWay::is_possible()),
        looker_(may_serve_alone_ || gives_way_ ? [this](uint64_t now_ns) { return look(now_ns); }
                                               : std::function<bool(uint64_t)>()) {}

  // A worker's life: until the connection ends, the handler is stopping, or another took its place.
  void serve(Worker& worker);
  // The request of the calling worker is answered.
  void answered(RequestContext& request);
  // Has `send` answer a request of the calling worker.
  template <typename Send>
  ssize_t answer(RequestContext& request, Send send) {
    if (request.elsewhere == nullptr || !give_way_.begin(*request.elsewhere)) return send();
    const ssize_t sent = send();
    if (!give_way_.end()) {
      request.elsewhere = nullptr;
      place_.called_back();
    }
    return sent;
  }
  // It is caught in a call: another is to receive in its place.
  void retire(Worker& worker);
  // After the handler began to stop.
  void wake_all();
  // One thread asks for all of the little that there is.
  bool is_asked_by_one() const { return may_serve_alone_ && moves_little() && caller_.is_there(); }

  static unsigned processors();  // that the calling thread may run on

 private:
  static constexpr unsigned kReceivers = 4;

  void become(Worker& worker);
  bool try_become(Worker& worker);
  bool moves_little() const { return transfers_seen_.load(std::memory_order_relaxed) == 0; }
  // A write whose place is known may come.
  bool may_land() const { return !discards_ && writes_seen_.load(std::memory_order_relaxed) > 0; }
  unsigned wanted() const {
    if (!moves_little()) return std::clamp(streams_.active(), 1U, receivers_max_);
    return is_asked_by_one() ? 1 : kReceivers;
  }
  bool serves_alone(const Worker& worker) const;
  bool has_found_more(const Worker& worker);
  bool is_request_there() const;
  bool leave(Worker& worker);
  void leave_unserved(Worker& worker);
  void wake_one();
  bool look(uint64_t now_ns);
  void call_another();
  // These three: whether a request was there, which another may have taken by now.
  bool look_for_next(Worker& worker);
  bool wait_beside(Worker& worker);
  bool wait_for_request(Worker& worker);
  void take_place(Worker& worker, const wire::Flow& flow);
  static void leave_place(Worker& worker);
  bool let_reads_block();
  bool begin_landing_read();
  void end_landing_read();
  ssize_t read_request(Worker& worker, Streams::Claim& claim);
  bool receive(Worker& worker, size_t& length);
  static bool has_come_true(const Streams::Claim& claim, const wire::Flow& flow);
  void note_received(Worker& worker, Streams::Claim& claim, size_t length);
  static void leave_landing(Worker& worker, size_t length);
  bool may_stay(Worker& worker);

  RequestHandler& handler_;
  ReceiveBuffers& buffers_;
  const unsigned workers_;
  const unsigned receivers_max_;
  const bool discards_;
  const bool looks_;            // there are processors that callers may run on while a receiver does
  const bool may_serve_alone_;  // a receiver may be the only one while little comes
  Mutex mutex_;
  CondVar wanted_changed_;
  std::atomic<unsigned> receivers_{0};
  std::atomic<unsigned> waiting_{0};  // receivers that have nothing in hand
  std::atomic<unsigned> others_{0};   // workers that wait to become one; changed under mutex_
  // Whether read(2) waits for a request, for all who read.
  Mutex reading_mutex_;
  std::atomic<bool> reads_block_{false};  // changed under reading_mutex_
  unsigned landing_reads_ FPFS_GUARDED_BY(reading_mutex_) = 0;
  Streams streams_;
  LandingOdds odds_;
  ReceiverPlace place_;
  const bool gives_way_;  // a receiver may be beside its writer
  GiveWay give_way_{looker_};
  // Counts down from the last request that moved much data, request by request.
  std::atomic<int> transfers_seen_{0};
  std::atomic<int> writes_seen_{0};  // the same for writes
  SoleCaller caller_;
  std::atomic<unsigned> received_{0};  // requests
  unsigned received_before_ = 0;       // when the looker looked last
  Looker looker_;                      // last: it uses the others
};

}  // namespace fpfs
