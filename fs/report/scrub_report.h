// The JSON behind the virtual attribute user.fastpersistfs.scrub of the root (`fpfs scrub status`). Byte counts are
// integers, times seconds. Keys are an interface: they are added to, not changed.
//
// {
//   "state": "none" | "running" | "paused" | "finished" | "cancelled",
//   "started", "ended" (since the epoch; 0: not), "seconds" (of work), "limit" (bytes per second; 0: none),
//   "files_done", "chunks_done", "bytes_done", "bytes_total" (0 until it was counted), "bytes_per_second",
//   "eta_seconds" (-1: not known), "errors", "note" (why it paused by itself), "chunks_away" (of the files so far: in the
//   store of the copies only, not looked at), "failed_saves" (files of which a save has failed, and that were open: not
//   looked at, and no errors; among the damage),
//   "damage": [{"path", "chunk", "member", "object_offset", "kind", "detail"}], as in fsck's JSON; "damage_omitted",
//   "paths_hidden" (the reader is neither root nor the mount's owner)
// }
// What names files is told to root and the mount's owner only: for everybody else all damage is omitted.
#pragma once

#include <string>

#include "engine/store/scrub.h"

namespace fpfs {

std::string scrub_report(const Scrub::Report& report, bool for_owner);

}  // namespace fpfs
