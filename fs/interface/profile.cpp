#include "fs/interface/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/units.h"

namespace fpfs {
namespace {

constexpr size_t kLineBytesMax = 256;

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= ' ' && c < '\x7f') || c == '\t'; });
}

Status wrong(size_t line, const std::string& what) {
  return Status::error(StatusCode::kInvalidArgument, fmt::format("line {}: {}", line, what));
}

Status check_line(const ProfileLine& line, const std::vector<ProfileLine>& before) {
  if (std::find(kProfileNames.begin(), kProfileNames.end(), line.name) == kProfileNames.end())
    return wrong(line.number,
                 fmt::format("unknown name '{}'; a profile has {}", line.name, fmt::join(kProfileNames, ", ")));
  if (line.value.empty()) return wrong(line.number, line.name + " has no value");
  const auto twice =
      std::find_if(before.begin(), before.end(), [&](const auto& other) { return other.name == line.name; });
  if (twice != before.end())
    return wrong(line.number, fmt::format("{} is there already, in line {}; say it once", line.name, twice->number));
  return Status::ok();
}

}  // namespace

Result<std::vector<ProfileLine>> parse_profile(std::string_view text) {
  std::vector<ProfileLine> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > kLineBytesMax)
      return wrong(number, fmt::format("it has {} bytes; a line of a profile is NAME=VALUE", line.size()));
    line = without_blanks(line);
    if (line.starts_with('#') || line.empty()) continue;
    const size_t equals = line.find('=');
    if (!is_printable(line)) return wrong(number, "it is no text; a line of a profile is NAME=VALUE");
    if (equals == std::string_view::npos)
      return wrong(number, fmt::format("it is '{}'; a line of a profile is NAME=VALUE", line));
    ProfileLine found{number, std::string(without_blanks(line.substr(0, equals))),
                      std::string(without_blanks(line.substr(equals + 1)))};
    FPFS_RETURN_IF_ERROR(check_line(found, lines));
    lines.push_back(std::move(found));
  }
  return lines;
}

Result<std::string> read_profile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT)
    return Status::error(StatusCode::kNotFound, "there is no such file; fpfs tune DIRS --out FILE writes one");
  if (!file.is_open()) return Status::from_errno(errno, "open");
  struct stat attributes {};
  if (::fstat(file.number(), &attributes) != 0) return Status::from_errno(errno, "stat");
  if (!S_ISREG(attributes.st_mode)) return Status::error(StatusCode::kInvalidArgument, "it is not a regular file");
  std::string text(kProfileBytesMax + 1, '\0');
  size_t size = 0;
  for (ssize_t count = -1; count != 0 && size < text.size(); size += static_cast<size_t>(std::max<ssize_t>(count, 0))) {
    count = ::read(file.number(), text.data() + size, text.size() - size);
    if (count < 0 && errno != EINTR) return Status::from_errno(errno, "read");
  }
  if (size > kProfileBytesMax)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("it is longer than {}, so it is no profile", format_size(kProfileBytesMax)));
  text.resize(size);
  return text;
}

}  // namespace fpfs
