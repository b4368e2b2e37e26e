#include "engine/io/sim/sim_content.h"

#include <algorithm>

#include "engine/base/units.h"

namespace fpfs {

namespace {

// How generous one power cut is to one file, in percent of what survives. Extremes are common in life and catch other
// mistakes than an even mixture does.
unsigned draw_survival(SimRandom& random) {
  constexpr unsigned kPercents[] = {0, 10, 50, 90, 100};
  return kPercents[random.below(std::size(kPercents))];
}

uint64_t draw_size(SimRandom& random, unsigned survival, uint64_t old_size, uint64_t new_size) {
  if (random.chance(survival)) return new_size;
  if (random.chance(50)) return old_size;
  return std::min(new_size, round_up(random.between(old_size, new_size), SimContent::kSectorSize));
}

}  // namespace

void SimContent::apply(const Change& change, SparseImage& image) {
  switch (change.kind) {
    case Change::Kind::kWrite:
      return image.write(change.offset, change.data);
    case Change::Kind::kSetSize:
      return image.set_size(change.offset);
    case Change::Kind::kAllocate:
      return image.allocate(change.offset, change.length, change.keep_size);
    case Change::Kind::kPunch:
      return image.punch(change.offset, change.length);
  }
}

void SimContent::record(Change change) {
  apply(change, visible_);
  changes_.push_back(std::move(change));
}

void SimContent::write(uint64_t offset, std::span<const std::byte> data) {
  record({.offset = offset, .length = data.size(), .data = {data.begin(), data.end()}});
}

void SimContent::set_size(uint64_t size) {
  record({.kind = Change::Kind::kSetSize, .offset = size, .data = {}});
}

void SimContent::allocate(uint64_t offset, uint64_t length, bool keep_size) {
  record({.kind = Change::Kind::kAllocate, .keep_size = keep_size, .offset = offset, .length = length, .data = {}});
}

void SimContent::punch(uint64_t offset, uint64_t length) {
  record({.kind = Change::Kind::kPunch, .offset = offset, .length = length, .data = {}});
}

// Extents that were not logged are lost like sectors that were not written; a smaller unit than any filesystem's is the
// harder test.
void SimContent::clone(uint64_t offset, std::span<const std::byte> data) {
  set_may_share();
  write(offset, data);
}

void SimContent::begin_write(uint64_t transfer, uint64_t offset, std::span<const std::byte> data) {
  in_flight_[transfer] = {.offset = offset, .length = data.size(), .data = {data.begin(), data.end()}};
}

void SimContent::finish_write(uint64_t transfer) {
  abort_write(transfer, in_flight_.at(transfer).length);
}

void SimContent::abort_write(uint64_t transfer, uint64_t bytes) {
  Change change = std::move(in_flight_.extract(transfer).mapped());
  change.data.resize(bytes);
  change.length = bytes;
  if (bytes > 0) record(std::move(change));
}

void SimContent::sync() {
  if (diverged_) {
    for (const Change& change : changes_) apply(change, durable_);
  } else if (!changes_.empty()) {
    durable_ = visible_;
  }
  changes_.clear();
}

void SimContent::sync_failed(SimRandom& random) {
  for (const Change& change : changes_)
    if (random.chance(30)) apply(change, durable_);
  changes_.clear();
  diverged_ = true;
  if (random.chance(30)) drop_cache();
}

// The size is the inode's, which stays in memory.
void SimContent::drop_cache() {
  if (!diverged_ || !changes_.empty()) return;
  const uint64_t size = visible_.size();
  visible_ = durable_;
  visible_.set_size(size);
}

void SimContent::crash(SimRandom& random) {
  for (auto& [transfer, change] : in_flight_) changes_.push_back(std::move(change));
  in_flight_.clear();
  const unsigned survival = draw_survival(random);

  // For each sector: how many writes went to it, then how many of those reached the drive.
  std::map<uint64_t, unsigned> sector_writes;
  for (const Change& change : changes_)
    if (change.kind == Change::Kind::kWrite)
      for (uint64_t s = change.offset / kSectorSize; s * kSectorSize < change.offset + change.length; ++s)
        ++sector_writes[s];
  for (auto& [sector, writes] : sector_writes)
    if (!random.chance(survival)) writes = static_cast<unsigned>(random.below(writes));

  for (const Change& change : changes_) {
    if (change.kind != Change::Kind::kWrite) {
      if (random.chance(survival)) apply(change, durable_);
      continue;
    }
    const uint64_t end = change.offset + change.length;
    if (end > durable_.size()) durable_.set_size(draw_size(random, survival, durable_.size(), end));
    for (uint64_t s = change.offset / kSectorSize; s * kSectorSize < end; ++s) {
      unsigned& left = sector_writes[s];
      if (left == 0) continue;
      --left;
      const uint64_t from = std::max(change.offset, s * kSectorSize);
      const uint64_t to = std::min({end, (s + 1) * kSectorSize, durable_.size()});
      if (from < to) durable_.write(from, std::span(change.data).subspan(from - change.offset, to - from));
    }
  }
  changes_.clear();
  visible_ = durable_;
  diverged_ = false;
}

void SimContent::end_transfers(SimRandom& random) {
  while (!in_flight_.empty()) {
    const auto [transfer, change] = *in_flight_.begin();
    abort_write(transfer, random.chance(50) ? change.length : 0);
  }
}

void SimContent::flip_bit(uint64_t offset, unsigned bit) {
  for (SparseImage* image : {&visible_, &durable_}) {
    if (offset >= image->size()) continue;
    std::byte byte;
    image->read(offset, {&byte, 1});
    byte ^= std::byte{1} << (bit % 8);
    image->write(offset, {&byte, 1});
  }
}

}  // namespace fpfs
