// TierUpload: the content of one committed version, read from the array (verified), summed up chunk by chunk, and put
// into a store: as a whole when it fits one part, else in parts, several at a time.
//
// Of each call that fails because the store is not reachable there are a few attempts; what has happened although it
// was reported failed is found out (a finished upload by its metadata). Any other failure ends the copy, and so does a
// chunk that cannot be read: an upload that was begun is aborted then.
//
// Thread safety: start() from any thread. What it needs outlives it, from start() until `done`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/committed_version.h"
#include "engine/io/environment.h"
#include "engine/tier/object_store.h"
#include "engine/tier/tier_memory.h"
#include "engine/tier/tier_pace.h"

namespace fpfs {

// Runs something later, or at once when nothing is to go on any more (TierCopier::stop()).
class TierTimer {
 public:
  virtual ~TierTimer() = default;
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  virtual bool is_stopping() const = 0;
  // Before attempt `attempt` (1 is the second): grows with it, drawn at random.
  virtual std::chrono::milliseconds pause(unsigned attempt) = 0;
};

struct TierTools {
  Environment& environment;
  ObjectStore& store;
  TierMemory& memory;
  TierPace& pace;
  TierTimer& timer;
  std::atomic<uint64_t>& bytes_sent;
  uint32_t chunk_size = 0;  // of the array
  uint64_t part_size = 0;   // of files that this many parts of are enough for; a multiple of the chunk size
};

struct TierContent {
  std::string tag;
  bool verified = false;
  std::vector<uint64_t> checksums;  // of each chunk
};

class TierUpload : public std::enable_shared_from_this<TierUpload> {
 public:
  static constexpr unsigned kAttempts = 3;

  struct Source {
    std::string key;
    std::string mark;  // names this upload of this version: no other object has it in its metadata
    std::shared_ptr<const CommittedVersion> version;  // null: of an empty file
    FileImage image;
  };
  struct Failure {
    Status status;
    bool is_of_store = false;  // else the array could not be read
  };
  struct Outcome {
    TierContent content;
    Failure failure;  // ok: `content` is what the store has
  };
  // `done` once, from a thread of the store or of the environment, without locks. The version is let go of before.
  using Done = std::function<void(Outcome)>;
  static void start(const TierTools& tools, Source source, Done done);
  // The size of parts for a file of this size; 0: it is larger than the store or the memory allows.
  static uint64_t part_size_for(const TierTools& tools, uint64_t size);

  TierUpload(const TierTools& tools, Source source, Done done);

 private:
  struct Part;
  using Self = std::shared_ptr<TierUpload>;

  void begin();
  void clear_leftovers();
  void begin_upload(unsigned attempt);
  void take_next_part();
  void part_has_memory(uint64_t number, std::span<std::byte> memory);
  void read(const std::shared_ptr<Part>& part);
  void chunk_read(const std::shared_ptr<Part>& part, ChunkIndex chunk, const Status& status);
  void sum_up(const std::shared_ptr<Part>& part);
  void send(const std::shared_ptr<Part>& part);
  void part_sent(const std::shared_ptr<Part>& part, const Status& status);
  void end_part(const std::shared_ptr<Part>& part);
  void finish_upload(unsigned attempt);
  void look_whether_finished(const Status& failure, unsigned attempt);
  bool tries_again(const Status& status, unsigned attempt, std::function<void()> again);
  void fail(const Status& status, bool is_of_store);
  void end();
  bool has_failed() const;
  uint64_t part_count() const;

  const TierTools tools_;
  Source source_;
  Done done_;
  const ObjectMetadata metadata_;
  const uint64_t size_;
  const uint64_t part_size_;
  std::shared_ptr<ObjectSet> objects_;
  Upload upload_;
  bool is_begun_ = false;

  mutable Mutex mutex_;
  uint64_t next_part_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t in_flight_ FPFS_GUARDED_BY(mutex_) = 0;  // parts, and the one that memory was asked for
  Failure failure_ FPFS_GUARDED_BY(mutex_);
  TierContent content_ FPFS_GUARDED_BY(mutex_);
  std::vector<StoredPart> parts_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
