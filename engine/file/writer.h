// Writer: an open file description by which a file may be changed, as its File sees it: who changed the file through
// it, and whether they are done.
//
// An open file description (what open(2) makes) is shared by every descriptor that dup(2), fork(2) and sockets make of
// it, in any number of processes, and each of their close(2)s is told to a filesystem. Only one of these ends a save:
// that of a process which wrote. A child that closes what it inherited must not make half a checkpoint the committed
// one.
//
//   write through it             the actor is noted; its change is unfinished
//   close(2) by an actor noted   what it wrote is finished (and, with Durable::kClose, committed before the answer)
//   close(2) by another process  nothing, unless pages of a mapping came (below)
//   close(2) by who has only     nothing, where another descriptor is to bring what replaces committed content: the
//   emptied the file             caller finds that out (File::has_only_emptied(), fs/operations/descriptor_holders.h)
//   fsync by anybody             everything is committed, whoever wrote it
//   the description is gone      what came through it since is finished: pages of a mapping that outlived its
//   descriptors
//
// Pages of a shared mapping come back through whichever description of the file the kernel picks and without their
// writer's name (fuse_writepages, Linux 6.18). So they belong to the file, and a close by who opened a description that
// can be mapped, or wrote through it, finishes all of them.
//
// A *stream* is unfinished until its close. A *trickle* (a log that stays open: opened with O_APPEND, or never more
// than one chunk written within one StoreOptions::commit_interval) is also committed by itself, at a consistent point.
//
// Thread safety: none; guarded by the mutex of the File that it is attached to.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <span>

#include "engine/base/intrusive_list.h"

namespace fpfs {

// Who changes or closes a file. Writes past the page cache carry a lock owner, which names a table of descriptors
// (files_struct: a process with its threads; a child has another; a dead process's can come again). Writes through the
// page cache carry none, but the process that makes them. A close carries both.
struct Actor {
  uint64_t owner = 0;    // lock owner; 0: not known
  uint32_t process = 0;  // thread group id; 0: not known (another PID namespace)

  bool is_known() const { return owner != 0 || process != 0; }
  bool is_same(const Actor& other) const {
    return (owner != 0 && owner == other.owner) || (process != 0 && process == other.process);
  }
};

class Writer {
 public:
  struct Description {
    Actor opener;          // its process, as far as it is known
    bool may_map = false;  // shared and writable: opened O_RDWR
    bool appends = false;  // O_APPEND
    bool is_new = false;   // the file was made by opening it: there is a name to commit
  };
  explicit Writer(const Description& description) : description_(description) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const Description& description() const { return description_; }

  // --- File's ------------------------------------------------------------------------------------------------------
  // Change number `change` of the file was made through it by `actor`. `committed`: the last change that a commit has
  // covered; who made earlier ones only is forgotten.
  void changed(const Actor& actor, uint64_t change, uint64_t committed);
  // Bytes that a write of `actor` brought at `now`, of a change that was noted: what tells a trickle from a stream.
  void wrote(const Actor& actor, uint64_t bytes, const struct timespec& now, uint64_t chunk_size, unsigned interval_ms);
  // A close by `actor`: its changes are finished. False when it has none that are not committed; true also when it has
  // closed before and they are still on their way.
  bool finish(const Actor& actor, uint64_t committed);
  // The description is gone. False when nothing uncommitted came through it.
  bool finish_all(uint64_t committed);
  // Whether somebody else than `actor` has, and is not finished.
  bool is_by_others_than(const Actor& actor, uint64_t committed) const;
  bool has_uncommitted(uint64_t committed) const { return last_change_ > committed; }
  bool is_unfinished(uint64_t committed) const;
  bool is_trickle() const { return window_bytes_ > 0 && (description_.appends || !is_stream_); }
  // Whether what `actor` has changed, and is not committed, is that the file was emptied: by no write of its. False also
  // where somebody may be meant who is not known.
  bool has_only_emptied(const Actor& actor, uint64_t committed) const;
  // Whether a close by `actor` ends what came by mappings.
  bool may_have_mapped(const Actor& actor) const;

  ListLink<Writer> link;  // of the file's list

 private:
  // More actors at once than this: everybody counts as one (durability before all else).
  static constexpr unsigned kActorsMax = 16;  // some are noted twice, by owner and by process
  struct Noted {
    Actor actor;
    uint64_t change = 0;  // the last one by it
    bool is_finished = false;
    bool has_written = false;  // since the last commit
    bool is_uncommitted(uint64_t committed) const { return change > committed; }
  };
  std::span<Noted> noted() { return {noted_.data(), noted_count_}; }
  std::span<const Noted> noted() const { return {noted_.data(), noted_count_}; }

  const Description description_;
  std::array<Noted, kActorsMax> noted_{};  // who has changed the file since the last commit
  unsigned noted_count_ = 0;
  Noted anybody_;  // who is not known, or one too many
  uint64_t last_change_ = 0;
  bool is_stream_ = false;
  uint64_t window_bytes_ = 0;  // written since window_began_
  struct timespec window_began_ {};
};

using WriterList = IntrusiveList<Writer, &Writer::link>;

// What a change or a close comes from. Without a Writer: from whoever uses the engine without descriptions (tools, a
// truncation by path).
struct Origin {
  Writer* writer = nullptr;
  Actor actor;
  bool by_mapping = false;  // a page of a mapping: nobody knows whose
};

}  // namespace fpfs
