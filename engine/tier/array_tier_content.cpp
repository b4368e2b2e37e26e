// Content that lies in the store only, at the side of a mounted array: a tree that is restored, and files that leave
// the drives. On the thread of ArrayTier, which waits for each step.
#include <algorithm>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/tier/array_tier_impl.h"

namespace fpfs {
namespace {

constexpr uint64_t kReadBackBytes = 8 * kMiB;
constexpr int kPartOfTime = 20;  // looking through a large tree takes no more of the time

}  // namespace

// --- restoring -------------------------------------------------------------------------------------------------------

// Until what it has begun has ended, as that uses the store.
Status ArrayTier::Impl::restore() {
  TierRestoreOptions options;
  options.array_id = binding_.restores;
  options.store_id = binding_.store_id;
  options.connections = std::max(options_.copy.connections, 1U);
  options.named = [this](uint64_t directory, const std::string& name) {
    const MutexLock lock(named_mutex_);
    if (named_ != nullptr) named_(directory, name);
  };
  std::shared_ptr<TierRestore> restore;
  ObjectStore* objects = nullptr;
  {
    const MutexLock lock(mutex_);
    objects = session_->reads.get();
  }
  FPFS_RETURN_IF_ERROR(wait_for_end_of(*objects, options.array_id));
  {
    const MutexLock lock(mutex_);
    restore = restore_ = TierRestore::create(environment_, store_, *objects, options);
    log(LogLevel::kInfo, "tier: what array {} has copied to {} is restored", options.array_id, place_);
  }
  struct Box {
    Mutex mutex;
    CondVar ended;
    std::optional<Status> status FPFS_GUARDED_BY(mutex);
  };
  const auto box = std::make_shared<Box>();
  restore->start([box](const Status& status) {
    const MutexLock lock(box->mutex);
    box->status = status;
    box->ended.notify_all();
  });
  Status restored;
  for (bool is_over = false; !is_over;) {
    if (is_stopping()) restore->stop();
    const MutexLock lock(box->mutex);
    if (!box->status.has_value()) box->ended.wait_for(box->mutex, std::chrono::milliseconds(50));
    is_over = box->status.has_value();
    if (is_over) restored = *box->status;
  }
  const TierRestoreStatus status = restore->status();
  if (!restored.is_ok()) return restored.with_context("tier: not all is restored");
  log(status.failed > 0 ? LogLevel::kError : LogLevel::kInfo,
      "tier: restored: {} ({}), of which those above {} come when they are read, and {}; there already: {}; not "
      "restored: {}",
      format_count(status.files, "file"), format_size(status.bytes), format_size(TierManifest::kContentMax),
      format_count(status.others, "other entry", "directories and others"), status.were_there, status.failed);
  const std::string array = std::exchange(binding_.restores, "");
  if (std::ranges::find(binding_.restored, array) == binding_.restored.end()) binding_.restored.push_back(array);
  FPFS_RETURN_IF_ERROR(save_binding(store_.storage(), store_.array(), binding_));
  const Status left = ask<Status>([&](ObjectStore::DoneStatus done) { leave_tier(*objects, array, std::move(done)); });
  if (!left.is_ok()) log(LogLevel::kWarning, "tier: the store still lists array {}: {}", array, left.message());
  return Status::ok();
}

// --- making room -----------------------------------------------------------------------------------------------------

void ArrayTier::Impl::make_room() {
  const auto begun = Clock::now();
  const auto end = [&] {
    makes_room_at_ =
        Clock::now() + std::max<Clock::duration>(options_.room_interval, kPartOfTime * (Clock::now() - begun));
  };
  // Nothing has become a copy, or came back, since.
  const uint64_t now = progress() + store_.status().chunks_fetched + pin_changes_.load();
  if (std::exchange(made_room_progress_, now) == now) return end();
  const auto is_over = [this] { return is_stopping(); };
  const Result<TierLeaving> leaving = files_to_leave(store_, options_.keep, is_over);
  if (!leaving.is_ok()) {
    if (!is_stopping()) log(LogLevel::kWarning, "tier: no room is made: {}", leaving.status().message());
    return end();
  }
  files_pinned_ = leaving->files_pinned;
  bytes_pinned_ = leaving->bytes_pinned;
  bool is_to_be_done = false;  // what is open, or not copied yet, is looked at again
  for (const std::string& path : leaving->paths) {
    {
      const MutexLock lock(mutex_);
      is_to_be_done |= stopping_ || !tasks_.empty();
      if (stopping_ || !tasks_.empty()) break;
    }
    const Status left = let_go(path);
    is_to_be_done |= !left.is_ok() && left.code() != StatusCode::kInvalidArgument;
    const bool is_of_file = left.code() == StatusCode::kBusy || left.code() == StatusCode::kNotFound ||
                            left.code() == StatusCode::kInvalidArgument;
    if (left.is_ok() || is_of_file) continue;
    if (!is_stopping()) log(LogLevel::kWarning, "tier: {} stays on the drives: {}", path, left.message());
    break;
  }
  if (is_to_be_done) made_room_progress_ = UINT64_MAX;
  end();
}

Result<TierReader::Manifest> ArrayTier::Impl::find_copy(const std::string& path, const TierNote& note) {
  std::shared_ptr<TierReader> reader;
  {
    const MutexLock lock(mutex_);
    reader = session_->prover;
  }
  FPFS_ASSIGN_OR_RETURN(TierReader::Manifest manifest, ask<Result<TierReader::Manifest>>([&](auto done) {
                          reader->find(path, TierReader::Which::kNewest, std::move(done));
                        }));
  const bool is_noted =
      note.is_others || (manifest->array_id == store_.array().id() && manifest->file_id == note.file_id);
  if (is_noted && manifest->size == note.size && TierNote::tag_of(manifest->content_tag) == note.content_tag)
    return manifest;
  return Status::error(StatusCode::kNotFound, "the copy of " + path + " is another than its note says");
}

// All of it is what the manifest says.
Status ArrayTier::Impl::read_back(const TierReader::Manifest& manifest) {
  std::shared_ptr<TierReader> reader;
  {
    const MutexLock lock(mutex_);
    reader = session_->prover;
  }
  const uint64_t chunks = std::max<uint64_t>(1, kReadBackBytes / manifest->chunk_size);
  const auto memory = std::make_shared<std::vector<std::byte>>(chunks * manifest->chunk_size);
  for (uint64_t first = 0; first < manifest->checksums.size(); first += chunks) {
    const uint64_t length = std::min<uint64_t>(memory->size(), manifest->size - first * manifest->chunk_size);
    // The memory stays, also when nobody waits for the answer any more.
    FPFS_RETURN_IF_ERROR(ask<Status>([&](std::function<void(Status)> done) {
      reader->read(manifest, ChunkIndex(first), std::span(*memory).first(length),
                   [memory, done = std::move(done)](const Status& status) { done(status); });
    }));
  }
  return Status::ok();
}

// The content of a file leaves, if it is copied, and nobody has it open. kBusy, kNotFound: not now; kInvalidArgument:
// it has none that could.
Status ArrayTier::Impl::let_go(const std::string& path) {
  const auto later = [](const char* why) { return Status::error(StatusCode::kBusy, why); };
  FPFS_ASSIGN_OR_RETURN(const Store::Node node, lookup_path(store_, path));
  const uint64_t inode = node.attributes.st_ino;
  if (store_.is_in_use(inode)) return later("it is open");
  std::array<std::byte, TierNote::kBytes> bytes;
  const Result<size_t> length = store_.storage().get_xattr(node.handle.get(), TierNote::kAttribute, bytes);
  if (!length.is_ok()) return later("it is not copied");
  Result<TierNote> note = decode_note(std::span(bytes).first(std::min(*length, bytes.size())));
  if (!note.is_ok() || note->place != TierNote::place_of(binding_.store_id, path)) return later("it is not copied");
  // Another node that is about to copy to this path may not know of it.
  if (binding_.shares && !note->is_others) return later("other nodes write to the store");
  FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, store_.open_file(node.handle.get(), false));
  const File::Info info = file->info();
  if (info.is_inline || info.chunks == info.codec_chunks[static_cast<size_t>(Codec::kAway)])
    return Status::error(StatusCode::kInvalidArgument, "nothing of it is on the members");
  if (note->file_id != info.file_id || note->sequence != info.sequence || note->size != info.size)
    return later("it is not copied");
  FPFS_ASSIGN_OR_RETURN(const TierReader::Manifest manifest, find_copy(path, *note));
  if (!note->verified) {
    FPFS_RETURN_IF_ERROR(read_back(manifest));
    note->verified = true;
    FPFS_RETURN_IF_ERROR(file->set_note(TierNote::kAttribute, encode_note(*note)));
  }
  FPFS_RETURN_IF_ERROR(file->set_note(ChunkSource::kPathAttribute, std::as_bytes(std::span(path)), true));
  FPFS_RETURN_IF_ERROR(ask<Status>([&](std::function<void(Status)> done) {
    file->send_away(note->sequence, manifest->checksums,
                    [done = std::move(done)](const Status& status) { done(status); });
  }));
  ++files_left_;
  bytes_left_ += info.stored_bytes;
  return Status::ok();
}

}  // namespace fpfs
