#include "fs/operations/members.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fs/operations/privileges.h"
#include "fs/operations/reply.h"

namespace fpfs::operations {
namespace {

// `wanted`: how many there must be; 0: any.
Result<std::vector<std::string>> paths_of(const IoctlMembers& question, uint32_t wanted = 0) {
  std::vector<std::string> paths;
  size_t at = 0;
  while (paths.size() < question.count && at < sizeof question.paths) {
    const size_t length = ::strnlen(question.paths + at, sizeof question.paths - at);
    paths.emplace_back(question.paths + at, length);
    at += length + 1;
    if (length == 0 || paths.back().front() != '/' || at > sizeof question.paths) break;
  }
  const bool are_whole = at <= sizeof question.paths && !paths.empty() && paths.size() == question.count &&
                         (wanted == 0 || wanted == question.count) && !paths.back().empty() &&
                         paths.back().front() == '/';
  if (are_whole) return paths;
  return Status::error(StatusCode::kInvalidArgument, "the directories are not given as absolute paths");
}

Status run_command(FileSystem& file_system, const IoctlMembers& question) {
  switch (question.command) {
    case IoctlMembers::kAdd: {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, paths_of(question));
      return file_system.store().add_members(paths);
    }
    case IoctlMembers::kRemove: {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, paths_of(question, 1));
      FPFS_RETURN_IF_ERROR(file_system.rebalance().may_start());
      FPFS_RETURN_IF_ERROR(file_system.store().remove_member(paths[0]));
      return file_system.rebalance().start(question.limit, true);
    }
    case IoctlMembers::kReplace: {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, paths_of(question, 2));
      FPFS_RETURN_IF_ERROR(file_system.rebalance().may_start());
      FPFS_RETURN_IF_ERROR(file_system.store().replace_member(paths[0], paths[1]));
      return file_system.rebalance().start(question.limit, true);
    }
    case IoctlMembers::kTakeBack: {
      FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, paths_of(question, 1));
      if (const Rebalance::Report now = file_system.rebalance().report();
          now.is_removal && now.state.phase == PassState::Phase::kRunning)
        FPFS_RETURN_IF_ERROR(file_system.rebalance().cancel());
      return file_system.store().take_back_member(paths[0]);
    }
    case IoctlMembers::kRebalance:
      return file_system.rebalance().start(question.limit);
    case IoctlMembers::kCancel:
      return file_system.rebalance().cancel();
    default:
      return Status::error(StatusCode::kInvalidArgument, "unknown command to the members");
  }
}

}  // namespace

// Off the workers: directories are made and synced, and cancelling waits for the chunks in flight.
void members_of_mount(fuse_req_t request, fuse_ino_t node, const IoctlMembers& question) {
  if (node != InodeTable::kRootNode || !owns_mount(request)) {
    fuse_reply_err(request, node != InodeTable::kRootNode ? ENOTTY : EPERM);
    return;
  }
  const auto answer = std::make_shared<IoctlMembers>(question);
  file_system_of(request).run_in_background([request, answer] {
    const Status status = run_command(file_system_of(request), *answer);
    answer->error = status.errno_value();
    const std::string message = status.is_ok() ? "" : status.message().substr(0, sizeof answer->message - 1);
    std::memcpy(answer->message, message.c_str(), message.size() + 1);
    fuse_reply_ioctl(request, 0, answer.get(), sizeof *answer);
  });
}

}  // namespace fpfs::operations
