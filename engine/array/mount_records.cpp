#include "engine/array/mount_records.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/ranges.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

// "2026-11-22 09:00 UTC"
std::string format_time(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  struct tm parts {};
  char text[64];
  if (::gmtime_r(&time, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0)
    return fmt::format("second {}", seconds);
  return text;
}

Result<MountRecord> read_record(Storage& storage, Handle directory, const Superblock& superblock) {
  Result<std::vector<std::byte>> bytes = read_small_file(storage, directory, kMountName, kMountRecordSize);
  const bool must_be_there = (superblock.read_only_compatible & kFeatureMountRecords) != 0;
  if (bytes.status().code() == StatusCode::kNotFound && !must_be_there) {
    MountRecord none;  // a settled stamp 0
    none.array_id = superblock.array_id;
    none.member_id = superblock.member_id;
    return none;
  }
  if (bytes.status().code() == StatusCode::kNotFound)
    return Status::error(StatusCode::kCorruption, "its mount record is missing");
  if (!bytes.is_ok()) return bytes.status();
  FPFS_ASSIGN_OR_RETURN(const MountRecord record, decode_mount_record(*bytes));
  if (record.array_id != superblock.array_id || record.member_id != superblock.member_id)
    return Status::error(StatusCode::kCorruption, "its mount record is another directory's");
  return record;
}

void read_once(Storage& storage, std::vector<ArrayDirectory>& directories) {
  for (ArrayDirectory& directory : directories) {
    const Result<MountRecord> record = read_record(storage, directory.directory, directory.superblock);
    directory.record_status = record.status();
    directory.record = record.is_ok() ? *record : MountRecord();
  }
}

bool are_alike(const std::vector<ArrayDirectory>& a, const std::vector<ArrayDirectory>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ArrayDirectory& x, const ArrayDirectory& y) {
    return x.record_status.code() == y.record_status.code() && x.record.settled == y.record.settled &&
           x.record.stamp.is_same(y.record.stamp) && x.record.before.is_same(y.record.before);
  });
}

MountStamp newest_known(const std::vector<ArrayDirectory>& directories) {
  std::vector<MountRecord> records;
  for (const ArrayDirectory& directory : directories)
    if (directory.record_status.is_ok()) records.push_back(directory.record);
  return newest_settled(records);
}

std::string describe_difference(const MountStamp& stamp, const MountStamp& newest, const std::string& newest_path) {
  if (stamp.number == 0)
    return fmt::format(
        "it is older than {}: it is from before mounts were counted, the other was last used in mount {} "
        "({})",
        newest_path, newest.mount, format_time(newest.seconds));
  if (stamp.number == newest.number)
    return fmt::format("it was used apart from {}, up to mount {} ({}), so they are of different copies of the array",
                       newest_path, stamp.mount, format_time(stamp.seconds));
  if (newest.mount == stamp.mount)
    return fmt::format("it is older than {}: it is from within mount {} ({}), whose end the other has seen ({})",
                       newest_path, stamp.mount, format_time(stamp.seconds), format_time(newest.seconds));
  const uint64_t mounts = newest.mount - std::min(stamp.mount, newest.mount);
  return fmt::format("it is {} older than {}: it was last used in mount {} ({}), the other in mount {} ({})",
                     format_count(mounts, "mount"), newest_path, stamp.mount, format_time(stamp.seconds), newest.mount,
                     format_time(newest.seconds));
}

}  // namespace

void read_mount_records(Storage& storage, std::vector<ArrayDirectory>& directories, bool consistent) {
  constexpr int kReadingsMax = 100;
  read_once(storage, directories);
  for (int reading = 2; !consistent && reading <= kReadingsMax; ++reading) {
    const std::vector<ArrayDirectory> before = directories;
    read_once(storage, directories);
    if (are_alike(before, directories)) return;
  }
}

void renew_unknown_records(std::vector<ArrayDirectory>& directories) {
  MountRecord current;
  current.stamp = newest_known(directories);
  for (ArrayDirectory& directory : directories) {
    if (directory.record_status.is_ok()) continue;
    directory.record = current;
    directory.record_status = Status::ok();
  }
}

std::vector<OutdatedDirectory> find_outdated(const std::vector<ArrayDirectory>& directories) {
  const MountStamp newest = newest_known(directories);
  const auto holder = std::find_if(directories.begin(), directories.end(), [&](const ArrayDirectory& directory) {
    return directory.record_status.is_ok() && directory.record.last_settled().is_same(newest);
  });
  std::vector<OutdatedDirectory> outdated;
  for (size_t i = 0; i < directories.size(); ++i) {
    const ArrayDirectory& directory = directories[i];
    if (!directory.record_status.is_ok())
      outdated.push_back({i, "mount-record",
                          directory.record_status.message() +
                              ", so it cannot be told whether it is an old copy (fsck.fastpersistfs -y finds out)"});
    else if (!is_current(directory.record, newest))
      outdated.push_back(
          {i, "older-member", describe_difference(directory.record.last_settled(), newest, holder->path)});
  }
  return outdated;
}

namespace {

// Mounted by root once, the directories of another user have files of root's.
Status refuse_others(const ArrayDirectory& first, const std::vector<ArrayDirectory>& directories) {
  std::string paths;
  for (const ArrayDirectory& directory : directories)
    if (directory.record_status.code() == StatusCode::kPermission) paths += " " + directory.path;
  return Status::error(
      StatusCode::kPermission,
      fmt::format(
          "{}: {}; another user, perhaps root, has mounted the array, and what that wrote is not yours; nothing "
          "was changed. Mount as that user, or have root make it yours: chown -R {}:{}{}",
          first.path, first.record_status.message(), ::geteuid(), ::getegid(), paths));
}

// The record before stays, and the next is written over it: so there is room for it on a drive that is full, or has no
// inodes left, and files can be removed.
Status exchange_mount_record(Storage& storage, Handle directory, std::span<const std::byte> bytes) {
  const Result<Handle> opened = storage.open_at(directory, kMountNewName, O_WRONLY | O_CREAT, 0600);
  if (!opened.is_ok()) {
    const Result<struct stat> there = storage.stat_at(directory, kMountNewName);
    if (!there.is_ok() || S_ISREG(there->st_mode)) return opened.status();
    return Status::error(
        StatusCode::kInvalidArgument,
        fmt::format("'{}' in it is no file, so the array did not make it; remove it, nothing needs it", kMountNewName));
  }
  const Handle handle = *opened;
  ScopedHandle file(storage, handle);
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, bytes, 0));
  FPFS_RETURN_IF_ERROR(storage.ftruncate(handle, bytes.size()));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  file.reset();
  Status named = storage.rename(directory, kMountNewName, directory, kMountName, RENAME_EXCHANGE);
  // The first one, or a filesystem that cannot.
  if (named.code() == StatusCode::kNotFound || named.errno_value() == EINVAL)
    named = storage.rename(directory, kMountNewName, directory, kMountName, 0);
  FPFS_RETURN_IF_ERROR(named);
  return storage.fsync(directory);
}

}  // namespace

Status check_mount_records(const std::vector<ArrayDirectory>& directories) {
  const std::vector<OutdatedDirectory> outdated = find_outdated(directories);
  if (outdated.empty()) return Status::ok();
  const ArrayDirectory& first = directories[outdated.front().index];
  if (first.record_status.code() == StatusCode::kPermission) return refuse_others(first, directories);
  std::string others;
  for (size_t i = 1; i < outdated.size(); ++i)
    others += (others.empty() ? "; so it is with " : ", ") + directories[outdated[i].index].path;
  std::string names;
  for (const ArrayDirectory& directory : directories)
    if (directory.superblock.member_index == kMetadataOnlyMember)
      names = fmt::format(". (The names are of {}; of a copy of the array name the copy's: meta_dir, --meta-dir)",
                          directory.path);
  return Status::error(
      StatusCode::kCorruption,
      fmt::format(
          "{}: {} cannot be used with the others: {}{}; nothing was changed. Bring back the right directory; if "
          "it is lost, ro and degraded read what is whole{}",
          first.path, describe_member(first.superblock.member_index), outdated.front().sentence, others, names));
}

Status advise_on_room(const Status& status) {
  if (status.code() != StatusCode::kNoSpace) return status;
  return status.with_context("no room to mount for writing; make some (or raise the quota), or mount with ro");
}

Status write_mount_record(Storage& storage, const ArrayDirectory& directory) {
  Status written = exchange_mount_record(storage, directory.directory, encode_mount_record(directory.record));
  // A directory whose filesystem went down in the middle must not be taken for one that has the record.
  if (written.is_ok() && directory.lock != kNoHandle) written = storage.check_running(directory.lock);
  return advise_on_room(written).with_context(directory.path);
}

Status raise_mount_records(Storage& storage, std::vector<ArrayDirectory>& directories, uint64_t mount, int64_t seconds,
                           uint64_t token) {
  const MountStamp newest = newest_known(directories);
  uint64_t number = 0;
  for (const ArrayDirectory& directory : directories) number = std::max(number, directory.record.stamp.number);
  for (const bool settled : {false, true}) {
    for (ArrayDirectory& directory : directories) {
      MountRecord& record = directory.record;
      record.array_id = directory.superblock.array_id;
      record.member_id = directory.superblock.member_id;
      record.settled = settled;
      record.stamp = {number + 1, token, mount, seconds};
      record.before = settled ? MountStamp() : newest;
      const Status written = write_mount_record(storage, directory);
      if (written.code() == StatusCode::kPermission) {
        for (ArrayDirectory& each : directories)
          each.record_status = Status::from_errno(EACCES, fmt::format("open {}/{}", each.path, kMountNewName));
        return refuse_others(directory, directories);
      }
      FPFS_RETURN_IF_ERROR(written);
    }
  }
  return Status::ok();
}

}  // namespace fpfs
