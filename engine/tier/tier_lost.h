// TierLost: of a store that several arrays share, what this array has seen there and does not have any more, as it was
// removed, replaced or moved here: by place (TierNote::place_of()), the manifest. What the store has there still is then
// no news, and no conflict, until it has been told.
//
// Kept in the file `tier-lost` beside tree/ (docs/format.md), which whoever owns this has written: what was noted since
// is forgotten by a crash, and such files come back. That the file is there says, too, that files of the array may be
// marked as another array's (ChunkSource::kOthersAttribute).
//
// Thread safety: all. Its lock is below all others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/store/store.h"
#include "engine/tier/tier_note.h"

namespace fpfs {

class TierLost {
 public:
  static constexpr uint64_t kAnyManifest = UINT64_MAX;
  static constexpr size_t kEntriesMax = 65536;
  using Manifests = std::map<uint64_t, uint64_t>;
  using NoteOf = std::function<std::optional<TierNote>(Handle node, const std::string& path)>;

  // With what the array remembers; what is damaged counts as nothing, which is logged. `noted_store`: as notes call the
  // store that is shared. The store outlives it. Blocks for the drive.
  static std::shared_ptr<TierLost> open(Store& store, std::string noted_store);
  TierLost(Store& store, std::string noted_store);
  // Whether the array has ever shared a store, or may have.
  static bool is_there(Storage& storage, const Array& array);

  const std::string& noted_store() const { return noted_store_; }
  void add(uint64_t place, uint64_t manifest);
  // What a name has lost; the places. Of a directory, which has no content, whatever is there was seen.
  std::vector<uint64_t> note(const Store::NameEvent& event, const NoteOf& note_of);
  // The same, by the notes that files have in their sidecars.
  void note(const Store::NameEvent& event);
  // The manifest that was seen; kAnyManifest: whichever is there. 0: none.
  uint64_t manifest_at(uint64_t place) const;
  // The store has been told, or its news were taken. What was noted since, of another manifest, stays.
  void forget(uint64_t place, uint64_t manifest);
  bool is_changed() const;
  // Durable on return, where there was something to save. A failure is logged, once until it is over.
  void save();

  // The file. `array_id`: whose it must be. kCorruption, kUnsupported.
  static std::vector<std::byte> encode(const Manifests& lost, const Uuid& array_id);
  static Result<Manifests> decode(std::span<const std::byte> bytes, const Uuid& array_id);

 private:
  Store& store_;
  const std::string noted_store_;
  Mutex saving_;  // one at a time, above mutex_
  bool is_failing_ FPFS_GUARDED_BY(saving_) = false;
  mutable Mutex mutex_;
  Manifests lost_ FPFS_GUARDED_BY(mutex_);
  bool is_changed_ FPFS_GUARDED_BY(mutex_) = true;
};

}  // namespace fpfs
