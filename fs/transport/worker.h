// Worker: a thread of the channel (fs/transport/channel.h) and what it has in hand; and what those that wait for
// requests on it (fs/transport/device_receivers.h, fs/transport/ring_receivers.h) need of the channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "engine/base/file_descriptor.h"
#include "fs/protocol/request_context.h"
#include "fs/protocol/shared_names.h"
#include "fs/transport/busy_poll.h"
#include "fs/transport/receiver_place.h"
#include "fs/transport/ring_entry.h"

namespace fpfs {

class Channel;

struct Worker {
  Channel* channel = nullptr;
  RingEntry* entry = nullptr;  // where its requests come; null: at /dev/fuse
  RequestContext request;
  FileDescriptor epoll;               // that wakes this worker only; none could be made: it is woken with others
  std::atomic<bool> receives{false};  // DeviceReceivers
  BusyPoll busy_poll;                 // the same,
  BusyPoll busy_poll_behind_short;    // behind short writes of a stream, whose writer is back as soon or not,
  bool awaits_more = false;           // whether its last request was a stream's write, which it has answered,
  bool is_behind_short = false;       // a short one,
  ProcessorBinding binding;           // where it runs,
  unsigned followed = 0;              // and how many requests ago it was found out where the writer does
  // Another waits for requests, or is called when this one does not come back, so it may do what its request would have
  // other threads do.
  bool is_free = false;
  bool has_waited = false;  // it did so: it has waited for a drive, most of the time
  std::thread thread;
  // For who looks whether it is caught with a request: since when it has one (0: it has none), and which.
  std::atomic<uint64_t> began_ns{0};
  std::atomic<uint64_t> unique{0};
  std::atomic<uint32_t> opcode{0};
  SharedNames names;
  std::atomic<bool> finished{false};
};

// Of the request in the worker's buffer.
inline wire::InHeader header_of(const Worker& worker) {
  wire::InHeader header;
  std::memcpy(&header, worker.request.payload->request, sizeof header);
  return header;
}

class RequestHandler {
 public:
  virtual int descriptor() const = 0;  // of /dev/fuse
  virtual bool is_stopping() const = 0;
  // Has the request in the worker's buffer handled, `length` bytes. False: it took so long that another worker has
  // taken this one's place.
  virtual bool handle(Worker& worker, size_t length) = 0;
  // Answers EIO, unless there was an answer: then false.
  virtual bool refuse(uint64_t unique) = 0;
  // False: the system has no thread for it.
  virtual bool start_ring_worker(RingEntry& entry) = 0;
  // The connection has ended: answers still under way find nobody, and that is no error to speak of.
  virtual void connection_ended() = 0;

 protected:
  ~RequestHandler() = default;
};

}  // namespace fpfs
