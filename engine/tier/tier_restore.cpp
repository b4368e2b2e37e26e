#include "engine/tier/tier_restore.h"

#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/io/own_task.h"

namespace fpfs {
namespace {

constexpr size_t kManifestBytes = 64 * 1024;  // most have less
constexpr size_t kManifestBytesMax = 1024 * 1024 * 1024;
constexpr std::chrono::milliseconds kLater{20};
constexpr size_t kKeysAhead = 2000;  // no page is asked for while more are known
constexpr unsigned kFirstPage = 64;  // short, so that files are asked for while the store makes the next one
// Files that are on their way to their names, in a sync or before it. Each has up to three descriptors, of which a mount
// may have few.
constexpr unsigned kUnderWayMax = 128;
// So many small files are synced together, or as many as come within that time.
constexpr size_t kSyncedTogether = 64;
constexpr std::chrono::milliseconds kTogetherWithin{50};

}  // namespace

// A file on its way to its name: its content written, when the manifest has it; then a commit.
struct TierRestore::Begun {
  std::shared_ptr<TierRestore> restore;
  RestoredTree::File file;
  uint64_t bytes = 0;
  void (TierRestore::*next)(std::unique_ptr<Begun>, const Status&) = nullptr;
  WriteRequest write = {};
  ControlRequest commit = {};

  // Not on the thread that has called back, which must not be made to wait.
  static void go_on(void* owner, const Status& status) {
    auto* const begun = static_cast<Begun*>(owner);
    begun->restore->environment_.executor().post([begun, status] {
      const std::shared_ptr<TierRestore> self = begun->restore;
      (self.get()->*begun->next)(std::unique_ptr<Begun>(begun), status);
    });
  }
};

std::shared_ptr<TierRestore> TierRestore::create(Environment& environment, Store& store, ObjectStore& objects,
                                                 const TierRestoreOptions& options) {
  return std::shared_ptr<TierRestore>(new TierRestore(environment, store, objects, options));
}

TierRestore::TierRestore(Environment& environment, Store& store, ObjectStore& objects,
                         const TierRestoreOptions& options)
    : environment_(environment),
      store_(store),
      objects_(objects),
      options_(options),
      tree_(store, options.store_id, options.named) {}

void TierRestore::start(Done done) {
  {
    const MutexLock lock(mutex_);
    done_ = std::move(done);
    ++under_way_;
  }
  environment_.executor().post([self = shared_from_this()] {
    const Status begun = self->tree_.begin();
    {
      const MutexLock lock(self->mutex_);
      if (self->failure_.is_ok()) self->failure_ = begun;
    }
    self->end_one();
  });
}

void TierRestore::stop() {
  const MutexLock lock(mutex_);
  if (failure_.is_ok()) failure_ = Status::error(StatusCode::kCancelled, "restoring was ended");
}

TierRestoreStatus TierRestore::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

// --- what there is ---------------------------------------------------------------------------------------------------

void TierRestore::list(const std::string& position) {
  ListRequest request;
  request.prefix = std::string(kTierReserved) + "/";
  request.position = position;
  if (position.empty()) request.keys_max = kFirstPage;
  objects_.list(request, [self = shared_from_this()](const Result<ListPage>& page) { self->listed(page); });
}

void TierRestore::listed(const Result<ListPage>& page) {
  {
    const MutexLock lock(mutex_);
    is_listing_ = false;
    if (!page.is_ok() && failure_.is_ok()) failure_ = page.status();
    if (page.is_ok()) {
      for (const ObjectInfo& object : page->objects)
        if (!path_of_manifest(object.key).empty()) keys_.push_back(object.key);
      position_ = page->position;
      is_listed_ = position_.empty();
    }
  }
  end_one();
}

void TierRestore::pump() {
  std::vector<std::string> keys;
  std::string position;
  bool lists = false, ends = false;
  {
    const MutexLock lock(mutex_);
    lists = failure_.is_ok() && !is_listing_ && !is_listed_ && keys_.size() < kKeysAhead;
    if (lists) {
      is_listing_ = true;
      position = position_;
      ++under_way_;
    }
    while (failure_.is_ok() && !keys_.empty() && asked_ < options_.connections && under_way_ < kUnderWayMax) {
      keys.push_back(std::move(keys_.front()));
      keys_.pop_front();
      ++asked_;
      ++under_way_;
    }
    ends = under_way_ == 0 && !std::exchange(is_ending_, under_way_ == 0);
  }
  if (lists) list(position);
  for (const std::string& key : keys) get(key, kManifestBytes);
  if (ends) environment_.executor().post([self = shared_from_this()] { self->end(); });
}

void TierRestore::end_one() {
  {
    const MutexLock lock(mutex_);
    --under_way_;
  }
  pump();
}

// --- one manifest ----------------------------------------------------------------------------------------------------

void TierRestore::get(const std::string& key, size_t bytes) {
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
  objects_.get(key, 0, *memory, "", [self = shared_from_this(), key, memory](const Result<ReadRange>& read) {
    if (read.is_ok() && read->object_size > memory->size() && read->object_size <= kManifestBytesMax)
      return self->get(key, read->object_size);
    {
      const MutexLock lock(self->mutex_);
      --self->asked_;
      const bool is_gone = read.status().code() == StatusCode::kNotFound;
      if (!read.is_ok() && !is_gone && self->failure_.is_ok()) self->failure_ = read.status();
    }
    if (!read.is_ok()) return self->end_one();
    self->environment_.executor().post([self, key, memory, length = read->length] {
      OwnTask steps(OwnTask::Keeps::kEach);  // one after the other: no thread need be woken for each
      self->make(key, std::span(*memory).first(length));
    });
    self->pump();
  });
}

void TierRestore::make(const std::string& key, std::span<const std::byte> bytes) {
  Result<TierManifest> manifest = decode_manifest(bytes);
  std::string_view path = path_of_manifest(key);
  if (path.ends_with('/')) path.remove_suffix(1);
  if (!manifest.is_ok()) return made(key, manifest.status(), false, 0);
  if (to_string(manifest->array_id) != options_.array_id || manifest->is_removed()) return end_one();
  if (manifest->path != path)
    return made(key, Status::error(StatusCode::kCorruption, "it is the manifest of " + manifest->path), false, 0);
  const bool is_file = manifest->is_file();
  const uint64_t size = manifest->size;
  RestoredTree::File file;
  const Result<RestoredTree::Made> result = tree_.make(*std::move(manifest), file);
  if (result.is_ok() && *result == RestoredTree::Made::kBegun) return begin(std::move(file), size);
  if (result.is_ok() && *result == RestoredTree::Made::kLater)
    return environment_.executor().post_after(kLater, [self = shared_from_this(), key] {
      {
        const MutexLock lock(self->mutex_);
        self->keys_.push_back(key);
      }
      self->end_one();
    });
  made(key, result, is_file, size);
}

void TierRestore::begin(RestoredTree::File file, uint64_t bytes) {
  auto begun = std::make_unique<Begun>(Begun{shared_from_this(), std::move(file), bytes});
  if (!begun->file.has_content()) return commit(std::move(begun), false);
  const std::vector<std::byte>& content = begun->file.manifest.content;
  begun->next = &TierRestore::record;
  begun->write.data = content.data();
  begun->write.length = static_cast<uint32_t>(content.size());
  begun->write.owner = begun.get();
  begun->write.complete = [](WriteRequest& request, const Status& status) { Begun::go_on(request.owner, status); };
  File& target = *begun->file.created.file;
  target.write(begun.release()->write);
}

void TierRestore::record(std::unique_ptr<Begun> begun, const Status& written) {
  const Status status = written.is_ok() ? tree_.content_written(begun->file) : written;
  begun->file.manifest = {};  // the memory of many
  if (!status.is_ok()) return committed(std::move(begun), status);
  commit(std::move(begun), true);
}

void TierRestore::commit(std::unique_ptr<Begun> begun, bool is_lazy) {
  begun->next = is_lazy ? &TierRestore::recorded : &TierRestore::committed;
  begun->commit.kind = ControlRequest::Kind::kCommit;
  begun->commit.lazy = is_lazy;
  begun->commit.owner = begun.get();
  begun->commit.complete = [](ControlRequest& request, const Status& result) { Begun::go_on(request.owner, result); };
  File& target = *begun->file.created.file;
  target.control(begun.release()->commit);
}

void TierRestore::recorded(std::unique_ptr<Begun> begun, const Status& status) {
  if (!status.is_ok()) return committed(std::move(begun), status);
  bool is_first = false, is_last = false;
  uint64_t batch = 0;
  {
    const MutexLock lock(mutex_);
    is_first = recorded_.empty();
    recorded_.push_back(std::move(begun));
    is_last = recorded_.size() == under_way_;
    batch = batch_;
  }
  if (is_first)
    environment_.executor().post_after(kTogetherWithin, [self = shared_from_this(), batch] {
      {
        const MutexLock lock(self->mutex_);
        if (self->batch_ != batch) return;  // it was full before
      }
      self->sync_recorded(true);
    });
  sync_recorded(is_last);
}

// A file has no name before its record is durable: a crash leaves it out, or whole.
void TierRestore::sync_recorded(bool at_once) {
  for (;;) {
    std::vector<std::unique_ptr<Begun>> together;
    {
      const MutexLock lock(mutex_);
      is_sync_due_ |= std::exchange(at_once, false);
      if (is_syncing_ || recorded_.empty() || !(is_sync_due_ || recorded_.size() >= kSyncedTogether)) return;
      is_sync_due_ = false;
      is_syncing_ = true;
      together.swap(recorded_);
      ++batch_;
    }
    const Status synced = store_.sync_names();
    {
      const MutexLock lock(mutex_);
      is_syncing_ = false;
    }
    for (std::unique_ptr<Begun>& begun : together) {
      File& file = *begun->file.created.file;
      const Status status = synced.is_ok() ? file.note_synced() : synced;
      // This array may keep so much beside its records.
      if (status.is_ok() && file.is_dirty()) {
        commit(std::move(begun), false);
      } else {
        committed(std::move(begun), status);
      }
    }
  }
}

void TierRestore::committed(std::unique_ptr<Begun> begun, const Status& status) {
  const std::string path = begun->file.path;
  made(path, status.is_ok() ? tree_.finish(std::move(begun->file)) : Result<RestoredTree::Made>(status), true,
       begun->bytes);
}

void TierRestore::made(const std::string& what, const Result<RestoredTree::Made>& made, bool is_file, uint64_t bytes) {
  const Status& status = made.status();
  const bool is_of_one = status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kCorruption ||
                         status.code() == StatusCode::kUnsupported;
  {
    const MutexLock lock(mutex_);
    if (made.is_ok() && *made == RestoredTree::Made::kWasThere) {
      ++status_.were_there;
    } else if (made.is_ok()) {
      ++(is_file ? status_.files : status_.others);
      status_.bytes += is_file ? bytes : 0;
    } else if (is_of_one) {
      ++status_.failed;
      status_.last_error = fmt::format("{}: {}", what, status.message());
    } else if (failure_.is_ok()) {
      failure_ = status.with_context(what);
    }
  }
  if (is_of_one) log(LogLevel::kError, "tier: {} is not restored: {}", what, status.message());
  end_one();
}

void TierRestore::end() {
  Status status;
  {
    const MutexLock lock(mutex_);
    status = failure_;
  }
  if (status.is_ok()) status = tree_.end();
  Done done;
  {
    const MutexLock lock(mutex_);
    done.swap(done_);
  }
  if (done != nullptr) done(status);
}

}  // namespace fpfs
