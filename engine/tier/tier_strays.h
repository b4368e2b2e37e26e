// TierStrays: copies that the array cannot do without, under paths that belong to others by now. The content of a file
// may lie in the store only; when the file is moved its copy stays where it was, until the copier has made one where it
// is now. Until then nobody may replace or remove that.
//
// Who knows: moves are told; and the sidecar of a file whose content went away says where the copy lies
// (ChunkSource::kPathAttribute), which a scan reads. Before a scan has looked at all of them, and again when a
// directory was moved, anything in the store may be one.
//
// A file that loses its last name and is open needs its copy as long as it is: that is held.
//
// Thread safety: none; TierCopier's lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fpfs {

class TierStrays {
 public:
  // Content may lie in the store only. Until then there are no strays, and nothing has to wait.
  void switch_on() { is_on_ = true; }
  bool is_on() const { return is_on_; }

  // Whether the file with this inode (0: nothing) may become what the store has at `path`.
  bool may_replace(const std::string& path, uint64_t inode) const;

  // Who besides this one (0: nobody) needs the copy at `path`; 0: nobody, or that is not known.
  uint64_t owner_of(const std::string& path, uint64_t besides) const;

  // The file may need the copy at `path`, where it was. `scan`: how many have begun, as everywhere here.
  void add(const std::string& path, uint64_t inode, uint64_t scan);
  // It needs the copy at `path` until settle(), though no scan sees it.
  void hold(const std::string& path, uint64_t inode);
  // Some copy is its stray.
  bool has(uint64_t inode) const;
  // It is in the array, and may need what it needed.
  void saw(uint64_t inode, uint64_t scan);
  // It needs no copy but the one at `path`, where it is (empty: it is gone). True: others may go on that waited.
  bool settle(uint64_t inode, const std::string& path);
  // Who needs what is not known, until the next scan has ended well.
  void forget(uint64_t scan);
  // Whoever this scan did not see would be gone, if it ends well.
  bool misses_any(uint64_t scan) const;
  // Well, and no power cut brings back what it did not see. That is gone. True: others may go on.
  bool scan_ended(uint64_t scan);

 private:
  static bool is_missed(const auto& stray, uint64_t scan) { return !stray.second.is_held && stray.second.seen < scan; }
  struct Stray;
  Stray& at(const std::string& path, uint64_t inode);
  struct Stray {
    uint64_t inode = 0;
    uint64_t seen = 0;  // by this scan, or told during it
    bool is_held = false;
  };
  bool is_on_ = false;
  uint64_t known_from_ = 1;  // the scan that finds out who needs what
  bool is_known_ = false;
  // By path. Of several only one has its copy there, and nobody knows which: files that were at the path one behind the
  // other, and moved.
  std::multimap<std::string, Stray> strays_;
};

}  // namespace fpfs
