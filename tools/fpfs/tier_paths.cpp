#include "tools/fpfs/tier_paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
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
// What was read is on its way to the drives for a moment.
constexpr std::chrono::milliseconds kLookInterval{100};
constexpr unsigned kLooks = 100;

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

// From the drives' side: pages that the kernel has say nothing about where the content is.
Status fetch(const std::string& path, const std::atomic<bool>& interrupt) {
  for (unsigned look = 0; look < kLooks; ++look) {
    if (look % 10 == 0) FPFS_RETURN_IF_ERROR(read_all(path, interrupt));
    FPFS_ASSIGN_OR_RETURN(const bool away, is_away(path));
    if (!away) return Status::ok();
    if (interrupt.load()) return Status::error(StatusCode::kCancelled, "interrupted");
    std::this_thread::sleep_for(kLookInterval);
  }
  return Status::error(StatusCode::kBusy, path +
                                              ": it was fetched and does not stay on the drives: they are full, or it "
                                              "is being written");
}

}  // namespace

Status pin_path(const std::string& path, bool pinned) {
  FPFS_RETURN_IF_ERROR(mount_root_of(path).status());
  return for_each(path, [pinned](const std::string& at, bool) {
    const int result =
        pinned ? ::lsetxattr(at.c_str(), kPinAttribute, "yes", 3, 0) : ::lremovexattr(at.c_str(), kPinAttribute);
    if (result == 0 || (!pinned && errno == ENODATA) || errno == ENOENT) return Status::ok();
    return explain_mount_error(errno, at);
  });
}

Result<FetchedPaths> fetch_path(const std::string& path) {
  FPFS_RETURN_IF_ERROR(mount_root_of(path).status());
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
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status first;
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < std::min<size_t>(kReaders, files.size()); ++i)
    readers.emplace_back([&] {
      for (size_t at = next++; at < files.size(); at = next++) {
        const Status status = fetch(files[at], interrupt);
        const std::lock_guard lock(mutex);
        if (first.is_ok()) first = status;
        if (status.code() == StatusCode::kCancelled) return;
      }
    });
  for (std::thread& reader : readers) reader.join();
  if (!first.is_ok()) return first;
  return fetched;
}

}  // namespace fpfs::tools
