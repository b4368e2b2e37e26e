// A page of the objects below a directory, in the order of their keys (file_store.h).
//
// Thread safety: a function; blocks.
#pragma once

#include <sys/stat.h>

#include <string>

#include "engine/io/storage.h"
#include "engine/tier/object_store.h"

namespace fpfs {

// What names a version of a file.
std::string tag_of_file(const struct stat& attributes);

// `root` is open for reading.
Result<ListPage> list_files(Storage& storage, Handle root, const ListRequest& request);

}  // namespace fpfs
