// What the sidecar tests share: a sidecar in memory, a writer of random commits, and the model that a fold must match.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "engine/index/sidecar.h"

namespace fpfs::sidecar_testing {

constexpr uint32_t kChunkSize = 64 * 1024;
constexpr uint16_t kMembers = 5;

inline Uuid test_array() {
  Uuid id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

class MemoryReader : public SidecarReader {
 public:
  explicit MemoryReader(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  // Punches [begin, end): it reads as zeros and next_data() skips it.
  void punch(uint64_t begin, uint64_t end) {
    std::fill(bytes_.begin() + begin, bytes_.begin() + end, std::byte{0});
    holes_.emplace_back(SidecarOffset(begin), SidecarOffset(end));
  }
  Result<size_t> read(SidecarOffset offset, std::span<std::byte> buffer) override {
    if (offset >= end()) return size_t{0};
    const size_t count = std::min<size_t>(buffer.size(), end() - offset);
    std::memcpy(buffer.data(), &bytes_[offset.value()], count);
    bytes_read += count;
    return count;
  }
  Result<SidecarOffset> next_data(SidecarOffset offset) override {
    for (const auto& [hole, hole_end] : holes_)
      if (offset >= hole && offset < hole_end) return hole_end;
    return std::min(offset, end());
  }
  SidecarOffset end() const override { return SidecarOffset(bytes_.size()); }
  uint64_t bytes_read = 0;

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::pair<SidecarOffset, SidecarOffset>> holes_;
};

inline Result<FileImage> fold(SidecarReader& reader, SidecarFindings* findings = nullptr) {
  return fold_sidecar(reader, test_array(), kMembers, kChunkSize, findings);
}
inline Result<FileImage> fold(const std::vector<std::byte>& bytes, SidecarFindings* findings = nullptr) {
  MemoryReader reader(bytes);
  return fold(reader, findings);
}

// The state after a commit, kept in the plainest way.
struct Model {
  uint64_t sequence = 0;
  Generation generation;
  uint64_t size = 0;
  bool is_inline = false;
  std::vector<std::byte> inline_data;
  std::map<ChunkIndex, Extent> extents;
  SidecarOffset end;  // of the sidecar then

  uint64_t allocated() const {
    uint64_t sum = 0;
    for (const auto& [chunk, extent] : extents) sum += extent.allocated();
    return sum;
  }
};

// Empty when the image is the model's state; otherwise what differs.
inline std::string difference(const FileImage& image, const Model& model) {
  if (image.sequence != model.sequence)
    return "sequence " + std::to_string(image.sequence) + " instead of " + std::to_string(model.sequence);
  if (image.end != model.end) return fmt::format("end {} instead of {}", image.end, model.end);
  if (image.generation != model.generation) return "generation";
  if (image.size != model.size) return "size";
  if (image.is_inline != model.is_inline || image.inline_data != model.inline_data) return "inline content";
  if (image.extents.count() != model.extents.size()) return "number of extents";
  if (image.extents.allocated_bytes() != model.allocated()) return "allocated bytes";
  for (const auto& [chunk, extent] : model.extents)
    if (!(image.extents.get(chunk) == extent)) return "chunk " + std::to_string(chunk.value());
  return "";
}

// Writes commits as engine/file does, and remembers every state.
class LogWriter {
 public:
  explicit LogWriter(uint64_t seed) : random(seed) {
    header.array_id = test_array();
    header.file_id = FileId(0x1122334455667788 + seed);
    header.chunk_size = kChunkSize;
    states.push_back(Model());
  }

  // Appends a record made by the caller, filling in sequence, generation and the rest that follows from the state.
  void commit(SidecarRecord record) {
    Model model = states.back();
    record.sequence = ++model.sequence;
    if (record.snapshot || record.has_inline || record.generation != model.generation) model.extents.clear();
    model.generation = record.generation;
    if (record.truncate_from)
      model.extents.erase(model.extents.lower_bound(*record.truncate_from), model.extents.end());
    for (const auto& [chunk, extent] : record.extents) {
      if (extent.exists())
        model.extents[chunk] = extent;
      else
        model.extents.erase(chunk);
    }
    model.is_inline = record.has_inline;
    model.inline_data = record.inline_data;
    model.size = record.size;
    record.allocated = model.allocated();

    appended_from = bytes.size();
    if (bytes.empty()) bytes = encode_sidecar_header(header);
    const SidecarOffset at(bytes.size());
    record_offset = encode_sidecar_record(header, record, at, SidecarOffset(snapshot_offset), bytes).value();
    if (record.snapshot) snapshot_offset = record_offset;
    record_offsets.push_back(record_offset);
    model.end = SidecarOffset(bytes.size());
    states.push_back(std::move(model));
  }

  SidecarRecord empty_record() const {
    SidecarRecord record;
    record.generation = states.back().generation;
    record.size = states.back().is_inline ? 0 : states.back().size;
    return record;
  }

  void commit_snapshot() {
    const Model& model = states.back();
    SidecarRecord record = empty_record();
    record.snapshot = true;
    record.size = model.size;
    record.has_inline = model.is_inline;
    record.inline_data = model.inline_data;
    record.extents.assign(model.extents.begin(), model.extents.end());
    commit(std::move(record));
  }

  void commit_inline(std::vector<std::byte> data) {
    SidecarRecord record = empty_record();
    record.has_inline = true;
    record.size = data.size() + (random() % 4 == 0 ? random() % 100'000 : 0);
    record.inline_data = std::move(data);
    commit(std::move(record));
  }

  void commit_extents(size_t count) {
    SidecarRecord record = empty_record();
    ChunkIndex chunk(random() % 40);
    for (size_t i = 0; i < count; ++i, chunk += 1 + random() % 30) record.extents.emplace_back(chunk, random_extent());
    if (random() % 5 == 0) record.truncate_from = ChunkIndex(random() % 600);
    if (random() % 12 == 0) ++record.generation;
    record.size = std::max<uint64_t>(record.size, random() % (offset_of(chunk, kChunkSize).value() + 1));
    commit(std::move(record));
  }

  // Any of the commits that a file goes through.
  void commit_random() {
    const auto choice = random() % 12;
    if (choice == 0) return commit_snapshot();
    if (choice == 1) return commit_inline(random_bytes(random() % 3000, random() % 3 == 0));
    if (choice == 2) return commit_inline(std::vector<std::byte>(random() % 5000));  // zeros
    commit_extents(choice < 9 ? random() % 6 : random() % 60);
  }

  std::vector<std::byte> random_bytes(size_t count, bool sparse) {
    std::vector<std::byte> data(count);
    for (size_t i = 0; i < count; ++i)
      if (!sparse || i / 700 % 2 == 0) data[i] = static_cast<std::byte>(random());
    return data;
  }

  Extent random_extent() {
    Extent extent;
    if (random() % 8 == 0) return extent;
    extent.codec = static_cast<Codec>(1 + random() % (kCodecs - 1));
    extent.checksum = random();
    extent.raw_length = 1 + random() % kChunkSize;
    if (extent.is_away()) {
      extent.visible_length = extent.raw_length;
      return extent;
    }
    extent.slot = SlotIndex(random() % 1000);
    extent.stored_length = extent.codec == Codec::kRaw ? extent.raw_length : 1 + random() % kChunkSize;
    extent.visible_length = random() % (extent.raw_length + 1);
    extent.member = MemberIndex(random() % kMembers);
    return extent;
  }

  SidecarHeader header;
  std::vector<std::byte> bytes;
  std::vector<Model> states;  // by sequence
  std::vector<uint64_t> record_offsets;
  uint64_t appended_from = 0;  // what the last commit wrote: [appended_from, bytes.size())
  uint64_t record_offset = 0;
  uint64_t snapshot_offset = 0;
  std::mt19937_64 random;
};

}  // namespace fpfs::sidecar_testing
