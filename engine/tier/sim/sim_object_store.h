// SimObjectStore: a store outside the simulated machine. What it has survives every power cut of the machine; calls are
// events of the machine's world, so that they happen and are answered in any order, decided by its seed.
//
// A call happens at some moment between its start and its answer, or not at all. What may go wrong, each with a chance
// of its own: it fails and has not happened, it fails and has happened (the answer was lost), and while the store is
// away every call fails so. Content that a caller changes while the store has it aborts.
//
// disconnect() is for the end of the machine: each call under way happens or does not, and is never answered.
//
// Thread safety: none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/sim/sim_environment.h"
#include "engine/tier/object_store.h"

namespace fpfs {

class SimObjectStore final : public ObjectStore {
 public:
  struct Options {
    unsigned failed_percent = 0;  // calls that fail, kUnreachable, and did not happen
    unsigned lost_percent = 0;    // calls that fail, kUnreachable, and happened
    unsigned delay_ms_max = 50;   // until a call happens, and again until it is answered
    uint64_t part_size_min = 1, part_size_max = INT64_MAX;
    uint32_t part_count_max = 10'000;
    std::string tags = "t";  // how they begin
  };
  // Mistakes that whoever uses the store could make, made for it: tests must find each.
  enum class Planted : uint8_t {
    kNone,
    kContentNotAwaited,    // content is taken for stored before it is
    kManifestNotAwaited,   // and so is a manifest
    kPartsMixed,           // the first two parts of an upload change places
    kContentRemovedFirst,  // of a copy that is removed, before its manifest
    kSourceNotKept,        // what is copied to another key is removed before that has a manifest
  };
  struct Object {
    std::vector<std::byte> content;
    ObjectMetadata metadata;
    std::string tag;
  };

  // The world may be another one after each disconnect(). `seed`: of the store's own chances.
  SimObjectStore(uint64_t seed, const Options& options) : random_(seed), options_(options) {}
  ~SimObjectStore() override { disconnect(); }

  // --- the test's side ---------------------------------------------------------------------------------------------
  void connect(SimEnvironment& world) { world_ = &world; }
  void disconnect();
  void set_options(const Options& options) { options_ = options; }
  void set_away(bool away) { is_away_ = away; }
  void plant(Planted planted) { planted_ = planted; }
  // Calls that change something fail with this for the given keys (all when the prefix is empty); ok: none do.
  void refuse(Status failure, std::string prefix = "") {
    refusal_ = std::move(failure);
    refused_prefix_ = std::move(prefix);
  }
  const std::map<std::string, Object>& objects() const { return objects_; }
  std::map<std::string, Object>& objects() { return objects_; }
  size_t uploads_open() const { return uploads_.size(); }
  uint64_t calls() const { return next_call_; }
  uint64_t failed_calls() const { return failed_; }
  size_t under_way() const { return under_way_.size(); }
  // Calls that changed a key while another one did: in which order they happen nobody knows. (Parts of one upload go
  // side by side; what an upload has left that was cut off is in nobody's way.)
  uint64_t conflicts() const { return conflicts_; }
  // The most memory of callers that the store had at a time.
  uint64_t bytes_held_max() const { return bytes_held_max_; }

  // --- ObjectStore -------------------------------------------------------------------------------------------------
  std::string describe() const override { return "sim://store"; }
  uint64_t part_size_min() const override { return options_.part_size_min; }
  uint64_t part_size_max() const override { return options_.part_size_max; }
  uint32_t part_count_max() const override { return options_.part_count_max; }
  void check(DoneStatus done) override;
  void put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
           Done<StoredObject> done) override;
  void begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) override;
  void put_part(const Upload& upload, uint32_t number, uint64_t offset, std::span<const std::byte> content,
                Done<StoredPart> done) override;
  void parts(const Upload& upload, Done<std::vector<StoredPart>> done) override;
  void finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) override;
  void abort_upload(const Upload& upload, DoneStatus done) override;
  void uploads(const std::string& prefix, Done<std::vector<Upload>> done) override;
  void get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
           Done<ReadRange> done) override;
  void head(const std::string& key, Done<ObjectInfo> done) override;
  void list(const ListRequest& request, Done<ListPage> done) override;
  void copy(const std::string& from, const std::string& tag, const std::string& to,
            const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) override;
  void remove(const std::string& key, DoneStatus done) override;
  void remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) override;
  void close() override;

 private:
  struct OpenUpload {
    std::string key;
    ObjectMetadata metadata;
    std::map<uint32_t, Object> parts;
  };
  enum class Fate : uint8_t { kHappens, kFails, kIsLost };
  struct Call {
    Fate fate = Fate::kHappens;
    bool has_happened = false;
    std::string writes = {}, upload = {};       // the key that is changed, and as a part of which upload
    std::span<const std::byte> content;         // of the caller, until the answer
    std::function<void()> happen;               // changes what is stored, and keeps the answer
    std::function<void(const Status&)> answer;  // gives the kept answer, or a failure
  };

  // A call on `key` that ends with what `happen` returns, or with a failure.
  template <typename Answer>
  void start(const std::string& key, bool changes, std::span<const std::byte> content, std::function<Answer()> happen,
             std::function<void(Answer)> done);
  // Of the call that starts next.
  void note_writer(const std::string& key, const std::string& upload = "");
  Fate draw(const std::string& key, bool changes);
  void later(uint64_t number);
  void run(uint64_t number);
  void let_happen(Call& call);
  StoredObject store_object(const std::string& key, Object object);
  bool is_answered_early(const std::string& key) const;

  SimEnvironment* world_ = nullptr;
  SimRandom random_;
  Options options_;
  Planted planted_ = Planted::kNone;
  bool is_away_ = false;
  Status refusal_;
  std::string refused_prefix_;
  std::map<std::string, Object> objects_;
  std::map<std::string, OpenUpload> uploads_;
  std::map<uint64_t, Call> under_way_;
  uint64_t next_call_ = 0, next_tag_ = 0, failed_ = 0;
  uint64_t connection_ = 0;  // counts disconnect(): what was posted before is not for the next world
  uint64_t conflicts_ = 0;
  std::string writes_, upload_;
  uint64_t bytes_held_ = 0, bytes_held_max_ = 0;
};

}  // namespace fpfs
