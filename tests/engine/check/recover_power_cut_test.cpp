// The power is cut during recovery, at every change it makes. Whatever happens, what was committed stays readable, and
// the next recovery finishes the work.
#include <fcntl.h>

#include <gtest/gtest.h>

#include "engine/check/check.h"
#include "engine/codec/hash.h"
#include "engine/index/sidecar.h"
#include "engine/io/scoped_handle.h"
#include "engine/io/sim/sim_environment.h"
#include "tests/support/test_data.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = 64 * 1024;
const std::vector<std::string> kDirectories = {"/m0/a", "/m1/a", "/m2/a"};

class World {
 public:
  explicit World(uint64_t seed) : environment(seed) {
    FormatOptions options;
    options.chunk_size = kChunk;
    const Status status = Array::format(environment, kDirectories, options);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  Storage& storage() { return environment.storage(); }

  std::unique_ptr<Array> open() {
    auto array = Array::open(environment, kDirectories, {});
    EXPECT_TRUE(array.is_ok()) << array.status().message();
    return array.is_ok() ? std::move(array).value() : nullptr;
  }

  // Stores a chunk of generation `generation`, synced.
  Extent write_chunk(Array& array, uint64_t file, uint32_t generation, uint64_t chunk) {
    Extent extent;
    extent.codec = Codec::kRaw;
    extent.member = array.stripes().member_of(FileId(file), ChunkIndex(chunk));
    extent.slot = array.stripes().natural_slot(ChunkIndex(chunk));
    extent.stored_length = extent.raw_length = extent.visible_length = 5000;
    test::AlignedBytes data(8192);
    std::fill(data.span().begin(), data.span().end(), std::byte{0});
    test::fill(data.span().first(5000), file + generation, chunk * kChunk);
    extent.checksum = hash_bytes(data.span().first(5000), chunk_seed(array.id().data(), FileId(file),
                                                                     Generation(generation), ChunkIndex(chunk)));
    const HandleCache::Pin pinned = array.object_directory(extent.member, FileId(file)).value();
    const Handle directory = pinned.get();
    const ScopedHandle object(storage(),
                              *storage().open_at(directory, Array::object_name(FileId(file), Generation(generation)),
                                                 O_RDWR | O_CREAT, 0600));
    EXPECT_TRUE(storage().pwrite(object.get(), data.span(), offset_of(extent.slot, kChunk).value()).is_ok());
    EXPECT_TRUE(storage().fdatasync(object.get()).is_ok());
    EXPECT_TRUE(storage().fsync(directory).is_ok());
    return extent;
  }

  SidecarRecord record_of(Array& array, uint64_t file, uint32_t generation, uint64_t sequence) {
    SidecarRecord record;
    record.sequence = sequence;
    record.generation = Generation(generation);
    record.truncate_from = ChunkIndex(0);
    record.size = 6 * kChunk;
    for (uint64_t chunk = 0; chunk < 6; ++chunk)
      record.extents.emplace_back(chunk, write_chunk(array, file, generation, chunk));
    return record;
  }

  // Appends records to the sidecar `name`; `bytes_missing` of the end are left out.
  void append(Array& array, const std::string& name, uint64_t file, const std::vector<SidecarRecord>& records,
              bool sync, size_t bytes_missing = 0) {
    const ScopedHandle sidecar(storage(), *storage().open_at(array.tree(), name, O_RDWR | O_CREAT, 0600));
    const uint64_t end = static_cast<uint64_t>(storage().fstat(sidecar.get())->st_size);
    const SidecarHeader header{array.id(), FileId(file), kChunk};
    std::vector<std::byte> bytes;
    if (end == 0) bytes = encode_sidecar_header(header);
    for (const SidecarRecord& record : records)
      encode_sidecar_record(header, record, SidecarOffset(end + bytes.size()), SidecarOffset(0), bytes);
    bytes.resize(bytes.size() - bytes_missing);
    EXPECT_TRUE(storage().pwrite(sidecar.get(), bytes, end).is_ok());
    if (!sync) return;
    EXPECT_TRUE(storage().fsync(sidecar.get()).is_ok());
    EXPECT_TRUE(storage().fsync(array.tree()).is_ok());
  }

  // The files that are there, all their data verified; an empty string when anything is wrong.
  std::string verified() {
    CheckOptions options;
    options.verify_data = true;
    const auto report = check_array(environment, kDirectories, options);
    if (!report.is_ok()) return report.status().message();
    std::string text = std::to_string(report->files) + " files, " + std::to_string(report->bytes_verified) + " bytes";
    for (const CheckError& error : report->errors) text += "; " + error.kind + " " + error.path + " " + error.detail;
    return text;
  }

  SimEnvironment environment;
};

// Files "kept" and "rewritten", and everything that a crash leaves.
void prepare(World& world, bool power_was_cut) {
  const auto array = world.open();
  world.append(*array, "kept", 0x11, {world.record_of(*array, 0x11, 0, 1)}, true);
  world.append(*array, "torn", 0x12, {world.record_of(*array, 0x12, 0, 1)}, true);
  world.append(*array, "torn", 0x12, {world.record_of(*array, 0x12, 1, 2)}, true, 200);
  world.record_of(*array, 0x13, 0, 1);     // never committed
  world.write_chunk(*array, 0x11, 0, 40);  // beyond what the commit names
  world.append(*array, "rewritten", 0x14, {world.record_of(*array, 0x14, 0, 1)}, true);
  world.append(*array, "unlinked", 0x15, {world.record_of(*array, 0x15, 0, 1)}, true);
  EXPECT_TRUE(array->mark_dirty().is_ok());
  if (power_was_cut) return;
  // Only the daemon died: what it did last is there to see, and not durable.
  world.append(*array, "rewritten", 0x14, {world.record_of(*array, 0x14, 1, 2)}, false);
  EXPECT_TRUE(world.storage().unlink(array->tree(), "unlinked").is_ok());
}

Status recover(World& world) {
  const auto array = Array::open(world.environment, kDirectories, {});
  if (!array.is_ok()) return array.status();
  return recover_array(world.environment, **array).status();
}

void cut_everywhere(bool power_was_cut) {
  const std::string done = std::string(power_was_cut ? "4 files, 120000" : "3 files, 90000") + " bytes";
  uint64_t boundaries = 0;
  {
    World world(1);
    prepare(world, power_was_cut);
    const uint64_t before = world.environment.boundaries();
    ASSERT_TRUE(recover(world).is_ok());
    boundaries = world.environment.boundaries() - before;
    ASSERT_EQ(world.verified(), done);
  }
  ASSERT_GT(boundaries, 10u);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (uint64_t cut = 1; cut <= boundaries; ++cut) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", cut " + std::to_string(cut));
      World world(seed);
      prepare(world, power_was_cut);
      world.environment.cut_at(world.environment.boundaries() + cut);
      (void)recover(world);
      world.environment.stop();
      world.environment.crash();
      ASSERT_TRUE(recover(world).is_ok());
      const std::string after = world.verified();
      // Names whose removal was not durable may be back, then with all their data.
      const bool name_is_back = !power_was_cut && after == "4 files, 120000 bytes";
      ASSERT_TRUE(after == done || name_is_back) << after;
    }
  }
}

TEST(RecoverPowerCut, AfterAPowerCut) {
  cut_everywhere(true);
}

TEST(RecoverPowerCut, AfterAKilledDaemon) {
  cut_everywhere(false);
}

}  // namespace
}  // namespace fpfs
