// fpfs sync: returns when files, or everything under a mount point, are committed, and with --tier copied.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/shell_word.h"
#include "fs/interface/ioctl.h"
#include "tools/common/progress.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/tier_call.h"
#include "tools/fpfs/tier_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kSyncProgram = "fpfs sync";

struct SyncOptions {
  std::vector<std::string> paths;
  bool tier = false;
  bool json = false;
  unsigned timeout_s = 0;
  bool has_timeout = false;
};

// Open for writing where that is allowed: who may write a file may have it committed. Writes nothing.
Result<FileDescriptor> open_to_sync(const std::string& path) {
  const int writable = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (writable >= 0) return FileDescriptor(writable);
  return open_path(path);
}

// What was committed before is there; nothing more will be.
Status explain_read_only(const std::string& path, const std::string& root) {
  const Result<Json> status = read_mount_status(root);
  const std::string reason = status.is_ok() ? text_at(object_at(*status, "array"), "read_only_reason") : "";
  return Status::from_errno(
      EROFS, fmt::format("{}: nothing more can be committed: {}; unmount, look at the drive, run fsck.fastpersistfs",
                         path, reason.empty() ? "the array is read-only" : one_line(reason)));
}

// Adds what was left alone, because somebody is in the middle of writing it.
Status sync(const FileDescriptor& file, const std::string& path, const std::string& root,
            std::vector<std::string>& left_alone) {
  auto question = std::make_unique<IoctlSync>();
  if (::ioctl(file.number(), FPFS_IOC_SYNC, question.get()) != 0) {
    if (errno == EPERM)
      return Status::error(StatusCode::kPermission,
                           path + ": only root, who mounted it, and who may write a file can have it committed");
    if (errno == EIO)
      return Status::from_errno(EIO, path +
                                         ": something of it could not be committed; the daemon's log says of which "
                                         "file and why, and fpfs status " +
                                         shell_word(root) + " which member");
    if (errno == EROFS) return explain_read_only(path, root);
    return explain_mount_error(errno, path);
  }
  const char* name = question->paths;
  const char* const end = name + sizeof question->paths;
  for (uint32_t i = 0; i < question->left_alone && name < end && *name != '\0'; ++i) {
    left_alone.push_back(root + name);
    name += ::strnlen(name, static_cast<size_t>(end - name)) + 1;
  }
  while (left_alone.size() < question->left_alone) left_alone.push_back("one more file");
  return Status::ok();
}

// A directory stands for everything in its mount: names and files under it may be dirty through other names.
Status sync_path(const std::string& path, const SyncOptions& options, std::vector<std::string>& left_alone) {
  struct stat attributes {};
  if (::stat(path.c_str(), &attributes) != 0) return explain_mount_error(errno, path);
  FPFS_ASSIGN_OR_RETURN(std::string root_path, mount_root_of(path));
  FPFS_ASSIGN_OR_RETURN(FileDescriptor file, S_ISDIR(attributes.st_mode) ? open_path(root_path) : open_to_sync(path));
  FPFS_RETURN_IF_ERROR(sync(file, path, root_path, left_alone));
  if (!options.tier) return Status::ok();
  auto question = std::make_unique<IoctlTier>();
  question->command = IoctlTier::kWait;
  ProgressLine progress;
  return call_tier(file, *question, path, options.timeout_s, [&progress, &root_path] {
    if (!progress.is_due()) return;
    if (const Result<Json> tier = read_tier_status(root_path); tier.is_ok())
      progress.show(describe_tier_progress(*tier));
  });
}

int run(const SyncOptions& options) {
  if (options.has_timeout && !options.tier)
    return fail(kSyncProgram, kExitUsage,
                "--timeout goes with --tier; a commit ends by itself, after io_timeout at most");
  int exit_code = kExitOk;
  Json errors = Json::array(), being_written = Json::array();
  for (const std::string& path : options.paths) {
    std::vector<std::string> left_alone;
    if (Status status = sync_path(path, options, left_alone); !status.is_ok()) {
      exit_code = fail(kSyncProgram, kExitFailure, status.message());
      errors.push_back({{"path", path}, {"detail", status.message()}});
    }
    for (const std::string& file : left_alone) {
      exit_code = fail(kSyncProgram, kExitFailure,
                       file + ": somebody is writing it and has not closed it; not committed, closing it does");
      being_written.push_back(file);
    }
  }
  if (options.json)
    print_json({{"synced", exit_code == kExitOk}, {"being_written", being_written}, {"errors", errors}});
  return exit_code;
}

}  // namespace

Verb add_sync(CLI::App& fpfs) {
  auto options = std::make_shared<SyncOptions>();
  CLI::App* command = fpfs.add_subcommand("sync", "Return when files, or everything in a mount, are committed");
  command->add_option("PATH", options->paths, "Files; a directory means its whole mount")->required()->type_name("");
  command->add_flag("--tier", options->tier, "Return when they are copied to the store outside this machine, too");
  CLI::Option* timeout = command
                             ->add_option("--timeout", options->timeout_s,
                                          "With --tier: give up waiting after so many seconds (default 0: never)")
                             ->type_name("SECONDS")
                             ->check(CLI::Range(0U, 86400U * 365U));
  command->add_flag("--json", options->json, "Print one JSON object");
  return {command, [options, timeout] {
            options->has_timeout = timeout->count() > 0;
            return run(*options);
          }};
}

}  // namespace fpfs::tools
