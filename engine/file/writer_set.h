// WriterSet: who writes an open file, and which of the changes since its last commit their closes have finished. The
// rules are those of writer.h.
//
// Changes are numbered; a commit covers all up to one. Those that came by mappings are nobody's.
//
// Thread safety: none; the file's lock.
#pragma once

#include <cstdint>

#include "engine/file/writer.h"

namespace fpfs {

class WriterSet {
 public:
  // A Writer is removed before it is destroyed.
  void add(Writer& writer);
  void remove(Writer& writer) { writers_.remove(writer); }
  bool is_empty() const { return writers_.is_empty(); }

  // The content changed.
  void changed(const Origin& origin);
  // The last of the changes, which a commit that begins now covers.
  uint64_t last_change() const { return change_; }
  // A commit did, or all up to it were given up.
  void covered(uint64_t change) { committed_ = change; }
  bool has_uncommitted() const { return change_ > committed_; }
  // Some of that came without a Writer.
  bool has_unowned() const { return unowned_ > committed_; }

  // A close by closer.writer and closer.actor, or (`is_gone`) the end of that description. True when it ends something
  // that is not committed.
  bool finish(const Origin& closer, bool is_gone);
  // Somebody is not done: who is neither finished nor (unless `only_streams`) committed by itself some time.
  bool is_unfinished(bool only_streams) const;
  // Nobody will ever finish what is unfinished now.
  void cut_off() { is_cut_off_ = true; }
  // What `origin`, with a Writer, has changed since the last commit is that the file was emptied, and no mapping has
  // written meanwhile.
  bool has_only_emptied(const Origin& origin) const;
  // Somebody else than who `origin` is has changes that are not committed.
  bool is_by_others_than(const Origin& origin) const;

 private:
  WriterList writers_;
  uint64_t change_ = 0;
  uint64_t committed_ = 0;
  uint64_t mapped_ = 0;           // the last that came by a mapping
  uint64_t mapped_finished_ = 0;  // of which a close has ended these
  uint64_t unowned_ = 0;          // the last that came without a Writer
  bool is_cut_off_ = false;
};

}  // namespace fpfs
