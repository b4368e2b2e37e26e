#include "engine/layout/stripe_order.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fpfs {

std::vector<MemberIndex> order_without(std::vector<MemberIndex> order, MemberIndex member) {
  const auto place = std::find(order.begin(), order.end(), member);
  *place = order.back();
  order.pop_back();
  return order;
}

namespace {

size_t descents_of(const std::vector<MemberIndex>& order) {
  size_t count = 0;
  for (size_t place = 1; place < order.size(); ++place) count += order[place] < order[place - 1] ? 1 : 0;
  return count;
}

}  // namespace

std::vector<MemberIndex> order_with(const std::vector<MemberIndex>& order, MemberIndex member) {
  std::vector<MemberIndex> best = order;
  best.push_back(member);
  size_t fewest = descents_of(best);
  for (size_t place = 0; place < order.size(); ++place) {
    std::vector<MemberIndex> other = order;
    other.push_back(std::exchange(other[place], member));
    if (const size_t count = descents_of(other); count < fewest) {
      fewest = count;
      best = std::move(other);
    }
  }
  return best;
}

}  // namespace fpfs
