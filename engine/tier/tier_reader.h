// TierReader: reads copies of files back from a store (tier_copier.h makes them): finds the manifest of a path, says
// whether the copy is the one of a certain commit, and fetches chunks. Every byte that it returns was checked against
// the manifest since it came from the store; the manifest is checked by its own checksum, and names the content
// object's version. A mismatch is asked for once more: what a network spoiled is right then.
//
// Bounds. At most TierReadOptions::requests calls of the store are in progress; what is asked for beyond waits in its
// order. Manifests that were read are kept, up to TierReadOptions::manifest_memory; who asks for one that is being
// fetched waits for that. Content goes straight to the caller's memory.
//
// Errors are those of ObjectStore, and
//   kNotFound     there is no copy at the path: no manifest, another node's, or the content is of another version (it is
//                 being replaced)
//   kCorruption   what the store has, or what comes from it, is not what was stored: also when it was asked for again
//   kUnsupported  the manifest is of a later version
//
// Thread safety: all methods from any thread, with any lock held that `done` does not take. `done` is called once, on a
// thread of the store, on a worker, or inside close().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/io/environment.h"
#include "engine/tier/object_store.h"
#include "engine/tier/tier_manifest.h"

namespace fpfs {

struct TierReadOptions {
  unsigned requests = 16;
  uint64_t manifest_memory = 64 * kMiB;      // of those that are kept
  uint64_t manifest_bytes_max = 256 * kMiB;  // longer ones are refused, kTooLarge; 16 bytes for each chunk of a file
};

// A commit that a copy may be of.
struct TierCommit {
  Uuid array_id{};
  FileId file_id;
  Generation generation;
  uint64_t sequence = 0;
  uint64_t size = 0;
  uint64_t content_tag = 0;  // of the file's note (TierNote::content_tag); 0: not known
};

class TierReader : public std::enable_shared_from_this<TierReader> {
 public:
  using Manifest = std::shared_ptr<const TierManifest>;
  template <typename T>
  using Done = std::function<void(Result<T>)>;
  using DoneStatus = std::function<void(const Status&)>;
  enum class Which : uint8_t {
    kKept,    // as it was read before, if it was: the copy may be another by now, which read() says (kNotFound)
    kNewest,  // asked for now
  };

  // The environment outlives every call, the store close(). Then the store is closed: its answers are taken until that
  // returns.
  static std::shared_ptr<TierReader> create(Environment& environment, ObjectStore& store,
                                            const TierReadOptions& options = {});

  // The manifest of the copy at a path (below the root, without '/' at its beginning), of whichever commit.
  void find(const std::string& path, Which which, Done<Manifest> done);
  // The manifest of the copy at a path, when it is the copy of this commit; else kNotFound, which says what it is of.
  void find_commit(const std::string& path, const TierCommit& commit, Done<Manifest> done);
  // Reads whole chunks from `first` on into all of `into`, which ends where a chunk or the content does. A failure
  // leaves anything there.
  void read(const Manifest& manifest, ChunkIndex first, std::span<std::byte> into, DoneStatus done);
  // Reads all of `into` from a byte of the content at a path on, whatever it is of: for whoever knows what it must be.
  // kNotFound: it is shorter, or there is none.
  void read_bytes(const std::string& path, uint64_t offset, std::span<std::byte> into, DoneStatus done);
  // Nothing is asked of the store any more, from the moment in which this returns: what waits is kCancelled, what is in
  // progress ends with the store's answer.
  void close();

  uint64_t manifest_bytes_kept() const;
  std::string describe() const { return store_.describe(); }

 private:
  TierReader(Environment& environment, ObjectStore& store, const TierReadOptions& options);
  struct Fetch;
  struct Read;
  struct Kept {
    std::string path;
    Manifest manifest;
    uint64_t bytes = 0;
  };

  // Runs `start` when there is room for one more; it ends with end_request(). `refuse`: after close().
  void begin_request(std::function<void()> start, std::function<void()> refuse);
  void end_request();
  // False: it is too late to call the store.
  bool ask(const std::function<void()>& call);
  void get_manifest(const std::shared_ptr<Fetch>& fetch, size_t length);
  void manifest_arrived(const std::shared_ptr<Fetch>& fetch, const Result<ReadRange>& range);
  void decode(const std::shared_ptr<Fetch>& fetch);
  void look_for_content(const std::shared_ptr<Fetch>& fetch);
  void content_looked_for(const std::shared_ptr<Fetch>& fetch, const Result<ObjectInfo>& found);
  void end_fetch(const std::shared_ptr<Fetch>& fetch, const Status& status);
  void keep(const Fetch& fetch);
  void forget(const std::string& path);
  void get_content(const std::shared_ptr<Read>& read);
  void content_arrived(const std::shared_ptr<Read>& read, const Result<ReadRange>& range);
  void check_content(const std::shared_ptr<Read>& read, const Result<ReadRange>& range);
  void end_read(const std::shared_ptr<Read>& read, const Status& status);

  Environment& environment_;
  ObjectStore& store_;
  const TierReadOptions options_;

  struct Waiting {
    std::function<void()> start, refuse;
  };
  mutable Mutex mutex_;
  bool is_closed_ FPFS_GUARDED_BY(mutex_) = false;
  unsigned in_progress_ FPFS_GUARDED_BY(mutex_) = 0;
  std::deque<Waiting> waiting_ FPFS_GUARDED_BY(mutex_);
  // By path. The store's answer keeps a fetch, so that what a store never answers goes with the store.
  std::map<std::string, std::weak_ptr<Fetch>> fetches_ FPFS_GUARDED_BY(mutex_);
  std::list<Kept> kept_ FPFS_GUARDED_BY(mutex_);  // last used first
  std::map<std::string, std::list<Kept>::iterator> kept_at_ FPFS_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ FPFS_GUARDED_BY(mutex_) = 0;
};

// The bytes of the content that a chunk of the copy has; 0 behind the end.
uint64_t chunk_bytes_of(const TierManifest& manifest, ChunkIndex chunk);

}  // namespace fpfs
