#include "fs/nodes/inode_table.h"

#include <cerrno>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

InodeTable::InodeTable(Storage& storage, Handle root, const struct stat& root_attributes, Late::RunLater run_later)
    : storage_(storage),
      device_(root_attributes.st_dev),
      late_closes_(
          std::move(run_later), [this](Late::Nodes& gone) { removal_turns_.close([&gone] { gone.clear(); }); },
          [this] { return has_room(); }) {
  root_.handle = root;
  root_.number = root_attributes.st_ino;
  root_.lookups = 1;
}

// Where room is short, that of a removed file is there when the kernel has forgotten it.
bool InodeTable::has_room() const {
  constexpr uint64_t kBytesMin = 256 * kMiB, kInodesMin = 65536;  // more than anybody takes before it is closed
  const Result<struct statvfs> now = storage_.fstatvfs(root_.handle);
  return now.is_ok() && now->f_bavail * now->f_frsize >= kBytesMin &&
         (now->f_files == 0 || now->f_favail >= kInodesMin);  // 0: it does not count them (btrfs)
}

// A node's handle is closed behind the lock.
Result<Inode*> InodeTable::remember(Store::Node node, HandleShares::Lease handles) {
  const struct stat& attributes = node.attributes;
  if (attributes.st_dev != device_)
    return Status::from_errno(EXDEV,
                              "look up a name on another filesystem, mounted inside the array's tree/; unmount it");
  // A second path to the root does not exist (no hard links to directories), so the root is never looked up by name.
  MutexLock lock(mutex_);
  std::unique_ptr<Inode>& entry = inodes_[attributes.st_ino];
  if (entry == nullptr) {
    entry = std::make_unique<Inode>();
    entry->own = std::move(node.handle);
    entry->handle = entry->own.get();
    std::swap(entry->handles, handles);
    entry->number = attributes.st_ino;
    entry->generation = next_generation_++;
    entry->is_directory = S_ISDIR(attributes.st_mode);
    entry->readable = node.readable;
    entry->listings = &listings_outdated_;
    entry->may_have_capability = !node.is_new;
    size_.store(inodes_.size(), std::memory_order_relaxed);
  }
  ++entry->lookups;
  return entry.get();
}

void InodeTable::remember(Inode& inode) {
  MutexLock lock(mutex_);
  ++inode.lookups;
}

bool InodeTable::attributes_known(uint64_t number) const {
  MutexLock lock(mutex_);
  const auto entry = inodes_.find(number);
  return entry != inodes_.end() && entry->second->attributes_known.load(std::memory_order_relaxed);
}

void InodeTable::keep(uint64_t number, std::unique_ptr<Store::Removed> removed) {
  HandleShares::Lease of_user;
  if (removed != nullptr) {
    MutexLock lock(mutex_);
    const auto entry = inodes_.find(number);
    if (entry != inodes_.end() && entry->second->handles.is_of_user()) of_user = entry->second->handles.split(0);
  }
  if (removed != nullptr) removed->count_in(std::move(of_user));
  MutexLock lock(mutex_);
  const auto entry = inodes_.find(number);
  if (entry != inodes_.end()) std::swap(entry->second->removed, removed);
}

void InodeTable::hold(Inode& inode) {
  MutexLock lock(mutex_);
  ++inode.lookups;
}

Inode* InodeTable::find_and_hold(const struct stat& attributes) {
  return attributes.st_dev == device_ ? find_and_hold(attributes.st_ino) : nullptr;
}

Inode* InodeTable::find_and_hold(uint64_t number) {
  if (number == root_.number) return &root_;  // which forget() leaves alone
  MutexLock lock(mutex_);
  const auto entry = inodes_.find(number);
  if (entry == inodes_.end()) return nullptr;
  ++entry->second->lookups;
  return entry->second.get();
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
    gone->set_attributes_known(false);
    size_.store(inodes_.size(), std::memory_order_relaxed);
  }
  // Its handle is closed only now that the entry is gone: while it is open, no other file can have this st_ino.
  // Of one without a name the filesystem gives the inode up then. What has content to free does not wait for others.
  if (gone->removed == nullptr || (!gone->removed->has_content() && late_closes_.take(gone))) return;
  removal_turns_.close([&gone] { gone = nullptr; });
}

// Goes round the table bucket by bucket, so that each call finds other nodes than the one before.
void InodeTable::visit_unused(size_t count, const std::function<bool(Inode&)>& visit) {
  const size_t buckets = inodes_.bucket_count();
  for (size_t passed = 0; passed < buckets && count > 0; ++passed) {
    next_bucket_ = (next_bucket_ + 1) % buckets;
    for (auto entry = inodes_.begin(next_bucket_); entry != inodes_.end(next_bucket_); ++entry)
      if (entry->second->opens.load(std::memory_order_relaxed) == 0 && count > 0 && visit(*entry->second)) --count;
  }
}

std::vector<uint64_t> InodeTable::pick_unused(size_t count) {
  std::vector<uint64_t> nodes;
  MutexLock lock(mutex_);
  visit_unused(count, [&](Inode& inode) {
    nodes.push_back(node(inode));
    return true;
  });
  return nodes;
}

std::vector<InodeTable::Entry> InodeTable::pick_unused_entries(size_t count) {
  std::vector<Entry> entries;
  MutexLock lock(mutex_);
  visit_unused(count, [&](Inode& inode) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    if (inode.is_directory) return false;
    Result<Storage::Place> place = storage_.place_of(inode.handle);
    if (!place.is_ok()) return false;
    if (place->directory == root_.number) {
      entries.push_back({kRootNode, std::move(place->name)});
      return true;
    }
    const auto directory = inodes_.find(place->directory);
    if (directory == inodes_.end()) return false;
    entries.push_back({node(*directory->second), std::move(place->name)});
    return true;
  });
  return entries;
}

}  // namespace fpfs
