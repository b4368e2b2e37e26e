// Ways through the tree of an array, one directory behind the other: no symbolic link is followed.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/storage.h"

namespace fpfs {

// The directory that `path` (below `root`, without '/' at its end) is in; `name`: its last component. It blocks.
// kNotFound, ENOTDIR and ELOOP: there is no such directory.
Result<ScopedHandle> open_parent(Storage& storage, Handle root, const std::string& path, std::string& name);

}  // namespace fpfs
