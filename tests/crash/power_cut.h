// One life of an array under one seed: clients work, the power goes at a random moment (or the process is killed, or
// the array is closed), recovery runs and may itself be cut off, and what the next mount shows is held against the
// Model. Several rounds, then a check of every stored byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/io/sim/sim_faults.h"

namespace fpfs::crash {

struct SeedOptions {
  SimPlantedBug planted = SimPlantedBug::kNone;
  bool verbose = false;
};

// What is wrong, in a sentence; nothing when every promise was kept.
std::optional<std::string> run_seed(uint64_t seed, const SeedOptions& options);

}  // namespace fpfs::crash
