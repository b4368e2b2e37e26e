#include "engine/tier/sim/sim_object_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/codec/hash.h"
#include "engine/tier/object_key.h"
#include "engine/tier/tier_manifest.h"

namespace fpfs {
namespace {

Status unreachable() {
  return Status::error(StatusCode::kUnreachable, "sim://store does not answer");
}

Status not_found(const std::string& key) {
  return Status::error(StatusCode::kNotFound, "sim://store has no " + key);
}

// So that a call can be answered with a failure whatever its answer is.
Status to_answer(const Status& status, Status*) {
  return status;
}
template <typename T>
Result<T> to_answer(const Status& status, Result<T>*) {
  return status;
}

}  // namespace

// --- calls -----------------------------------------------------------------------------------------------------------

SimObjectStore::Fate SimObjectStore::draw(const std::string& key, bool changes) {
  if (is_away_) return Fate::kFails;
  if (changes && !refusal_.is_ok() && key.starts_with(refused_prefix_)) return Fate::kFails;
  if (random_.chance(options_.failed_percent)) return Fate::kFails;
  return random_.chance(options_.lost_percent) ? Fate::kIsLost : Fate::kHappens;
}

void SimObjectStore::note_writer(const std::string& key, const std::string& upload) {
  writes_ = key;
  upload_ = upload;
  for (const auto& [number, call] : under_way_)
    if (call.writes == key && (upload.empty() || call.upload != upload)) ++conflicts_;
}

template <typename Answer>
void SimObjectStore::start(const std::string& key, bool changes, std::span<const std::byte> content,
                           std::function<Answer()> happen, std::function<void(Answer)> done) {
  const uint64_t number = ++next_call_;
  const auto kept = std::make_shared<std::optional<Answer>>();
  const uint64_t hash = hash_bytes(content);
  Call& call = under_way_[number];
  call.fate = draw(key, changes);
  call.writes = std::exchange(writes_, {});
  call.upload = std::exchange(upload_, {});
  if (call.fate != Fate::kHappens) ++failed_;
  const bool is_refused = changes && !refusal_.is_ok() && key.starts_with(refused_prefix_) && !is_away_;
  const Status failure = is_refused ? refusal_ : unreachable();
  call.content = content;
  call.happen = [kept, hash, content, happen = std::move(happen)] {
    FPFS_CHECK(hash_bytes(content) == hash, "what a store was given does not change until it has answered");
    *kept = happen();
  };
  call.answer = [kept, failure, done = std::move(done)](const Status& status) {
    if (status.is_ok() && kept->has_value()) return done(std::move(**kept));
    done(to_answer(status.is_ok() ? failure : status, static_cast<Answer*>(nullptr)));
  };
  bytes_held_ += content.size();
  bytes_held_max_ = std::max(bytes_held_max_, bytes_held_);
  later(number);
}

void SimObjectStore::later(uint64_t number) {
  const auto delay = std::chrono::milliseconds(random_.below(options_.delay_ms_max + 1));
  world_->executor().post_after(delay, [this, number, connection = connection_] {
    if (connection == connection_) run(number);
  });
}

void SimObjectStore::let_happen(Call& call) {
  call.has_happened = true;
  if (call.fate != Fate::kFails) call.happen();
}

// Twice for each call: it happens, then it is answered.
void SimObjectStore::run(uint64_t number) {
  const auto found = under_way_.find(number);
  if (found == under_way_.end()) return;
  Call& call = found->second;
  if (!call.has_happened) {
    let_happen(call);
    return later(number);
  }
  const Call ended = std::move(call);
  under_way_.erase(found);
  bytes_held_ -= ended.content.size();
  ended.answer(ended.fate == Fate::kIsLost ? unreachable() : Status::ok());
}

void SimObjectStore::disconnect() {
  ++connection_;
  for (auto& [number, call] : under_way_)
    if (!call.has_happened && random_.chance(50)) let_happen(call);
  under_way_.clear();
  bytes_held_ = 0;
  world_ = nullptr;
}

void SimObjectStore::close() {
  ++connection_;
  const auto calls = std::exchange(under_way_, {});
  bytes_held_ = 0;
  for (const auto& [number, call] : calls) call.answer(Status::error(StatusCode::kCancelled, "sim://store was closed"));
}

// --- what is stored --------------------------------------------------------------------------------------------------

StoredObject SimObjectStore::store_object(const std::string& key, Object object) {
  object.tag = fmt::format("{}{}", options_.tags, ++next_tag_);
  const StoredObject stored{object.tag, true};
  objects_[key] = std::move(object);
  return stored;
}

bool SimObjectStore::is_answered_early(const std::string& key) const {
  const bool is_manifest = key.starts_with(".fastpersistfs/");
  return planted_ == (is_manifest ? Planted::kManifestNotAwaited : Planted::kContentNotAwaited);
}

void SimObjectStore::check(DoneStatus done) {
  start<Status>(
      "", false, {}, [] { return Status::ok(); }, std::move(done));
}

void SimObjectStore::put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                         Done<StoredObject> done) {
  Status wrong = check_key(key, 0);
  if (wrong.is_ok()) wrong = check_metadata(metadata);
  note_writer(key);
  if (is_answered_early(key)) {
    // Stored later, from a copy; the caller is told a tag that it will have unless something is put in between.
    auto copy = std::make_shared<Object>(Object{{content.begin(), content.end()}, metadata, ""});
    const std::string tag = fmt::format("{}{}", options_.tags, ++next_tag_);
    start<Status>(
        key, true, {},
        [this, key, copy, tag] {
          objects_[key] = *copy;
          objects_[key].tag = tag;
          return Status::ok();
        },
        [](const Status&) {});
    world_->executor().post([done = std::move(done), tag] { done(StoredObject{tag, true}); });
    return;
  }
  start<Result<StoredObject>>(
      key, true, content,
      [this, key, content, metadata, wrong]() -> Result<StoredObject> {
        if (!wrong.is_ok()) return wrong;
        return store_object(key, {{content.begin(), content.end()}, metadata, ""});
      },
      std::move(done));
}

void SimObjectStore::begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) {
  note_writer(key);
  start<Result<Upload>>(
      key, true, {},
      [this, key, metadata]() -> Result<Upload> {
        FPFS_RETURN_IF_ERROR(check_key(key, 0));
        const std::string id = fmt::format("u{}", ++next_tag_);
        uploads_[id] = {key, metadata, {}};
        return Upload{key, id};
      },
      std::move(done));
}

void SimObjectStore::put_part(const Upload& upload, uint32_t number, uint64_t offset,
                              std::span<const std::byte> content, Done<StoredPart> done) {
  static_cast<void>(offset);
  FPFS_CHECK(number >= 1 && number <= options_.part_count_max && content.size() <= options_.part_size_max,
             "parts are what the store takes");
  note_writer(upload.key, upload.id);
  start<Result<StoredPart>>(
      upload.key, true, content,
      [this, upload, number, content]() -> Result<StoredPart> {
        const auto found = uploads_.find(upload.id);
        if (found == uploads_.end()) return not_found("upload " + upload.id);
        const std::string tag = fmt::format("p{}", ++next_tag_);
        found->second.parts[number] = {{content.begin(), content.end()}, {}, tag};
        return StoredPart{number, content.size(), tag};
      },
      std::move(done));
}

void SimObjectStore::parts(const Upload& upload, Done<std::vector<StoredPart>> done) {
  start<Result<std::vector<StoredPart>>>(
      upload.key, false, {},
      [this, upload]() -> Result<std::vector<StoredPart>> {
        const auto found = uploads_.find(upload.id);
        if (found == uploads_.end()) return not_found("upload " + upload.id);
        std::vector<StoredPart> parts;
        for (const auto& [number, part] : found->second.parts) parts.push_back({number, part.content.size(), part.tag});
        return parts;
      },
      std::move(done));
}

void SimObjectStore::finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) {
  note_writer(upload.key);
  if (planted_ == Planted::kPartsMixed && parts.size() > 2) std::swap(parts[0], parts[1]);
  start<Result<StoredObject>>(
      upload.key, true, {},
      [this, upload, parts = std::move(parts)]() -> Result<StoredObject> {
        const auto found = uploads_.find(upload.id);
        if (found == uploads_.end()) return not_found("upload " + upload.id);
        Object object{{}, found->second.metadata, ""};
        for (size_t i = 0; i < parts.size(); ++i) {
          const auto part = found->second.parts.find(parts[i].number);
          FPFS_CHECK(part != found->second.parts.end() && part->second.tag == parts[i].tag,
                     "an upload is finished with the parts that it has");
          FPFS_CHECK(i + 1 == parts.size() || part->second.content.size() >= options_.part_size_min,
                     "only the last part is short");
          object.content.insert(object.content.end(), part->second.content.begin(), part->second.content.end());
        }
        uploads_.erase(found);
        return store_object(upload.key, std::move(object));
      },
      std::move(done));
}

void SimObjectStore::abort_upload(const Upload& upload, DoneStatus done) {
  start<Status>(
      upload.key, true, {},
      [this, upload] {
        uploads_.erase(upload.id);
        return Status::ok();
      },
      std::move(done));
}

void SimObjectStore::uploads(const std::string& prefix, Done<std::vector<Upload>> done) {
  start<Result<std::vector<Upload>>>(
      prefix, false, {},
      [this, prefix]() -> Result<std::vector<Upload>> {
        std::vector<Upload> found;
        for (const auto& [id, upload] : uploads_)
          if (upload.key.starts_with(prefix)) found.push_back({upload.key, id});
        return found;
      },
      std::move(done));
}

void SimObjectStore::get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
                         Done<ReadRange> done) {
  start<Result<ReadRange>>(
      key, false, {},
      [this, key, offset, into, tag]() -> Result<ReadRange> {
        const auto found = objects_.find(key);
        if (found == objects_.end() || (!tag.empty() && found->second.tag != tag)) return not_found(key);
        const std::vector<std::byte>& content = found->second.content;
        const size_t begin = std::min<size_t>(offset, content.size());
        const size_t length = std::min(into.size(), content.size() - begin);
        std::copy_n(content.data() + begin, length, into.data());
        return ReadRange{length, content.size(), found->second.tag};
      },
      std::move(done));
}

void SimObjectStore::head(const std::string& key, Done<ObjectInfo> done) {
  start<Result<ObjectInfo>>(
      key, false, {},
      [this, key]() -> Result<ObjectInfo> {
        const auto found = objects_.find(key);
        if (found == objects_.end()) return not_found(key);
        return ObjectInfo{key, found->second.content.size(), found->second.tag, 0, found->second.metadata};
      },
      std::move(done));
}

void SimObjectStore::list(const ListRequest& request, Done<ListPage> done) {
  start<Result<ListPage>>(
      request.prefix, false, {},
      [this, request]() -> Result<ListPage> {
        ListPage page;
        for (auto at = objects_.upper_bound(request.position); at != objects_.end(); ++at) {
          if (!at->first.starts_with(request.prefix)) continue;
          const size_t slash = request.one_level ? at->first.find('/', request.prefix.size()) : std::string::npos;
          if (slash != std::string::npos) {
            const std::string directory = at->first.substr(0, slash + 1);
            if (page.directories.empty() || page.directories.back() != directory) page.directories.push_back(directory);
            continue;
          }
          if (page.objects.size() == request.keys_max) {
            page.position = page.objects.back().key;
            break;
          }
          page.objects.push_back({at->first, at->second.content.size(), at->second.tag, 0, {}});
        }
        return page;
      },
      std::move(done));
}

void SimObjectStore::copy(const std::string& from, const std::string& tag, const std::string& to,
                          const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) {
  Status wrong = check_key(to, 0);
  if (wrong.is_ok() && from == to) wrong = Status::error(StatusCode::kInvalidArgument, "copy " + from + " to itself");
  note_writer(to);
  start<Result<StoredObject>>(
      to, true, {},
      [this, from, tag, to, metadata, wrong]() -> Result<StoredObject> {
        if (!wrong.is_ok()) return wrong;
        const auto found = objects_.find(from);
        if (found == objects_.end() || (!tag.empty() && found->second.tag != tag)) return not_found(from);
        Object object = found->second;
        if (metadata.has_value()) object.metadata = *metadata;
        if (planted_ == Planted::kSourceNotKept) objects_.erase(found);
        return store_object(to, std::move(object));
      },
      std::move(done));
}

void SimObjectStore::remove(const std::string& key, DoneStatus done) {
  note_writer(key);
  start<Status>(
      key, true, {},
      [this, key] {
        const std::string path(path_of_manifest(key));
        const bool is_planted = planted_ == Planted::kContentRemovedFirst && !path.ends_with('/');
        objects_.erase(is_planted && !path.empty() ? path : is_planted ? manifest_key(key) : key);
        return Status::ok();
      },
      std::move(done));
}

void SimObjectStore::remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) {
  start<Result<std::vector<RemoveFailure>>>(
      "", true, {},
      [this, keys = std::move(keys)]() -> Result<std::vector<RemoveFailure>> {
        for (const std::string& key : keys) objects_.erase(key);
        return std::vector<RemoveFailure>();
      },
      std::move(done));
}

}  // namespace fpfs
