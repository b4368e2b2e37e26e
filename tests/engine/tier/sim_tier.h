// An array in a simulated world, whose files are copied to a simulated store outside of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/codec/hash.h"
#include "engine/tier/sim/sim_object_store.h"
#include "engine/tier/tier_copier.h"
#include "engine/tier/tier_lost.h"
#include "engine/tier/tier_manifest.h"
#include "engine/tier/tier_note.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {

inline StoreOptions tier_store_options() {
  StoreOptions options;
  options.inline_max = 4096;
  options.heal_timeout_ms = 0;  // the world's clock may jump
  return options;
}

inline TierCopyOptions tier_copy_options() {
  TierCopyOptions options;
  options.memory = uint64_t{8} * kTestChunk;
  options.connections = 3;
  options.part_size = uint64_t{2} * kTestChunk;
  options.pause_first = std::chrono::milliseconds(100);
  options.pause_max = std::chrono::milliseconds(2000);
  options.failed_pause = std::chrono::milliseconds(5000);
  options.scan_interval = std::chrono::milliseconds(0);
  return options;
}

class SimTier {
 public:
  explicit SimTier(uint64_t seed, const SimObjectStore::Options& store_options = {},
                   const TierCopyOptions& copy_options = tier_copy_options(),
                   const StoreOptions& array_options = tier_store_options())
      : array_(seed, 3, array_options), objects_(seed ^ 0x7469657273, store_options), options_(copy_options) {
    connect();
  }
  ~SimTier() { leave(); }

  SimArray& array() { return array_; }
  SimEnvironment& world() { return array_.world(); }
  SimObjectStore& objects() { return objects_; }
  TierCopier& copier() { return *copier_; }
  TierCopyOptions& options() { return options_; }
  // What a mount does: a copier that is told of commits, not begun yet.
  void connect() {
    objects_.connect(world());
    options_.lost = options_.shares ? TierLost::open(array_.store(), objects_.describe()) : nullptr;
    Result<std::unique_ptr<TierCopier>> copier = TierCopier::create(world(), array_.store(), objects_, options_);
    EXPECT_TRUE(copier.is_ok()) << copier.status().message();
    copier_ = std::move(*copier);
    array_.store().on_commit([this](uint64_t inode, uint64_t sequence, bool is_moved) {
      if (copier_ != nullptr && !is_deaf_) copier_->committed(inode, sequence, is_moved);
    });
    array_.store().on_names([this](const Store::NameEvent& event) {
      if (!event.is_ahead && before_told_ != nullptr) before_told_();
      if (copier_ != nullptr && !is_deaf_) copier_->changed(event);
    });
    array_.store().tell_names(true);
  }
  void set_deaf(bool deaf) { is_deaf_ = deaf; }  // commits are not told
  // What others do between a change of names and when it is told.
  void before_told(std::function<void()> others) { before_told_ = std::move(others); }
  // The machine or the process is gone; the store is not.
  void leave() {
    world().stop();
    leave_store();
  }
  void leave_store() {
    objects_.disconnect();
    copier_ = nullptr;
    options_.lost = nullptr;
  }
  // In order: false when that takes for ever.
  bool stop() {
    bool stopped = false;
    copier_->stop([&stopped] { stopped = true; });
    return world().run_until([&stopped] { return stopped; });
  }
  Status wait_for_all() {
    return outcome_of([this](const TierCopier::Done& done) { copier_->wait_for_all(done); });
  }
  Status wait_for(const std::string& path) {
    return outcome_of([this, &path](TierCopier::Done done) { copier_->wait_for(path, std::move(done)); });
  }

  std::shared_ptr<File> save(const std::string& name, const Bytes& content) {
    std::shared_ptr<File> file = array_.create(name);
    EXPECT_TRUE(write(*file, content).is_ok());
    EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kClose).is_ok());
    return file;
  }
  Status replace(File& file, const Bytes& content) {
    FPFS_RETURN_IF_ERROR(array_.control(file, ControlRequest::Kind::kTruncate, 0));
    FPFS_RETURN_IF_ERROR(write(file, content));
    return array_.commit(file);
  }
  Status write(File& file, std::span<const std::byte> content) {
    constexpr size_t kAtOnce = 400'000;
    for (size_t begin = 0; begin < content.size(); begin += kAtOnce)
      FPFS_RETURN_IF_ERROR(
          array_.write(file, begin, content.subspan(begin, std::min(kAtOnce, content.size() - begin))));
    return Status::ok();
  }
  // The manifest of a path that can be read; nothing: there is none.
  std::optional<TierManifest> manifest(const std::string& path) const {
    const auto found = objects_.objects().find(manifest_key(path));
    if (found == objects_.objects().end()) return std::nullopt;
    const Result<TierManifest> read = decode_manifest(found->second.content);
    EXPECT_TRUE(read.is_ok()) << path << ": " << read.status().message();
    return read.is_ok() ? std::optional<TierManifest>(*read) : std::nullopt;
  }
  // The content of a copy, as whoever restores it would take it. Nothing: there is no copy.
  std::optional<Bytes> copy(const std::string& path) const {
    const std::optional<TierManifest> described = manifest(path);
    const auto found = objects_.objects().find(path);
    if (!described.has_value() || found == objects_.objects().end()) return std::nullopt;
    const SimObjectStore::Object& object = found->second;
    if (object.tag != described->content_tag || object.content.size() != described->size) return std::nullopt;
    return object.content;
  }
  // Whether the chunks are those that the manifest describes.
  static bool is_described(const TierManifest& manifest, std::span<const std::byte> content) {
    for (size_t chunk = 0; chunk < manifest.checksums.size(); ++chunk) {
      const size_t begin = chunk * manifest.chunk_size;
      const size_t length = std::min<size_t>(manifest.chunk_size, content.size() - begin);
      if (hash_bytes(content.subspan(begin, length)) != manifest.checksums[chunk]) return false;
    }
    return true;
  }
  std::optional<TierNote> note(const std::string& name) {
    Result<Store::Node> node = array_.store().lookup(array_.store().root(), name);
    if (!node.is_ok()) return std::nullopt;
    std::array<std::byte, TierNote::kBytes> bytes;
    const auto length = array_.sim().get_xattr(node->handle.get(), TierNote::kAttribute, bytes);
    node->handle.reset();
    if (!length.is_ok()) return std::nullopt;
    const Result<TierNote> note = decode_note(std::span(bytes).first(*length));
    return note.is_ok() ? std::optional<TierNote>(*note) : std::nullopt;
  }

 private:
  template <typename Start>
  Status outcome_of(Start start) {
    auto result = std::make_shared<std::optional<Status>>();
    start([result](const Status& status) {
      EXPECT_FALSE(result->has_value()) << "told twice";
      *result = status;
    });
    EXPECT_TRUE(world().run_until([&result] { return result->has_value(); })) << "nobody was told";
    return result->value_or(Status::error(StatusCode::kSystem, "no answer"));
  }

  SimArray array_;
  SimObjectStore objects_;
  TierCopyOptions options_;
  std::unique_ptr<TierCopier> copier_;
  bool is_deaf_ = false;
  std::function<void()> before_told_;
};

}  // namespace fpfs::test
