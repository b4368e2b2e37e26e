// Owns a Handle: closes it when it goes out of scope.
#pragma once

#include <utility>

#include "engine/io/storage.h"

namespace fpfs {

class ScopedHandle {
 public:
  ScopedHandle() = default;
  ScopedHandle(Storage& storage, Handle handle) : storage_(&storage), handle_(handle) {}
  ScopedHandle(ScopedHandle&& other) noexcept
      : storage_(other.storage_), handle_(std::exchange(other.handle_, kNoHandle)) {}
  ScopedHandle& operator=(ScopedHandle&& other) noexcept {
    if (this != &other) {
      reset();
      storage_ = other.storage_;
      handle_ = std::exchange(other.handle_, kNoHandle);
    }
    return *this;
  }
  ~ScopedHandle() { reset(); }

  Handle get() const { return handle_; }
  bool is_open() const { return handle_ != kNoHandle; }
  // Gives the handle to someone else to close.
  Handle release() { return std::exchange(handle_, kNoHandle); }
  void reset() {
    if (handle_ != kNoHandle) storage_->close(std::exchange(handle_, kNoHandle));
  }

 private:
  Storage* storage_ = nullptr;
  Handle handle_ = kNoHandle;
};

}  // namespace fpfs
