// IntrusiveList: a doubly linked list of objects that carry their own links, so that putting one on it allocates
// nothing. An object may have several links, each for one list at a time; to put it on a second one by the same link,
// or to take it off when it is on none, is a broken invariant.
//
//   struct Request {
//     ListLink<Request> link;
//   };
//   IntrusiveList<Request, &Request::link> waiting;
//
// The objects belong to whoever made them and stay where they are while they are on a list.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <utility>

#include "engine/base/check.h"

namespace fpfs {

template <typename T>
class ListLink;
template <typename T, ListLink<T> T::*kLink>
class IntrusiveList;

template <typename T>
class ListLink {
 public:
  ListLink() = default;
  // A copy of an object is on no list; one that is on a list is not assigned over.
  ListLink(const ListLink&) {}
  ListLink& operator=(const ListLink&) {  // NOLINT(bugprone-unhandled-self-assignment): nothing is copied
    FPFS_CHECK(!linked_, "an object on a list is not made another one");
    return *this;
  }
  bool is_linked() const { return linked_; }

 private:
  template <typename U, ListLink<U> U::*kLink>
  friend class IntrusiveList;
  T* next_ = nullptr;
  T* previous_ = nullptr;
  bool linked_ = false;
};

template <typename T, ListLink<T> T::*kLink>
class IntrusiveList {
 public:
  IntrusiveList() = default;
  IntrusiveList(IntrusiveList&& other) noexcept { take(other); }
  IntrusiveList& operator=(IntrusiveList&& other) noexcept {
    FPFS_CHECK(is_empty(), "a list that is replaced has nothing on it");
    take(other);
    return *this;
  }

  bool is_empty() const { return head_ == nullptr; }
  size_t count() const { return count_; }
  T* front() const { return head_; }  // null: empty
  T* back() const { return tail_; }
  static T* next(const T& object) { return (object.*kLink).next_; }  // null: the last

  void push_back(T& object) { insert(object, tail_, nullptr); }
  void push_front(T& object) { insert(object, nullptr, head_); }
  // The first one, taken off; null: empty.
  T* pop_front() {
    T* const first = head_;
    if (first != nullptr) remove(*first);
    return first;
  }
  void remove(T& object) {
    ListLink<T>& link = object.*kLink;
    FPFS_CHECK(link.linked_, "what is taken off a list is on it");
    (link.previous_ != nullptr ? (link.previous_->*kLink).next_ : head_) = link.next_;
    (link.next_ != nullptr ? (link.next_->*kLink).previous_ : tail_) = link.previous_;
    link.next_ = link.previous_ = nullptr;
    link.linked_ = false;
    --count_;
  }
  // Everything on `other`, behind what is here, in its order.
  void append(IntrusiveList&& other) {
    if (other.is_empty()) return;
    if (is_empty()) return take(other);
    (tail_->*kLink).next_ = other.head_;
    (other.head_->*kLink).previous_ = tail_;
    tail_ = std::exchange(other.tail_, nullptr);
    other.head_ = nullptr;
    count_ += std::exchange(other.count_, 0);
  }
  // Calls visit(object) for each, first to last; visit may take that object off.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (T* object = head_; object != nullptr;) {
      T* const following = next(*object);
      visit(*object);
      object = following;
    }
  }

 private:
  void insert(T& object, T* previous, T* following) {
    ListLink<T>& link = object.*kLink;
    FPFS_CHECK(!link.linked_, "an object is on one list at a time");
    link.previous_ = previous;
    link.next_ = following;
    link.linked_ = true;
    (previous != nullptr ? (previous->*kLink).next_ : head_) = &object;
    (following != nullptr ? (following->*kLink).previous_ : tail_) = &object;
    ++count_;
  }
  void take(IntrusiveList& other) {
    head_ = std::exchange(other.head_, nullptr);
    tail_ = std::exchange(other.tail_, nullptr);
    count_ = std::exchange(other.count_, 0);
  }
  T* head_ = nullptr;
  T* tail_ = nullptr;
  size_t count_ = 0;
};

}  // namespace fpfs
