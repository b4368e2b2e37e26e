#include "tools/fpfs/tier_paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/units.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/tier_call.h"

namespace fpfs::tools {

namespace {

constexpr const char* kPinAttribute = "user.fastpersistfs.pin";
constexpr const char* kCodecAttribute = "user.fastpersistfs.codec";
constexpr uint64_t kStatBlock = 512;  // unit of stx_blocks
// The daemon fetches so many files at a time, and one more while they have fewer bytes together than that.
constexpr size_t kFilesAtOnce = 64;
constexpr uint64_t kBytesAtOnce = 512 * kMiB;
// Shows in the progress before it is there as a whole.
constexpr uint64_t kLargeFile = 16 * kMiB;
// Each look is later than the one before, up to the second interval.
constexpr std::chrono::milliseconds kFirstLook{2}, kLookInterval{20};

struct AwayFile {
  std::string path;
  uint64_t bytes = 0;
};

// Calls visit(path) for what is at the path, and everything below it in this mount.
Status for_each(const std::string& path, const std::function<Status(const std::string& path, bool is_file)>& visit) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (error) return explain_mount_error(error.value(), path);
  if (fs::is_regular_file(status)) return visit(path, true);
  if (!fs::is_directory(status))
    return Status::error(StatusCode::kInvalidArgument, path + " is no regular file and no directory");
  Status first = visit(path, false);
  for (auto entry = fs::recursive_directory_iterator(path, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    const fs::file_status type = entry->symlink_status(error);
    if (error || !(fs::is_regular_file(type) || fs::is_directory(type))) continue;
    Status visited = visit(entry->path(), fs::is_regular_file(type));
    if (fs::is_directory(type)) {
      // The iterator would end there, and not say where.
      const Status listable = check_listable(entry->path());
      if (!listable.is_ok()) entry.disable_recursion_pending();
      if (visited.is_ok()) visited = listable;
    }
    if (first.is_ok()) first = visited;
  }
  return error && first.is_ok() ? explain_mount_error(error.value(), path) : first;
}

// Of a file that has as much on the members as it is long, no chunk is away: only the last one is rounded up. That is
// known without its index.
Result<bool> is_away(const std::string& path, uint64_t* bytes) {
  struct statx attributes {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_SIZE | STATX_BLOCKS, &attributes) != 0)
    return errno == ENOENT ? Result<bool>(false) : explain_mount_error(errno, path);
  *bytes = attributes.stx_size;
  if (attributes.stx_blocks * kStatBlock >= attributes.stx_size) return false;
  std::array<char, 128> value{};
  const ssize_t length = ::lgetxattr(path.c_str(), kCodecAttribute, value.data(), value.size());
  if (length < 0 && errno == ENOENT) return false;
  if (length < 0) return explain_mount_error(errno, path);
  return std::string_view(value.data(), static_cast<size_t>(length)).find("away") != std::string_view::npos;
}

// Has the daemon fetch files, in their order.
class Fetch {
 public:
  Fetch(const std::vector<AwayFile>& files, const std::atomic<bool>& interrupt) : files_(files), interrupt_(interrupt) {
    for (const AwayFile& file : files) work_.bytes_total += file.bytes;
    work_.files_total = files.size();
  }

  // A failure of one does not end it; kCancelled does.
  Result<FetchedPaths> run();

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    const AwayFile* of = nullptr;
    FileDescriptor file;
    std::unique_ptr<IoctlTier> question;
    Clock::duration interval = kFirstLook;
  };

  bool has_room() const { return under_way_.size() < kFilesAtOnce && (under_way_.empty() || bytes_ < kBytesAtOnce); }
  Status begin(const AwayFile& file);
  void ask_next();
  void note(const AwayFile& file, const Status& outcome);
  void show_progress();

  const std::vector<AwayFile>& files_;
  const std::atomic<bool>& interrupt_;
  std::multimap<Clock::time_point, UnderWay> under_way_;  // by when they are asked about
  uint64_t bytes_ = 0;                                    // of these
  FetchedPaths fetched_;
  WorkDone work_;
  ProgressLine progress_;
};

Result<FetchedPaths> Fetch::run() {
  for (size_t next = 0; next < files_.size() || !under_way_.empty();) {
    if (interrupt_.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    if (next < files_.size() && has_room()) {
      const AwayFile& file = files_[next++];
      if (const Status begun = begin(file); !begun.is_ok()) note(file, begun);
    } else {
      ask_next();
    }
    show_progress();
  }
  return std::move(fetched_);
}

void Fetch::note(const AwayFile& file, const Status& outcome) {
  work_.bytes += file.bytes;
  ++work_.files;
  if (!outcome.is_ok()) {
    fetched_.failures.push_back({file.path, outcome.message(), outcome.code() == StatusCode::kBusy});
    return;
  }
  fetched_.bytes += file.bytes;
  ++fetched_.files;
}

// With what has come of large files, which the daemon says of each.
void Fetch::show_progress() {
  if (!progress_.is_due()) return;
  WorkDone work = work_;
  for (const auto& [when, fetched] : under_way_) {
    if (fetched.of->bytes < kLargeFile) continue;
    const Result<Json> stat = read_file_stat(fetched.of->path);
    if (!stat.is_ok()) continue;
    const uint64_t chunks = number_at(*stat, "chunks"), away = number_at(object_at(*stat, "codecs"), "away");
    if (chunks >= away && chunks > 0) work.bytes += fetched.of->bytes / chunks * (chunks - away);
  }
  progress_.update(work);
}

Status Fetch::begin(const AwayFile& file) {
  UnderWay begun{&file, {}, std::make_unique<IoctlTier>()};
  FPFS_ASSIGN_OR_RETURN(begun.file, open_path(file.path));
  begun.question->command = IoctlTier::kFetch;
  FPFS_RETURN_IF_ERROR(begin_tier(begun.file, *begun.question, file.path));
  bytes_ += file.bytes;
  under_way_.emplace(Clock::now() + begun.interval, std::move(begun));
  return Status::ok();
}

void Fetch::ask_next() {
  std::this_thread::sleep_until(under_way_.begin()->first);
  UnderWay asked = std::move(under_way_.extract(under_way_.begin()).mapped());
  if (std::optional<Status> outcome = ask_tier(asked.file, *asked.question, asked.of->path)) {
    bytes_ -= asked.of->bytes;
    return note(*asked.of, *outcome);
  }
  asked.interval = std::min<Clock::duration>(2 * asked.interval, kLookInterval);
  under_way_.emplace(Clock::now() + asked.interval, std::move(asked));
}

}  // namespace

Status pin_path(const std::string& path, bool pinned) {
  FPFS_RETURN_IF_ERROR(check_mounted(path));
  return for_each(path, [pinned](const std::string& at, bool) {
    const int result =
        pinned ? ::lsetxattr(at.c_str(), kPinAttribute, "yes", 3, 0) : ::lremovexattr(at.c_str(), kPinAttribute);
    if (result == 0 || (!pinned && errno == ENODATA) || errno == ENOENT) return Status::ok();
    return errno == EACCES || errno == EPERM ? refuse_tier(at) : explain_mount_error(errno, at);
  });
}

Status find_pinned(const std::string& path, std::vector<PinnedPath>& pinned) {
  FPFS_RETURN_IF_ERROR(check_mounted(path));
  const std::atomic<bool>& interrupt = catch_interrupts();
  return for_each(path, [&](const std::string& at, bool is_file) {
    if (interrupt.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    std::array<char, 8> value{};
    const ssize_t length = ::lgetxattr(at.c_str(), kPinAttribute, value.data(), value.size());
    if (length < 0 && (errno == ENODATA || errno == ENOENT || errno == ERANGE)) return Status::ok();
    if (length < 0) return explain_mount_error(errno, at);
    if (std::string_view(value.data(), static_cast<size_t>(length)) != "yes") return Status::ok();
    struct stat attributes {};
    if (::lstat(at.c_str(), &attributes) != 0) return Status::ok();
    pinned.push_back({at, is_file ? static_cast<uint64_t>(attributes.st_size) : 0, !is_file});
    return Status::ok();
  });
}

Result<FetchedPaths> fetch_path(const std::string& path) {
  FPFS_RETURN_IF_ERROR(check_mounted(path));
  const std::atomic<bool>& interrupt = catch_interrupts();
  std::vector<AwayFile> files;
  const Status walked = for_each(path, [&](const std::string& at, bool is_file) -> Status {
    if (interrupt.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    if (!is_file) return Status::ok();
    uint64_t bytes = 0;
    FPFS_ASSIGN_OR_RETURN(const bool away, is_away(at, &bytes));
    if (!away) return Status::ok();
    files.push_back({at, bytes});
    return Status::ok();
  });
  if (walked.code() == StatusCode::kCancelled) return walked;
  FPFS_ASSIGN_OR_RETURN(FetchedPaths fetched, Fetch(files, interrupt).run());
  if (!walked.is_ok()) fetched.failures.push_back({path, walked.message()});  // the first of what cannot be looked at
  return fetched;
}

}  // namespace fpfs::tools
