// TierCopier::Impl::Silence: what a thread does to names because other arrays have.
#pragma once

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/tier/tier_copier_impl.h"

namespace fpfs {

// As long as it lives, changes of these names by this thread are not told.
class TierCopier::Impl::Silence {
 public:
  Silence(Impl& impl, std::vector<std::string> paths) : impl_(impl), paths_(std::move(paths)) {
    const MutexLock lock(impl_.mutex_);
    for (const std::string& path : paths_) impl_.silent_.emplace(path, std::this_thread::get_id());
  }
  ~Silence() {
    const MutexLock lock(impl_.mutex_);
    for (const std::string& path : paths_)
      impl_.silent_.erase(impl_.silent_.find(std::pair(path, std::this_thread::get_id())));
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  Impl& impl_;
  const std::vector<std::string> paths_;
};

}  // namespace fpfs
