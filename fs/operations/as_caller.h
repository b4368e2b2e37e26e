// AsCaller: while it exists, what this thread makes in the filesystem under tree/ belongs to the caller of a request
// from the start. Nobody ever sees an entry with another owner, there is no change of owner that could fail, or that
// would take set-ID bits away, and it costs less than one (a transaction of the journal).
//
// Only the owner of what is made changes. The thread keeps all its capabilities: whether the caller may make the entry
// was the kernel's question, and has been answered. It does nothing for a daemon that is not root, or that may not set
// securebits(7); give_to_caller() looks whether it did.
#pragma once

#include "fs/protocol/fuse_library.h"

namespace fpfs {

class AsCaller {
 public:
  explicit AsCaller(const fuse_ctx& caller);
  ~AsCaller();
  AsCaller(const AsCaller&) = delete;
  AsCaller& operator=(const AsCaller&) = delete;

 private:
  const bool is_set_;
};

}  // namespace fpfs
