// SidecarLog: the bytes of one sidecar as readers look at them, a window at a time. Internal to engine/index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/index/sidecar_format.h"

namespace fpfs::sidecar {

class SidecarLog {
 public:
  SidecarLog(SidecarReader& reader, const Uuid& array_id) : reader_(reader), array_id_(array_id) {}

  SidecarOffset end() const { return reader_.end(); }

  // Bytes [offset, offset + length), fewer only at the end of the file; valid until the next call. `length` comes from
  // a record that lies inside the file, or is small.
  Result<std::span<const std::byte>> view(SidecarOffset offset, uint64_t length);

  // The valid head of a record that starts at `offset`; nothing when there is none.
  Result<std::optional<RecordHead>> head_at(SidecarOffset offset);

  // The bytes of the whole, valid record at `offset`; an empty span when it is not whole.
  Result<std::span<const std::byte>> record_at(SidecarOffset offset, const RecordHead& head);

  // The valid trailer that ends the file; nothing when there is none.
  Result<std::optional<Trailer>> last_trailer();

  struct Found {
    SidecarOffset offset;
    RecordHead head;
  };
  // The first valid head at or after `from`.
  Result<std::optional<Found>> find_head(SidecarOffset from);

  // The newest whole snapshot record of `file_id`; nothing when there is none.
  Result<std::optional<Found>> find_newest_snapshot(FileId file_id);

 private:
  static constexpr uint64_t kWindowSize = 64 * kKiB;

  SidecarReader& reader_;
  const Uuid array_id_;
  std::vector<std::byte> window_;
  SidecarOffset window_offset_;
};

}  // namespace fpfs::sidecar
