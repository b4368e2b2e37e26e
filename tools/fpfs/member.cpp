// fpfs member: which directories a mounted array lies on, and new ones for it.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "tools/common/table.h"
#include "tools/fpfs/member_call.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kMemberProgram = "fpfs member";

struct MemberOptions {
  std::string action;
  std::string mount_point;
  std::vector<std::string> directories;
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
                       {"space_total", number_at(member, "space_total")},
                       {"space_free", number_at(member, "space_free")}});
  return Json{{"array", text_at(object_at(status, "array"), "id")},
              {"mountpoint", text_at(status, "mountpoint")},
              {"members", std::move(members)}};
}

std::string describe_list(const Json& list) {
  Table table;
  table.add_column("MEMBER", Table::Align::kRight);
  table.add_column("PATH", Table::Align::kLeft);
  table.add_column("STATE", Table::Align::kLeft);
  table.add_column("SIZE", Table::Align::kRight);
  table.add_column("FREE", Table::Align::kRight);
  table.add_column("ID", Table::Align::kLeft);
  for (const Json& member : array_at(list, "members")) {
    const std::string id = text_at(member, "id");
    table.add_row({fmt::format("{}", number_at(member, "index")), text_at(member, "path", "-"),
                   text_at(member, "state", "-"), format_size(number_at(member, "space_total")),
                   format_size(number_at(member, "space_free")), id.empty() ? "-" : id});
  }
  return table.text();
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
  question.command = IoctlMembers::kAdd;
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

int run(const MemberOptions& options) {
  if (options.action == "remove" || options.action == "replace")
    return fail(
        kMemberProgram, kExitUsage,
        fmt::format("members cannot be {}d in this version: copy the member to another drive while the array is "
                    "not mounted, or the files to another array (docs/operations.md, Moving an array)",
                    options.action));
  if (options.action == "list" && !options.directories.empty())
    return fail(kMemberProgram, kExitUsage, "list takes no directories (see fpfs member --help)");
  if (options.action == "add" && options.directories.empty())
    return fail(kMemberProgram, kExitUsage, "add needs the directories that are to become members");
  if (options.action == "add") {
    const auto question = std::make_unique<IoctlMembers>();
    if (const Status put = put_paths(options.directories, *question); !put.is_ok())
      return fail(kMemberProgram, kExitUsage, put.message());
    if (const Status outside = check_outside(options.mount_point, options.directories); !outside.is_ok())
      return fail(kMemberProgram, kExitFailure, outside.message());
    if (const Status added = call_members(options.mount_point, *question); !added.is_ok())
      return fail(kMemberProgram, kExitFailure, added.message());
  }
  const Result<Json> list = read_members(options.mount_point);
  if (!list.is_ok()) return fail(kMemberProgram, kExitFailure, list.status().message());
  if (options.json) {
    print_json(*list);
    return kExitOk;
  }
  fmt::print("{}", describe_list(*list));
  if (options.action == "list") return kExitOk;
  std::string directories;
  for (const Json& member : array_at(*list, "members"))
    directories += (directories.empty() ? "" : ":") + text_at(member, "path");
  fmt::print(
      "From now on the array is mounted with {}\n"
      "New files use all members. What is stored already stays where it is until: fpfs rebalance {}\n",
      directories, options.mount_point);
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
  question.message[sizeof question.message - 1] = '\0';
  return Status::error(StatusCode::kInvalidArgument, fmt::format("{}: {}", mount_point, question.message));
}

Verb add_member(CLI::App& fpfs) {
  auto options = std::make_shared<MemberOptions>();
  CLI::App* command = fpfs.add_subcommand("member", "List the members of a mounted array, or add some");
  command->add_option("ACTION", options->action, "What to do")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"list", "add", "remove", "replace"}));
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command
      ->add_option("DIR", options->directories, "add: empty directories on the new drives; made when they are missing")
      ->type_name("");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Members are added while the array is in use; a crash leaves all of the new ones or none. Members cannot be\n"
      "removed or replaced in this version. Exit code: 0, 1 failure, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
