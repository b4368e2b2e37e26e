#include "engine/io/sim/sim_world.h"

#include <sys/stat.h>

#include <algorithm>

#include "engine/base/check.h"

namespace fpfs {

SimWorld::SimWorld(const std::vector<std::string>& mount_paths) {
  filesystems_.reserve(mount_paths.size() + 1);
  for (unsigned i = 0; i <= mount_paths.size(); ++i) {
    filesystems_.push_back({.mount_path = i == 0 ? "/" : mount_paths[i - 1], .journal = {}});
    SimInode& root = create(i, SimRole::kOther, S_IFDIR | 0755);
    filesystems_[i].root = root.number;
    root.parent = filesystems_[0].root;
    root.names = root.durable_names = 1;
    root.durable_attributes = root.attributes;
  }
}

SimInode& SimWorld::create(unsigned filesystem, SimRole role, mode_t mode) {
  SimInode& inode = inodes_[next_inode_];
  inode.number = next_inode_++;
  inode.filesystem = filesystem;
  inode.role = role;
  inode.attributes.mode = mode;
  return inode;
}

uint64_t SimWorld::find(const std::string& path) const {
  // The longest mount path that is a prefix of whole components.
  const SimFilesystem* mount = &filesystems_[0];
  size_t begin = 1;
  for (const SimFilesystem& candidate : filesystems_) {
    const std::string& prefix = candidate.mount_path;
    if (prefix.size() < begin || path.compare(0, prefix.size(), prefix) != 0) continue;
    if (path.size() > prefix.size() && path[prefix.size()] != '/') continue;
    mount = &candidate;
    begin = prefix.size();
  }
  uint64_t number = mount->root;
  while (begin < path.size() && number != 0) {
    if (path[begin] == '/') {
      ++begin;
      continue;
    }
    const size_t end = std::min(path.find('/', begin), path.size());
    number = inode(number).is_directory() ? lookup(inode(number), path.substr(begin, end - begin)) : 0;
    begin = end;
  }
  return number;
}

uint64_t SimWorld::lookup(const SimInode& directory, const std::string& name) const {
  if (name == ".") return directory.number;
  if (name == "..") return directory.parent;
  const auto entry = directory.entries.find(name);
  return entry == directory.entries.end() ? 0 : entry->second;
}

// For messages: looks the name up by searching, which is slow and always right.
std::string SimWorld::path_of(uint64_t number) const {
  for (const SimFilesystem& filesystem : filesystems_)
    if (filesystem.root == number) return filesystem.mount_path;
  for (const auto& [parent, directory] : inodes_)
    for (const auto& [name, child] : directory.entries)
      if (child == number) return path_of(parent) + "/" + name;
  return "inode " + std::to_string(number) + " (no name)";
}

// What is removed counts as free although a power cut may bring it back: a real filesystem commits its journal before
// it gives such space to somebody else.
uint64_t SimWorld::used_bytes(unsigned filesystem) const {
  uint64_t used = 0;
  for (const auto& [number, inode] : inodes_)
    if (inode.filesystem == filesystem && inode.names + inode.handles > 0)
      used += inode.content.visible().allocated_bytes();
  return used;
}

void SimWorld::change_names(unsigned filesystem, std::vector<SimNameChange> changes, std::set<uint64_t> also_touched) {
  SimNameOperation operation{std::move(changes), std::move(also_touched)};
  for (const SimNameChange& change : operation.changes) {
    SimInode& directory = inode(change.directory);
    operation.directories.insert(change.directory);
    ++directory.pending;
    if (change.before != 0) {
      --inode(change.before).names;
      ++inode(change.before).pending;
    }
    if (change.after != 0) {
      ++inode(change.after).names;
      ++inode(change.after).pending;
      if (inode(change.after).is_directory()) inode(change.after).parent = change.directory;
      directory.entries[change.name] = change.after;
    } else {
      directory.entries.erase(change.name);
    }
  }
  for (const uint64_t touched : operation.directories) ++inode(touched).pending;
  filesystems_[filesystem].journal.push_back(std::move(operation));
}

void SimWorld::make_durable(const SimNameOperation& operation) {
  for (const SimNameChange& change : operation.changes) {
    auto& entries = inode(change.directory).durable_entries;
    if (const auto old = entries.find(change.name); old != entries.end()) {
      --inode(old->second).durable_names;
      entries.erase(old);
    }
    if (change.after != 0) {
      entries[change.name] = change.after;
      ++inode(change.after).durable_names;
    }
  }
}

// Takes the operation's references back.
void SimWorld::forget(const SimNameOperation& operation) {
  std::set<uint64_t> mentioned = operation.directories;
  for (const uint64_t directory : operation.directories) --inode(directory).pending;
  for (const SimNameChange& change : operation.changes) {
    --inode(change.directory).pending;
    for (const uint64_t number : {change.before, change.after}) {
      if (number == 0) continue;
      --inode(number).pending;
      mentioned.insert(number);
    }
  }
  for (const uint64_t number : mentioned) collect(number);
}

void SimWorld::collect(uint64_t number) {
  const SimInode& candidate = inode(number);
  if (candidate.names + candidate.durable_names + candidate.pending + candidate.handles == 0) inodes_.erase(number);
}

void SimWorld::sync_names(uint64_t number) {
  SimFilesystem& filesystem = filesystems_[inode(number).filesystem];
  std::vector<SimNameOperation>& journal = filesystem.journal;
  // Backwards: what is asked for, and what that needs in turn.
  std::vector<bool> needed(journal.size(), false);
  std::set<uint64_t> directories;
  const bool is_directory = inode(number).is_directory();
  const bool syncs_names = !is_directory && filesystem.syncs_own_names;
  if (is_directory) directories.insert(number);
  const auto touches = [&directories](uint64_t touched) { return directories.contains(touched); };
  const auto names_it = [number](const SimNameChange& change) {
    return change.before == number || change.after == number;
  };
  // As XFS has it: what has names exchanged is not touched itself.
  const auto is_exchange = [](const SimNameOperation& operation) {
    return operation.changes.size() == 2 &&
           std::all_of(operation.changes.begin(), operation.changes.end(),
                       [](const SimNameChange& change) { return change.before != 0 && change.after != 0; });
  };
  bool all_before = false;
  for (size_t i = journal.size(); i-- > 0;) {
    const SimNameOperation& operation = journal[i];
    needed[i] = all_before || std::any_of(operation.directories.begin(), operation.directories.end(), touches) ||
                (syncs_names && !is_exchange(operation) &&
                 std::any_of(operation.changes.begin(), operation.changes.end(), names_it));
    if (!needed[i]) continue;
    all_before = filesystem.order == SimFilesystem::JournalOrder::kWhole;
    directories.insert(journal[i].directories.begin(), journal[i].directories.end());
  }
  std::vector<SimNameOperation> rest, done;
  for (size_t i = 0; i < journal.size(); ++i) (needed[i] ? done : rest).push_back(std::move(journal[i]));
  journal = std::move(rest);
  for (const SimNameOperation& operation : done) make_durable(operation);
  for (const SimNameOperation& operation : done) forget(operation);
  if (has(number)) inode(number).durable_attributes = inode(number).attributes;  // it may have lost its last name
}

void SimWorld::sync_filesystem(unsigned index) {
  const std::vector<SimNameOperation> journal = std::move(filesystems_[index].journal);
  filesystems_[index].journal.clear();
  for (const SimNameOperation& operation : journal) make_durable(operation);
  for (const SimNameOperation& operation : journal) forget(operation);
  for (auto& [number, inode] : inodes_) {
    if (inode.filesystem != index) continue;
    inode.content.sync();
    inode.durable_attributes = inode.attributes;
  }
}

void SimWorld::sync_filesystem_failed(unsigned index, SimRandom& random) {
  for (auto& [number, inode] : inodes_)
    if (inode.filesystem == index && inode.content.has_unsynced()) inode.content.sync_failed(random);
  if (random.chance(50)) sync_filesystem(index);
}

void SimWorld::end_transfers(SimRandom& random) {
  for (auto& [number, inode] : inodes_) inode.content.end_transfers(random);
}

void SimWorld::crash_journal(SimFilesystem& filesystem, SimRandom& random) {
  constexpr unsigned kPercents[] = {0, 50, 90, 100};
  const unsigned survival = kPercents[random.below(std::size(kPercents))];
  std::set<uint64_t> stopped;  // directories that lost an operation: nothing later of theirs survives
  bool all_stopped = false;
  for (const SimNameOperation& operation : filesystem.journal) {
    bool survives = random.chance(survival) && !all_stopped;
    for (const uint64_t directory : operation.directories)
      if (stopped.contains(directory)) survives = false;
    if (survives) {
      make_durable(operation);
      continue;
    }
    stopped.insert(operation.directories.begin(), operation.directories.end());
    all_stopped = filesystem.order == SimFilesystem::JournalOrder::kWhole;
  }
  filesystem.journal.clear();
}

void SimWorld::keep_reachable(uint64_t number, std::map<uint64_t, SimInode>& kept) {
  SimInode& directory = kept.insert(inodes_.extract(number)).position->second;
  for (const auto& [name, child] : directory.durable_entries) {
    if (!kept.contains(child)) {
      if (inode(child).is_directory())
        keep_reachable(child, kept);
      else
        kept.insert(inodes_.extract(child));
    }
    SimInode& reached = kept.at(child);
    if (reached.is_directory()) reached.parent = number;
    ++reached.names;
  }
}

void SimWorld::crash(SimRandom& random) {
  for (SimFilesystem& filesystem : filesystems_) crash_journal(filesystem, random);
  for (auto& [number, inode] : inodes_) inode.names = inode.durable_names = inode.pending = inode.handles = 0;
  std::map<uint64_t, SimInode> kept;
  for (const SimFilesystem& filesystem : filesystems_) {
    keep_reachable(filesystem.root, kept);
    kept.at(filesystem.root).names = 1;
  }
  inodes_ = std::move(kept);
  for (auto& [number, inode] : inodes_) {
    inode.durable_names = inode.names;
    inode.entries = inode.durable_entries;
    inode.content.crash(random);
    // A file's attributes reach the drive with its inode; before the first time only a name in the journal says it
    // exists.
    if (inode.durable_attributes.mode == 0 || random.chance(50)) inode.durable_attributes = inode.attributes;
    // The change time goes with whatever else of the inode does, and so with the size that content left behind.
    inode.durable_attributes.ctime = inode.attributes.ctime;
    inode.attributes = inode.durable_attributes;
    inode.unnamed_may_be_linked = false;
  }
}

}  // namespace fpfs
