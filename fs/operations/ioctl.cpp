// The ioctls of fs/interface/ioctl.h.
#include "fs/interface/ioctl.h"
#include "engine/base/log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "fs/operations/members.h"
#include "fs/operations/operations.h"
#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"
#include "fs/operations/tier.h"

namespace fpfs::operations {
namespace {

// Chunks of one FPFS_IOC_VERIFY that are read at a time: enough to keep several drives busy, few pool buffers.
constexpr unsigned kVerifyAtOnce = 8;

void map_extents(fuse_req_t request, const std::shared_ptr<File>& file, IoctlExtents& answer) {
  FileSystem& file_system = file_system_of(request);
  const uint32_t chunk_size = file_system.store().array().superblock().chunk_size;
  // One more than fits tells whether there is a next page.
  const std::vector<File::MappedExtent> extents =
      file->map(ChunkIndex(answer.first_chunk), IoctlExtents::kCountMax + 1, File::Mapped::kEverywhere);
  const File::Info info = file->info();
  answer.count = static_cast<uint32_t>(std::min<size_t>(extents.size(), IoctlExtents::kCountMax));
  answer.next_chunk = extents.size() > answer.count ? extents[answer.count].chunk.value() : IoctlExtents::kEnd;
  answer.size = info.size;
  answer.file_id = info.file_id.value();
  answer.generation = info.generation.value();
  answer.chunk_size = chunk_size;
  answer.is_inline = info.is_inline ? 1 : 0;
  answer.is_dirty = file->is_dirty() ? 1 : 0;
  const Uuid& array_id = file_system.store().array().id();
  static_assert(sizeof answer.array_id == sizeof array_id);
  std::memcpy(answer.array_id, array_id.data(), sizeof answer.array_id);
  for (uint32_t i = 0; i < answer.count; ++i) {
    const Extent& extent = extents[i].extent;
    IoctlExtent& out = answer.extents[i];
    out.chunk = extents[i].chunk.value();
    out.visible_length = extent.visible_length;
    out.codec = static_cast<uint8_t>(extent.codec);
    if (!extent.is_here()) continue;
    out.object_offset = offset_of(extent.slot, chunk_size).value();
    out.checksum = extent.checksum;
    out.stored_length = extent.stored_length;
    out.raw_length = extent.raw_length;
    out.member = extent.member.value();
  }
  fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

void object_path(fuse_req_t request, const std::shared_ptr<File>& file, IoctlObjectPath& answer) {
  const Array& array = file_system_of(request).store().array();
  const File::Info info = file->info();
  if (answer.member >= array.member_count()) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  if (info.file_id == FileId() || info.is_inline) {
    fuse_reply_err(request, ENODATA);
    return;
  }
  const std::string path = fmt::format("{}/objects/{}", array.member(MemberIndex(answer.member)).path,
                                       Array::object_path(info.file_id, info.generation));
  if (path.size() >= sizeof answer.path) {
    fuse_reply_err(request, ENAMETOOLONG);
    return;
  }
  std::memcpy(answer.path, path.c_str(), path.size() + 1);
  fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

// One FPFS_IOC_VERIFY under way: up to kVerifyAtOnce chunks are being read; the first failure (by chunk number) stops
// new ones. Owns itself until the last chunk's completion has answered.
class VerifyCall : public std::enable_shared_from_this<VerifyCall> {
 public:
  VerifyCall(fuse_req_t request, OpenFile& open, const IoctlVerify& question, const StripeMap& stripes)
      : request_(request), file_(open.file), faults_(open.verify_faults), answer_(question) {
    answer_.chunks_in_file = stripes.chunks_end(FileOffset(file_->size())).value();
    next_ = question.first_chunk;
    end_ = std::min(answer_.chunks_in_file,
                    next_ + std::min(question.chunk_count, std::min(IoctlVerify::kChunksMax, UINT64_MAX - next_)));
    // Not in between: it takes a look at every extent.
    if (next_ == 0 || end_ == answer_.chunks_in_file)
      answer_.chunks_away = file_->info().codec_chunks[static_cast<size_t>(Codec::kAway)];
  }

  void start() {
    file_system_of(request_).others_under_way().begin();
    // Holds a place, so that chunks that finish at once cannot end the whole before all of the first were started.
    {
      MutexLock lock(mutex_);
      under_way_ = 1;
    }
    for (unsigned i = 0; i < kVerifyAtOnce && start_next(); ++i) {
    }
    finish_one();
  }

 private:
  bool start_next() {
    uint64_t chunk = 0;
    {
      MutexLock lock(mutex_);
      if (next_ >= end_ || failed_) return false;
      // Over holes at once: they may be most of a file of any size.
      chunk = file_->next_stored(ChunkIndex(next_)).value_or(ChunkIndex(answer_.chunks_in_file)).value();
      next_ = chunk + 1;
      if (chunk >= end_) {
        end_ = std::min(chunk, answer_.chunks_in_file);
        return false;
      }
      ++under_way_;
    }
    file_->verify_chunk(ChunkIndex(chunk),
                        [self = shared_from_this(), chunk](const Status& status, ChunkVerifier::Remedy remedy) {
                          self->checked(chunk, status, remedy);
                        });
    return true;
  }

  // What was healed is as it was written again.
  void checked(uint64_t chunk, const Status& status, ChunkVerifier::Remedy remedy) {
    if (!status.is_ok() && remedy != ChunkVerifier::Remedy::kHealed) {
      note_fault(chunk, status, remedy);
      MutexLock lock(mutex_);
      if (!failed_ || chunk < answer_.failed_chunk) {
        failed_ = true;
        answer_.failed_chunk = chunk;
        answer_.error = status.errno_value();
        answer_.is_unreadable = status.code() == StatusCode::kCorruption ? 0 : 1;
        answer_.member_and_1 = status.member() == Status::kNoMember ? 0 : static_cast<uint32_t>(status.member()) + 1;
        std::string message = status.message();
        if (remedy == ChunkVerifier::Remedy::kLost)
          message += "; no copy has it: remove the file, and restore it from a backup";
        else if (remedy != ChunkVerifier::Remedy::kUnknown)
          message += fmt::format("; {}", ChunkVerifier::name_of(remedy));
        message = message.substr(0, sizeof answer_.message - 1);
        std::memcpy(answer_.message, message.c_str(), message.size() + 1);
      }
    } else {
      (void)start_next();
    }
    finish_one();
  }

  // Before the answer, and so before the description goes.
  void note_fault(uint64_t chunk, const Status& status, ChunkVerifier::Remedy remedy) {
    CheckError error;
    error.path = file_->path();
    error.chunk = static_cast<int64_t>(chunk);
    if (status.member() != Status::kNoMember) error.member = status.member();
    error.kind = status.code() == StatusCode::kCorruption ? "damaged" : "unreadable";
    error.detail = status.at(Status::kNoMember, 0, 0).message();  // it is said beside it
    error.healing = ChunkVerifier::name_of(remedy);
    faults_.add(std::move(error));
  }

  void finish_one() {
    IoctlVerify answer;
    {
      MutexLock lock(mutex_);
      if (--under_way_ > 0) return;
      answer_.next_chunk = failed_ ? answer_.failed_chunk + 1 : std::max(end_, answer_.first_chunk);
      answer = answer_;
    }
    FileSystem& file_system = file_system_of(request_);
    fuse_reply_ioctl(request_, 0, &answer, sizeof answer);
    file_system.others_under_way().end();
  }

  fuse_req_t request_;
  const std::shared_ptr<File> file_;
  VerifyFaults& faults_;  // of the description that it came through
  Mutex mutex_;
  IoctlVerify answer_ FPFS_GUARDED_BY(mutex_);
  uint64_t next_ FPFS_GUARDED_BY(mutex_) = 0;
  uint64_t end_ FPFS_GUARDED_BY(mutex_) = 0;
  unsigned under_way_ FPFS_GUARDED_BY(mutex_) = 0;
  bool failed_ FPFS_GUARDED_BY(mutex_) = false;
};

// EIO: a save of the file has failed. What it has until all have closed it is not what was committed, and is no business
// of who asks whether that is whole.
void verify(fuse_req_t request, OpenFile& open, const IoctlVerify& question) {
  if (!open.file->error().is_ok()) {
    fuse_reply_err(request, EIO);
    return;
  }
  const StripeMap stripes = file_system_of(request).store().array().stripes();
  std::make_shared<VerifyCall>(request, open, question, stripes)->start();
}

// Unpacks the argument, checks its version and calls `run` with it.
template <typename Argument, typename Run>
void with_argument(fuse_req_t request, const void* in, size_t in_size, Run run) {
  auto argument = std::make_unique<Argument>();
  if (in_size != sizeof(Argument)) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  std::memcpy(argument.get(), in, sizeof(Argument));
  if (argument->version != Argument::kVersion) {
    fuse_reply_err(request, EPROTO);
    return;
  }
  run(*argument);
}

void reply_synced(fuse_req_t request, const Status& status, const std::vector<std::string>& left_alone) {
  if (!status.is_ok()) return reply_status(request, status);
  IoctlSync answer;
  answer.left_alone = static_cast<uint32_t>(left_alone.size());
  size_t used = 0;
  for (const std::string& path : left_alone) {
    if (sizeof answer.paths - used <= path.size()) break;
    std::memcpy(answer.paths + used, path.c_str(), path.size() + 1);
    used += path.size() + 1;
  }
  fuse_reply_ioctl(request, 0, &answer, sizeof answer);
}

void sync_all(fuse_req_t request, fuse_ino_t node) {
  if (node != InodeTable::kRootNode || !owns_mount(request)) {
    fuse_reply_err(request, node != InodeTable::kRootNode ? ENOTTY : EPERM);
    return;
  }
  FileSystem& file_system = file_system_of(request);
  file_system.others_under_way().begin();
  constexpr auto kUnfinished = ControlRequest::Unfinished::kTricklesCommitted;
  file_system.store().commit_all(ControlRequest::Kind::kCommit, kUnfinished,
                                 [request, &file_system](const Store::CommitOutcome& outcome) {
                                   reply_synced(request, outcome.status, outcome.unfinished);
                                   file_system.others_under_way().end();
                                 });
}

void sync_file(fuse_req_t request, const OpenFile& open) {
  if (!open.may_write() && !owns_mount(request)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  ControlRequest commit;
  commit.kind = ControlRequest::Kind::kCommit;
  commit.unfinished = ControlRequest::Unfinished::kTricklesCommitted;
  file_system_of(request).control(open.file, commit,
                                  [request, file = open.file](const ControlRequest& done, const Status& status) {
                                    std::vector<std::string> left_alone;
                                    if (done.was_left_alone) left_alone.push_back(file->path());
                                    reply_synced(request, status, left_alone);
                                  });
}

Status run_scrub_command(Scrub& scrub, const IoctlScrub& question) {
  switch (question.command) {
    case IoctlScrub::kStart:
      return scrub.start(question.limit);
    case IoctlScrub::kPause:
      return scrub.pause();
    case IoctlScrub::kResume:
      return scrub.resume(question.has_limit != 0 ? std::optional(question.limit) : std::nullopt);
    case IoctlScrub::kCancel:
      return scrub.cancel();
    default:
      return Status::error(StatusCode::kInvalidArgument, "unknown scrub command");
  }
}

// Off the workers: pausing waits for the chunks in flight.
void scrub(fuse_req_t request, fuse_ino_t node, const IoctlScrub& question) {
  FileSystem& file_system = file_system_of(request);
  if (node != InodeTable::kRootNode || !owns_mount(request)) {
    fuse_reply_err(request, node != InodeTable::kRootNode ? ENOTTY : EPERM);
    return;
  }
  file_system.run_in_background([request, question] {
    IoctlScrub answer = question;
    const Status status = run_scrub_command(file_system_of(request).scrub(), question);
    answer.error = status.errno_value();
    const std::string message = status.is_ok() ? "" : status.message().substr(0, sizeof answer.message - 1);
    std::memcpy(answer.message, message.c_str(), message.size() + 1);
    fuse_reply_ioctl(request, 0, &answer, sizeof answer);
  });
}

void clear_errors(fuse_req_t request, fuse_ino_t node, const IoctlClear& question) {
  if (node != InodeTable::kRootNode || !owns_mount(request)) {
    fuse_reply_err(request, node != InodeTable::kRootNode ? ENOTTY : EPERM);
    return;
  }
  file_system_of(request).store().clear_errors();
  log(LogLevel::kInfo, "user {} had the error counters cleared (fpfs clear)", fuse_req_ctx(request)->uid);
  fuse_reply_ioctl(request, 0, &question, sizeof question);
}

bool is_about_content(unsigned command) {
  return command == FPFS_IOC_EXTENTS || command == FPFS_IOC_OBJECT_PATH || command == FPFS_IOC_VERIFY;
}

}  // namespace

void ioctl(fuse_req_t request, fuse_ino_t node, unsigned command, void*, fuse_file_info* info, unsigned flags,
           const void* in, size_t in_size, size_t) noexcept {
  if ((flags & FUSE_IOCTL_DIR) != 0) {
    if (command == FPFS_IOC_SYNC)
      return with_argument<IoctlSync>(request, in, in_size, [&](IoctlSync&) { sync_all(request, node); });
    if (command == FPFS_IOC_SCRUB)
      return with_argument<IoctlScrub>(request, in, in_size, [&](IoctlScrub& a) { scrub(request, node, a); });
    if (command == FPFS_IOC_CLEAR)
      return with_argument<IoctlClear>(request, in, in_size, [&](IoctlClear& a) { clear_errors(request, node, a); });
    if (command == FPFS_IOC_MEMBERS)
      return with_argument<IoctlMembers>(request, in, in_size,
                                         [&](IoctlMembers& a) { members_of_mount(request, node, a); });
    if (command == FPFS_IOC_TIER)
      return with_argument<IoctlTier>(request, in, in_size, [&](IoctlTier& a) { tier_of_mount(request, node, a); });
    fuse_reply_err(request, ENOTTY);
    return;
  }
  OpenFile& open = OpenHandles::file(info->fh);
  // They tell about the content: where it is, what its checksums are. As read(2) of a descriptor that is open for
  // writing only.
  if (!open.cache.may_read && is_about_content(command)) {
    fuse_reply_err(request, EBADF);
    return;
  }
  const std::shared_ptr<File> file = open.file;
  switch (command) {
    case FPFS_IOC_EXTENTS:
      return with_argument<IoctlExtents>(request, in, in_size, [&](IoctlExtents& a) { map_extents(request, file, a); });
    case FPFS_IOC_OBJECT_PATH:
      return with_argument<IoctlObjectPath>(request, in, in_size,
                                            [&](IoctlObjectPath& a) { object_path(request, file, a); });
    case FPFS_IOC_SYNC:
      return with_argument<IoctlSync>(request, in, in_size,
                                      [&](IoctlSync&) { sync_file(request, OpenHandles::file(info->fh)); });
    case FPFS_IOC_VERIFY:
      return with_argument<IoctlVerify>(request, in, in_size, [&](IoctlVerify& a) { verify(request, open, a); });
    case FPFS_IOC_TIER:
      return with_argument<IoctlTier>(request, in, in_size,
                                      [&](IoctlTier& a) { tier_of_file(request, OpenHandles::file(info->fh), a); });
    default:
      fuse_reply_err(request, ENOTTY);
  }
}

}  // namespace fpfs::operations
