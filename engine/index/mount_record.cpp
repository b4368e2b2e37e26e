#include "engine/index/mount_record.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr std::string_view kMagic = "FPFSMNTS";
constexpr uint32_t kRecordVersion = 1;
enum Phase : uint32_t { kAnnounced = 1, kSettled = 2 };

namespace field_at {
constexpr size_t kMagicBytes = 0;
constexpr size_t kVersionNumber = 8;
constexpr size_t kPhase = 12;
constexpr size_t kArrayId = 16;
constexpr size_t kMemberId = 32;
constexpr size_t kStamp = 48;
constexpr size_t kBefore = 80;
constexpr size_t kReserved = 112;
constexpr size_t kChecksum = 120;
}  // namespace field_at
constexpr size_t kStampSize = 32;

static_assert(kMagic.size() == field_at::kVersionNumber);
static_assert(field_at::kMemberId == field_at::kArrayId + sizeof(Uuid));
static_assert(field_at::kStamp == field_at::kMemberId + sizeof(Uuid));
static_assert(field_at::kBefore == field_at::kStamp + kStampSize);
static_assert(field_at::kReserved == field_at::kBefore + kStampSize);
static_assert(field_at::kChecksum + 8 == kMountRecordSize);

Status corrupt(std::string what) {
  return Status::error(StatusCode::kCorruption, std::move(what));
}

void put_stamp(std::byte* at, const MountStamp& stamp) {
  put_u64(at, stamp.number);
  put_u64(at + 8, stamp.token);
  put_u64(at + 16, stamp.mount);
  put_u64(at + 24, static_cast<uint64_t>(stamp.seconds));
}

MountStamp get_stamp(const std::byte* at) {
  return {get_u64(at), get_u64(at + 8), get_u64(at + 16), static_cast<int64_t>(get_u64(at + 24))};
}

}  // namespace

MountStamp newest_settled(std::span<const MountRecord> records) {
  MountStamp newest;
  for (const MountRecord& record : records)
    if (record.last_settled().number > newest.number) newest = record.last_settled();
  return newest;
}

bool is_current(const MountRecord& record, const MountStamp& newest) {
  return record.last_settled().is_same(newest) || record.stamp.is_same(newest);
}

std::array<std::byte, kMountRecordSize> encode_mount_record(const MountRecord& record) {
  std::array<std::byte, kMountRecordSize> bytes{};
  std::memcpy(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size());
  put_u32(&bytes[field_at::kVersionNumber], kRecordVersion);
  put_u32(&bytes[field_at::kPhase], record.settled ? kSettled : kAnnounced);
  std::memcpy(&bytes[field_at::kArrayId], record.array_id.data(), sizeof(Uuid));
  std::memcpy(&bytes[field_at::kMemberId], record.member_id.data(), sizeof(Uuid));
  put_stamp(&bytes[field_at::kStamp], record.stamp);
  put_stamp(&bytes[field_at::kBefore], record.settled ? MountStamp() : record.before);
  put_u64(&bytes[field_at::kChecksum], hash_bytes(std::span(bytes).first(field_at::kChecksum)));
  return bytes;
}

Result<MountRecord> decode_mount_record(std::span<const std::byte> bytes) {
  if (bytes.size() != kMountRecordSize)
    return corrupt(fmt::format("the mount record has {} bytes instead of {}", bytes.size(), kMountRecordSize));
  if (std::memcmp(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size()) != 0)
    return corrupt("the file 'mount' does not start with a mount record's magic");
  const uint64_t stored = get_u64(&bytes[field_at::kChecksum]);
  if (const uint64_t computed = hash_bytes(bytes.first(field_at::kChecksum)); stored != computed)
    return corrupt(
        fmt::format("the mount record is damaged: its checksum is {:016x}, its bytes give {:016x}", stored, computed));
  if (const uint32_t version = get_u32(&bytes[field_at::kVersionNumber]); version != kRecordVersion)
    return Status::error(
        StatusCode::kUnsupported,
        fmt::format("the mount record has version {}, this program reads version {}; use the program that fits",
                    version, kRecordVersion));
  MountRecord record;
  const uint32_t phase = get_u32(&bytes[field_at::kPhase]);
  record.settled = phase == kSettled;
  std::memcpy(record.array_id.data(), &bytes[field_at::kArrayId], sizeof(Uuid));
  std::memcpy(record.member_id.data(), &bytes[field_at::kMemberId], sizeof(Uuid));
  record.stamp = get_stamp(&bytes[field_at::kStamp]);
  record.before = get_stamp(&bytes[field_at::kBefore]);
  const bool has_before = !all_zero(bytes.subspan(field_at::kBefore, kStampSize));
  if ((phase != kAnnounced && phase != kSettled) || record.stamp.number == 0 || (record.settled && has_before) ||
      (!record.settled && record.before.number >= record.stamp.number) ||
      !all_zero(bytes.subspan(field_at::kReserved, field_at::kChecksum - field_at::kReserved)))
    return corrupt("the mount record has a field out of its range");
  return record;
}

}  // namespace fpfs
