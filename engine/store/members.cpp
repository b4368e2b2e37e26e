// Store: members are added, leave and are taken out while the array is in use.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/store/store_impl.h"

namespace fpfs {

// --- what follows a change -------------------------------------------------------------------------------------------

// A file that is opened meanwhile looks again once it is in the table.
void Store::Impl::follow_members() {
  for (const MemberIndex m : array.members())
    if (array.is_leaving(m)) spares->refuse_member(m);
  for (const std::shared_ptr<File>& file : files.all()) file->follow_members();
  reclaimer->finish();
}

Result<uint64_t> Store::Impl::bytes_on(MemberIndex member) {
  constexpr uint64_t kStatBlock = 512;  // unit of st_blocks
  uint64_t bytes = 0;
  for (uint64_t directory = 0; directory < 256; ++directory) {
    FPFS_ASSIGN_OR_RETURN(const HandleCache::Pin objects, array.object_directory(member, FileId(directory)));
    std::vector<std::string> names;
    FPFS_RETURN_IF_ERROR(storage().list(objects.get(), [&names](const DirectoryEntry& entry) {
      names.push_back(entry.name);
      return true;
    }));
    for (const std::string& name : names)
      if (const Result<struct stat> attributes = storage().stat_at(objects.get(), name); attributes.is_ok())
        bytes += static_cast<uint64_t>(attributes->st_blocks) * kStatBlock;
  }
  return bytes;
}

// What lies on the same drive has room for what it gives back.
Status Store::Impl::check_room_without(MemberIndex member, uint64_t bytes) {
  const StripeMap now = array.stripes();
  std::map<uint64_t, uint64_t> room_by_device;
  for (const MemberIndex other : now.members()) {
    if (other == member || !now.takes_part(other) || !array.is_present(other)) continue;
    if (array.member(other).device == array.member(member).device) return Status::ok();
    room_by_device[array.member(other).device] = room->available(other);
  }
  uint64_t available = 0;
  for (const auto& [device, bytes_there] : room_by_device) available += bytes_there;
  if (bytes <= available) return Status::ok();
  return Status::error(StatusCode::kNoSpace,
                       fmt::format("{}: it holds {}, and the other members have room for {}; nothing was changed. Add "
                                   "members first, or remove files",
                                   array.member(member).path, format_size(bytes), format_size(available)));
}

// --- changes ---------------------------------------------------------------------------------------------------------

namespace {

// Whether it is so now is known, or nothing is changed any more.
Status outcome_of(const Array::Changed& changed, ArrayHealth& health) {
  if (!changed.is_unknown) return changed.status;
  health.fail(changed.status);
  return health.failure();
}

}  // namespace

Status Store::add_members(const std::vector<std::string>& directories) {
  const MutexLock lock(impl_->changing_members);
  return add_members_locked(directories, {});
}

Status Store::add_members_locked(const std::vector<std::string>& directories, std::optional<MemberIndex> replaced) {
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  const uint16_t before = array_->member_count();
  FPFS_RETURN_IF_ERROR(
      outcome_of(array_->add_members(
                     directories, [this](MemberIndex member) { return impl_->prepare_member(member); }, replaced),
                 impl_->health));
  for (MemberIndex m(before); m.value() < array_->member_count(); ++m) {
    impl_->watch_member(m);
    log(LogLevel::kInfo, "{} is member {} of the array now", array_->member(m).path, m);
  }
  return Status::ok();
}

Status Store::remove_member(const std::string& directory) {
  const MutexLock lock(impl_->changing_members);
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  FPFS_ASSIGN_OR_RETURN(const MemberIndex member, array_->find_member(directory));
  const bool goes_on = array_->is_leaving(member);
  if (!goes_on) {
    FPFS_RETURN_IF_ERROR(array_->may_leave(member));
    impl_->reclaimer->finish();
    FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, impl_->bytes_on(member));
    FPFS_RETURN_IF_ERROR(impl_->check_room_without(member, bytes));
  }
  FPFS_RETURN_IF_ERROR(outcome_of(array_->set_leaving(member, true), impl_->health));
  impl_->follow_members();
  log(LogLevel::kInfo, "{}, member {}, {} the array", array_->member(member).path, member,
      goes_on ? "goes on leaving" : "is leaving");
  return Status::ok();
}

Status Store::replace_member(const std::string& directory, const std::string& added) {
  const MutexLock lock(impl_->changing_members);
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  FPFS_ASSIGN_OR_RETURN(const MemberIndex member, array_->find_member(directory));
  if (array_->is_leaving(member))
    return Status::error(
        StatusCode::kInvalidArgument,
        directory + ": it is leaving already; fpfs member remove goes on with that, and with --cancel it stays");
  FPFS_RETURN_IF_ERROR(array_->may_leave(member, true));
  impl_->reclaimer->finish();
  FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, impl_->bytes_on(member));
  FPFS_RETURN_IF_ERROR(array_->check_room_in(added, member, bytes));
  FPFS_RETURN_IF_ERROR(add_members_locked({added}, member));
  impl_->follow_members();
  log(LogLevel::kInfo, "{}, member {}, is leaving the array, and {} takes its place", array_->member(member).path,
      member, added);
  return Status::ok();
}

Status Store::take_back_member(const std::string& directory) {
  const MutexLock lock(impl_->changing_members);
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  FPFS_ASSIGN_OR_RETURN(const MemberIndex member, array_->find_member(directory));
  if (!array_->is_leaving(member))
    return Status::error(StatusCode::kInvalidArgument, directory + ": it is not leaving the array");
  {
    const MutexLock dropping(impl_->dropping);
    FPFS_RETURN_IF_ERROR(outcome_of(array_->set_leaving(member, false), impl_->health));
  }
  impl_->spares->add_member(member);
  impl_->follow_members();
  log(LogLevel::kInfo, "{}, member {}, stays in the array", array_->member(member).path, member);
  return Status::ok();
}

Result<bool> Store::take_out_members() {
  const MutexLock lock(impl_->changing_members);
  FPFS_RETURN_IF_ERROR(impl_->health.failure());
  bool is_any_left = false;
  impl_->follow_members();
  const std::vector<std::shared_ptr<File>> files = impl_->files.all();
  for (const std::shared_ptr<File>& file : files) file->drop_left_objects();
  for (const MemberIndex member : array_->members()) {
    if (!array_->is_leaving(member)) continue;
    // What is on its way there may be the first of its object.
    if (std::any_of(files.begin(), files.end(), [member](const auto& file) { return file->is_on(member); })) {
      is_any_left = true;
      continue;
    }
    const Array::Changed changed = array_->take_out(member, [&] { impl_->room->remove_member(member); });
    if (changed.status.code() == StatusCode::kBusy) {
      is_any_left = true;
      continue;
    }
    FPFS_RETURN_IF_ERROR(outcome_of(changed, impl_->health));
    log(LogLevel::kInfo, "{} was member {}, and is no member of the array any more", array_->member(member).path,
        member);
  }
  return is_any_left;
}

}  // namespace fpfs
