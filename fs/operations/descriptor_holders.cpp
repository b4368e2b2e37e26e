#include "fs/operations/descriptor_holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/io/named_thread.h"

namespace fpfs {
namespace {

// Calls visit with each name of a directory below /proc, until it says no.
template <typename Visit>
void for_each_name(const std::string& path, const Visit& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (directory == nullptr) return;
  while (const struct dirent* entry = ::readdir(directory.get()))
    if (entry->d_name[0] != '.' && !visit(::dirfd(directory.get()), entry->d_name)) return;
}

// The number behind `key` at the beginning of a line; nothing when there is none.
std::optional<uint64_t> number_of(std::string_view text, std::string_view key, int base) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of(" \t", at + key.size()), text.size()));
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// What one mount of the process's namespace shows.
dev_t device_of_mount(pid_t thread, uint64_t mount_id) {
  std::ifstream table(fmt::format("/proc/{}/mountinfo", thread));
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    uint64_t id = 0, parent = 0;
    unsigned major = 0, minor = 0;
    char colon = 0;
    if (fields >> id >> parent >> major >> colon >> minor && id == mount_id) return makedev(major, minor);
  }
  return 0;
}

bool is_called(int directory, const char* descriptor, const std::string& name) {
  std::array<char, PATH_MAX> bytes;
  const ssize_t length = ::readlinkat(directory, descriptor, bytes.data(), bytes.size());
  if (length <= 0 || bytes[0] != '/') return false;
  const std::string_view path(bytes.data(), static_cast<size_t>(length));
  return path.ends_with("/" + name);
}

bool is_descriptor_of(pid_t thread, const char* name, const HeldFile& file) {
  const FileDescriptor opened(::open(fmt::format("/proc/{}/fdinfo/{}", thread, name).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> bytes;
  const ssize_t length = opened.is_open() ? ::read(opened.number(), bytes.data(), bytes.size()) : 0;
  if (length <= 0) return false;
  const std::string_view text(bytes.data(), static_cast<size_t>(length));
  if (number_of(text, "\nino:", 10) != file.inode) return false;
  const std::optional<uint64_t> flags = number_of(text, "\nflags:", 8), mount = number_of(text, "\nmnt_id:", 10);
  if (!flags || !mount || (*flags & O_PATH) != 0 || (*flags & O_ACCMODE) == O_RDONLY) return false;
  return device_of_mount(thread, *mount) == file.device;
}

class Look {
 public:
  explicit Look(const HeldFile& file) : file_(file) {}

  bool finds_in(pid_t thread) const {
    bool found = false;
    for_each_name(fmt::format("/proc/{}/fd", thread), [&](int directory, const char* name) {
      found = is_called(directory, name, file_.name) && is_descriptor_of(thread, name, file_);
      return !found && !is_over();
    });
    return found;
  }
  bool finds_below(pid_t thread) const {
    std::vector<pid_t> descendants = children_of(thread);
    for (size_t next = 0; next < descendants.size() && !is_over(); ++next) {
      if (finds_in(descendants[next])) return true;
      for (const pid_t child : children_of(descendants[next])) descendants.push_back(child);
    }
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_over() const { return Clock::now() >= end_; }
  std::vector<pid_t> children_of(pid_t process) const {
    std::vector<pid_t> children;
    for_each_name(fmt::format("/proc/{}/task", process), [&](int, const char* thread) {
      std::ifstream list(fmt::format("/proc/{}/task/{}/children", process, thread));
      for (pid_t child = 0; list >> child;) children.push_back(child);
      return !is_over();
    });
    return children;
  }

  const HeldFile& file_;
  const Clock::time_point end_ = Clock::now() + kBudget;
};

}  // namespace

bool holds(pid_t thread, const HeldFile& file, bool or_descendant) {
  if (thread <= 0 || file.device == 0 || file.name.empty()) return false;
  static std::atomic<unsigned> looking{0};
  if (looking.fetch_add(1) >= kThreadsMax) {
    looking.fetch_sub(1);
    return false;
  }
  const auto answer = std::make_shared<std::promise<bool>>();
  std::future<bool> found = answer->get_future();
  try {
    start_thread("fpfs-look", [thread, file, or_descendant, answer] {
      const Look look(file);
      answer->set_value(look.finds_in(thread) || (or_descendant && look.finds_below(thread)));
      looking.fetch_sub(1);
    }).detach();
  } catch (const std::system_error&) {  // no more threads
    looking.fetch_sub(1);
    return false;
  }
  return found.wait_for(kBudget) == std::future_status::ready && found.get();
}

}  // namespace fpfs
