// The mount point: is it fit to be mounted over, which mounts are there, and how one is taken away.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace fpfs {

constexpr const char* kFilesystemType = "fuse.fastpersistfs";

struct MountEntry {
  std::string mount_point;
  std::string type;
  std::string source;
  unsigned device_major = 0, device_minor = 0;
  unsigned owner = 0;  // of a FUSE mount: the user who mounted it

  std::string device() const { return std::to_string(device_major) + ":" + std::to_string(device_minor); }  // "0:57"
};

// The lines of /proc/self/mountinfo, in mount order; lines that cannot be read as such are left out. Pure.
std::vector<MountEntry> parse_mount_table(const std::string& mountinfo);
// The mounts of this process's namespace; empty when /proc is not there.
std::vector<MountEntry> read_mount_table();

// Refuses, each with one line that says what to do: no directory, a mount of this filesystem there already (or one
// whose daemon is gone), a directory that holds something (unless `nonempty`), a directory in a member of the array.
// `mount_point` is absolute and free of links, `members` are absolute. Changes nothing.
Status check_mount_point(const std::string& mount_point, const std::vector<std::string>& members, bool nonempty);

// The mount at exactly this path, of whatever filesystem, the one that shows; or the uppermost of those of one type.
std::optional<MountEntry> topmost_at(const std::string& mount_point, std::string_view type = {});

// Some mount of this filesystem shows `source` as its source.
bool is_source_mounted(const std::string& source);

// The daemon of this mount has ended: whoever uses the mount gets ENOTCONN. Does not wait for a daemon that hangs.
bool is_dead(const MountEntry& mount);

// Detaches the mount: by umount2(MNT_DETACH), or fusermount3 where that needs privileges this process lacks.
Status detach_mount(const std::string& mount_point);

// Unmounts, likewise. `lazy`: also while it is in use; `force`: its requests end with errors first (root only).
Status unmount(const std::string& mount_point, bool lazy, bool force);

// The most that the kernel puts into one request, in bytes (fs.fuse.max_pages_limit; kernels before 6.13: 1 MiB).
uint64_t request_bytes_limit();

// Lets reads and page faults of mapped files read this far ahead (default of the kernel: 128 KiB, which makes mapping a
// checkpoint many times slower than reading it). Needs root; false when it is not allowed. Nothing but speed depends on
// it.
bool raise_read_ahead(const MountEntry& mount, unsigned kibibytes);

}  // namespace fpfs
