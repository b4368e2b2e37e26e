#include "engine/store/rebalance.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/check/scan.h"

namespace fpfs {

// The entry to add to. Nothing: there are too many already.
Rebalance::Left* Rebalance::Moves::left_of(const std::string& path, const std::string& why) {
  const auto known =
      std::find_if(left.rbegin(), left.rend(), [&](const Left& one) { return one.path == path && one.why == why; });
  if (known != left.rend()) return &*known;
  if (left.size() == kLeftMax) return nullptr;
  Left& added = left.emplace_back();
  added.path = path;
  added.why = why;
  return &added;
}

void Rebalance::Moves::add_left(const std::string& path, ChunkIndex chunk, const std::string& why) {
  ++chunks_left;
  Left* const entry = left_of(path, why);
  if (entry == nullptr) return;
  ++entry->chunks;
  entry->first.insert(std::upper_bound(entry->first.begin(), entry->first.end(), chunk.value()), chunk.value());
  if (entry->first.size() > kFirstMax) entry->first.pop_back();
}

// What an object belongs to that no open file has is not known while chunks of files are left: it may be theirs.
void Rebalance::Moves::add_kept(const std::vector<Store::KeepsMember>& kept) {
  const bool is_file_left = chunks_left > 0 || !left.empty();
  for (const Store::KeepsMember& one : kept)
    if (!one.is_unnamed || !is_file_left) static_cast<void>(left_of(one.path, one.why));
}

void Rebalance::Moves::forget_left() {
  chunks_left = 0;
  left.clear();
}

Rebalance::Rebalance(Store& store)
    : store_(store), moves_(std::make_shared<Moves>()), pass_(store, *this, "rebalance") {}

Rebalance::~Rebalance() {
  stop();
}

Status Rebalance::may_start() const {
  if (store_.read_only())
    return Status::error(StatusCode::kReadOnly,
                         "the array is mounted read-only, or turned read-only: nothing is moved");
  if (const Report now = report(); now.state.phase == PassState::Phase::kRunning)
    return Status::error(StatusCode::kBusy, fmt::format("a {} is running; let it finish or cancel it first",
                                                        now.is_removal ? "removal of members" : "rebalance"));
  return Status::ok();
}

Status Rebalance::start(uint64_t limit, bool is_removal) {
  FPFS_RETURN_IF_ERROR(may_start());
  {
    const MutexLock lock(moves_->mutex);
    moves_->is_removal = is_removal;
  }
  // One that paused by itself begins anew: what was moved is where it belongs.
  if (pass_.report().state.phase == PassState::Phase::kPaused) FPFS_RETURN_IF_ERROR(pass_.cancel());
  return pass_.start(limit);
}

Rebalance::Report Rebalance::report() const {
  Report report;
  static_cast<BackgroundPass::Report&>(report) = pass_.report();
  const MutexLock lock(moves_->mutex);
  report.chunks_moved = moves_->chunks_moved;
  report.bytes_moved = moves_->bytes_moved;
  const double seconds = static_cast<double>(report.state.active_ms) / 1000;
  report.bytes_per_second = seconds > 0 ? static_cast<double>(report.bytes_moved) / seconds : 0;
  report.chunks_left = moves_->chunks_left;
  report.left = moves_->left;
  report.is_removal = moves_->is_removal;
  return report;
}

void Rebalance::begin_pass() {
  const MutexLock lock(moves_->mutex);
  moves_->chunks_moved = moves_->bytes_moved = 0;
  moves_->forget_left();
  moves_->rounds = 0;
  goes_by_ = store_.array().stripes();
}

// Of a file that is open since before members were added nothing can be moved to them.
bool Rebalance::wants_chunk(File& file, ChunkIndex chunk, const Extent& extent) {
  {
    const MutexLock lock(moves_->mutex);
    if (moves_->is_removal) return extent.is_here() && store_.array().is_leaving(extent.member);
  }
  if (!file.is_in_place(chunk)) return true;
  const StripeMap now = store_.array().stripes();
  if (!extent.is_here() || file.stripes().member_count == now.member_count) return false;
  if (extent.member == now.member_of(file.info().file_id, chunk)) return false;
  const MutexLock lock(moves_->mutex);
  moves_->add_left(
      file.path(), chunk,
      "it has been open since before members were added (a copy or a scrub of it counts, too); try again when it "
      "was closed");
  return false;
}

void Rebalance::visit_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                            std::function<void()> done) {
  {
    const MutexLock lock(moves_->mutex);
    while (moves_->under_way >= kUnderWayMax) moves_->ended.wait(moves_->mutex);
    ++moves_->under_way;
  }
  const auto told = [moves = moves_, path = entry.path, chunk, bytes = extent.allocated()](const Status& why_left) {
    const MutexLock lock(moves->mutex);
    --moves->under_way;
    moves->ended.notify_all();
    if (!why_left.is_ok()) {
      std::string why = why_left.at(Status::kNoMember, 0, 0).message();  // the place within is of one chunk
      if (why_left.code() == StatusCode::kCorruption)
        why += "; put the file back from a copy, or remove it, and then the same command again";
      return moves->add_left(path, chunk, why);
    }
    ++moves->chunks_moved;
    moves->bytes_moved += bytes;
  };
  file.move_chunk(chunk, std::move(done), told);
}

void Rebalance::visit_unopened(const FileEntry& entry, const Status& failure) {
  if (failure.code() == StatusCode::kNotFound || failure.errno_value() == ESTALE) return;  // removed meanwhile
  const Result<ScannedFile> scanned = scan_file(store_.storage(), store_.array(), entry);
  if (scanned.is_ok() && (scanned->is_stray || scanned->is_foreign)) return;  // it has nothing on a member
  const MutexLock lock(moves_->mutex);
  static_cast<void>(moves_->left_of(entry.path, "it cannot be opened: " + failure.message()));
}

Result<bool> Rebalance::finish() {
  {
    const MutexLock lock(moves_->mutex);
    while (moves_->under_way > 0) moves_->ended.wait(moves_->mutex);
    if (!moves_->is_removal) {
      // Each of these ways was asked for: by who changed the members.
      const StripeMap before = std::exchange(goes_by_, store_.array().stripes());
      if (before.member_count == goes_by_.member_count && before.order == goes_by_.order) return false;
      // The files that were committed last are let go of meanwhile, to be opened with these members.
      moves_->ended.wait_for(moves_->mutex, kBetweenRounds);
      moves_->forget_left();
      return true;
    }
  }
  FPFS_ASSIGN_OR_RETURN(const bool is_any_left, store_.take_out_members());
  if (!is_any_left) return false;
  {
    const MutexLock lock(moves_->mutex);
    if (++moves_->rounds < kRoundsMax) {
      moves_->ended.wait_for(moves_->mutex, kBetweenRounds);
      moves_->forget_left();
      return true;
    }
  }
  const std::vector<Store::KeepsMember> kept = store_.what_keeps_members();
  const MutexLock lock(moves_->mutex);
  moves_->add_kept(kept);
  return false;
}

void Rebalance::end_pass(const PassState& state) {
  const Report ended = report();
  const char* const what = ended.is_removal ? "removal of members" : "rebalance";
  for (const Left& left : ended.left)
    log(LogLevel::kWarning, "{}: {}: {} not moved: {}", what, left.path,
        left.chunks == 0 ? std::string("it was")
                         : fmt::format("{} ({}) {}", format_count(left.chunks, "chunk"), format_ranges(left.first),
                                       one_or_many(left.chunks, "was", "were")),
        left.why);
  log(LogLevel::kInfo, "{} finished: {} moved, of {} with {}; {} left in place", what, format_size(ended.bytes_moved),
      format_count(state.files, "file"), format_size(state.bytes), format_count(ended.chunks_left, "chunk"));
}

}  // namespace fpfs
