// Whether an array says of a file that it was copied: by the note in its sidecar (tier_note.h).
#pragma once

#include <string>

#include "engine/check/check.h"
#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

struct NotedCommit {
  FileId file_id;
  uint64_t sequence = 0, size = 0;
};

// This commit was copied. `sidecar`: open to be read. `path`: below the root of the array, without
// '/' at its beginning. `store`: TierCopyOptions::store_id of where copies are; then the copy must be there, at
// that path. Empty: wherever it is.
bool is_noted_as_copied(Storage& storage, Handle sidecar, const std::string& path, const NotedCommit& commit,
                        const std::string& store);

// The same of all files of an array, as it remembers its store; for CheckOptions::copies. An array that cannot say which
// store that is has copies wherever they are; one that copies nowhere has none.
CheckOptions::IsCopied noted_copies(Storage& storage, const Array& array);

}  // namespace fpfs
