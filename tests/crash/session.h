// What the clients of one mount share.
#pragma once

#include <array>
#include <string>

#include "engine/io/sim/sim_environment.h"
#include "engine/store/store.h"
#include "tests/crash/model.h"
#include "tests/crash/task.h"

namespace fpfs::crash {

constexpr uint64_t kChunk = 64 * kKiB;
constexpr const char* kTagName = "user.tag";  // an extended attribute

// Mistakes that the mount could make where it calls the engine, made for it: the power-cut test must find each.
enum class PlantedCall : uint8_t {
  kNone,
  kReceivedIsTaken,     // a close takes what was received for covered, although the engine has not taken it
  kPagesOfOneHandle,    // pages of a mapping are the handle's that they come through
  kReaderSyncsNothing,  // fsync through a handle for reading
  kCleanSyncsNothing,   // fsync of a file whose content did not change
  kTricklesLeftAlone,   // no log that stays open is ever committed by itself
  kStreamsCommitted,    // everything that is open is committed now and then
  kAnyCloseCommits,     // also that of a child that inherited a descriptor
  kKilledSaverCommits,  // the death of a saver is taken for a close
  kEndCommits,          // the end of the mount commits what its writers have not finished
  kSyncCommits,         // and so does a sync of everything
  kBackgroundCommits,   // and so does the commit that follows a close
  kEmptyingCommits,  // the close of the first descriptor of what was emptied, while a copy of it is to bring the rest
  kVersionLetGo,     // a version is let go of while it is still being copied
};

class Copier;

struct Session {
  SimEnvironment& world;
  Store& store;
  Scheduler& scheduler;
  Model& model;
  StoreOptions options;
  PlantedCall planted = PlantedCall::kNone;
  // Somebody may ask for a sync of everything at any time.
  bool synced_by_others = false;
  uint64_t largest_file = 0;
  // Clients make small files, one after the other, most of the time: what the commit log is for.
  bool makes_many = false;
  // Writes to objects are lost or land elsewhere: what is read may turn out to be damaged.
  bool drives_lie = false;
  // From this boundary on the mount is about to end, and nobody gets any further.
  uint64_t ends_at = UINT64_MAX;
  bool is_ending = false;
  Copier* copier = nullptr;  // if there is one
  std::array<std::string, 3> directory_names = {".", "d1", "d2"};
  std::array<Handle, 3> directories = {kNoHandle, kNoHandle, kNoHandle};
  std::string failure;  // the first thing that was wrong, in a sentence

  bool commits_at_close() const { return options.durable == StoreOptions::Durable::kClose; }
  void fail(const std::string& what) {
    if (failure.empty()) failure = what;
  }
  bool is_damage(const Status& status) const {
    return drives_lie && (status.code() == StatusCode::kCorruption || status.code() == StatusCode::kIoError);
  }
  // True when the call went well. An error is wrong unless the power went, or the drives lie.
  bool good(const Status& status, const std::string& what) {
    if (!status.is_ok() && !world.is_off() && !is_damage(status))
      fail(what + " failed without a reason: " + status.message());
    return status.is_ok();
  }
  // Whether programs still run.
  bool goes_on() {
    is_ending |= world.boundaries() >= ends_at;
    return !is_ending && !world.is_off() && failure.empty();
  }
};

}  // namespace fpfs::crash
