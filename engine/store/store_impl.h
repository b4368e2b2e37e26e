// Store's private part: what open files share, the table of open files, and what happens to all of them.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/file/context.h"
#include "engine/store/file_table.h"
#include "engine/store/store.h"
#include "engine/store/summary_cache.h"

namespace fpfs {

class Store::Impl final : public FileContext {
 public:
  using FileContext::FileContext;

  // FileContext::start(); trickles and members that hang are looked after from then on.
  Status start();
  // Nothing starts by itself any more. Before the store goes.
  void end();
  // Nothing is told about members that hang any more.
  void stop_watching();

  // What a member that is added needs: all but watch_member(), before anybody uses it.
  Status prepare_member(MemberIndex member);
  void watch_member(MemberIndex member);
  // The array's members have changed: from now on files, and what is kept of freed objects, go by them.
  void follow_members();
  // How many bytes the objects on a member take that are moved when it leaves: all but those of files that fsck has set
  // aside.
  Result<uint64_t> bytes_to_move_from(MemberIndex member);
  // kNoSpace: they do not fit on the members that take part and are not `member`, by what is free there now.
  Status check_room_without(MemberIndex member, uint64_t bytes);
  // The member, or the tree that it holds, does not answer.
  bool is_stalled(MemberIndex member) const;
  Status check_holds_nothing();

  // --- FileContext ---------------------------------------------------------------------------------------------------
  void relieve_pressure() override;
  void watch_trickles() override { trickle_timer_.set(); }
  void open_commit_log();
  // A sync of names or of indexes failed: nobody knows what of them is durable.
  void fail_tree(const Status& failure);
  // Syncs its filesystem. When that fails nobody knows which names and lazily appended records are on the drive.
  Status sync_tree() override;

  FileTable files;
  SummaryCache summaries;  // of files that are not among them
  // It is open from now on.
  void insert(const std::shared_ptr<File>& file) {
    files.insert(file);
    summaries.forget(file->inode());  // behind the former: Store::summarize_closed()
  }
  Mutex changing_members;  // one change at a time
  // A sync failed that was to cover what had been closed.
  std::atomic<bool> may_have_lost{false};

  // --- what somebody keeps of files without a name -------------------------------------------------------------------
  // With the file's name lock held.
  Removed* find_removed(uint64_t inode);
  void insert_removed(uint64_t inode, Removed& removed);
  void erase_removed(uint64_t inode, const Removed& removed);

 private:
  void start_watching();
  void member_stalled(StallDomain domain);
  bool commit_trickles();

  std::vector<StallWatch::Registration> registrations_;
  RecurringTimer trickle_timer_;  // looks for trickles that are due
  std::atomic<bool> relieving_{false};
  Mutex tree_sync_mutex_;
  Mutex removed_mutex_;
  std::unordered_map<uint64_t, Removed*> removed_ FPFS_GUARDED_BY(removed_mutex_);
};

}  // namespace fpfs
