// TierQueue: the files that wait to be copied. Each once, however often it is committed; the one that has waited
// longest goes first. What is known here of a file is a hint, by which the file is found again: the truth is the array.
//
// Thread safety: none; TierCopier's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace fpfs {

struct TierWaiting {
  uint64_t inode = 0;       // of the sidecar
  std::string path;         // where it was last known to be, below the root
  uint64_t sequence = 0;    // the last commit that was told of
  uint64_t bytes = 0;       // its size then
  uint64_t since_ns = 0;    // of the first commit that was not copied
  bool is_missing = false;  // the store does not have what the note of the file says
};

class TierQueue {
 public:
  // A file that waits already keeps its turn and is known by the newer facts from now on. True: it did not wait.
  bool add(TierWaiting file);
  // The first one that may go; nothing: none.
  std::optional<TierWaiting> take(const std::function<bool(const TierWaiting&)>& may_go);
  bool contains(uint64_t inode) const { return turns_.contains(inode); }

  size_t size() const { return files_.size(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t oldest_ns() const { return files_.empty() ? 0 : files_.begin()->second.since_ns; }

 private:
  using Turn = std::pair<uint64_t, uint64_t>;  // since when, and a number for those of one moment
  std::map<Turn, TierWaiting> files_;
  std::unordered_map<uint64_t, Turn> turns_;  // by inode
  uint64_t bytes_ = 0;
  uint64_t next_ = 0;
};

}  // namespace fpfs
