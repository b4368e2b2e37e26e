// How the members of an open array change. Each change is a superblock of the directory with the names that counts one
// change more: from that moment on it is so (ArrayOpener::settle_membership()). The other superblocks follow; those that a
// crash leaves behind are brought up by the next changes.
//
// A member leaves in two changes. With the first nothing new goes to it. Its content is moved, by commits of its files
// (engine/store/rebalance.h); when no object is left on it, the second takes it out. Its index stays its own: what
// sidecars say of the others remains true.
#include "engine/array/change_members.h"

#include <fcntl.h>

#include <utility>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/array/member_directory.h"
#include "engine/array/mount_records.h"
#include "engine/array/new_directories.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/log.h"
#include "engine/layout/stripe_order.h"

namespace fpfs {

void change_members(std::vector<Superblock>& superblocks) {
  std::vector<Uuid> ids(superblocks.front().member_count);
  const std::bitset<kMemberCountMax> removed = superblocks.front().removed;
  for (const Superblock& superblock : superblocks)
    if (superblock.member_index != kMetadataOnlyMember && !removed.test(superblock.member_index.value()))
      ids[superblock.member_index.value()] = superblock.member_id;
  for (Superblock& superblock : superblocks) {
    superblock.incompatible |= kFeatureMembership;
    if (!superblock.stripe_order.empty()) superblock.incompatible |= kFeatureOrder;
    ++superblock.membership;
    superblock.member_set = member_set_of(ids);
  }
}

// Members by their index, then the names.
std::vector<Superblock> Array::superblocks_by_index() const {
  std::vector<Superblock> superblocks;
  for (const ArrayDirectory& directory : directories_) superblocks.push_back(directory.superblock);
  std::sort(superblocks.begin(), superblocks.end(),
            [](const Superblock& a, const Superblock& b) { return a.member_index < b.member_index; });
  return superblocks;
}

// From here on it is so, or nobody knows.
Array::Changed Array::commit_members(const std::vector<Superblock>& superblocks) {
  const auto with_names = std::find_if(directories_.begin(), directories_.end(), [](const ArrayDirectory& directory) {
    return directory.superblock.member_index == directory.superblock.metadata_member;
  });
  const auto changed_of = [&superblocks](const ArrayDirectory& directory) {
    return *std::find_if(superblocks.begin(), superblocks.end(), [&](const Superblock& superblock) {
      return superblock.member_index == directory.superblock.member_index;
    });
  };
  Status status = write_superblock(environment_.storage(), with_names->directory, changed_of(*with_names));
  if (status.is_ok()) status = environment_.storage().check_running(with_names->lock);
  if (!status.is_ok()) return {status.with_context(with_names->path), true};
  for (ArrayDirectory& directory : directories_) {
    directory.superblock_is_old = &directory != &*with_names;
    directory.superblock = changed_of(directory);
  }
  return {Status::ok()};
}

// The array is what it is: whatever fails here is done by the next mount.
void Array::bring_up_superblocks() {
  Storage& storage = environment_.storage();
  const std::vector<Superblock> superblocks = superblocks_by_index();
  for (ArrayDirectory& directory : directories_) {
    Status status = write_superblock_copies(storage, directory.directory, superblocks);
    if (status.is_ok() && directory.superblock_is_old)
      status = write_superblock(storage, directory.directory, directory.superblock);
    if (status.is_ok()) {
      directory.superblock_is_old = false;
      continue;
    }
    log(LogLevel::kWarning,
        "{}: its superblock does not name the members as they are yet, the next mount changes it: {}", directory.path,
        status.message());
  }
}

// --- members that leave ----------------------------------------------------------------------------------------------

Result<MemberIndex> Array::find_member(const std::string& path) const {
  Storage& storage = environment_.storage();
  std::optional<MemberIndex> found;
  if (const Result<Handle> opened = storage.open_directory(path); opened.is_ok()) {
    const ScopedHandle directory(storage, *opened);
    FPFS_ASSIGN_OR_RETURN(const Identity wanted, identity_of(storage, *opened));
    for (const MemberIndex member : members()) {
      if (!is_present(member)) continue;
      const Result<Identity> identity = identity_of(storage, members_[member].directory);
      if (identity.is_ok() && *identity == wanted) found = member;
    }
  }
  for (const MemberIndex member : members())
    if (!found && is_present(member) && members_[member].path == path) found = member;
  if (!found)
    return refuse(StatusCode::kInvalidArgument, path, "it is no member of the array (fpfs member list shows them)");
  return *found;
}

Status Array::may_leave(MemberIndex member, bool is_replaced) const {
  const std::string& path = members_[member].path;
  if (member == superblock_.metadata_member)
    return refuse(StatusCode::kInvalidArgument, path,
                  "it has the names of all files, and cannot be removed; to another drive it is copied while the array "
                  "is not mounted");
  if (is_leaving(member)) return refuse(StatusCode::kExists, path, "it is leaving already");
  if (!is_replaced && stripes().width() == 1)
    return refuse(StatusCode::kInvalidArgument, path,
                  "it is the last member that takes new content; add another one first (fpfs member add)");
  return Status::ok();
}

Array::Changed Array::set_leaving(MemberIndex member, bool is_to_leave) {
  const MutexLock lock(changes_mutex_);
  if (Status begun = begin_changes_locked(); !begun.is_ok()) return {begun};
  if (is_to_leave == is_leaving(member)) return {Status::ok()};
  std::vector<Superblock> superblocks = superblocks_by_index();
  std::vector<MemberIndex> order = superblocks.front().stripe_order;
  if (order.empty())
    for (const MemberIndex every : members()) order.push_back(every);
  if (is_to_leave) {
    if (Status allowed = may_leave(member); !allowed.is_ok()) return {allowed};
    order = order_without(std::move(order), member);
  } else {
    order = order_with(order, member);
  }
  for (Superblock& superblock : superblocks) superblock.stripe_order = order;
  change_members(superblocks);
  const Changed changed = commit_members(superblocks);
  if (!changed.status.is_ok()) return changed;
  set_membership(superblocks.front());
  bring_up_superblocks();
  return changed;
}

Status Array::check_room_in(const std::string& path, MemberIndex of, uint64_t bytes) const {
  Storage& storage = environment_.storage();
  NewDirectory candidate;
  candidate.path = path;
  FPFS_RETURN_IF_ERROR(find_new_directory(storage, candidate));
  const Handle place = candidate.directory.is_open() ? candidate.directory.get() : candidate.parent.get();
  FPFS_ASSIGN_OR_RETURN(const uint64_t device, storage.filesystem_of(place));
  FPFS_ASSIGN_OR_RETURN(const struct statvfs space, storage.fstatvfs(place));
  const uint64_t available = space.f_bavail * space.f_frsize;
  if (device == members_[of].device || bytes <= available) return Status::ok();
  return refuse(StatusCode::kNoSpace, path,
                fmt::format("it has room for {}, and {} holds {}; nothing was changed", format_size(available),
                            members_[of].path, format_size(bytes)));
}

Array::Changed Array::take_out(MemberIndex member, const std::function<void()>& forget) {
  const MutexLock lock(changes_mutex_);
  Storage& storage = environment_.storage();
  if (Status begun = begin_changes_locked(); !begun.is_ok()) return {begun};
  FPFS_CHECK(is_leaving(member), "only a member that is leaving is taken out");
  const std::string path = members_[member].path;
  // So that it is empty after a crash, too, when its superblock says that it is none of ours any more.
  if (Status synced = storage.sync_filesystem(members_[member].objects); !synced.is_ok())
    return {synced.with_context(path)};
  const Result<bool> is_hollow = holds_no_object(storage, members_[member].directory);
  if (!is_hollow.is_ok()) return {is_hollow.status().with_context(path)};
  if (!*is_hollow) return {refuse(StatusCode::kBusy, path, "objects are left on it")};

  std::vector<Superblock> superblocks = superblocks_by_index();
  for (Superblock& superblock : superblocks) superblock.removed.set(member.value());
  change_members(superblocks);
  const Changed changed = commit_members(superblocks);
  if (!changed.status.is_ok()) return changed;
  set_membership(superblocks.front());
  const auto gone = std::find_if(directories_.begin(), directories_.end(), [member](const ArrayDirectory& directory) {
    return directory.superblock.member_index == member;
  });
  const ArrayDirectory removed = *gone;
  directories_.erase(gone);
  bring_up_superblocks();
  // Without this the others tell.
  if (const Status told = write_superblock(storage, removed.directory, removed.superblock); !told.is_ok())
    log(LogLevel::kWarning, "{}: it was removed, and does not say so itself: {}", path, told.message());
  forget();
  close_member(member);
  return changed;
}

// Somebody may have looked a moment ago and still use a handle of it, which must lead to nothing else by then: the
// numbers are given back with the array.
void Array::close_member(MemberIndex member) {
  const Member& gone = members_[member];
  for (const Handle handle : {gone.directory, gone.objects, gone.lock})
    if (const Status retired = environment_.storage().retire(handle); !retired.is_ok())
      log(LogLevel::kWarning, "{}: it was removed, and is in use until the array is unmounted: {}", gone.path,
          retired.message());
  while (handles(member).make_room()) {
  }
}

}  // namespace fpfs
