// ChunkVerifier: reads chunks of an open file from their drives, past the cache, each into a buffer of its own, and
// checks them: what fpfs verify and scrub are made of. Of content that the sidecar keeps, the sidecar is read again.
//
// Where a chunk lies is asked anew when what was found is wrong: it may have been replaced while it was read.
//
// Thread safety: all methods from any thread, without the file's lock.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/intrusive_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/chunk_io.h"
#include "engine/file/member_counters.h"
#include "engine/index/sidecar_writer.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/stall_domain.h"
#include "engine/io/task_counter.h"

namespace fpfs {

class ChunkVerifier {
 public:
  // Of a chunk that is not as it was written.
  enum class Remedy : uint8_t {
    kUnknown,   // or nothing is wrong
    kHealed,    // a copy had it, and it is on its member again, committed
    kHealable,  // a copy has it, which was read and checked; nothing was written
    kLost,      // it is damaged, and no copy has it
  };
  // "healed", "healable", "lost"; empty: kUnknown.
  static const char* name_of(Remedy remedy);
  using Done = std::function<void(const Status&, Remedy)>;

  // The file, as far as this is concerned. Methods take the file's lock.
  class Source {
   public:
    // Where a chunk is at this moment.
    struct Place {
      Extent extent;  // there is none when it is a hole, or in the sidecar
      std::shared_ptr<ObjectSet> objects;
      bool is_inline = false;  // in the sidecar, by a commit
      std::shared_ptr<const ScopedHandle> sidecar;
      SidecarLogState log;
    };
    virtual Place place_of(ChunkIndex chunk) const = 0;
    virtual std::string path() const = 0;
    // Looks for a copy of the chunk, of which `damage` says what is wrong, and calls `done` with `damage` and what came
    // of it.
    virtual void heal(ChunkIndex chunk, const Place& place, const Status& damage, Done done) = 0;

   protected:
    ~Source() = default;
  };

  // What it works with.
  struct Parts {
    Storage& storage;
    const Array& array;
    BufferPool& pool;
    ChunkIo& io;
    TaskCounter& tasks;  // where sidecars are read
    ArrayCounters& counters;
  };
  // All of them, and the source, outlive it. What is under way holds `keep`, which holds the source.
  ChunkVerifier(const Parts& parts, Source& source) : parts_(parts), source_(source) {}

  // Reads the chunk into one pool buffer, and waits for one when there is none. `done` is called once: inside this
  // (there is nothing to read, or a member that is missing or hangs), on an engine thread, or by who gave up the
  // domain. Ok: it is as it was written, or a hole. kCorruption: it is damaged. Everything else: it could not be read,
  // and nobody knows whether it is. Both name member, object and offset, but neither path nor chunk; also of what was
  // healed since.
  // `taken`: not none: called before `done` when a chunk was read and is right, with where it was and its bytes as they
  // are stored.
  using Taken = std::function<void(const Source::Place& place, const std::byte* stored)>;
  void verify(ChunkIndex chunk, std::shared_ptr<const void> keep, Done done, Taken taken = {});
  // The domain (a member's drive, or the tree's) hangs: those who wait for it are answered, by the caller, with these.
  std::vector<Done> give_up(StallDomain domain);

 private:
  // Of the list until it is answered, and alive until its transfer has ended.
  struct Job {
    ChunkVerifier& verifier;
    std::shared_ptr<const void> keep;
    ChunkIndex chunk;
    Source::Place place;
    StallDomain domain;  // whose drive is waited for
    Buffer* buffer = nullptr;
    BufferPool::Waiter waiter;
    ChunkTransfer transfer;
    Done done;
    Taken taken;
    // Guarded by the verifier.
    ListLink<Job> link;
    bool submitted = false;
    bool given_up = false;  // answered already; only the buffer is left to give back
  };

  void start(Job& job);
  void mark_submitted(Job& job);
  void end(std::unique_ptr<Job> job, const ObjectSet& objects, const Status& status);
  void verify_inline(std::unique_ptr<Job> job);
  Status read_sidecar_again(const Source::Place& place);
  // False: it was answered before.
  bool take(Job& job);
  void verify_again(std::unique_ptr<Job> job);

  const Parts parts_;
  Source& source_;
  Mutex mutex_;
  IntrusiveList<Job, &Job::link> jobs_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
