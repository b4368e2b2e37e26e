#include "engine/check/noted_copies.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/check/scan.h"
#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

bool is_about_content(const CheckError& error) {
  static constexpr std::array<std::string_view, 6> kKinds = {"missing-object", "short-object", "missing-member",
                                                             "checksum",       "misplaced",    "unreadable"};
  return !error.path.empty() && std::find(kKinds.begin(), kKinds.end(), error.kind) != kKinds.end();
}

std::string healing_of(Storage& storage, const Array& array, const CheckOptions::IsCopied& is_copied,
                       const std::string& path) {
  const Result<ScannedFile> file = scan_path(storage, array, array.tree(), path);
  if (!file.is_ok() || !file->status.is_ok()) return "";
  if (is_copied == nullptr) return "lost";
  ScopedHandle directory;
  Handle parent = array.tree();
  size_t begin = 1;
  for (size_t slash = 0; (slash = path.find('/', begin)) != std::string::npos; begin = slash + 1) {
    const Result<Handle> next = storage.open_at(parent, path.substr(begin, slash - begin), O_RDONLY | O_DIRECTORY);
    if (!next.is_ok()) return "";
    directory = ScopedHandle(storage, *next);
    parent = *next;
  }
  const Result<Handle> sidecar = storage.open_at(parent, path.substr(begin), O_RDONLY | O_NONBLOCK);
  if (!sidecar.is_ok()) return "";
  const ScopedHandle opened(storage, *sidecar);
  return is_copied(storage, *sidecar, path.substr(1), file->image) ? "healable" : "lost";
}

}  // namespace

void note_copies(Storage& storage, const Array& array, const CheckOptions::IsCopied& is_copied,
                 std::vector<CheckError>& errors) {
  std::map<std::string, std::string> known;  // of each path
  for (CheckError& error : errors) {
    if (!is_about_content(error) || error.repaired) continue;
    const auto [found, is_new] = known.try_emplace(error.path);
    if (is_new) found->second = healing_of(storage, array, is_copied, error.path);
    // What is on a member that is not there need not be lost.
    if (error.kind != "missing-member" || found->second != "lost") error.healing = found->second;
  }
}

}  // namespace fpfs
