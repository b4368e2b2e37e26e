#include "engine/codec/chunk_codec.h"

#include <zstd.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "engine/codec/decompress.h"

namespace fpfs {
namespace {

struct FreeEncoder {
  void operator()(ZSTD_CCtx* encoder) const { ZSTD_freeCCtx(encoder); }
};

// The most that is fewer blocks than `raw_length` takes.
size_t most_that_pays(size_t raw_length) {
  return round_up(raw_length, kIoAlignment) - kIoAlignment;
}

}  // namespace

std::optional<EncodedChunk> encode_chunk(const Compression& compression, std::span<const std::byte> raw,
                                         std::span<std::byte> out) {
  const size_t most = std::min(most_that_pays(raw.size()), out.size());
  if (compression.mode == Compression::Mode::kOff || most == 0) return std::nullopt;
  // One that is made for each chunk would cost more than a small chunk itself.
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeEncoder> encoder(ZSTD_createCCtx());
  if (encoder == nullptr) return std::nullopt;  // no memory: stored as it is
  const size_t length = ZSTD_compressCCtx(encoder.get(), out.data(), most, raw.data(), raw.size(), compression.level);
  if (ZSTD_isError(length) != 0) return std::nullopt;  // it does not fit
  return EncodedChunk{Codec::kZstd, static_cast<uint32_t>(length)};
}

Status decode_chunk(Codec codec, std::span<const std::byte> stored, std::span<std::byte> out) {
  switch (codec) {
    case Codec::kRaw:
      if (stored.size() != out.size())
        return Status::error(StatusCode::kCorruption,
                             fmt::format("{} bytes are stored as {}", out.size(), stored.size()));
      std::copy(stored.begin(), stored.end(), out.begin());
      return Status::ok();
    case Codec::kZstd:
      return decompress(stored, out);
    case Codec::kNone:
      break;
  }
  return Status::error(StatusCode::kCorruption, "nothing is stored");
}

}  // namespace fpfs
