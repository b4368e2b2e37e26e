// Looking at a whole array: every sidecar below tree/ and lost+found/, and every object of every member. Check, repair
// and recovery are built on it. Nothing here changes anything.
//
// Thread safety: none; one thread scans. Handles passed to visitors are the scan's own, valid during the visit.
#pragma once

#include <bitset>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/array/array.h"
#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

// A regular file found in a directory.
struct FileEntry {
  std::string path;  // "/run1/step100.pt": below the directory where the walk began
  Handle directory = kNoHandle;
  std::string name;
};

// The type of an entry (DT_REG, ...), also on filesystems that do not tell it when listing; DT_UNKNOWN: it is gone.
Result<unsigned char> type_of(Storage& storage, Handle directory, const DirectoryEntry& entry);

// Calls `visit` for every regular file below `root`, directories in order of their names; stops when it returns false.
// Directories that vanish meanwhile are passed over. Every other failure ends the walk: what was not looked at must
// not be taken for absent.
Status walk_files(Storage& storage, Handle root, const std::function<Result<bool>(const FileEntry&)>& visit);

// One sidecar, read and folded.
struct ScannedFile {
  struct stat attributes {};  // of the sidecar when it was read
  Status status;              // kCorruption, kUnsupported, or why it could not be read
  FileImage image;            // when status is ok
  SidecarFindings findings;
  // When status is not ok, or records are missing at its end: whose objects it may name, if that can be told.
  std::optional<FileId> claimed_id;
  bool is_foreign = false;  // when status is not ok: an intact header of another array; names nothing here
  bool is_stray = false;    // when status is not ok: nothing in it is a sidecar's; nobody repairs or moves it

  // Changed since it was scanned, judging by inode, size and time of change (which no one can set).
  bool is_same_as(const struct stat& now) const;
};

enum class SidecarSource : uint8_t {
  kCache,     // through the page cache, as a reader of the array would
  kUncached,  // the same, with the cache dropped before: what a power cut would leave. After a sync that failed, memory
              // holds what the drive does not, and a sync that succeeds then does not change that
              // (Storage::drop_cache). For whoever frees what no sidecar names
  kDrive,     // past it: what is stored
};

// Never fails but for kNotFound: the name is gone. A torn tail is one only where a crash can have left it
// (Array::may_be_torn): elsewhere `status` is kCorruption.
Result<ScannedFile> scan_file(Storage& storage, const Array& array, const FileEntry& entry,
                              SidecarSource source = SidecarSource::kCache);

// The same for a path below `root`.
Result<ScannedFile> scan_path(Storage& storage, const Array& array, Handle root, const std::string& path);

// Which objects the sidecars name.
class References {
 public:
  struct Reference {
    Generation generation;
    uint64_t inode = 0;                    // of the sidecar
    bool is_unreadable = false;            // keep every generation
    std::bitset<kMemberCountMax> members;  // that hold chunks of it
  };
  // False when a sidecar with another inode has this file id already.
  bool add(const ScannedFile& file);
  // A sidecar that cannot be read: its objects, or if they cannot be told all objects, count as named. One of another
  // array names none.
  void add_unreadable(const ScannedFile& file);
  // All objects of the file count as named, of whatever generation.
  void keep(FileId file) { references_[file].is_unreadable = true; }
  // Whether some sidecar is the file's, whatever generation it names.
  bool knows(FileId file) const { return references_.contains(file); }
  // Sidecars of no bytes: each is a file that never had content, or one whose sidecar was cut to nothing.
  uint64_t empty_sidecars() const { return empty_sidecars_; }
  // Whether the object belongs to some sidecar.
  bool names(FileId file, Generation generation) const;
  // The reference of the file's current generation; null when there is none.
  const Reference* find(FileId file, Generation generation) const;
  bool keeps_everything() const { return keeps_everything_; }

 private:
  std::unordered_map<FileId, Reference> references_;
  uint64_t empty_sidecars_ = 0;
  bool keeps_everything_ = false;
};

struct ObjectEntry {
  MemberIndex member;
  Handle directory = kNoHandle;  // objects/xx of the member
  std::string name;
  unsigned index = 0;      // which of the object directories it is
  bool is_object = false;  // the name is that of an object, in the directory where it belongs
  FileId file;
  Generation generation;
};

// Calls `visit` for everything in the object directories of one member; stops when it returns false. `visit` may remove
// the entry. A directory that is not there holds nothing.
Status walk_objects(Storage& storage, Array& array, MemberIndex member,
                    const std::function<Result<bool>(const ObjectEntry&)>& visit);

// Where it is, on the member.
std::string path_of(const Array& array, const ObjectEntry& object);

// Calls `visit` with the path of everything that lies beside the 256 directories of objects of one member. (What lies
// beside `objects` itself may stay: mkfs --force.)
Status walk_strays(Storage& storage, const Array& array, MemberIndex member,
                   const std::function<void(const std::string& path)>& visit);

// Whether a sidecar that cannot be read names nothing in this array: somebody else's file, or an intact one of another
// array.
bool names_nothing_here(SidecarReader& reader, const Uuid& array_id);

}  // namespace fpfs
