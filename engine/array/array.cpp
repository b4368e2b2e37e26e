#include "engine/array/array.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/bytes.h"
#include "engine/base/check.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

constexpr size_t kFileIdDigits = 16;
constexpr size_t kGenerationDigits = 8;

// Exactly these digits, lower case: an object has one name.
bool parse_hex(std::string_view digits, uint64_t* value) {
  *value = 0;
  for (const char c : digits) {
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (c < 'a' || c > 'f')) return false;
    *value = *value << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
  }
  return true;
}

bool is_before(const struct timespec& one, const struct timespec& other) {
  return std::tie(one.tv_sec, one.tv_nsec) < std::tie(other.tv_sec, other.tv_nsec);
}

Status read_only_failure() {
  return Status::error(StatusCode::kReadOnly, "the array is open read-only");
}

}  // namespace

Array::~Array() {
  for (const std::unique_ptr<Kept>& kept : kept_) {
    if (kept == nullptr) continue;
    for (HandleCache::Slot& directory : kept->directories) kept->handles.remove(directory);
  }
}

Handle Array::own(ScopedHandle handle) {
  owned_.push_back(std::move(handle));
  return owned_.back().get();
}

Result<std::vector<std::string>> Array::split_directories(const std::string& directories) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(directories.find(':', begin), directories.size());
    if (end == begin)
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("'{}' has an empty directory name; write DIR:DIR:DIR", directories));
    parts.push_back(directories.substr(begin, end - begin));
    if (end == directories.size()) break;
    begin = end + 1;
  }
  if (parts.size() > kMemberCountMax)
    return Status::error(StatusCode::kInvalidArgument, fmt::format("{} directories were given; an array has at most {}",
                                                                   parts.size(), kMemberCountMax));
  return parts;
}

std::optional<std::string> Array::path_below_tree(Handle node) const {
  const std::string root = environment_.storage().describe(tree_);
  std::string path = environment_.storage().describe(node);
  if (path == root) return "";
  if (!path.starts_with(root + "/")) return std::nullopt;
  return path.substr(root.size() + 1);
}

std::string Array::name_of(MemberIndex index) const {
  const Member& named = members_[index];
  return named.present ? fmt::format("member {} ({})", index, named.path)
                       : fmt::format("member {} {}", index, named.path);
}

std::string Array::path_in_mount(Handle node) const {
  const std::optional<std::string> path = path_below_tree(node);
  return path.has_value() ? "/" + *path : environment_.storage().describe(node);
}

bool Array::may_be_torn(Storage& storage, Handle sidecar, const struct stat& attributes) const {
  // The change time, which no one can set, reaches the drive with the size that an append gives the sidecar.
  const bool is_written_since = [&] {
    const MutexLock lock(dirty_mutex_);
    return dirty_since_ && !is_before(attributes.st_ctim, *dirty_since_);
  }();
  // Its size then: one that was put back from a backup, and has grown since, is another matter.
  const std::string size = std::to_string(attributes.st_size);
  const std::span<const std::byte> note = std::as_bytes(std::span(size));
  if (is_written_since) {
    std::array<std::byte, 24> noted;
    const Result<size_t> length = storage.get_xattr(sidecar, kCutAttribute, noted);
    return !length.is_ok() || !std::ranges::equal(std::span(noted).first(*length), note);
  }
  // As good as it gets: whatever becomes of the note, the sidecar is refused now.
  if (!read_only()) static_cast<void>(storage.set_xattr(sidecar, kCutAttribute, note, 0));
  return false;
}

StripeMap Array::stripes_of(uint16_t member_count, const std::vector<MemberIndex>* order) const {
  return {superblock_.chunk_size, member_count, order, (superblock_.compatible & kFeatureTurnedRows) != 0};
}

// The count before what has the indices: an order that is new is never seen with a count that is old.
StripeMap Array::stripes() const {
  const Membership* const membership = membership_.load(std::memory_order_acquire);
  return stripes_of(member_count(), membership == nullptr ? nullptr : &membership->order);
}

std::optional<StripeMap> Array::stripes_among(uint16_t count) const {
  const Membership* const membership = membership_.load(std::memory_order_acquire);
  if (membership == nullptr) return stripes_of(std::min(count, member_count()), nullptr);
  const MutexLock lock(memberships_mutex_);
  const auto [among, is_new] = orders_among_.try_emplace({membership, count});
  if (is_new)
    std::copy_if(membership->order.begin(), membership->order.end(), std::back_inserter(among->second),
                 [count](MemberIndex member) { return member.value() < count; });
  if (among->second.empty()) return std::nullopt;
  return stripes_of(count, &among->second);
}

bool Array::is_leaving(MemberIndex member) const {
  const Membership* const membership = membership_.load(std::memory_order_acquire);
  return membership != nullptr && !membership->removed.test(member.value()) &&
         std::find(membership->order.begin(), membership->order.end(), member) == membership->order.end();
}

bool Array::is_any_leaving() const {
  const Membership* const membership = membership_.load(std::memory_order_acquire);
  return membership != nullptr && membership->is_any_leaving;
}

bool Array::is_removed(MemberIndex member) const {
  const Membership* const membership = membership_.load(std::memory_order_acquire);
  return membership != nullptr && membership->removed.test(member.value());
}

void Array::set_membership(const Superblock& superblock) {
  if (superblock.stripe_order.empty()) return;
  const bool is_any_leaving = superblock.stripe_order.size() + superblock.removed.count() < superblock.member_count;
  const MutexLock lock(memberships_mutex_);
  memberships_.push_back(
      std::make_unique<const Membership>(Membership{superblock.stripe_order, superblock.removed, is_any_leaving}));
  membership_.store(memberships_.back().get(), std::memory_order_release);
}

Status Array::raise_stamp(uint64_t mount) {
  return raise_mount_records(environment_.storage(), directories_, mount, environment_.now().tv_sec,
                             environment_.random_u64());
}

Status Array::begin_changes() {
  const MutexLock lock(changes_mutex_);
  return begin_changes_locked();
}

Status Array::begin_changes_locked() {
  if (read_only_) return read_only_failure();
  if (changes_begun_) return Status::ok();
  uint64_t mount = 0;
  for (const ArrayDirectory& directory : directories_) mount = std::max(mount, directory.record.stamp.mount);
  FPFS_RETURN_IF_ERROR(raise_stamp(mount + 1));
  for (ArrayDirectory& directory : directories_) {
    // An array of before: from here on no program writes to it that does not know of the records.
    directory.superblock_is_old |= (directory.superblock.read_only_compatible & kFeatureMountRecords) == 0;
    directory.superblock.read_only_compatible |= kFeatureMountRecords;
  }
  FPFS_RETURN_IF_ERROR(write_superblocks());
  changes_begun_ = true;
  return Status::ok();
}

Status Array::announce(uint64_t feature) {
  const MutexLock lock(changes_mutex_);
  bool is_new = false;
  for (ArrayDirectory& directory : directories_) {
    if ((directory.superblock.incompatible & feature) != 0) continue;
    directory.superblock.incompatible |= feature;
    directory.superblock_is_old = is_new = true;
  }
  superblock_.incompatible |= feature;
  return is_new ? write_superblocks() : Status::ok();
}

// Their copies, and those that have changed.
Status Array::write_superblocks() {
  Storage& storage = environment_.storage();
  std::vector<Superblock> superblocks;
  for (const ArrayDirectory& directory : directories_) superblocks.push_back(directory.superblock);
  for (const ArrayDirectory& directory : directories_)
    FPFS_RETURN_IF_ERROR(
        write_superblock_copies(storage, directory.directory, superblocks).with_context(directory.path));
  for (ArrayDirectory& directory : directories_) {
    if (!directory.superblock_is_old) continue;
    FPFS_RETURN_IF_ERROR(
        write_superblock(storage, directory.directory, directory.superblock).with_context(directory.path));
    directory.superblock_is_old = false;
  }
  return Status::ok();
}

Status Array::mark_dirty() {
  if (read_only_) return read_only_failure();
  FPFS_RETURN_IF_ERROR(begin_changes());
  const MutexLock lock(dirty_mutex_);
  return advise_on_room(write_state());
}

Status Array::keep_dirty_since() {
  const struct timespec now = environment_.stamp();
  const MutexLock lock(dirty_mutex_);
  return dirty_since_ && is_before(now, *dirty_since_) ? write_state() : Status::ok();
}

// Over itself, which takes no space.
Status Array::write_state() {
  constexpr std::string_view kText = "dirty\n";
  Storage& storage = environment_.storage();
  FPFS_ASSIGN_OR_RETURN(const Handle handle,
                        storage.open_at(metadata_directory_, kStateName, O_WRONLY | O_CREAT | O_NONBLOCK, 0600));
  const ScopedHandle state(storage, handle);
  FPFS_RETURN_IF_ERROR(storage.pwrite(handle, std::as_bytes(std::span(kText)), 0));
  FPFS_RETURN_IF_ERROR(storage.fsync(handle));
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(handle));
  dirty_since_ = attributes.st_mtim;
  return storage.fsync(metadata_directory_);
}

Status Array::mark_clean() {
  if (read_only_) return read_only_failure();
  {
    const MutexLock lock(changes_mutex_);
    FPFS_RETURN_IF_ERROR(begin_changes_locked());
    FPFS_RETURN_IF_ERROR(raise_stamp(directories_.front().record.stamp.mount));
  }
  Storage& storage = environment_.storage();
  Status removed = storage.unlink(metadata_directory_, kStateName);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return storage.fsync(metadata_directory_);
}

Status Array::check_running(MemberIndex member) const {
  return environment_.storage().check_running(members_[member].lock);
}

Status Array::check_tree_running() const {
  const Handle lock = metadata_lock_ != kNoHandle ? metadata_lock_ : members_[superblock_.metadata_member].lock;
  return environment_.storage().check_running(lock);
}

Result<HandleCache::Pin> Array::object_directory(MemberIndex member, FileId file) const {
  const unsigned index = object_directory_index(file);
  HandleCache::Slot& slot = kept_[member]->directories[index];
  if (HandleCache::Pin known = handles(member).find(slot); known.is_set()) return known;
  const Member& where = members_[member];
  if (is_removed(member))
    return Status::error(StatusCode::kNotFound, fmt::format("member {} was removed; it holds nothing", member))
        .at(member.value(), 0, 0);
  if (!where.present)
    return Status::error(StatusCode::kIoError,
                         fmt::format("member {} is missing; what it holds cannot be read", member))
        .at(member.value(), 0, 0);
  const std::string name = object_directory_name(index);
  const Result<Handle> opened = environment_.storage().open_at(where.objects, name, O_RDONLY | O_DIRECTORY);
  if (!opened.is_ok())
    return opened.status().with_context(fmt::format("{}/{}", where.path, kObjectsName)).at(member.value(), 0, 0);
  return handles(member).insert(slot, ScopedHandle(environment_.storage(), *opened));
}

uint64_t Array::note_new_name(MemberIndex member, FileId file) const {
  return kept_[member]->directories[object_directory_index(file)].named.fetch_add(1) + 1;
}

Status Array::sync_new_name(MemberIndex member, FileId file, uint64_t number) const {
  ObjectDirectory& directory = kept_[member]->directories[object_directory_index(file)];
  if (!directory.syncing.try_lock()) {
    FPFS_RETURN_IF_ERROR(check_running(member));  // refused when the drive does not answer
    directory.syncing.lock();
  }
  Status synced;
  if (directory.synced < number) {
    const Result<HandleCache::Pin> opened = object_directory(member, file);
    const uint64_t covers = directory.named.load();
    synced = opened.is_ok() ? environment_.storage().fsync(opened->get()) : opened.status();
    if (synced.is_ok()) directory.synced = covers;
  }
  directory.syncing.unlock();
  return synced;
}

std::string Array::object_name(FileId file, Generation generation) {
  return fmt::format("{:016x}.{:08x}", file, generation);
}

std::string Array::object_path(FileId file, Generation generation) {
  return fmt::format("{}/{}", object_directory_name(object_directory_index(file)), object_name(file, generation));
}

bool Array::parse_object_name(const std::string& name, FileId* file, Generation* generation) {
  if (name.size() != kFileIdDigits + 1 + kGenerationDigits || name[kFileIdDigits] != '.') return false;
  const std::string_view digits = name;
  uint64_t file_digits = 0, generation_digits = 0;
  if (!parse_hex(digits.substr(0, kFileIdDigits), &file_digits) || file_digits == 0) return false;
  if (!parse_hex(digits.substr(kFileIdDigits + 1), &generation_digits)) return false;
  *file = FileId(file_digits);
  *generation = Generation(static_cast<uint32_t>(generation_digits));
  return true;
}

int Array::object_flags(MemberIndex member) const {
  return members_[member].direct ? O_DIRECT : 0;
}

Result<struct statvfs> Array::space(const std::map<uint64_t, SpaceChange>& changes) const {
  constexpr uint64_t kUnit = 4096;
  struct Device {
    uint64_t total = 0, free = 0, available = 0;  // bytes
    uint64_t members = 0;
  };
  Storage& storage = environment_.storage();
  std::map<uint64_t, Device> devices;
  uint64_t present = 0;
  const StripeMap stripes = this->stripes();
  for (const MemberIndex i : stripes.members()) {
    if (!members_[i].present || !stripes.takes_part(i)) continue;
    const Result<struct statvfs> result = storage.fstatvfs(members_[i].objects);
    if (!result.is_ok()) return result.status().at(i.value(), 0, 0).with_context(members_[i].path);
    Device& device = devices[members_[i].device];
    const uint64_t fragment = result->f_frsize;
    const auto found = changes.find(members_[i].device);
    const SpaceChange change = found == changes.end() ? SpaceChange() : found->second;
    const uint64_t available = fragment * result->f_bavail + change.spare;
    device = {fragment * result->f_blocks, fragment * result->f_bfree + change.spare,
              available - std::min(available, change.withheld), device.members + 1};
    ++present;
  }
  // Data is striped evenly: the array is full when its fullest member is.
  uint64_t total = 0, free = UINT64_MAX, available = UINT64_MAX;
  uint64_t free_sum = 0, available_sum = 0;
  for (const auto& [number, device] : devices) {
    total += device.total;
    free_sum += device.free;
    available_sum += device.available;
    free = std::min(free, device.free / device.members);
    available = std::min(available, device.available / device.members);
  }
  FPFS_ASSIGN_OR_RETURN(const struct statvfs tree, storage.fstatvfs(tree_));
  struct statvfs space {};
  space.f_bsize = kUnit;
  space.f_frsize = kUnit;
  space.f_blocks = total / kUnit;
  space.f_bfree = std::min(free * present, free_sum) / kUnit;
  space.f_bavail = std::min(available * present, available_sum) / kUnit;
  space.f_files = tree.f_files;
  space.f_ffree = tree.f_ffree;
  space.f_favail = tree.f_favail;
  space.f_fsid = get_u64(superblock_.array_id.data());
  space.f_flag = tree.f_flag | (read_only_ ? static_cast<unsigned long>(ST_RDONLY) : 0UL);
  space.f_namemax = tree.f_namemax;
  return space;
}

}  // namespace fpfs
