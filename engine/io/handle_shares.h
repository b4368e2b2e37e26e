// HandleShares: how many handles each user may make the process hold, so that one user's open files leave descriptors
// for everybody else's calls.
//
// Everybody may hold at most kPerFree times as many as are still free: a user alone gets two thirds of all, two users
// get two fifths each, and whoever comes next always finds some. Nothing has to be set, and nobody has to give back.
//
// Thread safety: all methods from any thread. Leases may be given back on another one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "engine/base/mutex.h"

namespace fpfs {

class HandleShares {
 public:
  static constexpr size_t kPerFree = 2;

  // Some handles that a user makes the process hold; given back at the end.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : shares_(other.shares_), user_(other.user_), count_(std::exchange(other.count_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(shares_, other.shares_);
      std::swap(user_, other.user_);
      std::swap(count_, other.count_);
      return *this;
    }
    ~Lease() {
      if (count_ > 0) shares_->give_back(user_, count_);
    }
    size_t count() const { return count_; }
    // Whether it is of a user, if only for none. One of nobody counts nothing.
    bool is_of_user() const { return shares_ != nullptr; }
    // One more, for the same user. False: he may have no more, and nothing changed.
    bool grow();
    // A part of it, as a lease of its own. No more than there are.
    Lease split(size_t count) {
      count_ -= count;
      return {*shares_, user_, count};
    }

   private:
    friend class HandleShares;
    Lease(HandleShares& shares, uid_t user, size_t count) : shares_(&shares), user_(user), count_(count) {}

    HandleShares* shares_ = nullptr;
    uid_t user_ = 0;
    size_t count_ = 0;
  };

  explicit HandleShares(size_t total) : free_(total) {}
  HandleShares(const HandleShares&) = delete;
  HandleShares& operator=(const HandleShares&) = delete;

  // For `wanted` handles, or as many as the user may have.
  Lease lease_some(uid_t user, size_t wanted);
  // For all of them, or none.
  Lease lease(uid_t user, size_t wanted) {
    Lease some = lease_some(user, wanted);
    return some.count() == wanted ? std::move(some) : Lease();
  }
  size_t free() const;

 private:
  void give_back(uid_t user, size_t count);

  mutable Mutex mutex_;
  size_t free_ FPFS_GUARDED_BY(mutex_);
  std::unordered_map<uid_t, size_t> held_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
