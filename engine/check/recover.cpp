// Recovery after an unclean shutdown. What makes it safe at any moment:
//
//   1. sync      the tree's filesystem and the members': after a killed daemon (no power cut) the page cache may hold
//                records that are newer than the durable ones. From here on what is read is what a power cut leaves;
//                sidecars are read from the drive, as a sync that failed before may have left others in memory.
//   2. commits   what the commit log says is durable, and the tree does not have, is put back (replay.h).
//   3. sidecars  every one is read; torn tails are cut and the cut is synced. A sidecar that cannot be read protects
//                the objects that it may name, all of them when it does not even tell whose they are.
//   4. objects   only after all sidecars were read: objects that none of them names are removed, space outside the
//                extents that they name is given back.
//
// Every step repeats without harm.
#include "engine/array/member_directory.h"
#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/check/check.h"
#include "engine/check/object_space.h"
#include "engine/check/repair.h"
#include "engine/check/replay.h"
#include "engine/check/scan.h"

namespace fpfs {

namespace {

constexpr uint64_t kTailsLogged = 100;  // one line each; beyond them the number has to do

class Recovery {
 public:
  Recovery(Storage& storage, Array& array) : storage_(storage), array_(array) {}
  Result<RecoveryCounts> run();

 private:
  Status replay();
  Result<bool> recover_sidecar(const FileEntry& entry);
  Result<bool> recover_object(const ObjectEntry& object);
  // Whether any object of the file holds more than its extents need.
  bool has_leftovers(const FileImage& image);
  Status free_leftovers(const std::string& path);

  Storage& storage_;
  Array& array_;
  References references_;
  std::vector<std::string> with_leftovers_;  // paths
  RecoveryCounts counts_;
};

Result<RecoveryCounts> Recovery::run() {
  FPFS_RETURN_IF_ERROR(sync_everything(storage_, array_));
  const Status replayed = replay();
  const bool needs_room = replayed.code() == StatusCode::kNoSpace;
  if (!needs_room) FPFS_RETURN_IF_ERROR(replayed);
  FPFS_RETURN_IF_ERROR(
      walk_files(storage_, array_.tree(), [this](const FileEntry& entry) { return recover_sidecar(entry); }));
  FPFS_RETURN_IF_ERROR(add_files_set_aside(storage_, array_, references_));

  for (const std::string& path : with_leftovers_) FPFS_RETURN_IF_ERROR(free_leftovers(path));
  for (const MemberIndex m : array_.members())
    if (array_.member(m).present)
      FPFS_RETURN_IF_ERROR(
          walk_objects(storage_, array_, m, [this](const ObjectEntry& object) { return recover_object(object); }));
  if (needs_room) FPFS_RETURN_IF_ERROR(replay());  // what was freed is room
  return counts_;
}

Status Recovery::replay() {
  FPFS_ASSIGN_OR_RETURN(const ReplayReport replayed, replay_commits(storage_, array_, true));
  if (!replayed.damage.empty())
    log(LogLevel::kError, "{}/{}: {}; small files that were saved in the last moments before the crash may be missing",
        array_.metadata_path(), kCommitsName, replayed.damage);
  uint64_t& restored = counts_.commits_put_back;
  for (const ReplayedCommit& commit : replayed.missing) {
    if (commit.failure.is_ok())
      ++restored;
    else
      log(LogLevel::kError, "{} was saved before the crash and cannot be put back from {}/{}: {}", commit.name,
          array_.metadata_path(), kCommitsName, commit.failure.message());
  }
  if (restored > 0)
    log(LogLevel::kInfo, "{} put back from the commit log",
        format_count(restored, "small file was", "small files were"));
  return Status::ok();
}

Result<bool> Recovery::recover_sidecar(const FileEntry& entry) {
  FPFS_ASSIGN_OR_RETURN(const ScannedFile file, scan_file(storage_, array_, entry, SidecarSource::kUncached));
  if (!file.status.is_ok()) {
    log(LogLevel::kError, "{}: {}; {}", entry.path, file.status.message(),
        file.is_stray     ? "this is no index of a file: move it out of tree/"
        : file.is_foreign ? "fsck.fastpersistfs -y sets the file aside"
                          : "its data is kept, fsck.fastpersistfs -y sets the file aside");
    references_.add_unreadable(file);
    return true;
  }
  if (file.findings.torn_tail) {
    FPFS_RETURN_IF_ERROR(cut_torn_tail(storage_, entry, file));
    if (++counts_.torn_tails <= kTailsLogged)
      log(LogLevel::kInfo, "{}: a commit that the crash cut short is taken back; it has the content of the one before",
          entry.path);
  }
  if (!references_.add(file))
    log(LogLevel::kError, "{}: another file has the same id {:016x}; run fsck.fastpersistfs", entry.path,
        file.image.file_id);
  if (has_leftovers(file.image)) with_leftovers_.push_back(entry.path);
  return true;
}

bool Recovery::has_leftovers(const FileImage& image) {
  const auto members = chunks_by_member(image, array_.member_count());
  for (const MemberIndex m : array_.members()) {
    if (members[m].empty() || !array_.member(m).present) continue;
    const Result<bool> found = has_leftovers_on(storage_, array_, image, m, members[m]);
    // A missing or unreadable object is damage, which reading the file reports; recovery goes on.
    if (found.is_ok() && *found) return true;
  }
  return false;
}

Status Recovery::free_leftovers(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(const ScannedFile file, scan_path(storage_, array_, array_.tree(), path));
  FPFS_RETURN_IF_ERROR(file.status);
  // Nothing when two sidecars share the objects: then each needs other parts of them.
  if (references_.find(file.image.file_id, file.image.generation) == nullptr) return Status::ok();
  const auto members = chunks_by_member(file.image, array_.member_count());
  for (const MemberIndex m : array_.members()) {
    if (members[m].empty() || !array_.member(m).present) continue;
    const Result<uint64_t> freed = free_leftovers_on(storage_, array_, file.image, m, members[m]);
    if (freed.is_ok())
      counts_.bytes_freed += *freed;
    else
      log(LogLevel::kError, "{}: member {}: {}; run fsck.fastpersistfs", path, m, freed.status().message());
  }
  return Status::ok();
}

Result<bool> Recovery::recover_object(const ObjectEntry& object) {
  const bool orphan = is_orphan(references_, object);
  if (!orphan && !is_unused(references_, object)) return true;
  FPFS_ASSIGN_OR_RETURN(const uint64_t freed, remove_object(storage_, object));
  if (orphan) ++counts_.orphans_removed;
  counts_.bytes_freed += freed;
  return true;
}

}  // namespace

Result<RecoveryCounts> recover_array(Environment& environment, Array& array) {
  return Recovery(environment.storage(), array).run();
}

}  // namespace fpfs
