#include "engine/file/previous_content.h"

#include "engine/file/chunk_sharer.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {
// A candidate that so many chunks did not resemble is left for the next one.
constexpr unsigned kTrial = 4;
// After so many chunks in a row that are not alike one in so many is tried: full training changes all of them, and
// where layers are frozen they lie together.
constexpr unsigned kPatience = 16;
constexpr unsigned kThenOneIn = 8;
}  // namespace

PreviousContent::PreviousContent(ExtentTable extents, std::shared_ptr<ObjectSet> objects)
    : extents_(std::move(extents)), objects_(std::move(objects)) {}

PreviousContent::~PreviousContent() = default;

std::optional<PreviousContent::Place> PreviousContent::place_of(ChunkIndex chunk) {
  if (objects_ != nullptr) {
    const Extent extent = extents_.get(chunk);
    if (!extent.is_here()) return std::nullopt;
    return Place{extent, objects_, nullptr};
  }
  std::shared_ptr<File> file;
  {
    const MutexLock lock(mutex_);
    file = file_;
  }
  if (file == nullptr) return std::nullopt;
  Extent extent;
  std::shared_ptr<ObjectSet> objects;
  std::shared_ptr<CommittedVersion> held = file->hold_place(chunk, extent, objects);
  if (held == nullptr) return std::nullopt;
  return Place{extent, std::move(objects), std::move(held)};
}

void PreviousContent::add_candidate(Candidate candidate) {
  const MutexLock lock(mutex_);
  candidates_.push_back(std::move(candidate));
}

PreviousContent::Candidate PreviousContent::next_candidate() {
  const MutexLock lock(mutex_);
  if (candidates_.empty()) return nullptr;
  Candidate next = std::move(candidates_.front());
  candidates_.pop_front();
  return next;
}

void PreviousContent::opened(std::shared_ptr<File> file, MemberIndex start) {
  std::vector<ShareRequest*> waiting;
  {
    const MutexLock lock(mutex_);
    is_looked_for_ = false;
    has_shared_ = false;
    misses_ = skipped_ = 0;
    if (file != nullptr && !start_) start_ = start;
    file_.swap(file);
    waiting.swap(waiting_);
  }
  go_on(waiting);
}

void PreviousContent::forget(uint64_t inode) {
  std::shared_ptr<File> file;
  const MutexLock lock(mutex_);
  if (file_ != nullptr && file_->inode() == inode) file.swap(file_);
}

void PreviousContent::release_waiting() {
  std::vector<ShareRequest*> waiting;
  {
    const MutexLock lock(mutex_);
    is_looked_for_ = false;
    waiting.swap(waiting_);
  }
  go_on(waiting);
}

void PreviousContent::go_on(const std::vector<ShareRequest*>& waiting) {
  for (ShareRequest* request : waiting) request->sharer->start(*request);
  if (const std::shared_ptr<File> owner = owner_.lock()) owner->previous_found();
}

bool PreviousContent::wait(ShareRequest& request) {
  const MutexLock lock(mutex_);
  if (!is_looked_for_) return false;
  waiting_.push_back(&request);
  return true;
}

bool PreviousContent::is_looked_for() const {
  const MutexLock lock(mutex_);
  return is_looked_for_;
}

bool PreviousContent::is_worth_a_try() {
  const MutexLock lock(mutex_);
  if (objects_ == nullptr && file_ == nullptr) return false;
  if (misses_ < kPatience) return true;
  skipped_ = (skipped_ + 1) % kThenOneIn;
  return skipped_ == 0;
}

bool PreviousContent::note(bool shared) {
  const MutexLock lock(mutex_);
  has_shared_ |= shared;
  misses_ = shared ? 0 : misses_ + 1;
  if (has_shared_ || misses_ != kTrial || candidates_.empty()) return false;
  is_looked_for_ = true;
  return true;
}

std::optional<MemberIndex> PreviousContent::start() const {
  const MutexLock lock(mutex_);
  return start_;
}

void PreviousContent::set_start(MemberIndex start) {
  const MutexLock lock(mutex_);
  start_ = start;
}

}  // namespace fpfs
