// Reaching files of an array that is not mounted, by path.
#pragma once

#include <string>
#include <vector>

#include "engine/store/store.h"

namespace fpfs::tools {

// A node that is closed with its owner.
class OwnedNode {
 public:
  OwnedNode(Storage& storage, Store::Node node) : storage_(&storage), node_(node) {}
  OwnedNode(OwnedNode&& other) noexcept : storage_(other.storage_), node_(other.node_) {
    other.node_.handle = kNoHandle;
  }
  OwnedNode(const OwnedNode&) = delete;
  OwnedNode& operator=(const OwnedNode&) = delete;
  ~OwnedNode() {
    if (node_.handle != kNoHandle) storage_->close(node_.handle);
  }
  Handle handle() const { return node_.handle; }
  const struct stat& attributes() const { return node_.attributes; }

 private:
  Storage* storage_;
  Store::Node node_;
};

// Looks up "/run1/step100.pt" (with or without the first slash) from the array's root. Symbolic links are not followed:
// where they point to is a matter of the mount. ".." is refused.
Result<OwnedNode> find_in_array(Store& store, const std::string& path);

}  // namespace fpfs::tools
