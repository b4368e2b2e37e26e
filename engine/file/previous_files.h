// PreviousFiles: which committed file a new one most likely resembles (dedup=previous): the one before it in a rotation
// of checkpoints. Their paths are alike but for numbers: step100.pt and step200.pt, checkpoint-100/model.safetensors
// and checkpoint-200/model.safetensors. So a path's *pattern* is the path with each run of digits as one '#'. Of the
// files with the pattern of the new one those come first that have the most of its numbers (model-00002-of-00004 of one
// checkpoint and of the next), the latter ones before the former; then those that were committed last.
//
// What is committed is remembered, up to kFilesMax files of a few chunks or more: with a handle of the sidecar, so that
// a file is found under whatever name it was given since, and nothing of its content is held. After a mount nothing is
// known: the first new file of a pattern with numbers is looked for in its directory, and in those beside it whose
// names differ from it in numbers only. That is bounded: so many entries and attributes are looked at, and so many
// searches are made at once and in a second (a tree of many small files that is unpacked is no rotation).
//
// Thread safety: all methods from any thread; look_for(), made() and committed() without locks. Nothing waits: files
// are looked for and opened on the array's workers.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/file/previous_content.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

class FileContext;

// A path, taken apart.
struct PathPattern {
  std::string pattern;               // with a '#' for each run of digits
  std::vector<std::string> numbers;  // those runs, in their order

  static PathPattern of(const std::string& path);
  // How many of these numbers `other`, of the same pattern, has at the same place: more is a larger number; of as many,
  // later ones count more.
  uint64_t likeness(const PathPattern& other) const;
};

class PreviousFiles {
 public:
  // The context outlives it.
  explicit PreviousFiles(FileContext& context);

  // `file` was made in `directory`: it is given what its content may share blocks with, if there may be something.
  void made(const std::shared_ptr<File>& file, Handle directory, const std::string& name);
  // Goes on looking for the next candidate.
  void look_for(const std::shared_ptr<PreviousContent>& content);
  // A file that was made at `path` has committed content, `chunks` of them, which begins on member `start`.
  void committed(const std::string& path, Handle sidecar, MemberIndex start, uint64_t chunks);
  // A file lost a name: it is kept open for nobody.
  void removed(uint64_t inode);
  // The drive with the names does not answer: nobody waits for what is looked for there.
  void release_waiting();

  static constexpr size_t kFilesMax = 256;

 private:
  struct Known {
    PathPattern path;
    PreviousContent::Candidate node;
    uint64_t inode = 0;
    MemberIndex start;
  };
  struct Search;
  bool take_search() FPFS_REQUIRES(mutex_);
  void search(PreviousContent& content, Handle directory, const std::string& name) const;
  void open_next(PreviousContent& content) const;
  std::vector<std::shared_ptr<PreviousContent>> in_use();

  FileContext& context_;
  Mutex mutex_;
  std::list<Known> known_ FPFS_GUARDED_BY(mutex_);  // the latest first
  std::vector<std::weak_ptr<PreviousContent>> in_use_ FPFS_GUARDED_BY(mutex_);
  unsigned searches_ FPFS_GUARDED_BY(mutex_) = 0;       // that may be made now
  int64_t searches_since_ FPFS_GUARDED_BY(mutex_) = 0;  // seconds
};

}  // namespace fpfs
