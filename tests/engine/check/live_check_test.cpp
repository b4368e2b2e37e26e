// Checking beside a mount that is at work.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/engine/check/hand_made_array.h"

namespace fpfs {
namespace {

constexpr uint32_t kChunk = HandMadeArray::kChunkSize;

TEST(LiveCheck, OrphansAreNotJudgedAndRepairIsRefused) {
  HandMadeArray array;
  array.add_file("/kept", {0x77, 0, 3 * kChunk, 1});
  std::ofstream(array.object(MemberIndex(1), 0x78, 0)) << "a file that is being written";
  const auto mounted = array.open(false);
  const CheckReport report = array.check(Repair::kNone, true);
  EXPECT_TRUE(report.clean()) << summary(report);
  EXPECT_EQ(report.bytes_verified, 3u * kChunk);
  for (const Repair repair : {Repair::kPreen, Repair::kYes}) {
    CheckOptions options;
    options.repair = repair;
    EXPECT_EQ(array.try_check(options).status().code(), StatusCode::kBusy);
  }
}

TEST(LiveCheck, DamageIsStillFound) {
  HandMadeArray array;
  const FileImage image = array.add_file("/kept", {0x77, 0, 3 * kChunk, 1});
  HandMadeArray::flip_bit(array.object(image.extents.get(ChunkIndex(1)).member, 0x77, 0), 5);
  HandMadeArray::flip_bit(array.sidecar("/kept"), 300);
  const auto mounted = array.open(false);
  EXPECT_EQ(summary(array.check(Repair::kNone, true)), "sidecar /kept -1 -1");
  HandMadeArray::flip_bit(array.sidecar("/kept"), 300);
  EXPECT_EQ(summary(array.check(Repair::kNone, true)),
            "checksum /kept 1 " + std::to_string(image.extents.get(ChunkIndex(1)).member.value()));
}

// Rewrites files as a mount does: new objects, a record that names them, then the old objects go.
class Rewriter {
 public:
  explicit Rewriter(HandMadeArray& array) : array_(array) {
    for (uint64_t file = 1; file <= 4; ++file) rewrite(file);
    thread_ = std::thread([this] {
      while (!stop_) rewrite(1 + rounds_++ % 4);
    });
  }
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }
  uint64_t rounds() const { return rounds_; }

 private:
  void rewrite(uint64_t file) {
    const uint32_t generation = ++generations_[file];
    const HandMadeArray::Spec spec{file << 40, generation, 5 * kChunk + 17 * generation, generation};
    SidecarRecord record;
    record.sequence = generation;
    record.generation = Generation(generation);
    record.truncate_from = ChunkIndex(0);
    record.size = spec.size;
    for (uint64_t chunk = 0; chunk * kChunk < spec.size; ++chunk)
      record.extents.emplace_back(chunk, array_.write_chunk(spec, chunk));
    const std::string path = array_.sidecar("/f" + std::to_string(file));
    const SidecarHeader header{array_.id, FileId(spec.file), kChunk};
    std::vector<std::byte> bytes;
    const uint64_t end = generation == 1 ? 0 : std::filesystem::file_size(path);
    if (end == 0) bytes = encode_sidecar_header(header);
    encode_sidecar_record(header, record, SidecarOffset(end + bytes.size()), SidecarOffset(0), bytes);
    HandMadeArray::write_at(path, end, bytes);
    for (const MemberIndex m : range_to(MemberIndex(HandMadeArray::kMembers)))
      std::filesystem::remove(array_.object(m, spec.file, generation - 1));
    if (generation % 16 == 0) std::filesystem::rename(path, path + "x"), std::filesystem::rename(path + "x", path);
  }

  HandMadeArray& array_;
  std::map<uint64_t, uint32_t> generations_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> rounds_{0};
  std::thread thread_;
};

TEST(LiveCheck, FilesThatChangeMeanwhileAreNotReported) {
  HandMadeArray array;
  const auto mounted = array.open(false);
  Rewriter rewriter(array);
  for (int round = 0; round < 25 || rewriter.rounds() < 100; ++round) {
    const CheckReport report = array.check(Repair::kNone, true);
    ASSERT_TRUE(report.clean()) << summary(report) << ": " << report.errors[0].detail;
  }
}

}  // namespace
}  // namespace fpfs
