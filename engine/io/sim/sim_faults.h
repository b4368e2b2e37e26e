// What can be made to go wrong in a simulated world besides power cuts.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include "engine/io/sim/sim_world.h"

namespace fpfs {

// A plan: the `nth` call that matches, and the `count - 1` after it, go wrong.
struct SimFault {
  enum class Call : uint8_t {
    kRead,
    kWrite,
    kSyncFile,
    kSyncDirectory,
    kSyncFilesystem,
    kAllocate,
    kPunch,
    kTruncate,
    kCheckRunning,
    kLook,       // stat, open without making anything, list, ...
    kName,       // make, remove, rename, link
    kAttribute,  // modes, owners, times, extended attributes
    kClone,      // a part of the range may be shared
    kAny,        // in a plan only: each of these
  };
  enum class Effect : uint8_t {
    kError,        // fails with `error`; a write or sync may have done a part of its work
    kShort,        // a transfer ends early and fails (queues report what cannot be continued as kIoError)
    kLost,         // a write is reported done and was not
    kMisdirected,  // a write is reported done and went one chunk too far
  };
  static constexpr uint64_t kForever = UINT64_MAX;

  Call call = Call::kWrite;
  Effect effect = Effect::kError;
  int error = EIO;
  std::optional<unsigned> filesystem;  // of the world; mount paths count from 1
  std::optional<SimRole> role;
  uint64_t nth = 1;
  uint64_t count = 1;

  uint64_t seen = 0;  // matching calls so far
  uint64_t hits = 0;
};

// Mistakes that an engine could make, made for it now and then: the power-cut test must find each.
enum class SimPlantedBug : uint8_t {
  kNone,
  // Steps of a commit that are left out ...
  kObjectSyncSkipped,           // the record is appended before its chunks are on the drives
  kSidecarSyncSkipped,          // the commit is acknowledged before its record is on the drive
  kTreeDirectorySyncSkipped,    // a new name is acknowledged before it is on the drive
  kObjectDirectorySyncSkipped,  // an object's name is not on the drive when its chunks are recorded
  // ... or made after the one that they come before,
  kObjectSyncAfterRecord,   // chunks are synced when the record that names them has been
  kSidecarSyncAfterAnswer,  // the record is synced when the commit has been acknowledged
  kNameSyncAfterAnswer,     // and so is a new name
  // ... or believed although they failed.
  kWriteErrorIgnored,        // a failed transfer is taken for a good one
  kShortWriteIgnored,        // a transfer that ended early is taken for a whole one
  kObjectSyncErrorIgnored,   // a failed sync of chunks is taken for a good one
  kSidecarSyncErrorIgnored,  // and of a record
  kFailedSyncTriedAgain,     // a failed sync is tried again, and that one is believed
  // Wrong places.
  kChunkMisplaced,        // a chunk goes to the slot behind its own
  kFreedTooMuch,          // punching a replaced chunk takes a block of the next
  kCloneMisplaced,        // a chunk shares the blocks behind those of the one before
  kTrimmedTooMuch,        // giving back preallocated space takes a block of the content
  kCompactedTooMuch,      // compaction of an index punches into its snapshot
  kUnsyncedKept,          // an unsynced record is not synced before the next is appended
  kCommitLogSyncSkipped,  // what is written into the commit log is not durable
  kTornTailKept,          // a torn record is not cut before the next is appended
  // Names and the mark that says that an array is in use.
  kRenameNotAtomic,     // a replaced name is removed before the new one is made
  kDirtyMarkNotSynced,  // the array is used before its mark is on the drive
  kCleanMarkTooEarly,   // it is marked clean before what was freed is freed on the drives
};

}  // namespace fpfs
