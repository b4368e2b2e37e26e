// The real world with members that hang on command: calls on their handles do not return, and transfers do not end,
// until they answer again.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/io/posix_environment.h"

namespace fpfs::test {

// Which directories hang. Shared by the storage and the queues of one environment.
class Hangs {
 public:
  void hang(const std::string& directory) {
    const std::lock_guard lock(mutex_);
    hanging_.insert(directory);
  }
  void answer_again() {
    const std::lock_guard lock(mutex_);
    hanging_.clear();
    changed_.notify_all();
  }
  bool is_hanging(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return holds(path);
  }
  // Returns when whatever `path` lies in answers.
  void pass(const std::string& path) {
    std::unique_lock lock(mutex_);
    if (!holds(path)) return;
    ++caught_;
    changed_.wait(lock, [&] { return !holds(path); });
    --caught_;
  }
  int caught() {
    const std::lock_guard lock(mutex_);
    return caught_;
  }

 private:
  bool holds(const std::string& path) const {
    for (const std::string& directory : hanging_)
      if (path.starts_with(directory)) return true;
    return false;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> hanging_;
  int caught_ = 0;
};

// Hangs in the calls that go to a drive for certain.
class HangingStorage final : public PosixStorage {
 public:
  explicit HangingStorage(Hangs& hangs) : hangs_(hangs) {}
  Status pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) override {
    hangs_.pass(describe(handle));
    return PosixStorage::pwrite(handle, data, offset);
  }
  Status fsync(Handle handle) override {
    hangs_.pass(describe(handle));
    return PosixStorage::fsync(handle);
  }
  Status fdatasync(Handle handle) override {
    hangs_.pass(describe(handle));
    return PosixStorage::fdatasync(handle);
  }
  Status fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) override {
    hangs_.pass(describe(handle));
    return PosixStorage::fallocate(handle, mode, offset, length);
  }
  Status sync_filesystem(Handle handle) override {
    hangs_.pass(describe(handle));
    return PosixStorage::sync_filesystem(handle);
  }

 private:
  Hangs& hangs_;
};

// Keeps the requests of a member that hangs: the first `depth` as on the drive, further ones as waiting.
class HangingQueue final : public IoQueue {
 public:
  HangingQueue(std::unique_ptr<IoQueue> queue, unsigned depth, Hangs& hangs, std::string directory)
      : queue_(std::move(queue)), depth_(depth), hangs_(hangs), directory_(std::move(directory)) {}
  ~HangingQueue() override { release(); }

  void submit(IoRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      if (hangs_.is_hanging(directory_)) {
        if (on_drive_.empty()) began_ns_ = monotonic_ns();
        (on_drive_.size() < depth_ ? on_drive_ : waiting_).push_back(&request);
        return;
      }
    }
    queue_->submit(request);
  }
  bool is_idle() const override { return queue_->is_idle(); }
  void fail_waiting(const Status& failure) override {
    std::deque<IoRequest*> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(waiting_);
    }
    for (IoRequest* request : waiting) request->complete(*request, failure);
    queue_->fail_waiting(failure);
  }
  uint64_t oldest_transfer_ns() const override {
    const std::lock_guard lock(mutex_);
    return on_drive_.empty() ? 0 : began_ns_;
  }
  size_t on_drive() const {
    const std::lock_guard lock(mutex_);
    return on_drive_.size();
  }
  // The drive answers: what it had goes on.
  void release() {
    std::deque<IoRequest*> requests;
    {
      const std::lock_guard lock(mutex_);
      requests.swap(on_drive_);
      requests.insert(requests.end(), waiting_.begin(), waiting_.end());
      waiting_.clear();
    }
    for (IoRequest* request : requests) queue_->submit(*request);
  }

 private:
  std::unique_ptr<IoQueue> queue_;
  const unsigned depth_;
  Hangs& hangs_;
  const std::string directory_;
  mutable std::mutex mutex_;
  std::deque<IoRequest*> on_drive_, waiting_;
  uint64_t began_ns_ = 0;
};

class HangingEnvironment final : public PosixEnvironment {
 public:
  // `members`: their directories, by member index.
  explicit HangingEnvironment(std::vector<std::string> members,
                              std::unique_ptr<Hangs> hangs = std::make_unique<Hangs>())
      : PosixEnvironment(4, std::make_unique<HangingStorage>(*hangs)),
        hangs_(std::move(hangs)),
        members_(std::move(members)) {}

  Result<std::unique_ptr<IoQueue>> make_queue(MemberIndex member, const QueueSettings& settings) override {
    FPFS_ASSIGN_OR_RETURN(std::unique_ptr<IoQueue> inner, PosixEnvironment::make_queue(member, settings));
    auto queue = std::make_unique<HangingQueue>(std::move(inner), settings.depth, *hangs_,
                                                members_[member.value()] + "/objects");
    queues_[member] = queue.get();
    return std::unique_ptr<IoQueue>(std::move(queue));
  }

  // Everything of the member: calls on its objects and transfers. (Of the first member, which keeps the names, also the
  // tree, unless only `objects` are meant.)
  void hang(int member, const char* part = "/") { hangs_->hang(members_[static_cast<size_t>(member)] + part); }
  void answer_again() {
    hangs_->answer_again();
    for (const auto& [member, queue] : queues_) queue->release();
  }
  HangingQueue& queue(int member) { return *queues_.at(MemberIndex(static_cast<uint16_t>(member))); }
  Hangs& hangs() { return *hangs_; }

 private:
  std::unique_ptr<Hangs> hangs_;
  std::vector<std::string> members_;
  std::map<MemberIndex, HangingQueue*> queues_;
};

}  // namespace fpfs::test
