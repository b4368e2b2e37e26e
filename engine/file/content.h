// Content: what an open file holds, as the next reader sees it: identity, size, times, where each chunk is stored, or
// the content that the sidecar carries; and the edit since the last consistent point, which the next record describes.
//
// An extent that was written since the last consistent point (is_new) is in nobody's record: its place may be written
// again. Places of all others stay as they are until a commit that does not name them is durable.
//
// Thread safety: none; the file's lock. No I/O.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>
#include <vector>

#include "engine/index/extent_table.h"
#include "engine/index/sidecar.h"
#include "engine/layout/stripe.h"

namespace fpfs {

// When a file last changed (stat's ctime). A commit moves the sidecar's own change time although the content changed
// earlier: as long as the sidecar's is still `own`, which the commit left behind, the file's is `shown`.
struct ChangeTime {
  struct timespec own {};
  struct timespec shown {};

  static bool is_before(const struct timespec& a, const struct timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
  }
  static bool is_same(const struct timespec& a, const struct timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  }
  // What to show when the sidecar's own is `ctime`: later changes of attributes count as well.
  struct timespec show(const struct timespec& ctime) const {
    return is_same(ctime, own) || is_before(ctime, shown) ? shown : ctime;
  }
};

class Content {
 public:
  // What became different since a consistent point.
  struct Edit {
    // Every extent from here on went, before the ones of `chunks` came.
    std::optional<ChunkIndex> truncated_from;
    std::vector<ChunkIndex> chunks;  // whose extent is another, or gone; in any order, some repeatedly
  };

  explicit Content(const StripeMap& stripes) : stripes_(stripes) {}  // outlives it

  // Becomes what a sidecar says, with nothing edited; times stay. The entries of its index are counted in
  // `index_entries`.
  void load(FileImage image, std::atomic<uint64_t>& index_entries);

  // --- identity: of the objects that hold it, and of the seeds of its checksums ------------------------------------
  FileId file_id() const { return file_id_; }  // 0: not chosen yet
  void set_file_id(FileId id) { file_id_ = id; }
  Generation generation() const { return generation_; }
  void set_generation(Generation generation) { generation_ = generation; }

  // --- size and times ----------------------------------------------------------------------------------------------
  uint64_t size() const { return end_.value(); }
  FileOffset end() const { return end_; }
  // The size when bytes up to `written_end` are written.
  uint64_t size_with(FileOffset written_end) const { return std::max(end_, written_end).value(); }
  // How many of the bytes [offset, offset + length) there are.
  uint64_t length_within(FileOffset offset, uint64_t length) const {
    return offset < end_ ? std::min(length, end_ - offset) : 0;
  }
  uint64_t committed_size() const { return committed_size_; }
  void set_committed_size(uint64_t size) { committed_size_ = size; }
  // Bytes up to `written_end` were written.
  void grow_to(FileOffset written_end) { end_ = std::max(end_, written_end); }
  const struct timespec& mtime() const { return mtime_; }
  void set_mtime(const struct timespec& mtime) {
    mtime_ = mtime;
    is_mtime_open_ = false;
  }
  // The modification time is that of the last change, and nobody was told of it: a moment later will do as well.
  bool is_mtime_open() const { return is_mtime_open_; }
  // Somebody is told of it.
  void tell_mtime() { is_mtime_open_ = false; }
  // It was changed a moment ago: at `mtime`, then, and it is not open any more. False: it is not, or that is no moment.
  bool move_mtime(const struct timespec& mtime);
  const ChangeTime& change_time() const { return change_time_; }
  void set_change_time(const ChangeTime& time) { change_time_ = time; }
  // A commit moved the sidecar's own change time from `before` to `own`.
  void note_sidecar_change(const struct timespec& before, const struct timespec& own);
  // The newest change, and the oldest that no consistent point covers.
  const struct timespec& changed_at() const { return changed_at_; }
  const struct timespec& edited_since() const { return edited_since_; }

  // --- where it is ---------------------------------------------------------------------------------------------------
  const ExtentTable& extents() const { return extents_; }
  Extent extent(ChunkIndex chunk) const { return extents_.get(chunk); }
  // The index, and none from then on: clear() follows. Its entries go on being counted in `index_entries`.
  ExtentTable take_extents(std::atomic<uint64_t>& index_entries);
  Extent last_extent() const;  // of the end of the content
  bool is_new(const Extent& extent) const { return extent.epoch == epoch_; }
  uint32_t epoch() const { return epoch_; }  // what extents that are written now carry
  // Bytes of the drives that it takes.
  uint64_t allocated_bytes() const { return extents_.allocated_bytes() + round_up(inline_length_, 512); }
  // How far the stored content of a chunk goes; behind it are zeros. 0: nothing of it is stored.
  uint32_t stored_end(ChunkIndex chunk) const;
  bool is_stored(ChunkIndex chunk) const {
    return extents_.get(chunk).exists() || (chunk == ChunkIndex(0) && is_inline_);
  }

  // --- content in the sidecar ----------------------------------------------------------------------------------------
  // Chunk 0 is all there is, and lies, or will lie when the commit under way has written it, in the record at
  // inline_place(); of that the first inline_length() bytes count.
  bool is_inline() const { return is_inline_; }
  uint32_t inline_length() const { return inline_length_; }
  const RecordPlace& inline_place() const { return inline_place_; }
  // The chunk is that content, and there is some.
  bool is_in_sidecar(ChunkIndex chunk) const { return chunk == ChunkIndex(0) && is_inline_ && inline_length_ > 0; }
  void set_inline(uint32_t length) {
    is_inline_ = true;
    inline_length_ = length;
  }
  void set_inline_place(const RecordPlace& place) { inline_place_ = place; }
  // It goes to the members, or is gone.
  void forget_inline() {
    is_inline_ = false;
    inline_length_ = 0;
  }

  // --- changes -------------------------------------------------------------------------------------------------------
  // There is an edit.
  bool is_edited() const { return is_edited_; }
  // It took the place of the whole content.
  bool is_replaced() const { return is_replaced_; }
  // Something changed at `now`. Before every change but those of extents.
  void note_change(const struct timespec& now);
  // The same content lies elsewhere: an edit that changes neither content nor times.
  void note_moved() { is_edited_ = true; }
  // The edit is more than that.
  bool is_changed() const { return is_changed_; }
  // The extent of `chunk` is this one from here on, which `edit` (this one's own, or of the commit that it was written
  // for) will say.
  void set_extent(ChunkIndex chunk, const Extent& extent, Edit& edit);
  Edit& edit() { return edit_; }
  // A new extent whose place is written again: there is none until that has ended.
  void lift(ChunkIndex chunk) { extents_.set(chunk, Extent()); }
  // Cuts at `new_end`, before end(). visit(extent) for each extent that goes; the one that the cut goes through stays,
  // and less of it counts.
  template <typename Visit>
  void truncate(FileOffset new_end, Visit visit);
  // All of it goes, without a word about extents: it gets other objects, of the next generation if `had_objects`.
  void clear(bool had_objects);
  // Chunks [first, stop) go.
  template <typename Visit>
  void punch(ChunkIndex first, ChunkIndex stop, Visit visit);
  // Made longer, by nothing; or, after clear(), of no bytes.
  void set_end(FileOffset new_end) { end_ = new_end; }
  // A consistent point: what is edited from here on is another edit.
  Edit take_edit();
  // The edit is given up; load() of what is committed follows.
  void drop_edit();

 private:
  const StripeMap& stripes_;
  FileId file_id_;
  Generation generation_;
  FileOffset end_;
  uint64_t committed_size_ = 0;
  struct timespec mtime_ {};
  bool is_mtime_open_ = false;
  ChangeTime change_time_;
  struct timespec changed_at_ {
  }, edited_since_{};
  ExtentTable extents_;
  uint32_t epoch_ = 1;
  bool is_inline_ = false;
  uint32_t inline_length_ = 0;
  RecordPlace inline_place_;
  bool is_edited_ = false;
  bool is_changed_ = false;
  bool is_replaced_ = false;
  Edit edit_;
};

template <typename Visit>
void Content::truncate(FileOffset new_end, Visit visit) {
  const ChunkIndex boundary = stripes_.chunk_of(new_end);
  const uint32_t kept = stripes_.offset_in_chunk(new_end);
  const ChunkIndex first = kept > 0 ? boundary + 1 : boundary;
  extents_.remove_from(first, [&visit](ChunkIndex, const Extent& extent) { visit(extent); });
  edit_.truncated_from = first < edit_.truncated_from.value_or(first) ? first : edit_.truncated_from.value_or(first);
  Extent extent = extents_.get(boundary);
  if (kept > 0 && extent.exists() && extent.visible_length > kept) {
    extent.visible_length = kept;
    set_extent(boundary, extent, edit_);
  }
  end_ = new_end;
  inline_length_ = static_cast<uint32_t>(length_within(FileOffset(0), inline_length_));
}

template <typename Visit>
void Content::punch(ChunkIndex first, ChunkIndex stop, Visit visit) {
  if (first == ChunkIndex(0)) forget_inline();
  std::vector<ChunkIndex> punched;
  extents_.for_each(first, [&punched, stop](ChunkIndex chunk, const Extent&) {
    if (chunk < stop) punched.push_back(chunk);
    return chunk < stop;
  });
  for (ChunkIndex chunk : punched) {
    visit(extents_.get(chunk));
    set_extent(chunk, Extent(), edit_);
  }
}

}  // namespace fpfs
