// What says whose a store is, as objects in the store itself. An empty mount point has none of it, another bucket has
// another: neither is taken for the store that an array copies to.
//
//   .fastpersistfs-store/identity       {"format":1,"store":ID,...}: who this store is, drawn when it was made
//   .fastpersistfs-store/arrays/ARRAY   {"format":1,"store":ID,"array":ARRAY,"host":NAME,"mounted_at":PATH,
//                                       "since_s":SECONDS}: an array that copies to it
//   .fastpersistfs-store/fences/ARRAY   tier_fence.h
//
// Only init_tier() writes the first two: when an operator says so, never at a mount. An array remembers the store's id
// from then on, and gives it to check_tier() at every mount. Each array has an object of its own, so that several can
// share a store without a lock. The first component is reserved (ObjectStore::kMarkerPrefix): what is copied must not
// have it.
//
// Ids are UUIDs as text, 8-4-4-4-12 small hexadecimal digits; another one is kInvalidArgument.
//
// Calls return at once and call `done` once, on a thread of the store, which outlives that. Errors besides their own:
// those of ObjectStore. Each is one line that names the store and says what to do.
//
// Thread safety: functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/tier/object_store.h"

namespace fpfs {

struct TierIdentity {
  std::string store_id;
  std::vector<std::string> arrays;  // that copy to it, sorted
};

// Whether the store is there, is the one that this array copies to, and knows the array. A filesystem that is mounted
// later is found by the next check; after another kWrongStore make the ObjectStore anew. `store_id`: as remembered;
// empty when the array was never connected with this store.
//   kNotFound     nobody has made this a store, and none is remembered: init_tier() is missing
//   kWrongStore   it is another store than the remembered one, or none: not mounted, another bucket or prefix;
//                 or it is used by other arrays, and not by this one
//   kCorruption, kUnsupported   what says whose it is cannot be read, or is of a later version
void check_tier(ObjectStore& store, const std::string& array_id, const std::string& store_id,
                ObjectStore::Done<TierIdentity> done);

// Who the store is; nobody, where it was made no store. Writes nothing.
void read_tier(ObjectStore& store, ObjectStore::Done<std::optional<TierIdentity>> done);

struct TierInit {
  std::string array_id;
  std::string new_store_id;      // becomes the store's when it has none
  std::string host;              // for people; may be empty
  std::string mounted_at;        // likewise: the mount point there
  int64_t now_s = 0;             // seconds since 1970
  bool share = false;            // also a store that other arrays copy to
  bool has_other_files = false;  // also where there are objects, but nothing that says whose
};

// Makes this the store of an array; success also when it is already. Durable on success. When it fails it may be called
// again, also by another array: what it wrote until then says that nobody copies here. Two arrays that make one place a
// store at the same moment: at most one succeeds, and if it had before, its next mount may say to do it again.
//   kExists   other arrays copy to it (`share`), there are other objects (`has_other_files`), or another array did the
//             same at this moment
//   kCorruption, kUnsupported   as above
void init_tier(ObjectStore& store, const TierInit& init, ObjectStore::Done<TierIdentity> done);

// The array copies to this store no longer. The store and what was copied stay. Success also when it did not.
void leave_tier(ObjectStore& store, const std::string& array_id, ObjectStore::DoneStatus done);

// What tells people an array from others of its store: "ID (on node7 at /mnt/ckpt, since 2026-11-20 08:00, last there
// 2026-11-26 17:30 UTC)", of what the store knows. The id alone where that cannot be read.
void describe_tier_array(ObjectStore& store, const std::string& array_id, ObjectStore::Done<std::string> done);

// kInvalidArgument: it is no id, of `what`.
Status check_tier_uuid(const char* what, std::string_view text);

// The key of the object that says who the store is.
std::string tier_identity_key();
// The store's id in the content of that object.
Result<std::string> parse_tier_identity(std::string_view text);

}  // namespace fpfs
