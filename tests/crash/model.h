// Model: what the array may hold after a crash, by the engine's promises (store.h, engine/file/writer.h).
//
// Content. Every change makes a version. After a crash a file shows one that was a consistent point, so that somebody's
// close or fsync may have committed it (or, of a trickle, nobody's), and not one older than the last change that was
// acknowledged. Half a save is no consistent point, whatever else happens on the machine.
//
// Attributes. Likewise, but every version may show, and only fsync acknowledges.
//
// Names. Every change of names is noted before it is made, and marked when its durability was promised: by a sync of
// its directory, or by a commit of the file under that name. After a crash a name leads where the last promised change
// or any later one left it, and a rename shows in both of its names or in neither.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fpfs::crash {

using Content = std::vector<std::byte>;
// Begin and end of bytes that could not be read.
using Gaps = std::vector<std::pair<size_t, size_t>>;

struct Attributes {
  mode_t mode = 0;
  uid_t user = 0;
  std::string tag;                        // an extended attribute
  std::optional<struct timespec> set_to;  // the modification time, while nothing has moved it since it was set
  // Whether a crash may show `seen` when these are the ones.
  bool allow(const Attributes& seen) const;
};

class FileModel {
 public:
  FileModel(Content initial, Attributes attributes);

  // What readers see now, after every change that was answered.
  const Content& content() const { return *versions_[settled_].content; }
  size_t settled() const { return settled_; }
  // The last change, answered or on its way.
  size_t last() const { return versions_.size() - 1; }
  // A change to this content is being asked for. `may_show`: it may be committed whenever it is there.
  size_t coming(Content content, bool may_show);
  // What was coming was answered.
  void settle() { settled_ = last(); }
  // Any moment from now may be a consistent point, with or without what is on its way. Gives settled().
  size_t may_show();
  // It turned out that this version cannot be committed by itself.
  void must_not_show(size_t version) { versions_[version].may_show = false; }
  bool may_show_since(size_t version) const;
  // The commit of this version was acknowledged: nothing older may show.
  void acknowledge(size_t version);
  // A change of it failed in the middle: nothing is known of its content any more.
  void forget() { is_unknown_ = true; }
  // One of the consistent points from `oldest` on that are not superseded, but for the gaps.
  bool allows(const Content& content, size_t oldest = 0, const Gaps& gaps = {}) const;
  // All of those: what the last durable commit may hold. None when nothing is known.
  using Contents = std::vector<std::shared_ptr<const Content>>;
  Contents consistent_points() const;
  // Something that is not empty was committed for certain, and everything since that may have been before `end`.
  bool has_committed_content(size_t end = SIZE_MAX) const;
  std::string describe_versions() const;

  const Attributes& attributes() const { return attributes_.back(); }
  size_t attributes_version() const { return attributes_.size() - 1; }
  void set_attributes(const Attributes& attributes) { attributes_.push_back(attributes); }
  void acknowledge_attributes(size_t version) { oldest_attributes_ = std::max(oldest_attributes_, version); }
  bool allows(const Attributes& seen) const;

 private:
  struct Version {
    std::shared_ptr<const Content> content;  // null: superseded
    size_t size = 0;
    bool may_show = false;
  };
  std::vector<Version> versions_;
  size_t settled_ = 0;
  size_t acknowledged_ = 0;
  bool is_unknown_ = false;
  std::vector<Attributes> attributes_;
  size_t oldest_attributes_ = 0;
};

class Model {
 public:
  static constexpr uint64_t kAbsent = 0;
  // A file that was being made when the power went: no inode number is known, and it must be empty.
  static constexpr uint64_t kUnknownNew = UINT64_MAX;

  struct Change {
    std::string path;  // "d1/name"
    uint64_t after = kAbsent;
    // Under this name the file shows this version or a later one: what replaces content is committed before it does.
    size_t oldest_version = 0;
  };
  using Operation = size_t;

  std::shared_ptr<FileModel> file(uint64_t inode) const;
  std::shared_ptr<FileModel> add_file(uint64_t inode, Content content, const Attributes& attributes);
  const std::map<uint64_t, std::shared_ptr<FileModel>>& files() const { return files_; }
  uint64_t inode_at(const std::string& path) const;
  bool has_name(uint64_t inode) const;
  const std::map<std::string, uint64_t>& names() const { return names_; }

  // Notes a change that is about to be made. `first_name`: it gives an unnamed file its name.
  Operation begin(std::vector<Change> changes, bool first_name = false);
  // It was made (`inode`: of the file that was created by it).
  void done(Operation operation, uint64_t created_inode = kAbsent);
  Operation now() const { return operations_.size(); }
  // A sync of this directory that was asked for at `at` was acknowledged.
  void directory_synced(const std::string& directory, Operation at);
  // The names of a file that were made by creating or renaming it, from `from` on and before `at`, are durable.
  // `with_links`: and those that were made by linking it.
  void file_names_synced(uint64_t inode, Operation from, Operation at, bool with_links);
  void all_synced(Operation at);
  // The process was killed, the kernel lives: everything that was done stays.
  void killed();

  struct Seen {
    uint64_t inode = kAbsent;
    Content content;
    Gaps gaps;
    Attributes attributes;
  };
  // Compares what a new mount shows; the message says what is wrong with it.
  std::optional<std::string> check(const std::map<std::string, Seen>& shown) const;
  // What was seen is durable: the model goes on from there.
  void restart(const std::map<std::string, Seen>& seen);

 private:
  std::map<std::string, Seen> recognized(std::map<std::string, Seen> seen) const;
  struct NotedChange {
    std::string path;
    uint64_t before = kAbsent, after = kAbsent;
    size_t oldest_version = 0;
  };
  struct NotedOperation {
    std::vector<NotedChange> changes;
    bool is_done = false;
    bool durable = false;
    bool is_link = false;
  };
  // Where a name may lead, and the oldest version that the file may show there.
  std::map<uint64_t, size_t> allowed(const std::string& path) const;
  std::optional<std::string> check_name(const std::string& path, const Seen& seen) const;
  std::optional<std::string> check_rename(size_t index, const std::map<std::string, Seen>& seen) const;

  std::map<uint64_t, std::shared_ptr<FileModel>> files_;
  std::set<uint64_t> made_;                        // by operations
  std::map<std::string, uint64_t> initial_names_;  // when the mount began
  std::map<std::string, uint64_t> names_;
  std::vector<NotedOperation> operations_;
};

}  // namespace fpfs::crash
