#include "engine/codec/hash.h"

#include <array>

#include "engine/base/bytes.h"

// On x86-64 the distribution's library is built for SSE2, but chooses wider units at run time behind these entry points
// (the build finds out whether it has them). Everywhere else the hash is compiled into this file, so that it uses, and
// hash_backend() knows, the vector unit that this file is compiled for.
#if defined(FPFS_XXHASH_DISPATCH)
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace fpfs {

#if defined(FPFS_XXHASH_DISPATCH)

// The same questions, in the same order, as the library's own choice (XXH_featureTest in xxh_x86dispatch.c): the CPU
// has the unit and the system saves its registers.
const char* hash_backend() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  return "sse2";
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed_dispatch(bytes.data(), bytes.size(), seed);
}

#else

const char* hash_backend() {
#if XXH_VECTOR == XXH_SCALAR
  return "scalar";
#elif XXH_VECTOR == XXH_SSE2
  return "sse2";
#elif XXH_VECTOR == XXH_AVX2
  return "avx2";
#elif XXH_VECTOR == XXH_AVX512
  return "avx512";
#elif XXH_VECTOR == XXH_NEON
  return "neon";
#else
  return "vector";
#endif
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

#endif

uint64_t chunk_seed(const std::byte array_id[16], FileId file, Generation generation, ChunkIndex chunk) {
  std::array<std::byte, 36> place;
  std::memcpy(place.data(), array_id, 16);
  put_u64(&place[16], file.value());
  put_u64(&place[24], chunk.value());
  put_u32(&place[32], generation.value());
  return hash_bytes(place);
}

}  // namespace fpfs
