// fpfs umount: unmounts, and returns when the daemon has committed everything and ended. umount.fastpersistfs calls it
// for umount(8).
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "fs/interface/mount_point.h"
#include "tools/common/json_output.h"
#include "tools/fpfs/end_wait.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kUmountProgram = "fpfs umount";

struct UmountOptions {
  std::string mount_point;
  bool lazy = false;
  bool force = false;
  bool json = false;
};

// By the directory above: looking at the mount itself would wait for its daemon.
std::string without_looking_at(const std::string& path) {
  const std::filesystem::path given(path.ends_with('/') && path.size() > 1 ? path.substr(0, path.size() - 1) : path);
  const std::filesystem::path name = given.filename();
  std::error_code error;
  if (name.empty() || name == "." || name == "..") return std::filesystem::canonical(given, error).string();
  const std::filesystem::path parent = given.has_parent_path() ? given.parent_path() : std::filesystem::path(".");
  return (std::filesystem::canonical(parent, error) / name).string();
}

Result<MountEntry> find_mount(const std::string& path) {
  std::optional<MountEntry> entry = topmost_at(without_looking_at(path));
  if (!entry) {
    FPFS_ASSIGN_OR_RETURN(const std::string resolved, resolve(path));
    entry = topmost_at(resolved);
  }
  if (!entry || entry->type != kFilesystemType)
    return Status::error(StatusCode::kInvalidArgument, path + ": no fastpersistfs is mounted there");
  return *std::move(entry);
}

// What the kernel has for a mount, wherever it shows: there from its beginning to its end, and another one, by its
// inode number, when another mount gets the device. Empty when the kernel knows no mount by that device.
std::optional<ino_t> kernel_object_of(const MountEntry& mount) {
  struct stat attributes {};
  if (::stat(("/sys/class/bdi/" + mount.device()).c_str(), &attributes) != 0) return std::nullopt;
  return attributes.st_ino;
}

int note(int exit_code, const MountEntry& entry, const char* text) {
  return fail(kUmountProgram, exit_code, fmt::format("{}: {}", entry.mount_point, text));
}

// Nothing is lost by detaching it from those who use it: they get errors already.
int remove_dead(const MountEntry& entry) {
  const Status detached = detach_mount(entry.mount_point);
  if (!detached.is_ok()) return fail(kUmountProgram, kExitFailure, detached.message());
  return note(kExitOk, entry,
              "its daemon had ended (killed, or crashed; see its log and dmesg); the dead mount is removed: mount the "
              "array again, which recovers it");
}

int run(const UmountOptions& options) {
  const Result<MountEntry> entry = find_mount(options.mount_point);
  if (!entry.is_ok()) return fail(kUmountProgram, kExitFailure, entry.status().message());
  if (!options.force && is_dead(*entry)) return remove_dead(*entry);
  const std::optional<ino_t> object = kernel_object_of(*entry);
  Result<EndWait> end = EndWait::begin(*entry);
  const Status unmounted = unmount(entry->mount_point, options.lazy, options.force);
  if (!unmounted.is_ok()) return fail(kUmountProgram, kExitFailure, unmounted.message());
  if (options.lazy)
    return note(kExitOk, *entry,
                "detached; what still has files open there goes on, and the daemon ends after it: not waited for");
  if (object && kernel_object_of(*entry) == object)
    return note(kExitOk, *entry, "unmounted; it is mounted at another place, too, so its daemon goes on");
  if (!end.is_ok())
    return note(kExitOk, *entry,
                "unmounted; no daemon answers (it is of an older release or of another network namespace), so none was "
                "waited for");
  const Result<std::string> ended = end->finish(kUmountProgram);
  if (!ended.is_ok())
    return fail(kUmountProgram, kExitFailure,
                fmt::format("{}: unmounted, but {}", entry->mount_point, ended.status().message()));
  return ended->empty() ? kExitOk : note(kExitOk, *entry, ("unmounted; " + *ended).c_str());
}

}  // namespace

Verb add_umount(CLI::App& fpfs) {
  auto options = std::make_shared<UmountOptions>();
  CLI::App* command =
      fpfs.add_subcommand("umount", "Unmount, and return when everything is committed and the daemon has ended");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  command->add_flag("-l,--lazy", options->lazy, "Detach it from the directory tree now; does not wait");
  command->add_flag("-f,--force", options->force, "End its requests with errors, when its daemon does not answer");
  command->add_flag("--json", options->json,
                    "One JSON object on stdout: that it was; what else there is to say on stderr");
  return {command, [options] {
            const int code = run(*options);
            if (options->json && code == kExitOk)
              print_json({{"mount_point", options->mount_point}, {"unmounted", true}, {"lazy", options->lazy}});
            return code;
          }};
}

}  // namespace fpfs::tools
