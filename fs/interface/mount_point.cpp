#include "fs/interface/mount_point.h"

#include <dirent.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "engine/base/file_descriptor.h"
#include "fs/interface/end_report.h"

extern char** environ;

namespace fpfs {
namespace {

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(const std::string& text) {
  auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// 36 35 98:0 /root /mount/point options [optional fields] - type source super-options
bool parse_line(const std::string& line, MountEntry& entry) {
  std::istringstream in(line);
  std::string id, parent, device, root, mount_point, word;
  if (!(in >> id >> parent >> device >> root >> mount_point)) return false;
  if (std::sscanf(device.c_str(), "%u:%u", &entry.device_major, &entry.device_minor) != 2) return false;
  while (in >> word && word != "-") {
  }
  std::string source;
  if (!(in >> entry.type >> source)) return false;
  std::string options;
  in >> options;
  if (const size_t at = options.find("user_id="); at != std::string::npos)
    (void)std::sscanf(options.c_str() + at, "user_id=%u", &entry.owner);
  entry.mount_point = unescape(mount_point);
  entry.source = unescape(source);
  return true;
}

// Whether `path` is the directory `top` or below it, also when its name does not say so (a link, a bind mount).
bool is_inside(const std::string& path, const std::string& top) {
  struct stat wanted {
  }, found{};
  if (::stat(top.c_str(), &wanted) != 0) return false;
  for (std::filesystem::path here = path;; here = here.parent_path()) {
    if (::stat(here.c_str(), &found) == 0 && found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino)
      return true;
    if (here == here.parent_path()) return false;
  }
}

// What is mounted within a member hides what is below: saves that come there would fail.
Status check_nothing_within(const std::vector<std::string>& members) {
  const std::vector<MountEntry> mounts = read_mount_table();
  for (const std::string& member : members) {
    std::error_code error;
    const std::string top = std::filesystem::canonical(member, error).string() + "/";
    if (error) continue;  // which is said when it is opened
    for (const MountEntry& mount : mounts)
      if (mount.mount_point.starts_with(top))
        return Status::error(
            StatusCode::kInvalidArgument,
            member + ": '" + mount.mount_point.substr(top.size()) +
                "' in it is on another filesystem; a member lies on one (unmount what is mounted there)");
  }
  return Status::ok();
}

Status check_empty(const std::string& mount_point) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(mount_point.c_str()), &::closedir);
  if (directory == nullptr) return Status::from_errno(errno, "open mount point " + mount_point);
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..")
      return Status::error(StatusCode::kInvalidArgument,
                           "mount point " + mount_point + " is not empty (it holds '" + name +
                               "'); use an empty directory, or -o nonempty to hide what is there");
  }
  return Status::ok();
}

Status run_fusermount(const std::string& mount_point, bool lazy) {
  std::vector<std::string> words = {"fusermount3", "-u", "-q"};
  if (lazy) words.emplace_back("-z");
  words.insert(words.end(), {"--", mount_point});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, "fusermount3", nullptr, nullptr, arguments.data(), environ);
  if (failure != 0) return Status::from_errno(failure, "run fusermount3 -u " + mount_point);
  int result = 0;
  while (::waitpid(child, &result, 0) < 0)
    if (errno != EINTR) return Status::from_errno(errno, "wait for fusermount3 -u " + mount_point);
  if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return Status::ok();
  return Status::error(StatusCode::kSystem,
                       "fusermount3 -u " + mount_point +
                           " failed: it is in use (fuser -vm says by whom), or another user has mounted it: then only "
                           "that user and root can unmount it");
}

}  // namespace

std::vector<MountEntry> parse_mount_table(const std::string& mountinfo) {
  std::vector<MountEntry> entries;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    MountEntry entry;
    if (parse_line(line, entry)) entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<MountEntry> read_mount_table() {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  return parse_mount_table(text.str());
}

// Nobody listens for the end of the mount, and it answers that its daemon is gone. It is asked only then: a daemon that
// hangs does not answer.
bool is_dead(const MountEntry& mount) {
  const EndReportAddress address(mount);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open() || ::connect(socket.number(), address.get(), address.length()) == 0 || errno != ECONNREFUSED)
    return false;
  struct statvfs space {};  // attributes may be the kernel's, from before
  if (::statvfs(mount.mount_point.c_str(), &space) == 0) return false;
  // The latter two, the last of what would have come through io_uring: it went while it was asked.
  return errno == ENOTCONN || errno == ECONNABORTED || errno == ECANCELED;
}

Status check_mount_point(const std::string& mount_point, const std::vector<std::string>& members, bool nonempty) {
  // The table first: looking at a mount whose daemon hangs would hang, too.
  const auto daemon_is_gone = [&mount_point] {
    return Status::error(StatusCode::kBusy, mount_point +
                                                " still carries a mount whose daemon is gone; remove it: "
                                                "umount -l " +
                                                mount_point);
  };
  if (const std::optional<MountEntry> entry = topmost_at(mount_point, kFilesystemType)) {
    if (is_dead(*entry)) return daemon_is_gone();
    return Status::error(StatusCode::kBusy, mount_point + " already carries a fastpersistfs mount (of " +
                                                entry->source + "); unmount it first: umount " + mount_point);
  }
  struct stat attributes {};
  if (::stat(mount_point.c_str(), &attributes) != 0) {
    const int failure = errno;
    if (failure == ENOTCONN) return daemon_is_gone();
    return Status::from_errno(failure, "look at mount point " + mount_point);
  }
  if (!S_ISDIR(attributes.st_mode))
    return Status::error(StatusCode::kInvalidArgument,
                         "mount point " + mount_point + " is not a directory; name a directory");
  for (const std::string& member : members)
    if (is_inside(mount_point, member))
      return Status::error(StatusCode::kInvalidArgument, "mount point " + mount_point + " lies in member directory " +
                                                             member + "; mount outside the array's directories");
  FPFS_RETURN_IF_ERROR(check_nothing_within(members));
  if (nonempty) return Status::ok();
  return check_empty(mount_point);
}

bool is_source_mounted(const std::string& source) {
  const std::vector<MountEntry> entries = read_mount_table();
  return std::any_of(entries.begin(), entries.end(),
                     [&source](const MountEntry& e) { return e.type == kFilesystemType && e.source == source; });
}

Status detach_mount(const std::string& mount_point) {
  if (::umount2(mount_point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return Status::ok();
  const int failure = errno;
  if (failure == EINVAL || failure == ENOENT) return Status::ok();  // no mount there any more
  if (failure == EPERM) return run_fusermount(mount_point, true);
  return Status::from_errno(failure, "unmount " + mount_point);
}

Status unmount(const std::string& mount_point, bool lazy, bool force) {
  const int flags = UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0) | (force ? MNT_FORCE : 0);
  if (::umount2(mount_point.c_str(), flags) == 0) return Status::ok();
  const int failure = errno;
  if (failure == EPERM && !force) return run_fusermount(mount_point, lazy);
  if (failure == EBUSY)
    return Status::error(StatusCode::kBusy, mount_point +
                                                ": it is in use; end what works there (fuser -vm shows it), or detach "
                                                "it with -l");
  return Status::from_errno(failure, "unmount " + mount_point);
}

std::optional<MountEntry> topmost_at(const std::string& mount_point, std::string_view type) {
  std::optional<MountEntry> found;
  for (MountEntry& entry : read_mount_table())  // in mount order
    if (entry.mount_point == mount_point && (type.empty() || entry.type == type)) found = std::move(entry);
  return found;
}

uint64_t request_bytes_limit() {
  std::ifstream setting("/proc/sys/fs/fuse/max_pages_limit");
  uint64_t pages = 256;
  setting >> pages;
  return std::max<uint64_t>(pages, 1) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

bool raise_read_ahead(const MountEntry& mount, unsigned kibibytes) {
  std::ofstream file("/sys/class/bdi/" + mount.device() + "/read_ahead_kb");
  file << kibibytes << std::flush;
  return file.good();
}

}  // namespace fpfs
