// statfs: the space that striped data can use, as the store sees it.
#include "fs/operations/operations.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {

void statfs(fuse_req_t request, fuse_ino_t) noexcept {
  Result<struct statvfs> space = file_system_of(request).store().space();
  if (!space.is_ok()) return reply_status(request, space.status());
  fuse_reply_statfs(request, &*space);
}

}  // namespace fpfs::operations
