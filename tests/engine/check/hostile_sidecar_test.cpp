// Sidecars whose checksums are right and whose numbers are not: whatever a field says, nothing that opens, reads,
// changes, checks or repairs such a file ends the process, takes memory that goes with the number, or never ends; and
// the file beside it is as it was.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "engine/file/slot_map.h"
#include "engine/index/sidecar_format.h"
#include "engine/store/scrub.h"
#include "engine/store/store.h"
#include "tests/engine/check/hand_made_array.h"
#include "tests/support/sanitizers.h"

namespace fpfs {
namespace {

using namespace sidecar;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kChunk = HandMadeArray::kChunkSize;
constexpr uint64_t kHostile = 0x100000011;
constexpr uint64_t kGood = 0x200000022;
constexpr uint64_t kGoodSize = 3 * kChunk + 77;
constexpr uint64_t kTrailerSeed = 0x6c69617472504653;  // docs/format.md
constexpr SlotIndex kSlotMax(kFileSizeMax / kChunk - 1);
constexpr uint64_t kChunkMax = kFileSizeMax / kChunk;

// What a working file takes, with room for a machine that is slow. A bitmap up to slot 2^33 is four times as much.
constexpr uint64_t kAddressSpaceMax = 4 * kGiB;
constexpr uint64_t kResidentMax = 256 * kMiB;
constexpr unsigned kSecondsMax = 60;

// The last record of a log, opened up: its fields can be set to anything, and sign() makes its checksums right again.
class OpenRecord {
 public:
  OpenRecord(const Uuid& array, Bytes& log, SidecarOffset offset) : array_(array), log_(log), offset_(offset) {}

  std::byte* head() { return &log_[offset_.value()]; }
  std::byte* extent(size_t index) { return head() + kHeadSize + index * kExtentSize; }
  std::byte* trailer() { return &log_[log_.size() - kSidecarTrailerSize]; }
  void set_sequence(uint64_t sequence) {
    put_u64(head() + head_at::kSequence, sequence);
    put_u64(trailer() + trailer_at::kSequence, sequence);
  }
  void set_size(uint64_t size) {
    put_u64(head() + head_at::kSize, size);
    put_u64(trailer() + trailer_at::kSize, size);
  }
  void set_allocated(uint64_t bytes) {
    put_u64(head() + head_at::kAllocated, bytes);
    put_u64(trailer() + trailer_at::kAllocated, bytes);
  }
  void sign() {
    const std::span<std::byte> record = std::span(log_).subspan(offset_.value());
    const std::span<std::byte> body = record.subspan(kHeadSize, record.size() - kHeadSize - kSidecarTrailerSize);
    const uint64_t seed = record_seed(array_, FileId(kHostile), offset_);
    put_u64(head() + head_at::kBodyChecksum, hash_bytes(body, seed));
    put_u64(head() + head_at::kHeadChecksum, hash_bytes(record.first(head_at::kHeadChecksum), seed));
    put_u64(trailer() + trailer_at::kChecksum,
            hash_bytes(std::span(trailer(), trailer_at::kChecksum), kTrailerSeed ^ log_.size()));
  }

 private:
  const Uuid& array_;
  Bytes& log_;
  const SidecarOffset offset_;
};

struct Case {
  const char* name;
  std::function<void(SidecarRecord&)> make;    // what the encoder takes
  std::function<void(OpenRecord&)> overwrite;  // what it does not
};

void put_into_slot(SidecarRecord& record, size_t index, SlotIndex slot) {
  record.extents[index].second.slot = slot;
}

std::vector<Case> cases() {
  const auto nothing = [](auto&) {};
  const auto head_u64 = [](size_t at, uint64_t value) {
    return [=](OpenRecord& record) { put_u64(record.head() + at, value); };
  };
  const auto trailer_u64 = [](size_t at, uint64_t value) {
    return [=](OpenRecord& record) { put_u64(record.trailer() + at, value); };
  };
  const auto extent_u32 = [](size_t at, uint32_t value) {
    return [=](OpenRecord& record) { put_u32(record.extent(1) + at, value); };
  };
  std::vector<Case> all = {
      {"the highest slot", [](SidecarRecord& r) { put_into_slot(r, 2, kSlotMax); }, nothing},
      {"a slot of 512 TiB", [](SidecarRecord& r) { put_into_slot(r, 2, SlotIndex(uint64_t{1} << 33)); }, nothing},
      {"slots far apart",
       [](SidecarRecord& r) {
         for (size_t i = 0; i < r.extents.size(); ++i) put_into_slot(r, i, SlotIndex(uint64_t{1} << (20 + 2 * i)));
       },
       nothing},
      {"one slot twice", [](SidecarRecord& r) { r.extents[3].second = r.extents[0].second; }, nothing},
      {"the highest chunk",
       [](SidecarRecord& r) {
         r.size = kFileSizeMax;
         r.extents.back().first = ChunkIndex(kChunkMax);
       },
       nothing},
      {"a chunk behind the highest",
       [](SidecarRecord& r) {
         r.size = kFileSizeMax;
         r.extents.back().first = ChunkIndex(kChunkMax + 1);
       },
       nothing},
      {"extents behind the end", [](SidecarRecord& r) { r.size = 1; }, nothing},
      {"the highest size", [](SidecarRecord& r) { r.size = kFileSizeMax; }, nothing},
      {"the highest size and nothing in it",
       [](SidecarRecord& r) {
         r.size = kFileSizeMax;
         r.extents.clear();
       },
       nothing},
      {"inline content of the highest size",
       [](SidecarRecord& r) {
         r.size = kFileSizeMax;
         r.extents.clear();
         r.has_inline = true;
         r.inline_data.assign(100, std::byte{7});
       },
       nothing},
      {"the highest generation", [](SidecarRecord& r) { r.generation = Generation(UINT32_MAX); }, nothing},
      {"everything truncated",
       [](SidecarRecord& r) {
         r.snapshot = false;
         r.truncate_from = ChunkIndex(UINT64_MAX);
       },
       nothing},
      {"a size behind the highest", nothing, [](OpenRecord& r) { r.set_size(kFileSizeMax + 1); }},
      {"all bits of the size", nothing, [](OpenRecord& r) { r.set_size(UINT64_MAX); }},
      {"more allocated than there can be", nothing, [](OpenRecord& r) { r.set_allocated(UINT64_MAX); }},
      {"extents of 171 GB", nothing, [](OpenRecord& r) { put_u32(r.head() + head_at::kExtentCount, UINT32_MAX); }},
      {"inline content of 4 GB", nothing,
       [](OpenRecord& r) { put_u32(r.head() + head_at::kInlineLength, UINT32_MAX); }},
      {"a length of all bits", nothing, head_u64(head_at::kLength, UINT64_MAX)},
      {"a record elsewhere", nothing, trailer_u64(trailer_at::kRecordOffset, UINT64_MAX - 7)},
      {"a snapshot elsewhere", nothing, trailer_u64(trailer_at::kSnapshotOffset, ~uint64_t{4095})},
      {"a stored length of all bits", nothing, extent_u32(extent_at::kStoredLength, UINT32_MAX)},
      {"a raw length of all bits", nothing, extent_u32(extent_at::kRawLength, UINT32_MAX)},
      {"a visible length of all bits", nothing, extent_u32(extent_at::kVisibleLength, UINT32_MAX)},
      {"a slot of all bits", nothing, [](OpenRecord& r) { put_u64(r.extent(1) + extent_at::kSlot, UINT64_MAX); }},
      {"a chunk of all bits", nothing, [](OpenRecord& r) { put_u64(r.extent(10) + extent_at::kChunk, UINT64_MAX); }},
      {"a member of all bits", nothing, [](OpenRecord& r) { put_u16(r.extent(1) + extent_at::kMember, UINT16_MAX); }},
  };
  for (const uint64_t sequence :
       {uint64_t{1} << 62, uint64_t{1} << 63, (uint64_t{1} << 63) + 1, UINT64_MAX - 1, UINT64_MAX})
    all.push_back({"a high sequence", nothing, [sequence](OpenRecord& r) { r.set_sequence(sequence); }});
  return all;
}

class HostileSidecar : public testing::Test {
 protected:
  HostileSidecar() { array_.add_file("/good", {kGood, 0, kGoodSize, 5}); }

  // /hostile: a snapshot of eleven chunks, whose objects are there and right, after `change`.
  void write_hostile(const Case& change) {
    HandMadeArray::Spec spec{kHostile, 0, 10 * kChunk + 1234, 1};
    SidecarRecord record;
    record.sequence = 1;
    record.snapshot = true;
    record.size = spec.size;
    for (uint64_t chunk = 0; chunk <= 10; ++chunk) record.extents.emplace_back(chunk, array_.write_chunk(spec, chunk));
    change.make(record);
    const SidecarHeader header{array_.id, FileId(kHostile), kChunk};
    Bytes log = encode_sidecar_header(header);
    const SidecarOffset offset = encode_sidecar_record(header, record, kFirstRecord, SidecarOffset(0), log);
    OpenRecord open(array_.id, log, offset);
    change.overwrite(open);
    open.sign();
    std::filesystem::remove(array_.sidecar("/hostile"));
    HandMadeArray::write_at(array_.sidecar("/hostile"), 0, log);
  }

  // In a process of its own, with a limit on memory and time: what it does there is lived through. Under a sanitizer in
  // this one: it says itself what went wrong, changes what memory is taken, and TSan knows no threads behind a fork.
  void survives(const std::string& what, const std::function<void()>& act) {
    if (test::kIsSanitized) {
      SCOPED_TRACE(what);
      return act();
    }
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const struct rlimit address_space { kAddressSpaceMax, kAddressSpaceMax };
      const struct rlimit no_core {};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::setrlimit(RLIMIT_AS, &address_space);
      ::alarm(kSecondsMax);
      [&]() noexcept { act(); }();  // nothing that is thrown gets back to the framework, which would go on here
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    struct rusage usage {};
    ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
    EXPECT_TRUE(WIFEXITED(status)) << what << ": ended by signal " << WTERMSIG(status)
                                   << (WTERMSIG(status) == SIGALRM ? ": it does not end" : "");
    EXPECT_TRUE(!WIFEXITED(status) || WEXITSTATUS(status) == 0) << what;
    EXPECT_LT(static_cast<uint64_t>(usage.ru_maxrss) * kKiB, kResidentMax) << what << ": " << usage.ru_maxrss << " KiB";
  }

  static void read_some(Store& store, File& file) {
    Bytes buffer(2 * kChunk);
    for (const uint64_t offset : {uint64_t{0}, 3 * uint64_t{kChunk}, 10 * uint64_t{kChunk}, kFileSizeMax - 2 * kChunk})
      (void)store.read_sync(file, FileOffset(offset), buffer);
    for (const bool hole : {false, true}) (void)file.seek(FileOffset(0), hole);
    (void)file.map(ChunkIndex(0), 1000);
    (void)file.map(ChunkIndex(UINT64_MAX), 1000);
    (void)file.info();
    struct stat attributes {};
    file.overlay(attributes);
  }

  // Every call that can change the file, each as far as it goes.
  static void change_all(Store& store, File& file) {
    const Bytes data(kChunk + 100, std::byte{3});
    (void)store.write_sync(file, offset_of(ChunkIndex(10), kChunk), data);
    (void)store.write_sync(file, FileOffset(100), data);
    (void)store.commit_sync(file);
    (void)store.punch_sync(file, FileOffset(0), 2 * kChunk);
    (void)store.commit_sync(file);
    (void)store.truncate_sync(file, 4 * kChunk);
    (void)store.commit_sync(file);
    (void)store.truncate_sync(file, 0);
    (void)store.write_sync(file, FileOffset(0), data);
    (void)store.commit_sync(file);
  }

  static Result<std::shared_ptr<File>> open_file(Store& store, const std::string& name, bool for_writing) {
    FPFS_ASSIGN_OR_RETURN(Store::Node node, store.lookup(store.root(), name));
    Result<std::shared_ptr<File>> file = store.open_file(node.handle.get(), for_writing);
    node.handle.reset();
    return file;
  }

  // What a mount does with the file; `change`: also everything that writes.
  void use(bool change) {
    PosixEnvironment environment(2);
    StoreOptions options;
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    auto store = Store::open(environment, array_.directories, options);
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    if (const auto file = open_file(**store, "hostile", change); file.is_ok()) {
      read_some(**store, **file);
      if (change) change_all(**store, **file);
    } else {
      EXPECT_EQ(file.status().code(), StatusCode::kCorruption) << file.status().message();
    }
    {
      Scrub scrub(**store);
      scrub.open();
      ASSERT_TRUE(scrub.start(0).is_ok());
      while (scrub.report().state.phase == ScrubState::Phase::kRunning) ::usleep(1000);
      EXPECT_EQ(scrub.report().state.phase, ScrubState::Phase::kFinished) << scrub.report().note;
      EXPECT_EQ(scrub.report().state.files, 2u);
    }
    const auto good = open_file(**store, "good", false);
    ASSERT_TRUE(good.is_ok());
    Bytes found(kGoodSize), written(kGoodSize);
    test::fill(written, 5, 0);
    EXPECT_EQ((*store)->read_sync(**good, FileOffset(0), found).value(), kGoodSize);
    EXPECT_TRUE(found == written);
    (void)(*store)->close();
  }

  void check(Repair repair) {
    PosixEnvironment environment(2);
    CheckOptions options;
    options.repair = repair;
    options.verify_data = true;
    options.buffered_members = true;
    const auto report = check_array(environment, array_.directories, options);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    for (const CheckError& error : report->errors) EXPECT_NE(error.path, "/good") << error.detail;
  }

  void survives_everything(const std::string& name, const std::function<void()>& prepare) {
    prepare();
    survives(name + ", read", [&] { use(false); });
    survives(name + ", changed", [&] { use(true); });
    survives(name + ", changed and checked", [&] { check(Repair::kNone); });
    prepare();
    survives(name + ", checked", [&] { check(Repair::kPreen); });
    survives(name + ", set aside", [&] { check(Repair::kYes); });
  }

  HandMadeArray array_;
};

TEST_F(HostileSidecar, NoNumberEndsTheProcessOrTakesItsMemory) {
  for (const Case& each : cases()) {
    survives_everything(each.name, [&] { write_hostile(each); });
    if (HasFatalFailure()) return;
  }
}

// The file is longer than all drives, by holes: its length is no measure of what a record may take.
TEST_F(HostileSidecar, ARecordMadeOfHolesTakesNoMemory) {
  survives_everything("holes", [&] {
    const SidecarHeader header{array_.id, FileId(kHostile), kChunk};
    Bytes log = encode_sidecar_header(header);
    Bytes head(kHeadSize);
    const uint64_t length = kHeadSize + uint64_t{UINT32_MAX} * kExtentSize + kSidecarTrailerSize;
    put_u64(&head[head_at::kMagic], kHeadMagic);
    put_u64(&head[head_at::kLength], length);
    put_u64(&head[head_at::kSequence], 1);
    put_u64(&head[head_at::kFileId], kHostile);
    put_u64(&head[head_at::kSize], kChunk);
    put_u32(&head[head_at::kExtentCount], UINT32_MAX);
    put_u64(&head[head_at::kHeadChecksum], hash_bytes(std::span(head).first(head_at::kHeadChecksum),
                                                      record_seed(array_.id, FileId(kHostile), kFirstRecord)));
    log.insert(log.end(), head.begin(), head.end());
    std::filesystem::remove(array_.sidecar("/hostile"));
    HandMadeArray::write_at(array_.sidecar("/hostile"), 0, log);
    std::filesystem::resize_file(array_.sidecar("/hostile"), kSidecarHeaderSize + length);
  });
}

TEST_F(HostileSidecar, TimesOfAnySizeAreShown) {
  const Case unchanged{"", [](SidecarRecord&) {}, [](OpenRecord&) {}};
  for (const time_t seconds : {std::numeric_limits<time_t>::min(), std::numeric_limits<time_t>::max()})
    survives_everything("times", [&] {
      write_hostile(unchanged);
      const struct timespec times[2] = {{seconds, 999'999'999}, {seconds, 999'999'999}};
      EXPECT_EQ(::utimensat(AT_FDCWD, array_.sidecar("/hostile").c_str(), times, 0), 0);
    });
}

// A file whose chunk lies where no object reaches: that chunk cannot be read, all others can, and new ones are stored.
TEST_F(HostileSidecar, OnlyTheChunkThatLiesNowhereIsLost) {
  write_hostile({"", [](SidecarRecord& r) { put_into_slot(r, 2, kSlotMax); }, [](OpenRecord&) {}});
  survives("one chunk", [&] {
    PosixEnvironment environment(2);
    StoreOptions options;
    options.buffer_memory = 64 * kChunk;
    options.array.buffered_members = true;
    auto store = Store::open(environment, array_.directories, options);
    ASSERT_TRUE(store.is_ok());
    {
      const auto file = open_file(**store, "hostile", true);
      ASSERT_TRUE(file.is_ok()) << file.status().message();
      Bytes found(kChunk), written(kChunk);
      for (const uint64_t chunk : {0, 1, 3, 9}) {
        test::fill(written, 1, chunk * kChunk);
        EXPECT_EQ((*store)->read_sync(**file, FileOffset(chunk * kChunk), found).value(), kChunk);
        EXPECT_TRUE(found == written) << chunk;
      }
      EXPECT_EQ((*store)->read_sync(**file, FileOffset(2 * kChunk), found).status().code(), StatusCode::kCorruption);
      EXPECT_TRUE((*store)->write_sync(**file, FileOffset(11 * kChunk), written).is_ok());
      EXPECT_TRUE((*store)->commit_sync(**file).is_ok());
    }
    EXPECT_TRUE((*store)->close().is_ok());
  });
  const CheckReport report = array_.check(Repair::kNone, true);
  // What the chunk was stored as is named by nobody now, and may have been given back already.
  uint64_t lost = 0;
  for (const CheckError& error : report.errors) {
    if (error.kind == "leftover-space") continue;
    EXPECT_EQ(error.kind, "short-object") << summary(report);
    EXPECT_EQ(error.chunk, 2);
    ++lost;
  }
  EXPECT_EQ(lost, 1u) << summary(report);
}

TEST(SlotMap, CostsWhatItHoldsNotHowFarItReaches) {
  SlotMap slots;
  const SlotIndex far = kSlotMax;
  slots.take(far);
  EXPECT_TRUE(slots.is_taken(far));
  EXPECT_FALSE(slots.is_taken(far - 1));
  EXPECT_EQ(slots.end(), far + 1);
  EXPECT_EQ(slots.allocate(SlotIndex(0)), SlotIndex(0));
  EXPECT_EQ(slots.allocate(SlotIndex(0)), SlotIndex(1));
  uint64_t gaps = 0;
  slots.for_each_gap(SlotIndex(0), [&](SlotIndex begin, uint64_t count) {
    ++gaps;
    EXPECT_EQ(begin, SlotIndex(2));
    EXPECT_EQ(count, far.value() - 2);
  });
  EXPECT_EQ(gaps, 1u);
  slots.release(far);
  EXPECT_EQ(slots.end(), SlotIndex(2));
}

// Against the plainest form: a set of numbers.
TEST(SlotMap, TakesAndReleasesAsASetDoes) {
  SlotMap slots;
  std::set<SlotIndex> model;
  uint64_t state = 7;
  const auto roll = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int step = 0; step < 20'000; ++step) {
    const SlotIndex slot(roll(200));
    ASSERT_EQ(slots.is_taken(slot), model.contains(slot));
    if (roll(3) == 0) {
      SlotIndex expected = slot;
      if (model.contains(slot))
        for (expected = SlotIndex(); model.contains(expected);) ++expected;
      ASSERT_EQ(slots.allocate(slot), expected);
      model.insert(expected);
    } else if (model.contains(slot)) {
      slots.release(slot);
      model.erase(slot);
    } else {
      slots.take(slot);
      model.insert(slot);
    }
    ASSERT_EQ(slots.end(), model.empty() ? SlotIndex() : *model.rbegin() + 1);
    if (step % 100 != 0) continue;
    std::set<SlotIndex> free;
    slots.for_each_gap(SlotIndex(0), [&](SlotIndex begin, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) EXPECT_TRUE(free.insert(begin + i).second);
    });
    for (SlotIndex number; number < slots.end(); ++number)
      ASSERT_EQ(free.contains(number), !model.contains(number)) << number.value();
  }
}

}  // namespace
}  // namespace fpfs
