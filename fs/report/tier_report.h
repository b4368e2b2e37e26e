// The JSON behind the virtual attribute user.fastpersistfs.tier-status of the root (`fpfs tier status`). Byte counts are
// integers, rates bytes per second, times seconds. Keys are an interface: they are added to, not changed.
//
// {
//   "state": "none" (the array copies nowhere) | "away" (the store cannot be reached, or refuses; last_error says why) |
//            "scanning" (looking for what is to be copied) | "copying" | "current" (what is known to be committed is
//            copied),
//   "store" (its URL, without options), "store_id", "required", "paced" (something is being saved, copies go slowly),
//   "files_waiting", "bytes_waiting" (not copied yet, as far as known; null: not known, as the store was not there since
//   the mount, or has ended the copying), "lag_seconds" (since the oldest commit of those; where they are not known, since
//   nothing is copied),
//   "files_copying", "files_failed" (of those that wait: for a reason of their own), "files_refused" (cannot be copied),
//   "files_copied", "bytes_copied" (since the mount, or the last set), "bytes_per_second", "eta_seconds" (-1: not known),
//   "errors", "last_error", "last_error_at" (since the epoch; 0: none), "scanning",
//   "files_shared" (of other arrays, shown here; likewise), "conflicts" (both versions were kept),
//   "keep", "files_left", "bytes_left" (that have left the drives; likewise), "files_pinned", "bytes_pinned" (that must not,
//   as of the last look at what may; 0 with "keep": "all"), "limits": {"rate" and "rate_saving" (0: none), "connections", "memory"}
// }
// What names files is told to root and the mount's owner only: for everybody else last_error says that there is one.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "engine/tier/array_tier.h"

namespace fpfs {

std::string tier_report(const TierStatus& status, bool for_owner);
// What the status of the mount has of it.
nlohmann::json tier_summary(const TierStatus& status);

}  // namespace fpfs
