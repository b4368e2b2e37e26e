#include "fs/report/status_report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/index/superblock.h"
#include "fs/report/report_text.h"
#include "fs/report/tier_report.h"

namespace fpfs {
namespace {

using nlohmann::json;

constexpr size_t kOpenFilesMax = 64;
// An attribute holds 64 KiB (XATTR_SIZE_MAX); the rest of the report is a few.
constexpr size_t kOpenFilesBytesMax = 44 * kKiB;
constexpr std::array<const char*, kCodecs> kCodecNames = {"none", "raw", "zstd", "blocks", "away"};

// Null where a drive does not say it: not known, and not full.
json space_report(Store& store) {
  Result<struct statvfs> space = store.space();
  if (!space.is_ok() || space->f_blocks == 0) return {{"total", nullptr}, {"free", nullptr}};
  return {{"total", space->f_blocks * space->f_frsize}, {"free", space->f_bavail * space->f_frsize}};
}

std::string reason_for(const StoreStatus& status, bool for_owner) {
  if (status.read_only_reason.empty() || for_owner) return status.read_only_reason;
  return "an error that only root and who mounted the array are shown; the daemon's log has it, too";
}

uint64_t members_of(const StoreStatus& status) {
  return static_cast<uint64_t>(std::count_if(status.members.begin(), status.members.end(),
                                             [](const MemberStatus& member) { return !member.removed; }));
}

json array_report(const Store& store, const StoreStatus& status, bool for_owner) {
  const Superblock& superblock = store.array().superblock();
  return {{"id", to_string(superblock.array_id)},  {"label", superblock.label},
          {"chunk_size", superblock.chunk_size},   {"member_count", members_of(status)},
          {"read_only", status.read_only},         {"read_only_reason", reason_for(status, for_owner)},
          {"degraded", is_degraded(store, status)}};
}

json members_report(const StoreStatus& status) {
  json members = json::array();
  for (size_t index = 0; index < status.members.size(); ++index) {
    const MemberStatus& member = status.members[index];
    const auto known = [&member](uint64_t bytes) { return member.space_total == 0 ? json() : json(bytes); };
    members.push_back({{"index", index},
                       {"path", member.path},
                       {"id", member.id},
                       {"state", state_of(member)},
                       {"leaving", member.leaving},
                       {"space_total", known(member.space_total)},
                       {"space_free", known(member.space_free)},
                       {"space_spare", member.space_spare},
                       {"bytes_read", member.bytes_read},
                       {"bytes_written", member.bytes_written},
                       {"read_errors", member.read_errors},
                       {"write_errors", member.write_errors},
                       {"sync_errors", member.sync_errors},
                       {"checksum_errors", member.checksum_errors}});
  }
  return members;
}

json metadata_report(const Store& store, const StoreStatus& status) {
  const MemberIndex member = store.array().superblock().metadata_member;
  const char* state = status.metadata_stalled ? "stalled" : status.metadata_errors > 0 ? "failing" : "ok";
  return {{"path", store.array().metadata_path()},
          {"member", member == kMetadataOnlyMember ? -1 : static_cast<int>(member.value())},
          {"state", state},
          {"errors", status.metadata_errors}};
}

json options_report(const FileSystem& file_system, const StoreOptions& options) {
  const FileSystem::Settings& settings = file_system.settings();
  return {{"ro", options.array.read_only},
          {"durable", to_string(options.durable)},
          {"compress", to_string(options.compression)},
          {"dedup", options.dedup == StoreOptions::Dedup::kPrevious ? "previous" : "off"},
          {"verify", options.verify},
          {"buffer_memory", options.buffer_memory},
          {"queue_depth", options.queue_depth},
          {"transfer_size", options.transfer_size},
          {"submit_batch", options.submit_batch},
          {"workers", settings.workers},
          {"threads", settings.threads},
          {"io_uring", file_system.over_io_uring()},
          {"read_ahead", options.read_ahead},
          {"io_timeout", options.io_timeout_ms / 1000},
          {"null_write", options.null_write},
          {"profile", settings.profile},
          {"allow_other", settings.allow_other},
          {"killed_saver", settings.killed_keeps_old ? "keep_old" : "commit"},
          {"commit_interval", options.commit_interval_ms / 1000},
          {"commit_idle", options.commit_idle_ms / 1000},
          {"metrics", settings.metrics},
          {"tier_keep", to_string(settings.tier.keep)},
          {"tier_delete", settings.tier.copy.tier_delete == TierDelete::kKeep ? "keep" : "follow"},
          {"tier_share", settings.tier.share.has_value() ? (settings.tier.share->count() * 3 + 999) / 1000 : -1},
          {"tier_rate", settings.tier.copy.rate},
          {"tier_rate_saving", settings.tier.rate_while_saving},
          {"tier_connections", settings.tier.copy.connections},
          {"tier_memory", settings.tier.copy.memory},
          {"tier_timeout", settings.tier_timeout.count() / 1000}};
}

struct OpenEntry {
  std::shared_ptr<File> file;
  bool writing = false;
  uint64_t bytes_read = 0, bytes_written = 0;
};

// The busiest open handles. Paths are looked up afterwards, without the list's lock.
json open_files_report(FileSystem& file_system, bool for_owner, uint64_t& omitted) {
  std::vector<OpenEntry> entries;
  file_system.handles().for_each_file([&entries](const OpenFile& open) {
    entries.push_back({open.file, open.may_write(), open.bytes_read.load(std::memory_order_relaxed),
                       open.bytes_written.load(std::memory_order_relaxed)});
  });
  std::sort(entries.begin(), entries.end(), [](const OpenEntry& a, const OpenEntry& b) {
    return a.bytes_read + a.bytes_written > b.bytes_read + b.bytes_written;
  });
  json files = json::array();
  size_t bytes = 0;
  for (const OpenEntry& entry : entries) {
    if (!for_owner || files.size() == kOpenFilesMax) break;
    json file = {{"path", entry.file->path()},
                 {"size", entry.file->size()},
                 {"writing", entry.writing},
                 {"bytes_read", entry.bytes_read},
                 {"bytes_written", entry.bytes_written}};
    bytes += to_text(file).size() + 1;
    if (bytes > kOpenFilesBytesMax) break;
    files.push_back(std::move(file));
  }
  omitted = entries.size() - files.size();
  return files;
}

}  // namespace

bool is_degraded(const Store& store, const StoreStatus& status) {
  return store.array().has_outdated() ||
         std::any_of(status.members.begin(), status.members.end(),
                     [](const MemberStatus& member) { return !member.present && !member.removed; });
}

const char* state_of(const MemberStatus& member) {
  if (member.removed) return "removed";
  if (!member.present) return "missing";
  if (member.outdated) return "outdated";
  if (member.stalled) return "stalled";
  const uint64_t errors = member.read_errors + member.write_errors + member.sync_errors + member.checksum_errors;
  if (member.leaving) return "leaving";  // its errors are counted beside it
  return errors == 0 ? "ok" : "failing";
}

std::string status_report(FileSystem& file_system, bool for_owner) {
  Store& store = file_system.store();
  const StoreStatus status = store.status();
  const RecoveryReport& recovery = store.recovery();
  uint64_t omitted = 0;
  json open_files = open_files_report(file_system, for_owner, omitted);
  return to_text({{"version", FPFS_VERSION},
                  {"pid", ::getpid()},
                  {"mountpoint", file_system.settings().mount_point},
                  {"source", file_system.settings().source},
                  {"uptime_seconds", file_system.uptime_seconds()},
                  {"space", space_report(store)},
                  {"array", array_report(store, status, for_owner)},
                  {"members", members_report(status)},
                  {"metadata", metadata_report(store, status)},
                  {"options", options_report(file_system, store.options())},
                  {"buffers",
                   {{"size", status.buffer_size},
                    {"total", status.buffers.total},
                    {"free", status.buffers.free},
                    {"evictable", status.buffers.evictable},
                    {"waiting", status.buffers.waiting},
                    {"waits", status.buffers.waits},
                    {"evictions", status.buffers.evictions}}},
                  {"files",
                   {{"open", status.open_files},
                    {"dirty", status.dirty_files},
                    {"commits", status.commits},
                    {"pending_frees", status.pending_frees}}},
                  {"compressed",
                   {{"chunks", status.chunks_encoded},
                    {"bytes", status.bytes_before_encoding},
                    {"stored_bytes", status.bytes_encoded}}},
                  {"shared", {{"chunks", status.chunks_shared}, {"bytes", status.bytes_shared}}},
                  {"tier", tier_summary(file_system.tier().status())},
                  {"healing",
                   {{"from_copy", status.chunks_from_copy},
                    {"healed", status.chunks_healed},
                    {"without_copy", status.chunks_without_copy},
                    {"fetched", status.chunks_fetched}}},
                  {"recovery",
                   {{"was_dirty", recovery.was_dirty},
                    {"orphans_removed", recovery.orphans_removed},
                    {"torn_tails", recovery.torn_tails},
                    {"bytes_freed", recovery.bytes_freed}}},
                  {"open_files", std::move(open_files)},
                  {"open_files_omitted", omitted},
                  {"paths_hidden", !for_owner}});
}

std::string file_report(FileSystem& file_system, const File& file, const struct stat& attributes) {
  const File::Info info = file.info();
  const Status failure = file.error();
  json codecs = json::object();
  for (size_t codec = 1; codec < kCodecs; ++codec) codecs[kCodecNames[codec]] = info.codec_chunks[codec];
  json members = json::array();
  for (const MemberIndex m : info.members.indices())
    if (info.members[m]) members.push_back(m.value());
  return to_text({{"file_id", file_id_text(info.file_id)},
                  {"generation", info.generation.value()},
                  {"sequence", info.sequence},
                  {"size", info.size},
                  {"committed_size", info.committed_size},
                  {"stored_bytes", info.stored_bytes},
                  {"chunk_size", file_system.store().array().superblock().chunk_size},
                  {"chunks", info.chunks},
                  {"codecs", std::move(codecs)},
                  {"inline", info.is_inline},
                  {"members", std::move(members)},
                  {"dirty", file.is_dirty()},
                  {"failed", failure.is_ok() ? std::string() : failure.message()},
                  {"changed", attributes.st_ctim.tv_sec}});
}

std::string codec_text(const File::Info& info) {
  if (info.is_inline) return "inline";
  std::string text;
  for (size_t codec = 1; codec < kCodecs; ++codec)
    if (info.codec_chunks[codec] > 0) text += (text.empty() ? "" : "+") + std::string(kCodecNames[codec]);
  return text.empty() ? "none" : text;
}

std::string member_text(const File::Info& info) {
  std::string text;
  for (const MemberIndex m : info.members.indices())
    if (info.members[m]) text += (text.empty() ? "" : ",") + std::to_string(m.value());
  return text;
}

std::string file_id_text(FileId id) {
  return fmt::format("{:016x}", id);
}

}  // namespace fpfs
