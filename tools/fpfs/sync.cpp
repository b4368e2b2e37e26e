// fpfs sync: returns when files, or everything under a mount point, are committed.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "fs/ioctl.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kProgram = "fpfs sync";

struct Options {
  std::vector<std::string> paths;
};

// A directory stands for everything in its mount: names and files under it may be dirty through other names.
Status sync_path(const std::string& path) {
  FPFS_ASSIGN_OR_RETURN(FileDescriptor file, open_path(path));
  struct stat attributes {};
  if (::fstat(file.number(), &attributes) != 0) return explain_mount_error(errno, path);
  if (!S_ISDIR(attributes.st_mode))
    return ::fsync(file.number()) == 0 ? Status::ok() : explain_mount_error(errno, path);
  FPFS_ASSIGN_OR_RETURN(std::string root_path, mount_root_of(path));
  FPFS_ASSIGN_OR_RETURN(FileDescriptor root, open_path(root_path));
  return ::ioctl(root.number(), FPFS_IOC_SYNC_ALL) == 0 ? Status::ok() : explain_mount_error(errno, path);
}

int run(const Options& options) {
  int exit_code = kExitOk;
  for (const std::string& path : options.paths)
    if (Status status = sync_path(path); !status.is_ok()) exit_code = fail(kProgram, kExitFailure, status.message());
  return exit_code;
}

}  // namespace

Verb add_sync(CLI::App& fpfs) {
  auto options = std::make_shared<Options>();
  CLI::App* command = fpfs.add_subcommand("sync", "Return when files, or everything in a mount, are committed");
  command->add_option("PATH", options->paths, "Files; a directory means its whole mount")->required()->type_name("");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
