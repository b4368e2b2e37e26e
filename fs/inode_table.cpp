#include "fs/inode_table.h"

#include <cerrno>

#include "engine/base/check.h"

namespace fpfs {

InodeTable::InodeTable(Storage& storage, Handle root, const struct stat& root_attributes)
    : storage_(storage), device_(root_attributes.st_dev) {
  root_.handle = root;
  root_.number = root_attributes.st_ino;
  root_.lookups = 1;
}

InodeTable::~InodeTable() {
  MutexLock lock(mutex_);
  for (const auto& [number, inode] : inodes_) storage_.close(inode->handle);
}

Result<Inode*> InodeTable::remember(Handle handle, const struct stat& attributes) {
  if (attributes.st_dev != device_) {
    storage_.close(handle);
    return Status::from_errno(EXDEV,
                              "look up a name on another filesystem, mounted inside the array's tree/; unmount it");
  }
  // A second path to the root does not exist (no hard links to directories), so the root is never looked up by name.
  Inode* inode = nullptr;
  bool known = false;
  {
    MutexLock lock(mutex_);
    std::unique_ptr<Inode>& entry = inodes_[attributes.st_ino];
    known = entry != nullptr;
    if (!known) {
      entry = std::make_unique<Inode>();
      entry->handle = handle;
      entry->number = attributes.st_ino;
      entry->generation = next_generation_++;
    }
    inode = entry.get();
    ++inode->lookups;
  }
  if (known) storage_.close(handle);
  return inode;
}

void InodeTable::forget(uint64_t node, uint64_t count) {
  if (node == kRootNode) return;
  std::unique_ptr<Inode> gone;
  {
    MutexLock lock(mutex_);
    Inode& inode = get(node);
    FPFS_CHECK(inode.lookups >= count, "the kernel forgets no more lookups than it was given");
    inode.lookups -= count;
    if (inode.lookups > 0) return;
    auto entry = inodes_.find(inode.number);
    gone = std::move(entry->second);
    inodes_.erase(entry);
  }
  // Closed only after the entry is gone: while it is open, no other file can have this st_ino.
  storage_.close(gone->handle);
}

size_t InodeTable::size() const {
  MutexLock lock(mutex_);
  return inodes_.size();
}

}  // namespace fpfs
