// What is told of changes of names and attributes: Store::on_names().
#include <sys/stat.h>

#include "engine/store/store_impl.h"

namespace fpfs {

std::optional<std::string> Store::path_below_root(Handle node) const {
  std::optional<std::string> path = array_->path_below_tree(node);
  if (path.has_value() && path->empty()) return std::nullopt;
  return path;
}

std::optional<std::string> Store::path_below_root(Handle directory, const std::string& name) const {
  std::optional<std::string> path = path_of(directory);
  if (path.has_value()) *path += name;
  return path;
}

std::optional<std::string> Store::path_of(Handle directory) const {
  std::optional<std::string> path = array_->path_below_tree(directory);
  if (path.has_value() && !path->empty()) *path += '/';
  return path;
}

void Store::tell_made(Handle directory, const std::string& name, bool is_directory, Handle linked) const {
  if (!tells_names_.load(std::memory_order_acquire)) return;
  std::optional<std::string> path = path_below_root(directory, name);
  if (!path.has_value()) return;
  NameEvent event;
  event.path = *std::move(path);
  event.is_directory = is_directory;
  if (linked != kNoHandle) {
    event.from = path_below_root(linked).value_or("");
    const Result<struct stat> attributes = storage().fstat(linked);
    if (attributes.is_ok() && S_ISREG(attributes->st_mode)) event.inode = attributes->st_ino;
  }
  name_listener_(event);
}

std::optional<Store::NameEvent> Store::removal_of(Handle directory, const std::string& name, bool is_directory,
                                                  const Lost& lost) const {
  if (!tells_names_.load(std::memory_order_acquire)) return std::nullopt;
  std::optional<std::string> path = path_below_root(directory, name);
  if (!path.has_value()) return std::nullopt;
  NameEvent event;
  event.kind = NameEvent::Kind::kRemoved;
  event.path = *std::move(path);
  event.is_directory = is_directory;
  event.lost_inode = lost.inode;
  event.lost = lost.node;
  return event;
}

void Store::tell_ahead(std::optional<NameEvent>& event) const {
  if (!event.has_value()) return;
  event->is_ahead = true;
  name_listener_(*event);
}

void Store::tell_behind(std::optional<NameEvent>& event) const {
  if (!event.has_value()) return;
  event->is_ahead = false;
  name_listener_(*event);
}

void Store::tell_attributes(Handle node) const {
  if (!tells_names_.load(std::memory_order_acquire)) return;
  std::optional<std::string> path = path_below_root(node);
  const Result<struct stat> attributes = storage().fstat(node);
  if (!path.has_value() || !attributes.is_ok() || attributes->st_nlink == 0) return;
  NameEvent event;
  event.kind = NameEvent::Kind::kAttributes;
  event.path = *std::move(path);
  event.is_directory = S_ISDIR(attributes->st_mode);
  if (S_ISREG(attributes->st_mode)) event.inode = attributes->st_ino;
  name_listener_(event);
}

Status Store::set_xattr(Handle node, const std::string& name, std::span<const std::byte> value, int flags) {
  FPFS_RETURN_IF_ERROR(storage().set_xattr(node, name, value, flags));
  tell_attributes(node);
  return Status::ok();
}

Status Store::remove_xattr(Handle node, const std::string& name) {
  FPFS_RETURN_IF_ERROR(storage().remove_xattr(node, name));
  tell_attributes(node);
  return Status::ok();
}

}  // namespace fpfs
