// ReceiveBuffers: the fixed set of buffers that requests are read from /dev/fuse into.
//
// A worker holds one while it reads and handles a request. The handler of a WRITE keeps the buffer until the engine has
// taken the payload, and the worker goes on with another. Last in, first out, so that the buffer in use is the one that
// is still in a core's cache.
//
// Each buffer is placed so that a WRITE's payload starts at a page boundary: the kernel then copies whole pages, and
// the engine may transfer straight from it.
//
// Thread safety: all methods from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/base/intrusive_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "fs/protocol/request_context.h"

namespace fpfs {

class ReceiveBuffers;

struct ReceiveBuffer final : ReceivedPayload {
  void give_back() override;

  ReceiveBuffers* home = nullptr;
  ListLink<ReceiveBuffer> link;  // of those that are free
};

class ReceiveBuffers {
 public:
  // What the kernel must be offered for a WRITE of 1 MiB.
  static constexpr size_t kRequestSizeMax = 1024 * 1024 + 4096;

  static Result<std::unique_ptr<ReceiveBuffers>> create(unsigned count);
  ~ReceiveBuffers();
  ReceiveBuffers(const ReceiveBuffers&) = delete;
  ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;

  // Waits until a buffer is free: the engine is behind by as many writes as there are spare buffers.
  KeptPayload take();
  // Null when none is free.
  KeptPayload try_take();
  // Buffers in use now.
  unsigned in_use() const;

 private:
  friend struct ReceiveBuffer;
  ReceiveBuffers(std::byte* mapping, size_t mapping_bytes, unsigned count);
  ReceiveBuffer* pop() FPFS_REQUIRES(mutex_);  // nullptr: none is free
  void give_back(ReceiveBuffer& buffer);

  std::byte* const mapping_;
  const size_t mapping_bytes_;
  std::vector<ReceiveBuffer> buffers_;
  mutable Mutex mutex_;
  CondVar freed_;
  IntrusiveList<ReceiveBuffer, &ReceiveBuffer::link> free_ FPFS_GUARDED_BY(mutex_);
  unsigned in_use_ FPFS_GUARDED_BY(mutex_) = 0;
};

}  // namespace fpfs
