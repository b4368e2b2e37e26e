// What is to be true before an array's copies become another array's (TierSet::restores). Nothing is written here.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/store/find_in_array.h"
#include "engine/tier/array_tier_impl.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_marker.h"
#include "engine/tier/tier_note.h"

namespace fpfs {
namespace {

// For the size of chunks that an array has had.
constexpr unsigned kManifestsLookedAt = 64;
constexpr uint64_t kManifestLookedAtMax = 4 * kMiB;

Result<bool> has_no_names(Storage& storage, Handle root) {
  FPFS_ASSIGN_OR_RETURN(const Handle readable, storage.reopen(root, O_RDONLY | O_DIRECTORY));
  const ScopedHandle directory(storage, readable);
  bool is_empty = true;
  FPFS_RETURN_IF_ERROR(storage.list(directory.get(), [&is_empty](const DirectoryEntry&) { return is_empty = false; }));
  return is_empty;
}

struct Taker {
  mode_t mode = 0;
  std::string target;  // of a symbolic link
};

// What is under this path already, when it is neither a copy's original there nor a directory for a directory. It would
// stay (RestoredTree), be copied, and so take the place of the copy that nobody has restored.
Result<std::optional<Taker>> taker_of(Store& store, std::string path, const std::string& store_id) {
  const bool is_of_directory = path.ends_with('/');
  if (is_of_directory) path.pop_back();
  if (("/" + path + "/").find("/../") != std::string::npos) return std::optional<Taker>();  // it is never restored
  const Result<Store::Node> found = find_in_array(store, path);
  if (found.status().code() == StatusCode::kNotFound) return std::optional<Taker>();
  // A file above, or a link.
  if (found.status().errno_value() == ENOTDIR || found.status().code() == StatusCode::kInvalidArgument)
    return std::optional(Taker{S_IFREG, {}});
  if (!found.is_ok()) return found.status();
  const mode_t mode = found->attributes.st_mode;
  if (S_ISDIR(mode)) return is_of_directory ? std::nullopt : std::optional(Taker{mode, {}});
  const std::optional<TierNote> note = read_note(store.storage(), found->handle.get());
  if (note && note->place == TierNote::place_of(store_id, path)) return std::optional<Taker>();
  Taker taker{mode, {}};
  if (S_ISLNK(mode)) {
    FPFS_ASSIGN_OR_RETURN(taker.target, store.storage().read_link(found->handle.get()));
  }
  return std::optional(std::move(taker));
}

// A link for the same link, and so on, has nothing to lose.
bool is_alike(const Taker& taker, const TierManifest& manifest) {
  return !manifest.is_file() && (taker.mode & S_IFMT) == (manifest.mode & S_IFMT) && taker.target == manifest.target;
}

}  // namespace

Status ArrayTier::Impl::check_restorable(ObjectStore& objects, const TierSet& set) {
  using Identity = std::optional<TierIdentity>;
  FPFS_ASSIGN_OR_RETURN(const Identity found, ask<Result<Identity>>([&](ObjectStore::Done<Identity> done) {
                          read_tier(objects, std::move(done));
                        }));
  if (!found) return Status::ok();  // init_tier() says what is missing
  FPFS_ASSIGN_OR_RETURN(const std::string array, array_to_restore(objects, set, *found));
  // Begun before, and perhaps ended: what was made since stays, and some of it may be copied already.
  const Result<std::optional<TierBinding>> remembered = load_binding(store_.storage(), store_.array());
  if (remembered.is_ok() && remembered->has_value() && (**remembered).store_id == found->store_id &&
      ((**remembered).restores == array ||
       std::ranges::find((**remembered).restored, array) != (**remembered).restored.end()))
    return Status::ok();
  FPFS_ASSIGN_OR_RETURN(const bool is_empty, has_no_names(store_.storage(), store_.root()));
  // An array that the store does not list has left it, or was never there: then any of its files has to be found.
  bool is_known = std::ranges::find(found->arrays, array) != found->arrays.end();
  // One file will do, as an array has chunks of one size. Where none is among the first, restoring finds it.
  unsigned looks = kManifestsLookedAt;
  uint64_t taken = 0;
  std::string first_taken;
  ListRequest request;
  request.prefix = std::string(kTierReserved) + "/";
  do {
    FPFS_ASSIGN_OR_RETURN(const ListPage page, ask<Result<ListPage>>([&](ObjectStore::Done<ListPage> done) {
                            objects.list(request, std::move(done));
                          }));
    for (const ObjectInfo& object : page.objects) {
      const std::string_view path = path_of_manifest(object.key);
      if (path.empty()) continue;
      if (is_stopping()) return Status::error(StatusCode::kCancelled, "the mount is ending");
      if (is_empty && is_known && looks == 0) return Status::ok();
      std::optional<Taker> taker;
      if (!is_empty) {
        FPFS_ASSIGN_OR_RETURN(taker, taker_of(store_, std::string(path), found->store_id));
      }
      if (is_known && looks == 0 && !taker) continue;
      looks -= std::min(looks, 1U);
      FPFS_ASSIGN_OR_RETURN(const std::optional<TierManifest> manifest, manifest_of(objects, object));
      // Of one that cannot be looked at nobody knows whose it is.
      if (manifest && (to_string(manifest->array_id) != array || manifest->is_removed())) continue;
      is_known = true;
      if (manifest && manifest->has_chunks()) {
        FPFS_RETURN_IF_ERROR(check_chunk_size(*manifest, store_.array().stripes().chunk_size).with_context("tier"));
        looks = 0;
      }
      if (taker && !(manifest && is_alike(*taker, *manifest)) && taken++ == 0) first_taken = path;
    }
    request.position = page.position;
  } while (!request.position.empty());
  if (taken > 0)
    return Status::error(
        StatusCode::kExists,
        fmt::format(
            "tier: {} is here already, and would take the place of what is to be restored, there too{}; rename or "
            "remove it first, or restore into an empty array",
            first_taken, taken == 1 ? "" : fmt::format(" (so with {} in all)", format_count(taken, "copy", "copies"))));
  if (is_known) return Status::ok();
  std::vector<std::string> others = found->arrays;
  std::erase(others, to_string(store_.array().id()));
  return Status::error(StatusCode::kInvalidArgument,
                       others.empty() ? fmt::format("tier: array {} has no copies there, and no other one has", array)
                                      : fmt::format("tier: array {} has no copies there; those that copy there: {}",
                                                    array, describe_arrays(objects, others)));
}

// Nothing: too large to be looked at for that, or damaged. One that went meanwhile is of no array.
Result<std::optional<TierManifest>> ArrayTier::Impl::manifest_of(ObjectStore& objects, const ObjectInfo& object) {
  if (object.size > kManifestLookedAtMax) return std::optional<TierManifest>();
  const auto memory = std::make_shared<std::vector<std::byte>>(object.size);
  const Result<ReadRange> read = ask<Result<ReadRange>>([&](ObjectStore::Done<ReadRange> done) {
    objects.get(object.key, 0, *memory, "",
                [memory, done = std::move(done)](const Result<ReadRange>& range) { done(range); });
  });
  if (read.status().code() == StatusCode::kNotFound) return std::optional<TierManifest>(TierManifest{});
  if (!read.is_ok()) return read.status();
  Result<TierManifest> manifest = decode_manifest(std::span(*memory).first(read->length));
  if (!manifest.is_ok()) return std::optional<TierManifest>();
  return std::optional<TierManifest>(std::move(*manifest));
}

}  // namespace fpfs
