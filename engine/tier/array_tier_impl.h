// ArrayTier's private part: one thread, which does one thing behind the other: connects, adapts the rate, sets, leaves,
// ends. Others leave it tasks. array_tier_connect.cpp has the way to a store, array_tier.cpp the rest.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/tier/array_tier.h"
#include "engine/tier/awaited_chunk_source.h"
#include "engine/tier/object_store.h"
#include "engine/tier/object_store_factory.h"
#include "engine/tier/tier_binding.h"
#include "engine/tier/tier_fence.h"
#include "engine/tier/tier_lease.h"
#include "engine/tier/tier_lost.h"
#include "engine/tier/tier_marker.h"
#include "engine/tier/tier_note.h"
#include "engine/tier/tier_reader.h"

namespace fpfs {

class ArrayTier::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Environment& environment, Store& store, Storage& outside, TierOptions options);

  void when_moved(std::function<void(uint64_t inode)> listener) {
    const MutexLock lock(mutex_);
    moved_ = std::move(listener);
  }
  void when_named(RestoredTree::Named listener) {
    const MutexLock lock(named_mutex_);
    named_ = std::move(listener);
  }
  Status open();
  void set(const TierSet& set, const Done& done);
  void leave(const Done& done);
  void count_fetch(bool begins);
  // Calls `ask` once there is a copier to ask; or `done`, with why there is none.
  using Ask = std::function<void(TierCopier& copier, const Done& done)>;
  void when_connected(const Ask& ask, const Done& done);
  bool shows_others() const;
  bool look(const std::string& path, std::function<void()> done);
  TierFileState state_of(Handle node, const File& file, const struct stat& attributes) const;
  TierStatus status() const;
  uint64_t progress() const;
  void pins_changed() { ++pin_changes_; }
  std::string left_over() const;
  bool stop(std::chrono::milliseconds patience);
  void committed(uint64_t inode, uint64_t sequence, bool is_moved);
  void changed(const Store::NameEvent& event);

 private:
  struct Copies {
    std::shared_ptr<TierLease> lease;
    std::unique_ptr<ObjectStore> objects;  // of the priority of copies, by the lease
  };
  // While there is a store that is known to be the right one.
  struct Session {
    std::unique_ptr<ObjectStore> reads;  // of the priority of requests: somebody waits for what it brings
    Copies copies;                       // there with the copier
    std::unique_ptr<TierCopier> copier;  // none: the mount is read-only, or something is to be restored before
    std::shared_ptr<TierReader> reader;  // what heals chunks asks it
    std::shared_ptr<TierReader> prover;  // of what is to leave the drives, by `copies`
  };
  struct Waiting {
    Ask ask;
    Done done;
  };
  using Clock = std::chrono::steady_clock;

  Done across_sessions(const Ask& ask, const Done& done);
  std::vector<Waiting> take_all_waiting() FPFS_REQUIRES(mutex_);
  void start_thread_once() FPFS_REQUIRES(mutex_);
  // False: it has ended, or ends.
  bool leave_task(std::function<void()> task);

  // On the thread.
  void run();
  std::function<void()> next_task();
  void has_tried(const Status& status);
  void note_try(const Status& status) FPFS_REQUIRES(mutex_);
  Status connect();
  Status connect_to_proven(ObjectStore& objects, const TierBinding& binding);
  Status connect_to(const std::string& url, TierBinding binding);
  Status open_copies(const std::string& url);
  Status raise_fence(ObjectStore& objects, TierBinding& binding, Clock::time_point until = Clock::time_point::max());
  Status check_own(const ObjectStore& objects, const TierBinding& binding, const TierFence& stored,
                   bool is_running) const;
  Status check_known(ObjectStore& objects);
  std::vector<std::string> own_fences(const TierBinding& binding) const;
  Result<Copies> reach_for_copies(const std::string& url, TierBinding& binding);
  void keep_fence();
  void end_fence(ObjectStore& objects);
  Status remember(ObjectStore& objects, TierBinding& binding);
  enum class Priority : uint8_t { kCopies, kRequests };  // of the store's threads
  static ObjectStoreOptions quick_answers();
  Result<std::unique_ptr<ObjectStore>> reach(const std::string& url, Priority priority,
                                             const ObjectStoreOptions& options, std::string& store_id);
  Result<std::unique_ptr<ObjectStore>> make_store(const std::string& url, Priority priority,
                                                  const ObjectStoreOptions& options);
  void begin_session(std::unique_ptr<Session> session, const TierBinding& binding);
  Status begin_copying(bool has_restored);
  void end_session();
  void look_after_copies();
  bool has_lost_copies() const;
  bool is_store_gone();
  void open_lost(const std::string& store_id);
  void save_lost();
  void adapt_rate();
  Status do_set(const TierSet& set);
  Status wait_for_end_of(ObjectStore& objects, const std::string& array);
  Status begin_restoring(ObjectStore& objects, const TierSet& set, const TierIdentity& made, TierBinding& binding);
  Result<std::string> array_to_restore(ObjectStore& objects, const TierSet& set, const TierIdentity& made);
  std::string describe_arrays(ObjectStore& objects, const std::vector<std::string>& arrays);
  Status check_place(const TierSet& set);
  Status check_restorable(ObjectStore& objects, const TierSet& set);
  Result<std::optional<TierManifest>> manifest_of(ObjectStore& objects, const ObjectInfo& object);
  Status check_nothing_is_away(ObjectStore& objects, const std::string& url);
  Status check_nothing_is_away(const std::string& store_id);

  // array_tier_content.cpp, on the thread too.
  Status restore();
  void make_room();
  Status let_go(const std::string& path);
  Status read_back(const TierReader::Manifest& manifest);
  Result<TierReader::Manifest> find_copy(const std::string& path, const TierNote& note);
  Status do_leave();
  bool is_stopping() const;
  template <typename Answer, typename Start>
  Answer ask(Start start, Clock::time_point until = Clock::time_point::max(), bool while_ending = false);

  bool is_required() const { return options_.required.value_or(!options_.url.empty() && !is_read_only_); }
  TierCopier* copier() const FPFS_REQUIRES(mutex_) { return session_ == nullptr ? nullptr : session_->copier.get(); }
  // What becomes the store's place in messages and notes.
  static std::string place_of(const std::string& url);
  TierStatus::State state_now(const TierStatus& status) const FPFS_REQUIRES(mutex_);

  Environment& environment_;
  Store& store_;
  Storage& outside_;
  const TierOptions options_;
  const bool is_read_only_;  // the mount: nothing is copied, and copies are read
  const std::shared_ptr<AwaitedChunkSource> awaited_ = std::make_shared<AwaitedChunkSource>();

  Mutex named_mutex_;  // held while it is told, which may wait for requests to be answered; above mutex_
  RestoredTree::Named named_ FPFS_GUARDED_BY(named_mutex_);
  mutable Mutex mutex_;  // above all of the engine's
  CondVar changed_;
  std::thread thread_ FPFS_GUARDED_BY(mutex_);
  bool stopping_ FPFS_GUARDED_BY(mutex_) = false;
  bool ended_ FPFS_GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> tasks_ FPFS_GUARDED_BY(mutex_);
  std::string url_ FPFS_GUARDED_BY(mutex_);  // empty: none
  std::string place_ FPFS_GUARDED_BY(mutex_);
  std::string store_id_ FPFS_GUARDED_BY(mutex_);
  std::unique_ptr<Session> session_ FPFS_GUARDED_BY(mutex_);
  std::shared_ptr<TierLost> lost_ FPFS_GUARDED_BY(mutex_);  // of a store that is shared, also while it is away
  std::function<void(uint64_t inode)> moved_ FPFS_GUARDED_BY(mutex_);
  std::atomic<bool> has_session_{false};
  bool is_resting_ FPFS_GUARDED_BY(mutex_) = false;       // looks now and then only, until there is a commit
  std::vector<Waiting> waiting_ FPFS_GUARDED_BY(mutex_);  // for a session
  // Of a session that the store has ended, until it is known why.
  std::vector<Waiting> interrupted_ FPFS_GUARDED_BY(mutex_);
  int64_t uncopied_since_s_ FPFS_GUARDED_BY(mutex_) = 0;  // while there is no copier to ask
  // Of trying to connect.
  bool was_tried_ FPFS_GUARDED_BY(mutex_) = false;
  Status failure_ FPFS_GUARDED_BY(mutex_);
  int64_t failed_at_s_ FPFS_GUARDED_BY(mutex_) = 0;
  Status gives_nothing_ FPFS_GUARDED_BY(mutex_);  // why the store of a session does not, until it does
  uint64_t failures_ FPFS_GUARDED_BY(mutex_) = 0;
  unsigned attempts_ FPFS_GUARDED_BY(mutex_) = 0;
  Clock::time_point next_try_ FPFS_GUARDED_BY(mutex_);
  // The thread's own: what the array remembers, and when it got the last fence.
  TierBinding binding_;
  bool has_no_fence_ = false;  // it could not remember one, and the store has none
  Clock::time_point fenced_at_{};
  uint64_t fenced_progress_ = 0;
  Clock::time_point lost_saved_at_{};
  uint64_t without_copy_ = 0;  // of the store's counter, at the last look
  Clock::time_point doubted_at_{};
  // Of the rate: the thread's own, but for is_paced_.
  uint64_t saved_before_ = 0;
  Clock::time_point looked_at_{}, saved_at_{};
  std::atomic<bool> is_paced_{false};
  unsigned fetches_ FPFS_GUARDED_BY(mutex_) = 0;  // fetch_begins()
  // Of content that leaves and comes back.
  std::shared_ptr<TierRestore> restore_ FPFS_GUARDED_BY(mutex_);  // the last one
  std::atomic<uint64_t> files_left_{0}, bytes_left_{0};
  std::atomic<uint64_t> files_pinned_{0}, bytes_pinned_{0}, pin_changes_{0};
  Clock::time_point makes_room_at_{};  // the thread's own
  uint64_t made_room_progress_ = UINT64_MAX;
};

// Starts a call of the store and waits for its answer, but not for longer than `until`, nor than the mount lasts unless
// it is `while_ending`: a filesystem may hang.
template <typename Answer, typename Start>
Answer ArrayTier::Impl::ask(Start start, Clock::time_point until, bool while_ending) {
  struct Box {
    Mutex mutex;
    CondVar arrived;
    std::optional<Answer> answer FPFS_GUARDED_BY(mutex);
  };
  const auto box = std::make_shared<Box>();
  start([box](Answer answer) {
    const MutexLock lock(box->mutex);
    box->answer = std::move(answer);
    box->arrived.notify_all();
  });
  for (;;) {
    {
      const MutexLock lock(box->mutex);
      if (!box->answer.has_value()) box->arrived.wait_for(box->mutex, std::chrono::milliseconds(50));
      if (box->answer.has_value()) return *std::move(box->answer);
    }
    if (!while_ending && is_stopping()) return Status::error(StatusCode::kCancelled, "the mount is ending");
    if (Clock::now() >= until) return Status::error(StatusCode::kUnreachable, "tier: the store does not answer");
  }
}

}  // namespace fpfs
