// File: the content of one open regular file. Write path (write_path.cpp), read path (read_path.cpp), commit
// (commit.cpp), truncation and hole punching (control.cpp), what a member that hangs means for it (give_up.cpp).
//
// One lock for all of it, as a commit's consistent point spans the state; what can be understood by itself is a part
// that takes no lock and does no I/O:
//   Content       identity, size, times, extents, content in the sidecar; the edit since the last consistent point
//   WriterSet     who changed it, and whose closes have finished what
//   ChunkCache    the chunks in memory: found, dirty, detached
//   PartReads     which chunks were read in part, without being loaded
//   TensorStarts  where its tensors begin, for who goes from one to the next
//   WriteGate     which writes and controls may go on
//   Placement     objects and slots, what is retired, what space is left over
//   Reservation   room that fallocate set aside
//   NameState     directories to sync, removed or without a name
//   ChunkIo       transfers of chunks, hashed and verified (of the whole array)
//   ChunkVerifier chunks that are read again for verify and scrub
//   CommitJob     one commit, from what it describes until that is durable
//   Healing       chunks that came from a copy, on their way back to the members (healing.cpp)
// SidecarWriter (engine/index) appends to the sidecar.
//
// All content passes through CachedChunks in pool buffers:
//   write → copied into a chunk → reply → (chunk full, or commit, or pool pressure) flush: hash and O_DIRECT write
//           by the member's queue thread → clean, evictable
//   read  → chunk at hand? reply from it : load, verify, reply; sequential readers are read ahead of
//
// Of a small file chunk 0 is kept in the sidecar (inline_content.cpp): written there by the commit, loaded from there.
//
// Consistent points. Writes in progress are counted; controls (commit, truncate, punch) wait in order until none is,
// while new writes wait behind them. A commit then takes everything written so far: it moves to phase kDraining,
// flushes every dirty chunk, and no chunk is flushed again before its record is built, so the record describes exactly
// that moment.
//
// Failures are sticky: the first failed flush, sync or sidecar append fails every later read, write and commit of this
// File until all its openers are gone; the next open sees the last committed content.
//
// Thread safety: all public methods from any thread. Lifetime: shared_ptr; a file that has something to commit, or
// transfers under way, keeps itself alive.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/file/cached_chunk.h"
#include "engine/file/chunk_cache.h"
#include "engine/file/chunk_verifier.h"
#include "engine/file/commit_job.h"
#include "engine/file/committed_version.h"
#include "engine/file/content.h"
#include "engine/file/context.h"
#include "engine/file/healing.h"
#include "engine/file/held_frees.h"
#include "engine/file/name_state.h"
#include "engine/file/object_set.h"
#include "engine/file/part_reads.h"
#include "engine/file/placement.h"
#include "engine/file/previous_content.h"
#include "engine/file/read_out.h"
#include "engine/file/requests.h"
#include "engine/file/reservation.h"
#include "engine/file/tensor_starts.h"
#include "engine/file/write_gate.h"
#include "engine/file/writer_set.h"
#include "engine/index/sidecar.h"
#include "engine/io/handle_shares.h"

namespace fpfs {

class File final : public BufferOwner, private ChunkVerifier::Source, public std::enable_shared_from_this<File> {
 public:
  // Reads the sidecar behind `sidecar` (writable when `writable`), whose attributes these are. `new_name`: of a file
  // just created, or whose name its failed commits have not made durable.
  static Result<std::shared_ptr<File>> open(FileContext& context, std::shared_ptr<const ScopedHandle> sidecar,
                                            const struct stat& attributes, bool writable, NewName new_name);
  // How chunks are stored that go to their drive from now on; nothing: as the options say.
  void set_compression(const std::optional<Compression>& compression);
  ~File() override;

  // --- requests: asynchronous, see requests.h ----------------------------------------------------------------------
  void read(ReadRequest& request);
  void write(WriteRequest& request);
  void control(ControlRequest& request);
  // Room for the next write of the stream that this file's last write belongs to. See landing.h. kLandingWriteMin: shorter
  // writes make no stream, as the room costs more than their copy.
  static constexpr uint32_t kLandingWriteMin = 32 * 1024;
  bool begin_landing(Landing& landing);
  void cancel_landing(Landing& landing);
  // Whether what lands at the start of a chunk, and is a write of `length` bytes at `offset`, has a place in any file.
  bool is_whole_chunk(FileOffset offset, uint64_t length) const {
    return length == context_.stripes.chunk_size && context_.stripes.offset_in_chunk(offset) == 0;
  }
  // What has landed is this file's write of `length` bytes at `offset`, not the one that was expected of landing.file (of
  // the same array): the landing is this file's from here on, where that needs no copy. False: it is as before.
  bool take_landing(Landing& landing, FileOffset offset, uint32_t length);
  // See ChunkVerifier.
  void verify_chunk(ChunkIndex chunk, ChunkVerifier::Done done) {
    verifier_.verify(chunk, shared_from_this(), std::move(done));
  }
  // Where its content goes that is written from now on.
  StripeMap stripes() const;
  // Members are leaving, or not any more: what is written from now on goes to those that take part, as far as they were
  // there when the file was opened. Whenever the array's have changed.
  void follow_members();
  // Something of it is on the member, or on its way there, or may be written there.
  bool is_on(MemberIndex member) const;
  // Unlinks the file's objects on members that are leaving, where they hold nothing any more.
  void drop_left_objects();
  // Whether the chunk is on the member that it would be written to now, or on none.
  bool is_in_place(ChunkIndex chunk) const;
  // Reads the chunk, checks it and writes it to that member; a commit records it there, and only then the old place is
  // given back. Nobody's content is touched: of a file that is being changed the chunk stays where it is, and so it does
  // when it cannot be read, or there is no room. `arrived` is called once, when all that the drives are kept busy by is
  // done; `told` once, at the end: ok when it is in its place, durably, else why it stays where it is.
  void move_chunk(ChunkIndex chunk, std::function<void()> arrived, std::function<void(const Status& why_left)> told);
  // The first chunk from `first` on that verify_chunk() reads; nothing when there is none.
  std::optional<ChunkIndex> next_stored(ChunkIndex first) const;

  // fallocate(2): room for what is still to be written in the range, kept from all other writers until it is written,
  // cut off or punched, or nobody has the file open any more. What is stored already has none: it is never overwritten
  // in place. kNoSpace: not all of it, and so nothing; `in_flight` is set when that may change by itself, by what was
  // on its way when `sent` was noted (empty: now, and it is noted). Looks at the drives (a system call for each).
  Status reserve(FileOffset offset, uint64_t length, Room::Sent& sent, bool& in_flight);

  // --- who writes: see writer.h. A Writer is detached before it is destroyed ----------------------------------------
  void attach(Writer& writer);
  // Its description is gone, after everything that came through it was answered. True: what it has written since a
  // commit is finished by that, and for the caller to commit.
  bool detach(Writer& writer);
  // The connection to those who write has ended: what is unfinished will never be finished, and is not committed.
  void cut_off(Writer& writer);
  // Durable::kFsync: a close by `closer` (without a Writer: by the only one who writes). When it ends a save, the
  // commit follows in the background.
  void closed_by_writer(const Origin& closer = {});
  // Uncommitted changes took the place of committed content as a whole.
  bool is_replacing() const;
  // Of these, those of `origin` are that the file was emptied, and nothing written.
  bool has_only_emptied(const Origin& origin) const;
  // Commits a trickle that is due. True: there is something that may become due later.
  bool commit_trickle();
  // Whoever wrote what is not committed yet hears of no failure any more: when there is one, that is a loss
  // (ArrayHealth::note_loss).
  void promise();

  // --- state -------------------------------------------------------------------------------------------------------
  uint64_t inode() const { return inode_; }  // of the sidecar
  uint64_t size() const;
  bool is_dirty() const;  // something is not committed
  // The first commit of this File that has the content of now; UINT64_MAX: that is not committed, or somebody has the
  // file open who may write.
  uint64_t content_since() const;
  FileId id() const;     // 0: not chosen yet
  Status error() const;  // the sticky failure
  // It has failed, and nobody who is not done yet has it open.
  bool is_given_up() const;
  // The number of the commit whose content readers see now; 0 when there is none, or more was changed since, or the
  // file failed. Grows over the life of a sidecar.
  uint64_t clean_commit() const;
  void overlay(struct stat& attributes);  // logical size, blocks and times over those of the sidecar; who is told
  // SEEK_DATA (hole = false) or SEEK_HOLE. A chunk's data begins at its first byte and ends behind its last written
  // one; zeros in between count as data. kSystem with ENXIO at or past the end.
  Result<FileOffset> seek(FileOffset offset, bool hole) const;
  struct MappedExtent {
    ChunkIndex chunk;
    Extent extent;
  };
  // Up to `limit` extents on the drives, from chunk `first` on; with kEverywhere also those of chunks that are in the
  // store of the copies only. What is not flushed yet is not among them.
  enum class Mapped : uint8_t { kOnDrives, kEverywhere };
  std::vector<MappedExtent> map(ChunkIndex first, size_t limit, Mapped which = Mapped::kOnDrives) const;
  struct Info {
    FileId file_id;  // 0 before the first commit
    Generation generation;
    uint64_t size = 0, stored_bytes = 0, chunks = 0, sequence = 0;
    uint64_t committed_size = 0;  // what it has after a crash, and when all have closed it whose save has failed
    bool is_inline = false;
    uint64_t codec_chunks[kCodecs] = {};
    PerMember<bool> members;
  };
  Info info() const;
  std::string path() const override;  // where the file is now in the mount, for messages: Array::path_in_mount()
  std::optional<std::string> path_below_tree() const;

  // Holds the content of the last durable commit. kNotFound: there is none, or the last one is not durable yet.
  Result<std::unique_ptr<CommittedVersion>> hold_version();
  // The same, with where one chunk of it lies. Null: it lies nowhere, or something was changed since.
  std::unique_ptr<CommittedVersion> hold_place(ChunkIndex chunk, Extent& extent, std::shared_ptr<ObjectSet>& objects);
  // What lazy commits have recorded of a file that nobody changes is durable: Store::sync_names() succeeded behind them.
  // Counts as a commit. The sticky failure, if there is one.
  Status note_synced();
  // Sets an extended attribute of the sidecar that is no user's: the change time stays what it was. Durable on return
  // when so asked for. Waits for the drive.
  Status set_note(const std::string& name, std::span<const std::byte> value, bool is_durable = false);
  // --- content that is away: see away.cpp ----------------------------------------------------------------------------
  // Content of commit `sequence`, the last one, leaves the members: it is away from then on, but for chunks that are
  // not shown as a whole, by a commit that changes nothing else, and its space is given back behind that. `checksums`:
  // hash_bytes() of the content of each chunk, which some copy has that ChunkSource finds. Waits for the drive of the
  // names; `done` is called once. kBusy: it was committed again, or is being changed or read; then nothing has changed,
  // as with kInvalidArgument: the copy is shorter.
  using AwayDone = std::function<void(const Status&)>;
  void send_away(uint64_t sequence, std::span<const uint64_t> checksums, const AwayDone& done);
  // A file that was just made gets a content that is away, of `size` bytes; 0 in place of a checksum: a hole. A commit
  // is to follow. kInvalidArgument: it is not new. kNoSpace: its index is too large.
  Status begin_away(uint64_t size, std::span<const uint64_t> checksums);
  // Fetches what is away, to stay. `done` is called once, on a thread of the executor, which outlives that: with success
  // when nothing of the content is away any more, durably. kBusy: what came does not stay, as the drives are full or
  // the file is being written. kCancelled: `is_wanted` (may be null) said no; it is asked again and again, on any thread.
  // kReadOnly. Else: the store does not give it, or the array is being closed.
  void recall(std::function<bool()> is_wanted, std::function<void(const Status&)> done);
  // Reads a chunk that is away, as CommittedVersion::read().
  void read_away(ChunkTransfer& transfer, std::shared_ptr<const void> keep);

  // The member of chunk 0; nothing while nothing of the content is on the members.
  std::optional<MemberIndex> stripe_start() const;

  // --- Store's side --------------------------------------------------------------------------------------------------
  // What its content may share blocks with, until its first commit; for a file just made.
  void set_previous(std::shared_ptr<PreviousContent> previous);
  // It is known now, or that there is none: what has waited for it goes to the drives.
  void previous_found();
  void make_writable(ScopedHandle sidecar);  // for a file first opened read-only
  bool is_writable() const;
  void set_mtime(const struct timespec& mtime);
  // The handles that it holds are counted in these until it goes; the first ones count. `sidecar`: nobody's where that
  // is counted already. `directory`: of a name, for one or none so far; one that is needed later is leased then.
  void hold(HandleShares::Lease sidecar, HandleShares::Lease directory);
  // Of its names; see NameState.
  void name_moved_to(ScopedHandle directory);
  void name_removed(ScopedHandle directory);
  void set_unnamed();
  void name_given(ScopedHandle directory);
  bool is_nameless() const;
  // Flushes dirty chunks because the pool is short of buffers.
  void flush_for_pressure();
  // A member, or the tree, hangs: whatever waits for it gets `failure` now. May be called again and again.
  void member_stalled(StallDomain domain, const Status& failure);
  // Store is going away without a commit (a crash, or a failed file): forget everything.
  void abandon();
  // And what was on its way when the queues were closed.
  void forget_heal_writes();

  // BufferOwner.
  bool try_evict(Buffer& buffer) override;
  void evict_locked(Buffer& buffer) override;

 private:
  friend class CommittedVersion;
  // What must happen after mutex_ is released, in this order: answer, submit, resume.
  struct Deferred : ChunkCache::Woken {
    ControlList controls;  // complete each with its result
    SubmitList submits;
    SubmitList ahead;                           // loads that nobody waits for yet
    std::shared_ptr<CommitJob> commit;          // start its syncs
    std::shared_ptr<PreviousContent> previous;  // let go of
  };
  enum class Phase : uint8_t {
    kIdle,
    kDraining,  // flushes of the commit under way; no other flush starts
    kTrimming,  // as kSyncing, and preallocated space is given back before: no flush starts until the commit has ended
    kSyncing,   // objects, then sidecar, are made durable; writes and flushes go on for the next commit
  };
  File(FileContext& context, std::shared_ptr<const ScopedHandle> sidecar, bool writable, NewName new_name,
       uint64_t inode);
  Status load_image(const struct stat& attributes) FPFS_REQUIRES(mutex_);
  Status take_slots() FPFS_REQUIRES(mutex_);
  void run(Deferred& deferred);
  void go_on(ReadRequest& request);
  void go_on(WriteRequest& request);
  std::unique_ptr<CommittedVersion> hold_durable() FPFS_REQUIRES(mutex_);

  // write_path.cpp
  void continue_write(WriteRequest& request);
  void take_buffer(WriteRequest& request);
  enum class Step : uint8_t { kDone, kParked, kFailed };
  Step write_some(WriteRequest& request, Deferred& deferred, Status& failure) FPFS_REQUIRES(mutex_);
  bool begin_write(WriteRequest& request, Status& failure) FPFS_REQUIRES(mutex_);
  void cut_to_content(WriteRequest& request) const FPFS_REQUIRES(mutex_);
  Step write_piece(WriteRequest& request, Deferred& deferred, Status& failure) FPFS_REQUIRES(mutex_);
  void fill(CachedChunk& chunk, uint32_t begin, uint32_t end, const std::byte* source) FPFS_REQUIRES(mutex_);
  CachedChunk* chunk_for_write(ChunkIndex index, uint32_t begin, uint32_t end, WriteRequest& request,
                               Deferred& deferred) FPFS_REQUIRES(mutex_);
  void end_active_write(WriteRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool may_land() const FPFS_REQUIRES(mutex_);
  void end_landing(Landing& landing) FPFS_REQUIRES(mutex_);
  static const std::byte* source_of(const WriteRequest& request);
  void mark_dirty(CachedChunk& chunk) FPFS_REQUIRES(mutex_);
  void mark_modified(const Origin& origin) FPFS_REQUIRES(mutex_);
  void mark_clean(CachedChunk& chunk) FPFS_REQUIRES(mutex_);
  FileId file_id() FPFS_REQUIRES(mutex_);
  void settle_start() FPFS_REQUIRES(mutex_);
  bool waits_for_previous() const FPFS_REQUIRES(mutex_);
  MemberIndex member_of(ChunkIndex chunk) FPFS_REQUIRES(mutex_);
  std::optional<MemberIndex> home_of(ChunkIndex chunk, const Extent& old, bool needs_look) FPFS_REQUIRES(mutex_);
  std::optional<MemberIndex> with_room(MemberIndex preferred, uint64_t needed) FPFS_REQUIRES(mutex_);
  void refuse_new_chunks(WriteRequest& request);
  void write_if_room(WriteRequest& request, bool may_free);
  // `in_flight` is set when that may change by itself, by what was on its way when the write came.
  bool has_room(WriteRequest& request, bool& in_flight);
  bool may_flush() const FPFS_REQUIRES(mutex_) { return phase_ == Phase::kIdle || phase_ == Phase::kSyncing; }
  void begin_flush(CachedChunk& chunk, bool streaming, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void flush_dirty(bool only_full, Deferred& deferred) FPFS_REQUIRES(mutex_);
  static void flush_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status);
  void finish_flush(CachedChunk& chunk, const ObjectSet& objects, const Status& status);
  void set_extent(ChunkIndex chunk, const Extent& extent) FPFS_REQUIRES(mutex_);
  void forget_extent(const Extent& extent) FPFS_REQUIRES(mutex_);
  void discard_dirty(Deferred& deferred) FPFS_REQUIRES(mutex_);
  void fail(const Status& status) FPFS_REQUIRES(mutex_);
  // What would have made a new name durable is kept for whoever saves to the file again.
  void leave(NewName name) FPFS_REQUIRES(mutex_);
  // Once its last name went: when its user may have no handle of the directory, all names are synced instead.
  void count_removed_from() FPFS_REQUIRES(mutex_);

  // read_path.cpp
  void continue_read(ReadRequest& request);
  Step pin_range(ReadRequest& request, Deferred& deferred, Status& failure) FPFS_REQUIRES(mutex_);
  Step pin_first(ReadRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void pin(CachedChunk& chunk, CachedChunk*& slot) FPFS_REQUIRES(mutex_);
  void unpin(CachedChunk& chunk, uint32_t kept, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void unpin_all(ReadRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void build_reply(ReadRequest& request) FPFS_REQUIRES(mutex_);
  void read_ahead(const ReadRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool load_ahead(const ReadRequest& request, ChunkIndex index, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool is_part_enough(const ReadRequest& request) const FPFS_REQUIRES(mutex_);
  void begin_load(CachedChunk& chunk, SubmitList& loads) FPFS_REQUIRES(mutex_);
  void begin_part_load(CachedChunk& chunk, const ReadRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool was_replaced(const CachedChunk& chunk) const FPFS_REQUIRES(mutex_);
  static void load_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status);
  bool load_moved(CachedChunk& chunk, const Status& status);
  void finish_load(CachedChunk& chunk, const Status& status);

  // tensor_ahead.cpp
  void look_at_beginning(const ReadRequest& request) FPFS_REQUIRES(mutex_);
  void look_for_tensors(Deferred& deferred) FPFS_REQUIRES(mutex_);
  void header_came(const CachedChunk& first, const Status& status) FPFS_REQUIRES(mutex_);
  void find_tensors(const CachedChunk& first) FPFS_REQUIRES(mutex_);
  bool read_tensors_ahead(const ReadRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);

  // inline_content.cpp
  void cache_inline(std::span<const std::byte> content) FPFS_REQUIRES(mutex_);
  void begin_load_inline(CachedChunk& chunk) FPFS_REQUIRES(mutex_);
  Result<uint32_t> read_place(Handle sidecar, FileId file_id, const RecordPlace& place, std::span<std::byte> buffer);
  void load_inline(CachedChunk& chunk);
  void build_inline_record() FPFS_REQUIRES(mutex_);
  Status fetch_inline(CommitJob& job);
  void inline_appended(CommitJob& job, const RecordPlace& place);
  void end_inline_write(CommitJob& job, Deferred& deferred) FPFS_REQUIRES(mutex_);

  Place place_of(ChunkIndex chunk) const override;

  // away.cpp
  std::string copied_at() const;
  struct Fetch;
  bool is_next_of_run(const CachedChunk& last, const CachedChunk& next) const;
  void start_loads(SubmitList& loads);
  void begin_fetch(const std::vector<CachedChunk*>& run);
  void try_to_fetch(const std::vector<std::shared_ptr<Fetch>>& fetches);
  void fetched(const std::shared_ptr<Fetch>& fetch, const Status& status,
               const std::shared_ptr<ChunkHealer::Piece>& piece);
  struct AwayChunk {
    ChunkIndex chunk;
    Extent extent;
    std::shared_ptr<ObjectSet> objects;
  };
  struct Recall;  // recall.cpp
  std::vector<AwayChunk> next_away(ChunkIndex& next, bool& leaves_out);
  bool is_any_away() const;
  Status may_leave(uint64_t sequence) const FPFS_REQUIRES(mutex_);
  Status find_leaving(std::span<const uint64_t> checksums, std::vector<std::pair<ChunkIndex, Extent>>& leaving) const
      FPFS_REQUIRES(mutex_);

  // healing.cpp
  std::optional<ChunkSource::Wanted> wanted_from_copy(ChunkIndex chunk, const Extent& extent, const ObjectSet& objects);
  bool heal_load(CachedChunk& chunk, const ObjectSet& objects, const Status& damage);
  void load_healed(CachedChunk& chunk, const std::shared_ptr<ObjectSet>& objects, const Status& damage,
                   const Status& status, const std::shared_ptr<ChunkHealer::Piece>& piece);
  void note_copy_asked(const Status& damage, const Status& status);
  void heal(ChunkIndex chunk, const Place& place, const Status& damage, ChunkVerifier::Done done) override;
  bool is_at_rest() const FPFS_REQUIRES(mutex_);
  void write_back(ChunkIndex chunk, const Extent& old, const std::shared_ptr<ObjectSet>& objects,
                  const std::shared_ptr<ChunkHealer::Piece>& piece, Healing::Told told);
  Status why_left(ChunkIndex chunk, const Extent& extent);
  void write_home(ChunkIndex chunk, const Extent& old, const std::shared_ptr<ObjectSet>& objects, Healing::Bytes bytes,
                  Healing::Told told);
  bool has_uncommitted_moves() const FPFS_REQUIRES(mutex_);
  static void heal_write_done(ChunkTransfer& transfer, const ObjectSet& objects, const Status& status);
  void finish_heal_write(const Healing::Write& write, const ObjectSet& objects, const Status& status);
  bool has_all_come(ChunkIndex last) const FPFS_REQUIRES(mutex_);
  void finish_heals_later();
  void finish_heals();
  void give_up_written(const std::vector<Healing::Written>& written, const Status& failure);
  Status prepare_to_record(const std::vector<Healing::Written>& written);
  Status make_sidecar_writable();
  void record_healed(const Healing::Written& written) FPFS_REQUIRES(mutex_);
  struct MoveCommit;
  void moved_committed(const MoveCommit& commit, bool is_committed);
  void give_up_heal_writes(StallDomain domain, Deferred& deferred) FPFS_REQUIRES(mutex_);

  // file.cpp: chunks
  void detach(CachedChunk& chunk, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool has_data(ChunkIndex chunk) const FPFS_REQUIRES(mutex_);
  // How far the content of a chunk goes; behind it are zeros, which count as a hole.
  uint32_t data_end(ChunkIndex chunk) const FPFS_REQUIRES(mutex_) {
    const CachedChunk* const cached = cache_.find(chunk);
    return cached != nullptr ? cached->length : content_.stored_end(chunk);
  }
  void keep_alive() FPFS_REQUIRES(mutex_) {
    if (self_ == nullptr && !abandoned_) self_ = shared_from_this();
  }
  // The caller holds a reference, so this is never the last one.
  void drop_if_clean() FPFS_REQUIRES(mutex_) {
    if (commit_ != nullptr) return;
    if (!error_.is_ok() || names_.is_nameless() || (!content_.is_edited() && !gate_.has_controls())) self_.reset();
  }

  // control.cpp
  void enqueue_control(ControlRequest& request);
  void run_controls(Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool run_commit_request(Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool matters(const ControlRequest& request) const FPFS_REQUIRES(mutex_);
  bool is_wanted(ControlRequest& request) FPFS_REQUIRES(mutex_);
  bool has_work(const ControlRequest& request) const FPFS_REQUIRES(mutex_);
  void truncate_locked(FileOffset new_end, const Origin& origin, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void punch_locked(const ControlRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void keep_as_previous() FPFS_REQUIRES(mutex_);
  void drop_chunks(ChunkIndex first, ChunkIndex last, Deferred& deferred) FPFS_REQUIRES(mutex_);
  static void complete_with(Deferred& deferred, ControlRequest& request, const Status& status) {
    request.result = status;
    deferred.controls.push_front(request);
  }
  struct ZeroEdges;
  void zero_edges_then_punch(ControlRequest& request);
  void zero_end_then_truncate(ControlRequest& request);
  bool cuts_what_is_away(const ControlRequest& request) const FPFS_REQUIRES(mutex_);

  // writers.cpp
  bool replaces_committed() const FPFS_REQUIRES(mutex_) {  // see is_replacing()
    return content_.is_replaced() && content_.committed_size() > 0;
  }
  void revert_replacement(ControlRequest& request, Deferred& deferred) FPFS_REQUIRES(mutex_);
  Status revert(Deferred& deferred) FPFS_REQUIRES(mutex_);
  static void commit_in_background(const std::shared_ptr<File>& file, ControlRequest::Kind kind, bool lazy,
                                   ControlRequest::Unfinished unfinished);

  // give_up.cpp
  void give_up_loads(StallDomain domain, const Status& failure, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool writes_to(StallDomain domain) const FPFS_REQUIRES(mutex_);
  bool commit_is_caught(StallDomain domain) const FPFS_REQUIRES(mutex_);
  void give_up_writes(StallDomain domain, const Status& failure, Deferred& deferred) FPFS_REQUIRES(mutex_);

  // commit.cpp
  bool needs_commit() const FPFS_REQUIRES(mutex_) { return content_.is_edited() || names_.is_new() || unsynced_; }
  void start_commit(ControlList requests, Deferred& deferred) FPFS_REQUIRES(mutex_);
  bool fits_sidecar() const FPFS_REQUIRES(mutex_);
  void advance_commit(Deferred& deferred) FPFS_REQUIRES(mutex_);
  void build_record() FPFS_REQUIRES(mutex_);
  void plan_trim() FPFS_REQUIRES(mutex_);
  bool has_slack() const FPFS_REQUIRES(mutex_);
  void post_object_syncs(const std::shared_ptr<CommitJob>& job);
  void object_sync_done(CommitJob& job, const Status& status);
  SidecarWriter::Outcome append_record(CommitJob& job);
  Result<bool> log_commit(const CommitJob& job, SidecarWriter& writer);
  Status keep_times(Handle sidecar, const struct timespec& change_before, bool is_change);
  bool is_mtime_open() const;
  void finish_commit(CommitJob& job, const SidecarWriter::Outcome& outcome);
  void end_commit(const Status& status, Deferred& deferred) FPFS_REQUIRES(mutex_);
  void free_behind_versions(HeldFrees::Free free) FPFS_REQUIRES(mutex_);
  void let_go(HeldFrees::Ticket ticket);
  void punch_dead(const std::vector<Placement::DeadSlot>& dead);
  void punch_log(const ScopedHandle& sidecar, SidecarOffset end);

  FileContext& context_;
  // Members that were added since it was opened get content of files that are opened after it.
  const uint16_t member_count_;
  const uint64_t inode_;
  std::atomic<Handle> message_handle_;  // sidecar_, readable without the lock: for messages only

  mutable Mutex mutex_;
  std::shared_ptr<const ScopedHandle> sidecar_ FPFS_GUARDED_BY(mutex_);  // who uses it without the lock shares it
  bool writable_ FPFS_GUARDED_BY(mutex_);
  NameState names_ FPFS_GUARDED_BY(mutex_);
  HeldFrees held_frees_ FPFS_GUARDED_BY(mutex_);
  Compression compression_ FPFS_GUARDED_BY(mutex_);
  std::shared_ptr<File> self_ FPFS_GUARDED_BY(mutex_);  // while there is something to commit
  bool abandoned_ FPFS_GUARDED_BY(mutex_) = false;

  StripeMap stripes_ FPFS_GUARDED_BY(mutex_);  // see follow_members(); room is counted for members by it
  Content content_ FPFS_GUARDED_BY(mutex_);
  WriterSet writers_ FPFS_GUARDED_BY(mutex_);
  Placement placement_ FPFS_GUARDED_BY(mutex_);
  std::shared_ptr<PreviousContent> previous_ FPFS_GUARDED_BY(mutex_);  // that flushed chunks may share blocks with
  Reservation reserved_ FPFS_GUARDED_BY(mutex_);                       // for chunks that are neither stored nor dirty
  ChunkCache cache_ FPFS_GUARDED_BY(mutex_);
  PartReads part_reads_ FPFS_GUARDED_BY(mutex_);
  ReadOut read_out_ FPFS_GUARDED_BY(mutex_);
  TensorStarts tensors_ FPFS_GUARDED_BY(mutex_);
  unsigned writes_in_flight_ FPFS_GUARDED_BY(mutex_) = 0;
  Status error_ FPFS_GUARDED_BY(mutex_);
  bool promised_ FPFS_GUARDED_BY(mutex_) = false;  // see promise()

  bool unsynced_ FPFS_GUARDED_BY(mutex_) = false;  // a lazy commit's record may not be durable yet
  WriteGate gate_ FPFS_GUARDED_BY(mutex_);
  static constexpr FileOffset kNoStream = FileOffset(UINT64_MAX);
  // Where the last write ended, when it was a long one or went on where such a one ended.
  FileOffset stream_end_ FPFS_GUARDED_BY(mutex_) = kNoStream;
  bool background_commit_ FPFS_GUARDED_BY(mutex_) = false;

  Phase phase_ FPFS_GUARDED_BY(mutex_) = Phase::kIdle;
  std::shared_ptr<CommitJob> commit_ FPFS_GUARDED_BY(mutex_);  // under way

  HandleShares::Lease sidecar_lease_ FPFS_GUARDED_BY(mutex_);
  HandleShares::Lease directory_lease_ FPFS_GUARDED_BY(mutex_);  // of names_
  ChunkVerifier verifier_;
  Healing healing_ FPFS_GUARDED_BY(mutex_);
  bool heals_sidecar_ FPFS_GUARDED_BY(mutex_) = false;  // it can be written to, though no user may

  SidecarLogState log_ FPFS_GUARDED_BY(mutex_);
  uint64_t durable_ FPFS_GUARDED_BY(mutex_) = 0;        // the last commit that is known to be durable
  uint64_t content_since_ FPFS_GUARDED_BY(mutex_) = 0;  // the last one that did not only move content, or was there
};

}  // namespace fpfs
