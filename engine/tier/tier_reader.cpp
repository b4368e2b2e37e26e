#include "engine/tier/tier_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/codec/hash.h"
#include "engine/tier/tier_note.h"

namespace fpfs {
namespace {

// Most manifests come with the first call.
constexpr size_t kFirstBytes = 64 * 1024;
// What did not match is asked for once more.
constexpr unsigned kReadAttempts = 2;

Status reading_has_ended() {
  return Status::error(StatusCode::kCancelled, "reading copies has ended");
}

Status no_copy(const std::string& path, const std::string& why) {
  return Status::error(StatusCode::kNotFound, fmt::format("there is no copy of {}: {}", path, why));
}

// Why it is not the copy of this commit; empty: it is.
std::string difference(const TierManifest& manifest, const TierCommit& commit) {
  if (manifest.array_id != commit.array_id) return "what is there is of another array";
  if (manifest.file_id != commit.file_id || manifest.generation != commit.generation)
    return "what is there is of another file";
  if (manifest.sequence != commit.sequence || manifest.size != commit.size)
    return fmt::format("what is there is of commit {}, not of {}", manifest.sequence, commit.sequence);
  if (commit.content_tag != 0 && TierNote::tag_of(manifest.content_tag) != commit.content_tag)
    return "what is there is another object than the one that was copied";
  return {};
}

uint64_t memory_of(const TierManifest& manifest) {
  uint64_t bytes = sizeof(TierManifest) + 2 * manifest.path.size() + manifest.content_tag.size();
  for (const auto& [name, value] : manifest.xattrs) bytes += name.size() + value.size();
  return bytes + (manifest.checksums.size() + manifest.stored_checksums.size()) * sizeof(uint64_t);
}

}  // namespace

uint64_t chunk_bytes_of(const TierManifest& manifest, ChunkIndex chunk) {
  if (chunk.value() >= manifest.checksums.size()) return 0;
  return std::min<uint64_t>(manifest.chunk_size, manifest.size - chunk.value() * manifest.chunk_size);
}

// A manifest on its way, and who waits for it.
struct TierReader::Fetch {
  std::string path;
  std::vector<Done<Manifest>> waiters;  // guarded by the reader
  std::vector<std::byte> bytes;
  size_t length = 0;  // of them that have arrived
  std::string tag;
  std::shared_ptr<TierManifest> manifest;
  unsigned attempt = 0;
};

struct TierReader::Read {
  Manifest manifest;
  ChunkIndex first;
  std::span<std::byte> into;
  DoneStatus done;
  unsigned attempt = 0;
};

std::shared_ptr<TierReader> TierReader::create(Environment& environment, ObjectStore& store,
                                               const TierReadOptions& options) {
  return std::shared_ptr<TierReader>(new TierReader(environment, store, options));
}

TierReader::TierReader(Environment& environment, ObjectStore& store, const TierReadOptions& options)
    : environment_(environment), store_(store), options_(options) {}

// --- how many at a time ----------------------------------------------------------------------------------------------

void TierReader::begin_request(std::function<void()> start, std::function<void()> refuse) {
  {
    const MutexLock lock(mutex_);
    if (!is_closed_ && in_progress_ == options_.requests) {
      waiting_.push_back({std::move(start), std::move(refuse)});
      return;
    }
    if (is_closed_) start = std::move(refuse);
    ++in_progress_;
  }
  start();
}

void TierReader::end_request() {
  std::function<void()> next;
  {
    const MutexLock lock(mutex_);
    --in_progress_;
    if (waiting_.empty()) return;
    next = std::move(waiting_.front().start);
    waiting_.pop_front();
    ++in_progress_;
  }
  next();
}

// The store calls nobody back from inside a call.
bool TierReader::ask(const std::function<void()>& call) {
  const MutexLock lock(mutex_);
  if (is_closed_) return false;
  call();
  return true;
}

void TierReader::close() {
  std::deque<Waiting> waiting;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    waiting.swap(waiting_);
    in_progress_ += static_cast<unsigned>(waiting.size());
  }
  for (const Waiting& one : waiting) one.refuse();
}

// --- manifests -------------------------------------------------------------------------------------------------------

void TierReader::find(const std::string& path, Which which, Done<Manifest> done) {
  Manifest kept;
  std::shared_ptr<Fetch> fetch;
  {
    const MutexLock lock(mutex_);
    const auto found = kept_at_.find(path);
    if (which == Which::kKept && found != kept_at_.end()) {
      kept_.splice(kept_.begin(), kept_, found->second);
      kept = found->second->manifest;
    } else if (const std::shared_ptr<Fetch> under_way = which == Which::kKept ? fetches_[path].lock() : nullptr) {
      under_way->waiters.push_back(std::move(done));
      return;
    } else {
      fetch = std::make_shared<Fetch>();
      fetch->path = path;
      fetch->waiters.push_back(std::move(done));
      fetches_[path] = fetch;  // in place of an older one, which goes on
    }
  }
  if (kept != nullptr) return done(std::move(kept));  // NOLINT(bugprone-use-after-move): there was nothing to fetch
  const auto self = shared_from_this();
  begin_request([self, fetch] { self->get_manifest(fetch, kFirstBytes); },
                [self, fetch] { self->end_fetch(fetch, reading_has_ended()); });
}

void TierReader::find_commit(const std::string& path, const TierCommit& commit, Done<Manifest> done) {
  find(path, Which::kNewest, [path, commit, done = std::move(done)](Result<Manifest> found) {
    if (!found.is_ok()) return done(std::move(found));
    const std::string other = difference(**found, commit);
    done(other.empty() ? std::move(found) : Result<Manifest>(no_copy(path, other)));
  });
}

// From where it has arrived up to `length`.
void TierReader::get_manifest(const std::shared_ptr<Fetch>& fetch, size_t length) {
  fetch->bytes.resize(length);
  const bool is_asked = ask([this, fetch] {
    store_.get(
        manifest_key(fetch->path), fetch->length, std::span(fetch->bytes).subspan(fetch->length), fetch->tag,
        [self = shared_from_this(), fetch](const Result<ReadRange>& range) { self->manifest_arrived(fetch, range); });
  });
  if (!is_asked) end_fetch(fetch, reading_has_ended());
}

void TierReader::manifest_arrived(const std::shared_ptr<Fetch>& fetch, const Result<ReadRange>& range) {
  if (!range.is_ok()) {
    const bool is_missing = range.status().code() == StatusCode::kNotFound;
    return end_fetch(fetch, is_missing ? no_copy(fetch->path, "it has no manifest") : range.status());
  }
  fetch->length += range->length;
  fetch->tag = range->tag;
  if (range->object_size > options_.manifest_bytes_max)
    return end_fetch(fetch, Status::error(StatusCode::kTooLarge, fmt::format("the manifest of {} has {} bytes",
                                                                             fetch->path, range->object_size)));
  const bool is_progress = range->length > 0;
  if (fetch->length < range->object_size && is_progress) return get_manifest(fetch, range->object_size);
  environment_.workers().post([self = shared_from_this(), fetch] { self->decode(fetch); });
}

void TierReader::decode(const std::shared_ptr<Fetch>& fetch) {
  Result<TierManifest> manifest = decode_manifest(std::span(fetch->bytes).first(fetch->length));
  fetch->bytes = {};
  if (!manifest.is_ok()) {
    if (manifest.status().code() == StatusCode::kCorruption && ++fetch->attempt < kReadAttempts) {
      fetch->length = 0;
      fetch->tag.clear();
      return get_manifest(fetch, kFirstBytes);
    }
    return end_fetch(fetch, manifest.status().with_context(fetch->path));
  }
  if (manifest->path != fetch->path || !manifest->is_file() || manifest->is_removed())
    return end_fetch(fetch, no_copy(fetch->path, "its manifest is that of " + manifest->path));
  fetch->manifest = std::make_shared<TierManifest>(std::move(*manifest));
  look_for_content(fetch);
}

// A manifest without the content that it names is no copy.
void TierReader::look_for_content(const std::shared_ptr<Fetch>& fetch) {
  const bool is_asked = ask([this, fetch] {
    store_.head(fetch->path, [self = shared_from_this(), fetch](const Result<ObjectInfo>& found) {
      self->content_looked_for(fetch, found);
    });
  });
  if (!is_asked) end_fetch(fetch, reading_has_ended());
}

void TierReader::content_looked_for(const std::shared_ptr<Fetch>& fetch, const Result<ObjectInfo>& found) {
  const bool is_missing = found.status().code() == StatusCode::kNotFound;
  if (!found.is_ok())
    return end_fetch(fetch, is_missing ? no_copy(fetch->path, "its content is missing") : found.status());
  const TierManifest& manifest = *fetch->manifest;
  if (found->tag != manifest.content_tag || found->size != manifest.size)
    return end_fetch(fetch, no_copy(fetch->path, "its content is another than its manifest says"));
  keep(*fetch);
  end_fetch(fetch, Status::ok());
}

void TierReader::end_fetch(const std::shared_ptr<Fetch>& fetch, const Status& status) {
  std::vector<Done<Manifest>> waiters;
  {
    const MutexLock lock(mutex_);
    const auto found = fetches_.find(fetch->path);
    if (found != fetches_.end() && found->second.lock() == fetch) fetches_.erase(found);
    waiters.swap(fetch->waiters);
  }
  if (!status.is_ok()) forget(fetch->path);
  end_request();
  for (const Done<Manifest>& done : waiters)
    done(status.is_ok() ? Result<Manifest>(fetch->manifest) : Result<Manifest>(status));
}

void TierReader::keep(const Fetch& fetch) {
  const uint64_t bytes = memory_of(*fetch.manifest);
  forget(fetch.path);
  const MutexLock lock(mutex_);
  if (bytes > options_.manifest_memory || kept_at_.contains(fetch.path)) return;
  kept_.push_front({fetch.path, fetch.manifest, bytes});
  kept_at_[fetch.path] = kept_.begin();
  kept_bytes_ += bytes;
  while (kept_bytes_ > options_.manifest_memory) {
    kept_bytes_ -= kept_.back().bytes;
    kept_at_.erase(kept_.back().path);
    kept_.pop_back();
  }
}

void TierReader::forget(const std::string& path) {
  const MutexLock lock(mutex_);
  const auto found = kept_at_.find(path);
  if (found == kept_at_.end()) return;
  kept_bytes_ -= found->second->bytes;
  kept_.erase(found->second);
  kept_at_.erase(found);
}

uint64_t TierReader::manifest_bytes_kept() const {
  const MutexLock lock(mutex_);
  return kept_bytes_;
}

// --- content ---------------------------------------------------------------------------------------------------------

void TierReader::read(const Manifest& manifest, ChunkIndex first, std::span<std::byte> into, DoneStatus done) {
  const uint64_t begin = first.value() * manifest->chunk_size;
  FPFS_CHECK(!into.empty() && first.value() < manifest->checksums.size() && into.size() <= manifest->size - begin &&
                 (into.size() % manifest->chunk_size == 0 || into.size() == manifest->size - begin),
             "whole chunks of the content are read");
  const auto read = std::make_shared<Read>(Read{manifest, first, into, std::move(done)});
  const auto self = shared_from_this();
  begin_request([self, read] { self->get_content(read); }, [self, read] { self->end_read(read, reading_has_ended()); });
}

void TierReader::get_content(const std::shared_ptr<Read>& read) {
  const bool is_asked = ask([this, read] {
    const TierManifest& manifest = *read->manifest;
    store_.get(
        manifest.path, read->first.value() * manifest.chunk_size, read->into, manifest.content_tag,
        [self = shared_from_this(), read](const Result<ReadRange>& range) { self->content_arrived(read, range); });
  });
  if (!is_asked) end_read(read, reading_has_ended());
}

void TierReader::content_arrived(const std::shared_ptr<Read>& read, const Result<ReadRange>& range) {
  if (range.is_ok())
    return environment_.workers().post([self = shared_from_this(), read, range] { self->check_content(read, range); });
  if (range.status().code() != StatusCode::kNotFound) return end_read(read, range.status());
  forget(read->manifest->path);
  end_read(read, no_copy(read->manifest->path, "its content was replaced or removed"));
}

void TierReader::check_content(const std::shared_ptr<Read>& read, const Result<ReadRange>& range) {
  const TierManifest& manifest = *read->manifest;
  ChunkIndex chunk = read->first;
  bool is_right = range->length == read->into.size() && range->object_size == manifest.size;
  for (size_t begin = 0; is_right && begin < read->into.size(); ++chunk) {
    const size_t length = chunk_bytes_of(manifest, chunk);
    is_right = hash_bytes(read->into.subspan(begin, length)) == manifest.checksums[chunk.value()];
    if (!is_right) break;
    begin += length;
  }
  if (is_right) return end_read(read, Status::ok());
  if (++read->attempt < kReadAttempts) return get_content(read);
  end_read(read, Status::error(StatusCode::kCorruption,
                               fmt::format("the copy of {} in {} is damaged: chunk {} does not match its checksum",
                                           manifest.path, store_.describe(), chunk)));
}

void TierReader::end_read(const std::shared_ptr<Read>& read, const Status& status) {
  end_request();
  std::exchange(read->done, nullptr)(status);
}

void TierReader::read_bytes(const std::string& path, uint64_t offset, std::span<std::byte> into, DoneStatus done) {
  const auto self = shared_from_this();
  const auto end = [self, done = std::move(done)](const Status& status) {
    self->end_request();
    done(status);
  };
  begin_request(
      [self, path, offset, into, end] {
        const bool is_asked = self->ask([&] {
          self->store_.get(path, offset, into, "", [path, into, end](const Result<ReadRange>& range) {
            if (range.is_ok() && range->length < into.size()) return end(no_copy(path, "its content is shorter"));
            const bool is_missing = range.status().code() == StatusCode::kNotFound;
            end(is_missing ? no_copy(path, "its content is missing") : range.status());
          });
        });
        if (!is_asked) end(reading_has_ended());
      },
      [end] { end(reading_has_ended()); });
}

}  // namespace fpfs
