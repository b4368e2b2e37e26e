#include "engine/tier/tier_room.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace fpfs {
namespace {

struct Kept {
  std::string path;
  uint64_t bytes = 0;
  struct timespec modified {
  }, moved{};  // moved: of the sidecar, also when its content came or went
  bool may_leave = false;
};

auto order_of(const struct timespec& time) {
  return std::tuple(time.tv_sec, time.tv_nsec);
}

// Calls visit(path, node) for every regular file, and leave(path) behind all of a directory's.
class Walk {
 public:
  using Visit = std::function<Status(const std::string& path, const Store::Node& node)>;
  Walk(Store& store, std::function<bool()> is_over, Visit visit, std::function<void()> leave)
      : store_(store), is_over_(std::move(is_over)), visit_(std::move(visit)), leave_(std::move(leave)) {}

  Status walk(Handle directory, const std::string& path) {
    std::vector<DirectoryEntry> entries, below;
    FPFS_RETURN_IF_ERROR(store_.storage().list(directory, [&entries](const DirectoryEntry& entry) {
      entries.push_back(entry);
      return true;
    }));
    for (const DirectoryEntry& entry : entries) {
      if (is_over_()) return Status::error(StatusCode::kCancelled, "the mount is ending");
      if (entry.type != DT_REG && entry.type != DT_UNKNOWN && entry.type != DT_DIR) continue;
      if (entry.type == DT_DIR) {
        below.push_back(entry);
        continue;
      }
      const Result<Store::Node> node = store_.lookup(directory, entry.name);
      if (!node.is_ok()) continue;  // gone, or it cannot be read: it stays
      if (S_ISDIR(node->attributes.st_mode)) below.push_back(entry);
      if (S_ISREG(node->attributes.st_mode)) FPFS_RETURN_IF_ERROR(visit_(path + entry.name, *node));
    }
    leave_();
    for (const DirectoryEntry& entry : below) {
      const Result<Handle> opened = store_.storage().open_at(directory, entry.name, O_RDONLY | O_DIRECTORY);
      if (!opened.is_ok()) continue;
      const ScopedHandle handle(store_.storage(), *opened);
      FPFS_RETURN_IF_ERROR(walk(handle.get(), path + entry.name + "/"));
    }
    return Status::ok();
  }

 private:
  Store& store_;
  const std::function<bool()> is_over_;
  const Visit visit_;
  const std::function<void()> leave_;
};

}  // namespace

Result<TierKeep> parse_tier_keep(std::string_view text) {
  if (text == "all") return TierKeep();
  TierKeep keep{TierKeep::Kind::kNewest, 0};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), keep.limit);
  if (error == std::errc() && end == text.data() + text.size() && keep.limit > 0) return keep;
  const Result<uint64_t> bytes = parse_size(text);
  if (bytes.is_ok() && *bytes > 0 && end != text.data() + text.size()) return TierKeep{TierKeep::Kind::kBytes, *bytes};
  return Status::error(
      StatusCode::kInvalidArgument,
      fmt::format("'{}' does not say what is kept; write all, a size like 500G, or a number of files like 3", text));
}

std::string to_string(const TierKeep& keep) {
  switch (keep.kind) {
    case TierKeep::Kind::kAll:
      break;
    case TierKeep::Kind::kBytes:
      return format_size(keep.limit);
    case TierKeep::Kind::kNewest:
      return fmt::format("{}", keep.limit);
  }
  return "all";
}

Result<TierLeaving> files_to_leave(Store& store, const TierKeep& keep, const std::function<bool()>& is_over) {
  std::vector<Kept> files;
  TierLeaving leaving;
  uint64_t bytes = 0;
  size_t first_here = 0;  // of this directory
  const auto visit = [&](const std::string& path, const Store::Node& node) -> Status {
    Kept file;
    file.path = path;
    file.bytes = static_cast<uint64_t>(node.attributes.st_blocks) * 512;
    file.modified = node.attributes.st_mtim;
    FPFS_ASSIGN_OR_RETURN(const struct stat sidecar, store.storage().fstat(node.handle.get()));
    file.moved = sidecar.st_ctim;
    FPFS_ASSIGN_OR_RETURN(const bool is_pinned, store.is_pinned(node.handle.get()));
    file.may_leave = file.bytes > 0 && node.attributes.st_nlink == 1 && !is_pinned;
    leaving.files_pinned += is_pinned ? 1 : 0;
    leaving.bytes_pinned += is_pinned ? static_cast<uint64_t>(node.attributes.st_size) : 0;
    bytes += file.bytes;
    files.push_back(std::move(file));
    return Status::ok();
  };
  const auto leave = [&] {
    const auto newest = static_cast<ptrdiff_t>(keep.kind == TierKeep::Kind::kNewest ? keep.limit : 1);
    const auto begin = files.begin() + static_cast<ptrdiff_t>(first_here);
    std::sort(begin, files.end(),
              [](const Kept& a, const Kept& b) { return order_of(a.modified) > order_of(b.modified); });
    for (auto file = begin; file != files.end() && file - begin < newest; ++file) file->may_leave = false;
    first_here = files.size();
  };
  FPFS_RETURN_IF_ERROR(Walk(store, is_over, visit, leave).walk(store.root(), ""));
  std::erase_if(files, [](const Kept& file) { return !file.may_leave; });
  std::sort(files.begin(), files.end(),
            [](const Kept& a, const Kept& b) { return order_of(a.moved) < order_of(b.moved); });
  for (Kept& file : files) {
    if (keep.kind == TierKeep::Kind::kBytes && bytes <= keep.limit) break;
    bytes -= file.bytes;
    leaving.paths.push_back(std::move(file.path));
  }
  return leaving;
}

Result<Store::Node> lookup_path(Store& store, const std::string& path) {
  Storage& storage = store.storage();
  FPFS_ASSIGN_OR_RETURN(const Handle root, storage.reopen(store.root(), O_RDONLY | O_DIRECTORY));
  ScopedHandle directory(storage, root);
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    FPFS_ASSIGN_OR_RETURN(const Handle next,
                          storage.open_at(directory.get(), path.substr(begin, slash - begin), O_RDONLY | O_DIRECTORY));
    directory = ScopedHandle(storage, next);
    begin = slash + 1;
  }
  return store.lookup(directory.get(), path.substr(begin));
}

// Only what was ever sent away says where its copy is.
Result<std::string> find_away(Store& store, const std::function<bool()>& is_over) {
  std::string found;
  const auto is_enough = [&] { return !found.empty() || is_over(); };
  const auto visit = [&](const std::string& path, const Store::Node& node) -> Status {
    const Result<size_t> length = store.storage().get_xattr(node.handle.get(), ChunkSource::kPathAttribute, {});
    if (!length.is_ok() || *length == 0) return Status::ok();
    FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, store.open_file(node.handle.get(), false));
    if (file->info().codec_chunks[static_cast<size_t>(Codec::kAway)] > 0) found = path;
    return Status::ok();
  };
  const Status walked = Walk(store, is_enough, visit, [] {}).walk(store.root(), "");
  if (!found.empty() || walked.is_ok()) return found;
  return walked;
}

}  // namespace fpfs
