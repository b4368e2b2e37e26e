// A socket in the place of /dev/fuse: it gives requests one by one to whoever reads.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fs/nodes/open_handles.h"
#include "fs/protocol/fuse_wire.h"
#include "fs/transport/worker.h"

namespace fpfs::test {

// Its handler, but for what is done with a request.
class SocketDevice : public RequestHandler {
 public:
  SocketDevice() {
    // Sending waits for room: the system's limit is a few requests.
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_) != 0) std::abort();
    if (::fcntl(sockets_[1], F_SETFL, O_NONBLOCK) != 0) std::abort();
  }
  SocketDevice(const SocketDevice&) = delete;
  SocketDevice& operator=(const SocketDevice&) = delete;

  int descriptor() const override { return sockets_[1]; }
  bool is_stopping() const override { return stopping_; }
  bool refuse(uint64_t) override { return true; }
  bool start_ring_worker(RingEntry&) override { return false; }
  void connection_ended() override {}

 protected:
  ~SocketDevice() { ::close(sockets_[1]); }  // whoever reads there has ended
  void stop() {
    stopping_ = true;
    ::close(sockets_[0]);
  }
  // A request that names an open file, as READ and WRITE begin; `payload`: bytes behind that.
  static std::vector<std::byte> transfer(uint32_t opcode, OpenFile& file, uint64_t offset, uint32_t bytes,
                                         size_t payload) {
    std::vector<std::byte> request(wire::kWritePayloadOffset + payload);
    wire::InHeader header{};
    header.length = static_cast<uint32_t>(request.size());
    header.opcode = opcode;
    header.pid = static_cast<uint32_t>(::gettid());
    wire::WriteIn in{};
    in.handle = OpenHandles::handle(file);
    in.offset = offset;
    in.size = bytes;
    std::memcpy(request.data(), &header, sizeof header);
    std::memcpy(request.data() + sizeof header, &in, sizeof in);
    return request;
  }
  void send_bytes(const std::vector<std::byte>& request) {
    ASSERT_EQ(::send(sockets_[0], request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  }

 private:
  int sockets_[2] = {-1, -1};
  std::atomic<bool> stopping_{false};
};

}  // namespace fpfs::test
