#include "fs/transport/request_ring.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/log.h"

#if FPFS_HAVE_LIBURING
#include <liburing.h>
#endif

namespace fpfs {

unsigned RequestRing::queue_count() {
  return static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_CONF));
}

#if FPFS_HAVE_LIBURING

struct RequestRing::Ring {
  io_uring ring{};
  std::array<struct iovec, 2> memory{};  // of an entry that is being registered
  ~Ring() { io_uring_queue_exit(&ring); }
};

Result<std::unique_ptr<RequestRing>> RequestRing::create(int descriptor) {
  io_uring_params parameters{};
  // Commands of 80 bytes need the long submission entries. One thread submits and waits: the kernel then puts requests
  // into the entry when that thread asks, instead of interrupting it, and says by a flag in shared memory that it could.
  parameters.flags =
      IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  io_uring made{};
  const int result = io_uring_queue_init_params(2, &made, &parameters);
  if (result < 0) return Status::from_errno(-result, "make an io_uring");
  auto ring = std::make_unique<Ring>();
  ring->ring = made;
  (void)io_uring_register_ring_fd(&ring->ring);  // a wish: spares the kernel looking up the descriptor
  return std::unique_ptr<RequestRing>(new RequestRing(std::move(ring), descriptor));
}

void RequestRing::offer(RingEntry& entry) {
  io_uring_sqe* const command = io_uring_get_sqe(&ring_->ring);  // there is room: one is under way at a time
  const uint64_t commit_id = entry.header().commit_id;
  const bool is_new = commit_id == 0;
  ring_->memory = {
      {{&entry.header(), sizeof(wire::RingEntryHeader)}, {entry.payload().data(), entry.payload().size()}}};
  io_uring_prep_rw(IORING_OP_URING_CMD, command, descriptor_, is_new ? ring_->memory.data() : nullptr, is_new ? 2 : 0,
                   0);
  command->cmd_op = is_new ? wire::kRingRegister : wire::kRingCommitAndFetch;
  const wire::RingCommand body{0, commit_id, static_cast<uint16_t>(entry.queue()), {}};
  // The second half of a long submission entry; to the compiler the struct ends before it.
  auto* const place = reinterpret_cast<volatile std::byte*>(command) + offsetof(io_uring_sqe, cmd);
  std::memcpy(const_cast<std::byte*>(place), &body, sizeof body);
  is_offered_ = true;
}

void RequestRing::hand_over(RingEntry& entry) {
  if (is_offered_) return;
  offer(entry);
  (void)io_uring_submit(&ring_->ring);  // what could not be submitted is by next()
}

bool RequestRing::has_come() const {
  const io_uring& ring = ring_->ring;
  return io_uring_cq_ready(&ring) > 0 || (IO_URING_READ_ONCE(*ring.sq.kflags) & IORING_SQ_TASKRUN) != 0;
}

RequestRing::Event RequestRing::next(RingEntry& entry) {
  io_uring* const ring = &ring_->ring;
  if (!is_offered_) offer(entry);
  const int submitted = io_uring_submit_and_wait(ring, 1);
  if (submitted < 0 && submitted != -EINTR) {
    log(LogLevel::kError, "waiting at a request ring failed with errno {}", -submitted);
    return Event::kEnd;
  }
  io_uring_cqe* done = nullptr;
  if (io_uring_peek_cqe(ring, &done) != 0) return Event::kInterrupted;
  const int result = done->res;
  io_uring_cqe_seen(ring, done);
  is_offered_ = false;
  if (result == 0) return Event::kRequest;
  if (result != -ENOTCONN && result != -ECONNABORTED && result != -ECANCELED)
    log(LogLevel::kError, "the kernel refused a request ring with errno {}", -result);
  return Event::kEnd;
}

#else

struct RequestRing::Ring {};

void RequestRing::offer(RingEntry&) {}

void RequestRing::hand_over(RingEntry&) {}

bool RequestRing::has_come() const {
  return false;
}

Result<std::unique_ptr<RequestRing>> RequestRing::create(int) {
  return Status::error(StatusCode::kUnsupported, "this program was built without liburing");
}

RequestRing::Event RequestRing::next(RingEntry&) {
  return Event::kEnd;
}

#endif

RequestRing::RequestRing(std::unique_ptr<Ring> ring, int descriptor)
    : ring_(std::move(ring)), descriptor_(descriptor) {}

RequestRing::~RequestRing() = default;

}  // namespace fpfs
