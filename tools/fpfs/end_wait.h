// Waiting for the end of the daemon behind a mount; the other side of fs/interface/end_report.h.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "fs/interface/mount_point.h"
#include "tools/fpfs/mounted.h"

namespace fpfs::tools {

class EndWait {
 public:
  // To be called before the mount is taken away. kNotFound: no daemon answers there.
  static Result<EndWait> begin(const MountEntry& mount);

  // Returns when the daemon has ended and let go of everything: with what it had to say, or a failure that says what it
  // could not do. Says on
  // stderr what it waits for when that takes a while and somebody looks. One whose drive hangs ends by itself (the
  // mount's io_timeout); the kernel may keep the process longer, which is not waited for.
  Result<std::string> finish(const std::string& program);

 private:
  EndWait(FileDescriptor socket, FileDescriptor process, int process_id)
      : socket_(std::move(socket)), process_(std::move(process)), process_id_(process_id) {}
  std::string read_report(const std::string& program) const;

  FileDescriptor socket_;
  FileDescriptor process_;  // a pidfd; -1 where the process cannot be seen from here
  int process_id_;
};

}  // namespace fpfs::tools
