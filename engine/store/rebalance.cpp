#include "engine/store/rebalance.h"

#include <cerrno>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/check/scan.h"

namespace fpfs {

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
  return pass_.start(limit);
}

Rebalance::Report Rebalance::report() const {
  Report report{pass_.report()};
  const MutexLock lock(moves_->mutex);
  report.chunks_moved = moves_->chunks_moved;
  report.bytes_moved = moves_->bytes_moved;
  report.chunks_left = moves_->chunks_left;
  report.is_removal = moves_->is_removal;
  return report;
}

void Rebalance::begin_pass() {
  const MutexLock lock(moves_->mutex);
  moves_->chunks_moved = moves_->bytes_moved = moves_->chunks_left = 0;
  moves_->rounds = 0;
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
  ++moves_->chunks_left;
  return false;
}

void Rebalance::visit_chunk(const FileEntry&, File& file, ChunkIndex chunk, const Extent& extent,
                            std::function<void()> done) {
  {
    const MutexLock lock(moves_->mutex);
    while (moves_->under_way >= kUnderWayMax) moves_->ended.wait(moves_->mutex);
    ++moves_->under_way;
  }
  file.move_chunk(chunk, std::move(done), [moves = moves_, bytes = extent.allocated()](bool is_in_place) {
    const MutexLock lock(moves->mutex);
    --moves->under_way;
    moves->ended.notify_all();
    if (!is_in_place) {
      ++moves->chunks_left;
      return;
    }
    ++moves->chunks_moved;
    moves->bytes_moved += bytes;
  });
}

void Rebalance::visit_unopened(const FileEntry& entry, const Status& failure) {
  if (failure.code() == StatusCode::kNotFound || failure.errno_value() == ESTALE) return;  // removed meanwhile
  log(LogLevel::kWarning, "rebalance: {}: it cannot be opened, and stays where it is: {}", entry.path,
      failure.message());
}

Result<bool> Rebalance::finish() {
  {
    const MutexLock lock(moves_->mutex);
    while (moves_->under_way > 0) moves_->ended.wait(moves_->mutex);
    if (!moves_->is_removal) return false;
  }
  FPFS_ASSIGN_OR_RETURN(const bool is_any_left, store_.take_out_members());
  const MutexLock lock(moves_->mutex);
  if (!is_any_left || ++moves_->rounds >= kRoundsMax) return false;
  moves_->ended.wait_for(moves_->mutex, kBetweenRounds);
  moves_->chunks_left = 0;
  return true;
}

void Rebalance::end_pass(const PassState& state) {
  const Report ended = report();
  log(LogLevel::kInfo, "{} finished: {} of {} in {} files moved, {} chunks stay where they are",
      ended.is_removal ? "removal of members" : "rebalance", format_size(ended.bytes_moved), format_size(state.bytes),
      state.files, ended.chunks_left);
}

}  // namespace fpfs
