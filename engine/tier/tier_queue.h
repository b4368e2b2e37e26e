// TierQueue: what waits for its copy to be brought up to date. Each file once, however often it is committed, and
// whatever becomes of its name; each path once of which nobody knows what is there. What the store had no room for goes
// behind what may have some; of the others what somebody waits for goes first, then what has waited longest.
// What is known here is a hint, by which the file is found again: the truth is the array.
//
// Thread safety: none; TierCopier's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "engine/index/sidecar.h"

namespace fpfs {

// All commits of a file from one on up to another have one content: it was only moved. Holds for good.
struct TierSame {
  FileId file_id;
  uint64_t since = 0, until = 0;  // 0: nothing is known

  // The first commit that is known to have the content of this one; itself: no other is.
  uint64_t first(FileId of, uint64_t commit) const {
    return of == file_id && since < commit && commit <= until ? since : commit;
  }
};

// What is known by both. Of two files, or with commits in between that are not known: the newer one.
TierSame merge(const TierSame& known, const TierSame& newer);

struct TierWaiting {
  uint64_t inode = 0;        // of the sidecar; 0: of whatever is at the path, if there is something
  std::string path;          // where it was last known to be, below the root; of a directory with a '/' at its end
  uint64_t sequence = 0;     // the last commit that was told of; 0: of something else
  uint64_t bytes = 0;        // its size then
  uint64_t since_ns = 0;     // of the first commit that was not copied
  bool is_missing = false;   // the store does not have what the note of the file says, or has more than it should
  bool is_link = false;      // this is one name of several, each of which waits by itself
  std::string from = {};     // where it was copied to before it was moved, or what other name it has
  bool comes_back = false;   // its content is to be on the members again: others wait for its copy
  bool was_refused = false;  // as something else was where the store would have it
  bool is_awaited = false;   // somebody waits for it
  unsigned no_room = 0;      // so often the store had none for it
  // Of its last commits that only moved content.
  TierSame same = {};
  bool is_looked_at = false;  // somebody wants to see what other arrays have there
  bool was_here = false;      // its copy is of a name that this array had, whoever made the copy
  bool is_in_way = false;     // of something else, that the store cannot have beside what it has there
  // A directory, and what others have in it was looked at right before.
  bool has_looked_below = false;
};

// What is known of it by now: of one that waits already, and what was told later.
TierWaiting merge(const TierWaiting& waiting, TierWaiting newer);

class TierQueue {
 public:
  // A file that waits already keeps its turn and is known by the newer facts from now on. True: it did not wait.
  bool add(TierWaiting file);
  // The first one that may go; nothing: none.
  std::optional<TierWaiting> take(const std::function<bool(const TierWaiting&)>& may_go);
  bool contains(const TierWaiting& file) const { return turns_.contains(key_of(file)); }
  std::optional<TierWaiting> take(const TierWaiting& file);
  const TierWaiting* find(const TierWaiting& file) const;  // null: it does not wait
  // The store has room again: those without have their turns back.
  void forget_no_room();
  // Something below this directory waits that is no file, or none any more.
  bool has_below(const std::string& directory) const;
  // Some file that waits has its copy there.
  bool is_from(const std::string& path) const { return from_.contains(path); }

  size_t size() const { return files_.size(); }
  uint64_t bytes() const { return bytes_; }
  // Since when the one that has waited longest does; 0: none waits.
  uint64_t oldest_ns() const;

 private:
  struct Turn {
    unsigned no_room = 0;
    bool is_awaited = false;
    uint64_t since_ns = 0, number = 0;  // the number is for those of one moment
    bool operator<(const Turn& other) const {
      return std::tuple(no_room, !is_awaited, since_ns, number) <
             std::tuple(other.no_room, !other.is_awaited, other.since_ns, other.number);
    }
  };
  using Key = std::pair<uint64_t, std::string>;  // inode, and path where that is not enough
  static Key key_of(const TierWaiting& file);
  void insert(TierWaiting file, uint64_t number);
  TierWaiting remove(std::map<Turn, TierWaiting>::iterator at);

  std::map<Turn, TierWaiting> files_;
  std::map<Key, Turn> turns_;
  std::multiset<std::string> from_;
  uint64_t bytes_ = 0;
  uint64_t next_ = 0;
};

}  // namespace fpfs
