#include "engine/codec/decompress.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "engine/base/bytes.h"

namespace fpfs {
namespace {

Status undecodable(const std::string& why) {
  return Status::error(StatusCode::kCorruption, "the zstd frame " + why);
}

struct FreeDecoder {
  void operator()(ZSTD_DCtx* decoder) const { ZSTD_freeDCtx(decoder); }
};

}  // namespace

Status decompress(std::span<const std::byte> frame, std::span<std::byte> out) {
  // The library itself also takes skippable frames, rows of frames, and, where it was built so, those of its first
  // versions.
  if (frame.size() < sizeof(uint32_t) || get_u32(frame.data()) != ZSTD_MAGICNUMBER) return undecodable("is none");
  const size_t length = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(length) != 0) return undecodable(fmt::format("is damaged ({})", ZSTD_getErrorName(length)));
  if (length != frame.size()) return undecodable(fmt::format("ends after {} of {} bytes", length, frame.size()));

  // One that is made for each chunk would cost more than a small chunk itself.
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeDecoder> decoder(ZSTD_createDCtx());
  if (decoder == nullptr) return Status::from_errno(ENOMEM, "allocate a zstd decoder");
  const size_t decoded = ZSTD_decompressDCtx(decoder.get(), out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(decoded) != 0) return undecodable(fmt::format("is damaged ({})", ZSTD_getErrorName(decoded)));
  if (decoded != out.size()) return undecodable(fmt::format("decodes to {} of {} bytes", decoded, out.size()));
  return Status::ok();
}

}  // namespace fpfs
