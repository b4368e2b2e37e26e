#include "engine/tier/noted_copy.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/tier/tier_binding.h"
#include "engine/tier/tier_note.h"

namespace fpfs {

bool is_noted_as_copied(Storage& storage, Handle sidecar, const std::string& path, const NotedCommit& commit,
                        const std::string& store) {
  std::array<std::byte, TierNote::kBytes> bytes;
  const Result<size_t> length = storage.get_xattr(sidecar, TierNote::kAttribute, bytes);
  if (!length.is_ok()) return false;
  const Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
  return note.is_ok() && note->file_id == commit.file_id && note->sequence == commit.sequence &&
         note->size == commit.size && (store.empty() || note->place == TierNote::place_of(store, path));
}

CheckOptions::IsCopied noted_copies(Storage& storage, const Array& array) {
  const Result<std::optional<TierBinding>> binding = load_binding(storage, array);
  if (binding.is_ok() && !binding->has_value()) return nullptr;
  const std::string store = binding.is_ok() ? (**binding).store_id : "";
  return [store](Storage& where, Handle sidecar, const std::string& path, const FileImage& image) {
    return is_noted_as_copied(where, sidecar, path, {image.file_id, image.sequence, image.size}, store);
  };
}

}  // namespace fpfs
