// Numbers split into byte planes and merged again: plane k holds byte k of each element, the least significant first.
//
// Each element, a little-endian integer of `width` bytes, is rotated left by `rotation` bits before it is split. One
// bit moves the sign of a float to the low end, so that the eight exponent bits of bf16 and fp32 are a plane.
// Elements are only ever integers here: NaN payloads, -0 and denormals come back bit for bit. All functions are pure.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace fpfs {

inline constexpr size_t kPlanesMax = 8;

struct NumberFormat {
  size_t width = 1;     // bytes of an element: 1, 2, 4 or 8
  size_t rotation = 0;  // bits, fewer than the element has
};

// The least significant first; the first `width` count. Each has room for one byte of each element.
using Planes = std::array<std::byte*, kPlanesMax>;
using ConstPlanes = std::array<const std::byte*, kPlanesMax>;

// The size of `elements` is a multiple of the width. Planes and elements do not overlap.
void split_planes(std::span<const std::byte> elements, NumberFormat format, const Planes& planes);
void merge_planes(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements);

// Which instruction set they use on this CPU: "avx2" or "portable". All give the same bytes.
const char* number_planes_backend();

// What they do on a CPU without vector units; for tests.
void split_planes_portable(std::span<const std::byte> elements, NumberFormat format, const Planes& planes);
void merge_planes_portable(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements);

}  // namespace fpfs
