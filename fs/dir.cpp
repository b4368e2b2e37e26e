// opendir, readdir, readdirplus, releasedir, mkdir, rmdir.
#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>

#include "fs/creation.h"
#include "fs/operations.h"
#include "fs/reply.h"

namespace fpfs::operations {
namespace {

unsigned char type_of(mode_t mode) {
  return static_cast<unsigned char>((mode & S_IFMT) >> 12);
}

// What libfuse reports for a number that nobody asks for. A handle on a directory does not lead to its parent: Storage
// never follows "..".
constexpr uint64_t kUnknownNumber = 0xffffffff;

// "." and "..", then what the directory holds.
Result<std::vector<DirectoryEntry>> list(FileSystem& file_system, const Inode& inode) {
  Storage& storage = file_system.storage();
  std::vector<DirectoryEntry> entries;
  entries.push_back({".", inode.number, type_of(S_IFDIR)});
  entries.push_back({"..", file_system.inodes().is_root(inode) ? inode.number : kUnknownNumber, type_of(S_IFDIR)});
  FPFS_RETURN_IF_ERROR(storage.list(inode.handle, [&entries](const DirectoryEntry& entry) {
    entries.push_back(entry);
    return true;
  }));
  return entries;
}

bool is_dot(const std::string& name) {
  return name == "." || name == "..";
}

// One reply's worth of entries. Positions are 1-based: the offset of an entry is where reading goes on behind it.
class Reply {
 public:
  Reply(fuse_req_t request, size_t size, bool plus) : request_(request), plus_(plus), buffer_(size) {}

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

  void add(const DirectoryEntry& entry, size_t position) {
    struct stat attributes {};
    attributes.st_ino = entry.inode;
    attributes.st_mode = static_cast<mode_t>(entry.type) << 12;
    used_ += fuse_add_direntry(request_, free(), free_bytes(), entry.name.c_str(), &attributes,
                               static_cast<off_t>(position));
  }

  // `known`: attributes, and a lookup that the caller counted.
  void add_plus(const DirectoryEntry& entry, const std::optional<fuse_entry_param>& known, size_t position) {
    fuse_entry_param found{};
    found.attr.st_ino = entry.inode;
    found.attr.st_mode = static_cast<mode_t>(entry.type) << 12;
    used_ += fuse_add_direntry_plus(request_, free(), free_bytes(), entry.name.c_str(), known ? &*known : &found,
                                    static_cast<off_t>(position));
  }

  void send() { fuse_reply_buf(request_, buffer_.data(), used_); }

 private:
  char* free() { return buffer_.data() + used_; }
  size_t free_bytes() const { return buffer_.size() - used_; }

  fuse_req_t request_;
  const bool plus_;
  std::vector<char> buffer_;
  size_t used_ = 0;
};

// With attributes, except of what went away meanwhile, and of what the kernel has them of already. (That may be another
// name's by now: so the entry is not said to be that node.)
void add_with_attributes(Reply& reply, FileSystem& file_system, const Inode& directory,
                         std::span<const DirectoryEntry> entries, size_t position) {
  std::vector<std::string> unknown;
  for (const DirectoryEntry& entry : entries)
    if (!is_dot(entry.name) && !file_system.inodes().attributes_known(entry.inode)) unknown.push_back(entry.name);
  const std::vector<std::optional<Store::Node>> nodes = file_system.store().lookup_all(directory.handle, unknown);
  size_t next = 0;
  for (const DirectoryEntry& entry : entries) {
    std::optional<fuse_entry_param> known;
    if (next < unknown.size() && unknown[next] == entry.name) {
      if (const std::optional<Store::Node>& node = nodes[next++]; node.has_value())
        if (Result<fuse_entry_param> made = make_entry(file_system, *node); made.is_ok()) known = *made;
    }
    reply.add_plus(entry, known, ++position);
  }
}

Status fill(Reply& reply, FileSystem& file_system, fuse_ino_t node, off_t offset, OpenDirectory& open, bool plus) {
  const Inode& inode = file_system.inodes().get(node);
  MutexLock lock(open.mutex);
  if (!open.loaded || offset == 0) {
    FPFS_ASSIGN_OR_RETURN(open.entries, list(file_system, inode));
    open.loaded = true;
    if (file_system.settings().directory_access_times) file_system.storage().note_access(inode.handle);
  }
  size_t position = std::min(static_cast<size_t>(offset), open.entries.size());
  std::span<const DirectoryEntry> entries = std::span(open.entries).subspan(position);
  entries = entries.first(reply.count_fitting(entries));
  if (plus) {
    add_with_attributes(reply, file_system, inode, entries, position);
  } else {
    for (const DirectoryEntry& entry : entries) reply.add(entry, ++position);
  }
  return Status::ok();
}

void read_directory(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, const fuse_file_info& info,
                    bool plus) {
  Reply reply(request, size, plus);
  Status status = fill(reply, file_system_of(request), node, offset, OpenHandles::directory(info.fh), plus);
  // No lock is held here: with the answer out, the handle may be released.
  if (!status.is_ok()) return reply_status(request, status);
  reply.send();
}

}  // namespace

void opendir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  FileSystem& file_system = file_system_of(request);
  OpenDirectory& open = file_system.handles().add_directory();
  info->fh = OpenHandles::handle(open);
  if (fuse_reply_open(request, info) != 0) file_system.handles().remove(open);
}

void readdir(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept {
  read_directory(request, node, size, offset, *info, false);
}

void readdirplus(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept {
  read_directory(request, node, size, offset, *info, true);
}

void releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  file_system_of(request).handles().remove(OpenHandles::directory(info->fh));
  fuse_reply_err(request, 0);
}

void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const fuse_ctx& caller = *fuse_req_ctx(request);
  const mode_t made_with = creation_mode(file_system, directory, mode & 07777, caller.umask);
  Status status = file_system.store().make_directory(directory.handle, name, made_with);
  if (!status.is_ok()) return reply_status(request, status);
  reply_made(request, directory, name, true);
}

void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  reply_status(request, file_system.store().remove_directory(file_system.inodes().get(parent).handle, name));
}

}  // namespace fpfs::operations
