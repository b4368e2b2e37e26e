// An entry is about the inode that it names, whatever names that one has by now; it is told by its identity, which no
// other inode ever has. What is found of it:
//
//   the inode, with a whole record          nothing to do: it was synced, or has been changed since
//   the inode, and no whole record          the record is written: the drive's filesystem has kept less than the entry
//   none                                    the drive's filesystem has not kept that it was made: it is made again, unless
//                                           that was done already. (It was not removed since: then the entry would not
//                                           count, see CommitLog::settle().)
#include "engine/check/replay.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "engine/check/scan.h"
#include "engine/index/commit_entry.h"
#include "engine/index/sidecar.h"
#include "engine/index/sidecar_file.h"
#include "engine/io/drive_failure.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

Result<CommitLogImage> read_log(Storage& storage, const Array& array) {
  const Handle directory = array.metadata_directory();
  const Result<struct stat> attributes = storage.stat_at(directory, kCommitsName);
  if (attributes.status().code() == StatusCode::kNotFound) return CommitLogImage();
  FPFS_RETURN_IF_ERROR(attributes.status());
  const Result<std::vector<std::byte>> read = read_small_file(storage, directory, kCommitsName, kCommitLogBytes);
  if (!read.is_ok()) return Status::error(StatusCode::kCorruption, read.status().message());
  const std::vector<std::byte>& bytes = *read;
  // Shorter: it was being made, and nothing counts before it is whole.
  if (bytes.size() < kCommitLogBytes && all_zero(bytes)) return CommitLogImage();
  return decode_commit_log(array.id(), bytes);
}

// Nothing of it counts.
Status begin_anew(Storage& storage, const Array& array) {
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(array.metadata_directory(), kCommitsName, O_RDWR));
  const ScopedHandle file(storage, handle);
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, std::vector<std::byte>(kCommitLogBytes), 0));
  FPFS_RETURN_IF_ERROR(storage.ftruncate(handle, kCommitLogBytes));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  return array.check_tree_running();
}

// What is no matter of one file: then none is given up.
bool may_go_well_later(const Status& failure) {
  const int reason = failure.errno_value();
  return is_drive_failure(failure) || reason == EMFILE || reason == ENFILE || reason == ENOMEM;
}

class Replay {
 public:
  Replay(Storage& storage, const Array& array, const CommitLogImage& image, bool writes)
      : storage_(storage), array_(array), writes_(writes) {
    for (const CommitEntry& entry : image.entries) {
      wanted_directories_.insert(entry.directory);
      wanted_inodes_.insert(entry.inode);
    }
  }

  // Keeps a handle of everything that an entry is about.
  Status find(Handle directory);
  // True: something was missing; it is there now, durably, unless nothing is to be written.
  Result<bool> put_back(const CommitEntry& entry);

 private:
  Status look_at(Handle directory, const DirectoryEntry& entry);
  Result<ScopedHandle> open(Handle node);
  Status write(Handle sidecar, const CommitEntry& entry);
  bool has_record(Handle sidecar, const CommitEntry& entry, uint64_t size);

  Storage& storage_;
  const Array& array_;
  const bool writes_;
  std::unordered_set<std::string> wanted_directories_;
  std::unordered_set<uint64_t> wanted_inodes_;
  std::unordered_map<std::string, ScopedHandle> directories_, files_;  // by identity
};

Status Replay::find(Handle directory) {
  FPFS_ASSIGN_OR_RETURN(std::string identity, storage_.identity(directory));
  if (wanted_directories_.contains(identity)) {
    FPFS_ASSIGN_OR_RETURN(const Handle own, storage_.reopen(directory, O_RDONLY | O_DIRECTORY));
    directories_.insert_or_assign(std::move(identity), ScopedHandle(storage_, own));
  }
  std::vector<DirectoryEntry> entries;
  FPFS_RETURN_IF_ERROR(storage_.list(directory, [&](const DirectoryEntry& entry) {
    entries.push_back(entry);
    return true;
  }));
  for (const DirectoryEntry& entry : entries) FPFS_RETURN_IF_ERROR(look_at(directory, entry));
  return Status::ok();
}

Status Replay::look_at(Handle directory, const DirectoryEntry& entry) {
  FPFS_ASSIGN_OR_RETURN(const unsigned char type, type_of(storage_, directory, entry));
  if (type == DT_DIR) {
    const Result<Handle> handle = storage_.open_at(directory, entry.name, O_RDONLY | O_DIRECTORY);
    if (handle.status().code() == StatusCode::kNotFound) return Status::ok();
    FPFS_RETURN_IF_ERROR(handle.status());
    const ScopedHandle below(storage_, *handle);
    return find(below.get());
  }
  if (type != DT_REG || !wanted_inodes_.contains(entry.inode)) return Status::ok();
  const Result<Handle> handle = storage_.open_at(directory, entry.name, O_PATH);
  if (handle.status().code() == StatusCode::kNotFound) return Status::ok();
  FPFS_RETURN_IF_ERROR(handle.status());
  ScopedHandle file(storage_, *handle);
  FPFS_ASSIGN_OR_RETURN(std::string identity, storage_.identity(file.get()));
  files_.insert_or_assign(std::move(identity), std::move(file));
  return Status::ok();
}

// Whose owner may not read or write it may do so for a moment: a daemon that is not root. `node`: made with O_PATH.
Result<ScopedHandle> Replay::open(Handle node) {
  const int flags = writes_ ? O_RDWR : O_RDONLY;
  Result<Handle> opened = storage_.reopen(node, flags);
  if (opened.status().errno_value() == EACCES && writes_) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(node));
    FPFS_RETURN_IF_ERROR(storage_.chmod(node, (attributes.st_mode & 07777) | S_IRUSR | S_IWUSR));
    opened = storage_.reopen(node, flags);
    FPFS_RETURN_IF_ERROR(storage_.chmod(node, attributes.st_mode & 07777));
  }
  FPFS_RETURN_IF_ERROR(opened.status());
  return ScopedHandle(storage_, *opened);
}

// As the drive has it. One that is longer than what the entry has was appended to, behind a sync of that.
bool Replay::has_record(Handle sidecar, const CommitEntry& entry, uint64_t size) {
  if (size > entry.sidecar.size()) return true;
  storage_.drop_cache(sidecar);
  StorageSidecarReader reader(storage_, sidecar, SidecarOffset(size));
  SidecarFindings findings;
  const Result<FileImage> image =
      fold_sidecar(reader, array_.id(), array_.member_count(), array_.superblock().chunk_size, &findings);
  return image.is_ok() && image->sequence > 0;
}

// Content behind the attributes, as it shows that all was done. Writing takes bits from the mode, so that comes again.
Status Replay::write(Handle sidecar, const CommitEntry& entry) {
  FPFS_RETURN_IF_ERROR(storage_.chown(sidecar, entry.owner, entry.group));
  FPFS_RETURN_IF_ERROR(storage_.chmod(sidecar, entry.mode));
  FPFS_RETURN_IF_ERROR(storage_.pwrite(sidecar, entry.sidecar, 0));
  FPFS_RETURN_IF_ERROR(storage_.chmod(sidecar, entry.mode));
  const struct timespec times[2] = {{0, UTIME_OMIT}, entry.mtime};
  FPFS_RETURN_IF_ERROR(storage_.set_times(sidecar, times));
  return storage_.fsync(sidecar);
}

Result<bool> Replay::put_back(const CommitEntry& entry) {
  if (const auto found = files_.find(entry.file); found != files_.end()) {
    const Result<ScopedHandle> sidecar = open(found->second.get());
    if (!sidecar.is_ok() && !writes_) return false;  // not to be had by who only looks
    FPFS_RETURN_IF_ERROR(sidecar.status());
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(sidecar->get()));
    if (has_record(sidecar->get(), entry, static_cast<uint64_t>(attributes.st_size))) return false;
    if (writes_) FPFS_RETURN_IF_ERROR(write(sidecar->get(), entry));
    return true;
  }
  const auto in = directories_.find(entry.directory);
  if (in == directories_.end()) return Status::error(StatusCode::kNotFound, "its directory is not there");
  const Result<Handle> there = storage_.open_at(in->second.get(), entry.name, O_PATH);
  if (there.is_ok()) {
    // By a recovery before this one, which was cut off; or behind the mount's back.
    const ScopedHandle node(storage_, *there);
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.fstat(node.get()));
    if (!S_ISREG(attributes.st_mode)) return Status::error(StatusCode::kExists, "something else has its name");
    FPFS_ASSIGN_OR_RETURN(const ScopedHandle sidecar, open(node.get()));
    if (has_record(sidecar.get(), entry, static_cast<uint64_t>(attributes.st_size))) return false;
    return Status::error(StatusCode::kExists, "another file has its name");
  }
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  if (!writes_) return true;
  // It gets its name when it is whole.
  FPFS_ASSIGN_OR_RETURN(const Handle made, storage_.open_at(in->second.get(), ".", O_TMPFILE | O_RDWR, 0600));
  const ScopedHandle sidecar(storage_, made);
  FPFS_RETURN_IF_ERROR(write(made, entry));
  FPFS_RETURN_IF_ERROR(storage_.link(made, in->second.get(), entry.name));
  FPFS_RETURN_IF_ERROR(storage_.fsync(in->second.get()));
  return true;
}

}  // namespace

Result<ReplayReport> replay_commits(Storage& storage, const Array& array, bool puts_back) {
  ReplayReport report;
  if ((array.superblock().incompatible & kFeatureCommitLog) == 0) return report;  // a file of that name is not its
  const Result<CommitLogImage> image = read_log(storage, array);
  if (image.status().code() == StatusCode::kCorruption) {
    report.damage = image.status().message();
    if (puts_back) FPFS_RETURN_IF_ERROR(begin_anew(storage, array));
    return report;
  }
  FPFS_RETURN_IF_ERROR(image.status());
  if (image->entries.empty()) return report;
  Replay replay(storage, array, *image, puts_back);
  FPFS_RETURN_IF_ERROR(replay.find(array.tree()));
  for (const CommitEntry& entry : image->entries) {
    const Result<bool> put = replay.put_back(entry);
    if (put.status().code() == StatusCode::kNoSpace)
      return Status::error(StatusCode::kNoSpace,
                           fmt::format("{} has no room for what is to be put back from its commit log ({} for one); "
                                       "make some there, and mount again",
                                       array.metadata_path(), entry.name));
    if (!put.is_ok() && may_go_well_later(put.status())) return put.status().with_context("put back " + entry.name);
    if (!put.is_ok() || *put) report.missing.push_back({entry.name, put.status()});
  }
  if (!puts_back) return report;
  FPFS_RETURN_IF_ERROR(array.check_tree_running());
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(array.metadata_directory(), kCommitsName, O_RDWR));
  const ScopedHandle file(storage, handle);
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, encode_commit_header(array.id(), image->next), 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  FPFS_RETURN_IF_ERROR(array.check_tree_running());
  return report;
}

}  // namespace fpfs
