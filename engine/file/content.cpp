#include "engine/file/content.h"

#include <utility>

namespace fpfs {

void Content::load(FileImage image, std::atomic<uint64_t>& index_entries) {
  file_id_ = image.file_id;
  generation_ = image.generation;
  end_ = FileOffset(image.size);
  committed_size_ = image.size;
  is_inline_ = image.is_inline;
  inline_length_ = static_cast<uint32_t>(image.inline_data.size());
  inline_place_ = {image.record_offset, image.end};
  extents_ = std::move(image.extents);
  extents_.count_in(index_entries);
}

ExtentTable Content::take_extents(std::atomic<uint64_t>& index_entries) {
  ExtentTable taken = std::exchange(extents_, ExtentTable());
  extents_.count_in(index_entries);
  return taken;
}

Extent Content::last_extent() const {
  return extents_.get(end_ > FileOffset(0) ? stripes_.chunk_of(end_ - 1) : ChunkIndex(0));
}

uint32_t Content::stored_end(ChunkIndex chunk) const {
  if (is_in_sidecar(chunk)) return inline_length_;
  const Extent extent = extents_.get(chunk);
  return extent.exists() ? extent.visible_length : 0;
}

void Content::note_change(const struct timespec& now) {
  mtime_ = change_time_.shown = changed_at_ = now;
  is_mtime_open_ = true;
  if (!is_edited_) edited_since_ = now;
  is_edited_ = is_changed_ = true;
}

bool Content::move_mtime(const struct timespec& mtime) {
  constexpr int64_t kMoment = 10'000'000;  // the longest tick of a kernel, which is what its stamps are rounded to
  if (!is_mtime_open_ || mtime.tv_sec < mtime_.tv_sec || mtime.tv_sec - mtime_.tv_sec > 1) return false;
  const int64_t later = (mtime.tv_sec - mtime_.tv_sec) * 1'000'000'000 + (mtime.tv_nsec - mtime_.tv_nsec);
  if (later < 0 || later >= kMoment) return false;
  set_mtime(mtime);
  if (ChangeTime::is_before(change_time_.shown, mtime)) change_time_.shown = mtime;
  return true;
}

void Content::note_sidecar_change(const struct timespec& before, const struct timespec& own) {
  change_time_.shown = change_time_.show(before);
  change_time_.own = own;
}

void Content::set_extent(ChunkIndex chunk, const Extent& extent, Edit& edit) {
  extents_.set(chunk, extent);
  edit.chunks.push_back(chunk);
}

void Content::clear(bool had_objects) {
  forget_inline();
  extents_.clear();
  edit_ = {.truncated_from = ChunkIndex(0), .chunks = {}};
  is_replaced_ = true;
  if (had_objects) ++generation_;
}

Content::Edit Content::take_edit() {
  is_edited_ = is_changed_ = is_replaced_ = false;
  ++epoch_;
  return std::exchange(edit_, {});
}

void Content::drop_edit() {
  static_cast<void>(take_edit());
}

}  // namespace fpfs
