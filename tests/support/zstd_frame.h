// zstd frames as a writer of compressed chunks would make them. No release writes any yet.
#pragma once

#include <zstd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

namespace fpfs::test {

struct FrameOptions {
  int level = ZSTD_CLEVEL_DEFAULT;
  bool checksum = false;  // of the content, at the frame's end
  bool says_its_size = true;
  bool long_distances = false;
};

inline std::vector<std::byte> zstd_frame(std::span<const std::byte> content, const FrameOptions& options = {}) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, options.level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, options.checksum ? 1 : 0);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, options.says_its_size ? 1 : 0);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_enableLongDistanceMatching, options.long_distances ? 1 : 0);
  std::vector<std::byte> frame(ZSTD_compressBound(content.size()));
  const size_t length = ZSTD_compress2(context.get(), frame.data(), frame.size(), content.data(), content.size());
  if (ZSTD_isError(length) != 0) throw std::runtime_error(ZSTD_getErrorName(length));
  frame.resize(length);
  return frame;
}

}  // namespace fpfs::test
