#include "engine/base/proc_fields.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"

namespace fpfs {

namespace {

std::optional<uint64_t> to_number(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

}  // namespace

std::string read_proc(pid_t thread, const char* name) {
  const FileDescriptor file(::open(fmt::format("/proc/{}/{}", thread, name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return {};
  std::array<char, 4096> text;
  const ssize_t length = ::read(file.number(), text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<size_t>(length)) : std::string();
}

std::string_view proc_stat_field(std::string_view stat, unsigned number) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return {};
  stat.remove_prefix(name_end + 1);
  for (unsigned field = 2; field < number; ++field) {
    const size_t space = stat.find(' ');
    if (space == std::string_view::npos) return {};
    stat.remove_prefix(space + 1);
  }
  return stat.substr(0, stat.find_first_of(" \n"));
}

std::optional<uint64_t> proc_stat_number(std::string_view stat, unsigned number) {
  return to_number(proc_stat_field(stat, number), 10);
}

std::optional<uint64_t> proc_status_number(std::string_view status, std::string_view key, int base) {
  const std::string line = "\n" + std::string(key) + ":\t";
  const size_t at = status.find(line);
  if (at == std::string_view::npos) return std::nullopt;
  return to_number(status.substr(at + line.size()), base);
}

}  // namespace fpfs
