#include "engine/index/extent_table.h"

#include <algorithm>

#include "engine/base/check.h"

namespace fpfs {

namespace {

// kFileSizeMax over the smallest chunk is below 2^48, the largest chunk below 2^26.
constexpr unsigned kMemberShift = 48;
constexpr uint64_t kSlotMask = (uint64_t{1} << kMemberShift) - 1;
constexpr unsigned kCodecShift = 26;
constexpr uint32_t kLengthMask = (uint32_t{1} << kCodecShift) - 1;
static_assert(sizeof(MemberIndex) <= 2);

template <typename T>
void erase_range(std::vector<T>& column, size_t begin, size_t end) {
  column.erase(column.begin() + static_cast<ptrdiff_t>(begin), column.begin() + static_cast<ptrdiff_t>(end));
  if (column.size() < column.capacity() / 4) column.shrink_to_fit();
}

template <typename T>
void insert_at(std::vector<T>& column, size_t i, const T& value) {
  column.insert(column.begin() + static_cast<ptrdiff_t>(i), value);
}

}  // namespace

// --- counting -------------------------------------------------------------------------------------------------------

ExtentTable::Count& ExtentTable::Count::operator=(Count&& other) noexcept {
  if (this == &other) return *this;
  add(-static_cast<int64_t>(own_));
  own_ = std::exchange(other.own_, 0);
  total_ = std::exchange(other.total_, nullptr);
  return *this;
}

void ExtentTable::Count::add(int64_t change) {
  own_ += static_cast<uint64_t>(change);
  if (total_ != nullptr) total_->fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed);
}

void ExtentTable::Count::share(std::atomic<uint64_t>& total) {
  FPFS_CHECK(total_ == nullptr, "a table is counted once");
  total_ = &total;
  total_->fetch_add(own_, std::memory_order_relaxed);
}

// --- one leaf -------------------------------------------------------------------------------------------------------

size_t ExtentTable::Leaf::position(ChunkIndex chunk) const {
  if (chunk <= first_) return 0;
  if (chunk > last()) return count();
  if (distances_.empty()) return chunk - first_;
  const auto wanted = static_cast<uint32_t>(chunk - first_);
  return static_cast<size_t>(std::lower_bound(distances_.begin(), distances_.end(), wanted) - distances_.begin());
}

Extent ExtentTable::Leaf::get(size_t i) const {
  const Place& place = places_[i];
  const Shape& like = shape(i);
  Extent extent;
  extent.slot = SlotIndex(place.slot_and_member & kSlotMask);
  extent.checksum = place.checksum;
  extent.stored_length = like.stored_length;
  extent.raw_length = like.raw_length;
  extent.visible_length = like.visible_length_and_codec & kLengthMask;
  extent.member = MemberIndex(static_cast<uint16_t>(place.slot_and_member >> kMemberShift));
  extent.codec = static_cast<Codec>(like.visible_length_and_codec >> kCodecShift);
  extent.epoch = like.epoch;
  return extent;
}

void ExtentTable::Leaf::replace(size_t i, const Extent& extent) {
  FPFS_CHECK(extent.slot.value() <= kSlotMask && extent.visible_length <= kLengthMask,
             "an extent lies inside an object");
  places_[i] = {extent.checksum, extent.slot.value() | uint64_t{extent.member.value()} << kMemberShift};
  const Shape wanted{extent.stored_length, extent.raw_length,
                     extent.visible_length | static_cast<uint32_t>(extent.codec) << kCodecShift, extent.epoch};
  if (wanted == shape(i)) return;
  if (count() == 1) {
    shapes_.assign(1, wanted);
    return;
  }
  if (shapes_.size() == 1) shapes_.assign(count(), Shape(shapes_[0]));
  shapes_[i] = wanted;
  // Rewriting a file makes its chunks alike again, the last of a leaf at the end.
  if (i + 1 == count() && std::all_of(shapes_.begin(), shapes_.end(), [&](const Shape& s) { return s == wanted; }))
    std::vector<Shape>(1, wanted).swap(shapes_);
}

void ExtentTable::Leaf::insert(size_t i, ChunkIndex chunk, const Extent& extent) {
  if (count() == 0) {
    first_ = chunk;
    shapes_.resize(1);
  } else if (!distances_.empty() || i < count() || chunk != first_ + i) {
    spell_out_distances();
    if (chunk < first_) {
      const auto shift = static_cast<uint32_t>(first_ - chunk);
      for (uint32_t& distance : distances_) distance += shift;
      first_ = chunk;
    }
    insert_at(distances_, i, static_cast<uint32_t>(chunk - first_));
  }
  if (shapes_.size() > 1) insert_at(shapes_, i, Shape(shapes_[0]));
  insert_at(places_, i, Place());
  replace(i, extent);
  tidy();
}

void ExtentTable::Leaf::erase(size_t begin, size_t end) {
  if (begin == end) return;
  if (distances_.empty() && end < count()) spell_out_distances();
  erase_range(places_, begin, end);
  if (shapes_.size() > 1) erase_range(shapes_, begin, end);
  if (distances_.empty()) return;
  erase_range(distances_, begin, end);
  if (begin > 0 || distances_.empty()) return tidy();
  const uint32_t shift = distances_[0];
  for (uint32_t& distance : distances_) distance -= shift;
  first_ += shift;
  tidy();
}

void ExtentTable::Leaf::append(const Leaf& other) {
  for (size_t i = 0; i < other.count(); ++i) insert(count(), other.chunk(i), other.get(i));
}

ExtentTable::Leaf ExtentTable::Leaf::split(size_t begin) {
  Leaf behind(chunk(begin));
  for (size_t i = begin; i < count(); ++i) behind.insert(i - begin, chunk(i), get(i));
  erase(begin, count());
  return behind;
}

void ExtentTable::Leaf::spell_out_distances() {
  if (!distances_.empty()) return;
  distances_.resize(count());
  for (size_t i = 0; i < count(); ++i) distances_[i] = static_cast<uint32_t>(i);
}

void ExtentTable::Leaf::tidy() {
  if (!distances_.empty() && distances_.back() + size_t{1} == count()) std::vector<uint32_t>().swap(distances_);
}

uint64_t ExtentTable::Leaf::memory_bytes() const {
  constexpr uint64_t kNode = 48;  // of a std::map and an allocation
  return kNode + sizeof(Leaves::value_type) + distances_.capacity() * sizeof(uint32_t) +
         places_.capacity() * sizeof(Place) + shapes_.capacity() * sizeof(Shape);
}

// --- the table ------------------------------------------------------------------------------------------------------

bool ExtentTable::may_hold(const Leaf& leaf, ChunkIndex chunk) {
  return std::max(chunk, leaf.last()) - std::min(chunk, leaf.first()) <= UINT32_MAX;
}

// The last leaf that begins at or before the chunk; end() when there is none.
ExtentTable::Leaves::iterator ExtentTable::leaf_for(ChunkIndex chunk) {
  auto behind = leaves_.upper_bound(chunk);
  return behind == leaves_.begin() ? leaves_.end() : std::prev(behind);
}

// The first leaf that may have an entry at or behind the chunk.
ExtentTable::Leaves::const_iterator ExtentTable::first_at(ChunkIndex chunk) const {
  const auto behind = leaves_.upper_bound(chunk);
  return behind == leaves_.begin() ? behind : std::prev(behind);
}

Extent ExtentTable::get(ChunkIndex chunk) const {
  const auto leaf = first_at(chunk);
  if (leaf == leaves_.end()) return {};
  const size_t i = leaf->second.position(chunk);
  return i < leaf->second.count() && leaf->second.chunk(i) == chunk ? leaf->second.get(i) : Extent();
}

void ExtentTable::set(ChunkIndex chunk, const Extent& extent) {
  const auto leaf = leaf_for(chunk);
  const size_t i = leaf == leaves_.end() ? 0 : leaf->second.position(chunk);
  const bool is_there = leaf != leaves_.end() && i < leaf->second.count() && leaf->second.chunk(i) == chunk;
  if (is_there) allocated_ -= leaf->second.get(i).allocated();
  allocated_ += extent.allocated();
  if (extent.exists()) {
    if (is_there) return leaf->second.replace(i, extent);
    count_.add(1);
    return insert(chunk, extent);
  }
  if (!is_there) return;
  count_.add(-1);
  if (leaf->second.count() == 1) {
    leaves_.erase(leaf);
    return;
  }
  leaf->second.erase(i, i + 1);
  if (i > 0) return merge(leaf);
  auto node = leaves_.extract(leaf);
  node.key() = node.mapped().first();
  merge(leaves_.insert(std::move(node)).position);
}

// A stream fills one leaf after the other, forwards or backwards; only what comes in between splits one.
void ExtentTable::insert(ChunkIndex chunk, const Extent& extent) {
  const auto before = leaf_for(chunk);
  if (before != leaves_.end() && may_hold(before->second, chunk)) {
    Leaf& leaf = before->second;
    if (leaf.count() < kLeafEntries) return leaf.insert(leaf.position(chunk), chunk, extent);
    if (chunk < leaf.last()) {
      Leaf behind = leaf.split(kLeafEntries / 2);
      Leaf& half = chunk < behind.first() ? leaf : behind;
      half.insert(half.position(chunk), chunk, extent);
      const ChunkIndex key = behind.first();
      leaves_.emplace(key, std::move(behind));
      return;
    }
  }
  const auto after = leaves_.upper_bound(chunk);
  if (after != leaves_.end() && after->second.count() < kLeafEntries && may_hold(after->second, chunk)) {
    auto node = leaves_.extract(after);
    node.mapped().insert(0, chunk, extent);
    node.key() = chunk;
    leaves_.insert(std::move(node));
    return;
  }
  leaves_.emplace(chunk, Leaf(chunk)).first->second.insert(0, chunk, extent);
}

// Keeps leaves that have become small from being many.
void ExtentTable::merge(Leaves::iterator leaf) {
  const auto behind = std::next(leaf);
  if (behind == leaves_.end() || leaf->second.count() + behind->second.count() > kLeafEntries / 4) return;
  if (!may_hold(leaf->second, behind->second.last())) return;
  leaf->second.append(behind->second);
  leaves_.erase(behind);
}

void ExtentTable::remove_from(ChunkIndex first, const std::function<void(ChunkIndex, const Extent&)>& removed) {
  auto leaf = leaf_for(first);
  if (leaf == leaves_.end()) leaf = leaves_.begin();
  while (leaf != leaves_.end()) {
    Leaf& entries = leaf->second;
    const size_t begin = entries.position(first);
    for (size_t i = begin; i < entries.count(); ++i) {
      const Extent gone = entries.get(i);
      count_.add(-1);
      allocated_ -= gone.allocated();
      if (removed) removed(entries.chunk(i), gone);
    }
    if (begin > 0) entries.erase(begin, entries.count());
    leaf = begin > 0 ? std::next(leaf) : leaves_.erase(leaf);
  }
}

void ExtentTable::clear() {
  leaves_.clear();
  count_.add(-static_cast<int64_t>(count_.get()));
  allocated_ = 0;
}

void ExtentTable::for_each(ChunkIndex first, const std::function<bool(ChunkIndex, const Extent&)>& visit) const {
  for (auto leaf = first_at(first); leaf != leaves_.end(); ++leaf)
    for (size_t i = leaf->second.position(first); i < leaf->second.count(); ++i)
      if (!visit(leaf->second.chunk(i), leaf->second.get(i))) return;
}

uint64_t ExtentTable::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [first, leaf] : leaves_) bytes += leaf.memory_bytes();
  return bytes;
}

}  // namespace fpfs
