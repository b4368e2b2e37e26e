// The I/O of fpfs tune: an array of its own inside the directories that are tuned, and runs of the engine on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/io/posix_environment.h"
#include "engine/io/scoped_handle.h"
#include "tools/fpfs/bench_load.h"
#include "tools/fpfs/tune_search.h"

namespace fpfs::tools {

struct TuneOptions {
  std::string directories;
  std::string metadata_directory;
  std::string out, svg;  // empty: not written
  uint64_t size = kGiB;  // bytes of one run, shared out to the jobs
  unsigned jobs = 4;     // files, each with a thread
  uint64_t buffer_memory = 256 * kMiB;
  bool json = false;
  bool buffered_members = false;
};

// `.fpfs-tune` in each of the directories, with an array in it that nobody else knows. Mounts, fsck and mkfs --force
// leave it alone, and it changes nothing beside it. What a killed run left is removed by the next one.
//
// Directories of an array stay locked as by a mount, as long as this exists: so none can be measured while it is
// mounted, nor be mounted meanwhile.
class TuneArray {
 public:
  static constexpr const char* kName = ".fpfs-tune";
  // Refuses, in a sentence that names the directory: what is missing, cannot be written, is given twice, lacks room for
  // twice options.size (kNoSpace), has no O_DIRECT (kUnsupported), is tuned or mounted by another process (kBusy),
  // or is a member of an array that cannot be opened.
  static Result<std::unique_ptr<TuneArray>> make(Environment& environment, const TuneOptions& options);
  // Removes what make() made, as far as that is possible.
  ~TuneArray();
  TuneArray(const TuneArray&) = delete;
  TuneArray& operator=(const TuneArray&) = delete;

  const std::vector<std::string>& directories() const { return directories_; }  // of the array inside
  bool of_array() const { return outer_ != nullptr; }
  uint32_t chunk_size() const { return chunk_size_; }  // that of the array around it, where there is one

 private:
  // One directory that is tuned.
  struct Place {
    std::string path;
    ScopedHandle handle;  // of it
    ScopedHandle inside;  // kName in it, locked
  };
  explicit TuneArray(Environment& environment) : environment_(environment) {}
  Status open_outer(const TuneOptions& options, const std::vector<std::string>& paths);
  Status open_places(const std::vector<std::string>& paths);
  Status check_room(const TuneOptions& options) const;
  Status take(Place& place);
  static Status clear(const Place& place);

  Environment& environment_;
  std::unique_ptr<Array> outer_;  // null: plain directories
  std::vector<Place> places_;
  std::vector<std::string> directories_;
  uint32_t chunk_size_ = kMiB;
};

// Runs on such an array. Each opens it anew, as a mount with these settings does, so nothing comes from memory.
class TuneLoad {
 public:
  // Both outlive it.
  TuneLoad(const TuneArray& array, const TuneOptions& options, const std::atomic<bool>& interrupted)
      : array_(array), options_(options), interrupted_(interrupted) {}
  // Bytes per second: of writing from the first call to the last commit. kCancelled when interrupted.
  Result<double> run(const TuneSettings& settings, TuneDirection direction);

 private:
  Result<std::unique_ptr<Store>> open(Environment& environment, const TuneSettings& settings, bool for_writing) const;
  BenchOptions load_options(const char* name) const;
  Result<double> write(const TuneSettings& settings, const char* name, bool keep);
  Result<double> read(const TuneSettings& settings, const char* name);

  const TuneArray& array_;
  const TuneOptions& options_;
  const std::atomic<bool>& interrupted_;
  bool has_something_to_read_ = false;
};

}  // namespace fpfs::tools
