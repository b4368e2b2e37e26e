#include "engine/file/auto_compression.h"

#include <algorithm>

namespace fpfs {

namespace {

constexpr double kNewest = 1.0 / 16;  // its weight in an average
// Of what encoding took: that much has to idle besides. Less may be what the processors' clock does not see.
constexpr uint64_t kLeftOver = 4;
constexpr std::chrono::nanoseconds kTick = std::chrono::milliseconds(10);  // that processors' times come in

constexpr uint64_t ns(std::chrono::nanoseconds time) {
  return static_cast<uint64_t>(time.count());
}

}  // namespace

bool AutoCompression::encodes(uint64_t now, size_t bytes, bool drive_is_busy) {
  const MutexLock lock(mutex_);
  note_silence(now);
  if (phase_ == Phase::kEncoding && now >= until_) {
    const ProcessorTimes times = environment_.processor_times();
    if (is_for_nothing(times))
      encode_for_a_while(now, times);
    else
      phase_ = Phase::kEnding;
  }
  if (phase_ == Phase::kRaw && now >= until_) phase_ = Phase::kEnding;
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
  if (phase_ == Phase::kEncoding) {
    begin_ = environment_.processor_times();
    encoding_ns_ = 0;
  }
}

void AutoCompression::look(uint64_t now, size_t bytes, bool drive_is_busy) {
  bytes_ += bytes;
  ++chunks_;
  if (drive_is_busy) ++busy_;
  if (now < begin_.now_ns + ns(kLook)) return;
  const ProcessorTimes times = environment_.processor_times();
  if (is_worth_it(times)) return encode_for_a_while(now, times);
  phase_ = Phase::kRaw;
  until_ = now + ns(kWhileMin);
  while_ = kWhileMin;
}

void AutoCompression::encode_for_a_while(uint64_t now, const ProcessorTimes& times) {
  phase_ = Phase::kEncoding;
  begin_ = times;
  encoding_ns_ = 0;
  until_ = now + ns(while_);
  while_ = std::min(2 * while_, kWhileMax);
}

uint64_t AutoCompression::idle_ns(const ProcessorTimes& times) const {
  return times.idle_ns > begin_.idle_ns ? times.idle_ns - begin_.idle_ns : 0;
}

bool AutoCompression::is_worth_it(const ProcessorTimes& times) const {
  if (2 * busy_ < chunks_) return false;
  const auto idle = static_cast<double>(idle_ns(times));
  return idle > 0 && idle >= ns_per_byte_ * static_cast<double>(bytes_);
}

bool AutoCompression::is_for_nothing(const ProcessorTimes& times) const {
  return encoding_ns_ > 0 && idle_ns(times) >= encoding_ns_ / kLeftOver + ns(kTick);
}

void AutoCompression::encoded(size_t bytes, uint64_t processor_ns) {
  const MutexLock lock(mutex_);
  --encoding_;
  encoding_ns_ += processor_ns;
  const double taken = static_cast<double>(processor_ns) / static_cast<double>(std::max<size_t>(bytes, 1));
  ns_per_byte_ += kNewest * (taken - ns_per_byte_);
}

void AutoCompression::not_encoded() {
  const MutexLock lock(mutex_);
  --encoding_;
}

}  // namespace fpfs
