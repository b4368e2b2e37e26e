// The queues of a handle, and how requests get through them.
//
//   async_, sync_ ─→ open files ─→ blocks ─→ lanes (one AioQueue each) ─→ finisher: sync, close ─→ wait()
//
// A lane has as many parts as may be in flight in it, so that its memory does not grow with the length of requests: a
// part that has ended takes the next block of the oldest request that has any, on the queue's own thread. All lanes
// serve all requests. What may take long at the end of a request has a thread of its own: no queue waits for it.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/aio/aio.h"
#include "engine/aio/transfer.h"
#include "engine/base/mutex.h"
#include "engine/base/units.h"
#include "engine/io/aio_queue.h"
#include "engine/io/named_thread.h"

namespace fastpersist {
namespace {

using fpfs::AioQueue;
using fpfs::IoRequest;
using fpfs::MutexLock;

constexpr size_t kBlockMax = size_t{1} << 30;
constexpr unsigned kDepthMax = 4096, kParallelismMax = 64;
constexpr unsigned kBatchMax = 16;  // with more in one call the first ones lie finished until the last one is prepared

static_assert(kAlignment == fpfs::kIoAlignment);

Error out_of_range(const char* name, uint64_t value, const std::string& range) {
  return {EINVAL, std::string(name) + " is " + std::to_string(value) + "; it must be " + range};
}

Error check(const AioOptions& options) {
  if (options.block_size == 0 || options.block_size % kAlignment != 0 || options.block_size > kBlockMax)
    return out_of_range("block_size", options.block_size, "a multiple of 4096, up to 1 GiB");
  if (options.queue_depth == 0 || options.queue_depth > kDepthMax)
    return out_of_range("queue_depth", options.queue_depth, "1 to " + std::to_string(kDepthMax));
  if (options.intra_op_parallelism == 0 || options.intra_op_parallelism > kParallelismMax)
    return out_of_range("intra_op_parallelism", options.intra_op_parallelism,
                        "1 to " + std::to_string(kParallelismMax));
  return {};
}

}  // namespace

class AioHandle::Impl {
 public:
  explicit Impl(const AioOptions& options) : options_(options) {}
  ~Impl();
  Error start();
  const AioOptions& options() const { return options_; }

  uint64_t begin(std::unique_ptr<Transfer> transfer);
  Error run(Transfer& transfer);
  Waited wait();

 private:
  struct Lane;
  struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  // One block in flight.
  struct Part {
    IoRequest request;
    Lane* lane = nullptr;
    Transfer* transfer = nullptr;
    Block block;
    std::unique_ptr<std::byte, FreeMemory> copy;  // block_size bytes, from the first block that needs it on
  };
  struct Lane {
    Impl* impl = nullptr;
    std::vector<Part> parts;
    std::vector<Part*> idle;
    std::unique_ptr<AioQueue> queue;  // last: its thread ends first
  };

  static fpfs::Status prepare(IoRequest& request);
  static void complete(IoRequest& request, const fpfs::Status& status);
  void enter(Transfer& transfer) FPFS_REQUIRES(mutex_);
  bool may_take(const Lane& lane) const;
  bool give_block(Lane& lane) FPFS_REQUIRES(mutex_);
  void block_ended(Part& part, int error_number);
  void run_finisher();

  const AioOptions options_;
  fpfs::Mutex mutex_;
  fpfs::CondVar to_finish_, ended_;
  std::deque<Transfer*> with_blocks_ FPFS_GUARDED_BY(mutex_);  // oldest first
  std::deque<Transfer*> moved_ FPFS_GUARDED_BY(mutex_);        // for the finisher
  std::map<uint64_t, std::unique_ptr<Transfer>> open_ FPFS_GUARDED_BY(mutex_);
  uint64_t last_number_ FPFS_GUARDED_BY(mutex_) = 0;
  Waited waited_ FPFS_GUARDED_BY(mutex_);  // what the next wait() returns
  bool stopping_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<Lane> lanes_;
  std::thread finisher_;
};

// --- life ------------------------------------------------------------------------------------------------------------

Error AioHandle::Impl::start() {
  const fpfs::QueueSettings settings{.depth = options_.queue_depth,
                                     .batch = options_.single_submit ? 1 : std::min(options_.queue_depth, kBatchMax)};
  lanes_ = std::vector<Lane>(options_.intra_op_parallelism);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.impl = this;
    lane.parts = std::vector<Part>(options_.queue_depth);
    for (Part& part : lane.parts) {
      part.lane = &lane;
      part.request.prepare = &Impl::prepare;
      part.request.complete = &Impl::complete;
      part.request.owner = &part;
      lane.idle.push_back(&part);
    }
    auto queue = AioQueue::create(fpfs::MemberIndex(static_cast<uint16_t>(i)), settings);
    if (!queue.is_ok()) {
      const int number = queue.status().errno_value();
      return {number == 0 ? EIO : number, queue.status().message()};
    }
    lane.queue = std::move(queue).value();
  }
  finisher_ = fpfs::start_thread("fpfs-aio-finish", [this] { run_finisher(); });
  return {};
}

AioHandle::Impl::~Impl() {
  static_cast<void>(wait());
  if (!finisher_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  to_finish_.notify_one();
  finisher_.join();
}

// --- requests --------------------------------------------------------------------------------------------------------

uint64_t AioHandle::Impl::begin(std::unique_ptr<Transfer> transfer) {
  Transfer& begun = *transfer;
  begun.open_files(options_);
  const MutexLock lock(mutex_);
  const uint64_t number = begun.number = ++last_number_;
  open_.emplace(number, std::move(transfer));
  enter(begun);
  return number;
}

Error AioHandle::Impl::run(Transfer& transfer) {
  transfer.open_files(options_);
  const MutexLock lock(mutex_);
  enter(transfer);
  while (!transfer.has_ended) ended_.wait(mutex_);
  return transfer.error();
}

Waited AioHandle::Impl::wait() {
  const MutexLock lock(mutex_);
  const uint64_t last = last_number_;
  while (!open_.empty() && open_.begin()->first <= last) ended_.wait(mutex_);
  return std::exchange(waited_, {});
}

void AioHandle::Impl::enter(Transfer& transfer) {
  if (transfer.is_moved()) {
    moved_.push_back(&transfer);
    to_finish_.notify_one();
    return;
  }
  with_blocks_.push_back(&transfer);
  // One block for each lane in turn, so that a request of few blocks has all lanes, too.
  std::vector<Lane*> lanes;
  for (Lane& lane : lanes_)
    if (may_take(lane)) lanes.push_back(&lane);
  for (bool given = true; given;) {
    given = false;
    for (Lane* const lane : lanes) given |= give_block(*lane);
  }
}

// --- blocks ----------------------------------------------------------------------------------------------------------

bool AioHandle::Impl::may_take(const Lane& lane) const {
  return options_.overlap_events || lane.idle.size() == lane.parts.size();
}

// Sends off the next block, if there is one and the lane has room.
bool AioHandle::Impl::give_block(Lane& lane) {
  if (lane.idle.empty()) return false;
  Part& part = *lane.idle.back();
  while (!with_blocks_.empty() && !with_blocks_.front()->next_block(options_, &part.block)) with_blocks_.pop_front();
  if (with_blocks_.empty()) return false;
  lane.idle.pop_back();
  part.transfer = with_blocks_.front();
  part.request.kind = part.transfer->is_read() ? IoRequest::Kind::kRead : IoRequest::Kind::kWrite;
  part.request.handle = part.block.file;
  part.request.offset = part.block.offset;
  part.request.length = part.block.length;
  lane.queue->submit(part.request);
  return true;
}

// On the queue's thread, as is complete().
fpfs::Status AioHandle::Impl::prepare(IoRequest& request) {
  auto& part = *static_cast<Part*>(request.owner);
  request.data = part.block.data;
  if (!part.block.is_direct || reinterpret_cast<uintptr_t>(part.block.data) % kAlignment == 0)
    return fpfs::Status::ok();
  if (part.copy == nullptr) {
    const size_t size = part.lane->impl->options_.block_size;
    part.copy.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
    if (part.copy == nullptr) return fpfs::Status::from_errno(ENOMEM, "get memory for a block");
  }
  request.data = part.copy.get();
  if (request.kind == IoRequest::Kind::kWrite) std::memcpy(request.data, part.block.data, part.block.length);
  return fpfs::Status::ok();
}

void AioHandle::Impl::complete(IoRequest& request, const fpfs::Status& status) {
  auto& part = *static_cast<Part*>(request.owner);
  if (request.kind == IoRequest::Kind::kRead && request.data != part.block.data && request.transferred > 0)
    std::memcpy(part.block.data, request.data, request.transferred);
  part.lane->impl->block_ended(part, status.is_ok() ? 0 : status.errno_value());
}

void AioHandle::Impl::block_ended(Part& part, int error_number) {
  Lane& lane = *part.lane;
  const MutexLock lock(mutex_);
  Transfer& transfer = *part.transfer;
  transfer.block_ended(part.block, part.request.transferred, error_number);
  lane.idle.push_back(&part);
  if (transfer.is_moved()) {
    std::erase(with_blocks_, &transfer);
    moved_.push_back(&transfer);
    to_finish_.notify_one();
  }
  if (may_take(lane))
    while (give_block(lane)) {
    }
}

void AioHandle::Impl::run_finisher() {
  for (;;) {
    Transfer* transfer = nullptr;
    {
      const MutexLock lock(mutex_);
      while (moved_.empty() && !stopping_) to_finish_.wait(mutex_);
      if (moved_.empty()) return;
      transfer = moved_.front();
      moved_.pop_front();
    }
    transfer->finish();
    {
      const MutexLock lock(mutex_);
      if (transfer->number == 0) {
        transfer->has_ended = true;
      } else {
        ++waited_.completed;
        if (!transfer->error().is_ok())
          waited_.failures.push_back({transfer->number, transfer->moved(), transfer->error(), transfer->path()});
        open_.erase(transfer->number);
      }
    }
    ended_.notify_all();
  }
}

// --- the public face -------------------------------------------------------------------------------------------------

namespace {

// A write only reads it.
std::byte* bytes_of(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));
}

}  // namespace

AioHandle::AioHandle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AioHandle::~AioHandle() = default;

std::unique_ptr<AioHandle> AioHandle::open(const AioOptions& options, Error& error) {
  error = check(options);
  if (!error.is_ok()) return nullptr;
  auto impl = std::make_unique<Impl>(options);
  try {
    error = impl->start();
  } catch (const std::system_error& failed) {
    error = {EAGAIN, std::string("start a thread: ") + failed.what()};
  }
  if (!error.is_ok()) return nullptr;
  return std::unique_ptr<AioHandle>(new AioHandle(std::move(impl)));
}

const AioOptions& AioHandle::options() const {
  return impl_->options();
}

uint64_t AioHandle::async_write_file(const std::string& path, const void* data, size_t length,
                                     const WriteOptions& options) {
  return impl_->begin(
      std::make_unique<Transfer>(Transfer::Kind::kWriteFile, path, bytes_of(data), length, 0, options.durable));
}
uint64_t AioHandle::async_pwrite(const std::string& path, const void* data, size_t length, uint64_t offset,
                                 const WriteOptions& options) {
  return impl_->begin(
      std::make_unique<Transfer>(Transfer::Kind::kWrite, path, bytes_of(data), length, offset, options.durable));
}
uint64_t AioHandle::async_pwrite(int file, const void* data, size_t length, uint64_t offset,
                                 const WriteOptions& options) {
  return impl_->begin(
      std::make_unique<Transfer>(Transfer::Kind::kWrite, file, bytes_of(data), length, offset, options.durable));
}
uint64_t AioHandle::async_pread(const std::string& path, void* data, size_t length, uint64_t offset) {
  return impl_->begin(std::make_unique<Transfer>(Transfer::Kind::kRead, path, bytes_of(data), length, offset, false));
}

Waited AioHandle::wait() {
  return impl_->wait();
}

Error AioHandle::sync_write_file(const std::string& path, const void* data, size_t length,
                                 const WriteOptions& options) {
  Transfer transfer(Transfer::Kind::kWriteFile, path, bytes_of(data), length, 0, options.durable);
  return impl_->run(transfer);
}
Error AioHandle::sync_pwrite(const std::string& path, const void* data, size_t length, uint64_t offset,
                             const WriteOptions& options) {
  Transfer transfer(Transfer::Kind::kWrite, path, bytes_of(data), length, offset, options.durable);
  return impl_->run(transfer);
}
Error AioHandle::sync_pread(const std::string& path, void* data, size_t length, uint64_t offset) {
  Transfer transfer(Transfer::Kind::kRead, path, bytes_of(data), length, offset, false);
  return impl_->run(transfer);
}

}  // namespace fastpersist
