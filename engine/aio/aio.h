// fastpersist-aio: memory to files and back by asynchronous O_DIRECT I/O, many blocks in flight. A library of its own:
// no mount, no array. The knobs are those of DeepNVMe's aio_handle.
//
//   fastpersist::Error error;
//   auto aio = fastpersist::AioHandle::open({.queue_depth = 32}, error);        // null: error says why
//   auto memory = fastpersist::PinnedBuffer::allocate(bytes, error);
//   aio->async_write_file("/nvme/layer0", memory.data(), memory.size());        // returns at once
//   const fastpersist::Waited waited = aio->wait();                             // all of them, and what failed
//
// Threads. Every function may be called from any thread. A handle has `intra_op_parallelism` threads that move blocks
// and one that syncs and closes files; it does not survive fork(2) in the child. The threads block all signals. An
// async_ call opens the file, and reserves the space that a write needs, on the caller's thread.
//
// Memory. The caller keeps `data` alive and, for a write, unchanged, until the wait() that counts the request. Blocks
// are moved without a copy where `data` and `offset` are both aligned to kAlignment, or off by as much. Otherwise they
// are copied through buffers of the handle, one of `block_size` for each block in flight, which it keeps.
//
// Errors. Nothing is thrown but std::bad_alloc. A request that did not move every byte has failed: wait(), or the sync_
// call itself, says which, with the errno of the first failure. ENOSPC, EDQUOT, EFBIG, EIO of the drive or of the
// filesystem, also from fallocate(2), fdatasync(2) and close(2); ENOENT, EACCES, EMFILE, ... of open(2); EINVAL for
// arguments, and where the filesystem has no O_DIRECT (AioOptions::direct; a write may have made an empty file). A read
// that meets the end of the file fails with ENODATA. After a failure the bytes in question (in memory for a read, in
// the file for a write) are unspecified; other requests are not concerned. A read that fails with EIO is tried once
// more. Beyond RLIMIT_FSIZE the kernel also sends SIGXFSZ, which ends a program that does not ignore it.
//
// Sizes. Any offset and any length. What is not a whole aligned block of the file, at its two ends, goes through the
// page cache, exactly: no byte beside it is written.
//
// Durability. A write that succeeded can be read, by everyone. It is on the drive only when it was durable
// (WriteOptions): then content, length and name survive a power cut. Nothing is atomic: what replaces a file that is
// needed writes another one, durably, and renames it. A crash, or a failure, may leave a file of the full length with
// zeros in it.
//
// Order. Requests run side by side, also for one file. Who needs one after the other waits between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "error.h"

namespace fastpersist {

// Of memory and of offsets in files, for transfers without a copy.
constexpr size_t kAlignment = 4096;

// Fixed when the handle is opened.
struct AioOptions {
  // Bytes of one transfer: a multiple of kAlignment, up to 1 GiB.
  size_t block_size = size_t{1} << 20;
  // Blocks in flight for each thread: 1 .. 4096. All handles together have at most sysctl fs.aio-max-nr.
  unsigned queue_depth = 128;
  // Each block is given to the kernel by a call of its own; otherwise up to 16 share one.
  bool single_submit = false;
  // A block that has ended makes room for the next one at once. False: a thread gets its next `queue_depth` blocks when
  // all of the last ones have ended.
  bool overlap_events = true;
  // Threads, each with a queue of its own; they share the blocks of every request. 1 .. 64.
  unsigned intra_op_parallelism = 1;
  // False: through the page cache, for filesystems without O_DIRECT. A transfer then blocks its thread.
  bool direct = true;
};

struct WriteOptions {
  // The request ends after fdatasync(2) of the file and fsync(2) of the directory that `path` names it in.
  bool durable = false;
};

// What did not succeed of the requests that a wait() counted.
struct Failure {
  uint64_t request = 0;  // what the async_ call returned
  uint64_t bytes = 0;    // moved all the same, not always the first ones
  Error error;
  std::string path;  // of the file; "/proc/self/fd/N" of a descriptor
};

struct [[nodiscard]] Waited {
  size_t completed = 0;  // requests, those that failed too
  std::vector<Failure> failures;
  bool is_ok() const { return failures.empty(); }
};

class FASTPERSIST_EXPORT AioHandle {
 public:
  // Null when `error` is set. EINVAL for options out of range; EAGAIN when fs.aio-max-nr is used up, or there
  // are too many threads; ENOSYS and others where the kernel or a container has no asynchronous I/O.
  static std::unique_ptr<AioHandle> open(const AioOptions& options, Error& error);
  // Waits for all requests. What failed and nobody has waited for is not told.
  ~AioHandle();
  AioHandle(const AioHandle&) = delete;
  AioHandle& operator=(const AioHandle&) = delete;

  const AioOptions& options() const;

  // They return the number of the request, counted from 1; failures of all kinds come through wait(). A request has up
  // to two descriptors open (RLIMIT_NOFILE) until it ends. Files are made with mode 0666 less the umask.
  //
  // Makes or overwrites a file in place, which then has `length` bytes: the rest of a longer one is cut off first.
  uint64_t async_write_file(const std::string& path, const void* data, size_t length, const WriteOptions& options = {});
  // Writes a part of a file, which is made when there is none; the rest of it stays.
  uint64_t async_pwrite(const std::string& path, const void* data, size_t length, uint64_t offset,
                        const WriteOptions& options = {});
  // The same to a file that is open for writing, with O_DIRECT or without; without O_APPEND (EINVAL). The caller closes
  // it, after the wait() that counts the request. A durable request syncs the file and not its name.
  uint64_t async_pwrite(int file, const void* data, size_t length, uint64_t offset, const WriteOptions& options = {});
  uint64_t async_pread(const std::string& path, void* data, size_t length, uint64_t offset);

  // Waits for the async_ requests that were made before, by any thread, and returns what has completed since the last
  // wait(). Each is counted by one wait().
  Waited wait();

  // The same in one call; no wait() counts them.
  [[nodiscard]] Error sync_write_file(const std::string& path, const void* data, size_t length,
                                      const WriteOptions& options = {});
  [[nodiscard]] Error sync_pwrite(const std::string& path, const void* data, size_t length, uint64_t offset,
                                  const WriteOptions& options = {});
  [[nodiscard]] Error sync_pread(const std::string& path, void* data, size_t length, uint64_t offset);

 private:
  class __attribute__((visibility("hidden"))) Impl;
  explicit AioHandle(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Memory for transfers without a copy: aligned to kAlignment, zeros at first, in huge pages where the kernel has them,
// and locked in memory as far as the process may (RLIMIT_MEMLOCK, CAP_IPC_LOCK). No GPU is needed, and none knows it.
class FASTPERSIST_EXPORT PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Empty when `error` is set: ENOMEM, or EINVAL for a size of 0. Memory that cannot be locked is no error: transfers
  // work with it all the same, but it may be swapped out between them.
  static PinnedBuffer allocate(size_t size, Error& error);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool is_locked() const { return lock_error_ == 0; }
  int lock_error() const { return lock_error_; }  // errno of mlock(2); 0: locked

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  int lock_error_ = 0;
};

}  // namespace fastpersist
