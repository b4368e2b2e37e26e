// The JSON behind the virtual attributes user.fastpersistfs.status (of the root: `fpfs status`, `fpfs top`) and
// user.fastpersistfs.stat (of a regular file: `fpfs stat`). One object each; byte counts are integers, times seconds
// since the epoch. Keys are an interface of the tools: they are added to, not changed.
//
// status: {
//   "version", "pid", "mountpoint", "source", "uptime_seconds",
//   "space":   {"total", "free"},
//   "array":   {"id", "label", "chunk_size", "member_count", "read_only", "read_only_reason", "degraded"},
//   "members": [{"index", "path", "id", "state": "ok" | "missing" | "outdated" | "failing" | "stalled" | "leaving" |
//                "removed" (only the index is known), "leaving" (whatever else it is), "space_total", "space_free",
//                "space_spare", "bytes_read", "bytes_written", "read_errors", "write_errors", "sync_errors",
//                "checksum_errors"}],
//   "metadata": {"path", "member" (index of the member that holds the names, or -1), "state": "ok" | "failing" |
//                "stalled", "errors" (calls on names and indexes that its drive failed, and reads of damaged indexes)},
//   "options": {"ro", "durable", "compress", "dedup", "verify", "buffer_memory", "queue_depth", "transfer_size"
//               (0: whole chunks), "submit_batch", "workers", "threads", "io_uring" (in use), "read_ahead",
//               "io_timeout" (seconds), "null_write", "profile" (the file; empty: none), "allow_other", "killed_saver",
//               "commit_interval" and "commit_idle" (seconds), "metrics" (address and port; empty: none), "tier_keep",
//               "tier_delete", "tier_share" (seconds; -1: off), "tier_rate" and "tier_rate_saving" (0: any),
//               "tier_connections", "tier_memory", "tier_timeout" (seconds)},
//   "buffers": {"size", "total", "free", "evictable", "waiting", "waits", "evictions"},
//   "files":   {"open", "dirty", "commits", "pending_frees"},
//   "compressed": {"chunks", "bytes", "stored_bytes"} (chunks that were stored smaller since the mount, their content, and
//                 what is stored of it),
//   "shared":  {"chunks", "bytes"} (of drives, that dedup=previous did not store again since the mount),
//   "tier":    {"state", "store", "files_waiting", "bytes_waiting", "lag_seconds"}, as fs/report/tier_report.h says,
//   "healing": {"from_copy", "healed", "without_copy"} (chunks that their members did not give, since the mount: that came
//              from a copy; of these, that are on their members again; that no copy helped with),
//   "recovery": {"was_dirty", "orphans_removed", "torn_tails", "bytes_freed"},
//   "open_files": [{"path", "size", "writing", "bytes_read", "bytes_written"}],   at most 64, the busiest first; fewer
//                 when their paths are long, as an attribute has room for 64 KiB
//   "open_files_omitted",
//   "paths_hidden" (the reader is neither root nor the mount's owner)
// }
// What names files of others is told to root and the mount's owner only: for everybody else no open file is listed, and
// read_only_reason says that there is one.
// stat: {
//   "file_id", "generation", "sequence", "size", "committed_size" (of the last commit; 0: none), "stored_bytes",
//   "chunk_size", "chunks", "codecs": {"raw", "zstd", "blocks"} (chunks of each), "inline", "members": [index...],
//   "dirty", "failed" (why its content of now, which "size" and the like are of, is not committed and never will be;
//   empty: it is as it should be), "changed" (last commit or change of attributes)
// }
#pragma once

#include <string>

#include "engine/file/file.h"
#include "fs/nodes/file_system.h"

namespace fpfs {

std::string status_report(FileSystem& file_system, bool for_owner);
// "ok", "missing", ... as above.
const char* state_of(const MemberStatus& member);
bool is_degraded(const Store& store, const StoreStatus& status);
std::string file_report(FileSystem& file_system, const File& file, const struct stat& attributes);

// "raw", "zstd", "inline", "none" (nothing stored); several joined by '+'.
std::string codec_text(const File::Info& info);
// "0,1,3".
std::string member_text(const File::Info& info);
// 16 hex digits.
std::string file_id_text(FileId id);

}  // namespace fpfs
