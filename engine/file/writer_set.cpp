#include "engine/file/writer_set.h"

#include <algorithm>

namespace fpfs {

void WriterSet::add(Writer& writer) {
  writers_.push_front(writer);
  if (writer.description().is_new) writer.changed(writer.description().opener, ++change_, committed_);
}

void WriterSet::changed(const Origin& origin) {
  ++change_;
  if (origin.by_mapping)
    mapped_ = change_;
  else if (origin.writer != nullptr)
    origin.writer->changed(origin.actor, change_, committed_);
  else
    unowned_ = change_;
}

bool WriterSet::finish(const Origin& closer, bool is_gone) {
  Writer& writer = *closer.writer;
  bool ends = is_gone ? writer.finish_all(committed_) : writer.finish(closer.actor, committed_);
  const bool may_have_mapped = is_gone ? writer.description().may_map : writer.may_have_mapped(closer.actor);
  if (mapped_ > committed_ && may_have_mapped) {
    mapped_finished_ = mapped_;
    ends = true;
  }
  return ends;
}

bool WriterSet::is_unfinished(bool only_streams) const {
  if (is_cut_off_) return true;
  const bool mapped = mapped_ > std::max(committed_, mapped_finished_);
  for (const Writer* writer = writers_.front(); writer != nullptr; writer = WriterList::next(*writer)) {
    if (mapped && writer->description().may_map) return true;
    if (writer->is_unfinished(committed_) && !(only_streams && writer->is_trickle())) return true;
  }
  return false;
}

bool WriterSet::has_only_emptied(const Origin& origin) const {
  return mapped_ <= committed_ && origin.writer->has_only_emptied(origin.actor, committed_);
}

bool WriterSet::is_by_others_than(const Origin& origin) const {
  for (const Writer* writer = writers_.front(); writer != nullptr; writer = WriterList::next(*writer))
    if (writer == origin.writer ? writer->is_by_others_than(origin.actor, committed_)
                                : writer->has_uncommitted(committed_))
      return true;
  return false;
}

}  // namespace fpfs
