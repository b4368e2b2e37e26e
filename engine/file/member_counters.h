// ArrayCounters: what was transferred to and from each member of an array since it was opened, and what failed: figures
// for whoever watches the array. Nothing is decided by them.
//
// Failures at the tree count against the member that holds it; against none when that is a directory of its own.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/array/array.h"
#include "engine/base/status.h"

namespace fpfs {

struct MemberCounters {
  std::atomic<uint64_t> bytes_read{0}, bytes_written{0};
  std::atomic<uint64_t> bytes_saved{0};  // of those written: without what is fetched, healed or moved
  std::atomic<uint64_t> read_errors{0}, write_errors{0}, sync_errors{0}, checksum_errors{0};
};

class ArrayCounters {
 public:
  explicit ArrayCounters(const Array& array)
      : of_members_(array.member_capacity()), tree_(array.superblock().metadata_member) {}

  // Chunks that could not be read from their members (ChunkHealer): whose bytes came from a copy, those of them that
  // are on their members again, and those that no copy helped with.
  std::atomic<uint64_t> chunks_from_copy{0}, chunks_healed{0}, chunks_without_copy{0};
  std::atomic<uint64_t> chunks_fetched{0};  // that were away
  std::atomic<uint64_t> index_errors{0};    // sidecars that were read from their drive, and make no sense
  std::atomic<uint64_t> chunks_moved{0};    // to another member
  // Chunks that were stored smaller: how many, their content, and what is stored of it.
  std::atomic<uint64_t> chunks_encoded{0}, bytes_before_encoding{0}, bytes_encoded{0};

  MemberCounters& operator[](MemberIndex member) { return of_members_[member]; }
  // What failed so far is known to whoever watches: counts from 0 again.
  void clear_errors() {
    for (const MemberIndex m : of_members_.indices()) {
      MemberCounters& counters = of_members_[m];
      for (std::atomic<uint64_t>* count :
           {&counters.read_errors, &counters.write_errors, &counters.sync_errors, &counters.checksum_errors})
        count->store(0, std::memory_order_relaxed);
    }
    for (std::atomic<uint64_t>* count : {&chunks_from_copy, &chunks_healed, &chunks_without_copy, &index_errors})
      count->store(0, std::memory_order_relaxed);
  }
  // A sidecar or a directory could not be written or synced.
  void count_tree_error() {
    if (tree_ != kMetadataOnlyMember) of_members_[tree_].sync_errors.fetch_add(1, std::memory_order_relaxed);
  }
  // What a sidecar holds was read from its drive, and is wrong or cannot be read.
  void count_tree_read_error(const Status& failure) {
    if (tree_ == kMetadataOnlyMember) return;
    MemberCounters& counters = of_members_[tree_];
    (failure.code() == StatusCode::kCorruption ? counters.checksum_errors : counters.read_errors)
        .fetch_add(1, std::memory_order_relaxed);
  }

 private:
  PerMember<MemberCounters> of_members_;
  const MemberIndex tree_;  // that holds it, or kMetadataOnlyMember
};

}  // namespace fpfs
