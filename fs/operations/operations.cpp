#include "fs/operations/operations.h"

#include "fs/nodes/file_system.h"
#include "fs/operations/reply.h"

namespace fpfs {
namespace {

// Longer ones gained nothing where the kernel allows them, and each receive buffer would be as long.
constexpr unsigned kWriteSizeMax = kRequestBytesMax;
// Asynchronous direct I/O (io_submit on the mount) and page cache read-ahead under way at a time.
constexpr unsigned kBackgroundMax = 256;

// What is asked of the kernel, and what is not:
// - no writeback cache, no automatic page cache invalidation: each open says what the cache is good for (open.cpp);
// - no lock operations: the kernel's own locks are right for a filesystem that only this machine sees;
// - no splice: payloads are received page-aligned into buffers of our own;
// - not the first HANDLE_KILLPRIV, but its successor, which this library version cannot ask for
// (fs/transport/channel.cpp does).
void init(void* user_data, fuse_conn_info* connection) noexcept {
  (void)user_data;
  constexpr unsigned kWanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
                               FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_ASYNC_DIO | FUSE_CAP_ATOMIC_O_TRUNC |
                               FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_IOCTL_DIR;
  connection->want = connection->capable & kWanted;
  connection->max_write = kWriteSizeMax;
  connection->max_background = kBackgroundMax;
  connection->congestion_threshold = kBackgroundMax * 3 / 4;
  connection->time_gran = 1;
}

fuse_lowlevel_ops make_table() {
  fuse_lowlevel_ops table{};
  table.init = init;
  table.lookup = operations::lookup;
  table.forget = operations::forget;
  table.forget_multi = operations::forget_multi;
  table.getattr = operations::getattr;
  table.setattr = operations::setattr;
  table.open = operations::open;
  table.create = operations::create;
  table.release = operations::release;
  table.read = operations::read;
  table.write = operations::write;
  table.flush = operations::flush;
  table.fsync = operations::fsync;
  table.fsyncdir = operations::fsyncdir;
  table.opendir = operations::opendir;
  table.readdir = operations::readdir;
  table.readdirplus = operations::readdirplus;
  table.releasedir = operations::releasedir;
  table.mkdir = operations::mkdir;
  table.rmdir = operations::rmdir;
  table.mknod = operations::mknod;
  table.symlink = operations::symlink;
  table.readlink = operations::readlink;
  table.link = operations::link;
  table.unlink = operations::unlink;
  table.rename = operations::rename;
  table.setxattr = operations::setxattr;
  table.getxattr = operations::getxattr;
  table.listxattr = operations::listxattr;
  table.removexattr = operations::removexattr;
  table.statfs = operations::statfs;
  table.fallocate = operations::fallocate;
  table.lseek = operations::lseek;
  table.ioctl = operations::ioctl;
  return table;
}

}  // namespace

const fuse_lowlevel_ops& fuse_operations() {
  static const fuse_lowlevel_ops table = make_table();
  return table;
}

}  // namespace fpfs
