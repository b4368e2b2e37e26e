#include "engine/array/former.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>

#include <string>
#include <vector>

#include "engine/array/member_directory.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

// "<16 hex digits>-<name>.sidecar" and ".txt" (engine/check/set_aside.h).
bool is_set_aside_name(const std::string& name) {
  constexpr size_t kDigits = 16;
  return name.size() > kDigits && name.find_first_not_of("0123456789abcdef") == kDigits && name[kDigits] == '-' &&
         (name.ends_with(".sidecar") || name.ends_with(".txt"));
}

Status unless_missing(const Status& status) {
  return status.code() == StatusCode::kNotFound ? Status::ok() : status;
}

// Empties one directory, whatever its depth, with two handles: a subdirectory is moved up beside it instead of being
// descended into. (A tree may be deeper than a process may hold handles.)
class Remover {
 public:
  Remover(Storage& storage, Handle former) : storage_(storage), former_(former) {}

  // Moves an entry of `directory` into the former directory under a number that is free there.
  Status take(Handle directory, const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.stat_at(directory, name));
    if (S_ISDIR(attributes.st_mode)) FPFS_RETURN_IF_ERROR(open_up(directory, name));
    for (;;) {
      Status moved = storage_.rename(directory, name, former_, std::to_string(next_++), RENAME_NOREPLACE);
      if (moved.code() != StatusCode::kExists) return moved;  // a number that an interrupted removal left
    }
  }

  Status remove_all() {
    for (;;) {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> names, some_names(former_));
      if (names.empty()) return Status::ok();
      for (const std::string& name : names) FPFS_RETURN_IF_ERROR(remove(name));
    }
  }

 private:
  // A subdirectory that its owner closed against himself still goes.
  Status open_up(Handle directory, const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage_.open_at(directory, name, O_PATH | O_DIRECTORY));
    const ScopedHandle path(storage_, handle);
    return storage_.chmod(handle, 0700);
  }

  // In batches: a directory may hold millions.
  Result<std::vector<std::string>> some_names(Handle directory) {
    constexpr size_t kBatch = 1024;
    std::vector<std::string> names;
    FPFS_RETURN_IF_ERROR(storage_.list(directory, [&](const DirectoryEntry& entry) {
      names.push_back(entry.name);
      return names.size() < kBatch;
    }));
    return names;
  }

  // An entry of the former directory itself.
  Status remove(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.stat_at(former_, name));
    if (!S_ISDIR(attributes.st_mode)) return storage_.unlink(former_, name);
    FPFS_RETURN_IF_ERROR(open_up(former_, name));
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage_.open_at(former_, name, O_RDONLY | O_DIRECTORY));
    const ScopedHandle directory(storage_, handle);
    for (;;) {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> names, some_names(handle));
      if (names.empty()) return storage_.remove_directory(former_, name);
      for (const std::string& entry : names) FPFS_RETURN_IF_ERROR(remove_inside(handle, entry));
    }
  }

  Status remove_inside(Handle directory, const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage_.stat_at(directory, name));
    return S_ISDIR(attributes.st_mode) ? take(directory, name) : storage_.unlink(directory, name);
  }

  Storage& storage_;
  const Handle former_;
  uint64_t next_ = 0;
};

Result<ScopedHandle> open_former(Storage& storage, Handle directory) {
  const Status made = storage.make_directory(directory, kFormerName, 0700);
  if (!made.is_ok() && made.code() != StatusCode::kExists) return made;
  FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.open_at(directory, kFormerName, O_RDONLY | O_DIRECTORY));
  return ScopedHandle(storage, handle);
}

// What fsck set aside describes the former array's objects. Anything else in lost+found is not ours, least of all what
// the filesystem's own fsck put there.
Status remove_set_aside(Storage& storage, Handle directory) {
  const Result<Handle> opened = storage.open_at(directory, kLostFoundName, O_RDONLY | O_DIRECTORY);
  if (!opened.is_ok()) return unless_missing(opened.status());
  const ScopedHandle lost_found(storage, *opened);
  std::vector<std::string> names;
  FPFS_RETURN_IF_ERROR(storage.list(*opened, [&](const DirectoryEntry& entry) {
    if (is_set_aside_name(entry.name)) names.push_back(entry.name);
    return true;
  }));
  for (const std::string& name : names) FPFS_RETURN_IF_ERROR(storage.unlink(*opened, name));
  return storage.fsync(*opened);
}

}  // namespace

Status set_former_aside(Storage& storage, Handle directory) {
  FPFS_ASSIGN_OR_RETURN(const ScopedHandle former, open_former(storage, directory));
  Remover remover(storage, former.get());
  // With its copies, or fsck could make it again from them.
  for (const char* name : {kSuperblockName, kSuperblocksName})
    FPFS_RETURN_IF_ERROR(unless_missing(remover.take(directory, name)));
  FPFS_RETURN_IF_ERROR(storage.fsync(former.get()));
  return storage.fsync(directory);
}

Status remove_former(Storage& storage, Handle directory) {
  FPFS_ASSIGN_OR_RETURN(ScopedHandle former, open_former(storage, directory));
  Remover remover(storage, former.get());
  for (const char* name :
       {kObjectsName, kTreeName, kStateName, kMountName, kMountNewName, kSuperblockNewName, kSuperblocksNewName,
        kCommitsName, kScrubName, kScrubNewName, kTierName, kTierNewName, kTierLostName, kTierLostNewName})
    FPFS_RETURN_IF_ERROR(unless_missing(remover.take(directory, name)));
  FPFS_RETURN_IF_ERROR(remover.remove_all());
  FPFS_RETURN_IF_ERROR(remove_set_aside(storage, directory));
  former.reset();
  FPFS_RETURN_IF_ERROR(storage.remove_directory(directory, kFormerName));
  return storage.fsync(directory);
}

}  // namespace fpfs
