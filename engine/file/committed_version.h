// CommittedVersion: the content of a file as a commit made it durable, held: what its record names is not freed,
// punched or compacted away while this exists, whatever happens to the file (LevelDB's Version::Ref). For whoever
// copies committed files elsewhere.
//
// What would have been freed waits, and is freed when the versions before it are gone. Meanwhile it takes space, which
// counts as used. A power cut frees it, as it frees what any crash leaves; so does the next mount, when a version is
// held until the array is closed (Store::close).
//
// Thread safety: all methods from any thread. Destroyed before the Store, without locks held.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/file/chunk_io.h"
#include "engine/file/held_frees.h"
#include "engine/index/sidecar_writer.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

class File;

class CommittedVersion {
 public:
  ~CommittedVersion();
  CommittedVersion(const CommittedVersion&) = delete;
  CommittedVersion& operator=(const CommittedVersion&) = delete;

  // Which commit; it grows over the life of a file.
  uint64_t sequence() const { return log_.sequence; }
  std::string path() const;  // of the file, for messages
  // Its index, read from the sidecar: waits for the drive. kCorruption: it is damaged.
  Result<FileImage> image() const;
  // The objects that an image's extents lie in.
  std::shared_ptr<ObjectSet> objects(const FileImage& image) const;
  // Starts to read the chunk of which `transfer` has the number, the extent of the image, the objects, the caller's
  // done() and owner, and a buffer (see ChunkTransfer). Its bytes are verified. The version stays until done(). A chunk
  // that is away is fetched: `keep` is what has the transfer, as that may end without done() when the Store is
  // destroyed without having been closed.
  void read(ChunkTransfer& transfer, std::shared_ptr<const void> keep) const;

 private:
  friend class File;
  // The array, its storage and its ChunkIo outlive it.
  CommittedVersion(std::shared_ptr<File> file, Storage& storage, Array& array, ChunkIo& io,
                   std::shared_ptr<const ScopedHandle> sidecar, const SidecarLogState& log, HeldFrees::Ticket ticket);

  const std::shared_ptr<File> file_;
  Storage& storage_;
  Array& array_;
  ChunkIo& io_;
  const std::shared_ptr<const ScopedHandle> sidecar_;
  const SidecarLogState log_;
  const HeldFrees::Ticket ticket_;
};

}  // namespace fpfs
