#include "engine/tier/tier_note.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/codec/hash.h"

namespace fpfs {
namespace {

constexpr uint16_t kNoteVersion = 1;
// Flags.
constexpr uint16_t kVerified = 1;
constexpr uint16_t kOthers = 2;

namespace note_at {
constexpr size_t kVersion = 0;
constexpr size_t kFlags = 2;
constexpr size_t kReserved = 4;  // 4 bytes
constexpr size_t kPlace = 8;
constexpr size_t kFileId = 16;
constexpr size_t kSequence = 24;
constexpr size_t kSize = 32;
constexpr size_t kContentTag = 40;
constexpr size_t kManifestTag = 48;
constexpr size_t kAttributes = 56;
constexpr size_t kChecksum = 64;
}  // namespace note_at
static_assert(note_at::kChecksum + sizeof(uint64_t) == TierNote::kBytes);

uint64_t hash_text(std::string_view text, uint64_t seed) {
  return hash_bytes(std::as_bytes(std::span(text)), seed);
}

}  // namespace

uint64_t TierNote::place_of(std::string_view store, std::string_view path) {
  return hash_text(path, hash_text(store, 0));
}

uint64_t TierNote::tag_of(std::string_view tag) {
  return hash_text(tag, 0);
}

std::array<std::byte, TierNote::kBytes> encode_note(const TierNote& note) {
  std::array<std::byte, TierNote::kBytes> bytes{};
  put_u16(&bytes[note_at::kVersion], kNoteVersion);
  put_u16(&bytes[note_at::kFlags],
          static_cast<uint16_t>((note.verified ? kVerified : 0) | (note.is_others ? kOthers : 0)));
  put_u64(&bytes[note_at::kPlace], note.place);
  put_u64(&bytes[note_at::kFileId], note.file_id.value());
  put_u64(&bytes[note_at::kSequence], note.sequence);
  put_u64(&bytes[note_at::kSize], note.size);
  put_u64(&bytes[note_at::kContentTag], note.content_tag);
  put_u64(&bytes[note_at::kManifestTag], note.manifest_tag);
  put_u64(&bytes[note_at::kAttributes], note.attributes);
  put_u64(&bytes[note_at::kChecksum], hash_bytes(std::span(bytes).first(note_at::kChecksum)));
  return bytes;
}

Result<TierNote> decode_note(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(uint16_t) + sizeof(uint64_t))
    return Status::error(StatusCode::kCorruption, fmt::format("note of a copy: it has {} bytes", bytes.size()));
  if (const uint16_t version = get_u16(&bytes[note_at::kVersion]); version != kNoteVersion)
    return Status::error(StatusCode::kUnsupported, fmt::format("note of a copy: version {}", version));
  const bool is_whole = bytes.size() == TierNote::kBytes &&
                        hash_bytes(bytes.first(note_at::kChecksum)) == get_u64(&bytes[note_at::kChecksum]);
  const bool is_clear = is_whole && all_zero(bytes.subspan(note_at::kReserved, 4)) &&
                        (get_u16(&bytes[note_at::kFlags]) & ~(kVerified | kOthers)) == 0;
  if (!is_clear) return Status::error(StatusCode::kCorruption, "note of a copy: it is not what was written");
  TierNote note;
  note.verified = (get_u16(&bytes[note_at::kFlags]) & kVerified) != 0;
  note.is_others = (get_u16(&bytes[note_at::kFlags]) & kOthers) != 0;
  note.place = get_u64(&bytes[note_at::kPlace]);
  note.file_id = FileId(get_u64(&bytes[note_at::kFileId]));
  note.sequence = get_u64(&bytes[note_at::kSequence]);
  note.size = get_u64(&bytes[note_at::kSize]);
  note.content_tag = get_u64(&bytes[note_at::kContentTag]);
  note.manifest_tag = get_u64(&bytes[note_at::kManifestTag]);
  note.attributes = get_u64(&bytes[note_at::kAttributes]);
  return note;
}

std::optional<TierNote> read_note(Storage& storage, Handle node) {
  for (const char* const attribute : {TierNote::kAttribute, TierNote::kNodeAttribute}) {
    std::array<std::byte, TierNote::kBytes> bytes;
    const Result<size_t> length = storage.get_xattr(node, attribute, bytes);
    if (!length.is_ok()) continue;
    const Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
    return note.is_ok() ? std::optional(*note) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace fpfs
