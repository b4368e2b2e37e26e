// StatusCollector: the status of a mount as families of metrics, made when they are asked for: of what `fpfs status`,
// `fpfs stats`, `fpfs scrub status` and `fpfs tier status` say, so that no number is counted twice. docs/monitoring.md
// lists them. No path and no name of a file is in them; members are numbers, as in `fpfs status`.
//
// Thread safety: collect() from any thread. It asks the members' filesystems for their space, so it may wait for a drive.
#pragma once

#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "fs/nodes/file_system.h"

namespace fpfs {

class StatusCollector final : public prometheus::Collectable {
 public:
  // The file system outlives it.
  explicit StatusCollector(FileSystem& file_system) : file_system_(file_system) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  FileSystem& file_system_;
};

}  // namespace fpfs
