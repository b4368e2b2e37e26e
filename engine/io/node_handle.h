// NodeHandle: a handle of a node for whoever knows the node: its own, or the one that a File has the node open with, so
// that a file which its creator holds open costs one descriptor.
#pragma once

#include <memory>
#include <utility>

#include "engine/io/handle_shares.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

// A handle that several have, closed when the last of them lets go of it; `counted` is given back then.
inline std::shared_ptr<const ScopedHandle> share(ScopedHandle handle, HandleShares::Lease counted) {
  struct Counted {
    Counted(HandleShares::Lease counted, ScopedHandle own) : lease(std::move(counted)), handle(std::move(own)) {}
    HandleShares::Lease lease;  // given back behind the closing
    ScopedHandle handle;
  };
  const auto both = std::make_shared<const Counted>(std::move(counted), std::move(handle));
  return {both, &both->handle};
}

class NodeHandle {
 public:
  NodeHandle() = default;
  NodeHandle(ScopedHandle own) : own_(std::move(own)) {}  // NOLINT(google-explicit-constructor): either is one
  NodeHandle(std::shared_ptr<const ScopedHandle> shared)  // NOLINT(google-explicit-constructor)
      : shared_(std::move(shared)) {}

  Handle get() const { return shared_ != nullptr ? shared_->get() : own_.get(); }
  bool is_open() const { return get() != kNoHandle; }
  void reset() {
    own_.reset();
    shared_.reset();
  }

 private:
  ScopedHandle own_;
  std::shared_ptr<const ScopedHandle> shared_;
};

}  // namespace fpfs
