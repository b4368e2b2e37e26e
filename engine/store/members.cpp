// Store: members are added, leave and are taken out while the array is in use.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/check/repair.h"
#include "engine/check/scan.h"
#include "engine/check/set_aside.h"
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

namespace {

// Lines about files that fsck has set aside, or about what is none of the array's.
constexpr size_t kToldMax = 32;

// What fsck -y has set aside is not moved: which slots of its objects are free only a whole index says, and of one that
// lost its last records a backup may know more.
struct FilesSetAside {
  std::map<FileId, std::string> names;  // "000000000000002a-step100.pt.sidecar"
  std::vector<std::string> of_anybody;  // that do not tell whose objects they name
};

// That it takes on its member; 0 of one that has just gone.
uint64_t bytes_taken_by(Storage& storage, const ObjectEntry& object) {
  constexpr uint64_t kStatBlock = 512;  // unit of st_blocks
  const Result<struct stat> attributes = storage.stat_at(object.directory, object.name);
  return attributes.is_ok() ? static_cast<uint64_t>(attributes->st_blocks) * kStatBlock : 0;
}

Result<FilesSetAside> find_files_set_aside(Storage& storage, const Array& array) {
  FilesSetAside found;
  FPFS_RETURN_IF_ERROR(walk_files_set_aside(storage, array, [&found](const FileEntry& entry, const ScannedFile& file) {
    if (file.status.is_ok() && file.image.sequence > 0)
      found.names.emplace(file.image.file_id, entry.name);
    else if (file.claimed_id)
      found.names.emplace(*file.claimed_id, entry.name);
    else if (!file.status.is_ok() && !file.is_foreign)
      found.of_anybody.push_back(entry.name);
  }));
  return found;
}

}  // namespace

Result<uint64_t> Store::Impl::bytes_to_move_from(MemberIndex member) {
  // Where it cannot be looked, room for all of it is asked for.
  const Result<FilesSetAside> found = find_files_set_aside(storage(), array);
  const FilesSetAside aside = found.is_ok() ? *found : FilesSetAside();
  uint64_t bytes = 0;
  const Status walked = walk_objects(storage(), array, member, [&](const ObjectEntry& object) -> Result<bool> {
    if (object.is_object && !aside.names.contains(object.file)) bytes += bytes_taken_by(storage(), object);
    return true;
  });
  if (walked.is_ok()) return bytes;
  // A drive that fails is the one to leave: what it still gives is moved.
  log(LogLevel::kWarning,
      "{}: what it holds cannot all be looked at, room for all that its drive holds is asked for: {}",
      array.member(member).path, walked.message());
  FPFS_ASSIGN_OR_RETURN(const struct statvfs space, storage().fstatvfs(array.member(member).objects));
  return (space.f_blocks - space.f_bfree) * space.f_frsize;
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
    FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, impl_->bytes_to_move_from(member));
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
  FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, impl_->bytes_to_move_from(member));
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

// --- what keeps a member ---------------------------------------------------------------------------------------------

namespace {

// Looks at the objects that are left on members, and whose they are.
class LeftObjects {
 public:
  LeftObjects(Storage& storage, Array& array) : storage_(storage), array_(array) {}

  Status find_files_set_aside();
  // Nothing is said of the objects of a file that is open.
  void add_open(FileId file) { open_.insert(file); }
  Status look_at(MemberIndex member);
  void tell(std::vector<Store::KeepsMember>& kept) const;

 private:
  struct Aside {
    uint64_t bytes = 0;
    std::set<std::string> members;  // their directories
  };

  Storage& storage_;
  Array& array_;
  FilesSetAside files_set_aside_;
  std::set<FileId> open_;
  std::map<std::string, Aside> aside_;  // by the name in lost+found
  std::vector<std::string> strays_;
  uint64_t unnamed_ = 0;
  std::string first_unnamed_;
};

Status LeftObjects::find_files_set_aside() {
  FPFS_ASSIGN_OR_RETURN(files_set_aside_, fpfs::find_files_set_aside(storage_, array_));
  return Status::ok();
}

Status LeftObjects::look_at(MemberIndex member) {
  FPFS_RETURN_IF_ERROR(
      walk_strays(storage_, array_, member, [this](const std::string& path) { strays_.push_back(path); }));
  return walk_objects(storage_, array_, member, [&](const ObjectEntry& object) -> Result<bool> {
    if (!object.is_object) {
      strays_.push_back(path_of(array_, object));
    } else if (const auto found = files_set_aside_.names.find(object.file); found != files_set_aside_.names.end()) {
      Aside& aside = aside_[found->second];
      aside.members.insert(array_.member(member).path);
      aside.bytes += bytes_taken_by(storage_, object);
    } else if (!open_.contains(object.file) && ++unnamed_ == 1) {
      first_unnamed_ = path_of(array_, object);
    }
    return true;
  });
}

void LeftObjects::tell(std::vector<Store::KeepsMember>& kept) const {
  const auto lost_and_found = [this](const std::string& name) {
    return fmt::format("{}/{}/{}", array_.metadata_path(), kLostAndFound, name);
  };
  constexpr const char* kWhatToDo =
      "when nobody needs it, remove it and its .txt, unmount, run fsck.fastpersistfs -p (-y where it says "
      "so), mount, and remove the member again";
  size_t told = 0;
  for (const auto& [name, aside] : aside_) {
    if (++told > kToldMax) break;
    kept.push_back(
        {lost_and_found(name), fmt::format("fsck set it aside, and {} of it, which are not moved, lie on {}: {}",
                                           format_size(aside.bytes), fmt::join(aside.members, ", "), kWhatToDo)});
  }
  if (aside_.size() > kToldMax)
    kept.push_back(
        {lost_and_found(""), fmt::format("{} data on members that are leaving: the same of {}",
                                         format_count(aside_.size() - kToldMax, "more file that fsck set aside has",
                                                      "more files that fsck set aside have"),
                                         one_or_many(aside_.size() - kToldMax, "it", "them"))});
  for (size_t i = 0; i < strays_.size() && i < kToldMax; ++i)
    kept.push_back({strays_[i], "it is none of the array's; move it elsewhere, and remove the member again"});
  if (unnamed_ == 0) return;
  const std::string more = unnamed_ == 1 ? "" : fmt::format(" (and {})", format_count(unnamed_ - 1, "more object"));
  if (!files_set_aside_.of_anybody.empty()) {
    kept.push_back({lost_and_found(files_set_aside_.of_anybody.front()),
                    fmt::format("fsck set it aside, and its index does not say whose {} is{}: {}", first_unnamed_, more,
                                kWhatToDo),
                    true});
    return;
  }
  kept.push_back(
      {first_unnamed_,
       fmt::format("no file is known to have it{}; if removing the member again does not end it: unmount, and "
                   "fsck.fastpersistfs says what it is (-p, or -y where it says so, removes what is nobody's)",
                   more),
       true});
}

}  // namespace

std::vector<Store::KeepsMember> Store::what_keeps_members() {
  std::vector<KeepsMember> kept;
  LeftObjects left(storage(), *array_);
  std::vector<MemberIndex> leaving;
  for (const MemberIndex member : array_->members())
    if (array_->is_leaving(member)) leaving.push_back(member);
  for (const std::shared_ptr<File>& file : impl_->files.all()) {
    left.add_open(file->info().file_id);
    if (std::none_of(leaving.begin(), leaving.end(), [&file](MemberIndex member) { return file->is_on(member); }))
      continue;
    kept.push_back({file->path(), file->is_nameless()
                                      ? "it was removed, and is open still; close it"
                                      : "it is open since before, and may still write there; close it"});
  }
  Status status = left.find_files_set_aside();
  for (const MemberIndex member : leaving) {
    const Status looked = left.look_at(member);
    if (status.is_ok()) status = looked;
  }
  left.tell(kept);
  if (!status.is_ok())
    log(LogLevel::kWarning, "what is left on members that are leaving cannot be looked at: {}", status.message());
  return kept;
}

}  // namespace fpfs
