#include "engine/store/find_in_array.h"

#include <optional>

namespace fpfs {

namespace {

std::vector<std::string> components_of(const std::string& path) {
  std::vector<std::string> components;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    std::string component = path.substr(begin, end - begin);
    if (!component.empty() && component != ".") components.push_back(std::move(component));
    begin = end + 1;
  }
  return components;
}

}  // namespace

Result<Store::Node> find_in_array(Store& store, const std::string& path) {
  std::optional<Store::Node> here;
  for (const std::string& component : components_of(path)) {
    if (component == "..")
      return Status::error(StatusCode::kInvalidArgument, path + ": '..' in a path inside the array");
    if (here && S_ISLNK(here->attributes.st_mode))
      return Status::error(StatusCode::kInvalidArgument, path + ": leads through a symbolic link; name the real path");
    Result<Store::Node> node = store.lookup(here ? here->handle.get() : store.root(), component);
    if (!node.is_ok()) return node.status().with_context(path + ", in the array");
    here = std::move(*node);
  }
  if (!here) return Status::error(StatusCode::kInvalidArgument, "'" + path + "' names no file in the array");
  return std::move(*here);
}

}  // namespace fpfs
