// FifoMap: a map of at most kMax keys; the one that came first goes for a new one.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>

namespace fpfs {

template <typename Key, typename Value, size_t kMax>
class FifoMap {
 public:
  // A key that is there has the new value and keeps its turn.
  void set(const Key& key, Value value) {
    if (values_.insert_or_assign(key, std::move(value)).second) order_.push_back(key);
    if (order_.size() <= kMax) return;
    values_.erase(order_.front());
    order_.pop_front();
  }
  // Null: there is none. Stays until the next set().
  Value* find(const Key& key) {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<Key, Value> values_;
  std::deque<Key> order_;  // in which they came
};

}  // namespace fpfs
