#include "engine/file/spare_objects.h"

#include <fcntl.h>

#include <algorithm>
#include <tuple>

#include "engine/base/log.h"

namespace fpfs {

namespace {
constexpr uint64_t kStatBlock = 512;  // unit of st_blocks
}  // namespace

SpareObjects::SpareObjects(Environment& environment, Array& array, Room& room, ArrayHealth& health, uint64_t least)
    : environment_(environment),
      array_(array),
      room_(room),
      health_(health),
      least_(least),
      overwrites_in_place_(array.member_capacity()),
      spares_(array.member_capacity()) {
  for (const MemberIndex m : array.members()) add_member(m);
}

void SpareObjects::add_member(MemberIndex member) {
  const Member& added = array_.member(member);
  overwrites_in_place_[member].store(added.present && environment_.storage().overwrites_in_place(added.objects));
}

DoomedObjects DoomedObjects::of(const std::shared_ptr<ObjectSet>& objects, bool may_be_spare) {
  return {objects->file(), objects->generation(), objects, may_be_spare};
}

bool SpareObjects::keep(MemberIndex member, const DoomedObjects& doomed) {
  if (!doomed.may_be_spare || !overwrites_in_place_[member]) return false;
  const Result<HandleCache::Pin> directory = array_.object_directory(member, doomed.file);
  if (!directory.is_ok()) return false;
  const Result<struct stat> attributes =
      environment_.storage().stat_at(directory->get(), Array::object_name(doomed.file, doomed.generation));
  if (!attributes.is_ok() || !S_ISREG(attributes->st_mode)) return false;
  const auto length = static_cast<uint64_t>(attributes->st_size);
  const uint64_t allocated = std::min(length, static_cast<uint64_t>(attributes->st_blocks) * kStatBlock);
  // A sparse file's object is no space for a dense one.
  if (allocated < std::max(least_, length / 2) || !room_.may_hold_spare(member, allocated)) return false;
  if (shares_blocks(directory->get(), Array::object_name(doomed.file, doomed.generation))) return false;
  room_.add_spare(member, allocated);
  MutexLock lock(mutex_);
  spares_[member].emplace(length, Spare{doomed, allocated, environment_.now()});
  return true;
}

// Blocks that another object has, too, are nobody's to write over: the filesystem would take new ones.
bool SpareObjects::shares_blocks(Handle directory, const std::string& name) const {
  const Result<Handle> opened = environment_.storage().open_at(directory, name, O_RDONLY);
  if (!opened.is_ok()) return true;
  const ScopedHandle object(environment_.storage(), *opened);
  const Result<bool> shares = environment_.storage().has_shared_blocks(object.get());
  return !shares.is_ok() || *shares;
}

std::optional<SpareObjects::Taken> SpareObjects::take(MemberIndex member, Handle directory, const std::string& name,
                                                      int flags) {
  Spare spare;
  uint64_t length = 0;
  {
    MutexLock lock(mutex_);
    auto& spares = spares_[member];
    const auto found = std::find_if(spares.begin(), spares.end(),
                                    [](const auto& entry) { return entry.second.objects.users.expired(); });
    if (found == spares.end()) return std::nullopt;
    length = found->first;
    spare = found->second;
    spares.erase(found);
  }
  room_.remove_spare(member, spare.allocated);
  const DoomedObjects& objects = spare.objects;
  Storage& storage = environment_.storage();
  const std::string old_name = Array::object_name(objects.file, objects.generation);
  const Result<HandleCache::Pin> old_directory = array_.object_directory(member, objects.file);
  const Result<Handle> opened =
      old_directory.is_ok() ? storage.open_at(old_directory->get(), old_name, flags) : old_directory.status();
  Status status = opened.status();
  if (status.is_ok()) {
    ScopedHandle handle(storage, *opened);
    status = make_whole(handle.get(), spare.allocated, length);
    if (status.code() == StatusCode::kNoSpace) {
      // What its holes would take is not there. Without it there may be enough for what comes.
      status = storage.unlink(old_directory->get(), old_name);
      if (status.is_ok()) return std::nullopt;
    }
    if (status.is_ok()) status = storage.rename(old_directory->get(), old_name, directory, name, 0);
    if (status.is_ok()) return Taken{std::move(handle), length};
  }
  log(LogLevel::kWarning, "a freed object cannot be used again: {}; fsck -p will free it", status.message());
  health_.note_not_freed();
  return std::nullopt;
}

// Nobody else touches it; should somebody have, then what is not allocated must not count as such.
Status SpareObjects::make_whole(Handle object, uint64_t allocated, uint64_t length) const {
  Storage& storage = environment_.storage();
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(object));
  if (static_cast<uint64_t>(attributes.st_size) != length)
    return Status::error(StatusCode::kIoError, storage.describe(object) + " was changed from outside");
  return allocated < length ? storage.fallocate(object, 0, 0, length) : Status::ok();
}

std::vector<DoomedObjects> SpareObjects::release_all() {
  return release_if([](const Spare&) { return true; });
}

std::vector<DoomedObjects> SpareObjects::release_kept_before(const struct timespec& time) {
  return release_if([&time](const Spare& spare) {
    return std::tie(spare.since.tv_sec, spare.since.tv_nsec) < std::tie(time.tv_sec, time.tv_nsec);
  });
}

uint64_t SpareObjects::bytes(MemberIndex member) const {
  MutexLock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [length, spare] : spares_[member]) sum += spare.allocated;
  return sum;
}

bool SpareObjects::is_empty() const {
  MutexLock lock(mutex_);
  return std::all_of(spares_.begin(), spares_.end(), [](const auto& of_member) { return of_member.empty(); });
}

std::vector<DoomedObjects> SpareObjects::release_if(const std::function<bool(const Spare&)>& chosen) {
  std::vector<DoomedObjects> released;
  MutexLock lock(mutex_);
  for (const MemberIndex m : spares_.indices())
    std::erase_if(spares_[m], [&](const auto& entry) {
      const Spare& spare = entry.second;
      if (!chosen(spare)) return false;
      room_.remove_spare(m, spare.allocated);
      released.push_back(spare.objects);
      released.back().may_be_spare = false;
      return true;
    });
  return released;
}

}  // namespace fpfs
