#include "engine/codec/zstd_encoder.h"

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode, although zstd.h may have been seen without it
#include <zstd.h>

namespace fpfs {
namespace {

bool set(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  return ZSTD_isError(ZSTD_CCtx_setParameter(context, parameter, value)) == 0;
}

size_t encode_with(ZSTD_CCtx* context, std::span<const std::byte> content, std::span<std::byte> out) {
  const size_t length = ZSTD_compress2(context, out.data(), out.size(), content.data(), content.size());
  return ZSTD_isError(length) != 0 ? 0 : length;
}

// Matches among exponents are chance; looking for them takes five times as long as the Huffman code and makes the frame
// longer. The lowest level skips so far after each miss that it hardly looks, but then zstd does not compress literals
// unless told to. The parameter that tells it is experimental. A library that refuses it does compress them where the
// skip is off: then matches of 7 bytes are looked for in a table of 64 entries, at three quarters of the speed.
void set_entropy_only(ZSTD_CCtx* context) {
  constexpr int kLiteralsCompressed = 1;  // ZSTD_lcm_huffman before 1.5, ZSTD_ps_enable since
  set(context, ZSTD_c_compressionLevel, ZSTD_minCLevel());
  if (set(context, ZSTD_c_literalCompressionMode, kLiteralsCompressed)) return;
  set(context, ZSTD_c_compressionLevel, 1);
  set(context, ZSTD_c_strategy, ZSTD_fast);
  set(context, ZSTD_c_minMatch, 7);
  set(context, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
  set(context, ZSTD_c_targetLength, 0);
}

}  // namespace

size_t ZstdEncoder::encode(std::span<const std::byte> content, std::span<std::byte> out, int level) {
  if (levels_ == nullptr) levels_.reset(ZSTD_createCCtx());
  if (levels_ == nullptr) return 0;
  if (level_ != level && set(levels_.get(), ZSTD_c_compressionLevel, level)) level_ = level;
  return encode_with(levels_.get(), content, out);
}

size_t ZstdEncoder::encode_entropy(std::span<const std::byte> content, std::span<std::byte> out) {
  if (entropy_ == nullptr) {
    entropy_.reset(ZSTD_createCCtx());
    if (entropy_ == nullptr) return 0;
    set_entropy_only(entropy_.get());
  }
  return encode_with(entropy_.get(), content, out);
}

}  // namespace fpfs
