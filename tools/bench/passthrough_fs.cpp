// A FUSE filesystem that passes everything on to a directory: what small files cost on fastpersistfs is measured
// against it (docs/benchmarks/row09.md). Same library, same way of caching: names and attributes for a day, content
// of files opened for writing past the page cache (FOPEN_DIRECT_IO), permissions checked by the kernel.
//
//   fpfs-bench-passthrough [--sync] DIRECTORY MOUNTPOINT
//     --sync   what durable=close does: when a file that was written is closed, it and its directory are synced first
//
// Nodes are O_PATH handles in a table; node numbers are indices into it.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/bench/serve.h"

namespace {

constexpr double kCacheSeconds = 86400;

struct Node {
  int handle = -1;
  uint64_t lookups = 0;
  fuse_ino_t parent = 0;  // where it was found last: what --sync syncs
  std::pair<dev_t, ino_t> identity;
};

class Nodes {
 public:
  int handle(fuse_ino_t number) {
    std::lock_guard lock(mutex_);
    return nodes_.at(number).handle;
  }
  fuse_ino_t parent(fuse_ino_t number) {
    std::lock_guard lock(mutex_);
    return nodes_.at(number).parent;
  }
  void add_root(int handle) { nodes_[FUSE_ROOT_ID] = {handle, 1, FUSE_ROOT_ID, {}}; }
  // Takes the handle.
  fuse_ino_t found(int handle, const struct stat& attributes, fuse_ino_t parent) {
    const std::pair<dev_t, ino_t> identity{attributes.st_dev, attributes.st_ino};
    std::lock_guard lock(mutex_);
    auto [place, is_new] = numbers_.try_emplace(identity, next_);
    Node& node = nodes_[place->second];
    if (is_new) {
      node = {handle, 0, parent, identity};
      ++next_;
    } else {
      ::close(handle);
    }
    node.parent = parent;
    ++node.lookups;
    return place->second;
  }
  void forget(fuse_ino_t number, uint64_t count) {
    std::lock_guard lock(mutex_);
    auto place = nodes_.find(number);
    if (place == nodes_.end() || number == FUSE_ROOT_ID) return;
    place->second.lookups -= count;
    if (place->second.lookups > 0) return;
    ::close(place->second.handle);
    numbers_.erase(place->second.identity);
    nodes_.erase(place);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<fuse_ino_t, Node> nodes_;
  std::map<std::pair<dev_t, ino_t>, fuse_ino_t> numbers_;
  fuse_ino_t next_ = FUSE_ROOT_ID + 1;
};

Nodes g_nodes;
bool g_sync = false;

struct OpenFile {
  int descriptor = -1;
  bool written = false;
};

struct OpenDirectory {
  DIR* stream = nullptr;
  fuse_ino_t number = 0;
  off_t next = 0;                // where the last answer ended
  const dirent* kept = nullptr;  // read, but did not fit into it
  ~OpenDirectory() {
    if (stream != nullptr) ::closedir(stream);
  }
};

OpenFile& file_of(const fuse_file_info* info) {
  return *reinterpret_cast<OpenFile*>(info->fh);
}

OpenDirectory& directory_of(const fuse_file_info* info) {
  return *reinterpret_cast<OpenDirectory*>(info->fh);
}

std::string path_of(int handle) {
  return "/proc/self/fd/" + std::to_string(handle);
}

void reply_result(fuse_req_t request, int result) {
  fuse_reply_err(request, result < 0 ? errno : 0);
}

// Looks a name up, 0 or an errno.
int make_entry(fuse_ino_t parent, const char* name, fuse_entry_param& entry) {
  entry = {};
  const int handle = ::openat(g_nodes.handle(parent), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0) return errno;
  if (::fstatat(handle, "", &entry.attr, AT_EMPTY_PATH) != 0) {
    const int failure = errno;
    ::close(handle);
    return failure;
  }
  entry.ino = g_nodes.found(handle, entry.attr, parent);
  entry.attr_timeout = entry.entry_timeout = kCacheSeconds;
  return 0;
}

void reply_new_entry(fuse_req_t request, fuse_ino_t parent, const char* name, int result) {
  fuse_entry_param entry;
  const int failure = result < 0 ? errno : make_entry(parent, name, entry);
  if (failure != 0) {
    fuse_reply_err(request, failure);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

// What the kernel makes of a new entry belongs to the caller.
void give_to_caller(fuse_req_t request, int directory, const char* name) {
  const fuse_ctx* caller = fuse_req_ctx(request);
  if (caller->uid != ::geteuid() || caller->gid != ::getegid())
    (void)!::fchownat(directory, name, caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW);
}

// --- names -----------------------------------------------------------------------------------------------------------

void do_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_entry_param entry;
  int failure = make_entry(parent, name, entry);
  if (failure == ENOENT) {  // that there is none is remembered, too
    entry = {};
    entry.entry_timeout = kCacheSeconds;
    failure = 0;
  }
  if (failure != 0) {
    fuse_reply_err(request, failure);
  } else {
    fuse_reply_entry(request, &entry);
  }
}

void do_forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
  g_nodes.forget(number, count);
  fuse_reply_none(request);
}

void do_forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgotten) {
  for (size_t index = 0; index < count; ++index) g_nodes.forget(forgotten[index].ino, forgotten[index].nlookup);
  fuse_reply_none(request);
}

void do_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  const int result = ::mkdirat(g_nodes.handle(parent), name, mode);
  if (result == 0) give_to_caller(request, g_nodes.handle(parent), name);
  reply_new_entry(request, parent, name, result);
}

void do_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) {
  reply_result(request, ::unlinkat(g_nodes.handle(parent), name, 0));
}

void do_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) {
  reply_result(request, ::unlinkat(g_nodes.handle(parent), name, AT_REMOVEDIR));
}

void do_rename(fuse_req_t request, fuse_ino_t from, const char* from_name, fuse_ino_t to, const char* to_name,
               unsigned flags) {
  reply_result(request, ::renameat2(g_nodes.handle(from), from_name, g_nodes.handle(to), to_name, flags));
}

// --- attributes ------------------------------------------------------------------------------------------------------

void do_getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  struct stat attributes {};
  if (::fstatat(g_nodes.handle(number), "", &attributes, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_attr(request, &attributes, kCacheSeconds);
  }
}

int set_times(const std::string& path, const struct stat& wanted, int which) {
  struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
  if ((which & FUSE_SET_ATTR_ATIME_NOW) != 0)
    times[0].tv_nsec = UTIME_NOW;
  else if ((which & FUSE_SET_ATTR_ATIME) != 0)
    times[0] = wanted.st_atim;
  if ((which & FUSE_SET_ATTR_MTIME_NOW) != 0)
    times[1].tv_nsec = UTIME_NOW;
  else if ((which & FUSE_SET_ATTR_MTIME) != 0)
    times[1] = wanted.st_mtim;
  return ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

void do_setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int which, fuse_file_info* info) {
  const int handle = g_nodes.handle(number);
  const std::string path = path_of(handle);
  int result = 0;
  if ((which & FUSE_SET_ATTR_MODE) != 0) result = ::chmod(path.c_str(), wanted->st_mode);
  if (result == 0 && (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0)
    result = ::fchownat(handle, "", (which & FUSE_SET_ATTR_UID) != 0 ? wanted->st_uid : static_cast<uid_t>(-1),
                        (which & FUSE_SET_ATTR_GID) != 0 ? wanted->st_gid : static_cast<gid_t>(-1), AT_EMPTY_PATH);
  if (result == 0 && (which & FUSE_SET_ATTR_SIZE) != 0)
    result = info != nullptr ? ::ftruncate(file_of(info).descriptor, wanted->st_size)
                             : ::truncate(path.c_str(), wanted->st_size);
  constexpr int kTimes = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
  if (result == 0 && (which & kTimes) != 0) result = set_times(path, *wanted, which);
  if (result != 0) {
    fuse_reply_err(request, errno);
  } else {
    do_getattr(request, number, nullptr);
  }
}

void do_getxattr(fuse_req_t request, fuse_ino_t number, const char* name, size_t size) {
  const std::string path = path_of(g_nodes.handle(number));
  std::vector<char> value(size);
  const ssize_t length = ::getxattr(path.c_str(), name, value.data(), size);
  if (length < 0) {
    fuse_reply_err(request, errno);
  } else if (size == 0) {
    fuse_reply_xattr(request, static_cast<size_t>(length));
  } else {
    fuse_reply_buf(request, value.data(), static_cast<size_t>(length));
  }
}

void do_statfs(fuse_req_t request, fuse_ino_t number) {
  struct statvfs space {};
  if (::fstatvfs(g_nodes.handle(number), &space) != 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_statfs(request, &space);
  }
}

// --- files -----------------------------------------------------------------------------------------------------------

// The open_file goes with the release request.
void adopt(int descriptor, fuse_file_info& info) {
  info.fh = reinterpret_cast<uint64_t>(new OpenFile{descriptor, false});
  info.direct_io = (info.flags & O_ACCMODE) != O_RDONLY;
}

void do_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) {
  const int directory = g_nodes.handle(parent);
  const int descriptor = ::openat(directory, name, (info->flags | O_CREAT | O_CLOEXEC) & ~O_NOFOLLOW, mode);
  fuse_entry_param entry;
  int failure = descriptor < 0 ? errno : 0;
  if (failure == 0) give_to_caller(request, directory, name);
  if (failure == 0) failure = make_entry(parent, name, entry);
  if (failure != 0) {
    if (descriptor >= 0) ::close(descriptor);
    fuse_reply_err(request, failure);
    return;
  }
  adopt(descriptor, *info);
  fuse_reply_create(request, &entry, info);
}

void do_open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  const int flags = (info->flags | O_CLOEXEC) & ~(O_NOFOLLOW | O_CREAT);
  const int descriptor = ::open(path_of(g_nodes.handle(number)).c_str(), flags);
  if (descriptor < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  adopt(descriptor, *info);
  fuse_reply_open(request, info);
}

void do_read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  std::vector<char> data(size);
  const ssize_t length = ::pread(file_of(info).descriptor, data.data(), size, offset);
  if (length < 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_buf(request, data.data(), static_cast<size_t>(length));
  }
}

void do_write(fuse_req_t request, fuse_ino_t, const char* data, size_t size, off_t offset, fuse_file_info* info) {
  OpenFile& file = file_of(info);
  file.written = true;
  const ssize_t length = ::pwrite(file.descriptor, data, size, offset);
  if (length < 0) {
    fuse_reply_err(request, errno);
  } else {
    fuse_reply_write(request, static_cast<size_t>(length));
  }
}

int sync_directory(fuse_ino_t number) {
  const int descriptor = ::open(path_of(g_nodes.handle(number)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  const int result = ::fsync(descriptor);
  ::close(descriptor);
  return result;
}

void do_flush(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  OpenFile& file = file_of(info);
  int result = 0;
  if (g_sync && file.written) {
    result = ::fdatasync(file.descriptor);
    if (result == 0) result = sync_directory(g_nodes.parent(number));
    file.written = false;
  }
  reply_result(request, result);
}

void do_fsync(fuse_req_t request, fuse_ino_t, int data_only, fuse_file_info* info) {
  const int descriptor = file_of(info).descriptor;
  reply_result(request, data_only != 0 ? ::fdatasync(descriptor) : ::fsync(descriptor));
}

void do_release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  std::unique_ptr<OpenFile> file(&file_of(info));
  ::close(file->descriptor);
  fuse_reply_err(request, 0);
}

// --- directories -----------------------------------------------------------------------------------------------------

void do_opendir(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  const int descriptor = ::open(path_of(g_nodes.handle(number)).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  auto directory = std::make_unique<OpenDirectory>();
  directory->number = number;
  directory->stream = descriptor < 0 ? nullptr : ::fdopendir(descriptor);
  if (directory->stream == nullptr) {
    fuse_reply_err(request, errno);
    return;
  }
  info->fh = reinterpret_cast<uint64_t>(directory.release());
  fuse_reply_open(request, info);
}

// Adds one entry to an answer; false when it does not fit. An entry with attributes counts as a lookup.
bool add_entry(fuse_req_t request, OpenDirectory& directory, bool plus, const dirent& one, std::vector<char>& answer,
               size_t& used) {
  const bool dots = std::strcmp(one.d_name, ".") == 0 || std::strcmp(one.d_name, "..") == 0;
  fuse_entry_param entry{};
  if (!plus || dots || make_entry(directory.number, one.d_name, entry) != 0) {
    entry = {};
    entry.attr.st_ino = one.d_ino;
    entry.attr.st_mode = static_cast<mode_t>(one.d_type) << 12;
  }
  char* const place = answer.data() + used;
  const size_t room = answer.size() - used;
  const size_t needed = plus ? fuse_add_direntry_plus(request, place, room, one.d_name, &entry, one.d_off)
                             : fuse_add_direntry(request, place, room, one.d_name, &entry.attr, one.d_off);
  if (needed > room) {
    if (entry.ino != 0) g_nodes.forget(entry.ino, 1);
    return false;
  }
  used += needed;
  return true;
}

void read_directory(fuse_req_t request, size_t size, off_t offset, fuse_file_info* info, bool plus) {
  OpenDirectory& directory = directory_of(info);
  if (offset != directory.next) {
    ::seekdir(directory.stream, offset);
    directory.kept = nullptr;
    directory.next = offset;
  }
  std::vector<char> answer(size);
  size_t used = 0;
  while (true) {
    const dirent* one = directory.kept != nullptr ? directory.kept : ::readdir(directory.stream);
    directory.kept = nullptr;
    if (one == nullptr) break;
    if (!add_entry(request, directory, plus, *one, answer, used)) {
      directory.kept = one;
      break;
    }
    directory.next = one->d_off;
  }
  fuse_reply_buf(request, answer.data(), used);
}

void do_readdir(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  read_directory(request, size, offset, info, false);
}

void do_readdirplus(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info* info) {
  read_directory(request, size, offset, info, true);
}

void do_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  const std::unique_ptr<OpenDirectory> directory(&directory_of(info));
  fuse_reply_err(request, 0);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops table{};
  table.lookup = do_lookup;
  table.forget = do_forget;
  table.forget_multi = do_forget_multi;
  table.mkdir = do_mkdir;
  table.unlink = do_unlink;
  table.rmdir = do_rmdir;
  table.rename = do_rename;
  table.getattr = do_getattr;
  table.setattr = do_setattr;
  table.getxattr = do_getxattr;
  table.statfs = do_statfs;
  table.create = do_create;
  table.open = do_open;
  table.read = do_read;
  table.write = do_write;
  table.flush = do_flush;
  table.fsync = do_fsync;
  table.release = do_release;
  table.opendir = do_opendir;
  table.readdir = do_readdir;
  table.readdirplus = do_readdirplus;
  table.releasedir = do_releasedir;
  return table;
}

// Each node is a descriptor: as many as root may have, or as this user may.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlimit wanted = {std::max<rlim_t>(limit.rlim_max, 1 << 20), std::max<rlim_t>(limit.rlim_max, 1 << 20)};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  int next = 1;
  if (argc > 1 && std::strcmp(argv[1], "--sync") == 0) {
    g_sync = true;
    ++next;
  }
  if (argc - next != 2) {
    std::fprintf(stderr, "usage: fpfs-bench-passthrough [--sync] DIRECTORY MOUNTPOINT\n");
    return 16;
  }
  raise_descriptor_limit();
  const int root = ::open(argv[next], O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) {
    std::fprintf(stderr, "fpfs-bench-passthrough: %s: %s\n", argv[next], std::strerror(errno));
    return 1;
  }
  g_nodes.add_root(root);
  ::umask(0);  // the kernel has applied the caller's
  return fpfs::bench::serve(argv[0], "default_permissions,fsname=passthrough,subtype=fpfs-bench", operations(),
                            argv[next + 1]);
}
