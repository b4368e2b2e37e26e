// What is remembered of a scrub from mount to mount: the file `scrub` beside tree/ (docs/format.md). Encoding and
// decoding, and its way to the drive.
//
// It holds nothing that the array needs: a state that is damaged, of another array or of another version counts as
// none, and the next scrub starts from the beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/check/check.h"

namespace fpfs {

struct ScrubState {
  enum class Phase : uint8_t { kNone = 0, kRunning = 1, kPaused = 2, kFinished = 3, kCancelled = 4 };
  static constexpr size_t kDamageMax = 256;  // entries; further ones are only counted
  static constexpr size_t kEncodedMax = kMiB;

  Phase phase = Phase::kNone;
  uint64_t limit = 0;                              // bytes per second, 0: none
  int64_t started_seconds = 0, ended_seconds = 0;  // since the epoch; 0: not yet
  uint64_t active_ms = 0;                          // time spent running
  uint64_t files = 0, chunks = 0, bytes = 0;       // looked at, good or not; bytes on the drives
  uint64_t errors = 0;
  // Where to go on: in the file `position` (a path as in CheckError; empty: at the beginning) at chunk `next_chunk` if
  // it still is `file` of `generation`, behind it when `file` is 0.
  std::string position;
  FileId file = 0;
  Generation generation = 0;
  ChunkIndex next_chunk = 0;
  std::vector<CheckError> damage;

  // Counts it and keeps it, as long as there is room. Damage of one file is in the order of its chunks, whichever read
  // came back first; files are in the order in which they were read.
  void add_damage(CheckError error);
};

std::vector<std::byte> encode_scrub_state(const ScrubState& state, const Uuid& array_id);
// kCorruption, with what is wrong, for anything that encode_scrub_state() would not have made for this array.
Result<ScrubState> decode_scrub_state(std::span<const std::byte> bytes, const Uuid& array_id);

// A state of phase kNone when there is none. Failures: the state cannot be read or is not valid.
Result<ScrubState> load_scrub_state(Storage& storage, const Array& array);
// Replaces the state; after a crash it is the one before or this one.
Status save_scrub_state(Storage& storage, const Array& array, const ScrubState& state);

}  // namespace fpfs
