// How a daemon tells those who wait for it (fpfs umount, and by it umount.fastpersistfs) how it ended. The exit status
// of a process is its parent's alone, and umount(2) does not wait for a FUSE daemon.
//
// A socket in the abstract namespace: it leaves nothing behind, needs no place to lie, and ends with its process. Who
// waits connects before it unmounts; at its end the daemon writes the exit status in decimal, a newline, and what went
// wrong or is worth knowing, if anything, on each connection. One that closes without: it was killed.
//
// It is named after what the mount table shows, the mount's device and source. The device alone would not do: the
// kernel gives it to the next mount while this daemon still commits. That next one is of other directories, as these
// are held until then; and a daemon gives the name up when its mount is over.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <vector>

#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "fs/interface/mount_point.h"

namespace fpfs {

// Where the daemon of a mount listens, as bind(2) and connect(2) take it.
struct EndReportAddress {
  explicit EndReportAddress(const MountEntry& mount);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes_); }
  socklen_t length() const { return length_; }
  const std::string& name() const { return name_; }  // for messages: "@fastpersistfs-end-0:57-..."

 private:
  std::string name_;
  sockaddr_un bytes_{};
  socklen_t length_ = 0;
};

// Thread safety: all methods may be called from any thread.
class EndReport {
 public:
  EndReport() = default;
  EndReport(const EndReport&) = delete;
  EndReport& operator=(const EndReport&) = delete;

  // From here on one can wait. A failure means only that nobody can.
  Status listen(const MountEntry& mount);
  // The mount is over: who asked before is still told, others find nobody.
  void stop_listening();
  // Readable when somebody wants to wait: then accept(). -1 while nobody can.
  int descriptor() const;
  // Takes in who wants to wait: root, and the user that this process runs as. Others are turned away.
  void accept();
  // At the end of the process, once. Never waits.
  void say(int exit_status, const std::string& message);

 private:
  void accept_all() FPFS_REQUIRES(mutex_);

  mutable Mutex mutex_;
  FileDescriptor listener_ FPFS_GUARDED_BY(mutex_);
  std::vector<FileDescriptor> waiting_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
