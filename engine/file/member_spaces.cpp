#include "engine/file/member_spaces.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace fpfs {

namespace {

Status closed() {
  return Status::error(StatusCode::kIoError, "the array is being closed");
}

}  // namespace

Result<std::unique_ptr<MemberSpaces>> MemberSpaces::create(uint16_t members, unsigned spaces, uint32_t space_size,
                                                           TaskCounter& tasks, Tasks kind) {
  const uint64_t buffers = std::max<uint64_t>(uint64_t{members} * spaces, BufferPool::kBuffersMin);
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<BufferPool> pool, BufferPool::create(buffers * space_size, space_size));
  return std::unique_ptr<MemberSpaces>(new MemberSpaces(std::move(pool), members, spaces, tasks, kind));
}

MemberSpaces::MemberSpaces(std::unique_ptr<BufferPool> pool, uint16_t members, unsigned spaces, TaskCounter& tasks,
                           Tasks kind)
    : pool_(std::move(pool)), tasks_(tasks), kind_(kind), spaces_(members) {
  const MutexLock lock(mutex_);
  for (Spaces& of_member : spaces_) {
    of_member.free.resize(spaces);
    for (Buffer*& space : of_member.free)
      FPFS_CHECK(pool_->acquire(1, &space, nullptr), "the pool has room for all spaces");
  }
}

MemberSpaces::~MemberSpaces() {
  const MutexLock lock(mutex_);
  for (Spaces& of_member : spaces_) {
    FPFS_CHECK(of_member.waiting.is_empty(), "nothing waits when the spaces go");
    for (Buffer* space : of_member.free) pool_->release(*space);
  }
}

void MemberSpaces::start(SpaceRequest& request) {
  {
    const MutexLock lock(mutex_);
    Spaces& of_member = spaces_[request.member];
    if (!stopped_) {
      if (of_member.free.empty()) return of_member.waiting.push_back(request);
      request.space = of_member.free.back();
      of_member.free.pop_back();
    }
  }
  post(request);
}

void MemberSpaces::post(SpaceRequest& request) {
  const auto task = [this, &request] { run(request); };
  kind_ == Tasks::kWork ? tasks_.post_work(task) : tasks_.post(task);
}

bool MemberSpaces::begin() {
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  ++running_;
  return true;
}

void MemberSpaces::end() {
  const MutexLock lock(mutex_);
  if (--running_ == 0) none_runs_.notify_all();
}

void MemberSpaces::run(SpaceRequest& request) {
  if (!begin()) {
    release(request);
    return request.run(request, closed());
  }
  request.run(request, Status::ok());
  end();
}

void MemberSpaces::release(SpaceRequest& request) {
  Buffer* const space = std::exchange(request.space, nullptr);
  if (space == nullptr) return;
  SpaceRequest* next = nullptr;
  {
    const MutexLock lock(mutex_);
    Spaces& of_member = spaces_[request.member];
    next = of_member.waiting.pop_front();
    if (next == nullptr) return of_member.free.push_back(space);
    next->space = space;
  }
  post(*next);
}

void MemberSpaces::fail_waiting(MemberIndex member, const Status& failure) {
  Requests waiting;
  {
    const MutexLock lock(mutex_);
    waiting = std::move(spaces_[member].waiting);
  }
  while (SpaceRequest* const request = waiting.pop_front()) request->run(*request, failure);
}

void MemberSpaces::stop() {
  MemberRange members = range_to(MemberIndex());
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    members = spaces_.indices();
  }
  for (const MemberIndex m : members) fail_waiting(m, closed());
  const MutexLock lock(mutex_);
  while (running_ > 0) none_runs_.wait(mutex_);
}

}  // namespace fpfs
