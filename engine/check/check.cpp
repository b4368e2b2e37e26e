// Three passes. Scan: every sidecar is read and judged together with the sizes of its objects; torn tails are cut.
// Verify (when asked for): every chunk is read. Objects and repair: damaged files are set aside, space is given back,
// objects that no sidecar names are removed; only after every sidecar was read, see recover.cpp.
//
// Beside a live mount nothing is repaired and what only the mount can know is not judged: an object that no sidecar
// names may belong to a file that is being written or that was unlinked while open. A file with findings is looked at
// until it stays the same from one look to the next.
//
// After a clean end nothing is left over. Then bytes behind the last record of a sidecar, objects that no sidecar names
// and space that no extent needs are no leftovers of a crash: the sidecar that named them was cut short, emptied or
// lost, and they may be the content of the newest commit. Repair::kPreen frees nothing that such a sidecar can have
// named.
#include "engine/check/check.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <unordered_set>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/ranges.h"
#include "engine/check/inspect.h"
#include "engine/check/members.h"
#include "engine/check/noted_copies.h"
#include "engine/check/object_directories.h"
#include "engine/check/repair.h"
#include "engine/check/replay.h"
#include "engine/check/set_aside.h"
#include "engine/check/verify.h"

namespace fpfs {

namespace {

constexpr size_t kErrorsMax = 10'000;
constexpr int kLooksMax = 10;
constexpr auto kLookInterval = std::chrono::milliseconds(20);
constexpr auto kProgressInterval = std::chrono::milliseconds(200);
using Clock = std::chrono::steady_clock;

bool is_whole_again(const CheckError& error) {
  return error.repaired && !error.set_aside;
}

class Checker {
 public:
  Checker(Storage& storage, Array& array, const CheckOptions& options, bool is_live)
      : storage_(storage),
        array_(array),
        options_(options),
        is_live_(is_live),
        ended_cleanly_(!is_live && !array.was_dirty()) {}
  Result<CheckReport> run();

 private:
  // What is known of a damaged file, by the inode of its sidecar.
  struct Damage {
    std::vector<CheckError> errors;
    std::vector<ChunkIndex> lost_chunks;
    std::bitset<kMemberCountMax> members;
  };
  struct Leftovers {
    std::string path;
    std::vector<MemberIndex> members;
  };

  Status replay();
  Result<bool> scan(const FileEntry& entry);
  Status record(const FileEntry& entry, const ScannedFile& file, FileInspection inspection);
  Status find_missing_records();
  Status verify();
  void verify_inline(const FileEntry& entry, const ScannedFile& scanned);
  void collect(std::deque<std::shared_ptr<VerifiedFile>>& files, bool all);
  void judge_verified(const std::shared_ptr<VerifiedFile>& file);
  bool look_again(std::shared_ptr<VerifiedFile>& file);
  Status name_further_names();
  Status set_damaged_aside();
  void read_what_survives(const FileEntry& entry, const ScannedFile& file, Damage& damage);
  Status free_leftovers();
  Result<bool> free_if_orphan(const ObjectEntry& object);
  Status find_strays(MemberIndex member);

  bool repairs() const { return options_.repair != Repair::kNone; }
  // What was left over after a clean end is freed on request only.
  bool frees_leftovers() const { return ended_cleanly_ ? options_.repair == Repair::kYes : repairs(); }
  // Beside a member that is missing or old the names may be older than the objects.
  bool is_whole() const {
    if (array_.has_outdated()) return false;
    for (const MemberIndex m : array_.members())
      if (!array_.member(m).present && !array_.is_removed(m)) return false;
    return true;
  }
  bool cancelled() const { return options_.cancelled != nullptr && options_.cancelled->load(); }
  bool is_further_name(const struct stat& attributes);
  void add_error(CheckError error);
  void show_progress();
  void tell_progress();
  std::string why_kept(bool may_be_of_empty = false);

  Storage& storage_;
  Array& array_;
  const CheckOptions& options_;
  const bool is_live_;
  const bool ended_cleanly_;
  CheckReport report_;
  References references_;
  std::unordered_set<uint64_t> linked_inodes_;
  std::map<uint64_t, Damage> damage_;
  std::vector<Leftovers> leftovers_;
  DataVerifier::Totals totals_;
  std::vector<std::shared_ptr<VerifiedFile>> failed_;
  bool is_reading_ = false;
  bool are_empty_told_ = false;
  Clock::time_point progress_shown_ = Clock::now();
};

Result<CheckReport> Checker::run() {
  const Clock::time_point start = Clock::now();
  FPFS_RETURN_IF_ERROR(check_not_hidden(array_));
  if (repairs()) FPFS_RETURN_IF_ERROR(array_.begin_changes());
  if (repairs()) FPFS_RETURN_IF_ERROR(sync_everything(storage_, array_));
  Status replayed;
  if (!is_live_ && array_.was_dirty()) replayed = replay();
  const bool needs_room = repairs() && replayed.code() == StatusCode::kNoSpace;
  if (!needs_room) FPFS_RETURN_IF_ERROR(replayed);
  FPFS_ASSIGN_OR_RETURN(std::vector<CheckError> missing,
                        find_missing_directories(storage_, array_, options_.repair == Repair::kYes));
  for (CheckError& error : missing) add_error(std::move(error));
  FPFS_RETURN_IF_ERROR(walk_files(storage_, array_.tree(), [this](const FileEntry& entry) { return scan(entry); }));
  FPFS_RETURN_IF_ERROR(add_files_set_aside(storage_, array_, references_));
  if (ended_cleanly_ && !cancelled()) FPFS_RETURN_IF_ERROR(find_missing_records());
  if (options_.verify_data && !cancelled()) FPFS_RETURN_IF_ERROR(verify());
  if (!cancelled()) {
    FPFS_RETURN_IF_ERROR(name_further_names());
    if (options_.repair == Repair::kYes) FPFS_RETURN_IF_ERROR(set_damaged_aside());
    FPFS_RETURN_IF_ERROR(free_leftovers());
    for (const MemberIndex m : array_.members())
      if (array_.member(m).present && !is_live_) {
        FPFS_RETURN_IF_ERROR(
            walk_objects(storage_, array_, m, [this](const ObjectEntry& object) { return free_if_orphan(object); }));
        FPFS_RETURN_IF_ERROR(find_strays(m));
      }
    if (needs_room) FPFS_RETURN_IF_ERROR(replay());  // what was freed is room
  }
  if (!are_empty_told_) report_.empty_files.clear();
  report_.cancelled = cancelled();
  report_.after_crash = !is_live_ && array_.was_dirty();
  report_.bytes_verified = totals_.bytes_verified;
  std::stable_sort(report_.errors.begin(), report_.errors.end(), [](const CheckError& a, const CheckError& b) {
    return std::tie(a.path, a.chunk) < std::tie(b.path, b.chunk);
  });
  const CheckOptions::IsCopied is_copied = options_.copies != nullptr ? options_.copies(storage_, array_) : nullptr;
  note_copies(storage_, array_, is_copied, report_.errors);
  report_.repaired = static_cast<uint64_t>(std::count_if(report_.errors.begin(), report_.errors.end(), is_whole_again));
  const bool all_repaired =
      report_.errors_omitted == 0 &&
      std::all_of(report_.errors.begin(), report_.errors.end(), [](const CheckError& error) { return error.repaired; });
  if (repairs() && all_repaired && !report_.cancelled && array_.was_dirty()) {
    // "Clean" says that nothing is left to free, so what was freed must not come back with a power cut.
    FPFS_RETURN_IF_ERROR(sync_everything(storage_, array_));
    FPFS_RETURN_IF_ERROR(array_.mark_clean());
  }
  report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return std::move(report_);
}

// Before anything is taken for what a crash has cut short.
Status Checker::replay() {
  FPFS_ASSIGN_OR_RETURN(const ReplayReport replayed, replay_commits(storage_, array_, repairs()));
  const auto add = [this](const char* kind, std::string detail, bool repaired) {
    CheckError error;
    error.kind = kind;
    error.detail = std::move(detail);
    error.repaired = repaired;
    add_error(std::move(error));
  };
  if (!replayed.damage.empty())
    add("commit-log",
        fmt::format("{}/{}: {}; small files that were saved in the last moments before the crash may be missing",
                    array_.metadata_path(), kCommitsName, replayed.damage),
        repairs());
  for (const ReplayedCommit& commit : replayed.missing) {
    if (commit.failure.is_ok())
      add("pending-commit", commit.name + " was saved before the crash, and is in the commit log only", repairs());
    else
      add("commit-log",
          fmt::format("{} was saved before the crash, and cannot be put back: {}", commit.name,
                      commit.failure.message()),
          false);
  }
  return Status::ok();
}

void Checker::add_error(CheckError error) {
  if (report_.errors.size() < kErrorsMax)
    report_.errors.push_back(std::move(error));
  else if (error.kind != "missing-member")
    ++report_.errors_omitted;
}

void Checker::show_progress() {
  if (!options_.progress || Clock::now() - progress_shown_ < kProgressInterval) return;
  progress_shown_ = Clock::now();
  tell_progress();
}

void Checker::tell_progress() {
  options_.progress({report_.files, totals_.bytes_done, is_reading_ ? report_.bytes_stored : 0});
}

// `may_be_of_empty`: as far as is known an object is nobody's, but some file's index may have been emptied. That file
// looks like the empty ones, and nothing on the drives tells them apart: also where it is an object of what was set
// aside and then removed from lost+found. So it is for whoever knows these files to say (-y).
std::string Checker::why_kept(bool may_be_of_empty) {
  if (!ended_cleanly_ || frees_leftovers()) return "";
  if (may_be_of_empty) {
    constexpr size_t kEmptyTold = 8;
    are_empty_told_ = true;
    const bool is_one = references_.empty_sidecars() == 1;
    const std::span<const std::string> told =
        std::span(report_.empty_files).first(std::min(kEmptyTold, report_.empty_files.size()));
    return fmt::format(
        "; the array was ended cleanly, and {} of its files {} empty ({}{}), which an index that was emptied looks "
        "like: if {} should be empty, -y frees it",
        references_.empty_sidecars(), is_one ? "is" : "are", fmt::join(told, ", "),
        references_.empty_sidecars() > told.size() ? ", ...; --json lists them under empty_files" : "",
        is_one ? "it" : "all of them");
  }
  return "; the array was ended cleanly, so this may be content whose sidecar was cut short or emptied: look for such "
         "a file before -y frees it";
}

// A hard link to a sidecar that was looked at under another name.
bool Checker::is_further_name(const struct stat& attributes) {
  return attributes.st_nlink > 1 && !linked_inodes_.insert(attributes.st_ino).second;
}

// --- scan ------------------------------------------------------------------------------------------------------------

Result<bool> Checker::scan(const FileEntry& entry) {
  if (cancelled()) return false;
  show_progress();
  for (int look = 1;; ++look) {
    const Result<ScannedFile> file =
        scan_file(storage_, array_, entry, repairs() ? SidecarSource::kUncached : SidecarSource::kCache);
    if (!file.is_ok()) return true;  // gone since the directory was listed
    FileInspection inspection = inspect_file(storage_, array_, entry.path, *file, !is_live_);
    if (is_live_ && !inspection.errors.empty()) {
      std::this_thread::sleep_for(kLookInterval);
      const Result<struct stat> now = storage_.stat_at(entry.directory, entry.name);
      if (now.status().code() == StatusCode::kNotFound) return true;
      const bool stayed = now.is_ok() && file->is_same_as(*now);
      if (!stayed && look < kLooksMax) continue;
      if (!stayed) inspection = FileInspection();  // commit after commit: its reader is the mount itself
    }
    if (is_further_name(file->attributes)) return true;
    FPFS_RETURN_IF_ERROR(record(entry, *file, std::move(inspection)));
    return true;
  }
}

Status Checker::record(const FileEntry& entry, const ScannedFile& file, FileInspection inspection) {
  if (!file.is_stray) ++report_.files;
  if (!file.status.is_ok()) {
    references_.add_unreadable(file);
  } else if (!references_.add(file)) {
    CheckError& error = inspection.errors.emplace_back();
    error.path = entry.path;
    error.kind = "overlap";
    error.detail =
        fmt::format("another sidecar names the same objects ({:016x}): one is a copy made behind the mount's back",
                    file.image.file_id);
  }
  if (file.status.is_ok() && file.attributes.st_size == 0 && report_.empty_files.size() < kErrorsMax)
    report_.empty_files.push_back(entry.path);
  report_.bytes_stored += file.image.inline_data.size();
  uint64_t missing = 0;
  file.image.extents.for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
    ++report_.chunks;
    report_.chunks_away += extent.is_away() ? 1 : 0;
    missing += extent.is_here() && !array_.member(extent.member).present ? 1 : 0;
    report_.bytes_stored += extent.stored_length;
    return true;
  });
  report_.chunks_missing += missing;
  report_.files_missing += missing > 0 ? 1 : 0;
  if (!inspection.members_with_leftovers.empty())
    leftovers_.push_back({entry.path, std::move(inspection.members_with_leftovers)});
  for (CheckError& error : inspection.errors) {
    if (error.kind == "torn-tail" && repairs()) {
      FPFS_RETURN_IF_ERROR(cut_torn_tail(storage_, entry, file));
      error.repaired = true;
    }
    if (is_damage(error.kind) && !file.is_stray) damage_[file.attributes.st_ino].errors.push_back(error);
    add_error(error);
  }
  if (inspection.lost_chunks.empty() && inspection.damaged_members.none()) return Status::ok();
  Damage& damage = damage_[file.attributes.st_ino];
  damage.lost_chunks = std::move(inspection.lost_chunks);
  damage.members = inspection.damaged_members;
  return Status::ok();
}

// Objects of a file in a generation that its sidecar does not name: its last records are missing, and what is left
// looks like a file that is whole. It is damaged, and keeps all its objects.
Status Checker::find_missing_records() {
  std::map<FileId, std::string> unnamed;  // an object of each
  for (const MemberIndex m : array_.members())
    if (array_.member(m).present)
      FPFS_RETURN_IF_ERROR(walk_objects(storage_, array_, m, [&](const ObjectEntry& object) -> Result<bool> {
        if (is_orphan(references_, object) && references_.knows(object.file))
          unnamed.emplace(object.file, object_path(array_, m, object.file, object.generation));
        return !cancelled();
      }));
  if (unnamed.empty()) return Status::ok();
  return walk_files(storage_, array_.tree(), [&](const FileEntry& entry) -> Result<bool> {
    const Result<ScannedFile> file = scan_file(storage_, array_, entry);
    if (!file.is_ok() || !file->status.is_ok()) return !cancelled();
    const auto found = unnamed.find(file->image.file_id);
    if (found == unnamed.end()) return !cancelled();
    references_.keep(found->first);
    CheckError error;
    error.path = entry.path;
    error.kind = "sidecar";
    error.detail = fmt::format(
        "its last records are missing: the array was ended cleanly, and there is {}, which they named; the file's "
        "objects are kept",
        found->second);
    damage_[file->attributes.st_ino].errors.push_back(error);
    add_error(std::move(error));
    return !cancelled();
  });
}

// --- verify ----------------------------------------------------------------------------------------------------------

Status Checker::verify() {
  linked_inodes_.clear();
  is_reading_ = true;
  std::deque<std::shared_ptr<VerifiedFile>> files;
  DataVerifier verifier(storage_, array_, totals_, options_.cancelled, [this] { show_progress(); });
  const auto add = [&](const FileEntry& entry) -> Result<bool> {
    const Result<ScannedFile> scanned = scan_file(storage_, array_, entry);
    // What cannot be read was reported by the scan.
    const bool is_stored = scanned.is_ok() && (scanned->image.is_inline || scanned->image.extents.count() > 0);
    if (!is_stored || !scanned->status.is_ok()) return !cancelled();
    if (is_further_name(scanned->attributes)) return !cancelled();
    if (scanned->image.is_inline) {
      verify_inline(entry, *scanned);
      show_progress();
      return !cancelled();
    }
    auto file = std::make_shared<VerifiedFile>();
    file->path = entry.path;
    file->attributes = scanned->attributes;
    file->file_id = scanned->image.file_id;
    file->generation = scanned->image.generation;
    const auto damage = damage_.find(scanned->attributes.st_ino);
    if (damage != damage_.end()) file->known_damaged = damage->second.members;
    verifier.add(file, scanned->image);
    files.push_back(std::move(file));
    collect(files, false);
    show_progress();
    return !cancelled();
  };
  const Status walked = walk_files(storage_, array_.tree(), add);
  verifier.finish();
  FPFS_RETURN_IF_ERROR(walked);
  collect(files, true);
  if (options_.progress) tell_progress();
  for (const std::shared_ptr<VerifiedFile>& file : failed_) judge_verified(file);
  failed_.clear();
  return Status::ok();
}

// Content that is kept in the sidecar: read anew from the drive, as the scan may have had it from the page cache, and
// checked by the sums of the records that hold it.
void Checker::verify_inline(const FileEntry& entry, const ScannedFile& scanned) {
  const uint64_t length = scanned.image.inline_data.size();
  totals_.bytes_done += length;
  Result<ScannedFile> stored = scan_file(storage_, array_, entry, SidecarSource::kDrive);
  for (int look = 1; is_live_ && stored.is_ok() && !stored->status.is_ok(); ++look) {
    const Result<struct stat> now = storage_.stat_at(entry.directory, entry.name);
    if (!now.is_ok() || look == kLooksMax) return;  // gone, or commit after commit: its reader is the mount itself
    if (stored->is_same_as(*now)) break;
    stored = scan_file(storage_, array_, entry, SidecarSource::kDrive);
  }
  if (!stored.is_ok()) return;  // gone since the directory was listed
  if (stored->status.is_ok()) {
    totals_.bytes_verified += length;
    return;
  }
  FileInspection inspection = inspect_file(storage_, array_, entry.path, *stored, false);
  Damage& damage = damage_[stored->attributes.st_ino];
  damage.lost_chunks.assign(1, ChunkIndex(0));
  for (CheckError& error : inspection.errors) {
    damage.errors.push_back(error);
    add_error(std::move(error));
  }
}

// Lets go of files that were read wholly, keeping those with errors.
void Checker::collect(std::deque<std::shared_ptr<VerifiedFile>>& files, bool all) {
  while (!files.empty() && (all || files.front().use_count() == 1)) {
    {
      VerifiedFile& file = *files.front();
      const MutexLock lock(file.mutex);
      if (!file.errors.empty()) failed_.push_back(files.front());
    }
    files.pop_front();
  }
}

void Checker::judge_verified(const std::shared_ptr<VerifiedFile>& first) {
  std::shared_ptr<VerifiedFile> file = first;
  for (int look = 1; is_live_ && look_again(file); ++look)
    if (look == kLooksMax) return;
  const MutexLock lock(file->mutex);
  if (file->errors.empty()) return;
  Damage& damage = damage_[file->attributes.st_ino];
  for (const CheckError& error : file->errors) {
    damage.errors.push_back(error);
    damage.lost_chunks.emplace_back(static_cast<uint64_t>(error.chunk));
    add_error(error);
  }
  std::sort(damage.lost_chunks.begin(), damage.lost_chunks.end());
}

// When the file changed since its chunks were listed, they may have moved: reads it anew, into `file`. False when it
// did not change (the errors stand) or is gone (no errors are left).
bool Checker::look_again(std::shared_ptr<VerifiedFile>& file) {
  {
    const MutexLock lock(file->mutex);
    if (file->errors.empty()) return false;
  }
  const Result<ScannedFile> now = scan_path(storage_, array_, array_.tree(), file->path);
  if (now.is_ok() && now->is_same_as(file->attributes)) return false;
  auto fresh = std::make_shared<VerifiedFile>();
  fresh->path = file->path;
  if (now.is_ok() && now->status.is_ok()) {
    fresh->attributes = now->attributes;
    fresh->file_id = now->image.file_id;
    fresh->generation = now->image.generation;
    DataVerifier verifier(storage_, array_, totals_, options_.cancelled, [this] { show_progress(); });
    verifier.add(fresh, now->image);
    verifier.finish();
  }
  file = fresh;
  return true;
}

// Who brings back what is named needs each name of a damaged file: it was looked at under the first one.
Status Checker::name_further_names() {
  if (damage_.empty()) return Status::ok();
  return walk_files(storage_, array_.tree(), [this](const FileEntry& entry) -> Result<bool> {
    const Result<struct stat> attributes = storage_.stat_at(entry.directory, entry.name);
    if (!attributes.is_ok() || attributes->st_nlink < 2) return !cancelled();
    const auto damage = damage_.find(attributes->st_ino);
    if (damage == damage_.end() || damage->second.errors.empty()) return !cancelled();
    const std::vector<CheckError>& errors = damage->second.errors;
    const bool is_named = std::any_of(errors.begin(), errors.end(),
                                      [&entry](const CheckError& error) { return error.path == entry.path; });
    if (is_named) return !cancelled();
    CheckError error;
    error.path = entry.path;
    error.kind = errors.front().kind;
    error.detail = fmt::format("it is the same file as {}, a hard link", errors.front().path);
    add_error(std::move(error));
    return !cancelled();
  });
}

// --- repair ----------------------------------------------------------------------------------------------------------

// What a text says about surviving bytes was read: also without verify_data, and of objects that are known to be short.
void Checker::read_what_survives(const FileEntry& entry, const ScannedFile& file, Damage& damage) {
  DataVerifier::Totals totals;
  auto read = std::make_shared<VerifiedFile>();
  read->path = entry.path;
  read->attributes = file.attributes;
  read->file_id = file.image.file_id;
  read->generation = file.image.generation;
  DataVerifier verifier(storage_, array_, totals, options_.cancelled, [this] { show_progress(); });
  verifier.add(read, file.image);
  verifier.finish();
  const MutexLock lock(read->mutex);
  const std::vector<ChunkIndex> known = damage.lost_chunks;
  for (CheckError& error : read->errors) {
    const ChunkIndex chunk(static_cast<uint64_t>(error.chunk));
    if (std::binary_search(known.begin(), known.end(), chunk)) continue;
    damage.errors.push_back(error);
    damage.lost_chunks.push_back(chunk);
    add_error(std::move(error));
  }
  std::sort(damage.lost_chunks.begin(), damage.lost_chunks.end());
}

Status Checker::set_damaged_aside() {
  if (damage_.empty()) return Status::ok();
  std::unordered_set<std::string> moved;
  std::unordered_set<uint64_t> read;
  const auto visit = [&](const FileEntry& entry) -> Result<bool> {
    const Result<struct stat> attributes = storage_.stat_at(entry.directory, entry.name);
    if (!attributes.is_ok()) return attributes.status();
    const auto damage = damage_.find(attributes->st_ino);
    if (damage == damage_.end()) return true;
    FPFS_ASSIGN_OR_RETURN(const ScannedFile file, scan_file(storage_, array_, entry));
    const bool is_first_name = read.insert(attributes->st_ino).second;
    const bool was_read = options_.verify_data && damage->second.members.none();
    if (file.status.is_ok() && !was_read && is_first_name) read_what_survives(entry, file, damage->second);
    if (cancelled()) return false;  // what was not read must not be called lost
    FPFS_ASSIGN_OR_RETURN(FileSetAside aside,
                          set_aside(storage_, array_, entry, file, damage->second.errors, damage->second.lost_chunks));
    report_.set_aside.push_back(std::move(aside));
    moved.insert(entry.path);
    return true;
  };
  FPFS_RETURN_IF_ERROR(walk_files(storage_, array_.tree(), visit));
  for (CheckError& error : report_.errors)
    if (is_damage(error.kind) && moved.count(error.path) > 0) error.repaired = error.set_aside = true;
  return Status::ok();
}

Status Checker::free_leftovers() {
  for (const Leftovers& leftovers : leftovers_) {
    const Result<ScannedFile> file = scan_path(storage_, array_, array_.tree(), leftovers.path);
    if (!file.is_ok() || !file->status.is_ok()) continue;  // was set aside
    const auto members = chunks_by_member(file->image, array_.member_count());
    const bool is_shared = references_.find(file->image.file_id, file->image.generation) == nullptr;
    for (MemberIndex m : leftovers.members) {
      CheckError error;
      error.path = leftovers.path;
      error.member = m.value();
      error.kind = "leftover-space";
      error.detail = object_path(array_, m, file->image.file_id, file->image.generation) +
                     " holds space that the file does not need" + why_kept();
      if (frees_leftovers() && !is_shared) {
        FPFS_RETURN_IF_ERROR(free_leftovers_on(storage_, array_, file->image, m, members[m]).status());
        error.repaired = true;
      }
      add_error(std::move(error));
    }
  }
  return Status::ok();
}

Result<bool> Checker::free_if_orphan(const ObjectEntry& object) {
  if (cancelled()) return false;
  const bool orphan = is_orphan(references_, object);
  const bool unused = !orphan && is_unused(references_, object);
  if (!orphan && !unused && object.is_object) return true;
  const Result<struct stat> attributes = storage_.stat_at(object.directory, object.name);
  if (!attributes.is_ok()) return attributes.status();
  if (unused && attributes->st_blocks == 0) return true;  // waits for the file's next chunk

  CheckError error;
  error.member = object.member.value();
  const std::string path = path_of(array_, object);
  if (!object.is_object) {
    error.kind = "foreign";
    error.detail = path + ": this is no object; move it elsewhere";
  } else {
    error.kind = orphan ? "orphan" : "leftover-space";
    // Of a file that no sidecar knows, and none can have forgotten, nothing can be missing.
    const bool is_unknown = orphan && is_whole() && !references_.knows(object.file);
    const bool is_nobodys = is_unknown && references_.empty_sidecars() == 0;
    const bool frees = frees_leftovers() || (repairs() && is_nobodys);
    error.is_nobodys = is_nobodys;
    error.detail = fmt::format(
        "{}: {} that no file names{}", path, format_count(static_cast<uint64_t>(attributes->st_size), "byte"),
        frees                          ? ""
        : is_nobodys && ended_cleanly_ ? "; look whether a checkpoint is missing before -p removes it"
                                       : why_kept(is_unknown));
    if (orphan) ++report_.orphans;
    if (frees) {
      FPFS_RETURN_IF_ERROR(remove_object(storage_, object).status());
      error.repaired = true;
    }
  }
  add_error(std::move(error));
  return true;
}

Status Checker::find_strays(MemberIndex member) {
  return walk_strays(storage_, array_, member, [&](const std::string& path) {
    CheckError error;
    error.member = member.value();
    error.kind = "foreign";
    error.detail = path + ": it is not of the array; move it elsewhere";
    add_error(std::move(error));
  });
}

// A member whose mount record is lost may be an old copy. It is taken for current when all of the array fits together:
// an old one lacks objects that the names need, or old names leave newer objects without a file.
Result<CheckReport> renew_records(Environment& environment, MemberFindings members, CheckOptions options) {
  ArrayOptions how;
  how.read_only = how.degraded = true;
  how.buffered_members = options.buffered_members;
  how.metadata_directory = options.metadata_directory;
  how.is_check = true;
  CheckReport report;
  options.repair = Repair::kNone;
  {
    FPFS_ASSIGN_OR_RETURN(const auto array, Array::open(environment, members.present, how));
    FPFS_ASSIGN_OR_RETURN(report, Checker(environment.storage(), *array, options, false).run());
  }
  if (report.clean() && !report.cancelled) {
    how.read_only = how.degraded = false;
    how.renew_records = true;
    FPFS_ASSIGN_OR_RETURN(const auto array, Array::open(environment, members.present, how));
    FPFS_RETURN_IF_ERROR(array->begin_changes());
    for (CheckError& error : members.errors) error.repaired = true;
    report.repaired = members.errors.size();
  }
  report.errors.insert(report.errors.begin(), members.errors.begin(), members.errors.end());
  return report;
}

// Where the names are, of an array that has a directory for them alone: as said, or as the first superblock says.
std::string names_directory(Storage& storage, const std::vector<std::string>& directories,
                            const CheckOptions& options) {
  for (const std::string& path : directories) {
    const Result<Handle> opened = storage.open_directory(path);
    if (!opened.is_ok()) continue;
    const ScopedHandle directory(storage, *opened);
    const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, directory.get());
    if (!bytes.is_ok()) continue;
    const Result<Superblock> superblock = decode_superblock(*bytes, false);
    if (!superblock.is_ok()) continue;
    if (superblock->metadata_member != kMetadataOnlyMember) return "";
    return options.metadata_directory.empty() ? superblock->metadata_path : options.metadata_directory;
  }
  return "";
}

// An old copy lacks what was saved since, and old names know nothing of it.
void note_older_members(const std::vector<CheckError>& members, MemberIndex with_names,
                        std::vector<CheckError>& errors) {
  std::set<int> older;
  for (const CheckError& error : members)
    if (error.kind == "older-member") older.insert(error.member);
  const bool are_names_older = older.contains(-1) || older.contains(with_names.value());
  for (CheckError& error : errors)
    error.of_older_member = !older.empty() && (are_names_older || older.contains(error.member));
}

// Beside a live mount the array is held by it, and is looked at all the same.
Result<std::unique_ptr<Array>> open_array(Environment& environment, const std::vector<std::string>& directories,
                                          ArrayOptions& how, bool& is_live) {
  Result<std::unique_ptr<Array>> array = Array::open(environment, directories, how);
  is_live = how.read_only && array.status().code() == StatusCode::kBusy;
  if (!is_live) return array;
  how.lock = false;
  return Array::open(environment, directories, how);
}

Result<CheckReport> check_members_and_array(Environment& environment, const std::vector<std::string>& directories,
                                            const CheckOptions& options);

}  // namespace

Result<CheckReport> check_array(Environment& environment, const std::vector<std::string>& directories,
                                const CheckOptions& options) {
  FPFS_ASSIGN_OR_RETURN(CheckReport report, check_members_and_array(environment, directories, options));
  report.names_in = names_directory(environment.storage(), directories, options);
  return report;
}

namespace {

Result<CheckReport> check_members_and_array(Environment& environment, const std::vector<std::string>& directories,
                                            const CheckOptions& options) {
  Storage& storage = environment.storage();
  ArrayOptions how;
  how.read_only = options.repair == Repair::kNone;
  how.buffered_members = options.buffered_members;
  how.metadata_directory = options.metadata_directory;
  how.is_check = true;
  bool is_live = false;
  Result<std::unique_ptr<Array>> array = open_array(environment, directories, how, is_live);
  if (array.is_ok()) return Checker(storage, **array, options, is_live).run();

  FPFS_ASSIGN_OR_RETURN(MemberFindings members,
                        examine_members(storage, directories, options.metadata_directory, array.status()));
  CheckReport report;
  report.was_checked = false;
  if (options.repair == Repair::kYes && !members.restorable.empty()) {
    FPFS_RETURN_IF_ERROR(restore_members(storage, members));
    // Whatever else there may be is found by looking again.
    FPFS_ASSIGN_OR_RETURN(report, check_members_and_array(environment, directories, options));
    std::erase_if(members.errors, [](const CheckError& error) { return !error.repaired; });
    report.repaired += members.errors.size();
    report.errors.insert(report.errors.begin(), members.errors.begin(), members.errors.end());
    return report;
  }
  if (options.repair == Repair::kYes && members.only_records_are_lost)
    return renew_records(environment, std::move(members), options);
  if (members.is_readable_degraded && how.read_only) {
    how.degraded = true;
    array = open_array(environment, members.present, how, is_live);
    // Not without the member that keeps the names.
    if (array.is_ok()) {
      FPFS_ASSIGN_OR_RETURN(report, Checker(storage, **array, options, is_live).run());
      note_older_members(members.errors, (*array)->superblock().metadata_member, report.errors);
    }
  }
  report.errors.insert(report.errors.begin(), members.errors.begin(), members.errors.end());
  return report;
}

}  // namespace

}  // namespace fpfs
