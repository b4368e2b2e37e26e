#include "engine/tier/tree_path.h"

#include <fcntl.h>

namespace fpfs {

Result<ScopedHandle> open_parent(Storage& storage, Handle root, const std::string& path, std::string& name) {
  constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY;
  FPFS_ASSIGN_OR_RETURN(const Handle reopened, storage.reopen(root, kDirectoryFlags));
  ScopedHandle directory(storage, reopened);
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    FPFS_ASSIGN_OR_RETURN(const Handle next,
                          storage.open_at(directory.get(), path.substr(begin, slash - begin), kDirectoryFlags));
    directory = ScopedHandle(storage, next);
    begin = slash + 1;
  }
  name = path.substr(begin);
  return directory;
}

}  // namespace fpfs
