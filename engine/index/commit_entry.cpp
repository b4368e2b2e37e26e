#include "engine/index/commit_entry.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/base/units.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr uint64_t kLogMagic = 0x31474F4C4D4D4F43;    // "COMMLOG1" as stored
constexpr uint64_t kEntryMagic = 0x5952544E45434646;  // "FFCENTRY" as stored

namespace log_header_at {
constexpr size_t kMagic = 0, kChecksum = 8, kArrayId = 16, kFirst = 32, kEnd = 40;
}
namespace entry_at {
constexpr size_t kMagic = 0, kChecksum = 8, kArrayId = 16, kNumber = 32, kSidecarChecksum = 40, kInode = 48,
                 kSeconds = 56, kNanoseconds = 64, kMode = 68, kOwner = 72, kGroup = 76, kSidecarLength = 80,
                 kNameLength = 84, kFileLength = 86, kDirectoryLength = 87, kFile = 88,
                 kDirectory = kFile + kCommitIdentityMax, kName = kDirectory + kCommitIdentityMax, kNameMax = 255;
static_assert(kName + kNameMax <= kCommitHeadBytes);
}  // namespace entry_at

void put_string(std::byte* at, const std::string& text) {
  std::memcpy(at, text.data(), text.size());
}

std::string get_string(const std::byte* at, size_t length) {
  return {reinterpret_cast<const char*>(at), length};
}

bool is_of(const Uuid& array_id, const std::byte* stored) {
  return std::memcmp(stored, array_id.data(), sizeof(Uuid)) == 0;
}

// From the array id on.
uint64_t checksum_of(std::span<const std::byte> bytes) {
  return hash_bytes(bytes.subspan(entry_at::kArrayId));
}

}  // namespace

bool fits_commit_entry(const CommitEntry& entry) {
  return !entry.file.empty() && entry.file.size() <= kCommitIdentityMax && !entry.directory.empty() &&
         entry.directory.size() <= kCommitIdentityMax && !entry.name.empty() &&
         entry.name.size() <= entry_at::kNameMax && kCommitHeadBytes + entry.sidecar.size() <= kCommitSlotBytes;
}

void encode_commit_entry(const Uuid& array_id, const CommitEntry& entry, std::vector<std::byte>& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + round_up(kCommitHeadBytes + entry.sidecar.size(), kCommitBlock));
  std::byte* const head = bytes.data() + begin;
  put_u64(head + entry_at::kMagic, kEntryMagic);
  std::memcpy(head + entry_at::kArrayId, array_id.data(), sizeof(Uuid));
  put_u64(head + entry_at::kNumber, entry.number);
  put_u64(head + entry_at::kSidecarChecksum, hash_bytes(entry.sidecar));
  put_u64(head + entry_at::kInode, entry.inode);
  put_u64(head + entry_at::kSeconds, static_cast<uint64_t>(entry.mtime.tv_sec));
  put_u32(head + entry_at::kNanoseconds, static_cast<uint32_t>(entry.mtime.tv_nsec));
  put_u32(head + entry_at::kMode, entry.mode);
  put_u32(head + entry_at::kOwner, entry.owner);
  put_u32(head + entry_at::kGroup, entry.group);
  put_u32(head + entry_at::kSidecarLength, static_cast<uint32_t>(entry.sidecar.size()));
  put_u16(head + entry_at::kNameLength, static_cast<uint16_t>(entry.name.size()));
  head[entry_at::kFileLength] = static_cast<std::byte>(entry.file.size());
  head[entry_at::kDirectoryLength] = static_cast<std::byte>(entry.directory.size());
  put_string(head + entry_at::kFile, entry.file);
  put_string(head + entry_at::kDirectory, entry.directory);
  put_string(head + entry_at::kName, entry.name);
  put_u64(head + entry_at::kChecksum, checksum_of({head, kCommitHeadBytes}));
  std::copy(entry.sidecar.begin(), entry.sidecar.end(), head + kCommitHeadBytes);
}

std::optional<CommitEntry> decode_commit_entry(const Uuid& array_id, std::span<const std::byte> bytes) {
  if (bytes.size() < kCommitHeadBytes || get_u64(&bytes[entry_at::kMagic]) != kEntryMagic) return std::nullopt;
  const std::byte* const head = bytes.data();
  if (get_u64(head + entry_at::kChecksum) != checksum_of(bytes.first(kCommitHeadBytes))) return std::nullopt;
  if (!is_of(array_id, head + entry_at::kArrayId)) return std::nullopt;
  const size_t sidecar_length = get_u32(head + entry_at::kSidecarLength);
  const size_t name_length = get_u16(head + entry_at::kNameLength);
  const auto file_length = std::to_integer<size_t>(head[entry_at::kFileLength]);
  const auto directory_length = std::to_integer<size_t>(head[entry_at::kDirectoryLength]);
  if (sidecar_length > bytes.size() - kCommitHeadBytes || name_length > entry_at::kNameMax ||
      file_length > kCommitIdentityMax || directory_length > kCommitIdentityMax)
    return std::nullopt;
  const std::span<const std::byte> sidecar = bytes.subspan(kCommitHeadBytes, sidecar_length);
  if (get_u64(head + entry_at::kSidecarChecksum) != hash_bytes(sidecar)) return std::nullopt;
  CommitEntry entry;
  entry.number = get_u64(head + entry_at::kNumber);
  entry.inode = get_u64(head + entry_at::kInode);
  entry.mtime = {static_cast<time_t>(get_u64(head + entry_at::kSeconds)),
                 static_cast<long>(get_u32(head + entry_at::kNanoseconds))};
  entry.mode = get_u32(head + entry_at::kMode);
  entry.owner = get_u32(head + entry_at::kOwner);
  entry.group = get_u32(head + entry_at::kGroup);
  entry.file = get_string(head + entry_at::kFile, file_length);
  entry.directory = get_string(head + entry_at::kDirectory, directory_length);
  entry.name = get_string(head + entry_at::kName, name_length);
  entry.sidecar.assign(sidecar.begin(), sidecar.end());
  return entry;
}

std::vector<std::byte> encode_commit_header(const Uuid& array_id, uint64_t first) {
  std::vector<std::byte> bytes(kCommitBlock);
  put_u64(&bytes[log_header_at::kMagic], kLogMagic);
  std::memcpy(&bytes[log_header_at::kArrayId], array_id.data(), sizeof(Uuid));
  put_u64(&bytes[log_header_at::kFirst], first);
  put_u64(&bytes[log_header_at::kChecksum], checksum_of(std::span(bytes).first(log_header_at::kEnd)));
  return bytes;
}

Result<uint64_t> decode_commit_header(const Uuid& array_id, std::span<const std::byte> bytes) {
  if (bytes.size() < kCommitBlock) return Status::error(StatusCode::kCorruption, "it has no header");
  if (all_zero(bytes.first(kCommitHeadBytes))) return uint64_t{0};
  if (get_u64(&bytes[log_header_at::kMagic]) != kLogMagic ||
      get_u64(&bytes[log_header_at::kChecksum]) != checksum_of(bytes.first(log_header_at::kEnd)))
    return Status::error(StatusCode::kCorruption, "its header is damaged");
  if (!is_of(array_id, &bytes[log_header_at::kArrayId]))
    return Status::error(StatusCode::kCorruption, "it is another array's");
  return get_u64(&bytes[log_header_at::kFirst]);
}

Result<CommitLogImage> decode_commit_log(const Uuid& array_id, std::span<const std::byte> bytes) {
  FPFS_ASSIGN_OR_RETURN(const uint64_t first, decode_commit_header(array_id, bytes));
  if (bytes.size() < kCommitLogBytes)
    return Status::error(StatusCode::kCorruption,
                         fmt::format("it has {} bytes instead of {}", bytes.size(), kCommitLogBytes));
  CommitLogImage image;
  image.next = std::max<uint64_t>(first, 1);
  for (unsigned slot = 0; slot < kCommitSlots; ++slot) {
    auto entry = decode_commit_entry(array_id, bytes.subspan(commit_slot_offset(slot), kCommitSlotBytes));
    if (!entry.has_value()) continue;
    image.next = std::max(image.next, entry->number + 1);
    if (entry->number >= first) image.entries.push_back(*std::move(entry));
  }
  if (first == 0 && !image.entries.empty()) return Status::error(StatusCode::kCorruption, "its header is gone");
  std::sort(image.entries.begin(), image.entries.end(),
            [](const CommitEntry& a, const CommitEntry& b) { return a.number < b.number; });
  return image;
}

}  // namespace fpfs
