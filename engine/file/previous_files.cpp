#include "engine/file/previous_files.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/log.h"
#include "engine/file/context.h"
#include "engine/file/file.h"

namespace fpfs {

namespace {

constexpr size_t kCandidatesMax = 3;
// Of one search.
constexpr unsigned kEntriesMax = 4096;
constexpr unsigned kLooksMax = 256;
constexpr size_t kSiblingsMax = 4;
// At once; then one a second.
constexpr unsigned kSearchesMax = 64;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_newer(const struct timespec& a, const struct timespec& b) {
  return std::tie(a.tv_sec, a.tv_nsec) > std::tie(b.tv_sec, b.tv_nsec);
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

PathPattern PathPattern::of(const std::string& path) {
  PathPattern result;
  for (size_t i = 0; i < path.size();) {
    if (!is_digit(path[i])) {
      result.pattern += path[i++];
      continue;
    }
    size_t end = i;
    while (end < path.size() && is_digit(path[end])) ++end;
    result.pattern += '#';
    result.numbers.push_back(path.substr(i, end - i));
    i = end;
  }
  return result;
}

uint64_t PathPattern::likeness(const PathPattern& other) const {
  constexpr uint64_t kPlaces = 56;  // that are told apart
  uint64_t count = 0, places = 0;
  for (size_t i = 0; i < std::min(numbers.size(), other.numbers.size()); ++i) {
    if (numbers[i] != other.numbers[i]) continue;
    ++count;
    const size_t from_end = numbers.size() - 1 - i;
    if (from_end < kPlaces) places |= uint64_t{1} << (kPlaces - 1 - from_end);
  }
  return std::min<uint64_t>(count, 0xff) << kPlaces | places;
}

PreviousFiles::PreviousFiles(FileContext& context) : context_(context) {
  const MutexLock lock(mutex_);
  searches_ = kSearchesMax;
  searches_since_ = context.environment.now().tv_sec;
}

void PreviousFiles::made(const std::shared_ptr<File>& file, Handle directory, const std::string& name) {
  const Result<struct stat> attributes = context_.storage().stat_at(directory, name);
  if (!attributes.is_ok()) return;
  auto content =
      std::make_shared<PreviousContent>(context_.storage().describe(directory) + "/" + name, attributes->st_uid);
  content->set_owner(file);
  const PathPattern path = PathPattern::of(content->path());
  bool searches = false;
  {
    const MutexLock lock(mutex_);
    std::vector<std::pair<uint64_t, const Known*>> found;
    for (const Known& known : known_)
      if (known.path.pattern == path.pattern) found.emplace_back(path.likeness(known.path), &known);
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (found.size() > kCandidatesMax) found.resize(kCandidatesMax);
    for (const auto& [likeness, known] : found) content->add_candidate(known->node);
    if (!found.empty())
      content->set_start(found.front().second->start);
    else
      searches = !path.numbers.empty() && take_search();
    if (found.empty() && !searches) return;
    std::erase_if(in_use_, [](const auto& one) { return one.expired(); });
    in_use_.push_back(content);
  }
  if (!searches) {
    file->set_previous(content);
    return look_for(content);
  }
  const Result<Handle> reopened = context_.storage().reopen(directory, O_PATH | O_DIRECTORY);
  if (!reopened.is_ok()) return;
  file->set_previous(content);
  auto parent = std::make_shared<const ScopedHandle>(context_.storage(), *reopened);
  context_.tasks.post([this, content, parent, name] {
    search(*content, parent->get(), name);
    open_next(*content);
  });
}

bool PreviousFiles::take_search() {
  const int64_t now = context_.environment.now().tv_sec;
  const int64_t more = std::clamp<int64_t>(now - searches_since_, 0, kSearchesMax);
  searches_ = std::min(kSearchesMax, searches_ + static_cast<unsigned>(more));
  searches_since_ = now;
  if (searches_ == 0) return false;
  --searches_;
  return true;
}

void PreviousFiles::look_for(const std::shared_ptr<PreviousContent>& content) {
  context_.tasks.post([this, content] { open_next(*content); });
}

// Opens what can be opened and may share. What cannot be says so when somebody opens it for himself.
void PreviousFiles::open_next(PreviousContent& content) const {
  while (const PreviousContent::Candidate candidate = content.next_candidate()) {
    const Result<struct stat> attributes = context_.storage().fstat(candidate->get());
    if (!attributes.is_ok() || attributes->st_uid != content.uid()) continue;
    Result<std::shared_ptr<File>> file = context_.open_file(candidate->get());
    if (!file.is_ok()) continue;
    const std::optional<MemberIndex> start = (*file)->stripe_start();
    if (!start || content.start().value_or(*start) != *start) continue;
    return content.opened(std::move(*file), *start);
  }
  content.opened(nullptr, MemberIndex());
}

// --- what is known ---------------------------------------------------------------------------------------------------

void PreviousFiles::committed(const std::string& path, Handle sidecar, MemberIndex start, uint64_t chunks) {
  // Shorter ones begin anywhere, so that they spread over the members.
  if (chunks < std::max<uint64_t>(context_.array.member_count(), 2)) return;
  const Result<struct stat> attributes = context_.storage().fstat(sidecar);
  const Result<Handle> node = context_.storage().reopen(sidecar, O_PATH);
  if (!node.is_ok()) return;
  auto candidate = std::make_shared<const ScopedHandle>(context_.storage(), *node);
  if (!attributes.is_ok() || attributes->st_nlink == 0) return;
  std::list<Known> gone;  // their handles are closed behind the lock
  const MutexLock lock(mutex_);
  for (auto known = known_.begin(); known != known_.end();) {
    const auto next = std::next(known);
    if (known->inode == attributes->st_ino) gone.splice(gone.end(), known_, known);
    known = next;
  }
  known_.push_front({PathPattern::of(path), std::move(candidate), attributes->st_ino, start});
  if (known_.size() > kFilesMax) gone.splice(gone.end(), known_, std::prev(known_.end()));
}

std::vector<std::shared_ptr<PreviousContent>> PreviousFiles::in_use() {
  std::vector<std::shared_ptr<PreviousContent>> result;
  const MutexLock lock(mutex_);
  for (const std::weak_ptr<PreviousContent>& one : in_use_)
    if (std::shared_ptr<PreviousContent> content = one.lock()) result.push_back(std::move(content));
  return result;
}

void PreviousFiles::removed(uint64_t inode) {
  std::list<Known> gone;
  {
    const MutexLock lock(mutex_);
    for (auto known = known_.begin(); known != known_.end();) {
      const auto next = std::next(known);
      if (known->inode == inode) gone.splice(gone.end(), known_, known);
      known = next;
    }
  }
  for (const std::shared_ptr<PreviousContent>& content : in_use()) content->forget(inode);
}

void PreviousFiles::release_waiting() {
  for (const std::shared_ptr<PreviousContent>& content : in_use()) content->release_waiting();
}

// --- after a mount ---------------------------------------------------------------------------------------------------

// One search: what was found, and how much it may still look at.
struct PreviousFiles::Search {
  struct Found {
    std::shared_ptr<const ScopedHandle> directory;
    std::string name;
    uint64_t likeness = 0;
    struct timespec changed {};
    bool operator<(const Found& other) const {
      return likeness != other.likeness ? likeness > other.likeness : is_newer(changed, other.changed);
    }
  };
  Storage& storage;
  unsigned entries_left = kEntriesMax;
  unsigned looks_left = kLooksMax;

  // Entries of a directory whose path, behind `prefix`, has the pattern of `wanted`, by their likeness and age.
  std::vector<Found> look(const std::shared_ptr<const ScopedHandle>& directory, const std::string& prefix,
                          const PathPattern& wanted, mode_t type, const std::string& but_for) {
    std::vector<Found> found;
    const Status listed = storage.list(directory->get(), [&](const DirectoryEntry& entry) {
      if (entries_left == 0) return false;
      --entries_left;
      const bool may_be = entry.type == DT_UNKNOWN || entry.type == IFTODT(type);
      if (!may_be || entry.name == but_for) return true;
      const PathPattern path = PathPattern::of(prefix + entry.name);
      if (path.pattern == wanted.pattern) found.push_back({directory, entry.name, wanted.likeness(path), {}});
      return true;
    });
    if (!listed.is_ok()) return {};
    std::erase_if(found, [&](Found& one) {
      if (looks_left == 0) return true;
      --looks_left;
      const Result<struct stat> attributes = storage.stat_at(directory->get(), one.name);
      if (!attributes.is_ok() || (attributes->st_mode & S_IFMT) != type || attributes->st_size == 0) return true;
      one.changed = attributes->st_mtim;
      return false;
    });
    std::sort(found.begin(), found.end());
    return found;
  }
  std::shared_ptr<const ScopedHandle> open(Handle directory, const std::string& name, int flags) {
    const Result<Handle> opened = storage.open_at(directory, name, flags);
    return opened.is_ok() ? std::make_shared<const ScopedHandle>(storage, *opened) : nullptr;
  }
};

// In the directory itself, and in those beside it that differ from it in numbers only.
void PreviousFiles::search(PreviousContent& content, Handle directory, const std::string& name) const {
  Search search{context_.storage()};
  const std::string& path = content.path();
  const std::string parent = path.substr(0, path.rfind('/'));
  const PathPattern wanted = PathPattern::of(path);
  std::vector<Search::Found> found;
  const auto own = search.open(directory, ".", O_PATH | O_DIRECTORY);
  if (own != nullptr) found = search.look(own, parent + "/", wanted, S_IFREG, name);
  // From the root of the tree down to the directory above.
  const std::string root = context_.storage().describe(context_.array.tree());
  std::shared_ptr<const ScopedHandle> above = search.open(context_.array.tree(), ".", O_PATH | O_DIRECTORY);
  size_t at = root.size() + 1;
  if (!parent.starts_with(root + "/")) above = nullptr;
  for (size_t end = 0; above != nullptr && (end = parent.find('/', at)) != std::string::npos; at = end + 1)
    above = search.open(above->get(), parent.substr(at, end - at), O_PATH | O_DIRECTORY);
  if (above != nullptr && std::any_of(parent.begin() + static_cast<ptrdiff_t>(at), parent.end(), is_digit)) {
    std::vector<Search::Found> siblings =
        search.look(above, parent.substr(0, at), PathPattern::of(parent), S_IFDIR, base_name(parent));
    std::sort(siblings.begin(), siblings.end(),
              [](const auto& a, const auto& b) { return is_newer(a.changed, b.changed); });
    if (siblings.size() > kSiblingsMax) siblings.resize(kSiblingsMax);
    for (const Search::Found& sibling : siblings) {
      const auto opened = search.open(above->get(), sibling.name, O_PATH | O_DIRECTORY);
      if (opened == nullptr) continue;
      for (Search::Found& one : search.look(opened, parent.substr(0, at) + sibling.name + "/", wanted, S_IFREG, ""))
        found.push_back(std::move(one));
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() > kCandidatesMax) found.resize(kCandidatesMax);
  for (const Search::Found& one : found)
    if (auto node = search.open(one.directory->get(), one.name, O_PATH)) content.add_candidate(std::move(node));
}

}  // namespace fpfs
