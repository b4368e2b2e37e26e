#include "engine/check/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "engine/check/inspect.h"
#include "engine/codec/chunk_codec.h"
#include "engine/codec/hash.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {

namespace {

// One read. With a few of them in flight a drive is at its full rate, and what was read is still in the processor's
// cache when it is hashed (reads of 4 MiB cost a quarter of the rate where the processor is the limit).
constexpr uint64_t kReadSize = kMiB;
// Reading through a gap of this size is cheaper than a second read.
constexpr uint64_t kGapMax = 128 * kKiB;
constexpr size_t kQueueRuns = 64;
constexpr auto kIdleInterval = std::chrono::milliseconds(100);

unsigned threads_per_member(uint16_t member_count) {
  return member_count <= 4 ? 3 : 2;
}

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], FreeDeleter>;

AlignedBuffer allocate_aligned(uint64_t size) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, size));
  FPFS_CHECK(memory != nullptr, "a few MiB per reading thread are there");
  return AlignedBuffer(memory);
}

}  // namespace

// The object of one file on one member, opened by whichever thread needs it first.
class DataVerifier::SharedObject {
 public:
  SharedObject(std::shared_ptr<VerifiedFile> of, MemberIndex on) : file(std::move(of)), member(on) {}

  Result<Handle> open(Storage& storage, Array& array) {
    const MutexLock lock(mutex_);
    if (!opened_) {
      opened_ = true;
      const Result<HandleCache::Pin> directory = array.object_directory(member, file->file_id);
      const Result<Handle> handle =
          directory.is_ok() ? storage.open_at(directory->get(), Array::object_name(file->file_id, file->generation),
                                              O_RDONLY | array.object_flags(member))
                            : directory.status();
      if (handle.is_ok())
        handle_ = ScopedHandle(storage, *handle);
      else
        failure_ = handle.status();
    }
    if (!failure_.is_ok()) return failure_;
    return handle_.get();
  }

  const std::shared_ptr<VerifiedFile> file;
  const MemberIndex member;

 private:
  Mutex mutex_;
  bool opened_ FPFS_GUARDED_BY(mutex_) = false;
  Status failure_ FPFS_GUARDED_BY(mutex_);
  ScopedHandle handle_ FPFS_GUARDED_BY(mutex_);
};

// Chunks that one read fetches.
struct DataVerifier::Run {
  std::shared_ptr<SharedObject> object;
  ObjectRange range;
  std::vector<PlacedChunk> chunks;
};

// The queue of one member and the threads that empty it.
class DataVerifier::MemberReader {
 public:
  MemberReader(DataVerifier& verifier, MemberIndex member, unsigned threads);
  ~MemberReader() { join(); }

  void push(Run run);
  void close();
  bool is_done() const;
  void join();

 private:
  void work();
  bool pop(Run& run);
  void read_run(const Run& run, AlignedBuffer& buffer, uint64_t& buffer_size);
  void read_one_by_one(const Run& run, Handle handle, AlignedBuffer& buffer);
  void judge(const Run& run, const PlacedChunk& placed, std::span<const std::byte> stored);
  std::optional<PlacedChunk> find_owner(const VerifiedFile& file, const PlacedChunk& found_at,
                                        std::span<const std::byte> stored) const;
  uint64_t seed_of(const VerifiedFile& file, ChunkIndex chunk) const {
    return chunk_seed(verifier_.array_.id().data(), file.file_id, file.generation, chunk);
  }
  uint64_t checksum_as(const VerifiedFile& file, const PlacedChunk& placed, std::span<const std::byte> stored) const {
    return stored_checksum(placed.extent.codec, stored, seed_of(file, placed.chunk));
  }
  void report(const Run& run, const PlacedChunk& placed, const char* kind, std::string detail);
  bool cancelled() const { return verifier_.cancelled_ != nullptr && verifier_.cancelled_->load(); }

  DataVerifier& verifier_;
  const MemberIndex member_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<Run> runs_ FPFS_GUARDED_BY(mutex_);
  unsigned working_ FPFS_GUARDED_BY(mutex_) = 0;
  bool closed_ FPFS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

DataVerifier::MemberReader::MemberReader(DataVerifier& verifier, MemberIndex member, unsigned threads)
    : verifier_(verifier), member_(member) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

void DataVerifier::MemberReader::push(Run run) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (runs_.size() < kQueueRuns) {
        runs_.push_back(std::move(run));
        changed_.notify_one();
        return;
      }
      changed_.wait_for(mutex_, kIdleInterval);
    }
    verifier_.idle_();
  }
}

void DataVerifier::MemberReader::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool DataVerifier::MemberReader::is_done() const {
  const MutexLock lock(mutex_);
  if (runs_.empty() && working_ == 0) return true;
  changed_.wait_for(mutex_, kIdleInterval);
  return runs_.empty() && working_ == 0;
}

void DataVerifier::MemberReader::join() {
  close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool DataVerifier::MemberReader::pop(Run& run) {
  const MutexLock lock(mutex_);
  while (runs_.empty()) {
    if (closed_) return false;
    changed_.wait(mutex_);
  }
  run = std::move(runs_.front());
  runs_.pop_front();
  ++working_;
  return true;
}

void DataVerifier::MemberReader::work() {
  AlignedBuffer buffer;
  uint64_t buffer_size = 0;
  for (Run run; pop(run); run = Run()) {
    if (!cancelled()) read_run(run, buffer, buffer_size);
    const MutexLock lock(mutex_);
    --working_;
    changed_.notify_all();
  }
}

void DataVerifier::MemberReader::read_run(const Run& run, AlignedBuffer& buffer, uint64_t& buffer_size) {
  const Result<Handle> handle = run.object->open(verifier_.storage_, verifier_.array_);
  const bool is_missing = handle.status().code() == StatusCode::kNotFound;
  if (!handle.is_ok()) {
    for (const PlacedChunk& placed : run.chunks)
      report(run, placed, is_missing ? "missing-object" : "unreadable", handle.status().message());
    return;
  }
  const uint64_t length = run.range.end - run.range.begin;
  if (length > buffer_size) {
    buffer.reset();
    buffer_size = std::max(length, kReadSize);
    buffer = allocate_aligned(buffer_size);
  }
  const Result<size_t> got = verifier_.storage_.pread(*handle, {buffer.get(), length}, run.range.begin.value());
  if (!got.is_ok()) {
    read_one_by_one(run, *handle, buffer);
    return;
  }
  for (const PlacedChunk& placed : run.chunks) {
    const uint64_t at = place_of(placed.extent, verifier_.array_.stripes().chunk_size).begin - run.range.begin;
    const uint64_t there = *got > at ? *got - at : 0;
    judge(run, placed, {buffer.get() + at, std::min<uint64_t>(there, placed.extent.stored_length)});
  }
}

// A read of several chunks failed: find out which.
void DataVerifier::MemberReader::read_one_by_one(const Run& run, Handle handle, AlignedBuffer& buffer) {
  for (const PlacedChunk& placed : run.chunks) {
    const ObjectRange place = place_of(placed.extent, verifier_.array_.stripes().chunk_size);
    const Result<size_t> got =
        verifier_.storage_.pread(handle, {buffer.get(), place.end - place.begin}, place.begin.value());
    if (got.is_ok())
      judge(run, placed, {buffer.get(), std::min<size_t>(*got, placed.extent.stored_length)});
    else
      report(run, placed, "unreadable", got.status().message());
  }
}

void DataVerifier::MemberReader::judge(const Run& run, const PlacedChunk& placed, std::span<const std::byte> stored) {
  const VerifiedFile& file = *run.object->file;
  if (stored.size() < placed.extent.stored_length) {
    report(run, placed, "short-object",
           fmt::format("only {} of {} bytes are there", stored.size(), placed.extent.stored_length));
    return;
  }
  const uint64_t checksum = checksum_as(file, placed, stored);
  if (checksum != placed.extent.checksum) {
    if (const auto owner = find_owner(file, placed, stored)) {
      report(
          run, placed, "misplaced",
          fmt::format("these are the bytes of chunk {}, which belongs on member {} at object offset {}", owner->chunk,
                      owner->extent.member, place_of(owner->extent, verifier_.array_.stripes().chunk_size).begin));
      return;
    }
    report(run, placed, "checksum",
           fmt::format("{} bytes with checksum {:016x}, written was {:016x}", stored.size(), checksum,
                       placed.extent.checksum));
    return;
  }
  if (placed.extent.codec != Codec::kRaw) {
    std::vector<std::byte> content(placed.extent.raw_length);
    const Status decoded = decode_chunk(placed.extent.codec, stored, content, seed_of(file, placed.chunk));
    if (!decoded.is_ok()) return report(run, placed, "checksum", decoded.message());
  }
  verifier_.totals_.bytes_done += placed.extent.stored_length;
  verifier_.totals_.bytes_verified += placed.extent.stored_length;
}

// Whole bytes in the wrong place, as after members' contents were exchanged or a write was misdirected: the chunk of
// the same file whose bytes these are. Looked for in the same slot on every member and in the slots around on this one.
std::optional<PlacedChunk> DataVerifier::MemberReader::find_owner(const VerifiedFile& file, const PlacedChunk& found_at,
                                                                  std::span<const std::byte> stored) const {
  constexpr uint64_t kSlotsAround = 32;
  const SlotIndex slot = found_at.extent.slot;
  for (const MemberIndex m : file.chunks.indices()) {
    const uint64_t around = m == member_ ? kSlotsAround : 0;
    const auto& chunks = file.chunks[m];
    auto candidate = std::lower_bound(chunks.begin(), chunks.end(), slot - std::min(slot.value(), around),
                                      [](const PlacedChunk& a, SlotIndex b) { return a.extent.slot < b; });
    for (; candidate != chunks.end() && candidate->extent.slot <= slot + around; ++candidate)
      if (candidate->chunk != found_at.chunk && candidate->extent.stored_length == stored.size() &&
          checksum_as(file, *candidate, stored) == candidate->extent.checksum)
        return *candidate;
  }
  return std::nullopt;
}

void DataVerifier::MemberReader::report(const Run& run, const PlacedChunk& placed, const char* kind,
                                        std::string detail) {
  verifier_.totals_.bytes_done += placed.extent.stored_length;
  VerifiedFile& file = *run.object->file;
  CheckError error;
  error.path = file.path;
  error.chunk = static_cast<int64_t>(placed.chunk.value());
  error.member = member_.value();
  error.object_offset =
      static_cast<int64_t>(place_of(placed.extent, verifier_.array_.stripes().chunk_size).begin.value());
  error.kind = kind;
  error.detail = fmt::format("{}: {}", object_path(verifier_.array_, member_, file.file_id, file.generation), detail);
  const MutexLock lock(file.mutex);
  file.errors.push_back(std::move(error));
}

DataVerifier::DataVerifier(Storage& storage, Array& array, Totals& totals, const std::atomic<bool>* cancelled,
                           std::function<void()> idle)
    : storage_(storage), array_(array), totals_(totals), cancelled_(cancelled), idle_(std::move(idle)) {
  readers_.resize(array.member_count());
  for (const MemberIndex m : array.members())
    if (array.member(m).present)
      readers_[m] = std::make_unique<MemberReader>(*this, m, threads_per_member(array.member_count()));
}

DataVerifier::~DataVerifier() = default;

void DataVerifier::add(const std::shared_ptr<VerifiedFile>& file, const FileImage& image) {
  const uint32_t chunk_size = array_.stripes().chunk_size;
  file->chunks = chunks_by_member(image, array_.member_count());
  const auto& members = file->chunks;
  PerMember<std::vector<Run>> runs(members.size());
  for (const MemberIndex m : array_.members()) {
    if (members[m].empty() || readers_[m] == nullptr) continue;
    if (file->known_damaged.test(m.value())) {
      for (const PlacedChunk& placed : members[m]) totals_.bytes_done += placed.extent.stored_length;
      continue;
    }
    const auto object = std::make_shared<SharedObject>(file, m);
    for (const PlacedChunk& placed : members[m]) {
      const ObjectRange place = place_of(placed.extent, chunk_size);
      Run* last = runs[m].empty() ? nullptr : &runs[m].back();
      const bool joins = last != nullptr && place.begin >= last->range.end &&
                         place.begin - last->range.end <= kGapMax && place.end - last->range.begin <= kReadSize;
      if (!joins) runs[m].push_back(Run{object, place, {}});
      runs[m].back().range.end = place.end;
      runs[m].back().chunks.push_back(placed);
    }
  }
  // Round by round, so that every member has work from the first moment on.
  for (size_t round = 0, pushed = 1; pushed > 0; ++round) {
    pushed = 0;
    for (const MemberIndex m : array_.members()) {
      if (round >= runs[m].size()) continue;
      readers_[m]->push(std::move(runs[m][round]));
      ++pushed;
    }
  }
}

void DataVerifier::finish() {
  for (const auto& reader : readers_) {
    if (reader == nullptr) continue;
    while (!reader->is_done()) idle_();
  }
  for (const auto& reader : readers_)
    if (reader != nullptr) reader->join();
}

}  // namespace fpfs
