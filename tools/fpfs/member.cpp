// fpfs member: which directories a mounted array lies on; new ones for it, and those that it is to do without.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "tools/common/placement_warnings.h"
#include "tools/common/table.h"
#include "tools/fpfs/member_call.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/moving_view.h"
#include "tools/fpfs/status_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kMemberProgram = "fpfs member";

struct MemberOptions {
  std::string action;
  std::string mount_point;
  std::vector<std::string> directories;
  uint64_t limit = 0;
  bool cancel = false;
  bool json = false;
};

Result<Json> read_members(const std::string& mount_point) {
  FPFS_ASSIGN_OR_RETURN(const Json status, read_mount_status(mount_point));
  Json members = Json::array();
  for (const Json& member : array_at(status, "members"))
    members.push_back({{"index", number_at(member, "index")},
                       {"path", text_at(member, "path")},
                       {"id", text_at(member, "id")},
                       {"state", text_at(member, "state")},
                       {"leaving", flag_at(member, "leaving")},
                       {"space_total", member.value("space_total", Json())},
                       {"space_free", member.value("space_free", Json())}});
  return Json{{"array", text_at(object_at(status, "array"), "id")},
              {"mountpoint", text_at(status, "mountpoint")},
              {"members", std::move(members)}};
}

std::string describe_list(const Json& list) {
  Table table;
  table.add_column("MEMBER", Table::Align::kRight);
  table.add_column("PATH", Table::Align::kLeft, Table::Fit::kShortened);
  table.add_column("STATE", Table::Align::kLeft);
  table.add_column("SIZE", Table::Align::kRight);
  table.add_column("FREE", Table::Align::kRight);
  table.add_column("ID", Table::Align::kLeft, Table::Fit::kOmitted);
  for (const Json& member : array_at(list, "members")) {
    const std::string id = text_at(member, "id"), path = text_at(member, "path");
    table.add_row({fmt::format("{}", number_at(member, "index")), path.empty() ? "-" : path,
                   text_at(member, "state", "-"), size_text(member, "space_total"), size_text(member, "space_free"),
                   id.empty() ? "-" : id});
  }
  return table.text(columns_of(STDOUT_FILENO));
}

// As the daemon, which has another working directory, finds them.
Status put_paths(const std::vector<std::string>& directories, IoctlMembers& question) {
  size_t at = 0;
  for (const std::string& directory : directories) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(directory, error).lexically_normal().string();
    if (error || directory.empty() || path.find(':') != std::string::npos)
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("'{}' names no directory that an array can have", directory));
    if (at + path.size() + 1 > sizeof question.paths)
      return Status::error(StatusCode::kInvalidArgument, "the directories' names are too long for one call; add fewer");
    std::memcpy(question.paths + at, path.c_str(), path.size() + 1);
    at += path.size() + 1;
  }
  question.count = static_cast<uint32_t>(directories.size());
  return Status::ok();
}

// The daemon would wait for itself.
Status check_outside(const std::string& mount_point, const std::vector<std::string>& directories) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(mount_point));
  struct stat root {};
  if (::stat(root_path.c_str(), &root) != 0) return explain_mount_error(errno, mount_point);
  for (const std::string& directory : directories) {
    std::error_code error;
    std::filesystem::path there = std::filesystem::absolute(directory, error);
    struct stat attributes {};
    while (::stat(there.c_str(), &attributes) != 0 && there.has_relative_path()) there = there.parent_path();
    if (attributes.st_dev == root.st_dev)
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("{} lies in the mount itself; give a directory on a drive", directory));
  }
  return Status::ok();
}

// Why these words do not make a call; ok: they do.
Status check_words(const MemberOptions& options) {
  const auto refuse = [](std::string what) { return Status::error(StatusCode::kInvalidArgument, std::move(what)); };
  const std::string& action = options.action;
  const size_t count = options.directories.size();
  if (action == "list" && count > 0) return refuse("list takes no directories (see fpfs member --help)");
  if (action == "add" && count == 0) return refuse("add needs the directories that are to become members");
  if (action == "remove" && count != 1) return refuse("remove needs the directory of one member");
  if (action == "replace" && count != 2)
    return refuse("replace needs two directories: that of the member, and the one that is to take its place");
  if (options.cancel && action != "remove")
    return refuse("--cancel goes with remove, also of a replacement: fpfs member remove --cancel MOUNTPOINT DIR");
  if (options.limit > 0 && action != "remove" && action != "replace")
    return refuse("--limit goes with remove and replace, which move what is stored (see fpfs member --help)");
  return Status::ok();
}

Status change(const MemberOptions& options) {
  const auto question = std::make_unique<IoctlMembers>();
  FPFS_RETURN_IF_ERROR(put_paths(options.directories, *question));
  question->command = options.action == "add"       ? IoctlMembers::kAdd
                      : options.action == "replace" ? IoctlMembers::kReplace
                      : options.cancel              ? IoctlMembers::kTakeBack
                                                    : IoctlMembers::kRemove;
  question->limit = options.limit;
  FPFS_RETURN_IF_ERROR(check_outside(options.mount_point, options.directories));
  return call_members(options.mount_point, *question);
}

std::string mount_list(const Json& list) {
  std::string directories;
  for (const Json& member : array_at(list, "members"))
    if (text_at(member, "state") != "removed")
      directories += (directories.empty() ? "" : ":") + text_at(member, "path");
  return directories;
}

bool is_same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

// All that are leaving go together. Those that this call does not name.
std::vector<std::string> others_leaving(const MemberOptions& options) {
  const Result<Json> list = read_members(options.mount_point);
  std::vector<std::string> others = list.is_ok() ? leaving_members(*list) : std::vector<std::string>();
  std::erase_if(others,
                [&options](const std::string& other) { return is_same_directory(other, options.directories.front()); });
  return others;
}

void tell_of(const std::vector<std::string>& others, const MemberOptions& options) {
  for (const std::string& other : others)
    note(kMemberProgram,
         fmt::format("note: {1} goes with it: its removal was begun before and did not end. To keep it: fpfs member "
                     "remove --cancel {0} {2}",
                     shell_word(options.mount_point), other, shell_word(other)));
}

std::string how_to_go_on(const MemberOptions& options) {
  return fmt::format("fpfs member remove {0} {1} goes on with it, and fpfs member remove --cancel {0} {1} keeps it",
                     shell_word(options.mount_point), shell_word(options.directories.front()));
}

// Waits for what the removal moves. Interrupted, it ends there.
Result<Json> follow_removal(const MemberOptions& options) {
  Result<Json> moved = follow_moving(options.mount_point);
  if (moved.is_ok()) return moved;
  // Unmounted, or its daemon is gone.
  if (moved.status().code() != StatusCode::kCancelled)
    return Status::error(moved.status().code(),
                         fmt::format("{}; it ended before the removal did, so {} is leaving still: when the array is "
                                     "mounted again, {}",
                                     moved.status().message(), options.directories.front(), how_to_go_on(options)));
  const auto question = std::make_unique<IoctlMembers>();
  question->command = IoctlMembers::kCancel;
  static_cast<void>(call_members(options.mount_point, *question));  // it may have ended meanwhile
  return Status::error(StatusCode::kCancelled, fmt::format("interrupted; nothing new goes to {}: {}",
                                                           options.directories.front(), how_to_go_on(options)));
}

// It is no member that is leaving, but one that stays.
bool stays(const Json& list, const std::string& directory) {
  const std::string path = std::filesystem::absolute(directory).lexically_normal().string();
  const Json& members = array_at(list, "members");
  return std::any_of(members.begin(), members.end(), [&](const Json& member) {
    const std::string there = text_at(member, "path");
    return text_at(member, "state") != "removed" && !flag_at(member, "leaving") &&
           (there == path || is_same_directory(there, directory));
  });
}

// Of the new ones, beside those that there are.
void warn_of_placement(const MemberOptions& options, const Json& list) {
  std::vector<std::string> directories;
  const size_t added = options.action == "replace" ? 1 : options.directories.size();
  for (const Json& member : array_at(list, "members"))
    if (text_at(member, "state") != "removed") directories.push_back(text_at(member, "path"));
  for (const std::string& warning :
       placement_warnings(directories, directories.size() - std::min(added, directories.size())))
    note(kMemberProgram, "warning: " + warning);
}

int run(const MemberOptions& options) {
  if (const Status words = check_words(options); !words.is_ok())
    return fail(kMemberProgram, kExitUsage, words.message());
  const bool moves = options.action == "replace" || (options.action == "remove" && !options.cancel);
  // Before it begins: it may be over in a moment.
  const std::vector<std::string> others = moves ? others_leaving(options) : std::vector<std::string>();
  if (options.action != "list")
    if (const Status changed = change(options); !changed.is_ok())
      return fail(kMemberProgram, kExitFailure, changed.message());
  Json moved;
  if (moves) {
    tell_of(others, options);
    Result<Json> followed = follow_removal(options);
    if (!followed.is_ok()) return fail(kMemberProgram, kExitFailure, followed.status().message());
    moved = *std::move(followed);
  }
  Result<Json> list = read_members(options.mount_point);
  if (!list.is_ok()) return fail(kMemberProgram, kExitFailure, list.status().message());
  if (moves) (*list)["moved"] = moved;
  if (options.action == "add" || options.action == "replace") warn_of_placement(options, *list);
  if (options.json)
    print_json(*list);
  else
    fmt::print("{}", describe_list(*list));
  // Whoever goes on by the exit code may be about to format it.
  if (moves && stays(*list, options.directories.front()))
    return fail(kMemberProgram, kExitFailure,
                fmt::format("{} is a member, and stays one: meanwhile its removal was cancelled (fpfs member remove "
                            "--cancel); the array is mounted with {}",
                            options.directories.front(), shell_word(mount_list(*list))));
  const bool is_left = moves && !leaving_members(*list).empty();
  if (is_left && text_at(moved, "state") != "finished")
    return fail(kMemberProgram, kExitFailure, fmt::format("{}; {}", why_it_ended(moved), how_to_go_on(options)));
  if (is_left) {
    const uint64_t left = number_at(moved, "chunks_left");
    if (!options.json) fmt::print("{}", describe_left(moved));
    const char* const reasons = options.json ? "under \"left\"" : "above";
    return fail(
        kMemberProgram, kExitFailure,
        fmt::format(
            "{}; {}",
            left > 0 ? fmt::format("{} {} where {} for the reasons {}", format_count(left, "chunk"),
                                   one_or_many(left, "stays", "stay"), one_or_many(left, "it is", "they are"), reasons)
            : array_at(moved, "left").empty() ? std::string("something was left on it a moment ago")
                                              : fmt::format("it is a member still, for the reasons {}", reasons),
            how_to_go_on(options)));
  }
  if (options.json || options.action == "list") return kExitOk;
  fmt::print("From now on the array is mounted with {}\n", shell_word(mount_list(*list)));
  if (options.action == "add")
    fmt::print("New files use all members. What is stored already stays where it is until: fpfs rebalance {}\n",
               shell_word(options.mount_point));
  return kExitOk;
}

}  // namespace

Status call_members(const std::string& mount_point, IoctlMembers& question) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(mount_point));
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor root, open_path(root_path));
  if (::ioctl(root.number(), FPFS_IOC_MEMBERS, &question) != 0) {
    if (errno == EPERM)
      return Status::from_errno(EPERM, mount_point + ": only root and the user who mounted it change its members");
    // It is ours, and does not know of members that are added.
    if (errno == ENOTTY && check_mounted(mount_point).is_ok()) return explain_mount_error(EPROTO, mount_point);
    return explain_mount_error(errno, mount_point);
  }
  if (question.error == 0) return Status::ok();
  // Adding goes beside it: what is busy then is something else.
  if (question.error == EBUSY && question.command != IoctlMembers::kAdd)
    if (const Result<Json> moving = read_rebalance_status(mount_point);
        moving.is_ok() && text_at(*moving, "state") == "running") {
      const Result<Json> status = read_mount_status(mount_point);
      const std::vector<std::string> leaving = status.is_ok() ? leaving_members(*status) : std::vector<std::string>();
      return Status::error(StatusCode::kBusy, describe_under_way(*moving, leaving, mount_point));
    }
  question.message[sizeof question.message - 1] = '\0';
  return Status::error(StatusCode::kInvalidArgument, fmt::format("{}: {}", mount_point, question.message));
}

Verb add_member(CLI::App& fpfs) {
  auto options = std::make_shared<MemberOptions>();
  CLI::App* command = fpfs.add_subcommand("member", "List, add, remove or replace the members of a mounted array");
  command->add_option("ACTION", options->action, "What to do")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"list", "add", "remove", "replace"}));
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command
      ->add_option("DIR", options->directories,
                   "add: empty directories on the new drives; made when they are missing. remove: the directory of a "
                   "member. replace: that, and the one that takes its place")
      ->type_name("");
  add_size_option(*command, "--limit", options->limit,
                  "remove, replace: move at most this many bytes per second (200M); 0: no limit");
  command->add_flag("--cancel", options->cancel, "remove: the member stays, with what is on it still");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "All of it while the array is in use. A crash leaves all of the new members or none. What a member holds is "
      "moved\n"
      "to the others before it is removed; when that is interrupted, nothing new goes to it, and the same command\n"
      "(remove, also of a replacement) goes on. Exit code: 0, 1 failure or it is a member still, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
