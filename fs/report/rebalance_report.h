// The JSON behind the virtual attribute user.fastpersistfs.rebalance of the root (`fpfs rebalance --status`). Byte counts
// are integers, times seconds. Keys are an interface: they are added to, not changed.
//
// {
//   "state": "none" | "running" | "paused" (by itself: "note" says why) | "finished" | "cancelled",
//   "started", "ended" (since the epoch; 0: not), "seconds" (of work), "limit" (bytes per second; 0: none),
//   "files_done", "chunks_done", "bytes_done", "bytes_total" (0 until it was counted), "bytes_per_second" (moved),
//   "eta_seconds" (-1: not known), "note",
//   "chunks_moved", "bytes_moved" (committed where they belong), "chunks_left" (stay where they are),
//   "left_omitted" (of these, not in "left"),
//   "left": [{"path" (in the mount; of what is no file of it, on the member), "chunks" (0: it is not about chunks, "why"
//             says what), "first_chunks", "why"}],
//   "paths_hidden" (the reader is neither root nor the mount's owner)
// }
// What names files is told to root and the mount's owner only: for everybody else "left" is empty.
#pragma once

#include <string>

#include "engine/store/rebalance.h"

namespace fpfs {

std::string rebalance_report(const Rebalance::Report& report, bool for_owner);

}  // namespace fpfs
