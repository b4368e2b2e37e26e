// Channel: the connection to the kernel: mounts, and runs the workers that read requests from /dev/fuse and hand them
// to libfuse, which calls the operations.
//
//   worker:  receive one request → (see that another receives) → note its facts → libfuse → operation → (answer, or
//      ↑      later)                                                                      │ WRITE: the operation keeps
//      └──────────────────────────────────────────────────────────────────────────────────┘ the buffer
//
// A few workers, the receivers, wait for requests, each in an epoll set of its own (EPOLLEXCLUSIVE: the kernel wakes
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
// Reading is ours rather than libfuse's for that, and so that flags which libfuse 3.14 drops are seen. Replies pass
// through a hook that adds what 3.14 cannot say to the kernel: FUSE_HANDLE_KILLPRIV_V2 and FUSE_DIRECT_IO_ALLOW_MMAP in
// the INIT reply, parallel direct writes in OPEN and CREATE replies (tests/fs/fuse_wire_test.cpp checks the bytes).
//
// Thread safety: start(), stop(), join() from one thread; the rest from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "fs/file_system.h"
#include "fs/fuse_library.h"
#include "fs/fuse_wire.h"
#include "fs/options.h"
#include "fs/receive_buffers.h"

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

class Channel {
 public:
  // Mounts. The file system outlives the channel.
  static Result<std::unique_ptr<Channel>> mount(FileSystem& file_system, const MountOptions& options, unsigned threads);
  // After join(). Closes the connection; the mount, when still there, answers ENOTCONN from then on.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void start();
  // Becomes readable when is_live() or has_ended() turns true.
  int event_descriptor() const { return event_; }
  void clear_event();
  bool is_live() const { return live_.load(); }            // the kernel accepted the INIT reply: the mount works
  bool has_ended() const { return running_.load() == 0; }  // every worker saw the end of the connection
  // Takes the mount away while the workers could not serve it, for a start that failed. Else see detach_mount().
  void unmount();
  // Makes the workers return although the kernel keeps the connection (a lazy unmount with files still open).
  void stop();
  // Waits for the workers. False: some are caught in calls to a drive that hangs, and are left behind. The process must
  // end then without destroying what they use.
  bool join();
  // While a drive hangs: answers, with EIO, requests that began at or before `since_ns` and that nobody answered, and
  // puts a new worker in the place of each that is caught with one.
  void give_up_requests(uint64_t since_ns);
  // Ends the connection: the kernel fails what it still waits for.
  void disconnect();

  // --- for operations, on a worker's thread, while it handles a request
  // ------------------------------------------------
  static const wire::RequestFacts& current_request();
  // The receive buffer of the request becomes the caller's, who gives it back to its home.
  static ReceiveBuffer& keep_payload();
  // When (the first of) the WRITE's bytes have landed in their file, the landing becomes the caller's.
  static bool take_landing(Landing& landing);
  // The next request is probably a write to this file.
  static void expect_more_of(const std::shared_ptr<File>& file);
  struct Worker;

 private:
  Channel(FileSystem& file_system, std::unique_ptr<ReceiveBuffers> buffers, unsigned threads);
  Status open_session(const MountOptions& options);
  void start_worker() FPFS_REQUIRES(workers_mutex_);
  void serve(Worker& worker);
  bool wait_for_request(const Worker& worker);
  void become_receiver(Worker& worker);
  void retire_receiver(Worker& worker);
  unsigned receivers_wanted() const { return transfers_seen_.load(std::memory_order_relaxed) > 0 ? 1 : kReceivers; }
  void note_transfer(const Worker& worker, size_t length);
  bool receive(Worker& worker, size_t& length);
  void settle_landing(Worker& worker, size_t length);
  bool may_stay_receiver(const Worker& worker);
  bool process(Worker& worker, size_t length);
  void fail_request(uint64_t unique);
  void signal_event();
  static ssize_t read_hook(int fd, void* buffer, size_t length, void* user_data);
  static ssize_t writev_hook(int fd, struct iovec* parts, int count, void* user_data);
  ssize_t reply_to_init(int fd, struct iovec* parts, int count, const wire::RequestFacts& request);

  FileSystem& file_system_;
  const unsigned threads_;
  const bool discards_;  // null_write
  std::unique_ptr<ReceiveBuffers> buffers_;
  fuse_session* session_ = nullptr;
  int event_ = -1;
  Mutex workers_mutex_;
  std::vector<std::unique_ptr<Worker>> workers_ FPFS_GUARDED_BY(workers_mutex_);
  std::atomic<unsigned> running_{0};
  std::atomic<bool> live_{false};
  std::atomic<bool> stopping_{false};
  static constexpr unsigned kReceivers = 2;
  Mutex receivers_mutex_;
  CondVar receiver_wanted_;
  std::atomic<unsigned> receivers_{0};  // changed under receivers_mutex_
  Mutex stream_mutex_;
  std::weak_ptr<File> stream_ FPFS_GUARDED_BY(stream_mutex_);  // written last
  std::atomic<bool> streaming_{false};                         // stream_ is somebody
  LandingOdds odds_;
  // Counts down from the last request that moved much data, request by request.
  std::atomic<int> transfers_seen_{0};
};

}  // namespace fpfs
