// SharedNames: what a request names (wire::Names), kept by its thread for others. What orders the two is next to it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "fs/protocol/fuse_wire.h"

namespace fpfs {

class SharedNames {
 public:
  void store(const wire::Names& names) {
    for (size_t i = 0; i < names.size(); ++i) names_[i].store(names[i], std::memory_order_relaxed);
  }
  wire::Names load() const {
    wire::Names names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = names_[i].load(std::memory_order_relaxed);
    return names;
  }

 private:
  std::array<std::atomic<uint64_t>, std::tuple_size_v<wire::Names>> names_{};
};

}  // namespace fpfs
