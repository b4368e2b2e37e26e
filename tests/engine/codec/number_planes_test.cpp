#include "engine/codec/number_planes.h"

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/test_data.h"

namespace fpfs {
namespace {

using Bytes = std::vector<std::byte>;

// Planes with a guard byte behind each.
struct PlaneMemory {
  PlaneMemory(size_t width, size_t count) : bytes(kPlanesMax, Bytes(count + 1, std::byte{0xee})) {
    for (size_t k = 0; k < width; ++k) pointers[k] = bytes[k].data();
  }
  ConstPlanes read() const {
    ConstPlanes all{};
    std::copy(pointers.begin(), pointers.end(), all.begin());
    return all;
  }
  std::vector<Bytes> bytes;
  Planes pointers{};
};

TEST(NumberPlanes, AreTheBytesOfRotatedElements) {
  const uint16_t elements[3] = {0x8001, 0x7f80, 0x1234};
  PlaneMemory planes(2, 3);
  split_planes(std::as_bytes(std::span(elements)), {2, 1}, planes.pointers);
  const std::byte low[3] = {std::byte{0x03}, std::byte{0x00}, std::byte{0x68}};
  const std::byte high[3] = {std::byte{0x00}, std::byte{0xff}, std::byte{0x24}};
  EXPECT_EQ(std::memcmp(planes.pointers[0], low, 3), 0);
  EXPECT_EQ(std::memcmp(planes.pointers[1], high, 3), 0);
}

TEST(NumberPlanes, AreTheSameOnEveryCpu) {
  RecordProperty("backend", number_planes_backend());
  for (const size_t width : {1u, 2u, 4u, 8u})
    for (const size_t count : {0u, 1u, 7u, 31u, 32u, 33u, 63u, 64u, 65u, 1000u})
      for (size_t rotation = 0; rotation < 8 * width; rotation += rotation < 2 ? 1 : 3) {
        Bytes memory(count * width + 1);  // elements need no alignment
        const auto elements = std::span(memory).subspan(1);
        test::fill(elements, 7, count);
        PlaneMemory fast(width, count), portable(width, count);
        split_planes(elements, {width, rotation}, fast.pointers);
        split_planes_portable(elements, {width, rotation}, portable.pointers);
        ASSERT_EQ(fast.bytes, portable.bytes) << width << " bytes, " << count << " elements, rotation " << rotation;
        Bytes merged(elements.size() + 1, std::byte{0xee}), merged_portable = merged;
        merge_planes(fast.read(), {width, rotation}, std::span(merged).first(elements.size()));
        merge_planes_portable(fast.read(), {width, rotation}, std::span(merged_portable).first(elements.size()));
        ASSERT_EQ(merged, merged_portable);
        ASSERT_EQ(merged.back(), std::byte{0xee});
        ASSERT_TRUE(std::equal(elements.begin(), elements.end(), merged.begin()));
      }
}

}  // namespace
}  // namespace fpfs
