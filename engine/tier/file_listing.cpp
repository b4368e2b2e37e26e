#include "engine/tier/file_listing.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>

#include <fmt/format.h>

#include "engine/io/scoped_handle.h"

namespace fpfs {
namespace {

class Listing {
 public:
  Listing(Storage& storage, const ListRequest& request) : storage_(storage), request_(request) {}

  // `path`: of the directory, "" or with a '/' at its end. True: the page is full, and there may be more.
  Result<bool> walk(Handle directory, const std::string& path) {
    std::vector<std::string> names;  // a directory has its '/', as in keys: that makes the order of the keys
    FPFS_RETURN_IF_ERROR(read_names(directory, names));
    std::ranges::sort(names);
    for (const std::string& name : names) {
      const std::string key = path + name;
      Result<bool> full =
          name.ends_with('/') ? visit_directory(directory, name, key) : visit_file(directory, name, key);
      if (!full.is_ok() || *full) return full;
    }
    return false;
  }
  ListPage take() { return std::move(page_); }

 private:
  bool is_full() const { return page_.objects.size() + page_.directories.size() >= request_.keys_max; }
  Result<bool> stop() {
    page_.position = last_;
    return true;
  }

  Status read_names(Handle directory, std::vector<std::string>& names) {
    std::vector<std::string> unknown;
    const Status listed = storage_.list(directory, [&](const DirectoryEntry& entry) {
      if (entry.name.starts_with(ObjectStore::kUnfinishedPrefix)) return true;
      if (entry.type == DT_DIR) names.push_back(entry.name + "/");
      if (entry.type == DT_REG) names.push_back(entry.name);
      if (entry.type == DT_UNKNOWN) unknown.push_back(entry.name);
      return true;
    });
    FPFS_RETURN_IF_ERROR(listed);
    for (const std::string& name : unknown) {
      const Result<struct stat> attributes = storage_.stat_at(directory, name);
      if (!attributes.is_ok() && attributes.status().code() == StatusCode::kNotFound) continue;
      if (!attributes.is_ok()) return attributes.status();
      if (S_ISDIR(attributes->st_mode)) names.push_back(name + "/");
      if (S_ISREG(attributes->st_mode)) names.push_back(name);
    }
    return Status::ok();
  }

  Result<bool> visit_directory(Handle directory, const std::string& name, const std::string& key) {
    if (!key.starts_with(request_.prefix) && !request_.prefix.starts_with(key)) return false;
    if (request_.one_level && key.size() > request_.prefix.size()) {
      if (key <= request_.position) return false;
      if (is_full()) return stop();
      page_.directories.push_back(last_ = key);
      return false;
    }
    if (key < request_.position && !request_.position.starts_with(key)) return false;  // all of it came before
    Result<Handle> opened = storage_.open_at(directory, name.substr(0, name.size() - 1), O_RDONLY | O_DIRECTORY);
    if (!opened.is_ok() && opened.status().code() == StatusCode::kNotFound) return false;
    if (!opened.is_ok()) return opened.status();
    const ScopedHandle below(storage_, *opened);
    return walk(below.get(), key);
  }

  Result<bool> visit_file(Handle directory, const std::string& name, const std::string& key) {
    if (!key.starts_with(request_.prefix) || key <= request_.position) return false;
    if (is_full()) return stop();
    const Result<struct stat> attributes = storage_.stat_at(directory, name);
    if (!attributes.is_ok() && attributes.status().code() == StatusCode::kNotFound) return false;
    if (!attributes.is_ok()) return attributes.status();
    ObjectInfo info;
    info.key = last_ = key;
    info.size = static_cast<uint64_t>(attributes->st_size);
    info.tag = tag_of_file(*attributes);
    info.modified_s = attributes->st_mtim.tv_sec;
    page_.objects.push_back(std::move(info));
    return false;
  }

  Storage& storage_;
  const ListRequest& request_;
  ListPage page_;
  std::string last_;
};

}  // namespace

std::string tag_of_file(const struct stat& attributes) {
  return fmt::format("{:x}-{:x}.{:09}-{:x}", attributes.st_ino, attributes.st_mtim.tv_sec, attributes.st_mtim.tv_nsec,
                     attributes.st_size);
}

Result<ListPage> list_files(Storage& storage, Handle root, const ListRequest& request) {
  // Only what lies in the directory that the prefix leads to can have it.
  std::string path;
  ScopedHandle below;
  Handle directory = root;
  for (size_t begin = 0, slash; (slash = request.prefix.find('/', begin)) != std::string::npos; begin = slash + 1) {
    Result<Handle> opened =
        storage.open_at(directory, request.prefix.substr(begin, slash - begin), O_RDONLY | O_DIRECTORY);
    if (!opened.is_ok() && (opened.status().code() == StatusCode::kNotFound ||
                            opened.status().errno_value() == ENOTDIR || opened.status().errno_value() == ELOOP))
      return ListPage();
    if (!opened.is_ok()) return opened.status();
    below = ScopedHandle(storage, *opened);
    directory = below.get();
    path = request.prefix.substr(0, slash + 1);
  }
  Listing listing(storage, request);
  const Result<bool> walked = listing.walk(directory, path);
  if (!walked.is_ok()) return walked.status();
  return listing.take();
}

}  // namespace fpfs
