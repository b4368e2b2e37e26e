// One life of an array under one seed: clients work, somebody copies committed versions of their files perhaps, the
// power goes at a random moment (or the process is killed, or the array is closed), recovery runs and may itself be cut
// off, and what the next mount shows is held against the Model. Several rounds, then a check of every stored byte. In
// some lives the drives lie in the last round, and bits rot after it: then the check must find exactly what cannot be
// read, and its repair leave the rest as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/sim/sim_faults.h"
#include "tests/crash/session.h"

namespace fpfs::crash {

struct SeedOptions {
  SimPlantedBug planted = SimPlantedBug::kNone;
  PlantedCall planted_call = PlantedCall::kNone;
  bool verbose = false;
  uint64_t* digest = nullptr;  // becomes one of everything that is asked of the drives, in its order
};

// What seeds came across, so that nobody believes in a test of what never happened.
struct Coverage {
  uint64_t compactions = 0;           // of indexes
  uint64_t objects_recycled = 0;      // taken over by another file
  uint64_t recoveries_cut = 0;        // cut off by another power cut
  uint64_t recoveries_cut_again = 0;  // and the recovery after that too
  uint64_t commits_put_back = 0;      // from the commit log
  uint64_t files_damaged = 0;         // by lost and misdirected writes and by bit rot
  uint64_t old_versions_read = 0;     // that were held, while their files showed something else
  uint64_t files_encoded = 0;         // readings of files with chunks that are stored encoded
  uint64_t chunks_shared = 0;         // with other files, by way of what the filesystem shares
  uint64_t versions_cut_off = 0;      // held when the power went or the process was killed
};

// What is wrong, in a sentence; nothing when every promise was kept. Adds to `coverage`.
std::optional<std::string> run_seed(uint64_t seed, const SeedOptions& options, Coverage& coverage);

}  // namespace fpfs::crash
