// Why an array does not open: damage that fsck reports, or something else that it cannot check.
#pragma once

#include <string>
#include <vector>

#include "engine/check/check.h"
#include "engine/io/storage.h"

namespace fpfs {

// `failure` is what Array::open() said. A report that names the damaged or missing superblock and its member, or a
// failure when the superblocks are not the reason.
Result<CheckReport> report_superblocks(Storage& storage, const std::vector<std::string>& directories,
                                       const Status& failure);

}  // namespace fpfs
