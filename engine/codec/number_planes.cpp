#include "engine/codec/number_planes.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "engine/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fpfs {
namespace {

template <typename Element>
Element load_element(const std::byte* from) {
  Element element = 0;
  for (size_t k = 0; k < sizeof(Element); ++k)
    element = static_cast<Element>(element | static_cast<Element>(static_cast<Element>(from[k]) << (8 * k)));
  return element;
}

template <typename Element>
void split_elements(std::span<const std::byte> elements, size_t rotation, const Planes& planes, size_t first) {
  const size_t count = elements.size() / sizeof(Element);
  for (size_t i = first; i < count; ++i) {
    const auto rotated = std::rotl(load_element<Element>(&elements[i * sizeof(Element)]), static_cast<int>(rotation));
    for (size_t k = 0; k < sizeof(Element); ++k) planes[k][i] = static_cast<std::byte>(rotated >> (8 * k));
  }
}

template <typename Element>
void merge_elements(const ConstPlanes& planes, size_t rotation, std::span<std::byte> elements, size_t first) {
  const size_t count = elements.size() / sizeof(Element);
  for (size_t i = first; i < count; ++i) {
    Element rotated = 0;
    for (size_t k = 0; k < sizeof(Element); ++k)
      rotated = static_cast<Element>(rotated | static_cast<Element>(static_cast<Element>(planes[k][i]) << (8 * k)));
    const Element element = std::rotr(rotated, static_cast<int>(rotation));
    for (size_t k = 0; k < sizeof(Element); ++k)
      elements[i * sizeof(Element) + k] = static_cast<std::byte>(element >> (8 * k));
  }
}

// Calls `call` with a 0 of the unsigned type that has `width` bytes.
template <typename Call>
void with_element_of(size_t width, Call call) {
  switch (width) {
    case 1:
      return call(uint8_t{});
    case 2:
      return call(uint16_t{});
    case 4:
      return call(uint32_t{});
    case 8:
      return call(uint64_t{});
    default:
      FPFS_CHECK(false, "an element has 1, 2, 4 or 8 bytes");
  }
}

// From element `first` on: what the vector paths leave over.
void split_rest(std::span<const std::byte> elements, NumberFormat format, const Planes& planes, size_t first) {
  with_element_of(format.width,
                  [&](auto zero) { split_elements<decltype(zero)>(elements, format.rotation, planes, first); });
}

void merge_rest(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements, size_t first) {
  with_element_of(format.width,
                  [&](auto zero) { merge_elements<decltype(zero)>(planes, format.rotation, elements, first); });
}

#if defined(__x86_64__)

// AVX2 works within the two 16-byte lanes of a register. So the lower lane takes elements 0 to 15 of each step of 32,
// and the upper lane elements 16 to 31: everything stays in its lane, and each plane comes out in order. Wider
// registers gain nothing beside the entropy coder, which takes ten times as long.
constexpr size_t kStep = 32;

#define FPFS_AVX2 __attribute__((target("avx2")))

FPFS_AVX2 inline __m256i load_lanes(const std::byte* low, const std::byte* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}
FPFS_AVX2 inline void store_lanes(std::byte* low, std::byte* high, __m256i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(value));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(value, 1));
}
FPFS_AVX2 inline __m256i load_plane(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
FPFS_AVX2 inline void store_plane(std::byte* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// Left by `left` bits and right by `right`, which together are the bits of an element. A count that is as large as the
// element gives 0.
struct Shifts {
  __m128i left;
  __m128i right;
};
Shifts shifts_of(size_t left, size_t right) {
  return {_mm_cvtsi32_si128(static_cast<int>(left)), _mm_cvtsi32_si128(static_cast<int>(right))};
}
FPFS_AVX2 inline __m256i rotate16(__m256i value, Shifts by) {
  return _mm256_or_si256(_mm256_sll_epi16(value, by.left), _mm256_srl_epi16(value, by.right));
}
FPFS_AVX2 inline __m256i rotate32(__m256i value, Shifts by) {
  return _mm256_or_si256(_mm256_sll_epi32(value, by.left), _mm256_srl_epi32(value, by.right));
}
FPFS_AVX2 inline __m256i rotate64(__m256i value, Shifts by) {
  return _mm256_or_si256(_mm256_sll_epi64(value, by.left), _mm256_srl_epi64(value, by.right));
}

FPFS_AVX2 void split16(const std::byte* from, Shifts by, const Planes& planes, size_t at) {
  const __m256i a = rotate16(load_lanes(from, from + 32), by), b = rotate16(load_lanes(from + 16, from + 48), by);
  const __m256i low = _mm256_set1_epi16(0xff);
  store_plane(planes[0] + at, _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low)));
  store_plane(planes[1] + at, _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)));
}

FPFS_AVX2 void split32(const std::byte* from, Shifts by, const Planes& planes, size_t at) {
  const __m256i group =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  __m256i v[4];
  for (size_t r = 0; r < 4; ++r)
    v[r] = _mm256_shuffle_epi8(rotate32(load_lanes(from + 16 * r, from + 64 + 16 * r), by), group);
  const __m256i low01 = _mm256_unpacklo_epi32(v[0], v[1]), low23 = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i high01 = _mm256_unpackhi_epi32(v[0], v[1]), high23 = _mm256_unpackhi_epi32(v[2], v[3]);
  store_plane(planes[0] + at, _mm256_unpacklo_epi64(low01, low23));
  store_plane(planes[1] + at, _mm256_unpackhi_epi64(low01, low23));
  store_plane(planes[2] + at, _mm256_unpacklo_epi64(high01, high23));
  store_plane(planes[3] + at, _mm256_unpackhi_epi64(high01, high23));
}

FPFS_AVX2 void split64(const std::byte* from, Shifts by, const Planes& planes, size_t at) {
  const __m256i group =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  __m256i v[8], w[8];
  for (size_t r = 0; r < 8; ++r)
    v[r] = _mm256_shuffle_epi8(rotate64(load_lanes(from + 16 * r, from + 128 + 16 * r), by), group);
  for (size_t r = 0; r < 8; r += 2) {  // w: planes 0 to 3 of rows r and r + 1, then planes 4 to 7
    w[r] = _mm256_unpacklo_epi16(v[r], v[r + 1]);
    w[r + 1] = _mm256_unpackhi_epi16(v[r], v[r + 1]);
  }
  for (size_t half = 0; half < 2; ++half) {
    const __m256i low03 = _mm256_unpacklo_epi32(w[half], w[2 + half]);
    const __m256i high03 = _mm256_unpackhi_epi32(w[half], w[2 + half]);
    const __m256i low47 = _mm256_unpacklo_epi32(w[4 + half], w[6 + half]);
    const __m256i high47 = _mm256_unpackhi_epi32(w[4 + half], w[6 + half]);
    store_plane(planes[4 * half] + at, _mm256_unpacklo_epi64(low03, low47));
    store_plane(planes[4 * half + 1] + at, _mm256_unpackhi_epi64(low03, low47));
    store_plane(planes[4 * half + 2] + at, _mm256_unpacklo_epi64(high03, high47));
    store_plane(planes[4 * half + 3] + at, _mm256_unpackhi_epi64(high03, high47));
  }
}

FPFS_AVX2 void merge16(const ConstPlanes& planes, size_t at, Shifts by, std::byte* to) {
  const __m256i low = load_plane(planes[0] + at), high = load_plane(planes[1] + at);
  store_lanes(to, to + 32, rotate16(_mm256_unpacklo_epi8(low, high), by));
  store_lanes(to + 16, to + 48, rotate16(_mm256_unpackhi_epi8(low, high), by));
}

FPFS_AVX2 void merge32(const ConstPlanes& planes, size_t at, Shifts by, std::byte* to) {
  const __m256i p0 = load_plane(planes[0] + at), p1 = load_plane(planes[1] + at);
  const __m256i p2 = load_plane(planes[2] + at), p3 = load_plane(planes[3] + at);
  const __m256i a[2] = {_mm256_unpacklo_epi8(p0, p1), _mm256_unpackhi_epi8(p0, p1)};
  const __m256i b[2] = {_mm256_unpacklo_epi8(p2, p3), _mm256_unpackhi_epi8(p2, p3)};
  for (size_t half = 0; half < 2; ++half, to += 32) {
    store_lanes(to, to + 64, rotate32(_mm256_unpacklo_epi16(a[half], b[half]), by));
    store_lanes(to + 16, to + 80, rotate32(_mm256_unpackhi_epi16(a[half], b[half]), by));
  }
}

FPFS_AVX2 void merge64(const ConstPlanes& planes, size_t at, Shifts by, std::byte* to) {
  __m256i pairs[4][2], low[4], high[4];  // bytes 2 k and 2 k + 1; then bytes 0 to 3, and bytes 4 to 7, of four elements
  for (size_t k = 0; k < 4; ++k) {
    const __m256i even = load_plane(planes[2 * k] + at), odd = load_plane(planes[2 * k + 1] + at);
    pairs[k][0] = _mm256_unpacklo_epi8(even, odd);
    pairs[k][1] = _mm256_unpackhi_epi8(even, odd);
  }
  for (size_t half = 0; half < 2; ++half) {
    low[2 * half] = _mm256_unpacklo_epi16(pairs[0][half], pairs[1][half]);
    low[2 * half + 1] = _mm256_unpackhi_epi16(pairs[0][half], pairs[1][half]);
    high[2 * half] = _mm256_unpacklo_epi16(pairs[2][half], pairs[3][half]);
    high[2 * half + 1] = _mm256_unpackhi_epi16(pairs[2][half], pairs[3][half]);
  }
  for (size_t four = 0; four < 4; ++four, to += 32) {
    store_lanes(to, to + 128, rotate64(_mm256_unpacklo_epi32(low[four], high[four]), by));
    store_lanes(to + 16, to + 144, rotate64(_mm256_unpackhi_epi32(low[four], high[four]), by));
  }
}

// Both return how many elements they did.
FPFS_AVX2 size_t split_avx2(std::span<const std::byte> elements, NumberFormat format, const Planes& planes) {
  const size_t width = format.width, count = width == 1 ? 0 : elements.size() / width / kStep * kStep;
  const Shifts by = shifts_of(format.rotation, 8 * width - format.rotation);
  if (width == 2)
    for (size_t i = 0; i < count; i += kStep) split16(elements.data() + i * 2, by, planes, i);
  if (width == 4)
    for (size_t i = 0; i < count; i += kStep) split32(elements.data() + i * 4, by, planes, i);
  if (width == 8)
    for (size_t i = 0; i < count; i += kStep) split64(elements.data() + i * 8, by, planes, i);
  return count;
}

FPFS_AVX2 size_t merge_avx2(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements) {
  const size_t width = format.width, count = width == 1 ? 0 : elements.size() / width / kStep * kStep;
  const Shifts by = shifts_of(8 * width - format.rotation, format.rotation);
  if (width == 2)
    for (size_t i = 0; i < count; i += kStep) merge16(planes, i, by, elements.data() + i * 2);
  if (width == 4)
    for (size_t i = 0; i < count; i += kStep) merge32(planes, i, by, elements.data() + i * 4);
  if (width == 8)
    for (size_t i = 0; i < count; i += kStep) merge64(planes, i, by, elements.data() + i * 8);
  return count;
}

bool has_avx2() {
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
  }();
  return has;
}

#else

bool has_avx2() {
  return false;
}
size_t split_avx2(std::span<const std::byte>, NumberFormat, const Planes&) {
  return 0;
}
size_t merge_avx2(const ConstPlanes&, NumberFormat, std::span<std::byte>) {
  return 0;
}

#endif

}  // namespace

void split_planes(std::span<const std::byte> elements, NumberFormat format, const Planes& planes) {
  if (format.width == 1 && format.rotation == 0) {
    if (!elements.empty()) std::memcpy(planes[0], elements.data(), elements.size());
    return;
  }
  split_rest(elements, format, planes, has_avx2() ? split_avx2(elements, format, planes) : 0);
}

void merge_planes(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements) {
  if (format.width == 1 && format.rotation == 0) {
    if (!elements.empty()) std::memcpy(elements.data(), planes[0], elements.size());
    return;
  }
  merge_rest(planes, format, elements, has_avx2() ? merge_avx2(planes, format, elements) : 0);
}

const char* number_planes_backend() {
  return has_avx2() ? "avx2" : "portable";
}

void split_planes_portable(std::span<const std::byte> elements, NumberFormat format, const Planes& planes) {
  split_rest(elements, format, planes, 0);
}

void merge_planes_portable(const ConstPlanes& planes, NumberFormat format, std::span<std::byte> elements) {
  merge_rest(planes, format, elements, 0);
}

}  // namespace fpfs
