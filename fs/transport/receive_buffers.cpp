#include "fs/transport/receive_buffers.h"

#include <sys/mman.h>

#include <cerrno>

#include "engine/base/units.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {
namespace {

// One page before the payload holds the header's 80 bytes at its end.
constexpr size_t kStride = kIoAlignment + ReceiveBuffers::kRequestSizeMax;
static_assert(kStride % kIoAlignment == 0);
static_assert(ReceiveBuffers::kRequestSizeMax >= wire::kWritePayloadOffset + kMiB);

}  // namespace

Result<std::unique_ptr<ReceiveBuffers>> ReceiveBuffers::create(unsigned count) {
  const size_t bytes = count * kStride;
  // Pages are touched when first used, so buffers that are never needed cost nothing.
  void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return Status::from_errno(errno, "map " + format_size(bytes) + " of receive buffers");
  // A wish: the kernel looks up fewer pages for each copy then.
  (void)::madvise(mapping, bytes, MADV_HUGEPAGE);
  return std::unique_ptr<ReceiveBuffers>(new ReceiveBuffers(static_cast<std::byte*>(mapping), bytes, count));
}

ReceiveBuffers::ReceiveBuffers(std::byte* mapping, size_t mapping_bytes, unsigned count)
    : mapping_(mapping), mapping_bytes_(mapping_bytes), buffers_(count) {
  for (unsigned i = count; i-- > 0;) {
    buffers_[i].home = this;
    buffers_[i].request = mapping_ + i * kStride + kIoAlignment - wire::kWritePayloadOffset;
    free_.push_front(buffers_[i]);
  }
}

ReceiveBuffers::~ReceiveBuffers() {
  ::munmap(mapping_, mapping_bytes_);
}

void ReceiveBuffer::give_back() {
  home->give_back(*this);
}

KeptPayload ReceiveBuffers::take() {
  MutexLock lock(mutex_);
  while (free_.is_empty()) freed_.wait(mutex_);
  return KeptPayload(pop());
}

KeptPayload ReceiveBuffers::try_take() {
  MutexLock lock(mutex_);
  return KeptPayload(pop());
}

ReceiveBuffer* ReceiveBuffers::pop() {
  ReceiveBuffer* const buffer = free_.pop_front();
  if (buffer != nullptr) ++in_use_;
  return buffer;
}

void ReceiveBuffers::give_back(ReceiveBuffer& buffer) {
  {
    MutexLock lock(mutex_);
    free_.push_front(buffer);
    --in_use_;
  }
  freed_.notify_one();
}

unsigned ReceiveBuffers::in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}

}  // namespace fpfs
