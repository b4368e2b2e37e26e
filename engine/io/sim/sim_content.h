// SimContent: the content of one simulated file in its two states: what calls see, and what survives a power cut.
//
// Everything done since the last sync is kept as an ordered list of changes. A power cut then decides, for every
// 512-byte sector, which of the writes to it reached the drive (none, or all up to some point: a sector is written
// whole, so a later version contains the earlier ones); for every size change, allocation and punch whether it did; for
// every extending write how much of the new size did. Sectors inside the surviving size that were not written read as
// zeros.
//
// Transfers on the drive (IoQueue) are kept apart until they complete: calls do not see them and no sync covers them,
// but a power cut may leave any of their sectors.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/io/sim/sim_random.h"
#include "engine/io/sim/sparse_image.h"

namespace fpfs {

class SimContent {
 public:
  static constexpr uint64_t kSectorSize = 512;

  const SparseImage& visible() const { return visible_; }
  const SparseImage& durable() const { return durable_; }
  void write(uint64_t offset, std::span<const std::byte> data);
  void set_size(uint64_t size);
  void allocate(uint64_t offset, uint64_t length, bool keep_size);
  void punch(uint64_t offset, uint64_t length);
  // The bytes are another file's, which has them in the same blocks; a power cut may lose any of them until a sync.
  void clone(uint64_t offset, std::span<const std::byte> data);
  // It was cloned from or to. (As often as not nothing is shared any more; a caller must not mind.)
  bool may_share() const { return may_share_; }
  void set_may_share() { may_share_ = true; }

  // A transfer: begin_write() when the drive gets it, then one of the two others.
  void begin_write(uint64_t transfer, uint64_t offset, std::span<const std::byte> data);
  std::span<const std::byte> in_flight(uint64_t transfer) const { return in_flight_.at(transfer).data; }
  void finish_write(uint64_t transfer);
  // Only the first `bytes` were written (a failed or short transfer).
  void abort_write(uint64_t transfer, uint64_t bytes);

  // Everything completed so far becomes durable.
  void sync();
  // A sync failed: what the drive did not take is lost for ever, and no later sync brings it back. Calls still see it
  // (what Linux does: the pages are marked clean), until they are dropped from memory.
  void sync_failed(SimRandom& random);
  // What is in memory and need not be written is forgotten: calls see what is on the drive.
  void drop_cache();
  // Power is cut: decides what survived; calls see that from now on.
  void crash(SimRandom& random);
  // Only the process is gone: each transfer under way ends as a whole or did not begin; nothing else changes.
  void end_transfers(SimRandom& random);
  // Damages both states.
  void flip_bit(uint64_t offset, unsigned bit);
  bool has_unsynced() const { return !changes_.empty() || !in_flight_.empty(); }

 private:
  struct Change {
    enum class Kind : uint8_t { kWrite, kSetSize, kAllocate, kPunch } kind = Kind::kWrite;
    bool keep_size = false;
    uint64_t offset = 0;  // kSetSize: the size
    uint64_t length = 0;
    std::vector<std::byte> data;
  };
  static void apply(const Change& change, SparseImage& image);
  void record(Change change);

  SparseImage visible_;
  SparseImage durable_;
  std::vector<Change> changes_;
  std::map<uint64_t, Change> in_flight_;
  bool may_share_ = false;
  bool diverged_ = false;  // a failed sync lost something: durable_ is not visible_ even right after a sync
};

}  // namespace fpfs
