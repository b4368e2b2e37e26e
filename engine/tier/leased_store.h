// LeasedStore: an ObjectStore that changes nothing any more once what an array has copied there has become another
// array's, or a newer state of the array copies there (tier_fence.h). Before a call that changes something begins, the
// array's fence was seen to be its own less than `lease` ago; else it is read before. Reading is not bound by it.
//
// So whoever takes the copies over writes the fence, waits for `lease` and for what was begun by then, and is alone: a
// machine that still runs, or comes back from behind a network that was cut, replaces nothing.
//
// Errors besides those of the store: kWrongStore of calls that change something, once the fence was not the array's.
// What could not be found out fails as reading the fence did.
//
// Thread safety: as of ObjectStore; own() and is_lost() from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/tier/object_store.h"
#include "engine/tier/tier_fence.h"

namespace fpfs {

class LeasedStore : public ObjectStore {
 public:
  // `fences`: tokens that are the array's own; with an empty one among them also none. `array_id` as text.
  LeasedStore(std::unique_ptr<ObjectStore> store, std::string array_id, std::chrono::milliseconds lease,
              std::vector<std::string> fences)
      : store_(std::move(store)), array_id_(std::move(array_id)), lease_(lease), fences_(std::move(fences)) {}

  // The array's own from now on. Before one of them is written.
  void own(std::vector<std::string> fences);
  // The copies have become another array's.
  bool is_lost() const;

  std::string describe() const override { return store_->describe(); }
  uint64_t part_size_min() const override { return store_->part_size_min(); }
  uint64_t part_size_max() const override { return store_->part_size_max(); }
  uint32_t part_count_max() const override { return store_->part_count_max(); }

  void put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
           Done<StoredObject> done) override;
  void begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) override;
  void put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                Done<StoredPart> done) override;
  void finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) override;
  void abort_upload(const Upload& upload, DoneStatus done) override;
  void copy(const std::string& from, const std::string& tag, const std::string& to,
            const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) override;
  void remove(const std::string& key, DoneStatus done) override;
  void remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) override;

  void check(DoneStatus done) override { store_->check(std::move(done)); }
  void parts(const Upload& upload, Done<std::vector<StoredPart>> done) override {
    store_->parts(upload, std::move(done));
  }
  void uploads(const std::string& prefix, Done<std::vector<Upload>> done) override {
    store_->uploads(prefix, std::move(done));
  }
  void get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
           Done<ReadRange> done) override {
    store_->get(key, offset, into, tag, std::move(done));
  }
  void head(const std::string& key, Done<ObjectInfo> done) override { store_->head(key, std::move(done)); }
  void list(const ListRequest& request, Done<ListPage> done) override { store_->list(request, std::move(done)); }
  void close() override { store_->close(); }

 private:
  using Clock = std::chrono::steady_clock;
  using Then = std::function<void(const Status&)>;

  // Calls `then` once it is known whether the array may change something: at once, or on a thread of the store.
  void when_known(const Then& then);
  void was_read(const Result<TierFence>& stored);

  const std::unique_ptr<ObjectStore> store_;
  const std::string array_id_;
  const std::chrono::milliseconds lease_;
  mutable Mutex mutex_;
  std::vector<std::string> fences_ FPFS_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> seen_at_ FPFS_GUARDED_BY(mutex_);  // as the array's own, the last time
  Clock::time_point asked_at_ FPFS_GUARDED_BY(mutex_){};
  bool is_asked_ FPFS_GUARDED_BY(mutex_) = false;
  bool is_lost_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<Then> waiting_ FPFS_GUARDED_BY(mutex_);
};

}  // namespace fpfs
