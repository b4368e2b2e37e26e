// The order of the members in the stripe (StripeMap::order), as members are to leave it and stay after all. Pure.
//
// A file's chunks lie by the order it was made with, so what a member that leaves has goes where the order says now: to
// all others when that is one place shorter, but to one of them when it is as long as it was (a member was added before
// this one leaves). So the last one, which was added last, takes the place: it gets that member's content, and what is
// on the others stays.
#pragma once

#include <vector>

#include "engine/base/units.h"

namespace fpfs {

// `member` is in the order, and not the only one.
[[nodiscard]] std::vector<MemberIndex> order_without(std::vector<MemberIndex> order, MemberIndex member);

// The order that order_without(..., member) made this one of: of those that it can have been, the one most nearly in
// the order of the indices. When several have left, or one was made to replace another, it may be another one: then a
// rebalance has more to move.
[[nodiscard]] std::vector<MemberIndex> order_with(const std::vector<MemberIndex>& order, MemberIndex member);

}  // namespace fpfs
