// mknod, symlink, readlink, link, unlink, rename: names in directories. The filesystem under tree/ makes each atomic.
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string>

#include "fs/operations/as_caller.h"
#include "fs/operations/creation.h"
#include "fs/operations/operations.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

// An empty regular file made by mknod(2): there is no close, so the name is committed here.
void make_file(fuse_req_t request, Inode& parent, const std::string& name, mode_t mode, HandleShares::Lease handles) {
  FileSystem& file_system = file_system_of(request);
  Store& store = file_system.store();
  const auto of_node = std::make_shared<HandleShares::Lease>(handles.split(0));  // the handle that it has counts itself
  Result<Store::Created> created = [&] {
    const AsCaller as_caller(*fuse_req_ctx(request));
    return store.create(parent.handle, name, mode, std::move(handles));
  }();
  if (!created.is_ok()) return reply_status(request, created.status());
  const auto node = std::make_shared<Store::Node>(std::move(created->node));
  const auto give_up = [request, &store, &parent, name, node](const Status& status) {
    node->handle.reset();
    store.take_back(parent.handle, name, false);
    reply_status(request, status);
  };
  const Status finished = finish_entry(file_system, *fuse_req_ctx(request), parent, *node).status();
  if (!finished.is_ok()) return give_up(finished);
  if (file_system.settings().durable == Durable::kFsync) {
    created->file->closed_by_writer();
    return reply_node(request, std::move(*node), std::move(*of_node));
  }
  auto committed = [request, give_up, node, of_node](const Status& status) {
    if (!status.is_ok()) return give_up(status);
    reply_node(request, std::move(*node), std::move(*of_node));
  };
  file_system.control(std::move(created->file), ControlRequest::Kind::kCommit, std::move(committed));
}

// The node has one more name: it needs no handle for that.
void reply_linked(fuse_req_t request, Inode& inode) {
  FileSystem& file_system = file_system_of(request);
  const Result<struct stat> attributes = file_system.store().attributes(inode.handle);
  if (!attributes.is_ok()) return reply_status(request, attributes.status());
  file_system.inodes().remember(inode);
  const fuse_entry_param entry = entry_of(file_system, inode, *attributes);
  if (fuse_reply_entry(request, &entry) != 0) file_system.inodes().forget(entry.ino, 1);
}

// What a rename left under the old name is a new entry, which may have been made on another thread.
Status own_whiteout(fuse_req_t request, Inode& directory, const std::string& name) {
  FileSystem& file_system = file_system_of(request);
  FPFS_ASSIGN_OR_RETURN(Store::Node node, file_system.store().lookup(directory.handle, name));
  return finish_entry(file_system, *fuse_req_ctx(request), directory, node).status();
}

// Makes an entry of another kind with `make` and answers with it.
template <typename Make>
void make_and_reply(fuse_req_t request, Inode& parent, const std::string& name, HandleShares::Lease handles,
                    Make make) {
  const Status status = [&] {
    const AsCaller as_caller(*fuse_req_ctx(request));
    return make(file_system_of(request).store());
  }();
  if (!status.is_ok()) return reply_status(request, status);
  reply_made(request, parent, name.c_str(), false, std::move(handles));
}

}  // namespace

void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  const mode_t permissions = creation_mode(file_system, directory, mode & 07777, fuse_req_ctx(request)->umask);
  with_handles(request, 1,
               [request, &directory, text = std::string(name), mode, permissions, device](HandleShares::Lease handles) {
                 if (S_ISREG(mode)) return make_file(request, directory, text, permissions, std::move(handles));
                 make_and_reply(request, directory, text, std::move(handles), [&](Store& store) {
                   return store.make_node(directory.handle, text, (mode & S_IFMT) | permissions, device);
                 });
               });
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& directory = file_system.inodes().get(parent);
  with_handles(request, 1, [request, &directory, to = std::string(target), text = std::string(name)](auto handles) {
    make_and_reply(request, directory, text, std::move(handles),
                   [&](Store& store) { return store.symlink(to, directory.handle, text); });
  });
}

void readlink(fuse_req_t request, fuse_ino_t node) noexcept {
  FileSystem& file_system = file_system_of(request);
  Result<std::string> target = file_system.storage().read_link(file_system.inodes().get(node).handle);
  if (!target.is_ok()) return reply_status(request, target.status());
  fuse_reply_readlink(request, target->c_str());
}

void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) noexcept {
  FileSystem& file_system = file_system_of(request);
  const Inode& directory = file_system.inodes().get(new_parent);
  Inode& inode = file_system.inodes().get(node);
  FileSystem::note_change(inode);
  Status status = file_system.store().link(inode.handle, directory.handle, new_name);
  if (!status.is_ok()) return reply_status(request, status);
  file_system.inodes().keep(inode.number, nullptr);
  reply_linked(request, inode);
}

void unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  FileSystem& file_system = file_system_of(request);
  InodeTable& inodes = file_system.inodes();
  const Handle directory = inodes.get(parent).handle;
  const std::string text = name;
  const Result<struct stat> attributes = file_system.storage().stat_at(directory, text);
  if (!attributes.is_ok()) return reply_status(request, attributes.status());
  // The kernel knows the node, as it has looked the name up: it has a handle already.
  Inode* const inode = inodes.find_and_hold(*attributes);
  const bool suffices = inode != nullptr && (inode->readable || attributes->st_size == 0);
  const Status status = file_system.store().unlink(directory, text, suffices ? inode->handle : kNoHandle, *attributes);
  if (inode != nullptr) inodes.forget(inodes.node(*inode), 1);
  reply_status(request, status);
}

void rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name,
            unsigned flags) noexcept {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  InodeTable& inodes = file_system.inodes();
  // Answered later when uncommitted content is about to replace committed content: that waits for its commit.
  Inode& directory = inodes.get(parent);
  Inode& new_directory = inodes.get(new_parent);
  auto renamed = [request, &file_system, &directory, moves = parent != new_parent,
                  whiteout = (flags & RENAME_WHITEOUT) != 0 ? std::string(name) : ""](Status status) {
    if (status.is_ok() && !whiteout.empty()) status = own_whiteout(request, directory, whiteout);
    // A directory that moves gets another "..".
    if (status.is_ok() && moves) file_system.inodes().outdate_listings();
    reply_status(request, status);
    file_system.others_under_way().end();
  };
  auto move = [&file_system, &directory, &new_directory, from = std::string(name), to = std::string(new_name), flags,
               renamed = std::move(renamed)] {
    file_system.others_under_way().begin();
    file_system.store().rename_async(directory.handle, from, new_directory.handle, to, flags, renamed);
  };
  if (file_system.is_alone()) return move();
  file_system.when_names_shown({{directory, name, true}, {new_directory, new_name, (flags & RENAME_EXCHANGE) != 0}},
                               std::move(move));
}

}  // namespace fpfs::operations
