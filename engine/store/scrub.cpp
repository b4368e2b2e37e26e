#include "engine/store/scrub.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/check/error_lines.h"
#include "engine/check/scan.h"
#include "engine/file/chunk_io.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

Scrub::Scrub(Store& store) : store_(store), pass_(store, *this, "scrub") {}

Scrub::~Scrub() {
  stop();
}

Scrub::Report Scrub::report() const {
  ScrubFindings findings;
  const BackgroundPass::Report pass = pass_.report([&] {
    const MutexLock lock(mutex_);
    findings = findings_;
  });
  return {pass, {pass.state, std::move(findings)}};
}

void Scrub::begin_pass() {
  const MutexLock lock(mutex_);
  findings_ = ScrubFindings();
  away_counted_.clear();
  failed_save_told_.clear();
}

void Scrub::end_pass(const PassState& state) {
  const MutexLock lock(mutex_);
  std::string not_looked_at;
  if (findings_.chunks_away > 0)
    not_looked_at += fmt::format("; {} in the store of the copies only, not looked at",
                                 format_count(findings_.chunks_away, "chunk"));
  if (findings_.failed_saves > 0)
    not_looked_at +=
        fmt::format("; {} of which a save has failed, not looked at", format_count(findings_.failed_saves, "file"));
  log(findings_.errors == 0 ? LogLevel::kInfo : LogLevel::kError, "scrub finished: {} in {} read, {}{}",
      format_size(state.bytes), format_count(state.files, "file"), format_count(findings_.errors, "error"),
      not_looked_at);
}

Result<PassState> Scrub::load() {
  FPFS_ASSIGN_OR_RETURN(const ScrubState kept, load_scrub_state(store_.storage(), store_.array()));
  const MutexLock lock(mutex_);
  findings_ = kept;
  // It stopped within this file, which was counted then.
  if (kept.file != FileId()) away_counted_ = kept.position;
  return PassState(kept);
}

Status Scrub::save(const PassState& state) {
  ScrubFindings findings;
  {
    const MutexLock lock(mutex_);
    findings = findings_;
  }
  return save_scrub_state(store_.storage(), store_.array(), {state, std::move(findings)});
}

// --- reading ---------------------------------------------------------------------------------------------------------

void Scrub::visit_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                        std::function<void()> done) {
  report_failures(entry, file);
  // Ends on the member's queue thread, on the executor, or inside the call.
  file.verify_chunk(chunk,
                    [this, chunk, extent, done = std::move(done)](const Status& status, ChunkVerifier::Remedy remedy) {
                      if (!status.is_ok()) {
                        const MutexLock lock(mutex_);
                        failures_.push_back({chunk, extent, status, remedy});
                      }
                      done();
                    });
}

// Once for each file, however often its place is kept.
void Scrub::count_away(const FileEntry& entry, const File& file) {
  const uint64_t chunks = file.info().codec_chunks[static_cast<size_t>(Codec::kAway)];
  const MutexLock lock(mutex_);
  if (away_counted_ == entry.path) return;
  away_counted_ = entry.path;
  findings_.chunks_away += chunks;
}

void Scrub::file_done(const FileEntry& entry, File& file) {
  count_away(entry, file);
  report_failures(entry, file);
  report_failed_save(entry.path, file);
  unlogged_.log_all("scrub");
}

// --- findings --------------------------------------------------------------------------------------------------------

void Scrub::add_damage(CheckError error) {
  unlogged_.add(error);
  const MutexLock lock(mutex_);
  findings_.add(std::move(error));
}

// Damage is said of the name under which a file was met first.
std::string Scrub::describe_further_names(const FileEntry& entry) const {
  const Result<struct stat> attributes = store_.storage().stat_at(entry.directory, entry.name);
  if (!attributes.is_ok() || attributes->st_nlink < 2) return "";
  return fmt::format("; it is one of {} names of the file (find -samefile names the others)", attributes->st_nlink);
}

void Scrub::visit_unopened(const FileEntry& entry, const Status& failure) {
  if (failure.code() == StatusCode::kNotFound || failure.errno_value() == ESTALE) return;  // removed meanwhile
  const Result<ScannedFile> scanned = scan_file(store_.storage(), store_.array(), entry);
  if (!scanned.is_ok() && scanned.status().code() == StatusCode::kNotFound) return;
  if (scanned.is_ok() && scanned->status.is_ok()) return;  // replaced meanwhile
  const Status& found = scanned.is_ok() ? scanned->status : scanned.status();
  const bool is_readable =
      scanned.is_ok() && (found.code() == StatusCode::kCorruption || found.code() == StatusCode::kUnsupported);
  CheckError error;
  error.path = entry.path;
  error.kind = !is_readable          ? "unreadable"
               : scanned->is_foreign ? "foreign-sidecar"
               : scanned->is_stray   ? "foreign"
                                     : "sidecar";
  error.detail = found.message() + describe_further_names(entry);
  add_damage(std::move(error));
  unlogged_.log_all("scrub");
}

// Its chunks are those of a version that is not committed, and were not read. Said once, however often its place is
// kept.
void Scrub::report_failed_save(const std::string& path, const File& file) {
  const Status failure = file.error();
  if (failure.is_ok() || failed_save_told_ == path) return;
  failed_save_told_ = path;
  CheckError error;
  error.path = path;
  error.kind = ScrubFindings::kFailedSave;
  error.detail = fmt::format(
      "a save of it has failed and it is still open, so what was committed before is not looked at; scrub again when "
      "it is closed: {}",
      failure.message());
  add_damage(std::move(error));
}

void Scrub::report_failures(const FileEntry& entry, const File& file) {
  std::vector<Failure> failures;
  {
    const MutexLock lock(mutex_);
    failures.swap(failures_);
  }
  if (failures.empty()) return;
  const File::Info info = file.info();
  const std::string further_names = describe_further_names(entry);
  for (const Failure& failure : failures) {
    CheckError error;
    error.path = entry.path;
    error.kind = kind_of(failure, info);
    if (failure.extent.exists()) {
      error.chunk = static_cast<int64_t>(failure.chunk.value());
      error.member = failure.extent.member.value();
      error.object_offset =
          static_cast<int64_t>(offset_of(failure.extent.slot, store_.array().stripes().chunk_size).value());
    }
    error.detail = failure.status.at(Status::kNoMember, 0, 0).message() + further_names;  // it is said beside it
    error.healing = ChunkVerifier::name_of(failure.remedy);
    error.repaired = failure.remedy == ChunkVerifier::Remedy::kHealed;
    add_damage(std::move(error));
  }
}

std::string Scrub::kind_of(const Failure& failure, const File::Info& info) const {
  if (!failure.extent.exists()) return failure.status.code() == StatusCode::kCorruption ? "sidecar" : "unreadable";
  const Member& member = store_.array().member(failure.extent.member);
  if (!member.present) return "missing-member";
  if (failure.status.code() != StatusCode::kCorruption) return "unreadable";
  // A chunk that was healed has one again.
  if (failure.status.message().ends_with(kObjectMissing)) return "missing-object";
  const Result<HandleCache::Pin> directory = store_.array().object_directory(failure.extent.member, info.file_id);
  if (!directory.is_ok()) return "missing-object";
  const Result<struct stat> attributes =
      store_.storage().stat_at(directory->get(), Array::object_name(info.file_id, info.generation));
  if (attributes.status().code() == StatusCode::kNotFound) return "missing-object";
  const ObjectOffset end =
      offset_of(failure.extent.slot, store_.array().stripes().chunk_size) + failure.extent.stored_length;
  const bool is_short = attributes.is_ok() && ObjectOffset(static_cast<uint64_t>(attributes->st_size)) < end;
  return is_short ? "short-object" : "checksum";
}

}  // namespace fpfs
