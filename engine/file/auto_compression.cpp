#include "engine/file/auto_compression.h"

#include <algorithm>

namespace fpfs {

namespace {

constexpr double kNewest = 1.0 / 16;  // its weight in an average

constexpr uint64_t ns(std::chrono::nanoseconds time) {
  return static_cast<uint64_t>(time.count());
}

}  // namespace

bool AutoCompression::encodes(uint64_t now, size_t bytes, bool drive_is_busy) {
  const MutexLock lock(mutex_);
  note_silence(now);
  if ((phase_ == Phase::kEncoding || phase_ == Phase::kRaw) && now >= until_) phase_ = Phase::kEnding;
  if (phase_ == Phase::kEnding && encoding_ == 0) {
    phase_ = Phase::kLooking;
    begin_ = environment_.processor_times();
    bytes_ = chunks_ = busy_ = 0;
  }
  if (phase_ == Phase::kLooking) look(now, bytes, drive_is_busy);
  if (phase_ != Phase::kEncoding || !drive_is_busy) return false;
  ++encoding_;
  return true;
}

void AutoCompression::note_silence(uint64_t now) {
  const uint64_t silence = now > last_ ? now - last_ : 0;
  last_ = std::max(last_, now);
  if (silence <= ns(kSilence)) return;
  until_ += silence;
  if (phase_ == Phase::kLooking) phase_ = Phase::kEnding;
}

void AutoCompression::look(uint64_t now, size_t bytes, bool drive_is_busy) {
  bytes_ += bytes;
  ++chunks_;
  if (drive_is_busy) ++busy_;
  if (now < begin_.now_ns + ns(kLook)) return;
  if (is_worth_it(environment_.processor_times())) {
    phase_ = Phase::kEncoding;
    until_ = now + ns(while_);
    while_ = std::min(2 * while_, kWhileMax);
  } else {
    phase_ = Phase::kRaw;
    until_ = now + ns(kWhileMin);
    while_ = kWhileMin;
  }
}

bool AutoCompression::is_worth_it(const ProcessorTimes& times) const {
  if (times.idle_ns <= begin_.idle_ns || 2 * busy_ < chunks_) return false;
  return static_cast<double>(times.idle_ns - begin_.idle_ns) >= ns_per_byte_ * static_cast<double>(bytes_);
}

void AutoCompression::encoded(size_t bytes, uint64_t processor_ns) {
  const MutexLock lock(mutex_);
  --encoding_;
  const double taken = static_cast<double>(processor_ns) / static_cast<double>(std::max<size_t>(bytes, 1));
  ns_per_byte_ += kNewest * (taken - ns_per_byte_);
}

void AutoCompression::not_encoded() {
  const MutexLock lock(mutex_);
  --encoding_;
}

}  // namespace fpfs
