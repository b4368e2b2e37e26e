// RestoredTree: makes names of an array from manifests of copies (tier_manifest.h): those of an array that is gone, all
// of them; or one of another array's (tier_share_job.cpp). Files get their size
// and attributes at once; their content stays in the store (File::begin_away()) until it is read.
//
// A name that is there already stays as it is. A file is complete before it has its name, and durable: what a crash
// leaves out is made by the next attempt. Manifests come in any order: directories on the way are made as they are
// needed, and get their attributes at the end. Manifests with one file id and commit are names of one file.
//
// What manifests say is not trusted: a path that leads out of the tree, or that no name can have, is refused.
//
// Memory: a few bytes for each file, and the manifest of each directory.
//
// Thread safety: all methods from any thread; they block for the drive of the names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/store/store.h"
#include "engine/tier/tier_manifest.h"

namespace fpfs {

class RestoredTree {
 public:
  // Told of each name that was made, behind that: the inode of its directory, and the name; at the end without a name
  // of each directory whose attributes have changed.
  using Named = std::function<void(uint64_t directory, const std::string& name)>;

  // The store outlives it. `store_id`: what notes call the store of the copies. `named` may be null.
  RestoredTree(Store& store, std::string store_id, Named named);

  // Finds out what an attempt before has made, so that further names become names of that. Once, first.
  Status begin();

  // A file that is to be committed durably, and then named.
  struct File {
    Store::Created created;
    ScopedHandle directory;
    std::string name, path;
    uint64_t key = 0;  // of all names of one file
    // Of a small file, whose content is to be written before the commit, and content_written() to be called then.
    TierManifest manifest;
    bool has_content() const { return !manifest.content.empty(); }
  };
  enum class Made : uint8_t { kDone, kWasThere, kBegun, kLater };
  // kBegun: a file, in `file`, which is to be committed and given to finish(). kLater: it is another name of one that
  // is begun and not finished; try again. Errors: kInvalidArgument, kTooLarge: this manifest cannot be restored here;
  // all others concern the array.
  Result<Made> make(TierManifest manifest, File& file);
  // Writing has changed its times.
  Status content_written(const File& file);
  Result<Made> finish(File file);
  // The attributes of directories; then everything is durable.
  Status end();

  // --- one by one ----------------------------------------------------------------------------------------------------
  // kInvalidArgument: it leads out of the tree, or no name can have it.
  static Status check_path(const std::string& path);
  // The directory that `path` is in, made as far as it is missing, and its name there. kInvalidArgument: what is on the
  // way is no directory.
  Result<ScopedHandle> open_parent(const std::string& path, std::string& name);
  // Success also when it is there.
  Status make_directory(Handle directory, const std::string& name);
  // Anything but files and directories. kInvalidArgument: it cannot be made here.
  Status make_node(Handle directory, const std::string& name, const TierManifest& manifest);
  // A file without a name, whose content is that of the copy at the manifest's path; to be committed. When the manifest
  // has the content the file has none yet, nor attributes. kTooLarge: the array has chunks of another size.
  Result<Store::Created> begin_file(Handle directory, const TierManifest& manifest);
  Status describe(Handle node, const TierManifest& manifest);
  void tell(Handle directory, const std::string& name) const;

 private:
  Status find_made(Handle directory, const std::string& path);
  void forget(const File& file);
  Result<Made> make_file(const TierManifest& manifest, File& file);  // `file` has its directory and name
  Status note_restored(fpfs::File& file, const TierManifest& manifest);
  Result<Made> link(const std::string& known, const File& file);

  Store& store_;
  const std::string store_id_;
  const Named named_;
  Mutex mutex_;
  std::map<std::string, TierManifest> directories_ FPFS_GUARDED_BY(mutex_);  // by path
  // One path of each file, by File::key; empty: it is begun.
  std::map<uint64_t, std::string> files_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
