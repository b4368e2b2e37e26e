// Room: what the drives have left for content that is in memory only.
//
// A local filesystem tells the writer that a drive is full by the write that does not fit. A write here is answered
// when it is in memory, so it is taken only when the drives still have room for it behind everything that was taken
// before and is not stored yet. As long as every drive has room for a whole pool of buffers, that costs one atomic
// load.
//
// A little of every drive is kept free of content (2 MiB, or one part in 64 of a small one): records, names and the
// filesystem's own structures need room too, and removing files must stay possible.
//
// All of it is counted per drive: members that share one share its room.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/array/array.h"
#include "engine/io/storage.h"

namespace fpfs {

class Room {
 public:
  // `pool_bytes`: the most that can be in memory only. The array and its storage outlive it. `looks_every_ns`: see
  // keep_up(); 0: never.
  Room(Storage& storage, const Array& array, uint64_t pool_bytes, uint64_t looks_every_ns = 0);
  // One that the array will have in a moment. Not together with another one.
  void add_member(MemberIndex member);
  // One that nothing goes to any more, and whose handles are about to be closed. Not together with another one.
  void remove_member(MemberIndex member);

  // Content that will need space of a member was taken into memory; it has its space now, or was given up.
  void add_unstored(MemberIndex member, uint64_t bytes) { device_of(member).unstored.fetch_add(bytes); }
  void remove_unstored(MemberIndex member, uint64_t bytes) { device_of(member).unstored.fetch_sub(bytes); }

  // The same for content on its way to a drive: it may have its space already, which is known when it has arrived.
  void add_in_flight(MemberIndex member, uint64_t bytes) { device_of(member).sent.fetch_add(bytes); }
  void remove_in_flight(MemberIndex member, uint64_t bytes) { device_of(member).arrived.fetch_add(bytes); }
  // How much was ever sent to each member. Who waits for what is in flight waits for that much to have arrived: as much
  // as was on its way, whatever is sent after it.
  using Sent = PerMember<uint64_t>;
  Sent sent() const;
  bool is_in_flight(MemberIndex member, const Sent& sent) const {
    return device_of(member).arrived.load() < sent[member];
  }

  // What fallocate set aside for content to come.
  void add_reserved(MemberIndex member, uint64_t bytes) { device_of(member).reserved.fetch_add(bytes); }
  void remove_reserved(MemberIndex member, uint64_t bytes) { device_of(member).reserved.fetch_sub(bytes); }

  // Spare objects: allocated, and given up as soon as their space is wanted.
  bool may_hold_spare(MemberIndex member, uint64_t bytes);  // much more is left; looks
  void add_spare(MemberIndex member, uint64_t bytes) { device_of(member).spare.fetch_add(bytes); }
  void remove_spare(MemberIndex member, uint64_t bytes) { device_of(member).spare.fetch_sub(bytes); }

  // Others fill the drives, too: looks at all of them, when that was not done for a while.
  void keep_up();
  // Some drive may not have room for a whole pool: ask fits() before taking content.
  bool is_scarce() const { return scarce_.load(std::memory_order_relaxed) > 0; }
  // Looks (a system call): `bytes` more fit on the member, or where the names are.
  bool fits(MemberIndex member, uint64_t bytes) { return fits(device_of(member), bytes); }
  bool fits_tree(uint64_t bytes) { return fits(devices_.back(), bytes); }
  // Looks: how many bytes more fit on the drive of the member.
  uint64_t available(MemberIndex member);
  // Of the drive of the member, 0 to 1: what is available, as it was at the last look.
  double free_share(MemberIndex member) const;
  // Space of the member was allocated or freed: looks again.
  void refresh(MemberIndex member) { look(device_of(member)); }
  // Allocating ahead of a stream must not take what others need: the most that may be taken.
  uint64_t ahead_max(MemberIndex member) const;
  // By Member::device: how what statfs offers differs from what the drive's filesystem says.
  std::map<uint64_t, Array::SpaceChange> changes() const;

 private:
  struct Device {
    std::atomic<Handle> handle{kNoHandle};  // of a member on it
    uint64_t number = 0;
    std::atomic<uint64_t> kept{0}, total{0}, available{UINT64_MAX}, unstored{0}, sent{0}, arrived{0}, reserved{0},
        spare{0};
    std::atomic<bool> scarce{false};
    // Spoken for, in memory or on its way.
    uint64_t taken() const {
      const uint64_t done = arrived.load();  // first: so the difference is never below 0
      return unstored.load() + reserved.load() + (sent.load() - done);
    }
  };
  Device& device_of(MemberIndex member) { return devices_[device_by_member_[member]]; }
  const Device& device_of(MemberIndex member) const { return devices_[device_by_member_[member]]; }
  bool fits(Device& device, uint64_t bytes);
  void look(Device& device);

  Storage& storage_;
  const Array& array_;
  const uint64_t pool_bytes_, looks_every_ns_;
  std::atomic<uint64_t> looks_again_at_{0};  // monotonic_ns()
  PerMember<size_t> device_by_member_;
  std::vector<Device> devices_;  // the members' drives, then the one that holds the names
  std::atomic<int> scarce_{0};
};

}  // namespace fpfs
