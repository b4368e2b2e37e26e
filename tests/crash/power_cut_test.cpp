// power_cut_test: cuts the power under the engine, seed after seed. A failing seed is printed with the command that
// replays it.
//
//   power_cut_test                    the first 2000 seeds (what ctest runs)
//   power_cut_test --count 100000
//   power_cut_test --seeds 500..900
//   power_cut_test --seed 1234 --verbose
//   power_cut_test --planted object-sync-skipped     succeeds when the mistake is caught
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "tests/crash/power_cut.h"

namespace {

using fpfs::SimPlantedBug;
using fpfs::crash::PlantedCall;
using fpfs::crash::SeedOptions;

const std::map<std::string, SeedOptions> kPlanted = {
    {"object-sync-skipped", {.planted = SimPlantedBug::kObjectSyncSkipped}},
    {"sidecar-sync-skipped", {.planted = SimPlantedBug::kSidecarSyncSkipped}},
    {"tree-directory-sync-skipped", {.planted = SimPlantedBug::kTreeDirectorySyncSkipped}},
    {"object-directory-sync-skipped", {.planted = SimPlantedBug::kObjectDirectorySyncSkipped}},
    {"object-sync-after-record", {.planted = SimPlantedBug::kObjectSyncAfterRecord}},
    {"sidecar-sync-after-answer", {.planted = SimPlantedBug::kSidecarSyncAfterAnswer}},
    {"name-sync-after-answer", {.planted = SimPlantedBug::kNameSyncAfterAnswer}},
    {"write-error-ignored", {.planted = SimPlantedBug::kWriteErrorIgnored}},
    {"short-write-ignored", {.planted = SimPlantedBug::kShortWriteIgnored}},
    {"object-sync-error-ignored", {.planted = SimPlantedBug::kObjectSyncErrorIgnored}},
    {"sidecar-sync-error-ignored", {.planted = SimPlantedBug::kSidecarSyncErrorIgnored}},
    {"failed-sync-tried-again", {.planted = SimPlantedBug::kFailedSyncTriedAgain}},
    {"chunk-misplaced", {.planted = SimPlantedBug::kChunkMisplaced}},
    {"freed-too-much", {.planted = SimPlantedBug::kFreedTooMuch}},
    {"clone-misplaced", {.planted = SimPlantedBug::kCloneMisplaced}},
    {"trimmed-too-much", {.planted = SimPlantedBug::kTrimmedTooMuch}},
    {"compacted-too-much", {.planted = SimPlantedBug::kCompactedTooMuch}},
    {"commit-log-sync-skipped", {.planted = SimPlantedBug::kCommitLogSyncSkipped}},
    {"torn-tail-kept", {.planted = SimPlantedBug::kTornTailKept}},
    {"unsynced-record-kept", {.planted = SimPlantedBug::kUnsyncedKept}},
    {"rename-not-atomic", {.planted = SimPlantedBug::kRenameNotAtomic}},
    {"dirty-mark-not-synced", {.planted = SimPlantedBug::kDirtyMarkNotSynced}},
    {"clean-mark-too-early", {.planted = SimPlantedBug::kCleanMarkTooEarly}},
    // Of the mount.
    {"received-is-taken", {.planted_call = PlantedCall::kReceivedIsTaken}},
    {"pages-of-one-handle", {.planted_call = PlantedCall::kPagesOfOneHandle}},
    {"reader-syncs-nothing", {.planted_call = PlantedCall::kReaderSyncsNothing}},
    {"clean-sync-syncs-nothing", {.planted_call = PlantedCall::kCleanSyncsNothing}},
    {"trickles-left-alone", {.planted_call = PlantedCall::kTricklesLeftAlone}},
    {"streams-committed", {.planted_call = PlantedCall::kStreamsCommitted}},
    {"any-close-commits", {.planted_call = PlantedCall::kAnyCloseCommits}},
    {"killed-saver-commits", {.planted_call = PlantedCall::kKilledSaverCommits}},
    {"end-commits", {.planted_call = PlantedCall::kEndCommits}},
    {"sync-commits", {.planted_call = PlantedCall::kSyncCommits}},
    {"background-commits", {.planted_call = PlantedCall::kBackgroundCommits}},
    {"emptying-commits", {.planted_call = PlantedCall::kEmptyingCommits}},
    {"version-let-go", {.planted_call = PlantedCall::kVersionLetGo}},
};

// Of mistakes that are caught late, when all seeds are tried one after the other: one that does. It comes first, and then
// all, should it not any more.
const std::map<std::string, uint64_t> kCaughtBy = {
    {"clone-misplaced", 1600}, {"rename-not-atomic", 235},        {"killed-saver-commits", 67},
    {"end-commits", 229},      {"clean-sync-syncs-nothing", 185}, {"unsynced-record-kept", 157},
};

// Each of these is run twice more, and must do the same both times: a seed replays what it did.
constexpr uint64_t kReplayEvery = 100;

// So many seeds come across everything.
constexpr uint64_t kSeedsThatCoverAll = 2000;

// "500..900"
bool parse_range(const std::string& text, uint64_t* first, uint64_t* end) {
  return std::sscanf(text.c_str(), "%lu..%lu", first, end) == 2 && *first < *end;
}

const char* program = "";
uint64_t current_seed = 0;

bool replays(uint64_t seed) {
  uint64_t digests[2] = {};
  fpfs::crash::Coverage unused;
  for (uint64_t& digest : digests) static_cast<void>(fpfs::crash::run_seed(seed, {.digest = &digest}, unused));
  return digests[0] == digests[1] && digests[0] != 0;
}

// A broken invariant of the engine aborts: say which seed did it.
void name_the_seed(int) {
  std::fprintf(stderr, "aborted; replay with: %s --seed %lu --verbose\n", program, current_seed);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cuts the power under the engine, seed after seed");
  uint64_t count = 2000, first = 0, end = 0;
  std::optional<uint64_t> seed;
  std::string range;
  std::string planted;
  bool verbose = false;
  app.add_option("--count", count, "run this many seeds");
  app.add_option("--seed", seed, "run one seed");
  app.add_option("--seeds", range, "run the seeds A to B-1, given as A..B");
  app.add_option("--planted", planted, "plant a mistake; succeed when a seed catches it")
      ->check(CLI::IsMember(&kPlanted));
  app.add_flag("--verbose", verbose, "tell what happens, with the engine's own log");
  CLI11_PARSE(app, argc, argv);
  const bool is_planted = !planted.empty();
  SeedOptions options = is_planted ? kPlanted.at(planted) : SeedOptions();
  options.verbose = verbose;
  end = count;
  if (seed.has_value()) {
    first = *seed;
    end = first + 1;
  } else if (!range.empty() && !parse_range(range, &first, &end)) {
    fmt::print(stderr, "--seeds {}: give a range as A..B\n", range);
    return 2;
  }
  // Failing requests are the daily bread here; the log of a replay shows them.
  if (!fpfs::configure_log({.level = fpfs::LogLevel::kDebug, .file = verbose ? "" : "/dev/null"}).is_ok()) return 2;
  program = argv[0];
  std::signal(SIGABRT, name_the_seed);

  fpfs::crash::Coverage coverage;
  if (const auto caught_by = kCaughtBy.find(planted);
      caught_by != kCaughtBy.end() && range.empty() && !seed && caught_by->second < end) {
    current_seed = caught_by->second;
    if (const auto wrong = fpfs::crash::run_seed(current_seed, options, coverage)) {
      fmt::print("seed {} catches it: {}\n", current_seed, *wrong);
      return 0;
    }
  }
  for (uint64_t s = first; s < end; ++s) {
    current_seed = s;
    const auto wrong = fpfs::crash::run_seed(s, options, coverage);
    if (!wrong.has_value()) {
      if (is_planted || s % kReplayEvery != 0 || replays(s)) continue;
      fmt::print("seed {} does one thing one time and another the next\n", s);
      return 1;
    }
    if (is_planted) {
      fmt::print("seed {} catches it: {}\n", s, *wrong);
      return 0;
    }
    fmt::print("seed {}: {}\nreplay with: {} --seed {} --verbose\n", s, *wrong, argv[0], s);
    return 1;
  }
  if (is_planted) {
    fmt::print("no seed caught the planted mistake\n");
    return 1;
  }
  fmt::print(
      "{} seeds passed; {} compactions of indexes, {} objects recycled, {} recoveries cut off and {} cut off again, {} "
      "damaged files found, {} readings of old versions, {} times versions were cut off, {} readings of encoded "
      "files, {} chunks shared, {} commits put back\n",
      end - first, coverage.compactions, coverage.objects_recycled, coverage.recoveries_cut,
      coverage.recoveries_cut_again, coverage.files_damaged, coverage.old_versions_read, coverage.versions_cut_off,
      coverage.files_encoded, coverage.chunks_shared, coverage.commits_put_back);
  const bool is_covered = coverage.compactions > 0 && coverage.objects_recycled > 0 && coverage.recoveries_cut > 0 &&
                          coverage.recoveries_cut_again > 0 && coverage.commits_put_back > 0 &&
                          coverage.files_damaged > 0 && coverage.old_versions_read > 0 &&
                          coverage.versions_cut_off > 0 && coverage.files_encoded > 0 && coverage.chunks_shared > 0;
  if (end - first >= kSeedsThatCoverAll && !is_covered) {
    fmt::print("something of that never happened: the seeds test less than they should\n");
    return 1;
  }
  return 0;
}
