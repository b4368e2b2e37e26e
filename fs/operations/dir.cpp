// opendir, readdir, readdirplus, releasedir, mkdir, rmdir.
#include <dirent.h>
#include <fcntl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fs/operations/as_caller.h"
#include "fs/operations/creation.h"
#include "fs/operations/operations.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

bool is_dot(const std::string& name) {
  return name == "." || name == "..";
}

// One reply's worth of entries.
class Reply {
 public:
  Reply(fuse_req_t request, size_t size, bool plus) : request_(request), plus_(plus), buffer_(size) {}

  // What to read of the directory to fill it, roughly: of an entry with attributes its name is the smaller part.
  size_t directory_bytes() const { return plus_ ? buffer_.size() / 4 : buffer_.size(); }

  // How many of the entries, from the first on, there is room for.
  size_t count_fitting(std::span<const DirectoryEntry> entries) const {
    size_t bytes = 0, count = 0;
    for (; count < entries.size(); ++count) {
      const char* name = entries[count].name.c_str();
      bytes += plus_ ? fuse_add_direntry_plus(request_, nullptr, 0, name, nullptr, 0)
                     : fuse_add_direntry(request_, nullptr, 0, name, nullptr, 0);
      if (bytes > buffer_.size()) break;
    }
    return count;
  }

  void add(const DirectoryEntry& entry) {
    struct stat attributes {};
    attributes.st_ino = entry.inode;
    attributes.st_mode = static_cast<mode_t>(entry.type) << 12;
    used_ += fuse_add_direntry(request_, free(), free_bytes(), entry.name.c_str(), &attributes,
                               static_cast<off_t>(entry.next));
  }

  // `known`: attributes, and a lookup that the caller counted.
  void add_plus(const DirectoryEntry& entry, const std::optional<fuse_entry_param>& known) {
    fuse_entry_param found{};
    found.attr.st_ino = entry.inode;
    found.attr.st_mode = static_cast<mode_t>(entry.type) << 12;
    used_ += fuse_add_direntry_plus(request_, free(), free_bytes(), entry.name.c_str(), known ? &*known : &found,
                                    static_cast<off_t>(entry.next));
    if (known) counted_.push_back(known->ino);
  }

  // Nodes of which nobody was told are let go of.
  void send(InodeTable& inodes) {
    if (fuse_reply_buf(request_, buffer_.data(), used_) == 0) return;
    for (const uint64_t node : counted_) inodes.forget(node, 1);
  }

 private:
  char* free() { return buffer_.data() + used_; }
  size_t free_bytes() const { return buffer_.size() - used_; }

  fuse_req_t request_;
  const bool plus_;
  std::vector<char> buffer_;
  size_t used_ = 0;
  std::vector<uint64_t> counted_;  // nodes with a lookup that the kernel gets to know by it
};

// With attributes, except of what went away meanwhile, and of what the kernel has them of already. (That may be another
// name's by now: so the entry is not said to be that node.)
void add_with_attributes(Reply& reply, FileSystem& file_system, const Inode& directory, uid_t user,
                         std::span<const DirectoryEntry> entries) {
  std::vector<DirectoryEntry> unknown;
  for (const DirectoryEntry& entry : entries)
    if (!is_dot(entry.name) && !file_system.inodes().attributes_known(entry.inode)) unknown.push_back(entry);
  HandleShares::Lease handles = file_system.store().shares().lease_some(user, unknown.size());
  unknown.resize(handles.count());  // the others are looked up when somebody wants to know
  std::vector<std::optional<Store::Node>> nodes = file_system.store().lookup_all(directory.handle, unknown);
  size_t next = 0;
  for (const DirectoryEntry& entry : entries) {
    std::optional<fuse_entry_param> known;
    if (next < unknown.size() && unknown[next].name == entry.name) {
      if (std::optional<Store::Node>& node = nodes[next++]; node.has_value())
        if (Result<fuse_entry_param> made = make_entry(file_system, std::move(*node), handles.split(1)); made.is_ok())
          known = *made;
    }
    reply.add_plus(entry, known);
  }
}

// Of what is read from a directory, as much as makes one reply.
Result<std::vector<DirectoryEntry>> read_part(const Reply& reply, FileSystem& file_system, const Inode& inode,
                                              uint64_t offset, OpenDirectory& open) FPFS_REQUIRES(open.mutex) {
  Storage& storage = file_system.storage();
  if (!open.stream.is_open()) {
    FPFS_ASSIGN_OR_RETURN(const Handle handle, storage.reopen(inode.handle, O_RDONLY | O_DIRECTORY));
    open.stream = ScopedHandle(storage, handle);
    open.streams.fetch_add(1);
  }
  std::vector<DirectoryEntry> entries;
  size_t fitting = 0;
  for (size_t before = SIZE_MAX; before != entries.size() && fitting == entries.size();) {
    before = entries.size();
    FPFS_RETURN_IF_ERROR(storage.read_directory(open.stream.get(), before == 0 ? offset : entries.back().next,
                                                reply.directory_bytes(), entries));
    fitting = reply.count_fitting(entries);
  }
  entries.resize(fitting);
  if (entries.empty() || open.streams.load() > OpenDirectory::kStreamsMax) open.close_stream();
  // What lies above the root's directory is none of the mount's.
  for (DirectoryEntry& entry : entries)
    if (entry.name == ".." && file_system.inodes().is_root(inode)) entry.inode = inode.number;
  return entries;
}

// The kernel may keep a listing when it knows the attributes of all that is listed, but for directories: whoever wants
// them need not ask for them one by one.
void note_listed(FileSystem& file_system, Inode& inode, uint64_t offset, std::span<const DirectoryEntry> entries,
                 OpenDirectory& open) FPFS_REQUIRES(open.mutex) {
  const InodeTable& inodes = file_system.inodes();
  if (offset == 0) open.listed_at = inodes.listings_outdated();
  if (offset != 0 && offset != open.next) open.listed_at = Inode::kNeverListed;
  if (entries.empty()) inode.listed_at.store(open.listed_at);
  for (const DirectoryEntry& entry : entries) {
    if (open.listed_at == Inode::kNeverListed) return;
    if (entry.type != DT_DIR && !inodes.attributes_known(entry.inode)) open.listed_at = Inode::kNeverListed;
    open.next = entry.next;
  }
}

Status fill(Reply& reply, FileSystem& file_system, fuse_ino_t node, off_t offset, OpenDirectory& open, uid_t user,
            bool plus) {
  Inode& inode = file_system.inodes().get(node);
  MutexLock lock(open.mutex);
  FPFS_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                        read_part(reply, file_system, inode, static_cast<uint64_t>(offset), open));
  if (offset == 0) file_system.note_listing(inode);
  if (plus) {
    add_with_attributes(reply, file_system, inode, user, entries);
  } else {
    for (const DirectoryEntry& entry : entries) reply.add(entry);
  }
  note_listed(file_system, inode, static_cast<uint64_t>(offset), entries, open);
  return Status::ok();
}

void read_directory(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, const fuse_file_info& info,
                    bool plus) {
  FileSystem& file_system = file_system_of(request);
  Reply reply(request, size, plus);
  Status status =
      fill(reply, file_system, node, offset, OpenHandles::directory(info.fh), fuse_req_ctx(request)->uid, plus);
  // No lock is held here: with the answer out, the handle may be released.
  if (!status.is_ok()) return reply_status(request, status);
  reply.send(file_system.inodes());
}

}  // namespace

// The kernel keeps what was listed (FOPEN_CACHE_DIR), and drops it by itself when a name comes or goes: all changes
// pass through it. It is told to drop it (no keep_cache) when a listing should come here for another reason.
void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& inode = file_system.inodes().get(node);
  file_system.when_shown(inode, [request, &file_system, &inode, info = *info]() mutable {
    OpenDirectory& open = file_system.handles().add_directory();
    info.cache_readdir = 1;
    info.keep_cache =
        inode.listed_at.load() == file_system.inodes().listings_outdated() && !file_system.listing_is_due(inode);
    info.fh = OpenHandles::handle(open);
    if (fuse_reply_open(request, &info) != 0) file_system.handles().remove(open);
  });
}

void readdir(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept {
  read_directory(request, node, size, offset, *info, false);
}

void readdirplus(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept {
  read_directory(request, node, size, offset, *info, true);
}

void releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  file_system.caught_requests().when_unused(info->fh,
                                            [gone = file_system.handles().remove(OpenHandles::directory(info->fh))] {});
  fuse_reply_err(request, 0);
}

void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const fuse_ctx& caller = *fuse_req_ctx(request);
  const mode_t made_with = creation_mode(file_system, directory, mode & 07777, caller.umask);
  with_handles(request, 1, [request, &directory, text = std::string(name), made_with](HandleShares::Lease handles) {
    const Status status = [&] {
      const AsCaller as_caller(*fuse_req_ctx(request));
      return file_system_of(request).store().make_directory(directory.handle, text, made_with);
    }();
    if (!status.is_ok()) return reply_status(request, status);
    reply_made(request, directory, text.c_str(), true, std::move(handles));
  });
}

void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const auto remove = [request, &directory, text = std::string(name)] {
    FileSystem& here = file_system_of(request);
    reply_status(request, here.inodes().removal_turns().remove_directory(
                              [&] { return here.store().remove_directory(directory.handle, text); }));
  };
  file_system.is_alone() ? remove() : file_system.when_names_shown({{directory, name}}, remove);
}

}  // namespace fpfs::operations
