// Extended attributes: those of the entry in tree/ (ACLs among them), and virtual ones under user.fastpersistfs., which
// tell about the storage and cannot be set. Virtual attributes are not listed, so that copies do not try to set them.
// Some names among them are real attributes, which can be set and are listed: the store's settings. Others that are
// real are the engine's own (TierNote::kAttribute): nobody sees them.
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "engine/tier/tier_note.h"
#include "fs/operations/creation.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"
#include "fs/report/rebalance_report.h"
#include "fs/report/scrub_report.h"
#include "fs/report/stats_report.h"
#include "fs/report/status_report.h"
#include "fs/report/tier_report.h"

namespace fpfs::operations {
namespace {

constexpr std::string_view kVirtualPrefix = "user.fastpersistfs.";
constexpr std::string_view kTrustedPrefix = "trusted.";
constexpr std::string_view kCapability = "security.capability";
constexpr size_t kValueSizeMax = 65536;  // XATTR_SIZE_MAX, XATTR_LIST_MAX

bool is_virtual(std::string_view name) {
  return (name.starts_with(kVirtualPrefix) && !Store::is_setting(name)) || name == TierNote::kNodeAttribute;
}

Status no_such_attribute() {
  return Status::from_errno(ENODATA, "no such attribute");
}

Result<std::string> file_attribute(FileSystem& file_system, const Inode& inode, std::string_view name) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, file_system.store().attributes(inode.handle));
  if (!S_ISREG(attributes.st_mode)) return no_such_attribute();
  FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, file_system.store().open_file(inode.handle, false));
  if (name == "id") return file_id_text(file->info().file_id);
  if (name == "codec") return codec_text(file->info());
  if (name == "stored") return std::to_string(file->info().stored_bytes);
  if (name == "members") return member_text(file->info());
  if (name == "tier") return std::string(to_string(file_system.tier().state_of(inode.handle, *file, attributes)));
  return file_report(file_system, *file, attributes);
}

Result<std::string> virtual_attribute(FileSystem& file_system, const Inode& inode, std::string_view name,
                                      bool for_owner) {
  if (!name.starts_with(kVirtualPrefix)) return no_such_attribute();
  name.remove_prefix(kVirtualPrefix.size());
  if (name == "status" && file_system.inodes().is_root(inode)) return status_report(file_system, for_owner);
  if (name == "stats" && file_system.inodes().is_root(inode)) return stats_report(file_system);
  if (name == "scrub" && file_system.inodes().is_root(inode))
    return scrub_report(file_system.scrub().report(), for_owner);
  if (name == "rebalance" && file_system.inodes().is_root(inode))
    return rebalance_report(file_system.rebalance().report(), for_owner);
  if (name == "tier-status" && file_system.inodes().is_root(inode))
    return tier_report(file_system.tier().status(), for_owner);
  if (name == "id" || name == "codec" || name == "stored" || name == "members" || name == "stat" || name == "tier")
    return file_attribute(file_system, inode, name);
  return no_such_attribute();
}

// Whether the node is known to have no such attribute. Who lists files with their attributes (ls -l) asks for two of
// each, and nearly all files have none: one look at the list of names is for all of them. A change of owner asks for
// capabilities.
bool is_absent(FileSystem& file_system, Inode& inode, std::string_view name) {
  constexpr std::string_view kSecurityPrefix = "security.", kAclPrefix = "system.posix_acl_";
  if (name == kCapability && !inode.may_have_capability.load(std::memory_order_relaxed)) return true;
  // Others may not be listed to a daemon that is not root, or be made up by the filesystem.
  if (!name.starts_with(kSecurityPrefix) && !name.starts_with(kAclPrefix)) return false;
  if (inode.any_xattr.is_absent()) return true;
  const unsigned changes = inode.any_xattr.changes();
  const Result<size_t> length = file_system.storage().list_xattr(inode.handle, {});
  if (!length.is_ok() || *length > 0) return false;
  inode.any_xattr.note_absent(changes);
  return true;
}

// The protocol of both reads: size 0 asks for the length; a value longer than `size` is ERANGE.
void reply_value(fuse_req_t request, std::span<const char> value, size_t size) {
  if (size == 0) {
    fuse_reply_xattr(request, value.size());
  } else if (value.size() > size) {
    fuse_reply_err(request, ERANGE);
  } else {
    fuse_reply_buf(request, value.data(), value.size());
  }
}

// What a caller may see of a list: trusted.* attributes show to root alone, as on any filesystem.
std::vector<char> shown_names(std::span<const char> names, bool to_root) {
  std::vector<char> kept;
  for (size_t begin = 0; begin < names.size();) {
    const std::string_view name(names.data() + begin, ::strnlen(names.data() + begin, names.size() - begin));
    const size_t length = std::min(name.size() + 1, names.size() - begin);
    if ((to_root || !name.starts_with(kTrustedPrefix)) && !is_virtual(name))
      kept.insert(kept.end(), names.begin() + begin, names.begin() + begin + length);
    begin += length;
  }
  return kept;
}

}  // namespace

void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, size_t size) noexcept {
  FileSystem& file_system = file_system_of(request);
  Inode& inode = file_system.inodes().get(node);
  if (is_virtual(name)) {
    Result<std::string> value = virtual_attribute(file_system, inode, name, owns_mount(request));
    if (!value.is_ok()) return reply_status(request, value.status());
    return reply_value(request, *value, size);
  }
  if (is_absent(file_system, inode, name)) return reply_status(request, no_such_attribute());
  std::vector<char> value(std::min(size, kValueSizeMax));
  Result<size_t> length = file_system.storage().get_xattr(inode.handle, name, std::as_writable_bytes(std::span(value)));
  if (!length.is_ok()) return reply_status(request, length.status());
  if (size == 0) {
    fuse_reply_xattr(request, *length);
    return;
  }
  fuse_reply_buf(request, value.data(), *length);
}

void listxattr(fuse_req_t request, fuse_ino_t node, size_t size) noexcept {
  FileSystem& file_system = file_system_of(request);
  const Inode& inode = file_system.inodes().get(node);
  // Read whole, whatever the caller's room: names may have to be taken out before the length is right.
  Result<size_t> length = file_system.storage().list_xattr(inode.handle, {});
  if (!length.is_ok()) return reply_status(request, length.status());
  if (*length == 0) return reply_value(request, {}, size);
  std::vector<char> names(kValueSizeMax);
  length = file_system.storage().list_xattr(inode.handle, std::as_writable_bytes(std::span(names)));
  if (!length.is_ok()) return reply_status(request, length.status());
  names.resize(*length);
  reply_value(request, shown_names(names, fuse_req_ctx(request)->uid == 0), size);
}

void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, size_t size,
              int flags) noexcept {
  if (is_virtual(name)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  Inode& inode = file_system.inodes().get(node);
  FileSystem::note_change(inode);
  Status status = Store::is_setting(name)
                      ? file_system.store().set_setting(inode.handle, name, std::string(value, size), flags)
                      : file_system.store().set_xattr(inode.handle, name, std::as_bytes(std::span(value, size)), flags);
  inode.any_xattr.note_set();  // also when it failed: who knows
  if (status.is_ok() && std::string_view(name) == kCapability) inode.may_have_capability.store(true);
  if (status.is_ok() && std::string_view(name) == kDefaultAcl) inode.default_acl.note_set();
  if (status.is_ok() && Store::is_setting(name)) inode.settings.note_set();
  if (status.is_ok() && std::string_view(name) == Store::kPinAttribute) file_system.tier().pins_changed();
  if (status.is_ok() && std::string_view(name) == "system.posix_acl_access")
    status = drop_set_group_id(file_system, request, inode);
  reply_status(request, status);
}

void removexattr(fuse_req_t request, fuse_ino_t node, const char* name) noexcept {
  if (is_virtual(name)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  const Handle handle = file_system.inodes().get(node).handle;
  const Status status = Store::is_setting(name) ? file_system.store().remove_setting(handle, name)
                                                : file_system.store().remove_xattr(handle, name);
  if (status.is_ok() && std::string_view(name) == Store::kPinAttribute) file_system.tier().pins_changed();
  reply_status(request, status);
}

}  // namespace fpfs::operations
