// MemberSpaces: memory beside the pool for work on chunks, so much for each member, and who waits for it.
//
//   start → (a space of its member is free) → run, in a task → release
//
// Each member has a few *spaces*: a member that hangs keeps its own and nobody else's. Who finds none free waits in its
// member's order. Spaces that were never needed were never touched, and cost no memory.
//
// Thread safety: all methods from any thread. Callbacks run without locks held.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/base/intrusive_list.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/task_counter.h"

namespace fpfs {

// Its owner embeds it, or derives from it, and leaves it alone until run().
struct SpaceRequest {
  // In.
  MemberIndex member;
  // Once. Ok, in a task: it has its space. Otherwise why it never will: inside fail_waiting() or stop(), or in a task
  // after that.
  void (*run)(SpaceRequest& request, const Status& status) = nullptr;

  // Out, up to release().
  Buffer* space = nullptr;

  // The spaces' own.
  ListLink<SpaceRequest> link;
};

class MemberSpaces {
 public:
  enum class Tasks : uint8_t {
    kWork,  // they only compute: TaskCounter::post_work()
    kCalls  // they may wait for a drive: TaskCounter::post()
  };
  // So many spaces for each member, of so many bytes: a multiple of kIoAlignment. `tasks` outlives it. kSystem: no
  // memory.
  static Result<std::unique_ptr<MemberSpaces>> create(uint16_t members, unsigned spaces, uint32_t space_size,
                                                      TaskCounter& tasks, Tasks kind);
  ~MemberSpaces();  // nothing is under way
  MemberSpaces(const MemberSpaces&) = delete;
  MemberSpaces& operator=(const MemberSpaces&) = delete;

  void start(SpaceRequest& request);
  // For one that needs no space: it waits for nobody.
  void start_without_space(SpaceRequest& request) { post(request); }
  // The next of its member has the space. Of a request without one: nothing.
  void release(SpaceRequest& request);
  // The member hangs: what waits for a space is answered with `failure`.
  void fail_waiting(MemberIndex member, const Status& failure);
  // What waits, for a space or for its task, is answered with a failure from now on. On return no run() runs that was
  // told ok.
  void stop();

  uint32_t space_size() const { return pool_->buffer_size(); }

 private:
  using Requests = IntrusiveList<SpaceRequest, &SpaceRequest::link>;
  struct Spaces {
    std::vector<Buffer*> free;
    Requests waiting;
  };
  MemberSpaces(std::unique_ptr<BufferPool> pool, uint16_t members, unsigned spaces, TaskCounter& tasks, Tasks kind);
  void post(SpaceRequest& request);
  bool begin();
  void end();
  void run(SpaceRequest& request);

  const std::unique_ptr<BufferPool> pool_;  // all of it is spaces
  TaskCounter& tasks_;
  const Tasks kind_;
  Mutex mutex_;
  PerMember<Spaces> spaces_ FPFS_GUARDED_BY(mutex_);
  bool stopped_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned running_ FPFS_GUARDED_BY(mutex_) = 0;
  CondVar none_runs_;
};

}  // namespace fpfs
