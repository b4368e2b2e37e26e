// What is remembered of a scrub from mount to mount: the file `scrub` beside tree/ (docs/format.md). Encoding and
// decoding, and its way to the drive.
//
// It holds nothing that the array needs: a state that is damaged, of another array or of another version counts as
// none, and the next scrub starts from the beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/check/check.h"
#include "engine/store/background_pass.h"

namespace fpfs {

// What it found.
struct ScrubFindings {
  static constexpr size_t kDamageMax = 256;  // entries; further ones are only counted

  uint64_t errors = 0;
  uint64_t healed = 0;       // of these: what was wrong came from a copy, and is as it was written again
  uint64_t chunks_away = 0;  // of the files that it came to: in the store of the copies only, and so not looked at
  // Files of which a save has failed, and that were open: what was committed of them is not looked at. No errors, but
  // kept among the damage, with this kind.
  static constexpr const char* kFailedSave = "failed-save";
  uint64_t failed_saves = 0;
  std::vector<CheckError> damage;

  // Counts it and keeps it, as long as there is room. Damage of one file is in the order of its chunks, whichever read
  // came back first; files are in the order in which they were read.
  void add(CheckError error);
};

struct ScrubState : PassState, ScrubFindings {
  static constexpr size_t kEncodedMax = kMiB;
};

// One line of JSON with a checksum, at most kEncodedMax bytes: damage beyond that is left out.
std::string encode_scrub_state(const ScrubState& state, const Uuid& array_id);
// kCorruption, with what is wrong, for anything that encode_scrub_state() would not have made for this array.
Result<ScrubState> decode_scrub_state(std::string_view text, const Uuid& array_id);

// A state of phase kNone when there is none. Failures: the state cannot be read or is not valid.
Result<ScrubState> load_scrub_state(Storage& storage, const Array& array);
// Replaces the state; after a crash it is the one before or this one.
Status save_scrub_state(Storage& storage, const Array& array, const ScrubState& state);

}  // namespace fpfs
