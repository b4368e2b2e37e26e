// How an open file gets right bytes for a chunk that its member does not give, and what becomes of them: healing.h.
#include "engine/file/healing.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/file/file.h"
#include "engine/file/move_commit.h"

namespace fpfs {

namespace {

// What comes within this time is committed together.
constexpr std::chrono::milliseconds kHealTogether{200};

}  // namespace

std::unique_ptr<Healing::Write> Healing::remove(const Write& write) {
  const auto found = std::find_if(writes_.begin(), writes_.end(),
                                  [&write](const std::unique_ptr<Write>& one) { return one.get() == &write; });
  FPFS_CHECK(found != writes_.end(), "a write ends once");
  std::unique_ptr<Write> removed = std::move(*found);
  writes_.erase(found);
  return removed;
}

bool Healing::join(ChunkIndex chunk, Told& told) {
  const auto add = [&told](std::vector<Told>& all) {
    if (told != nullptr) all.push_back(std::move(told));
    return true;
  };
  for (const std::unique_ptr<Write>& one : writes_)
    if (one->transfer.chunk == chunk && !one->is_given_up) return add(one->told);
  for (Written& one : written_)
    if (one.chunk == chunk) return add(one.told);
  return false;
}

bool Healing::add_written(Written written) {
  written_.push_back(std::move(written));
  return !std::exchange(is_scheduled_, true);
}

bool Healing::was_written(ChunkIndex chunk) const {
  return std::any_of(written_.begin(), written_.end(), [chunk](const Written& one) { return one.chunk == chunk; });
}

std::vector<Healing::Written> Healing::take_written() {
  is_scheduled_ = false;
  return std::exchange(written_, {});
}

void Healing::put_back(std::vector<Written> written) {
  is_scheduled_ = true;
  written_.insert(written_.end(), std::make_move_iterator(written.begin()), std::make_move_iterator(written.end()));
}

// --- from the copy ---------------------------------------------------------------------------------------------------

// Nothing: there is no point in asking.
std::optional<ChunkSource::Wanted> File::wanted_from_copy(ChunkIndex chunk, const Extent& extent,
                                                          const ObjectSet& objects) {
  if (!context_.healer->is_on() || extent.visible_length == 0) return std::nullopt;
  std::optional<std::string> at = path_below_tree();
  MutexLock lock(mutex_);
  if (names_.is_nameless() || content_.is_new(extent) || !at.has_value()) return std::nullopt;
  return ChunkSource::Wanted{*std::move(at), objects.file(), objects.generation(), log_.sequence, chunk, extent};
}

// False: the load fails as it is.
bool File::heal_load(CachedChunk& chunk, const ObjectSet& objects, const Status& damage) {
  std::optional<ChunkSource::Wanted> wanted = wanted_from_copy(chunk.index, chunk.transfer.extent, objects);
  if (!wanted.has_value()) return false;
  std::shared_ptr<ObjectSet> current;
  {
    MutexLock lock(mutex_);
    if (chunk.given_up || abandoned_) return false;
    chunk.drive = kElsewhereDomain;  // no member is waited for
    chunk.keep = shared_from_this();
    if (placement_.objects().get() == &objects) current = placement_.objects();
  }
  context_.healer->heal(std::move(*wanted), chunk.buffer->data,
                        [self = shared_from_this(), &chunk, current, damage](
                            const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece) {
                          self->load_healed(chunk, current, damage, status, piece);
                        });
  return true;
}

namespace {

void count_copy_asked(ArrayCounters& counters, bool has_helped) {
  (has_helped ? counters.chunks_from_copy : counters.chunks_without_copy).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void File::load_healed(CachedChunk& chunk, const std::shared_ptr<ObjectSet>& objects, const Status& damage,
                       const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece) {
  const std::shared_ptr<File> keep = std::move(chunk.keep);
  const ChunkIndex index = chunk.index;
  const Extent extent = chunk.transfer.extent;  // the chunk may be gone behind finish_load()
  note_copy_asked(damage, status);
  finish_load(chunk, status.is_ok() ? status : damage);
  if (status.is_ok()) write_back(index, extent, objects, piece, nullptr);
}

void File::note_copy_asked(const Status& damage, const Status& status) {
  count_copy_asked(context_.counters, status.is_ok());
  if (status.is_ok()) {
    log(LogLevel::kWarning, "{}; its copy has the right bytes, which are used instead", damage.message());
    return;
  }
  log_about(damage.message(), LogLevel::kError, "{}; the read fails with an I/O error, as no copy helps: {}",
            damage.message(), status.message());
}

void File::heal(ChunkIndex chunk, const Place& place, const Status& damage, ChunkVerifier::Done done) {
  std::optional<ChunkSource::Wanted> wanted = wanted_from_copy(chunk, place.extent, *place.objects);
  // What a drive does not give now it may give again.
  const bool is_damaged = damage.code() == StatusCode::kCorruption;
  if (!wanted.has_value())
    return done(damage, is_damaged ? ChunkVerifier::Remedy::kLost : ChunkVerifier::Remedy::kUnknown);
  context_.healer->heal(
      std::move(*wanted), nullptr,
      [self = shared_from_this(), chunk, place, damage, is_damaged, done = std::move(done)](
          const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece) {
        using Outcome = ChunkVerifier::Remedy;
        count_copy_asked(self->context_.counters, status.is_ok());  // who has it verified says what is wrong
        if (status.is_ok())
          return self->write_back(chunk, place.extent, place.objects, piece, [done, damage](bool is_healed) {
            done(damage, is_healed ? Outcome::kHealed : Outcome::kHealable);
          });
        const bool is_lost =
            is_damaged && (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorruption);
        done(damage, is_lost ? Outcome::kLost : Outcome::kUnknown);
      });
}

// --- back to the members ---------------------------------------------------------------------------------------------

// Nobody is changing the file, or will find it changed by what comes.
bool File::is_at_rest() const {
  return error_.is_ok() && !abandoned_ && !names_.is_nameless() && !content_.is_edited() &&
         !writers_.is_unfinished(false) && context_.health.failure().is_ok();
}

// Chunks were recorded elsewhere, and the commit of that has not begun; nothing else was changed.
bool File::has_uncommitted_moves() const {
  return error_.is_ok() && context_.health.failure().is_ok() && content_.is_edited() && !content_.is_changed();
}

void File::write_back(ChunkIndex chunk, const Extent& old, const std::shared_ptr<ObjectSet>& objects,
                      const std::shared_ptr<ChunkHealer::Piece>& piece, Healing::Told told) {
  write_home(chunk, old, objects, {.memory = piece, .data = piece->data(), .arrived = {}}, std::move(told));
}

// The member that the chunk goes to. Nothing: that one has no room. What is on a member that is leaving goes to any that
// has some: where it belongs may be one and the same member for all of it, as that goes by the number of members now, and
// the file was made with another one.
std::optional<MemberIndex> File::home_of(ChunkIndex chunk, const Extent& old, bool needs_look) {
  const MemberIndex natural = member_of(chunk);
  const uint64_t needed = uint64_t{2} * context_.stripes.chunk_size;
  const bool is_to_leave = old.is_here() && context_.array.is_leaving(old.member);
  if (!needs_look || (!is_to_leave && context_.room->fits(natural, needed))) return natural;
  return is_to_leave ? with_room(natural, needed) : std::nullopt;
}

// `preferred`, or the member whose drive is the emptiest when that one's is fuller. Nothing: none has so much.
std::optional<MemberIndex> File::with_room(MemberIndex preferred, uint64_t needed) {
  constexpr double kAboutAsEmpty = 0.9;  // of what the emptiest has free; both as a share of their drives
  std::optional<MemberIndex> best;
  double most = 0, of_preferred = 0;
  for (uint16_t place = 0; place < stripes_.width(); ++place) {
    const MemberIndex member = stripes_.at(place);
    if (!context_.room->fits(member, needed)) continue;
    const double share = context_.room->free_share(member);
    if (member == preferred) of_preferred = share;
    if (best.has_value() && share <= most) continue;
    best = member;
    most = share;
  }
  return of_preferred > most * kAboutAsEmpty ? preferred : best;
}

void File::write_home(ChunkIndex chunk, const Extent& old, const std::shared_ptr<ObjectSet>& objects,
                      Healing::Bytes bytes, Healing::Told told) {
  ChunkTransfer* transfer = nullptr;
  {
    MutexLock lock(mutex_);
    if (!bytes.is_move && healing_.was_recorded(chunk)) healing_.refuse();
    const bool needs_look = bytes.is_move || (old.is_away() && context_.room->is_scarce());
    const std::optional<MemberIndex> home = home_of(chunk, old, needs_look);
    const bool is_same = home.has_value() && !context_.array.read_only() && objects != nullptr &&
                         placement_.objects() == objects && content_.extent(chunk) == old && !healing_.is_refused();
    const bool is_early = is_same && bytes.is_move && has_uncommitted_moves() && !abandoned_;
    const bool is_wanted = is_same && is_at_rest();
    // A commit that is about to end lets nothing start.
    if (is_early || (is_wanted && !may_flush())) {
      context_.tasks.post_after(kHealTogether, [self = shared_from_this(), chunk, old, objects, bytes, told] {
        self->write_home(chunk, old, objects, bytes, told);
      });
      return;
    }
    if (is_wanted && !bytes.is_move && healing_.join(chunk, told)) return;
    if (is_wanted) {
      Healing::Write& write = healing_.add();
      const MemberIndex member = *home;
      write.file = shared_from_this();
      write.bytes = std::move(bytes);
      write.old = old;
      write.slots = healing_.slots();
      if (told != nullptr) write.told.push_back(std::move(told));
      transfer = &write.transfer;
      transfer->kind = IoRequest::Kind::kWrite;
      transfer->is_saved = false;
      transfer->chunk = chunk;
      if (write.bytes.is_move) {
        transfer->extent = old;
        transfer->as_stored = true;
      } else {
        transfer->extent.raw_length = transfer->extent.visible_length = old.visible_length;
      }
      transfer->extent.member = member;
      transfer->extent.slot = placement_.allocate(member, stripes_.natural_slot(chunk));
      transfer->objects = objects;
      transfer->data = write.bytes.data;
      transfer->owner = &write;
      transfer->done = &File::heal_write_done;
      context_.room->add_in_flight(member, context_.stripes.chunk_size);
      ++writes_in_flight_;
      context_.writes_in_flight.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (transfer != nullptr) return context_.io->start(*transfer);
  if (bytes.arrived != nullptr) bytes.arrived();  // NOLINT(bugprone-use-after-move): nobody has it
  if (told != nullptr) told(false);               // NOLINT(bugprone-use-after-move)
}

void File::heal_write_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status) {
  auto& write = *static_cast<Healing::Write*>(transfer.owner);
  const std::shared_ptr<File> file = write.file;
  file->finish_heal_write(write, objects,
                          status.is_ok() ? status : file->context_.io->report(status, transfer, objects, file->path()));
}

void File::finish_heal_write(const Healing::Write& write, const ObjectSet& objects, const Status& status) {
  Deferred deferred;
  std::unique_ptr<Healing::Write> ended;  // goes behind the lock
  bool is_kept = false, is_first = false, is_all = false;
  {
    MutexLock lock(mutex_);
    ended = healing_.remove(write);
    const Extent& extent = ended->transfer.extent;
    context_.room->remove_in_flight(extent.member, context_.stripes.chunk_size);
    if (!ended->is_given_up) {
      --writes_in_flight_;
      context_.writes_in_flight.fetch_sub(1, std::memory_order_relaxed);
    }
    if (abandoned_) return;
    const bool are_same_slots = placement_.objects().get() == &objects && ended->slots == healing_.slots();
    is_kept = status.is_ok() && are_same_slots && !ended->is_given_up;
    if (!status.is_ok()) healing_.refuse();
    if (is_kept) {
      is_first = healing_.add_written({ended->transfer.chunk, ended->old, extent, placement_.objects(), ended->slots,
                                       ended->bytes.is_move, std::move(ended->told)});
      is_all = context_.options.commits_when_all_came && ended->old.is_away() && healing_.writes().empty() &&
               has_all_come(ended->transfer.chunk);
    } else if (are_same_slots && (status.is_ok() || status.code() == StatusCode::kNoSpace)) {
      placement_.release(extent.member, extent.slot);  // else it stays taken: nobody trims a drive that fails
    }
    if (!ended->is_given_up) advance_commit(deferred);
    if (writes_in_flight_ == 0) run_controls(deferred);
  }
  run(deferred);
  if (!status.is_ok())
    log(LogLevel::kWarning, "{}; {}", status.message(),
        ended->bytes.is_move ? "the chunk stays where it is"
                             : "what was healed is not written back, and read from its copy");
  if (ended->bytes.arrived != nullptr) ended->bytes.arrived();
  if (is_all) return context_.tasks.post([self = shared_from_this()] { self->finish_heals(); });
  if (is_first) finish_heals_later();
  for (const Healing::Told& told : ended->told) told(false);  // none, when it is kept
}

void File::finish_heals_later() {
  context_.tasks.post_after(kHealTogether, [self = shared_from_this()] { self->finish_heals(); });
}

// Nothing of the content is away any more, but for what was written: there is nothing to wait for. `last`: a chunk that
// was written; behind it one looks first, as most come in their order.
bool File::has_all_come(ChunkIndex last) const {
  const size_t written = healing_.written_count();
  if (content_.extent(last + 1).is_away() && !healing_.was_written(last + 1)) return false;
  size_t away = 0;
  content_.extents().for_each(ChunkIndex(0), [&](ChunkIndex, const Extent& extent) {
    away += extent.is_away() ? 1 : 0;
    return away <= written;
  });
  return away <= written;
}

// On an executor thread.
void File::finish_heals() {
  std::vector<Healing::Written> written;
  bool is_late = false;
  {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    written = healing_.take_written();
    if (written.empty()) return;  // they were committed before their time
    is_late = error_.is_ok() && (commit_ != nullptr || has_uncommitted_moves());
    if (is_late) healing_.put_back(std::exchange(written, {}));
  }
  if (is_late) return finish_heals_later();
  if (const Status ready = prepare_to_record(written); !ready.is_ok()) return give_up_written(written, ready);
  std::vector<Healing::Told> dropped;
  auto commit = std::make_unique<MoveCommit>(shared_from_this());
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    const bool records = is_at_rest();
    // Whoever has begun meanwhile goes first: nothing of theirs belongs to this commit.
    is_late = records && (commit_ != nullptr || !gate_.is_quiet());
    if (is_late) healing_.put_back(std::exchange(written, {}));
    for (Healing::Written& one : written) {
      const bool is_taken = one.objects == placement_.objects() && one.slots == healing_.slots();
      const bool is_wanted = records && is_taken && content_.extent(one.chunk) == one.old;
      if (is_wanted) {
        record_healed(one);
        if (one.is_move) ++commit->moved;
        if (!one.is_move && !one.old.is_away()) ++commit->healed;
      }
      if (!is_wanted && is_taken) placement_.release(one.stored.member, one.stored.slot);
      std::vector<Healing::Told>& tell = is_wanted ? commit->told : dropped;
      std::move(one.told.begin(), one.told.end(), std::back_inserter(tell));
    }
    if (records && !is_late) {
      gate_.add(commit.release()->request);
      run_controls(deferred);
    }
  }
  run(deferred);
  if (is_late) return finish_heals_later();
  for (const Healing::Told& told : dropped) told(false);
}

// Nobody's content is lost, unless somebody began to change the file: what the sync that failed has lost may be theirs.
// It may also be what else was healed or moved, which is not recorded either. The slots stay taken: nobody trims a drive
// that fails.
void File::give_up_written(const std::vector<Healing::Written>& written, const Status& failure) {
  log(LogLevel::kWarning, "{}: what was healed or moved stays where it was: {}", path(), failure.message());
  Deferred deferred;
  {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    healing_.refuse();
    if (error_.is_ok() && (content_.is_edited() || commit_ != nullptr)) {
      fail(failure);
      discard_dirty(deferred);
    } else if (placement_.objects() != nullptr) {
      healing_.begin_anew();
      placement_.objects()->forget_failures();
    }
  }
  run(deferred);
  for (const Healing::Written& one : written)
    for (const Healing::Told& told : one.told) told(false);
}

// What readers of the drives will find from then on is there.
Status File::prepare_to_record(const std::vector<Healing::Written>& written) {
  std::map<std::pair<const ObjectSet*, MemberIndex>, std::shared_ptr<ObjectSet>> touched;
  for (const Healing::Written& one : written) touched[{one.objects.get(), one.stored.member}] = one.objects;
  for (const auto& [key, objects] : touched) {
    const Status synced = objects->sync(key.second);
    if (synced.is_ok()) continue;
    context_.counters[key.second].sync_errors.fetch_add(1, std::memory_order_relaxed);
    return synced.with_context(context_.array.name_of(key.second));
  }
  return make_sidecar_writable();
}

// Of a file that was opened to be read. Users cannot write to it for that.
Status File::make_sidecar_writable() {
  std::shared_ptr<const ScopedHandle> sidecar;
  {
    MutexLock lock(mutex_);
    if (writable_ || heals_sidecar_) return Status::ok();
    sidecar = sidecar_;
  }
  FPFS_RETURN_IF_ERROR(context_.check_names());
  FPFS_ASSIGN_OR_RETURN(const Handle reopened, context_.storage().reopen(sidecar->get(), O_RDWR));
  auto writable = std::make_shared<const ScopedHandle>(context_.storage(), reopened);
  MutexLock lock(mutex_);
  if (writable_ || heals_sidecar_) return Status::ok();
  message_handle_.store(writable->get());
  sidecar_.swap(writable);
  heals_sidecar_ = true;
  return Status::ok();
}

void File::record_healed(const Healing::Written& written) {
  Extent stored = written.stored;
  stored.epoch = content_.epoch();
  set_extent(written.chunk, stored);
  placement_.note_written(written.chunk, stored, context_.stripes.chunk_size);
  content_.note_moved();
  if (!written.is_move && !written.old.is_away()) healing_.note_recorded(written.chunk);
  keep_alive();
}

File::MoveCommit::MoveCommit(std::shared_ptr<File> of) : file(std::move(of)) {
  request.kind = ControlRequest::Kind::kClose;
  request.unfinished = ControlRequest::Unfinished::kLeftAlone;
  request.owner = this;
  request.complete = [](ControlRequest& done, const Status& status) {
    const std::unique_ptr<MoveCommit> ended(static_cast<MoveCommit*>(done.owner));
    ended->file->moved_committed(*ended, status.is_ok() && !done.was_left_alone);
  };
}

void File::moved_committed(const MoveCommit& commit, bool is_committed) {
  if (is_committed) context_.counters.chunks_moved.fetch_add(commit.moved, std::memory_order_relaxed);
  if (is_committed && commit.healed > 0) {
    context_.counters.chunks_healed.fetch_add(commit.healed, std::memory_order_relaxed);
    log(LogLevel::kWarning, "{}: healed from its copy: {} on the members again", path(),
        format_count(commit.healed, "chunk is", "chunks are"));
  }
  for (const Healing::Told& told : commit.told) told(is_committed);
}

// --- a member that hangs, a file that goes back ----------------------------------------------------------------------

void File::give_up_heal_writes(StallDomain domain, Deferred& deferred) {
  bool any = false;
  for (const std::unique_ptr<Healing::Write>& write : healing_.writes()) {
    if (write->is_given_up || domain_of(write->transfer.extent.member) != domain) continue;
    write->is_given_up = any = true;
    if (write->bytes.is_move)  // of what is healed, who asked is told when the transfer has ended
      context_.tasks.post(
          [arrived = std::exchange(write->bytes.arrived, nullptr), all = std::exchange(write->told, {})] {
            if (arrived != nullptr) arrived();
            for (const Healing::Told& told : all) told(false);
          });
    --writes_in_flight_;
    context_.writes_in_flight.fetch_sub(1, std::memory_order_relaxed);
  }
  if (!any) return;
  healing_.refuse();
  advance_commit(deferred);
  if (writes_in_flight_ == 0) run_controls(deferred);
}

void File::forget_heal_writes() {
  std::vector<std::unique_ptr<Healing::Write>> writes;
  const std::shared_ptr<File> self = shared_from_this();  // they may hold the last reference
  MutexLock lock(mutex_);
  writes = healing_.take_writes();
}

}  // namespace fpfs
