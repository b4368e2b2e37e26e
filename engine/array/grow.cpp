// New members of an open array. They are laid out, with a mount record as all others have it, the copies of the
// superblocks and last their own superblock, which counts one change of the members more than those of the array. Then
// the directory with the names gets a superblock that counts as many: from that moment on they are members
// (ArrayOpener::settle_membership()). A crash before leaves directories that the array does not know, which can be added
// again. The other superblocks follow; those that a crash leaves behind are brought up by the next changes.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/array/change_members.h"
#include "engine/array/member_directory.h"
#include "engine/array/mount_records.h"
#include "engine/array/new_directories.h"
#include "engine/array/superblock_copies.h"
#include "engine/base/log.h"
#include "engine/base/ranges.h"

namespace fpfs {

namespace {

const Superblock& superblock_of(MemberIndex member, const std::vector<Superblock>& superblocks) {
  return *std::find_if(superblocks.begin(), superblocks.end(),
                       [member](const Superblock& superblock) { return superblock.member_index == member; });
}

}  // namespace

struct Array::Growth {
  std::vector<NewDirectory> candidates;
  std::vector<ArrayDirectory> directories;  // of the candidates
  std::vector<Superblock> superblocks;      // of the array as it is to be: members by their index, then the names
  bool superblocks_written = false;
  size_t owned_before = 0;
};

namespace {

// Whether what lies in `candidate` is what an earlier attempt to add it has left, or what was taken out: a member that the
// array does not have, and that holds nothing.
bool is_left_of_growth(Storage& storage, const NewDirectory& candidate,
                       const std::vector<ArrayDirectory>& directories) {
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, candidate.directory.get());
  if (!bytes.is_ok()) return false;
  const Result<Superblock> superblock = decode_superblock(*bytes, false);
  if (!superblock.is_ok()) return false;
  const Superblock& known = directories.front().superblock;
  if (superblock->array_id != known.array_id || superblock->membership == 0) return false;
  for (const ArrayDirectory& directory : directories)
    if (directory.superblock.member_id == superblock->member_id) return false;
  const bool was_taken_out =
      superblock->member_index.value() < known.member_count && known.removed.test(superblock->member_index.value());
  // One of an earlier membership may be a member that was lost, with all it holds.
  if (superblock->membership < known.membership && !was_taken_out) return false;
  const Result<bool> is_hollow = holds_no_object(storage, candidate.directory.get());
  return is_hollow.is_ok() && *is_hollow;
}

// Of a directory that is not empty: whose it is, or what it holds.
Status refuse_content(Storage& storage, const NewDirectory& candidate, const Uuid& array_id) {
  const Result<std::vector<std::byte>> bytes = read_superblock_file(storage, candidate.directory.get());
  const Result<Superblock> superblock =
      bytes.is_ok() ? decode_superblock(*bytes, false) : Result<Superblock>(bytes.status());
  if (superblock.is_ok() && superblock->array_id == array_id)
    return refuse(StatusCode::kExists, candidate.path,
                  fmt::format("it is or was {} of this array, and holds content: give an empty directory",
                              describe_member(superblock->member_index)));
  if (superblock.is_ok())
    return refuse(StatusCode::kExists, candidate.path,
                  fmt::format("it is {} of another array, {}{}{}: give an empty directory; when that array is not "
                              "needed any more, empty this one first",
                              describe_member(superblock->member_index), to_string(superblock->array_id),
                              superblock->label.empty() ? "" : " ", superblock->label));
  const std::string& entry = candidate.findings.first_entry;
  return refuse(StatusCode::kExists, candidate.path,
                fmt::format("it is not empty{}; give an empty directory",
                            entry.empty() ? "" : fmt::format(" (it holds '{}')", entry)));
}

Status forget_superblock(Storage& storage, Handle directory) {
  const Status removed = storage.unlink(directory, kSuperblockName);
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  return storage.fsync(directory);
}

}  // namespace

// Nothing is changed, but for directories that an earlier attempt has left.
Status Array::find_new_members(Growth& growth, std::optional<MemberIndex> replaced) {
  Storage& storage = environment_.storage();
  // Those that there are, to be told apart from new ones.
  std::vector<NewDirectory> all;
  for (const ArrayDirectory& directory : directories_) {
    NewDirectory& there = all.emplace_back();
    there.path = directory.path;
    const Result<Handle> again = storage.reopen(directory.directory, O_RDONLY | O_DIRECTORY);
    if (!again.is_ok())
      return again.status().with_context(
          fmt::format("{} fails; look at its drive (dmesg), and replace it or take it out first", directory.path));
    const Handle opened = *again;
    there.directory = ScopedHandle(storage, opened);
    FPFS_ASSIGN_OR_RETURN(there.identity, identity_of(storage, opened));
    there.ancestors = ancestors_of(storage, directory.path, there.identity);
  }
  const size_t there = all.size();
  for (NewDirectory& candidate : growth.candidates) {
    FPFS_RETURN_IF_ERROR(find_new_directory(storage, candidate));
    all.push_back(std::move(candidate));
  }
  for (size_t i = there; i < all.size(); ++i)
    for (size_t member = 0; member < there; ++member)
      if (all[i].identity == all[member].identity && all[i].name.empty())
        return refuse(StatusCode::kInvalidArgument, all[i].path,
                      replaced ? fmt::format("it is a directory of this array already, also after a replacement that "
                                             "was cancelled: fpfs member remove with {} alone moves what is there to "
                                             "the others",
                                             members_[*replaced].path)
                               : std::string("it is a directory of this array already (fpfs member list)"));
  FPFS_RETURN_IF_ERROR(check_distinct(all));
  for (size_t i = 0; i < growth.candidates.size(); ++i) growth.candidates[i] = std::move(all[there + i]);
  for (NewDirectory& candidate : growth.candidates) {
    if (candidate.directory.is_open() && is_left_of_growth(storage, candidate, directories_))
      FPFS_RETURN_IF_ERROR(forget_superblock(storage, candidate.directory.get()).with_context(candidate.path));
    const Status content = check_content(storage, candidate, false);
    if (content.code() == StatusCode::kExists)  // which a format can be forced to take
      return refuse_content(storage, candidate, id());
    FPFS_RETURN_IF_ERROR(content);
  }
  return Status::ok();
}

// Afterwards they are whole, and members of an array that knows nothing of them.
Status Array::prepare_new_members(Growth& growth, std::optional<MemberIndex> replaced) {
  Storage& storage = environment_.storage();
  for (NewDirectory& candidate : growth.candidates) FPFS_RETURN_IF_ERROR(make_and_lock(storage, candidate, false));
  for (const NewDirectory& candidate : growth.candidates)
    FPFS_RETURN_IF_ERROR(lay_out(storage, candidate).with_context(candidate.path));

  std::vector<Superblock> superblocks = superblocks_by_index();
  std::vector<MemberIndex> order = superblocks.front().stripe_order;
  if (order.empty() && replaced)
    for (const MemberIndex member : members()) order.push_back(member);
  const bool has_order = !order.empty();
  for (const NewDirectory& candidate : growth.candidates) {
    Superblock superblock = superblocks.front();
    superblock.member_index = candidate.member_index;
    const uint64_t first = environment_.random_u64();
    superblock.member_id = make_uuid(first, environment_.random_u64());
    superblocks.push_back(superblock);
    if (replaced)
      *std::find(order.begin(), order.end(), *std::exchange(replaced, std::nullopt)) = candidate.member_index;
    else if (has_order)
      order.push_back(candidate.member_index);
  }
  for (Superblock& superblock : superblocks) {
    superblock.member_count = static_cast<uint16_t>(member_count() + growth.candidates.size());
    superblock.stripe_order = order;
  }
  change_members(superblocks);
  for (const Superblock& superblock : superblocks) FPFS_RETURN_IF_ERROR(validate_superblock(superblock));
  growth.superblocks = superblocks;

  const MountRecord& current = directories_.front().record;
  for (const NewDirectory& candidate : growth.candidates) {
    ArrayDirectory directory;
    directory.path = candidate.path;
    directory.superblock = superblock_of(candidate.member_index, superblocks);
    directory.directory = candidate.directory.get();
    directory.lock = candidate.lock.get();
    directory.record = current;
    directory.record.member_id = directory.superblock.member_id;
    FPFS_RETURN_IF_ERROR(write_mount_record(storage, directory));
    FPFS_RETURN_IF_ERROR(
        write_superblock_copies(storage, directory.directory, superblocks).with_context(directory.path));
    growth.directories.push_back(std::move(directory));
  }
  growth.superblocks_written = true;
  for (const ArrayDirectory& directory : growth.directories) {
    FPFS_RETURN_IF_ERROR(
        write_superblock(storage, directory.directory, directory.superblock).with_context(directory.path));
    FPFS_RETURN_IF_ERROR(storage.check_running(directory.lock).with_context(directory.path));
  }
  return Status::ok();
}

// What is kept of them behind the count of the members, where nobody looks yet.
Status Array::open_new_members(Growth& growth, const std::function<Status(MemberIndex)>& prepare) {
  Storage& storage = environment_.storage();
  FPFS_RETURN_IF_ERROR(
      environment_.allow_handles(handles_needed(options_, uint64_t{member_count()} + growth.candidates.size())));
  for (NewDirectory& candidate : growth.candidates) {
    const MemberIndex index = candidate.member_index;
    Member member;
    member.path = candidate.path;
    member.id = superblock_of(index, growth.superblocks).member_id;
    const Result<bool> direct = has_direct_io(storage, candidate.directory.get(), kSuperblockName);
    if (!direct.is_ok()) return direct.status().with_context(candidate.path);
    member.direct = *direct;
    if (!member.direct && !options_.buffered_members)
      return refuse(StatusCode::kUnsupported, candidate.path, kNeedsDirectIo);
    storage.assign_domain(candidate.directory.get(), domain_of(index));
    FPFS_ASSIGN_OR_RETURN(const Handle objects,
                          storage.open_at(candidate.directory.get(), kObjectsName, O_RDONLY | O_DIRECTORY));
    member.objects = own(ScopedHandle(storage, objects));
    FPFS_ASSIGN_OR_RETURN(member.device, storage.filesystem_of(member.objects));
    member.directory = candidate.directory.get();
    member.lock = candidate.lock.get();
    member.present = true;
    members_[index] = member;
    kept_[index] = std::make_unique<Kept>(options_.handles_kept);
    FPFS_RETURN_IF_ERROR(prepare(index).with_context(candidate.path));
  }
  return Status::ok();
}

// Best effort: what is left can be added again all the same.
void Array::undo(const Growth& growth) {
  for (const ArrayDirectory& directory : growth.directories)
    if (growth.superblocks_written) (void)forget_superblock(environment_.storage(), directory.directory);
  for (const NewDirectory& candidate : growth.candidates) members_[candidate.member_index] = Member();
  owned_.erase(owned_.begin() + static_cast<std::ptrdiff_t>(growth.owned_before), owned_.end());
}

Array::Changed Array::add_members(const std::vector<std::string>& paths,
                                  const std::function<Status(MemberIndex)>& prepare,
                                  std::optional<MemberIndex> replaced) {
  const MutexLock lock(changes_mutex_);
  const uint16_t before = member_count();
  if (Status begun = begin_changes_locked(); !begun.is_ok()) return {begun};
  if (replaced)
    if (Status allowed = may_leave(*replaced, true); !allowed.is_ok()) return {allowed};
  if (before + paths.size() > kMemberCountMax)
    return {
        Status::error(StatusCode::kInvalidArgument,
                      fmt::format("an array has at most {} members, those that were removed included; this one has {}",
                                  kMemberCountMax, before))};
  if (before + paths.size() > capacity_)
    return {Status::error(StatusCode::kBusy,
                          fmt::format("{} can be added while the array is mounted; mount it again for more",
                                      format_count(static_cast<uint64_t>(capacity_ - before), "more member")))};
  Growth growth;
  growth.owned_before = owned_.size();
  for (const std::string& path : paths) {
    NewDirectory& candidate = growth.candidates.emplace_back();
    candidate.path = path;
    candidate.member_index = MemberIndex(static_cast<uint16_t>(before + growth.candidates.size() - 1));
  }
  Status status = find_new_members(growth, replaced);
  if (status.is_ok()) status = prepare_new_members(growth, replaced);
  if (status.is_ok()) status = open_new_members(growth, prepare);
  if (!status.is_ok()) {
    undo(growth);
    return {status};
  }

  const Changed changed = commit_members(growth.superblocks);
  if (!changed.status.is_ok()) return changed;
  for (NewDirectory& candidate : growth.candidates) {
    own(std::move(candidate.directory));
    locks_.push_back(std::move(candidate.lock));
  }
  directories_.insert(directories_.end(), growth.directories.begin(), growth.directories.end());
  member_count_.store(static_cast<uint16_t>(before + paths.size()), std::memory_order_release);
  set_membership(growth.superblocks.front());
  bring_up_superblocks();
  return changed;
}

}  // namespace fpfs
