// std::mutex and its guards with clang's thread-safety annotations. Guarded fields say FPFS_GUARDED_BY(mutex_);
// -Wthread-safety is an error in clang builds.
//
// Lock order of the whole program (outermost first); a thread that holds one may take only locks below it:
//   fs page cache or inode table, or ArrayTier  →  FileTable::name_lock()  →  File::mutex_  →  BufferPool::mutex_  →
//   leaves: queues, executor, and every class that says "with any lock held" (FileTable, ArrayHealth, Reclaimer, ...)
// The one exception runs against the order with try_lock only: BufferPool's eviction (see buffer_pool.h).
// No lock is held while hashing, waiting for I/O or replying; but for IndexMemory::large_one(), which is there to wait
// for, below the mutex of a file that is being opened, and the one under which an object is opened or made (ObjectSet).
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define FPFS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define FPFS_THREAD_ANNOTATION(x)
#endif
#define FPFS_CAPABILITY(x) FPFS_THREAD_ANNOTATION(capability(x))
#define FPFS_SCOPED_CAPABILITY FPFS_THREAD_ANNOTATION(scoped_lockable)
#define FPFS_GUARDED_BY(x) FPFS_THREAD_ANNOTATION(guarded_by(x))
#define FPFS_REQUIRES(...) FPFS_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define FPFS_EXCLUDES(...) FPFS_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define FPFS_ACQUIRE(...) FPFS_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define FPFS_RELEASE(...) FPFS_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define FPFS_TRY_ACQUIRE(...) FPFS_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define FPFS_NO_THREAD_SAFETY_ANALYSIS FPFS_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace fpfs {

class FPFS_CAPABILITY("mutex") Mutex {
 public:
  void lock() FPFS_ACQUIRE() { mutex_.lock(); }
  void unlock() FPFS_RELEASE() { mutex_.unlock(); }
  bool try_lock() FPFS_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class FPFS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) FPFS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() FPFS_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Waits once; callers loop over their condition.
  void wait(Mutex& mutex) FPFS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  template <typename Duration>
  void wait_for(Mutex& mutex, Duration duration) FPFS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, duration);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace fpfs
