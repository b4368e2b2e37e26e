// An ObjectStore whose calls wait.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/tier/object_store.h"
#include "tests/engine/tier/waiting.h"

namespace fpfs::test {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class BlockingStore {
 public:
  explicit BlockingStore(ObjectStore& store) : store_(store) {}

  Status check() {
    return wait_for<Status>([&](auto done) { store_.check(done); });
  }
  Result<StoredObject> put(const std::string& key, std::string_view content, const ObjectMetadata& metadata = {}) {
    return wait_for<Result<StoredObject>>([&](auto done) { store_.put(key, bytes_of(content), metadata, done); });
  }
  Result<Upload> begin(const std::string& key, const ObjectMetadata& metadata = {}) {
    return wait_for<Result<Upload>>([&](auto done) { store_.begin_upload(key, metadata, done); });
  }
  Result<StoredPart> put_part(const Upload& upload, uint32_t number, uint64_t offset, std::string_view content) {
    return wait_for<Result<StoredPart>>(
        [&](auto done) { store_.put_part(upload, number, offset, bytes_of(content), done); });
  }
  Result<std::vector<StoredPart>> parts(const Upload& upload) {
    return wait_for<Result<std::vector<StoredPart>>>([&](auto done) { store_.parts(upload, done); });
  }
  Result<StoredObject> finish(const Upload& upload, const std::vector<StoredPart>& parts) {
    return wait_for<Result<StoredObject>>([&](auto done) { store_.finish_upload(upload, parts, done); });
  }
  Status abort(const Upload& upload) {
    return wait_for<Status>([&](auto done) { store_.abort_upload(upload, done); });
  }
  Result<std::vector<Upload>> uploads(const std::string& prefix = "") {
    return wait_for<Result<std::vector<Upload>>>([&](auto done) { store_.uploads(prefix, done); });
  }
  // At most `length` bytes.
  Result<std::string> get(const std::string& key, uint64_t offset = 0, size_t length = 1 << 20,
                          const std::string& tag = "") {
    std::string content(length, '\0');
    const auto range = wait_for<Result<ReadRange>>([&](auto done) {
      store_.get(key, offset, std::as_writable_bytes(std::span(content.data(), length)), tag, done);
    });
    if (!range.is_ok()) return range.status();
    content.resize(range->length);
    return content;
  }
  Result<ObjectInfo> head(const std::string& key) {
    return wait_for<Result<ObjectInfo>>([&](auto done) { store_.head(key, done); });
  }
  Result<ListPage> page(const ListRequest& request) {
    return wait_for<Result<ListPage>>([&](auto done) { store_.list(request, done); });
  }
  Result<StoredObject> copy(const std::string& from, const std::string& to, const std::string& tag = "",
                            const std::optional<ObjectMetadata>& metadata = std::nullopt) {
    return wait_for<Result<StoredObject>>([&](auto done) { store_.copy(from, tag, to, metadata, done); });
  }
  Status remove(const std::string& key) {
    return wait_for<Status>([&](auto done) { store_.remove(key, done); });
  }
  Result<std::vector<RemoveFailure>> remove_many(const std::vector<std::string>& keys) {
    return wait_for<Result<std::vector<RemoveFailure>>>([&](auto done) { store_.remove_many(keys, done); });
  }

  // Every key and every directory, page by page.
  Result<std::vector<std::string>> names(ListRequest request = {}) {
    std::vector<std::string> found;
    do {
      const Result<ListPage> page = this->page(request);
      if (!page.is_ok()) return page.status();
      for (const ObjectInfo& object : page->objects) found.push_back(object.key);
      found.insert(found.end(), page->directories.begin(), page->directories.end());
      request.position = page->position;
    } while (!request.position.empty());
    return found;
  }

 private:
  ObjectStore& store_;
};

// Another byte at each place, and for each `salt`.
inline std::string content_of(size_t length, uint64_t salt) {
  std::string content(length, '\0');
  uint64_t state = salt * 2 + 1;
  for (size_t i = 0; i < length; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    content[i] = static_cast<char>(state >> 56);
  }
  return content;
}

// Names that encoding, sorting or quoting could get wrong.
inline std::vector<std::string> odd_keys() {
  return {
      ".hidden/.x",   "a b/c d",   "a%20b",      "a+b",         "a&b=c?d#e", "a/b/c",
      "a-b",          "a.b",       "quote'\"<>", "semi;colon,", "~tilde",    "\xc3\xa4\xe2\x82\xac/\xf0\x9f\x99\x82",
      "star*[x]{y}$", "trailing ", "x:y@z!",     "a/b d",       "(round)"};
}

}  // namespace fpfs::test
