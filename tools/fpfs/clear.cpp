// fpfs clear: the error counters of a mounted array begin anew, once what they told is dealt with.
#include <cerrno>
#include <memory>

#include "fs/interface/ioctl.h"
#include "tools/common/json_output.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kClearProgram = "fpfs clear";

Status clear(const std::string& mount_point) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(mount_point));
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor root, open_path(root_path));
  IoctlClear request;
  if (::ioctl(root.number(), FPFS_IOC_CLEAR, &request) == 0) return Status::ok();
  if (errno == EPERM)
    return Status::from_errno(EPERM, mount_point + ": only root and the user who mounted it clear its error counters");
  return explain_mount_error(errno, mount_point);
}

}  // namespace

Verb add_clear(CLI::App& fpfs) {
  auto mount_point = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = fpfs.add_subcommand("clear", "Count errors of a mounted array from 0 again");
  command->add_option("MOUNTPOINT", *mount_point, "Where the array is mounted")->required()->type_name("");
  command->add_flag("--json", *json, "One JSON object on stdout: that they were");
  command->footer(
      "The counters are those of fpfs status: of the members, of names and indexes, of healed chunks. Damage is not "
      "forgotten:\nit is counted again when it is met again. Exit code: 0, 1 failure, 16 usage");
  return {command, [mount_point, json] {
            const Status cleared = clear(*mount_point);
            if (!cleared.is_ok()) return fail(kClearProgram, kExitFailure, cleared.message());
            if (*json) print_json({{"mount_point", *mount_point}, {"cleared", true}});
            return kExitOk;
          }};
}

}  // namespace fpfs::tools
