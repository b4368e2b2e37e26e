// Every operation of the mount, by family; each family is the file of that name. operations.cpp holds the table that
// libfuse is given. Meanings and error values are those of the system calls; arguments are libfuse's (fuse_lowlevel.h).
//
// No operation waits for a drive's bulk data: what needs it is answered from the engine's completion.
#pragma once

#include "fs/protocol/fuse_library.h"

namespace fpfs::operations {

// lookup.cpp
void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void forget(fuse_req_t request, fuse_ino_t node, uint64_t count) noexcept;
void forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) noexcept;

// attr.cpp
void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;
void setattr(fuse_req_t request, fuse_ino_t node, struct stat* attributes, int to_set, fuse_file_info* info) noexcept;

// open.cpp
void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;
void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* info) noexcept;
void release(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;

// read.cpp, write.cpp
// Whether a READ or WRITE is of a call, and not of pages that the kernel keeps: then it names the descriptor table that
// it came by.
inline bool is_past_cache(const fuse_file_info& info) {
  return info.lock_owner != 0;
}
void read(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept;
void write(fuse_req_t request, fuse_ino_t node, const char* data, size_t size, off_t offset,
           fuse_file_info* info) noexcept;

// sync.cpp
void flush(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;
void fsync(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info* info) noexcept;
void fsyncdir(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info* info) noexcept;

// dir.cpp
void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;
void readdir(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept;
void readdirplus(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* info) noexcept;
void releasedir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) noexcept;
void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept;
void rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;

// name.cpp
void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) noexcept;
void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) noexcept;
void readlink(fuse_req_t request, fuse_ino_t node) noexcept;
void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) noexcept;
void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
            unsigned flags) noexcept;

// xattr.cpp
void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, size_t size,
              int flags) noexcept;
void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, size_t size) noexcept;
void listxattr(fuse_req_t request, fuse_ino_t node, size_t size) noexcept;
void removexattr(fuse_req_t request, fuse_ino_t node, const char* name) noexcept;

// statfs.cpp, space.cpp
void statfs(fuse_req_t request, fuse_ino_t node) noexcept;
void fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length,
               fuse_file_info* info) noexcept;
void lseek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, fuse_file_info* info) noexcept;

// ioctl.cpp
void ioctl(fuse_req_t request, fuse_ino_t node, unsigned command, void* argument, fuse_file_info* info, unsigned flags,
           const void* in, size_t in_size, size_t out_size) noexcept;

}  // namespace fpfs::operations

namespace fpfs {

// The table of all of them, with init.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace fpfs
