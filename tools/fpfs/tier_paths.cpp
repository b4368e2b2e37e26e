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
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "tools/common/interrupt.h"
#include "tools/fpfs/mounted.h"

namespace fpfs::tools {

namespace {

constexpr const char* kPinAttribute = "user.fastpersistfs.pin";
constexpr const char* kCodecAttribute = "user.fastpersistfs.codec";
constexpr unsigned kReaders = 8;
constexpr size_t kReadBytes = 1024 * 1024;
// Content is committed as soon as all of it has come, or 200 ms after some of it came. Each look is later than the one
// before, up to the second interval.
constexpr std::chrono::milliseconds kFirstLook{5}, kLookInterval{100};
constexpr unsigned kLooksUntilReadAgain = 15;
constexpr unsigned kLooks = 105;
// Of each reader: the daemon keeps such files open until they are committed.
constexpr size_t kUnseen = 32;

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
    const Status visited = visit(entry->path(), fs::is_regular_file(type));
    if (first.is_ok()) first = visited;
  }
  return error && first.is_ok() ? explain_mount_error(error.value(), path) : first;
}

Result<bool> is_away(const std::string& path) {
  std::array<char, 128> value{};
  const ssize_t length = ::lgetxattr(path.c_str(), kCodecAttribute, value.data(), value.size());
  if (length < 0 && errno == ENOENT) return false;
  if (length < 0) return explain_mount_error(errno, path);
  return std::string_view(value.data(), static_cast<size_t>(length)).find("away") != std::string_view::npos;
}

Status read_all(const std::string& path, const std::atomic<bool>& interrupt) {
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor file, open_path(path));
  const auto memory = std::make_unique<char[]>(kReadBytes);
  for (;;) {
    if (interrupt.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    const ssize_t length = ::read(file.number(), memory.get(), kReadBytes);
    if (length < 0) return explain_mount_error(errno, path);
    if (length == 0) break;
  }
  static_cast<void>(::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED));
  return Status::ok();
}

// Reads files one after the other, several at a time. Each is looked at a moment later: what was read is on its way to
// the drives until then, and the next ones are read meanwhile.
class Fetch {
 public:
  Fetch(const std::vector<std::string>& files, const std::atomic<bool>& interrupt)
      : files_(files), interrupt_(interrupt) {}

  // The first failure, behind all that went well.
  Status run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Unseen {
    const std::string* path;
    Clock::duration interval = kFirstLook;
    unsigned looks = 0;
  };
  using Queue = std::multimap<Clock::time_point, Unseen>;  // by when they are looked at

  void fetch_some();
  Status read_next(Queue& unseen, bool& any_left);
  Status look_at_oldest(Queue& unseen);

  const std::vector<std::string>& files_;
  const std::atomic<bool>& interrupt_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  Status first_;
};

Status Fetch::run() {
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < std::min<size_t>(kReaders, files_.size()); ++i)
    readers.emplace_back([this] { fetch_some(); });
  for (std::thread& reader : readers) reader.join();
  return first_;
}

void Fetch::fetch_some() {
  Queue unseen;
  for (bool any_left = true; any_left || !unseen.empty();) {
    const bool must_look = !any_left || unseen.size() == kUnseen;
    const bool looks = must_look || (!unseen.empty() && unseen.begin()->first <= Clock::now());
    const Status status = looks ? look_at_oldest(unseen) : read_next(unseen, any_left);
    if (status.is_ok()) continue;
    const std::lock_guard lock(mutex_);
    if (first_.is_ok()) first_ = status;
    if (status.code() == StatusCode::kCancelled) return;
  }
}

Status Fetch::read_next(Queue& unseen, bool& any_left) {
  const size_t at = next_++;
  any_left = at < files_.size();
  if (!any_left) return Status::ok();
  FPFS_RETURN_IF_ERROR(read_all(files_[at], interrupt_));
  unseen.emplace(Clock::now() + kFirstLook, Unseen{&files_[at]});
  return Status::ok();
}

// From the drives' side: pages that the kernel has say nothing about where the content is.
Status Fetch::look_at_oldest(Queue& unseen) {
  auto [look_at, file] = *unseen.begin();
  std::this_thread::sleep_until(look_at);
  unseen.erase(unseen.begin());
  FPFS_ASSIGN_OR_RETURN(const bool away, is_away(*file.path));
  if (!away) return Status::ok();
  if (interrupt_.load()) return Status::error(StatusCode::kCancelled, "interrupted");
  if (++file.looks == kLooks)
    return Status::error(StatusCode::kBusy, *file.path +
                                                ": it was fetched and does not stay on the drives: they are full, or "
                                                "it is being written");
  if (file.looks % kLooksUntilReadAgain == 0) FPFS_RETURN_IF_ERROR(read_all(*file.path, interrupt_));
  file.interval = std::min<Clock::duration>(2 * file.interval, kLookInterval);
  unseen.emplace(Clock::now() + file.interval, file);
  return Status::ok();
}

}  // namespace

Status pin_path(const std::string& path, bool pinned) {
  FPFS_RETURN_IF_ERROR(check_mounted(path));
  return for_each(path, [pinned](const std::string& at, bool) {
    const int result =
        pinned ? ::lsetxattr(at.c_str(), kPinAttribute, "yes", 3, 0) : ::lremovexattr(at.c_str(), kPinAttribute);
    if (result == 0 || (!pinned && errno == ENODATA) || errno == ENOENT) return Status::ok();
    return explain_mount_error(errno, at);
  });
}

Result<FetchedPaths> fetch_path(const std::string& path) {
  FPFS_RETURN_IF_ERROR(check_mounted(path));
  const std::atomic<bool>& interrupt = catch_interrupts();
  std::vector<std::string> files;
  FetchedPaths fetched;
  FPFS_RETURN_IF_ERROR(for_each(path, [&](const std::string& at, bool is_file) -> Status {
    if (interrupt.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    if (!is_file) return Status::ok();
    FPFS_ASSIGN_OR_RETURN(const bool away, is_away(at));
    struct stat attributes {};
    if (!away || ::lstat(at.c_str(), &attributes) != 0) return Status::ok();
    ++fetched.files;
    fetched.bytes += static_cast<uint64_t>(attributes.st_size);
    files.push_back(at);
    return Status::ok();
  }));
  FPFS_RETURN_IF_ERROR(Fetch(files, interrupt).run());
  return fetched;
}

}  // namespace fpfs::tools
