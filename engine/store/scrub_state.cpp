#include "engine/store/scrub_state.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "engine/codec/hash.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

constexpr std::string_view kMagic = "FPFSSCRB";
constexpr uint32_t kVersion = 1;
constexpr size_t kPathMax = 65535;
constexpr size_t kDetailMax = 1000;
constexpr uint16_t kNoMember = 0xffff;

// docs/format.md says the same.
namespace field_at {
constexpr size_t kMagicBytes = 0;
constexpr size_t kVersion = 8;
constexpr size_t kLength = 12;
constexpr size_t kArrayId = 16;
constexpr size_t kPhase = 32;
constexpr size_t kReserved = 33;
constexpr size_t kLimit = 40;
constexpr size_t kStarted = 48;
constexpr size_t kEnded = 56;
constexpr size_t kActiveMs = 64;
constexpr size_t kFiles = 72;
constexpr size_t kChunks = 80;
constexpr size_t kBytes = 88;
constexpr size_t kErrors = 96;
constexpr size_t kFile = 104;
constexpr size_t kNextChunk = 112;
constexpr size_t kGeneration = 120;
constexpr size_t kPositionLength = 124;
constexpr size_t kDamageCount = 128;
constexpr size_t kReserved2 = 132;
constexpr size_t kPosition = 136;
}  // namespace field_at

namespace damage_at {
constexpr size_t kChunk = 0;
constexpr size_t kObjectOffset = 8;
constexpr size_t kMember = 16;
constexpr size_t kKind = 18;
constexpr size_t kReserved = 19;
constexpr size_t kPathLength = 20;
constexpr size_t kDetailLength = 22;
constexpr size_t kPath = 24;
}  // namespace damage_at

constexpr size_t kChecksumSize = 8;

// Numbers are kept for ever; new kinds are added at the end.
constexpr std::array<std::string_view, 8> kKinds = {"",         "sidecar",      "foreign-sidecar", "missing-object",
                                                    "checksum", "short-object", "unreadable",      "missing-member"};

uint8_t number_of(const std::string& kind) {
  const auto* const found = std::find(kKinds.begin(), kKinds.end(), kind);
  return found == kKinds.end() ? uint8_t{0} : static_cast<uint8_t>(found - kKinds.begin());
}

void append(std::vector<std::byte>& out, const std::string& text, size_t length) {
  const size_t at = out.size();
  out.resize(at + length);
  if (length > 0) std::memcpy(&out[at], text.data(), length);
}

void append_damage(std::vector<std::byte>& out, const CheckError& error) {
  const size_t path_length = std::min(error.path.size(), kPathMax);
  const size_t detail_length = std::min(error.detail.size(), kDetailMax);
  std::array<std::byte, damage_at::kPath> head{};
  put_u64(&head[damage_at::kChunk], static_cast<uint64_t>(error.chunk));
  put_u64(&head[damage_at::kObjectOffset], static_cast<uint64_t>(error.object_offset));
  put_u16(&head[damage_at::kMember], error.member < 0 ? kNoMember : static_cast<uint16_t>(error.member));
  head[damage_at::kKind] = static_cast<std::byte>(number_of(error.kind));
  put_u16(&head[damage_at::kPathLength], static_cast<uint16_t>(path_length));
  put_u16(&head[damage_at::kDetailLength], static_cast<uint16_t>(detail_length));
  out.insert(out.end(), head.begin(), head.end());
  append(out, error.path, path_length);
  append(out, error.detail, detail_length);
}

Status corrupt(const std::string& what) {
  return Status::error(StatusCode::kCorruption, "the scrub state is not valid: " + what);
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Takes one entry off the front of `rest`.
Result<CheckError> take_damage(std::span<const std::byte>& rest) {
  if (rest.size() < damage_at::kPath) return corrupt("an entry is cut short");
  CheckError error;
  error.chunk = static_cast<int64_t>(get_u64(&rest[damage_at::kChunk]));
  error.object_offset = static_cast<int64_t>(get_u64(&rest[damage_at::kObjectOffset]));
  const uint16_t member = get_u16(&rest[damage_at::kMember]);
  error.member = member == kNoMember ? -1 : member;
  const auto kind = static_cast<size_t>(rest[damage_at::kKind]);
  const size_t path_length = get_u16(&rest[damage_at::kPathLength]);
  const size_t detail_length = get_u16(&rest[damage_at::kDetailLength]);
  if (error.chunk < -1 || error.object_offset < -1 || kind >= kKinds.size() ||
      rest[damage_at::kReserved] != std::byte{0})
    return corrupt("an entry makes no sense");
  if (rest.size() - damage_at::kPath < path_length + detail_length) return corrupt("an entry is cut short");
  error.kind = kKinds[kind];
  error.path = text_of(rest.subspan(damage_at::kPath, path_length));
  error.detail = text_of(rest.subspan(damage_at::kPath + path_length, detail_length));
  rest = rest.subspan(damage_at::kPath + path_length + detail_length);
  return error;
}

}  // namespace

void ScrubFindings::add(CheckError error) {
  ++errors;
  if (damage.size() >= kDamageMax) return;
  const auto before = std::find_if(damage.rbegin(), damage.rend(), [&error](const CheckError& known) {
    return known.path != error.path || known.chunk <= error.chunk;
  });
  damage.insert(before.base(), std::move(error));
}

std::vector<std::byte> encode_scrub_state(const ScrubState& state, const Uuid& array_id) {
  std::vector<std::byte> out(field_at::kPosition);
  std::memcpy(&out[field_at::kMagicBytes], kMagic.data(), kMagic.size());
  put_u32(&out[field_at::kVersion], kVersion);
  std::copy(array_id.begin(), array_id.end(), out.begin() + field_at::kArrayId);
  out[field_at::kPhase] = static_cast<std::byte>(state.phase);
  put_u64(&out[field_at::kLimit], state.limit);
  put_u64(&out[field_at::kStarted], static_cast<uint64_t>(state.started_seconds));
  put_u64(&out[field_at::kEnded], static_cast<uint64_t>(state.ended_seconds));
  put_u64(&out[field_at::kActiveMs], state.active_ms);
  put_u64(&out[field_at::kFiles], state.files);
  put_u64(&out[field_at::kChunks], state.chunks);
  put_u64(&out[field_at::kBytes], state.bytes);
  put_u64(&out[field_at::kErrors], state.errors);
  put_u64(&out[field_at::kFile], state.file);
  put_u64(&out[field_at::kNextChunk], state.next_chunk);
  put_u32(&out[field_at::kGeneration], state.generation);
  // A path that is too long to be kept means starting again from the beginning.
  const size_t position_length = state.position.size() <= kPathMax ? state.position.size() : 0;
  put_u32(&out[field_at::kPositionLength], static_cast<uint32_t>(position_length));
  append(out, state.position, position_length);
  uint32_t count = 0;
  for (const CheckError& error : state.damage) {
    const size_t before = out.size();
    append_damage(out, error);
    if (count == ScrubState::kDamageMax || out.size() + kChecksumSize > ScrubState::kEncodedMax) {
      out.resize(before);
      break;
    }
    ++count;
  }
  put_u32(&out[field_at::kDamageCount], count);
  put_u32(&out[field_at::kLength], static_cast<uint32_t>(out.size() + kChecksumSize));
  const uint64_t checksum = hash_bytes(out);
  out.resize(out.size() + kChecksumSize);
  put_u64(&out[out.size() - kChecksumSize], checksum);
  return out;
}

Result<ScrubState> decode_scrub_state(std::span<const std::byte> bytes, const Uuid& array_id) {
  if (bytes.size() < field_at::kPosition + kChecksumSize) return corrupt("too short");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return corrupt("wrong magic");
  if (get_u32(&bytes[field_at::kVersion]) != kVersion) return corrupt("another version");
  const std::span<const std::byte> content = bytes.first(bytes.size() - kChecksumSize);
  if (get_u32(&bytes[field_at::kLength]) != bytes.size() || get_u64(&bytes[content.size()]) != hash_bytes(content))
    return corrupt("wrong length or checksum");
  if (!std::equal(array_id.begin(), array_id.end(), bytes.begin() + field_at::kArrayId))
    return corrupt("it is of another array");

  ScrubState state;
  const auto phase = static_cast<uint8_t>(bytes[field_at::kPhase]);
  const size_t position_length = get_u32(&bytes[field_at::kPositionLength]);
  const uint32_t count = get_u32(&bytes[field_at::kDamageCount]);
  if (phase > static_cast<uint8_t>(ScrubState::Phase::kCancelled) || count > ScrubState::kDamageMax ||
      position_length > content.size() - field_at::kPosition ||
      !all_zero(bytes.subspan(field_at::kReserved, field_at::kLimit - field_at::kReserved)) ||
      get_u32(&bytes[field_at::kReserved2]) != 0)
    return corrupt("a field is out of range");
  state.phase = static_cast<ScrubState::Phase>(phase);
  state.limit = get_u64(&bytes[field_at::kLimit]);
  state.started_seconds = static_cast<int64_t>(get_u64(&bytes[field_at::kStarted]));
  state.ended_seconds = static_cast<int64_t>(get_u64(&bytes[field_at::kEnded]));
  state.active_ms = get_u64(&bytes[field_at::kActiveMs]);
  state.files = get_u64(&bytes[field_at::kFiles]);
  state.chunks = get_u64(&bytes[field_at::kChunks]);
  state.bytes = get_u64(&bytes[field_at::kBytes]);
  state.errors = get_u64(&bytes[field_at::kErrors]);
  state.file = get_u64(&bytes[field_at::kFile]);
  state.next_chunk = get_u64(&bytes[field_at::kNextChunk]);
  state.generation = get_u32(&bytes[field_at::kGeneration]);
  state.position = text_of(content.subspan(field_at::kPosition, position_length));
  std::span<const std::byte> rest = content.subspan(field_at::kPosition + position_length);
  for (uint32_t i = 0; i < count; ++i) {
    FPFS_ASSIGN_OR_RETURN(CheckError error, take_damage(rest));
    state.damage.push_back(std::move(error));
  }
  if (!rest.empty()) return corrupt("bytes are left over");
  return state;
}

Result<ScrubState> load_scrub_state(Storage& storage, const Array& array) {
  const Handle directory = array.metadata_directory();
  const Result<struct stat> attributes = storage.stat_at(directory, kScrubName);
  if (attributes.status().code() == StatusCode::kNotFound) return ScrubState();
  if (!attributes.is_ok()) return attributes.status();
  if (!S_ISREG(attributes->st_mode) || attributes->st_size > static_cast<off_t>(ScrubState::kEncodedMax))
    return corrupt("no regular file of its size");
  FPFS_ASSIGN_OR_RETURN(const Handle opened, storage.open_at(directory, kScrubName, O_RDONLY | O_NONBLOCK));
  const ScopedHandle file(storage, opened);
  std::vector<std::byte> bytes(static_cast<size_t>(attributes->st_size));
  FPFS_ASSIGN_OR_RETURN(const size_t size, storage.pread(opened, bytes, 0));
  bytes.resize(size);
  return decode_scrub_state(bytes, array.id());
}

Status save_scrub_state(Storage& storage, const Array& array, const ScrubState& state) {
  const Handle directory = array.metadata_directory();
  FPFS_ASSIGN_OR_RETURN(const Handle opened,
                        storage.open_at(directory, kScrubNewName, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0600));
  const ScopedHandle file(storage, opened);
  FPFS_RETURN_IF_ERROR(storage.pwrite(opened, encode_scrub_state(state, array.id()), 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(opened));
  FPFS_RETURN_IF_ERROR(storage.rename(directory, kScrubNewName, directory, kScrubName, 0));
  return storage.fsync(directory);
}

}  // namespace fpfs
