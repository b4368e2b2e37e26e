// Whether an array that is not mounted says of a file that it was copied: by the note in its sidecar (tier_note.h).
#pragma once

#include <string>

#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

// The commit that `image` is of was copied. `sidecar`: open to be read. `path`: below the root of the array, without
// '/' at its beginning. `store`: ObjectStore::describe() of where copies are; then the copy must be there, at that
// path. Empty: wherever it is. For CheckOptions::is_copied.
bool is_noted_as_copied(Storage& storage, Handle sidecar, const std::string& path, const FileImage& image,
                        const std::string& store);

}  // namespace fpfs
