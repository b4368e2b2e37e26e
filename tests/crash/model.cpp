#include "tests/crash/model.h"

#include <algorithm>

#include <fmt/format.h>

namespace fpfs::crash {

namespace {

std::string directory_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

std::string name_of(uint64_t inode) {
  if (inode == Model::kAbsent) return "nothing";
  if (inode == Model::kUnknownNew) return "a new file";
  return fmt::format("inode {}", inode);
}

std::string join(const std::map<uint64_t, size_t>& inodes) {
  std::string text;
  for (const auto& [inode, oldest_version] : inodes) text += (text.empty() ? "" : " or ") + name_of(inode);
  return text;
}

}  // namespace

// --- content --------------------------------------------------------------------------------------------------------

FileModel::FileModel(Content initial, Attributes attributes) : attributes_({std::move(attributes)}) {
  coming(std::move(initial), true);
}

size_t FileModel::coming(Content content, bool may_show) {
  const size_t size = content.size();
  versions_.push_back({std::make_shared<const Content>(std::move(content)), size, may_show});
  if (!attributes_.empty() && attributes_.back().set_to.has_value()) {
    attributes_.push_back(attributes_.back());
    attributes_.back().set_to.reset();
  }
  return last();
}

size_t FileModel::may_show() {
  for (size_t i = settled_; i < versions_.size(); ++i) versions_[i].may_show = true;
  return settled_;
}

bool FileModel::may_show_since(size_t version) const {
  return std::any_of(versions_.begin() + static_cast<ptrdiff_t>(version), versions_.end(),
                     [](const Version& later) { return later.may_show; });
}

void FileModel::acknowledge(size_t version) {
  for (; acknowledged_ < version; ++acknowledged_)
    if (acknowledged_ != settled_) versions_[acknowledged_].content = nullptr;
}

bool FileModel::allows(const Content& content, size_t oldest, const Gaps& gaps) const {
  if (is_unknown_) return true;
  const auto same = [&](const Version& version) {
    if (!version.may_show || version.size != content.size()) return false;
    size_t from = 0;
    const auto part_is_same = [&](size_t end) {
      return std::equal(content.begin() + static_cast<ptrdiff_t>(from), content.begin() + static_cast<ptrdiff_t>(end),
                        version.content->begin() + static_cast<ptrdiff_t>(from));
    };
    for (const auto& [begin, end] : gaps) {
      if (!part_is_same(begin)) return false;
      from = end;
    }
    return part_is_same(content.size());
  };
  const size_t first = std::max(acknowledged_, oldest);
  return std::any_of(versions_.begin() + static_cast<ptrdiff_t>(first), versions_.end(), same);
}

FileModel::Contents FileModel::consistent_points() const {
  Contents points;
  for (size_t i = acknowledged_; i < versions_.size() && !is_unknown_; ++i)
    if (versions_[i].may_show) points.push_back(versions_[i].content);
  return points;
}

bool FileModel::has_committed_content(size_t end) const {
  if (is_unknown_ || versions_[acknowledged_].size == 0) return false;
  for (size_t i = acknowledged_; i < std::min(end, versions_.size()); ++i)
    if (versions_[i].may_show && versions_[i].size == 0) return false;
  return true;
}

std::string FileModel::describe_versions() const {
  std::string text;
  for (size_t i = 0; i < versions_.size(); ++i) {
    const char* kind = i < acknowledged_ ? "superseded" : i == acknowledged_ ? "acknowledged" : "later";
    text += fmt::format("{}{} ({} bytes{})", text.empty() ? "" : ", ", kind, versions_[i].size,
                        versions_[i].may_show ? "" : ", not a consistent point");
  }
  return text;
}

bool Attributes::allow(const Attributes& seen) const {
  if (mode != seen.mode || user != seen.user || tag != seen.tag) return false;
  return !set_to.has_value() || !seen.set_to.has_value() ||
         (set_to->tv_sec == seen.set_to->tv_sec && set_to->tv_nsec == seen.set_to->tv_nsec);
}

bool FileModel::allows(const Attributes& seen) const {
  // A commit's record moves the modification time for a moment (File::keep_times()): a power cut in it leaves that of
  // the moment instead of one that was set and not synced.
  const bool commit_may_be_cut = acknowledged_ < last();
  for (size_t i = oldest_attributes_; i < attributes_.size(); ++i) {
    Attributes version = attributes_[i];
    if (commit_may_be_cut && i > oldest_attributes_) version.set_to.reset();
    if (version.allow(seen)) return true;
  }
  return false;
}

// --- names ----------------------------------------------------------------------------------------------------------

std::shared_ptr<FileModel> Model::file(uint64_t inode) const {
  const auto found = files_.find(inode);
  return found == files_.end() ? nullptr : found->second;
}

std::shared_ptr<FileModel> Model::add_file(uint64_t inode, Content content, const Attributes& attributes) {
  return files_[inode] = std::make_shared<FileModel>(std::move(content), attributes);
}

uint64_t Model::inode_at(const std::string& path) const {
  const auto found = names_.find(path);
  return found == names_.end() ? kAbsent : found->second;
}

bool Model::has_name(uint64_t inode) const {
  return std::any_of(names_.begin(), names_.end(), [inode](const auto& name) { return name.second == inode; });
}

Model::Operation Model::begin(std::vector<Change> changes, bool first_name) {
  NotedOperation operation;
  for (Change& change : changes) {
    const uint64_t before = inode_at(change.path);
    operation.changes.push_back({std::move(change.path), before, change.after, change.oldest_version});
  }
  const NotedChange& first = operation.changes.front();
  operation.is_link =
      !first_name && operation.changes.size() == 1 && first.after != kAbsent && first.after != kUnknownNew;
  operations_.push_back(std::move(operation));
  return operations_.size() - 1;
}

void Model::done(Operation index, uint64_t created_inode) {
  NotedOperation& operation = operations_[index];
  operation.is_done = true;
  for (NotedChange& change : operation.changes) {
    if (change.after == kUnknownNew) {
      change.after = created_inode;
      made_.insert(created_inode);
    }
    names_[change.path] = change.after;
  }
}

void Model::directory_synced(const std::string& directory, Operation at) {
  for (size_t i = 0; i < at; ++i)
    for (const NotedChange& change : operations_[i].changes)
      if (directory_of(change.path) == directory && operations_[i].is_done) operations_[i].durable = true;
}

void Model::file_names_synced(uint64_t inode, Operation from, Operation at, bool with_links) {
  for (size_t i = from; i < at; ++i) {
    NotedOperation& operation = operations_[i];
    for (const NotedChange& change : operation.changes)
      if (change.after == inode && (with_links || !operation.is_link) && operation.is_done) operation.durable = true;
  }
}

void Model::all_synced(Operation at) {
  for (size_t i = 0; i < at; ++i) operations_[i].durable |= operations_[i].is_done;
}

void Model::killed() {
  all_synced(operations_.size());
}

std::map<uint64_t, size_t> Model::allowed(const std::string& path) const {
  const auto initial = initial_names_.find(path);
  std::map<uint64_t, size_t> result = {{initial == initial_names_.end() ? kAbsent : initial->second, 0}};
  for (const NotedOperation& operation : operations_)
    for (const NotedChange& change : operation.changes) {
      if (change.path != path) continue;
      if (operation.durable) result.clear();
      result.try_emplace(change.after, change.oldest_version);
    }
  return result;
}

// --- after a crash --------------------------------------------------------------------------------------------------

std::optional<std::string> Model::check_name(const std::string& path, const Seen& seen) const {
  const std::map<uint64_t, size_t> expected = allowed(path);
  if (seen.inode == kAbsent && expected.contains(kAbsent)) return std::nullopt;
  const bool is_new = seen.inode != kAbsent && !files_.contains(seen.inode);
  if (!expected.contains(is_new ? kUnknownNew : seen.inode))
    return fmt::format("{} is {}, it must be {}", path, name_of(seen.inode), join(expected));
  if (is_new) {
    if (seen.content.empty()) return std::nullopt;
    return fmt::format("{} was being made when the power went and holds {} bytes", path, seen.content.size());
  }
  const FileModel& file = *files_.at(seen.inode);
  if (!file.allows(seen.attributes))
    return fmt::format("{} ({}) has the mode {:o}, the owner {} and the tag '{}', which were superseded", path,
                       name_of(seen.inode), seen.attributes.mode, seen.attributes.user, seen.attributes.tag);
  if (file.allows(seen.content, expected.at(seen.inode), seen.gaps)) return std::nullopt;
  return fmt::format("{} ({}) holds {} bytes that are no version it may show; versions: {}", path, name_of(seen.inode),
                     seen.content.size(), file.describe_versions());
}

// A rename that is the last change of both its names, of names that were durable before.
std::optional<std::string> Model::check_rename(size_t index, const std::map<std::string, Seen>& seen) const {
  const NotedOperation& operation = operations_[index];
  if (operation.changes.size() != 2) return std::nullopt;
  const NotedChange& away = operation.changes[0];
  const NotedChange& there = operation.changes[1];
  const bool exchanges = away.after != kAbsent;
  bool was_durable = initial_names_.contains(away.path);
  bool there_was_durable = initial_names_.contains(there.path);
  for (size_t i = 0; i < operations_.size(); ++i)
    for (const NotedChange& change : operations_[i].changes) {
      if (i > index && (change.path == away.path || change.path == there.path)) return std::nullopt;
      if (i < index && change.path == away.path) was_durable = operations_[i].durable;
      if (i < index && change.path == there.path) there_was_durable = operations_[i].durable;
    }
  if (!was_durable || (exchanges && !there_was_durable)) return std::nullopt;
  const auto inode_seen = [&seen](const std::string& path) {
    const auto found = seen.find(path);
    return found == seen.end() ? kAbsent : found->second.inode;
  };
  const bool left = inode_seen(away.path) != there.after;
  const bool arrived = inode_seen(there.path) == there.after;
  if (left == arrived) return std::nullopt;
  return fmt::format("the rename of {} to {} happened by half", away.path, there.path);
}

// A small file that was made and saved moments before the power went may be made again by recovery: then another inode has
// its name, and all that it is to have.
std::map<std::string, Model::Seen> Model::recognized(std::map<std::string, Seen> seen) const {
  std::set<uint64_t> taken;
  for (const auto& [path, what] : seen) taken.insert(what.inode);
  for (auto& [path, what] : seen) {
    if (what.inode == kAbsent || files_.contains(what.inode)) continue;
    const std::map<uint64_t, size_t> expected = allowed(path);
    if (expected.contains(kUnknownNew) && what.content.empty()) continue;  // it was being made
    for (const auto& [inode, oldest] : expected) {
      if (!made_.contains(inode) || taken.contains(inode)) continue;
      const FileModel& file = *files_.at(inode);
      if (!file.allows(what.attributes) || !file.allows(what.content, oldest, what.gaps)) continue;
      what.inode = inode;
      taken.insert(inode);
      break;
    }
  }
  return seen;
}

std::optional<std::string> Model::check(const std::map<std::string, Seen>& shown) const {
  const std::map<std::string, Seen> seen = recognized(shown);
  std::set<std::string> paths;
  for (const auto& [path, inode] : initial_names_) paths.insert(path);
  for (const NotedOperation& operation : operations_)
    for (const NotedChange& change : operation.changes) paths.insert(change.path);
  for (const auto& [path, what] : seen)
    if (!paths.contains(path)) return fmt::format("{} exists and was never made", path);
  for (const std::string& path : paths) {
    const auto found = seen.find(path);
    if (auto wrong = check_name(path, found == seen.end() ? Seen{} : found->second)) return wrong;
  }
  for (size_t i = 0; i < operations_.size(); ++i)
    if (auto wrong = check_rename(i, seen)) return wrong;
  return std::nullopt;
}

void Model::restart(const std::map<std::string, Seen>& seen) {
  files_.clear();
  made_.clear();
  names_.clear();
  operations_.clear();
  for (const auto& [path, what] : seen) {
    names_[path] = what.inode;
    if (!files_.contains(what.inode)) add_file(what.inode, what.content, what.attributes);
  }
  initial_names_ = names_;
}

}  // namespace fpfs::crash
