#include "engine/tier/noted_copy.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/tier/tier_note.h"

namespace fpfs {

bool is_noted_as_copied(Storage& storage, Handle sidecar, const std::string& path, const FileImage& image,
                        const std::string& store) {
  std::array<std::byte, TierNote::kBytes> bytes;
  const Result<size_t> length = storage.get_xattr(sidecar, TierNote::kAttribute, bytes);
  if (!length.is_ok()) return false;
  const Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
  return note.is_ok() && note->file_id == image.file_id && note->sequence == image.sequence &&
         note->size == image.size && (store.empty() || note->place == TierNote::place_of(store, path));
}

}  // namespace fpfs
