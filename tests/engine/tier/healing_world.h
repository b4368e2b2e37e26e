// An array in a simulated world whose files are copied, and which gets damaged chunks back from there.
#pragma once

#include <fcntl.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/tier/tier_chunk_source.h"
#include "engine/tier/tier_reader.h"
#include "tests/engine/tier/sim_tier.h"

namespace fpfs::test {

// How a chunk's place on its member is spoilt.
enum class Damage : uint8_t { kBit, kShortObject, kMissingObject, kReadErrorOnce, kReadError };
inline constexpr Damage kDamages[] = {Damage::kBit, Damage::kShortObject, Damage::kMissingObject,
                                      Damage::kReadErrorOnce, Damage::kReadError};

class HealingWorld {
 public:
  explicit HealingWorld(uint64_t seed, const SimObjectStore::Options& options = {},
                        const StoreOptions& array_options = tier_store_options())
      : tier_(seed, options, tier_copy_options(), array_options) {
    connect();
  }
  ~HealingWorld() { reader_->close(); }  // what waits for answers that never come knows the reader

  SimTier& tier() { return tier_; }
  SimArray& array() { return tier_.array(); }
  SimEnvironment& world() { return tier_.world(); }
  SimObjectStore& objects() { return tier_.objects(); }
  Store& store() { return array().store(); }
  TierReader& reader() { return *reader_; }
  StoreStatus status() { return store().status(); }

  // As a mount does.
  void connect() {
    if (reader_ != nullptr) reader_->close();
    reader_ = TierReader::create(world(), objects());
    store().set_chunk_source(std::make_shared<TierChunkSource>(reader_, store().array().id()));
  }
  void disconnect() { store().set_chunk_source(nullptr); }

  // Made, committed and copied.
  void save(const std::string& name, const Bytes& content, bool compressed = false) {
    std::shared_ptr<File> file = array().create(name);
    if (compressed) file->set_compression(Compression{Compression::Mode::kZstd, 1});
    ASSERT_TRUE(tier_.write(*file, content).is_ok());
    ASSERT_TRUE(array().control(*file, ControlRequest::Kind::kClose).is_ok());
  }
  // Copies everything that is committed now, and stops.
  void copy() {
    tier_.copier().open();
    const Status copied = tier_.wait_for_all();
    ASSERT_TRUE(copied.is_ok()) << copied.message();
  }
  // The content of what is copied leaves the members. kNotFound: it is not copied.
  Status send_away(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, array().try_open(name));
    const std::optional<TierNote> note = tier_.note(name);
    const std::optional<TierManifest> manifest = tier_.manifest(name);
    const File::Info info = file->info();
    if (!note.has_value() || note->sequence != info.sequence || !manifest.has_value() || !tier_.copy(name).has_value())
      return Status::error(StatusCode::kNotFound, "not copied");
    FPFS_RETURN_IF_ERROR(file->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(name)), true));
    return send_away(*file, info.sequence, manifest->checksums);
  }
  Status send_away(File& file, uint64_t sequence, std::span<const uint64_t> checksums) {
    const auto answer = std::make_shared<std::optional<Status>>();
    file.send_away(sequence, checksums, [answer](const Status& status) { *answer = status; });
    world().run_until([answer] { return answer->has_value(); });
    return answer->value_or(Status::error(StatusCode::kCancelled, "no answer"));
  }
  // Ends the array in order, and opens it again: nothing is in memory, and nothing is copied any more.
  void reopen(bool read_only = false) {
    ASSERT_TRUE(tier_.stop());
    tier_.leave_store();
    const Status closed = array().close();
    ASSERT_TRUE(closed.is_ok()) << closed.message();
    const Status opened = array().try_open_array(read_only);
    ASSERT_TRUE(opened.is_ok()) << opened.message();
    tier_.connect();
    connect();
  }

  Extent extent(File& file, uint64_t chunk) {
    const auto found = file.map(ChunkIndex(chunk), 1);
    EXPECT_TRUE(found.size() == 1 && found[0].chunk == ChunkIndex(chunk));
    return found.empty() ? Extent() : found[0].extent;
  }
  // Where the objects of a file are in the simulated world.
  std::string object_of(File& file, MemberIndex member) {
    const File::Info info = file.info();
    const std::string name = Array::object_name(info.file_id, info.generation);
    for (const std::string& path : world().sim().files_below(array().paths()[member.value()] + "/objects"))
      if (path.ends_with("/" + name)) return path;
    return "";
  }
  void damage(const std::string& name, uint64_t chunk, Damage damage) {
    std::shared_ptr<File> file = array().open(name);
    const Extent at = extent(*file, chunk);
    const std::string object = object_of(*file, at.member);
    file = nullptr;
    spoil(object, at, damage);
  }
  // Of several members, say.
  void spoil(const std::string& object, const Extent& at, Damage damage) {
    SimStorage& sim = world().sim();
    const uint64_t offset = offset_of(at.slot, kTestChunk).value();
    SimFault fault;
    switch (damage) {
      case Damage::kBit:
        ASSERT_TRUE(sim.flip_bit(object, offset + at.stored_length / 2, 5)) << object;
        return;
      case Damage::kShortObject: {
        const ScopedHandle file = open_in(object, O_RDWR);
        ASSERT_TRUE(sim.ftruncate(file.get(), offset + std::min(at.stored_length / 2, 4096U)).is_ok());
        return;
      }
      case Damage::kMissingObject: {
        const size_t slash = object.rfind('/');
        const Result<Handle> directory = sim.open_directory(object.substr(0, slash));
        ASSERT_TRUE(directory.is_ok());
        EXPECT_TRUE(sim.unlink(*directory, object.substr(slash + 1)).is_ok());
        sim.close(*directory);
        return;
      }
      case Damage::kReadError:
      case Damage::kReadErrorOnce:
        fault.call = SimFault::Call::kRead;
        fault.filesystem = at.member.value() + 1;
        fault.role = SimRole::kObjects;
        fault.count = damage == Damage::kReadError ? SimFault::kForever : 1;
        sim.inject(fault);
        return;
    }
  }
  Result<Bytes> read(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, array().try_open(name));
    return array().read_all(*file);
  }
  // What is healed, and what is on its way back, comes to rest. (Of delayed tasks some run early.)
  void settle() {
    for (unsigned i = 0; i < 6; ++i) pass(1000);
  }
  void pass(unsigned ms) {
    const uint64_t until = now_ms() + ms;
    world().executor().post_after(std::chrono::milliseconds(ms), [] {});
    world().run_until([&] { return now_ms() >= until; });
  }
  uint64_t now_ms() {
    const struct timespec now = world().now();
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
  }

 private:
  ScopedHandle open_in(const std::string& path, int flags) {
    SimStorage& sim = world().sim();
    const size_t slash = path.rfind('/');
    const Result<Handle> directory = sim.open_directory(path.substr(0, slash));
    EXPECT_TRUE(directory.is_ok());
    const Result<Handle> file = sim.open_at(*directory, path.substr(slash + 1), flags);
    EXPECT_TRUE(file.is_ok());
    sim.close(*directory);
    return ScopedHandle(sim, *file);
  }

  SimTier tier_;
  std::shared_ptr<TierReader> reader_;
};

// Content that compression makes much smaller; another for each salt, and at each place.
inline Bytes make_compressible(size_t length, uint64_t salt) {
  Bytes data = make_bytes(length, salt);
  std::byte* const bytes = data.data();  // a test's operator[] is a call
  for (size_t i = 0; i < length; ++i) bytes[i] = (i & 3) == 0 ? bytes[i] & std::byte{0x0f} : std::byte{0};
  return data;
}

}  // namespace fpfs::test
