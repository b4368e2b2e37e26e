// Which failures are the drive's, or of its filesystem, and not the caller's.
#pragma once

#include <cerrno>

#include "engine/base/status.h"

namespace fpfs {

// It gives errors, or is gone.
inline bool is_drive_failure(const Status& status) {
  if (status.code() == StatusCode::kCorruption) return false;  // EIO to callers only
  switch (status.errno_value()) {
    case EIO:
    case ENXIO:
    case ENODEV:
    case ESHUTDOWN:
    case EUCLEAN:
    case EREMOTEIO:
      return true;
    default:
      return false;
  }
}

// The same, or it takes nothing any more: a filesystem turns read-only when its drive fails.
inline bool blames_the_drive(const Status& status) {
  return is_drive_failure(status) || status.errno_value() == EROFS;
}

}  // namespace fpfs
