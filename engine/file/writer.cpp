#include "engine/file/writer.h"

#include <algorithm>

namespace fpfs {

void Writer::changed(const Actor& actor, uint64_t change, uint64_t committed) {
  if (last_change_ <= committed) {
    is_stream_ = false;
    window_bytes_ = 0;
  }
  last_change_ = change;
  const auto is_covered = [committed](const Noted& entry) { return !entry.is_uncommitted(committed); };
  noted_count_ = static_cast<unsigned>(std::remove_if(noted().begin(), noted().end(), is_covered) - noted().begin());
  const auto same = [&actor](const Noted& entry) { return entry.actor.is_same(actor); };
  const auto known = std::find_if(noted().begin(), noted().end(), same);
  if (known != noted().end()) {
    known->change = change;
    known->is_finished = false;
    if (known->actor.owner == 0) known->actor.owner = actor.owner;
    if (known->actor.process == 0) known->actor.process = actor.process;
  } else if (actor.is_known() && noted_count_ < kActorsMax) {
    noted_[noted_count_++] = {actor, change, false};
  } else {
    anybody_ = {{}, change, false};
  }
}

void Writer::wrote(const Actor& actor, uint64_t bytes, const struct timespec& now, uint64_t chunk_size,
                   unsigned interval_ms) {
  const int64_t passed_ms =
      (now.tv_sec - window_began_.tv_sec) * 1000 + (now.tv_nsec - window_began_.tv_nsec) / 1'000'000;
  const bool was_set_back = passed_ms < 0;  // the clock
  if (window_bytes_ == 0 || (interval_ms != 0 && (was_set_back || passed_ms >= int64_t{interval_ms}))) {
    window_began_ = now;
    window_bytes_ = 0;
  }
  window_bytes_ += bytes;
  for (Noted& entry : noted())
    if (entry.actor.is_same(actor)) entry.has_written = true;
  if (window_bytes_ > chunk_size) is_stream_ = true;
}

// Who has nothing but what a commit has covered ends nothing, whatever others have written since it began.
bool Writer::finish(const Actor& actor, uint64_t committed) {
  bool ends = anybody_.is_uncommitted(committed);
  anybody_.is_finished = true;
  for (Noted& entry : noted()) {
    if (!entry.is_uncommitted(committed) || !entry.actor.is_same(actor)) continue;
    entry.is_finished = true;
    ends = true;
  }
  return ends;
}

bool Writer::finish_all(uint64_t committed) {
  anybody_.is_finished = true;
  for (Noted& entry : noted()) entry.is_finished = true;
  return has_uncommitted(committed);
}

bool Writer::is_unfinished(uint64_t committed) const {
  const auto unfinished = [committed](const Noted& entry) {
    return entry.is_uncommitted(committed) && !entry.is_finished;
  };
  return unfinished(anybody_) || std::any_of(noted().begin(), noted().end(), unfinished);
}

bool Writer::is_by_others_than(const Actor& actor, uint64_t committed) const {
  const auto is_others = [&](const Noted& entry) {
    return entry.is_uncommitted(committed) && !entry.actor.is_same(actor);
  };
  return is_others(anybody_) || std::any_of(noted().begin(), noted().end(), is_others);
}

bool Writer::has_only_emptied(const Actor& actor, uint64_t committed) const {
  bool has_changed = false, has_written = anybody_.is_uncommitted(committed);
  for (const Noted& entry : noted()) {
    if (!entry.is_uncommitted(committed) || !entry.actor.is_same(actor)) continue;
    has_changed = true;
    has_written |= entry.has_written;
  }
  return has_changed && !has_written;
}

// Who wrote is known until another writes behind the next commit: by then a save may have begun that is the other's.
bool Writer::may_have_mapped(const Actor& actor) const {
  if (!description_.may_map) return false;
  if (!description_.opener.is_known() || !actor.is_known() || description_.opener.is_same(actor)) return true;
  return std::any_of(noted().begin(), noted().end(), [&](const Noted& entry) { return entry.actor.is_same(actor); });
}

}  // namespace fpfs
