#include "engine/tier/noted_copy.h"

#include <optional>

#include "engine/tier/tier_binding.h"
#include "engine/tier/tier_note.h"

namespace fpfs {

bool is_noted_as_copied(Storage& storage, Handle sidecar, const std::string& path, const NotedCommit& commit,
                        const std::string& store) {
  const std::optional<TierNote> note = read_note(storage, sidecar);
  return note.has_value() && note->file_id == commit.file_id && note->sequence == commit.sequence &&
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
