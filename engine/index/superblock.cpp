#include "engine/index/superblock.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/base/check.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr std::string_view kMagic = "FPFSSUPR";

// Where each field lies; docs/format.md says the same. Magic, version and checksum keep their places in every version,
// so that a program can tell a newer superblock from a damaged one.
namespace field_at {
constexpr size_t kMagicBytes = 0;
constexpr size_t kVersion = 8;
constexpr size_t kChunkSize = 12;
constexpr size_t kCompatible = 16;
constexpr size_t kReadOnlyCompatible = 24;
constexpr size_t kIncompatible = 32;
constexpr size_t kArrayId = 40;
constexpr size_t kMemberId = 56;
constexpr size_t kMemberIndex = 72;
constexpr size_t kMemberCount = 74;
constexpr size_t kMetadataMember = 76;
constexpr size_t kReserved1 = 78;
constexpr size_t kCreatedSeconds = 80;
constexpr size_t kLabel = 88;
constexpr size_t kMembership = 152;
constexpr size_t kMemberSet = 160;
constexpr size_t kStripeWidth = 168;
constexpr size_t kReserved2 = 170;
constexpr size_t kStripeOrder = 176;
constexpr size_t kRemoved = 432;
constexpr size_t kReserved4 = 464;
constexpr size_t kMetadataPath = 512;
constexpr size_t kReserved3 = 3584;
constexpr size_t kChecksum = 4088;
}  // namespace field_at

constexpr size_t kLabelField = field_at::kMembership - field_at::kLabel;
constexpr size_t kMetadataPathField = field_at::kReserved3 - field_at::kMetadataPath;

static_assert(kMagic.size() == field_at::kVersion);
static_assert(field_at::kChunkSize == field_at::kVersion + 4);
static_assert(field_at::kCompatible == field_at::kChunkSize + 4);
static_assert(field_at::kReadOnlyCompatible == field_at::kCompatible + 8);
static_assert(field_at::kIncompatible == field_at::kReadOnlyCompatible + 8);
static_assert(field_at::kArrayId == field_at::kIncompatible + 8);
static_assert(field_at::kMemberId == field_at::kArrayId + sizeof(Uuid));
static_assert(field_at::kMemberIndex == field_at::kMemberId + sizeof(Uuid));
static_assert(field_at::kMemberCount == field_at::kMemberIndex + 2);
static_assert(field_at::kMetadataMember == field_at::kMemberCount + 2);
static_assert(field_at::kReserved1 == field_at::kMetadataMember + 2);
static_assert(field_at::kCreatedSeconds == field_at::kReserved1 + 2);
static_assert(field_at::kLabel == field_at::kCreatedSeconds + 8);
static_assert(kLabelField == kLabelSizeMax + 1, "a label always ends in a NUL");
static_assert(field_at::kMemberSet == field_at::kMembership + 8);
static_assert(field_at::kStripeWidth == field_at::kMemberSet + 8);
static_assert(field_at::kReserved2 == field_at::kStripeWidth + 2);
static_assert(field_at::kRemoved == field_at::kStripeOrder + kMemberCountMax, "a member's index is one byte there");
static_assert(field_at::kReserved4 == field_at::kRemoved + kMemberCountMax / 8);
static_assert(kMetadataPathField == kMetadataPathSizeMax + 1, "a path always ends in a NUL");
static_assert(field_at::kChecksum + 8 == kSuperblockSize);

Status corrupt(std::string what) {
  return Status::error(StatusCode::kCorruption, std::move(what));
}

bool is_power_of_two(uint32_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

// The checksum is taken with its own field zero.
uint64_t checksum_of(std::span<const std::byte> bytes) {
  std::array<std::byte, kSuperblockSize> copy;
  std::memcpy(copy.data(), bytes.data(), copy.size());
  put_u64(&copy[field_at::kChecksum], 0);
  return hash_bytes(copy);
}

// Length of the UTF-8 sequence that `text` starts with; 0 when it starts with none (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF).
size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                        : (first & 0xf0) == 0xe0         ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

// A field of text that is padded with NULs; nullopt-like false when bytes follow the first NUL, or no NUL ends it.
bool read_text(std::span<const std::byte> field, std::string* text) {
  const auto* chars = reinterpret_cast<const char*>(field.data());
  const size_t length = strnlen(chars, field.size());
  if (length == field.size() || !all_zero(field.subspan(length))) return false;
  text->assign(chars, length);
  return true;
}

Status check_features(const Superblock& superblock, bool for_writing) {
  if (const uint64_t unknown = superblock.incompatible & ~kKnownIncompatible; unknown != 0)
    return Status::error(
        StatusCode::kUnsupported,
        fmt::format("the superblock asks for features {:#x} that this program does not know; use a newer program",
                    unknown));
  if (const uint64_t unknown = superblock.read_only_compatible & ~kKnownReadOnlyCompatible; unknown != 0 && for_writing)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("the superblock asks for features {:#x} that this program can only read; open the "
                                     "array read-only (ro) or use a newer program",
                                     unknown));
  return Status::ok();
}

// Which members take part and which are gone: each index of one that there is, or was, and none twice.
Status check_order(const Superblock& superblock) {
  const bool has_order = (superblock.incompatible & kFeatureOrder) != 0;
  if (has_order != !superblock.stripe_order.empty() || (!has_order && superblock.removed.any()))
    return corrupt("the superblock's order of the members does not fit its features");
  if (!has_order) return Status::ok();
  if ((superblock.incompatible & kFeatureMembership) == 0)
    return corrupt("the superblock's order of the members does not fit its features");
  std::bitset<kMemberCountMax> seen = superblock.removed;
  for (const MemberIndex member : superblock.stripe_order) {
    if (member.value() >= superblock.member_count || seen.test(member.value()))
      return corrupt(fmt::format("the superblock's order of the members has member {} twice, or wrongly", member));
    seen.set(member.value());
  }
  if ((superblock.removed >> superblock.member_count).any() ||
      (superblock.metadata_member != kMetadataOnlyMember &&
       superblock.removed.test(superblock.metadata_member.value())))
    return corrupt("the superblock says that a member was removed that cannot have been");
  return Status::ok();
}

}  // namespace

bool was_removed(const Superblock& superblock) {
  return superblock.member_index != kMetadataOnlyMember && superblock.removed.test(superblock.member_index.value());
}

uint64_t member_set_of(std::span<const Uuid> member_ids) {
  return hash_bytes(std::as_bytes(member_ids));
}

bool is_valid_label(std::string_view label) {
  if (label.size() > kLabelSizeMax || label.find('\0') != std::string_view::npos) return false;
  while (!label.empty()) {
    const size_t length = utf8_sequence(label);
    if (length == 0) return false;
    label.remove_prefix(length);
  }
  return true;
}

Status validate_superblock(const Superblock& superblock) {
  const bool metadata_only = superblock.member_index == kMetadataOnlyMember;
  const bool has_metadata_only_member = superblock.metadata_member == kMetadataOnlyMember;
  if (!is_power_of_two(superblock.chunk_size) || superblock.chunk_size < kChunkSizeMin ||
      superblock.chunk_size > kChunkSizeMax)
    return corrupt(fmt::format("the superblock's chunk size is {}", superblock.chunk_size));
  if (superblock.member_count == 0 || superblock.member_count > kMemberCountMax)
    return corrupt(fmt::format("the superblock's member count is {}", superblock.member_count));
  if (metadata_only ? !has_metadata_only_member : superblock.member_index.value() >= superblock.member_count)
    return corrupt(
        fmt::format("the superblock says member {} of {}", superblock.member_index, superblock.member_count));
  if (!has_metadata_only_member && superblock.metadata_member.value() >= superblock.member_count)
    return corrupt(fmt::format("the superblock says that member {} of {} holds the metadata",
                               superblock.metadata_member, superblock.member_count));
  if (all_zero(superblock.array_id) || all_zero(superblock.member_id))
    return corrupt("the superblock names no array or no member");
  const bool was_changed = (superblock.incompatible & kFeatureMembership) != 0;
  if (was_changed != (superblock.membership != 0) || (!was_changed && superblock.member_set != 0))
    return corrupt("the superblock's count of changes of the members does not fit its features");
  FPFS_RETURN_IF_ERROR(check_order(superblock));
  if (!is_valid_label(superblock.label)) return corrupt("the superblock's label is no UTF-8 text");
  const std::string& path = superblock.metadata_path;
  if (has_metadata_only_member ? path.empty() || path[0] != '/' : !path.empty())
    return corrupt("the superblock's metadata path does not fit its metadata member");
  if (path.size() > kMetadataPathSizeMax || path.find('\0') != std::string::npos)
    return corrupt("the superblock's metadata path is too long");
  return Status::ok();
}

Uuid make_uuid(uint64_t first, uint64_t second) {
  Uuid uuid;
  put_u64(&uuid[0], first);
  put_u64(&uuid[8], second);
  uuid[6] = (uuid[6] & std::byte{0x0f}) | std::byte{0x40};
  uuid[8] = (uuid[8] & std::byte{0x3f}) | std::byte{0x80};
  return uuid;
}

std::string to_string(const Uuid& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned>(uuid[i]));
  }
  return text;
}

std::array<std::byte, kSuperblockSize> encode_superblock(const Superblock& superblock) {
  FPFS_CHECK(superblock.version == kFormatVersion, "this program writes one version of the format");
  FPFS_CHECK(validate_superblock(superblock).is_ok(), "the caller validates what goes into a superblock");
  std::array<std::byte, kSuperblockSize> bytes{};
  std::memcpy(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size());
  put_u32(&bytes[field_at::kVersion], superblock.version);
  put_u32(&bytes[field_at::kChunkSize], superblock.chunk_size);
  put_u64(&bytes[field_at::kCompatible], superblock.compatible);
  put_u64(&bytes[field_at::kReadOnlyCompatible], superblock.read_only_compatible);
  put_u64(&bytes[field_at::kIncompatible], superblock.incompatible);
  std::memcpy(&bytes[field_at::kArrayId], superblock.array_id.data(), sizeof(Uuid));
  std::memcpy(&bytes[field_at::kMemberId], superblock.member_id.data(), sizeof(Uuid));
  put_u16(&bytes[field_at::kMemberIndex], superblock.member_index.value());
  put_u16(&bytes[field_at::kMemberCount], superblock.member_count);
  put_u16(&bytes[field_at::kMetadataMember], superblock.metadata_member.value());
  put_u64(&bytes[field_at::kCreatedSeconds], static_cast<uint64_t>(superblock.created_seconds));
  std::memcpy(&bytes[field_at::kLabel], superblock.label.data(), superblock.label.size());
  put_u64(&bytes[field_at::kMembership], superblock.membership);
  put_u64(&bytes[field_at::kMemberSet], superblock.member_set);
  put_u16(&bytes[field_at::kStripeWidth], static_cast<uint16_t>(superblock.stripe_order.size()));
  for (size_t place = 0; place < superblock.stripe_order.size(); ++place)
    bytes[field_at::kStripeOrder + place] = static_cast<std::byte>(superblock.stripe_order[place].value());
  for (size_t index = 0; index < kMemberCountMax; ++index)
    if (superblock.removed.test(index)) bytes[field_at::kRemoved + index / 8] |= std::byte{1} << (index % 8);
  std::memcpy(&bytes[field_at::kMetadataPath], superblock.metadata_path.data(), superblock.metadata_path.size());
  put_u64(&bytes[field_at::kChecksum], checksum_of(bytes));
  return bytes;
}

Result<Superblock> decode_superblock(std::span<const std::byte> bytes, bool for_writing) {
  if (bytes.size() != kSuperblockSize)
    return corrupt(fmt::format("the superblock has {} bytes instead of {}", bytes.size(), kSuperblockSize));
  if (std::memcmp(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size()) != 0)
    return corrupt("the superblock file does not start with a superblock's magic");
  const uint64_t stored = get_u64(&bytes[field_at::kChecksum]);
  if (const uint64_t computed = checksum_of(bytes); stored != computed)
    return corrupt(
        fmt::format("the superblock is damaged: its checksum is {:016x}, its bytes give {:016x}", stored, computed));

  Superblock superblock;
  superblock.version = get_u32(&bytes[field_at::kVersion]);
  if (superblock.version != kFormatVersion)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("the array has format version {}, this program reads version {}; use the program "
                                     "that fits",
                                     superblock.version, kFormatVersion));
  superblock.chunk_size = get_u32(&bytes[field_at::kChunkSize]);
  superblock.compatible = get_u64(&bytes[field_at::kCompatible]);
  superblock.read_only_compatible = get_u64(&bytes[field_at::kReadOnlyCompatible]);
  superblock.incompatible = get_u64(&bytes[field_at::kIncompatible]);
  // Before the fields are judged: a feature may give them values that are new to this program.
  FPFS_RETURN_IF_ERROR(check_features(superblock, for_writing));
  std::memcpy(superblock.array_id.data(), &bytes[field_at::kArrayId], sizeof(Uuid));
  std::memcpy(superblock.member_id.data(), &bytes[field_at::kMemberId], sizeof(Uuid));
  superblock.member_index = MemberIndex(get_u16(&bytes[field_at::kMemberIndex]));
  superblock.member_count = get_u16(&bytes[field_at::kMemberCount]);
  superblock.metadata_member = MemberIndex(get_u16(&bytes[field_at::kMetadataMember]));
  superblock.created_seconds = static_cast<int64_t>(get_u64(&bytes[field_at::kCreatedSeconds]));
  superblock.membership = get_u64(&bytes[field_at::kMembership]);
  superblock.member_set = get_u64(&bytes[field_at::kMemberSet]);
  const size_t width = get_u16(&bytes[field_at::kStripeWidth]);
  if (width > kMemberCountMax || !all_zero(bytes.subspan(field_at::kStripeOrder + width, kMemberCountMax - width)))
    return corrupt(fmt::format("the superblock's stripe is {} members wide", width));
  for (size_t place = 0; place < width; ++place)
    superblock.stripe_order.emplace_back(static_cast<uint16_t>(bytes[field_at::kStripeOrder + place]));
  for (size_t index = 0; index < kMemberCountMax; ++index)
    if ((bytes[field_at::kRemoved + index / 8] >> (index % 8) & std::byte{1}) != std::byte{0})
      superblock.removed.set(index);
  if (!read_text(bytes.subspan(field_at::kLabel, kLabelField), &superblock.label) ||
      !read_text(bytes.subspan(field_at::kMetadataPath, kMetadataPathField), &superblock.metadata_path))
    return corrupt("the superblock has bytes after the end of a text");
  if (!all_zero(bytes.subspan(field_at::kReserved1, field_at::kCreatedSeconds - field_at::kReserved1)) ||
      !all_zero(bytes.subspan(field_at::kReserved2, field_at::kStripeOrder - field_at::kReserved2)) ||
      !all_zero(bytes.subspan(field_at::kReserved4, field_at::kMetadataPath - field_at::kReserved4)) ||
      !all_zero(bytes.subspan(field_at::kReserved3, field_at::kChecksum - field_at::kReserved3)))
    return corrupt("the superblock has reserved bytes that are not zero");
  FPFS_RETURN_IF_ERROR(validate_superblock(superblock));
  return superblock;
}

}  // namespace fpfs
