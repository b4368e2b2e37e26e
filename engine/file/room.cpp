#include "engine/file/room.h"

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/units.h"

namespace fpfs {

namespace {
constexpr uint64_t kKeptMax = 2 * kMiB;
constexpr uint64_t kKeptShare = 64;  // of a small drive no more than one part in so many
constexpr uint64_t kNamesShare =
    4;  // of what is kept free: what making the file may take before its content is asked for
constexpr uint64_t kAheadShare = 16;  // of what is free, for one stream
}  // namespace

Room::Room(Storage& storage, const Array& array, uint64_t pool_bytes, uint64_t looks_every_ns)
    : storage_(storage),
      array_(array),
      pool_bytes_(pool_bytes),
      looks_every_ns_(looks_every_ns),
      device_by_member_(array.member_capacity()),
      devices_(array.member_capacity() + 1U) {
  for (const MemberIndex m : array.members()) add_member(m);
  devices_.back().handle = array.tree();
  look(devices_.back());
}

void Room::add_member(MemberIndex member) {
  const Member& added = array_.member(member);
  Device& device = devices_[member.value()];
  device.handle = added.objects;
  device.number = added.device;
  device_by_member_[member] = member.value();
  if (!added.present) return;  // only ever read: it has no room to look at
  // One that was removed had perhaps the same drive, or another one that had its number then: nobody looks at it any more.
  for (const MemberIndex m : range_to(member))
    if (array_.is_present(m) && array_.member(m).device == added.device)
      device_by_member_[member] = device_by_member_[m];
  look(device);
}

void Room::remove_member(MemberIndex member) {
  Device& device = device_of(member);
  for (const MemberIndex m : array_.members())
    if (array_.is_present(m) && &device_of(m) == &device) return device.handle.store(array_.member(m).objects);
  device.handle.store(kNoHandle);
  if (device.scarce.exchange(false)) scarce_.fetch_sub(1);
}

void Room::look(Device& device) {
  const Handle handle = device.handle.load();
  if (handle == kNoHandle) return;
  const Result<struct statvfs> space = storage_.fstatvfs(handle);
  if (!space.is_ok()) return;  // whatever is wrong, a write will tell
  const uint64_t kept = std::min(kKeptMax, space->f_blocks * space->f_frsize / kKeptShare);
  const uint64_t available = space->f_bavail * space->f_frsize;
  device.kept.store(kept, std::memory_order_relaxed);
  device.total.store(space->f_blocks * space->f_frsize, std::memory_order_relaxed);
  device.available.store(available, std::memory_order_relaxed);
  const bool scarce = available < kept + pool_bytes_ + device.reserved.load();
  if (device.scarce.exchange(scarce) != scarce) scarce_.fetch_add(scarce ? 1 : -1);
}

void Room::keep_up() {
  if (looks_every_ns_ == 0) return;
  const uint64_t now = monotonic_ns();
  uint64_t due = looks_again_at_.load(std::memory_order_relaxed);
  if (now < due || !looks_again_at_.compare_exchange_strong(due, now + looks_every_ns_)) return;
  std::vector<const Device*> looked_at;
  for (const MemberIndex m : array_.members()) {
    Device& device = device_of(m);
    if (!array_.is_present(m) || std::ranges::find(looked_at, &device) != looked_at.end()) continue;
    look(device);
    looked_at.push_back(&device);
  }
  look(devices_.back());
}

bool Room::fits(Device& device, uint64_t bytes) {
  look(device);
  // Nothing else looks at the names' drive: it would count as scarce for ever.
  if (Device& tree = devices_.back(); tree.scarce.load()) look(tree);
  return device.available.load() >= device.kept.load() + device.taken() + bytes;
}

uint64_t Room::available(MemberIndex member) {
  Device& device = device_of(member);
  look(device);
  const uint64_t available = device.available.load(), spoken_for = device.kept.load() + device.taken();
  return available - std::min(available, spoken_for);
}

double Room::free_share(MemberIndex member) const {
  const Device& device = device_of(member);
  const uint64_t available = device.available.load(), spoken_for = device.kept.load() + device.taken();
  const uint64_t total = std::max(device.total.load(), available);
  return total == 0 ? 0 : static_cast<double>(available - std::min(available, spoken_for)) / static_cast<double>(total);
}

Room::Sent Room::sent() const {
  Sent sent;
  for (const MemberIndex m : array_.members()) sent.push_back(device_of(m).sent.load());
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
  for (const MemberIndex m : array_.members()) {
    if (!array_.is_present(m)) continue;
    const Device& device = device_of(m);
    result[device.number] = {device.kept.load() + device.kept.load() / kNamesShare + device.taken(),
                             device.spare.load()};
  }
  return result;
}

}  // namespace fpfs
