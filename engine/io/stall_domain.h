// StallDomain: what hangs as a whole (stall_watch.h). Each member's objects are one, the namespace is another: the
// drive of the member that holds the names hangs in both, which shows in each when it is used.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/base/units.h"

namespace fpfs {

struct StallDomainKind : IdKind<uint16_t> {};
using StallDomain = StrongNumber<StallDomainKind>;

constexpr StallDomain domain_of(MemberIndex member) {
  return StallDomain(member.value());
}
constexpr StallDomain kTreeDomain(kMemberCountMax);           // the namespace
constexpr StallDomain kElsewhereDomain(kMemberCountMax + 1);  // not part of an open array (yet)
constexpr uint16_t kStallDomains = kMemberCountMax + 2;

// The member whose objects it is; none for the others.
constexpr std::optional<MemberIndex> member_of(StallDomain domain) {
  if (domain.value() >= kMemberCountMax) return std::nullopt;
  return MemberIndex(domain.value());
}

}  // namespace fpfs
