// Removing what a former array left in a directory that is formatted by force. Internal to engine/array.
#pragma once

#include "engine/base/status.h"
#include "engine/io/storage.h"

namespace fpfs {

// Takes the superblock out of the way, durably: from here on the directory belongs to no array. The rest stays as it is
// until remove_former(); the directory .fastpersistfs-former says so until then.
Status set_former_aside(Storage& storage, Handle directory);

// Removes objects/, tree/, state, scrub and tier with everything in them, what fsck set aside in lost+found/, and at last
// .fastpersistfs-former. What the array does not own stays. May be interrupted and repeated at any point. Durable on
// return.
Status remove_former(Storage& storage, Handle directory);

}  // namespace fpfs
