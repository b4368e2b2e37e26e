#include "engine/tier/tier_lost.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/codec/hash.h"
#include "engine/tier/tree_path.h"

namespace fpfs {
namespace {

constexpr uint64_t kLostMagic = 0x74736f6c'73667066;  // "fpfslost"
constexpr uint32_t kLostFormat = 1;
constexpr size_t kLostHeaderBytes = 32, kLostEntryBytes = 16, kLostChecksumBytes = 8;
constexpr size_t kLostFileBytesMax = kLostHeaderBytes + TierLost::kEntriesMax * kLostEntryBytes + kLostChecksumBytes;

}  // namespace

TierLost::TierLost(Store& store, std::string noted_store) : store_(store), noted_store_(std::move(noted_store)) {}

std::shared_ptr<TierLost> TierLost::open(Store& store, std::string noted_store) {
  auto lost = std::make_shared<TierLost>(store, std::move(noted_store));
  const auto bytes =
      read_small_file(store.storage(), store.array().metadata_directory(), kTierLostName, kLostFileBytesMax);
  if (bytes.status().code() == StatusCode::kNotFound) return lost;
  const Result<Manifests> decoded = bytes.is_ok() ? decode(*bytes, store.array().id()) : bytes.status();
  if (!decoded.is_ok()) {
    log(LogLevel::kWarning, "tier: {}/{} {}; what was removed here, and not in the store, may come back",
        store.array().metadata_path(), kTierLostName, decoded.status().message());
    return lost;
  }
  const MutexLock lock(lost->mutex_);
  lost->lost_ = decoded.value();
  lost->is_changed_ = false;
  return lost;
}

bool TierLost::is_there(Storage& storage, const Array& array) {
  return storage.stat_at(array.metadata_directory(), kTierLostName).status().code() != StatusCode::kNotFound;
}

std::vector<uint64_t> TierLost::note(const Store::NameEvent& event, const NoteOf& note_of) {
  using Kind = Store::NameEvent::Kind;
  const auto place_of = [this](const std::string& path) { return TierNote::place_of(noted_store_, path); };
  std::vector<std::pair<uint64_t, uint64_t>> found;
  if (event.lost != kNoHandle)
    if (const auto note = note_of(event.lost, event.path); note.has_value())
      found.emplace_back(note->place, note->manifest_tag);
  // What was moved has left the place that its note is of.
  if (event.kind == Kind::kMoved && !event.is_directory) {
    Storage& storage = store_.storage();
    std::string name;
    const Result<ScopedHandle> directory = open_parent(storage, store_.root(), event.path, name);
    const Result<Handle> opened =
        directory.is_ok() ? storage.open_at(directory.value().get(), name, O_PATH) : directory.status();
    if (opened.is_ok()) {
      const ScopedHandle node(storage, *opened);
      const Result<struct stat> attributes = storage.fstat(node.get());
      const bool is_it =
          attributes.is_ok() && (event.inode == 0 ? !S_ISDIR(attributes->st_mode) : attributes->st_ino == event.inode);
      const std::optional<TierNote> moved = is_it ? read_note(storage, node.get()) : std::nullopt;
      if (moved.has_value() && moved->place != place_of(event.path))
        found.emplace_back(moved->place, moved->manifest_tag);
    }
  }
  if (event.is_directory && event.kind != Kind::kMade)
    found.emplace_back(place_of((event.kind == Kind::kMoved ? event.from : event.path) + "/"), kAnyManifest);
  std::vector<uint64_t> places;
  for (const auto& [place, manifest] : found) {
    places.push_back(place);
    add(place, manifest);
  }
  return places;
}

void TierLost::add(uint64_t place, uint64_t manifest) {
  const MutexLock lock(mutex_);
  if (lost_.size() >= kEntriesMax && !lost_.contains(place)) return;
  uint64_t& is = lost_[place];
  is_changed_ |= is != manifest;
  is = manifest;
}

void TierLost::note(const Store::NameEvent& event) {
  static_cast<void>(note(event, [this](Handle node, const std::string&) { return read_note(store_.storage(), node); }));
}

uint64_t TierLost::manifest_at(uint64_t place) const {
  const MutexLock lock(mutex_);
  const auto found = lost_.find(place);
  return found == lost_.end() ? 0 : found->second;
}

void TierLost::forget(uint64_t place, uint64_t manifest) {
  const MutexLock lock(mutex_);
  const auto found = lost_.find(place);
  if (found == lost_.end() || found->second != manifest) return;
  lost_.erase(found);
  is_changed_ = true;
}

bool TierLost::is_changed() const {
  const MutexLock lock(mutex_);
  return is_changed_;
}

void TierLost::save() {
  const MutexLock saving(saving_);
  Manifests lost;
  {
    const MutexLock lock(mutex_);
    if (!is_changed_) return;
    lost = lost_;
    is_changed_ = false;
  }
  const Array& array = store_.array();
  const Status saved = replace_file(store_.storage(), array.metadata_directory(), kTierLostName, kTierLostNewName,
                                    encode(lost, array.id()));
  if (!saved.is_ok() && !is_failing_)
    log(LogLevel::kWarning,
        "tier: what was removed here, and not in the store, cannot be noted: {}; it comes back if "
        "the array is unmounted before it is removed there, too",
        saved.message());
  is_failing_ = !saved.is_ok();
  const MutexLock lock(mutex_);
  is_changed_ |= is_failing_;
}

std::vector<std::byte> TierLost::encode(const Manifests& lost, const Uuid& array_id) {
  std::vector<std::byte> bytes(kLostHeaderBytes + lost.size() * kLostEntryBytes + kLostChecksumBytes);
  put_u64(bytes.data(), kLostMagic);
  put_u32(&bytes[8], kLostFormat);
  put_u32(&bytes[12], static_cast<uint32_t>(lost.size()));
  std::ranges::copy(array_id, &bytes[16]);
  size_t at = kLostHeaderBytes;
  for (const auto& [place, manifest] : lost) {
    put_u64(&bytes[at], place);
    put_u64(&bytes[at + 8], manifest);
    at += kLostEntryBytes;
  }
  put_u64(&bytes[at], hash_bytes(std::span(bytes).first(at)));
  return bytes;
}

Result<TierLost::Manifests> TierLost::decode(std::span<const std::byte> bytes, const Uuid& array_id) {
  const Status damaged = Status::error(StatusCode::kCorruption, "is damaged");
  if (bytes.size() < kLostHeaderBytes + kLostChecksumBytes || bytes.size() > kLostFileBytesMax ||
      get_u64(bytes.data()) != kLostMagic)
    return damaged;
  if (const uint32_t format = get_u32(&bytes[8]); format != kLostFormat)
    return Status::error(StatusCode::kUnsupported,
                         fmt::format("has format {}, this version knows {}", format, kLostFormat));
  const size_t end = bytes.size() - kLostChecksumBytes;
  if (end != kLostHeaderBytes + size_t{get_u32(&bytes[12])} * kLostEntryBytes ||
      get_u64(&bytes[end]) != hash_bytes(bytes.first(end)))
    return damaged;
  if (!std::ranges::equal(array_id, bytes.subspan(16, array_id.size())))
    return Status::error(StatusCode::kCorruption, "is of another array");
  Manifests lost;
  for (size_t at = kLostHeaderBytes; at < end; at += kLostEntryBytes)
    lost[get_u64(&bytes[at])] = get_u64(&bytes[at + 8]);
  return lost;
}

}  // namespace fpfs
