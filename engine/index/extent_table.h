// Where each chunk of one file is stored, in memory. A map from chunk number to Extent that costs 16 bytes for a chunk
// of a dense file and at most some 40 for one that stands alone, so that memory follows what is stored and not how
// large the file says it is.
//
// Thread safety: none; guarded by the owner (File::mutex_).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/units.h"
#include "engine/codec/codec.h"

namespace fpfs {

struct Extent {
  SlotIndex slot;              // of the file's object on `member`
  uint64_t checksum = 0;       // XXH3 of the stored bytes, seeded by chunk_seed(); away: of the content, without a seed
  uint32_t stored_length = 0;  // bytes on the drive that the checksum covers; the drive holds zeros up to kIoAlignment
  uint32_t raw_length = 0;     // bytes after decoding
  uint32_t visible_length =
      0;  // the first bytes of those that the file still shows; the rest of the chunk reads as zeros
  MemberIndex member;
  Codec codec = Codec::kNone;
  uint32_t epoch = 0;  // in memory only, never encoded: the commit that records it (engine/file)

  bool exists() const { return codec != Codec::kNone; }
  // Content that is on no member: slot, member and stored_length are 0.
  bool is_away() const { return codec == Codec::kAway; }
  bool is_here() const { return exists() && !is_away(); }
  // Bytes of the drive that the extent occupies.
  uint64_t allocated() const { return is_here() ? round_up(stored_length, kIoAlignment) : 0; }
  bool operator==(const Extent&) const = default;
};

class ExtentTable {
 public:
  // Memory for one entry, but for tables of a few.
  static constexpr uint64_t kEntryBytesMax = 40;

  // The extent of a chunk; Extent::exists() is false where there is none.
  Extent get(ChunkIndex chunk) const;
  // Replaces (or, with an extent that does not exist, removes) an entry.
  void set(ChunkIndex chunk, const Extent& extent);
  // Removes every entry at or after `first`, calling `removed` for each.
  void remove_from(ChunkIndex first, const std::function<void(ChunkIndex, const Extent&)>& removed);
  void clear();
  // In ascending chunk order, from `first` on; stops when `visit` returns false.
  void for_each(ChunkIndex first, const std::function<bool(ChunkIndex, const Extent&)>& visit) const;
  uint64_t count() const { return count_.get(); }
  // Sum of Extent::allocated().
  uint64_t allocated_bytes() const { return allocated_; }
  // From now on the entries are counted in `total` as well, which outlives the table. Survives clear(), not a move.
  void count_in(std::atomic<uint64_t>& total) { count_.share(total); }
  // Bytes of memory, as far as they grow with the entries. Looks at every leaf: for tests.
  uint64_t memory_bytes() const;

 private:
  // A number of entries that takes its part in a total.
  class Count {
   public:
    Count() = default;
    Count(Count&& other) noexcept : own_(std::exchange(other.own_, 0)), total_(std::exchange(other.total_, nullptr)) {}
    Count& operator=(Count&& other) noexcept;
    ~Count() { add(-static_cast<int64_t>(own_)); }
    uint64_t get() const { return own_; }
    void add(int64_t change);
    void share(std::atomic<uint64_t>& total);

   private:
    uint64_t own_ = 0;
    std::atomic<uint64_t>* total_ = nullptr;
  };
  // What nearly all chunks of a file differ in, and what few do.
  struct Place {
    uint64_t checksum = 0;
    uint64_t slot_and_member = 0;
  };
  struct Shape {
    uint32_t stored_length = 0, raw_length = 0, visible_length_and_codec = 0, epoch = 0;
    bool operator==(const Shape&) const = default;
  };
  // Up to kLeafEntries neighbours, ascending. A column that says nothing is left out.
  class Leaf {
   public:
    explicit Leaf(ChunkIndex first) : first_(first) {}
    size_t count() const { return places_.size(); }
    ChunkIndex chunk(size_t i) const { return first_ + (distances_.empty() ? i : distances_[i]); }
    ChunkIndex first() const { return chunk(0); }
    ChunkIndex last() const { return chunk(count() - 1); }
    // Of the first entry at or behind `chunk`.
    size_t position(ChunkIndex chunk) const;
    Extent get(size_t i) const;
    void replace(size_t i, const Extent& extent);
    void insert(size_t i, ChunkIndex chunk, const Extent& extent);
    void erase(size_t begin, size_t end);
    // Takes the entries of a leaf that lies behind.
    void append(const Leaf& other);
    // The entries from `begin` on, as a leaf of their own.
    Leaf split(size_t begin);
    uint64_t memory_bytes() const;

   private:
    const Shape& shape(size_t i) const { return shapes_.size() == 1 ? shapes_[0] : shapes_[i]; }
    void spell_out_distances();
    void tidy();

    ChunkIndex first_;
    std::vector<uint32_t> distances_;  // from first_; none while the chunks follow each other
    std::vector<Place> places_;
    std::vector<Shape> shapes_;  // one while all are alike
  };
  using Leaves = std::map<ChunkIndex, Leaf>;

  static constexpr size_t kLeafEntries = 256;
  static bool may_hold(const Leaf& leaf, ChunkIndex chunk);
  Leaves::iterator leaf_for(ChunkIndex chunk);
  Leaves::const_iterator first_at(ChunkIndex chunk) const;
  void insert(ChunkIndex chunk, const Extent& extent);
  void merge(Leaves::iterator leaf);

  Leaves leaves_;  // by the first chunk of each; none is empty
  Count count_;
  uint64_t allocated_ = 0;
};

}  // namespace fpfs
