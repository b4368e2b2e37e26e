// Power, faults, transfers and content. Names and attributes pass through: sim_storage_names.cpp.
#include "engine/io/sim/sim_storage.h"

#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs {

namespace {
constexpr unsigned kMistakePercent = 5;
constexpr unsigned kRareMistakePercent = 50;
// A sync that comes too late does within so many boundaries.
constexpr uint64_t kLateMax = 60;
constexpr uint64_t kBlock = 4096;

std::string range(uint64_t offset, uint64_t length) {
  return fmt::format("{} bytes at {}", length, offset);
}
}  // namespace

SimStorage::SimStorage(uint64_t seed, const std::vector<std::string>& mount_paths)
    : kernel_(mount_paths), random_(seed) {}

// --- power ----------------------------------------------------------------------------------------------------------

Status SimStorage::power_off() {
  return Status::error(StatusCode::kIoError, "power is off");
}

// True at the moment of the cut.
bool SimStorage::tick_locked() {
  ++boundaries_;
  make_late_syncs(Late::kDue);
  if (cut_at_ == 0 || boundaries_ < cut_at_) return false;
  off_ = true;
  return true;
}

bool SimStorage::begin() {
  if (off_) return false;
  return !tick_locked() || random_.chance(50);
}

bool SimStorage::begin(const char* call, Handle handle, const std::string& detail) {
  if (trace_ && !off_) trace_(fmt::format("{} {} {}", call, kernel_.describe(handle), detail));
  return begin();
}

Status SimStorage::end(Status status) const {
  return off_ ? power_off() : std::move(status);
}

void SimStorage::tick() {
  MutexLock lock(mutex_);
  if (!off_) tick_locked();
}

void SimStorage::cut_at(uint64_t boundary) {
  MutexLock lock(mutex_);
  cut_at_ = boundary;
}

void SimStorage::cut_now() {
  MutexLock lock(mutex_);
  off_ = true;
}

uint64_t SimStorage::boundaries() const {
  MutexLock lock(mutex_);
  return boundaries_;
}

bool SimStorage::is_off() const {
  MutexLock lock(mutex_);
  return off_;
}

void SimStorage::crash() {
  MutexLock lock(mutex_);
  kernel_.forget_handles();
  late_syncs_.clear();
  kernel_.world().crash(random_);
  off_ = false;
  cut_at_ = 0;
}

void SimStorage::kill() {
  MutexLock lock(mutex_);
  kernel_.forget_handles();
  make_late_syncs(Late::kAll);
  kernel_.world().end_transfers(random_);
  off_ = false;
  cut_at_ = 0;
}

std::vector<std::string> SimStorage::open_handles() const {
  MutexLock lock(mutex_);
  return kernel_.open_handles();
}

void SimStorage::set_time(uint64_t nanoseconds) {
  MutexLock lock(mutex_);
  kernel_.set_time(nanoseconds);
}

// --- the test's other controls ---------------------------------------------------------------------------------------

void SimStorage::set_trace(Trace trace) {
  MutexLock lock(mutex_);
  trace_ = std::move(trace);
}

void SimStorage::inject(const SimFault& fault) {
  MutexLock lock(mutex_);
  faults_.push_back(fault);
}

void SimStorage::reseed(uint64_t seed) {
  MutexLock lock(mutex_);
  random_ = SimRandom(seed);
}

void SimStorage::clear_faults() {
  MutexLock lock(mutex_);
  faults_.clear();
}

uint64_t SimStorage::fault_hits() const {
  MutexLock lock(mutex_);
  uint64_t hits = 0;
  for (const SimFault& fault : faults_) hits += fault.hits;
  return hits;
}

uint64_t SimStorage::fault_calls() const {
  MutexLock lock(mutex_);
  uint64_t calls = 0;
  for (const SimFault& fault : faults_) calls += fault.seen;
  return calls;
}

std::string SimStorage::last_fault() const {
  MutexLock lock(mutex_);
  return last_fault_;
}

uint64_t SimStorage::index_punches() const {
  MutexLock lock(mutex_);
  return index_punches_;
}

uint64_t SimStorage::object_renames() const {
  MutexLock lock(mutex_);
  return object_renames_;
}

void SimStorage::plant(SimPlantedBug bug) {
  MutexLock lock(mutex_);
  planted_ = bug;
  kernel_.set_rename_atomic(bug != SimPlantedBug::kRenameNotAtomic);
}

void SimStorage::set_journal_order(SimFilesystem::JournalOrder order) {
  MutexLock lock(mutex_);
  order_ = order;
  for (unsigned i = 0; i < kernel_.world().filesystem_count(); ++i) kernel_.world().filesystem(i).order = order;
}

void SimStorage::set_syncs_own_names(bool do_so) {
  MutexLock lock(mutex_);
  syncs_own_names_ = do_so;
  for (unsigned i = 0; i < kernel_.world().filesystem_count(); ++i)
    kernel_.world().filesystem(i).syncs_own_names = do_so;
}

void SimStorage::set_direct_io(unsigned filesystem, bool has) {
  MutexLock lock(mutex_);
  kernel_.world().filesystem(filesystem).has_direct_io = has;
}

void SimStorage::set_shares_blocks(unsigned filesystem, bool shares) {
  MutexLock lock(mutex_);
  kernel_.world().filesystem(filesystem).shares_blocks = shares;
}

uint64_t SimStorage::clones() const {
  MutexLock lock(mutex_);
  return clones_;
}

void SimStorage::set_capacity(unsigned filesystem, uint64_t bytes) {
  MutexLock lock(mutex_);
  kernel_.world().filesystem(filesystem).capacity_bytes = bytes;
}

SimWorld SimStorage::save() const {
  MutexLock lock(mutex_);
  FPFS_CHECK(kernel_.open_handles().empty(), "a world is saved only while no handle is open");
  return kernel_.world();
}

void SimStorage::restore(const SimWorld& world) {
  MutexLock lock(mutex_);
  kernel_.set_world(world);
  for (unsigned i = 0; i < kernel_.world().filesystem_count(); ++i) {
    kernel_.world().filesystem(i).order = order_;
    kernel_.world().filesystem(i).syncs_own_names = syncs_own_names_;
  }
}

bool SimStorage::flip_bit(const std::string& path, uint64_t offset, unsigned bit) {
  MutexLock lock(mutex_);
  const uint64_t found = kernel_.world().find(path);
  if (found == 0 || offset >= kernel_.world().inode(found).content.visible().size()) return false;
  kernel_.world().inode(found).content.flip_bit(offset, bit);
  return true;
}

std::vector<std::string> SimStorage::files_below(const std::string& path) const {
  MutexLock lock(mutex_);
  std::vector<std::string> result;
  const SimWorld& world = kernel_.world();
  std::vector<std::pair<std::string, uint64_t>> stack = {{path, world.find(path)}};
  while (!stack.empty()) {
    const auto [name, number] = stack.back();
    stack.pop_back();
    if (number == 0) continue;
    const SimInode& inode = world.inode(number);
    if (inode.is_regular()) result.push_back(name);
    for (const auto& [child_name, child] : inode.entries) stack.emplace_back(name + "/" + child_name, child);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::byte> SimStorage::content_of(const std::string& path) const {
  MutexLock lock(mutex_);
  const uint64_t found = kernel_.world().find(path);
  if (found == 0) return {};
  const SparseImage& image = kernel_.world().inode(found).content.visible();
  std::vector<std::byte> result(image.size());
  image.read(0, result);
  return result;
}

// --- faults ----------------------------------------------------------------------------------------------------------

SimFault* SimStorage::match(SimFault::Call call, Handle handle) {
  if (faults_.empty() || off_) return nullptr;
  const SimInode& inode = kernel_.inode_of(handle);
  SimFault* result = nullptr;
  for (SimFault& fault : faults_) {
    if (fault.call != call && fault.call != SimFault::Call::kAny) continue;
    if (fault.filesystem.has_value() && *fault.filesystem != inode.filesystem) continue;
    if (fault.role.has_value() && *fault.role != inode.role) continue;
    ++fault.seen;
    if (fault.seen < fault.nth || fault.seen - fault.nth >= fault.count) continue;
    ++fault.hits;
    result = &fault;
    constexpr std::array kNames = {"read",   "write",           "sync",  "sync",
                                   "syncfs", "allocate",        "punch", "truncate",
                                   "read",   "look at or open", "name",  "set attributes of",
                                   "clone"};
    last_fault_ = fmt::format("{} {}", kNames[static_cast<size_t>(call)], kernel_.describe(handle));
  }
  return result;
}

Status SimStorage::fault_of(SimFault::Call call, Handle handle, const char* what) {
  const SimFault* fault = match(call, handle);
  return fault == nullptr ? Status::ok() : Status::from_errno(fault->error, what + (" " + kernel_.describe(handle)));
}

// --- transfers -------------------------------------------------------------------------------------------------------

SimStorage::Transfer SimStorage::start_write(const IoRequest& request) {
  MutexLock lock(mutex_);
  Transfer transfer;
  if (off_) {
    transfer.outcome = power_off();
    return transfer;
  }
  const std::span<const std::byte> data(request.data, request.length);
  transfer.bytes = request.length;
  uint64_t offset = request.offset;
  const SimInode& inode = kernel_.inode_of(request.handle);
  if (errs(SimPlantedBug::kWriteErrorIgnored, inode, SimRole::kObjects)) transfer.bytes = 0;
  if (errs(SimPlantedBug::kShortWriteIgnored, inode, SimRole::kObjects)) transfer.bytes -= kBlock;
  if (errs(SimPlantedBug::kChunkMisplaced, inode, SimRole::kObjects)) offset += request.length;
  if (const SimFault* fault = match(SimFault::Call::kWrite, request.handle); fault != nullptr) {
    if (fault->effect == SimFault::Effect::kMisdirected) {
      offset += request.length;
    } else {
      transfer.bytes =
          fault->effect == SimFault::Effect::kLost ? 0 : round_down(random_.below(request.length + 1), 512);
      if (fault->effect == SimFault::Effect::kError)
        transfer.outcome = Status::from_errno(fault->error, "write to " + kernel_.describe(request.handle));
      if (fault->effect == SimFault::Effect::kShort)
        transfer.outcome = Status::error(StatusCode::kIoError, "short write to " + kernel_.describe(request.handle));
    }
  }
  if (trace_) trace_(fmt::format("transfer {} {}", kernel_.describe(request.handle), range(offset, request.length)));
  Result<uint64_t> started = kernel_.start_write(request.handle, data, offset);
  if (started.is_ok())
    transfer.number = *started;
  else
    transfer.outcome = started.status();
  return transfer;
}

Status SimStorage::finish_write(const IoRequest& request, const Transfer& transfer) {
  MutexLock lock(mutex_);
  if (trace_ && !off_ && transfer.number != 0)  // else it never began, and its handle may be none
    trace_(fmt::format("completed {} {}", kernel_.describe(request.handle), range(request.offset, request.length)));
  if (transfer.number != 0 && off_)
    kernel_.drop_write(transfer.number);
  else if (transfer.number != 0)
    kernel_.finish_write(transfer.number, {request.data, request.length}, transfer.bytes);
  return end(transfer.outcome);
}

Result<size_t> SimStorage::read_direct(const IoRequest& request) {
  return pread(request.handle, {request.data, request.length}, request.offset);
}

// --- content ---------------------------------------------------------------------------------------------------------

Result<size_t> SimStorage::pread(Handle handle, std::span<std::byte> buffer, uint64_t offset) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  if (const SimFault* fault = match(SimFault::Call::kRead, handle); fault != nullptr)
    return Status::from_errno(fault->error, "read " + kernel_.describe(handle));
  return kernel_.pread(handle, buffer, offset);
}

Status SimStorage::pwrite(Handle handle, std::span<const std::byte> data, uint64_t offset) {
  MutexLock lock(mutex_);
  if (!begin("write", handle, range(offset, data.size()))) return power_off();
  const SimFault* fault = match(SimFault::Call::kWrite, handle);
  if (fault == nullptr) {
    const Status written = kernel_.pwrite(handle, data, offset);
    if (!written.is_ok() || !kernel_.syncs_writes(handle)) return end(written);
    if (errs(SimPlantedBug::kCommitLogSyncSkipped, kernel_.inode_of(handle), SimRole::kOther)) return end(Status::ok());
    return end(begin("sync", handle, "what was written") ? sync_file(handle, true) : Status::ok());
  }
  if (fault->effect == SimFault::Effect::kLost) return end(Status::ok());
  if (fault->effect == SimFault::Effect::kMisdirected) return end(kernel_.pwrite(handle, data, offset + data.size()));
  const size_t written = random_.below(data.size() + 1);
  FPFS_RETURN_IF_ERROR(
      kernel_.pwrite(handle, data.first(kernel_.is_direct(handle) ? round_down(written, kBlock) : written), offset));
  return end(Status::from_errno(fault->error, "write to " + kernel_.describe(handle)));
}

// Now and then only: a mistake that always happens is easily seen.
// More often where it shows only when the power goes within a few steps of it, or where the step is a rare one.
bool SimStorage::errs(SimPlantedBug bug, const SimInode& inode, SimRole role, bool directory) {
  if (planted_ != bug || inode.role != role || inode.is_directory() != directory) return false;
  using Bug = SimPlantedBug;
  const bool is_rare = bug == Bug::kObjectSyncAfterRecord || bug == Bug::kSidecarSyncAfterAnswer ||
                       bug == Bug::kNameSyncAfterAnswer || bug == Bug::kTornTailKept || bug == Bug::kCompactedTooMuch ||
                       bug == Bug::kDirtyMarkNotSynced || bug == Bug::kCleanMarkTooEarly ||
                       bug == Bug::kTreeDirectorySyncSkipped;
  if (bug == Bug::kUnsyncedKept) return true;  // the next sync comes soon
  return random_.chance(is_rare ? kRareMistakePercent : kMistakePercent);
}

// What a sync comes to instead of itself, when the planted bug is about it.
bool SimStorage::sync_errs(SimInode& inode) {
  using Bug = SimPlantedBug;
  if (errs(Bug::kObjectSyncSkipped, inode, SimRole::kObjects) ||
      errs(Bug::kSidecarSyncSkipped, inode, SimRole::kTree) ||
      errs(Bug::kTreeDirectorySyncSkipped, inode, SimRole::kTree, true) ||
      errs(Bug::kObjectDirectorySyncSkipped, inode, SimRole::kObjects, true) ||
      errs(Bug::kDirtyMarkNotSynced, inode, SimRole::kOther, true))
    return true;
  if (errs(Bug::kObjectSyncErrorIgnored, inode, SimRole::kObjects) ||
      errs(Bug::kSidecarSyncErrorIgnored, inode, SimRole::kTree)) {
    inode.content.sync_failed(random_);
    return true;
  }
  if (errs(Bug::kFailedSyncTriedAgain, inode, SimRole::kObjects) ||
      errs(Bug::kFailedSyncTriedAgain, inode, SimRole::kTree))
    inode.content.sync_failed(random_);
  const bool until_next_record = errs(Bug::kObjectSyncAfterRecord, inode, SimRole::kObjects);
  if (until_next_record || errs(Bug::kSidecarSyncAfterAnswer, inode, SimRole::kTree) ||
      errs(Bug::kNameSyncAfterAnswer, inode, SimRole::kTree, true)) {
    late_syncs_.emplace_back(inode.number, until_next_record ? UINT64_MAX : boundaries_ + 1 + random_.below(kLateMax));
    return true;
  }
  return false;
}

void SimStorage::make_late_syncs(Late which) {
  std::erase_if(late_syncs_, [&](const auto& late) FPFS_NO_THREAD_SAFETY_ANALYSIS {
    const bool is_of_record = late.second == UINT64_MAX;
    if (which != Late::kAll && (which == Late::kOfRecord ? !is_of_record : boundaries_ < late.second)) return false;
    kernel_.sync(late.first);
    return true;
  });
}

// What a sync that failed has done nobody knows. What it has not: content is lost, and a later sync says that all is
// well; names are journaled and wait for that one.
Status SimStorage::sync_file(Handle handle, bool only_data) {
  SimInode& inode = kernel_.inode_of(handle);
  const auto call = inode.is_directory() ? SimFault::Call::kSyncDirectory : SimFault::Call::kSyncFile;
  if (const SimFault* fault = match(call, handle); fault != nullptr) {
    if (!inode.is_directory())
      inode.content.sync_failed(random_);
    else if (random_.chance(50))
      static_cast<void>(kernel_.fsync(handle));
    return Status::from_errno(fault->error, "fsync " + kernel_.describe(handle));
  }
  if (sync_errs(inode) || (only_data && errs(SimPlantedBug::kUnsyncedKept, inode, SimRole::kTree))) return Status::ok();
  const Status synced = only_data ? kernel_.fdatasync(handle) : kernel_.fsync(handle);
  if (inode.role == SimRole::kTree) make_late_syncs(Late::kOfRecord);
  return synced;
}

Status SimStorage::fsync(Handle handle) {
  MutexLock lock(mutex_);
  return end(begin("sync", handle, "") ? sync_file(handle, false) : Status::ok());
}

Status SimStorage::fdatasync(Handle handle) {
  MutexLock lock(mutex_);
  return end(begin("sync", handle, "data") ? sync_file(handle, true) : Status::ok());
}

Status SimStorage::check_running(Handle file) {
  MutexLock lock(mutex_);
  return fault_of(SimFault::Call::kCheckRunning, file, "read");
}

void SimStorage::drop_cache(Handle file) {
  MutexLock lock(mutex_);
  if (!off_) kernel_.inode_of(file).content.drop_cache();
}

Status SimStorage::sync_filesystem(Handle handle) {
  MutexLock lock(mutex_);
  if (const SimFault* fault = match(SimFault::Call::kSyncFilesystem, handle); fault != nullptr) {
    kernel_.world().sync_filesystem_failed(kernel_.inode_of(handle).filesystem, random_);
    return end(Status::from_errno(fault->error, "syncfs " + kernel_.describe(handle)));
  }
  const bool happens = begin("syncfs", handle, "") &&
                       !errs(SimPlantedBug::kCleanMarkTooEarly, kernel_.inode_of(handle), SimRole::kObjects, true);
  return end(happens ? kernel_.sync_filesystem(handle) : Status::ok());
}

Status SimStorage::ftruncate(Handle handle, uint64_t size) {
  MutexLock lock(mutex_);
  if (!begin("truncate", handle, fmt::format("to {}", size))) return end(Status::ok());
  const SimInode& inode = kernel_.inode_of(handle);
  if (errs(SimPlantedBug::kTornTailKept, inode, SimRole::kTree)) return end(Status::ok());
  if (size >= kBlock && errs(SimPlantedBug::kTrimmedTooMuch, inode, SimRole::kObjects)) size -= kBlock;
  const Status fault = fault_of(SimFault::Call::kTruncate, handle, "truncate");
  if (!fault.is_ok() && random_.chance(50)) return end(fault);
  const Status truncated = kernel_.ftruncate(handle, size);
  return end(fault.is_ok() ? truncated : fault);
}

Status SimStorage::fallocate(Handle handle, int mode, uint64_t offset, uint64_t length) {
  MutexLock lock(mutex_);
  const bool punches = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
  if (!begin(punches ? "punch" : "allocate", handle, range(offset, length))) return power_off();
  const SimInode& inode = kernel_.inode_of(handle);
  if (punches && inode.role == SimRole::kTree) ++index_punches_;
  if (punches && (errs(SimPlantedBug::kFreedTooMuch, inode, SimRole::kObjects) ||
                  errs(SimPlantedBug::kCompactedTooMuch, inode, SimRole::kTree)))
    length += kBlock;
  const Status fault = fault_of(punches ? SimFault::Call::kPunch : SimFault::Call::kAllocate, handle, "fallocate");
  if (!fault.is_ok()) length = round_down(random_.below(length), kBlock);
  const Status done = length == 0 ? fault : kernel_.fallocate(handle, mode, offset, length);
  return end(fault.is_ok() ? done : fault);
}

Status SimStorage::clone_range(Handle from, uint64_t from_offset, uint64_t length, Handle to, uint64_t to_offset) {
  MutexLock lock(mutex_);
  if (!begin("clone", to, range(to_offset, length))) return power_off();
  const SimInode& inode = kernel_.inode_of(to);
  // What lies behind the range is as good as any other mistake, where there is something.
  if (errs(SimPlantedBug::kCloneMisplaced, inode, SimRole::kObjects) &&
      kernel_.clone_range(from, from_offset + length, length, to, to_offset).is_ok())
    return end(Status::ok());
  const Status fault = fault_of(SimFault::Call::kClone, to, "share blocks with");
  if (!fault.is_ok()) length = round_down(random_.below(length), kBlock);
  const Status done = length == 0 ? fault : kernel_.clone_range(from, from_offset, length, to, to_offset);
  if (done.is_ok() && length > kBlock) ++clones_;
  return end(fault.is_ok() ? done : fault);
}

Result<bool> SimStorage::has_shared_blocks(Handle file) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, file, "look for blocks of"));
  return kernel_.has_shared_blocks(file);
}

Result<uint64_t> SimStorage::seek_data(Handle handle, uint64_t offset) {
  MutexLock lock(mutex_);
  if (off_) return power_off();
  FPFS_RETURN_IF_ERROR(fault_of(SimFault::Call::kLook, handle, "seek in"));
  return kernel_.seek_data(handle, offset);
}

}  // namespace fpfs
