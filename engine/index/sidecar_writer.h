// SidecarWriter: appends to the sidecar of one open file, in the order that keeps what was there before (P1, P2).
//
// A record is appended only behind a durable one: a reader tells a torn tail from damage by nothing valid following it.
// So the record of a lazy commit is synced first, and a torn tail that a crash or a failed append left is cut durably.
//
// A failure leaves it unknown whether the record is there, whatever errno it has (a thin drive that is full fails syncs
// with ENOSPC). Only a write that had no room, and whose torn tail was cut durably, leaves the log known.
//
// Thread safety: none; one commit of a file at a time.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/index/sidecar.h"
#include "engine/io/storage.h"

namespace fpfs {

// How far the log of a sidecar goes.
struct SidecarLogState {
  uint64_t sequence = 0;          // of the last record; 0: there is none
  SidecarOffset end;              // where the next one goes
  SidecarOffset snapshot_offset;  // of the newest snapshot: where reading starts

  // It is worth a snapshot, which compacts it: the log is much longer than `live_bytes`, about what a snapshot takes.
  bool is_long(uint64_t live_bytes) const;
};

class SidecarWriter {
 public:
  // `sidecar` stays the caller's, and open. `log`: as it is on the drive.
  SidecarWriter(Storage& storage, Handle sidecar, const SidecarHeader& header, const SidecarLogState& log)
      : storage_(storage), sidecar_(sidecar), header_(header), log_(log) {}

  struct Outcome {
    Outcome() = default;
    // A failure, of which nothing else is known. So it is unless it is said otherwise.
    Outcome(Status failure) : status(std::move(failure)), log_is_known(false) {}  // NOLINT: implicit by design
    // A failure that left the log as it was, durably.
    static Outcome unchanged(const Status& failure) {
      Outcome outcome(failure);
      outcome.log_is_known = true;
      return outcome;
    }
    Status status;
    bool log_is_known = true;
  };
  // Writes `record`, which gets the next sequence number; nothing is durable before sync(). `may_be_unsynced`: so is
  // the record before. `make_room` is called when the drive is full: true when another try is worth it.
  Outcome append(SidecarRecord& record, bool may_be_unsynced, const std::function<bool()>& make_room);
  Status sync() { return storage_.fsync(sidecar_); }

  // After append(): where the record lies, how far the log goes, and the sidecar's attributes before.
  const RecordPlace& place() const { return place_; }
  const SidecarLogState& log() const { return log_; }
  const struct stat& before() const { return before_; }
  // What was written, from the beginning of the sidecar on if there was nothing.
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  Status secure_end(bool may_be_unsynced);
  Status cut();

  Storage& storage_;
  const Handle sidecar_;
  const SidecarHeader header_;
  SidecarLogState log_;
  RecordPlace place_;
  std::vector<std::byte> bytes_;
  struct stat before_ {};
};

}  // namespace fpfs
