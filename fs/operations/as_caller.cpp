#include "fs/operations/as_caller.h"

#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace fpfs {
namespace {

// Once in the life of a thread: from now on a change of the filesystem user leaves the capabilities as they are.
bool may_take_users() {
  static thread_local const bool may = [] {
    if (::geteuid() != 0) return false;
    const int bits = ::prctl(PR_GET_SECUREBITS);
    return bits >= 0 && ::prctl(PR_SET_SECUREBITS, static_cast<unsigned long>(bits) | SECBIT_NO_SETUID_FIXUP) == 0;
  }();
  return may;
}

// Whether the process may leave a core. Each change of a thread's user takes that away from all of it (commit_creds in
// the kernel's kernel/cred.c), as for a program that is set-user-ID, which this one is not.
int dumpable() {
  static const int value = ::prctl(PR_GET_DUMPABLE);
  return value;
}

}  // namespace

AsCaller::AsCaller(const fuse_ctx& caller)
    : is_set_((caller.uid != 0 || caller.gid != 0) && dumpable() >= 0 && may_take_users()) {
  if (!is_set_) return;
  ::setfsgid(caller.gid);
  ::setfsuid(caller.uid);
}

AsCaller::~AsCaller() {
  if (!is_set_) return;
  ::setfsuid(0);
  ::setfsgid(::getegid());
  (void)::prctl(PR_SET_DUMPABLE, dumpable());
}

}  // namespace fpfs
