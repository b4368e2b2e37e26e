// An array of small chunks in directories of a test, and its store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/store.h"

namespace fpfs::test {

constexpr uint32_t kSmallChunk = 64 * kKiB;

inline void format_small_array(Environment& environment, const std::vector<std::string>& directories) {
  FormatOptions format;
  format.chunk_size = kSmallChunk;
  EXPECT_TRUE(Array::format(environment, directories, format).is_ok());
}

// Null, and the test has failed, when it cannot be opened.
inline std::unique_ptr<Store> open_small_store(Environment& environment, const std::vector<std::string>& directories,
                                               bool read_only) {
  StoreOptions options;
  options.buffer_memory = 64 * kSmallChunk;
  options.array.buffered_members = true;
  options.array.read_only = read_only;
  auto store = Store::open(environment, directories, options);
  EXPECT_TRUE(store.is_ok()) << store.status().message();
  return store.is_ok() ? std::move(*store) : nullptr;
}

}  // namespace fpfs::test
