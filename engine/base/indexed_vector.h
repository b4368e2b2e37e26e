// IndexedVector: a vector whose elements only a StrongNumber of the right kind finds.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/strong_number.h"

namespace fpfs {

// `Index` is an index, see StrongNumber. As std::vector otherwise, with as much of it as is used.
template <typename Index, typename T>
class IndexedVector {
  using Elements = std::vector<T>;

 public:
  IndexedVector() = default;
  explicit IndexedVector(size_t count) : elements_(count) {}
  IndexedVector(size_t count, const T& value) : elements_(count, value) {}

  // Behind the last one is a defect of the caller and ends the process.
  typename Elements::reference operator[](Index index) { return elements_[checked(index)]; }
  typename Elements::const_reference operator[](Index index) const { return elements_[checked(index)]; }

  bool empty() const { return elements_.empty(); }
  size_t size() const { return elements_.size(); }
  // Its elements' indices, for a loop.
  auto indices() const { return range_to(Index(static_cast<typename Index::Representation>(elements_.size()))); }
  auto begin() { return elements_.begin(); }
  auto begin() const { return elements_.begin(); }
  auto end() { return elements_.end(); }
  auto end() const { return elements_.end(); }

  void push_back(T value) { elements_.push_back(std::move(value)); }
  template <typename... Arguments>
  typename Elements::reference emplace_back(Arguments&&... arguments) {
    return elements_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void resize(size_t count) { elements_.resize(count); }
  void assign(size_t count, const T& value) { elements_.assign(count, value); }
  void clear() { elements_.clear(); }

  bool operator==(const IndexedVector&) const = default;

 private:
  size_t checked(Index index) const {
    FPFS_CHECK(index.value() < elements_.size(), "an index of another vector");
    return index.value();
  }

  Elements elements_;
};

}  // namespace fpfs
