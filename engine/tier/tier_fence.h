// The fence of an array in its store: what tells the newest state of the array from an older one, as of members that were
// all put back from a snapshot. Such an array would replace newer copies by what it has, and remove the copies of files
// that it does not know.
//
//   .fastpersistfs-store/fences/ARRAY   {"format":1,"array":ARRAY,"token":TOKEN,"ended":BOOL,"by":ARRAY}
//
// The token is drawn anew at every connection, and by and by while copies are made (TierOptions::fence_interval). The
// array remembers it, durably, before the store gets it, and some that it had before (TierBinding::fences). So the state
// of the array that the store was last used with knows the store's token, whatever crash came in between; an earlier one
// does not. What was copied between two tokens is not told apart. Who has an array's copies restored draws a token that
// that array does not know, and says who it is ("by").
//
// "ended": the array that the token is of changes nothing any more until it has drawn another. Else it may, for as long
// as it may go without a look (tier_lease.h).
//
// Calls return at once and call `done` once, on a thread of the store, which outlives that. Errors besides their own:
// those of ObjectStore.
//
// Thread safety: functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/tier/object_store.h"

namespace fpfs {

struct TierFence {
  std::string token;  // 1 to 64 characters; of what was read empty: there is none
  bool ended = false;
  std::string by = {};  // the array that drew it, as text; empty: the one that it is the fence of
};

// What the store has. kCorruption, kUnsupported: it cannot be read.
void read_fence(ObjectStore& store, const std::string& array_id, ObjectStore::Done<TierFence> done);
void write_fence(ObjectStore& store, const std::string& array_id, const TierFence& fence, ObjectStore::DoneStatus done);
// Success also when there is none.
void remove_fence(ObjectStore& store, const std::string& array_id, ObjectStore::DoneStatus done);

// The prefix of the keys of all fences.
std::string fences_prefix();
// The content of such an object.
Result<TierFence> parse_fence(std::string_view text);

// Tokens that an array knows of a store which has `stored`, once `next` is drawn: a few, the newest last.
std::vector<std::string> known_fences(const std::vector<std::string>& known, const std::string& stored,
                                      const std::string& next);

}  // namespace fpfs
