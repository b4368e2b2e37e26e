// Channel: the connection to the kernel: mounts, and runs the workers that receive requests and hand them to libfuse,
// which calls the operations.
//
//   worker:  receive one request → note its facts → libfuse → operation → (answer, or later)
//      ↑                                                          │ WRITE: the operation keeps the buffer
//      └──────────────────────────────────────────────────────────┘
//
// Requests come at /dev/fuse (fs/transport/device_receivers.h). Where the kernel offers it and the mount wants it, most
// come through io_uring instead (fs/transport/ring_receivers.h).
//
// Reading is ours rather than libfuse's, so that a write's payload goes where it belongs and flags which libfuse 3.14
// drops are seen. Replies pass through a hook that adds what 3.14 cannot say to the kernel: FUSE_HANDLE_KILLPRIV_V2 and
// FUSE_DIRECT_IO_ALLOW_MMAP in the INIT reply, parallel direct writes in OPEN and CREATE replies
// (tests/fs/fuse_wire_test.cpp checks the bytes).
//
// Thread safety: start(), stop(), join() from one thread; the rest from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "fs/nodes/file_system.h"
#include "fs/protocol/fuse_library.h"
#include "fs/protocol/fuse_wire.h"
#include "fs/protocol/request_context.h"
#include "fs/transport/device_receivers.h"
#include "fs/transport/receive_buffers.h"
#include "fs/transport/reply_watch.h"
#include "fs/transport/ring_receivers.h"
#include "fs/transport/worker.h"

namespace fpfs {

class Channel final : private RequestHandler {
 public:
  struct Settings {
    std::string mount_point;
    std::string options;  // of libfuse and of mount(2), comma separated
    std::string labels;   // of these, those of SELinux
    unsigned threads = 0;
    bool io_uring = false;           // requests come through it where the kernel offers it
    bool io_uring_expected = false;  // the log says when it does not
  };
  // Mounts. The file system and the table of operations outlive the channel; an operation gets a Session as its user
  // data, and has a RequestContext while it runs.
  static Result<std::unique_ptr<Channel>> mount(FileSystem& file_system, const fuse_lowlevel_ops& operations,
                                                const Settings& settings);
  // After join(). Closes the connection; the mount, when still there, answers ENOTCONN from then on.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void start();
  // Becomes readable when is_live() or has_ended() turns true.
  int event_descriptor() const { return event_.number(); }
  void clear_event();
  bool is_live() const { return live_.load(); }            // the kernel accepted the INIT reply: the mount works
  bool has_ended() const { return running_.load() == 0; }  // every worker saw the end of the connection
  // Takes the mount away while the workers could not serve it, for a start that failed. Else see detach_mount().
  void unmount();
  // Makes the workers return although the kernel keeps the connection (a lazy unmount with files still open), and ends it:
  // what is still asked fails, and nobody in this process waits in the kernel for it.
  void stop();
  // Waits for the workers. False: some are caught in calls to a drive that hangs, and are left behind. The process must
  // end then without destroying what they use.
  bool join();
  // While a drive hangs: answers, with EIO, requests that began at or before `since_ns` and that nobody answered, and
  // puts a new worker in the place of each that is caught with one.
  void give_up_requests(uint64_t since_ns);
  // Ends the connection: the kernel fails what it still waits for.
  void disconnect();

 private:
  Channel(FileSystem& file_system, std::unique_ptr<ReceiveBuffers> buffers, const Settings& settings);
  Status open_session(const fuse_lowlevel_ops& operations, const Settings& settings);
  void start_worker(RingEntry* entry) FPFS_REQUIRES(workers_mutex_);
  void work(Worker& worker);
  int descriptor() const override { return fuse_session_fd(session_); }
  bool is_stopping() const override { return stopping_.load(std::memory_order_relaxed); }
  bool handle(Worker& worker, size_t length) override;
  bool refuse(uint64_t unique) override;
  bool start_ring_worker(RingEntry& entry) override;
  void connection_ended() override;
  void signal_event();
  static ssize_t read_hook(int fd, void* buffer, size_t length, void* user_data);
  static ssize_t writev_hook(int fd, struct iovec* parts, int count, void* user_data);
  ssize_t send(int fd, const struct iovec* parts, int count);
  ssize_t reply_to_init(int fd, struct iovec* parts, int count, const wire::RequestFacts& request);

  FileSystem& file_system_;
  Session as_user_data_;
  ReplyWatch replies_;
  const unsigned threads_;
  const bool wants_rings_;
  const bool expects_rings_;
  std::unique_ptr<ReceiveBuffers> buffers_;
  DeviceReceivers at_device_;
  RingReceivers at_rings_;
  fuse_session* session_ = nullptr;
  FileDescriptor event_;
  FileDescriptor nothing_;  // takes the place of /dev/fuse when the connection ends
  Mutex workers_mutex_;
  std::vector<std::unique_ptr<Worker>> workers_ FPFS_GUARDED_BY(workers_mutex_);
  std::atomic<unsigned> running_{0};
  std::atomic<bool> live_{false};
  std::atomic<bool> stopping_{false};
};

}  // namespace fpfs
