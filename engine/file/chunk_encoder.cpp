#include "engine/file/chunk_encoder.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "engine/base/check.h"

namespace fpfs {

namespace {

Status closed() {
  return Status::error(StatusCode::kIoError, "the array is being closed");
}

// Of the calling thread.
uint64_t processor_ns() {
  struct timespec time {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

Result<std::unique_ptr<ChunkEncoder>> ChunkEncoder::create(uint16_t members, unsigned spaces, uint32_t chunk_size,
                                                           TaskCounter& tasks) {
  const uint64_t buffers = std::max<uint64_t>(uint64_t{members} * spaces, BufferPool::kBuffersMin);
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<BufferPool> pool, BufferPool::create(buffers * chunk_size, chunk_size));
  return std::unique_ptr<ChunkEncoder>(new ChunkEncoder(std::move(pool), members, spaces, tasks));
}

ChunkEncoder::ChunkEncoder(std::unique_ptr<BufferPool> pool, uint16_t members, unsigned spaces, TaskCounter& tasks)
    : pool_(std::move(pool)), tasks_(tasks), spaces_(members) {
  const MutexLock lock(mutex_);
  for (Spaces& of_member : spaces_) {
    of_member.free.resize(spaces);
    for (Buffer*& space : of_member.free)
      FPFS_CHECK(pool_->acquire(1, &space, nullptr), "the pool has room for all spaces");
  }
}

ChunkEncoder::~ChunkEncoder() {
  const MutexLock lock(mutex_);
  for (Spaces& of_member : spaces_) {
    FPFS_CHECK(of_member.waiting.is_empty(), "nothing waits when the encoder goes");
    for (Buffer* space : of_member.free) pool_->release(*space);
  }
}

void ChunkEncoder::start(EncodeRequest& request) {
  {
    const MutexLock lock(mutex_);
    Spaces& of_member = spaces_[request.member];
    if (!stopped_ && request.compression.mode != Compression::Mode::kOff) {
      if (of_member.free.empty()) return of_member.waiting.push_back(request);
      request.space = of_member.free.back();
      of_member.free.pop_back();
    }
  }
  post(request);
}

void ChunkEncoder::post(EncodeRequest& request) {
  tasks_.post_work([this, &request] { encode(request); });
}

bool ChunkEncoder::begin_encoding() {
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  ++encoding_;
  return true;
}

void ChunkEncoder::end_encoding() {
  const MutexLock lock(mutex_);
  if (--encoding_ == 0) none_encodes_.notify_all();
}

void ChunkEncoder::encode(EncodeRequest& request) {
  if (!begin_encoding()) {
    release(request);
    return request.ready(request, closed());
  }
  const uint64_t begin = processor_ns();
  std::optional<EncodedChunk> encoded;
  if (request.space != nullptr)
    encoded = encode_chunk(request.compression, request.raw, {request.space->data, pool_->buffer_size()}, request.seed);
  if (encoded) {
    request.encoded = *encoded;
  } else {
    release(request);
    request.encoded = {Codec::kRaw, static_cast<uint32_t>(request.raw.size()),
                       stored_checksum(Codec::kRaw, request.raw, request.seed)};
  }
  request.processor_ns = processor_ns() - begin;
  request.ready(request, Status::ok());
  end_encoding();
}

void ChunkEncoder::release(EncodeRequest& request) {
  if (request.space != nullptr) give_back(request.member, *std::exchange(request.space, nullptr));
}

void ChunkEncoder::give_back(MemberIndex member, Buffer& space) {
  EncodeRequest* next = nullptr;
  {
    const MutexLock lock(mutex_);
    Spaces& of_member = spaces_[member];
    next = of_member.waiting.pop_front();
    if (next == nullptr) return of_member.free.push_back(&space);
    next->space = &space;
  }
  post(*next);
}

void ChunkEncoder::stop() {
  MemberRange members = range_to(MemberIndex());
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    members = spaces_.indices();
  }
  for (const MemberIndex m : members) fail_waiting(m, closed());
  const MutexLock lock(mutex_);
  while (encoding_ > 0) none_encodes_.wait(mutex_);
}

void ChunkEncoder::fail_waiting(MemberIndex member, const Status& failure) {
  Requests waiting;
  {
    const MutexLock lock(mutex_);
    waiting = std::move(spaces_[member].waiting);
  }
  while (EncodeRequest* const request = waiting.pop_front()) request->ready(*request, failure);
}

}  // namespace fpfs
