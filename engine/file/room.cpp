#include "engine/file/room.h"

#include <algorithm>

#include "engine/base/units.h"

namespace fpfs {

namespace {
constexpr uint64_t kKeptMax = 2 * kMiB;
constexpr uint64_t kKeptShare = 64;  // of a small drive no more than one part in so many
constexpr uint64_t kNamesShare =
    4;  // of what is kept free: what making the file may take before its content is asked for
constexpr uint64_t kAheadShare = 16;  // of what is free, for one stream
}  // namespace

Room::Room(Storage& storage, const Array& array, uint64_t pool_bytes)
    : storage_(storage), pool_bytes_(pool_bytes), devices_(array.member_count() + 1U) {
  std::map<uint64_t, size_t> known;
  for (const MemberIndex m : array.members()) {
    const Member& member = array.member(m);
    Device& device = devices_[m.value()];
    device.handle = member.objects;
    device.number = member.device;
    // A missing member (only ever read) has no room to look at.
    device_by_member_.push_back(member.present ? known.emplace(member.device, m.value()).first->second : m.value());
  }
  devices_.back().handle = array.tree();
  for (Device& device : devices_)
    if (device.handle != kNoHandle) look(device);
}

void Room::look(Device& device) {
  const Result<struct statvfs> space = storage_.fstatvfs(device.handle);
  if (!space.is_ok()) return;  // whatever is wrong, a write will tell
  const uint64_t kept = std::min(kKeptMax, space->f_blocks * space->f_frsize / kKeptShare);
  const uint64_t available = space->f_bavail * space->f_frsize;
  device.kept.store(kept, std::memory_order_relaxed);
  device.available.store(available, std::memory_order_relaxed);
  const bool scarce = available < kept + pool_bytes_ + device.reserved.load();
  if (device.scarce.exchange(scarce) != scarce) scarce_.fetch_add(scarce ? 1 : -1);
}

bool Room::fits(Device& device, uint64_t bytes) {
  look(device);
  // Nothing else looks at the names' drive: it would count as scarce for ever.
  if (Device& tree = devices_.back(); tree.scarce.load()) look(tree);
  return device.available.load() >= device.kept.load() + device.taken() + bytes;
}

Room::Sent Room::sent() const {
  Sent sent;
  for (const size_t device : device_by_member_) sent.push_back(devices_[device].sent.load());
  return sent;
}

uint64_t Room::ahead_max(MemberIndex member) const {
  const Device& device = device_of(member);
  const uint64_t available = device.available.load(std::memory_order_relaxed);
  return (available - std::min(available, device.reserved.load(std::memory_order_relaxed))) / kAheadShare;
}

bool Room::may_hold_spare(MemberIndex member, uint64_t bytes) {
  Device& device = device_of(member);
  look(device);
  const uint64_t spare = device.spare.load() + bytes;
  return device.available.load() >= device.kept.load() + pool_bytes_ + device.taken() + spare;
}

std::map<uint64_t, Array::SpaceChange> Room::changes() const {
  std::map<uint64_t, Array::SpaceChange> result;
  for (const size_t i : device_by_member_) {
    const Device& device = devices_[i];
    result[device.number] = {device.kept.load() + device.kept.load() / kNamesShare + device.taken(),
                             device.spare.load()};
  }
  return result;
}

}  // namespace fpfs
