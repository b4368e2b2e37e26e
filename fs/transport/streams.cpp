#include "fs/transport/streams.h"

#include <algorithm>
#include <utility>

namespace fpfs {

void Streams::expect(Claim& claim) {
  if (active() == 0) return;
  const MutexLock lock(mutex_);
  Stream* next = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    Stream& stream = streams_[i];
    if (stream.claim == nullptr && stream.misses < kMissesMax && (next == nullptr || comes_before(stream, *next)) &&
        !stream.file.expired())
      next = &stream;
  }
  if (next == nullptr) return;
  claim.file_ = next->file.lock();
  if (claim.file_ == nullptr) return;
  claim.handle_ = claim.claimed_ = next->handle;
  claim.offset_ = next->end;
  next->claim = &claim;
}

void Streams::received(Claim& claim, uint64_t handle, const std::shared_ptr<File>& file, FileOffset end) {
  const MutexLock lock(mutex_);
  settle(claim, handle, true);
  Stream* stream = find(handle);
  if (stream == nullptr) stream = &add(handle);
  stream->seen = ++requests_;
  stream->in_hand = true;
  stream->turn = ++turns_;
  stream->misses = 0;
  stream->shorts = 0;
  stream->end = end;
  if (stream->file.owner_before(file) || file.owner_before(stream->file)) stream->file = file;
  end_quiet();
  active_.store(count_, std::memory_order_relaxed);
}

bool Streams::received_short(Claim& claim, uint64_t handle, FileOffset begin, FileOffset end) {
  if (active() == 0 && claim.file_ == nullptr) return false;
  const MutexLock lock(mutex_);
  Stream* const stream = find(handle);
  const bool goes_on = stream != nullptr && stream->end == begin && stream->shorts < kShortsMax;
  settle(claim, goes_on ? handle : 0, false);
  if (stream != nullptr && stream->shorts == kShortsMax) stream->misses = kMissesMax;
  if (!goes_on) return false;
  ++stream->shorts;
  stream->in_hand = true;
  stream->turn = ++turns_;
  stream->end = end;
  return true;
}

void Streams::handled(uint64_t handle) {
  if (active() == 0) return;
  const MutexLock lock(mutex_);
  Stream* const stream = find(handle);
  if (stream == nullptr) return;
  stream->in_hand = false;
  stream->turn = ++turns_;
}

// Who is being answered may come before those that were answered, only they may not be there.
bool Streams::comes_before(const Stream& one, const Stream& other) {
  return one.in_hand != other.in_hand ? other.in_hand : one.turn < other.turn;
}

void Streams::gave_up(Claim& claim) {
  if (claim.file_ == nullptr) return;
  const MutexLock lock(mutex_);
  settle(claim, 0, false);
}

void Streams::end(uint64_t handle) {
  if (active() == 0) return;
  const MutexLock lock(mutex_);
  if (Stream* const stream = find(handle); stream != nullptr) remove(*stream);
  active_.store(count_, std::memory_order_relaxed);
}

// `came`: 0 for nothing. Who sends a short one has sent nothing that another could have.
void Streams::settle(Claim& claim, uint64_t came, bool is_long) {
  Stream* const mine = claimed_by(claim);
  Stream* const theirs = came != 0 && came != claim.claimed_ ? find(came) : nullptr;
  claim.claimed_ = 0;
  if (mine != nullptr) mine->claim = nullptr;
  if (theirs != nullptr && theirs->claim != nullptr) {
    Claim* const other = std::exchange(theirs->claim, nullptr);
    other->claimed_ = mine != nullptr ? mine->handle : 0;
    if (mine != nullptr) mine->claim = other;
  } else if (mine != nullptr && is_long && came != mine->handle) {
    ++mine->misses;
  }
}

Streams::Stream* Streams::find(uint64_t handle) {
  for (unsigned i = 0; i < count_; ++i)
    if (streams_[i].handle == handle) return &streams_[i];
  return nullptr;
}

Streams::Stream* Streams::claimed_by(const Claim& claim) {
  Stream* const stream = claim.claimed_ != 0 ? find(claim.claimed_) : nullptr;
  return stream != nullptr && stream->claim == &claim ? stream : nullptr;  // another of this handle may have begun
}

Streams::Stream& Streams::add(uint64_t handle) {
  if (count_ == kStreamsMax) {
    const auto quietest = std::min_element(streams_.begin(), streams_.end(),
                                           [](const Stream& a, const Stream& b) { return a.seen < b.seen; });
    remove(*quietest);
  }
  Stream& stream = streams_[count_++];
  stream.handle = handle;
  return stream;
}

void Streams::end_quiet() {
  const uint64_t limit = kQuietMin + uint64_t{kQuietTimes} * count_;
  for (unsigned i = count_; i-- > 0;)
    if (requests_ - streams_[i].seen > limit) remove(streams_[i]);
}

void Streams::remove(Stream& stream) {
  Stream& last = streams_[--count_];
  if (&stream != &last) stream = std::move(last);
  last = Stream();
}

void LandingOdds::guessed(bool right) {
  const int credit = credit_.load(std::memory_order_relaxed) + (right ? 1 : -kWrongCosts);
  credit_.store(std::clamp(credit, 0, kCreditMax), std::memory_order_relaxed);
}

}  // namespace fpfs
