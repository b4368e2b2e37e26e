#include "engine/tier/tier_manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr std::string_view kMagic = "FPFSTIER";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadSize = 136;
constexpr size_t kXattrHeadSize = 6;
constexpr size_t kChecksumSize = 8;

namespace field_at {
constexpr size_t kMagicBytes = 0;
constexpr size_t kVersion = 8;
constexpr size_t kReplacedCount = 12;
constexpr size_t kArrayId = 16;
constexpr size_t kFileId = 32;
constexpr size_t kSequence = 40;
constexpr size_t kSize = 48;
constexpr size_t kMtimeSeconds = 56;
constexpr size_t kDevice = 64;
constexpr size_t kChecksumCount = 72;
constexpr size_t kMode = 80;
constexpr size_t kUid = 84;
constexpr size_t kGid = 88;
constexpr size_t kMtimeNanoseconds = 92;
constexpr size_t kChunkSize = 96;
constexpr size_t kGeneration = 100;
constexpr size_t kPathBytes = 104;
constexpr size_t kTagBytes = 108;
constexpr size_t kTargetBytes = 112;
constexpr size_t kXattrCount = 116;
constexpr size_t kXattrBytes = 120;
constexpr size_t kFlags = 124;
constexpr size_t kRemovedOf = 128;
}  // namespace field_at
static_assert(field_at::kRemovedOf + 8 == kHeadSize);
constexpr size_t kReplacedBytes = 16;  // array, tag
// Flags.
constexpr uint32_t kHasStoredChecksums = 1;
constexpr uint32_t kIsShared = 2;
constexpr uint32_t kHasContent = 4;
constexpr uint32_t kFlags = kHasStoredChecksums | kIsShared | kHasContent;
static_assert(TierManifest::kContentMax < kChunkSizeMin);

Status invalid(const std::string& what) {
  return Status::error(StatusCode::kInvalidArgument, "manifest of a copy: " + what);
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

size_t xattr_bytes(const TierManifest& manifest) {
  size_t bytes = 0;
  for (const auto& [name, value] : manifest.xattrs) bytes += kXattrHeadSize + name.size() + value.size();
  return bytes;
}

Status validate_xattrs(const TierManifest& manifest) {
  for (const auto& [name, value] : manifest.xattrs) {
    if (name.empty() || name.size() > TierManifest::kXattrNameBytesMax || has_nul(name))
      return invalid(fmt::format("the name of an extended attribute of {} bytes", name.size()));
    if (value.size() > TierManifest::kXattrValueBytesMax)
      return invalid(fmt::format("an extended attribute of {} bytes", value.size()));
  }
  if (const size_t bytes = xattr_bytes(manifest); bytes > TierManifest::kXattrsBytesMax)
    return invalid(fmt::format("{} bytes of extended attributes", bytes));
  return Status::ok();
}

Status validate_replaced(const TierManifest& manifest) {
  if (manifest.replaced.size() > TierManifest::kReplacedMax)
    return invalid(fmt::format("{} versions of others", manifest.replaced.size()));
  if (manifest.replaced.contains(0)) return invalid("a version of no array");
  const bool is_empty = manifest.size == 0 && manifest.content_tag.empty() && manifest.file_id == FileId() &&
                        manifest.sequence == 0 && manifest.generation == Generation();
  if (manifest.is_removed() && !is_empty) return invalid("a content of what was removed");
  return Status::ok();
}

Status validate_content(const TierManifest& manifest) {
  const bool has_content = manifest.size > 0;
  if (manifest.size > kFileSizeMax) return invalid(fmt::format("a size of {} bytes", manifest.size));
  if (manifest.content_tag.size() > TierManifest::kTagBytesMax || has_nul(manifest.content_tag))
    return invalid(fmt::format("a tag of {} bytes", manifest.content_tag.size()));
  const bool is_chunk_size = std::has_single_bit(manifest.chunk_size) && manifest.chunk_size >= kChunkSizeMin &&
                             manifest.chunk_size <= kChunkSizeMax;
  if (has_content ? !is_chunk_size : manifest.chunk_size != 0)
    return invalid(fmt::format("chunks of {} bytes", manifest.chunk_size));
  const uint64_t chunks = has_content ? (manifest.size - 1) / manifest.chunk_size + 1 : 0;
  if (manifest.checksums.size() != chunks)
    return invalid(fmt::format("{} checksums of {} chunks", manifest.checksums.size(), chunks));
  if (!manifest.stored_checksums.empty() && manifest.stored_checksums.size() != chunks)
    return invalid(fmt::format("{} stored checksums of {} chunks", manifest.stored_checksums.size(), chunks));
  if (!manifest.is_content_right())
    return invalid(fmt::format("{} bytes of content that its checksum is not of", manifest.content.size()));
  const bool is_described = manifest.is_file() && !manifest.is_removed()
                                ? !manifest.content_tag.empty()
                                : !has_content && manifest.content_tag.empty() && manifest.file_id == FileId() &&
                                      manifest.sequence == 0 && manifest.generation == Generation();
  if (!is_described) return invalid("a node of another type than its content");
  return Status::ok();
}

size_t checksum_bytes(const TierManifest& manifest) {
  return (manifest.checksums.size() + manifest.stored_checksums.size()) * kChecksumSize;
}

uint32_t flags_of(const TierManifest& manifest) {
  return (manifest.stored_checksums.empty() ? 0 : kHasStoredChecksums) |
         (manifest.replaced.empty() && !manifest.is_removed() ? 0 : kIsShared) |
         (manifest.content.empty() ? 0 : kHasContent);
}

std::vector<uint64_t> get_checksums(std::span<const std::byte> bytes) {
  std::vector<uint64_t> checksums(bytes.size() / kChecksumSize);
  for (size_t i = 0; i < checksums.size(); ++i) checksums[i] = get_u64(&bytes[i * kChecksumSize]);
  return checksums;
}

std::byte* put_checksums(std::byte* at, const std::vector<uint64_t>& checksums) {
  for (const uint64_t checksum : checksums) {
    put_u64(at, checksum);
    at += kChecksumSize;
  }
  return at;
}

// Takes bytes from the front; the caller has made sure that there are so many.
std::string take_text(std::span<const std::byte>& rest, size_t count) {
  std::string text(reinterpret_cast<const char*>(rest.data()), count);
  rest = rest.subspan(count);
  return text;
}

Status damaged(const std::string& what) {
  return Status::error(StatusCode::kCorruption, "manifest of a copy: " + what);
}

Status take_xattrs(std::span<const std::byte> rest, uint32_t count, TierManifest& manifest) {
  for (uint32_t i = 0; i < count; ++i) {
    if (rest.size() < kXattrHeadSize) return damaged("extended attributes end early");
    const size_t name_bytes = get_u16(&rest[0]), value_bytes = get_u32(&rest[2]);
    rest = rest.subspan(kXattrHeadSize);
    if (rest.size() < name_bytes || rest.size() - name_bytes < value_bytes)
      return damaged("extended attributes end early");
    std::string name = take_text(rest, name_bytes);
    if (!manifest.xattrs.empty() && name <= manifest.xattrs.rbegin()->first)
      return damaged("extended attributes out of order");
    manifest.xattrs.emplace_hint(manifest.xattrs.end(), std::move(name), take_text(rest, value_bytes));
  }
  return rest.empty() ? Status::ok() : damaged("bytes behind the extended attributes");
}

Status take_replaced(std::span<const std::byte> rest, TierManifest& manifest) {
  for (; !rest.empty(); rest = rest.subspan(kReplacedBytes)) {
    const uint64_t array = get_u64(&rest[0]);
    if (!manifest.replaced.empty() && array <= manifest.replaced.rbegin()->first)
      return damaged("versions of others out of order");
    manifest.replaced.emplace_hint(manifest.replaced.end(), array, get_u64(&rest[8]));
  }
  return Status::ok();
}

// What has its place in the head.
TierManifest head_of(std::span<const std::byte> bytes) {
  TierManifest manifest;
  std::memcpy(manifest.array_id.data(), &bytes[field_at::kArrayId], sizeof(Uuid));
  manifest.file_id = FileId(get_u64(&bytes[field_at::kFileId]));
  manifest.generation = Generation(get_u32(&bytes[field_at::kGeneration]));
  manifest.sequence = get_u64(&bytes[field_at::kSequence]);
  manifest.size = get_u64(&bytes[field_at::kSize]);
  manifest.mode = get_u32(&bytes[field_at::kMode]);
  manifest.uid = get_u32(&bytes[field_at::kUid]);
  manifest.gid = get_u32(&bytes[field_at::kGid]);
  manifest.mtime_seconds = static_cast<int64_t>(get_u64(&bytes[field_at::kMtimeSeconds]));
  manifest.mtime_nanoseconds = get_u32(&bytes[field_at::kMtimeNanoseconds]);
  manifest.device = get_u64(&bytes[field_at::kDevice]);
  manifest.chunk_size = get_u32(&bytes[field_at::kChunkSize]);
  manifest.removed_of = get_u64(&bytes[field_at::kRemovedOf]);
  return manifest;
}

Status check_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadSize + kChecksumSize) return damaged(fmt::format("it has {} bytes", bytes.size()));
  if (std::memcmp(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size()) != 0)
    return damaged("it does not begin as one");
  const uint32_t version = get_u32(&bytes[field_at::kVersion]);
  if (version != kVersion)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("manifest of a copy: version {}, this release reads {}", version, kVersion));
  const auto body = bytes.first(bytes.size() - kChecksumSize);
  if (hash_bytes(body) != get_u64(&bytes[body.size()])) return damaged("its checksum is wrong");
  return Status::ok();
}

}  // namespace

bool TierManifest::is_file() const {
  return S_ISREG(mode);
}

bool TierManifest::is_content_right() const {
  return content.empty() || (content.size() == size && size <= kContentMax && checksums.size() == 1 &&
                             hash_bytes(content) == checksums.front());
}

bool TierManifest::is_edited() const {
  return replaced.contains(array_key(array_id));
}

uint64_t array_key(const Uuid& array_id) {
  return std::max<uint64_t>(1, hash_bytes(std::as_bytes(std::span(array_id))));
}

Status check_chunk_size(const TierManifest& manifest, uint32_t chunk_size) {
  if (!manifest.has_chunks() || manifest.chunk_size == chunk_size) return Status::ok();
  return Status::error(
      StatusCode::kTooLarge,
      fmt::format("the copies have chunks of {}, this array has such of {}: format it with --chunk-size={}K",
                  format_size(manifest.chunk_size), format_size(chunk_size), manifest.chunk_size / kKiB));
}

void take_attributes(TierManifest& manifest, const TierManifest& from) {
  manifest.mode = from.mode;
  manifest.uid = from.uid;
  manifest.gid = from.gid;
  manifest.mtime_seconds = from.mtime_seconds;
  manifest.mtime_nanoseconds = from.mtime_nanoseconds;
  manifest.device = from.device;
  manifest.target = from.target;
  manifest.xattrs = from.xattrs;
}

uint64_t attributes_hash(const TierManifest& manifest) {
  TierManifest attributes;
  take_attributes(attributes, manifest);
  return hash_bytes(encode_manifest(attributes));
}

Status validate_manifest(const TierManifest& manifest) {
  if (manifest.path.empty() || manifest.path.size() > TierManifest::kPathBytesMax || has_nul(manifest.path))
    return invalid(fmt::format("a path of {} bytes", manifest.path.size()));
  const uint32_t type = manifest.mode & S_IFMT;
  const bool is_device = type == S_IFCHR || type == S_IFBLK;
  const bool is_known =
      is_device || type == S_IFREG || type == S_IFDIR || type == S_IFLNK || type == S_IFIFO || type == S_IFSOCK;
  if (!is_known || (manifest.mode & ~uint32_t{S_IFMT | 07777}) != 0)
    return invalid(fmt::format("a mode of {:o}", manifest.mode));
  if (manifest.device != 0 && !is_device) return invalid("a device number of what is no device");
  if (manifest.mtime_nanoseconds >= 1'000'000'000)
    return invalid(fmt::format("a time with {} nanoseconds", manifest.mtime_nanoseconds));
  const size_t target = manifest.target.size();
  if (type == S_IFLNK ? target == 0 || target > TierManifest::kTargetBytesMax || has_nul(manifest.target) : target != 0)
    return invalid(fmt::format("a target of {} bytes", target));
  FPFS_RETURN_IF_ERROR(validate_xattrs(manifest));
  FPFS_RETURN_IF_ERROR(validate_replaced(manifest));
  return validate_content(manifest);
}

std::vector<std::byte> encode_manifest(const TierManifest& manifest) {
  const size_t xattrs = xattr_bytes(manifest);
  const size_t body = kHeadSize + manifest.path.size() + manifest.content_tag.size() + manifest.target.size() + xattrs +
                      checksum_bytes(manifest) + manifest.replaced.size() * kReplacedBytes + manifest.content.size();
  std::vector<std::byte> bytes(body + kChecksumSize);
  std::memcpy(&bytes[field_at::kMagicBytes], kMagic.data(), kMagic.size());
  put_u32(&bytes[field_at::kVersion], kVersion);
  std::memcpy(&bytes[field_at::kArrayId], manifest.array_id.data(), sizeof(Uuid));
  put_u64(&bytes[field_at::kFileId], manifest.file_id.value());
  put_u64(&bytes[field_at::kSequence], manifest.sequence);
  put_u64(&bytes[field_at::kSize], manifest.size);
  put_u64(&bytes[field_at::kMtimeSeconds], static_cast<uint64_t>(manifest.mtime_seconds));
  put_u64(&bytes[field_at::kDevice], manifest.device);
  put_u64(&bytes[field_at::kChecksumCount], manifest.checksums.size());
  put_u32(&bytes[field_at::kMode], manifest.mode);
  put_u32(&bytes[field_at::kUid], manifest.uid);
  put_u32(&bytes[field_at::kGid], manifest.gid);
  put_u32(&bytes[field_at::kMtimeNanoseconds], manifest.mtime_nanoseconds);
  put_u32(&bytes[field_at::kChunkSize], manifest.chunk_size);
  put_u32(&bytes[field_at::kGeneration], manifest.generation.value());
  put_u32(&bytes[field_at::kPathBytes], static_cast<uint32_t>(manifest.path.size()));
  put_u32(&bytes[field_at::kTagBytes], static_cast<uint32_t>(manifest.content_tag.size()));
  put_u32(&bytes[field_at::kTargetBytes], static_cast<uint32_t>(manifest.target.size()));
  put_u32(&bytes[field_at::kXattrCount], static_cast<uint32_t>(manifest.xattrs.size()));
  put_u32(&bytes[field_at::kXattrBytes], static_cast<uint32_t>(xattrs));
  put_u32(&bytes[field_at::kFlags], flags_of(manifest));
  put_u32(&bytes[field_at::kReplacedCount], static_cast<uint32_t>(manifest.replaced.size()));
  put_u64(&bytes[field_at::kRemovedOf], manifest.removed_of);
  std::byte* at = &bytes[kHeadSize];
  const auto append = [&at](std::string_view text) {
    std::memcpy(at, text.data(), text.size());
    at += text.size();
  };
  append(manifest.path);
  append(manifest.content_tag);
  append(manifest.target);
  for (const auto& [name, value] : manifest.xattrs) {
    put_u16(at, static_cast<uint16_t>(name.size()));
    put_u32(at + 2, static_cast<uint32_t>(value.size()));
    at += kXattrHeadSize;
    append(name);
    append(value);
  }
  at = put_checksums(put_checksums(at, manifest.checksums), manifest.stored_checksums);
  for (const auto& [array, tag] : manifest.replaced) at = put_checksums(at, {array, tag});
  at = std::copy(manifest.content.begin(), manifest.content.end(), at);
  put_u64(at, hash_bytes(std::span(bytes).first(body)));
  return bytes;
}

Result<TierManifest> decode_manifest(std::span<const std::byte> bytes) {
  FPFS_RETURN_IF_ERROR(check_frame(bytes));
  TierManifest manifest = head_of(bytes);
  const uint64_t path = get_u32(&bytes[field_at::kPathBytes]), tag = get_u32(&bytes[field_at::kTagBytes]),
                 target = get_u32(&bytes[field_at::kTargetBytes]), xattrs = get_u32(&bytes[field_at::kXattrBytes]),
                 replaced = get_u32(&bytes[field_at::kReplacedCount]),
                 checksums = get_u64(&bytes[field_at::kChecksumCount]);
  std::span<const std::byte> rest = bytes.subspan(kHeadSize, bytes.size() - kHeadSize - kChecksumSize);
  const uint32_t flags = get_u32(&bytes[field_at::kFlags]);
  if ((flags & ~kFlags) != 0) return damaged(fmt::format("unknown flags {:#x}", flags));
  const bool has_content = (flags & kHasContent) != 0;
  if (has_content && (manifest.size == 0 || manifest.size > TierManifest::kContentMax))
    return damaged(fmt::format("a content of {} bytes in it", manifest.size));
  const uint64_t content = has_content ? manifest.size : 0;
  // Each but the checksums is below 2^32, so that their sum is right.
  const uint64_t texts = path + tag + target + xattrs, others = texts + replaced * kReplacedBytes + content;
  const bool has_stored = (flags & kHasStoredChecksums) != 0, is_shared = replaced > 0 || manifest.is_removed();
  const uint64_t chunk_bytes = has_stored ? 2 * kChecksumSize : kChecksumSize;
  if (others > rest.size() || checksums != (rest.size() - others) / chunk_bytes ||
      (rest.size() - others) % chunk_bytes != 0 || (has_stored && checksums == 0) ||
      is_shared != ((flags & kIsShared) != 0))
    return damaged(fmt::format("its {} bytes are not those of its parts", bytes.size()));
  manifest.path = take_text(rest, path);
  manifest.content_tag = take_text(rest, tag);
  manifest.target = take_text(rest, target);
  FPFS_RETURN_IF_ERROR(take_xattrs(rest.first(xattrs), get_u32(&bytes[field_at::kXattrCount]), manifest));
  rest = rest.subspan(xattrs);
  manifest.checksums = get_checksums(rest.first(checksums * kChecksumSize));
  rest = rest.subspan(checksums * kChecksumSize);
  if (has_stored) manifest.stored_checksums = get_checksums(rest.first(checksums * kChecksumSize));
  const auto last = rest.last(content);
  FPFS_RETURN_IF_ERROR(take_replaced(rest.first(rest.size() - content).last(replaced * kReplacedBytes), manifest));
  manifest.content.assign(last.begin(), last.end());
  const Status valid = validate_manifest(manifest);
  if (!valid.is_ok()) return Status::error(StatusCode::kCorruption, valid.message());
  return manifest;
}

// --- where things are ------------------------------------------------------------------------------------------------

std::string manifest_key(std::string_view path) {
  return fmt::format("{}/{}{}", kTierReserved, path, path.ends_with('/') ? kTierDirectory : "");
}

std::string_view path_of_manifest(std::string_view key) {
  const size_t begin = kTierReserved.size() + 1;
  const bool is_one = key.size() > begin && key.starts_with(kTierReserved) && key[begin - 1] == '/';
  if (!is_one) return {};
  const std::string_view path = key.substr(begin);
  const bool is_directory = path.size() > kTierDirectory.size() + 1 && path.ends_with(kTierDirectory) &&
                            path[path.size() - kTierDirectory.size() - 1] == '/';
  return is_directory ? path.substr(0, path.size() - kTierDirectory.size()) : path;
}

bool is_reserved(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view component = path.substr(0, slash);
    if (component == kTierReserved || component.starts_with(".fastpersistfs-")) return true;
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return false;
}

}  // namespace fpfs
