#include "fs/nodes/look_below.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/io/scoped_handle.h"
#include "engine/store/find_in_array.h"

namespace fpfs {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kLookBelowMax{10};
constexpr size_t kAtOnceMax = 16;  // each is a request or two of the store

class LookBelow : public std::enable_shared_from_this<LookBelow> {
 public:
  LookBelow(LookBelowParts parts, std::vector<DirectoryToLookAt> directories, std::function<void()> then)
      : parts_(std::move(parts)), directories_(std::move(directories)), then_(std::move(then)) {}

  void go_on() {
    while (const std::optional<DirectoryToLookAt> next = take()) {
      const bool waits = parts_.tier.look(next->path, [self = shared_from_this(), next] {
        self->parts_.in_background([self, next] {
          self->looked_at(*next);
          self->go_on();
        });
      });
      if (!waits) looked_at(*next);
    }
    const bool ends = [this] {
      const MutexLock lock(mutex_);
      return under_way_ == 0 && directories_.empty() && !std::exchange(has_ended_, true);
    }();
    if (ends) then_();
  }

 private:
  // The next one, which is under way from here on. Nothing: none, or not now.
  std::optional<DirectoryToLookAt> take() {
    const bool is_hopeless = parts_.is_ending() || !parts_.tier.shows_others() || steady_clock::now() > deadline_;
    const MutexLock lock(mutex_);
    if (directories_.empty()) return std::nullopt;
    if (is_hopeless) {
      if (!parts_.is_ending())
        log_about("what others have is not known", LogLevel::kWarning,
                  "tier: /{} is moved or removed by what is known here, as the store did not show in time what others "
                  "have in it; what that is stays where it was",
                  directories_.back().path);
      directories_.clear();
      return std::nullopt;
    }
    if (under_way_ == kAtOnceMax) return std::nullopt;
    DirectoryToLookAt next = std::move(directories_.back());
    directories_.pop_back();
    ++under_way_;
    return next;
  }

  void looked_at(const DirectoryToLookAt& directory) {
    std::vector<DirectoryToLookAt> below;
    if (directory.is_deep) below = directories_in(directory);
    const MutexLock lock(mutex_);
    --under_way_;
    directories_.insert(directories_.end(), std::make_move_iterator(below.begin()),
                        std::make_move_iterator(below.end()));
  }

  // What cannot be listed is the business of who is about to change it.
  std::vector<DirectoryToLookAt> directories_in(const DirectoryToLookAt& directory) {
    std::vector<DirectoryToLookAt> found;
    Storage& storage = parts_.store.storage();
    const Result<Store::Node> node = find_in_array(parts_.store, directory.path);
    if (!node.is_ok()) return found;
    const Result<Handle> opened = storage.reopen(node->handle.get(), O_RDONLY | O_DIRECTORY);
    if (!opened.is_ok()) return found;
    const ScopedHandle listed(storage, *opened);
    static_cast<void>(storage.list(*opened, [&](const DirectoryEntry& entry) {
      bool is_directory = entry.type == DT_DIR;
      if (entry.type == DT_UNKNOWN) {
        const Result<struct stat> attributes = storage.stat_at(*opened, entry.name);
        is_directory = attributes.is_ok() && S_ISDIR(attributes->st_mode);
      }
      if (is_directory) found.push_back({directory.path + entry.name + "/", true});
      return true;
    }));
    return found;
  }

  const LookBelowParts parts_;
  const steady_clock::time_point deadline_ = steady_clock::now() + kLookBelowMax;
  Mutex mutex_;
  std::vector<DirectoryToLookAt> directories_ FPFS_GUARDED_BY(mutex_);
  size_t under_way_ FPFS_GUARDED_BY(mutex_) = 0;
  bool has_ended_ FPFS_GUARDED_BY(mutex_) = false;
  const std::function<void()> then_;
};

}  // namespace

void look_below(LookBelowParts parts, std::vector<DirectoryToLookAt> directories, std::function<void()> then) {
  std::make_shared<LookBelow>(std::move(parts), std::move(directories), std::move(then))->go_on();
}

}  // namespace fpfs
