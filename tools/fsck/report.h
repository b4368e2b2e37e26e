// What fsck.fastpersistfs prints about a finished check, and its exit code.
#pragma once

#include <string>
#include <vector>

#include "engine/check/check.h"

namespace fpfs::tools {

// The bits of fsck(8).
constexpr int kFsckClean = 0;
constexpr int kFsckCorrected = 1;
constexpr int kFsckUncorrected = 4;
constexpr int kFsckOperational = 8;
constexpr int kFsckCancelled = 32;

int fsck_exit_code(const CheckReport& report);

// One JSON object with the keys of the command-line contract.
void print_report_json(const CheckReport& report);
// One line for each error, but one for all chunks of a file of which the same is to be said; then counts and verdict.
void print_report(const CheckReport& report, const std::vector<std::string>& directories, Repair repair,
                  bool verified_data);

}  // namespace fpfs::tools
