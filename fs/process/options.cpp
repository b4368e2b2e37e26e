#include "fs/process/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "engine/array/array.h"
#include "engine/base/units.h"

namespace fpfs {
namespace {

using Value = std::optional<std::string>;  // absent: the option stood alone

Status usage_error(const std::string& message) {
  return Status::error(StatusCode::kInvalidArgument, message + " (see fastpersistfs --help)");
}

Status parse_flag(const std::string& name, const Value& value, bool& out) {
  if (!value || *value == "on" || *value == "yes" || *value == "true" || *value == "1") {
    out = true;
  } else if (*value == "off" || *value == "no" || *value == "false" || *value == "0") {
    out = false;
  } else {
    return usage_error("option " + name + " is '" + *value + "'; it must be on or off");
  }
  return Status::ok();
}

Status parse_number(const std::string& name, const Value& value, unsigned low, unsigned high, unsigned& out) {
  unsigned number = 0;
  const std::string text = value.value_or("");
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high) {
    return usage_error("option " + name + " is '" + text + "'; it must be a number from " + std::to_string(low) +
                       " to " + std::to_string(high));
  }
  out = number;
  return Status::ok();
}

Status parse_text(const std::string& name, const Value& value, std::string& out) {
  if (!value || value->empty()) return usage_error("option " + name + " needs a value: " + name + "=...");
  out = *value;
  return Status::ok();
}

Status parse_durable(const Value& value, StoreOptions::Durable& out) {
  if (value == "close") {
    out = StoreOptions::Durable::kClose;
  } else if (value == "fsync") {
    out = StoreOptions::Durable::kFsync;
  } else {
    return usage_error("option durable is '" + value.value_or("") + "'; it must be close or fsync");
  }
  return Status::ok();
}

Status parse_killed_saver(const Value& value, bool& keeps_old) {
  if (value != "keep_old" && value != "commit")
    return usage_error("option killed_saver is '" + value.value_or("") + "'; it must be keep_old or commit");
  keeps_old = value == "keep_old";
  return Status::ok();
}

// Whole seconds, 0 .. a day, kept in milliseconds.
Status parse_seconds(const std::string& name, const Value& value, unsigned& out_ms) {
  unsigned seconds = 0;
  FPFS_RETURN_IF_ERROR(parse_number(name, value, 0, 86400, seconds));
  out_ms = seconds * 1000;
  return Status::ok();
}

Status parse_buffer_memory(const Value& value, uint64_t& out) {
  Result<uint64_t> bytes = parse_size(value.value_or(""));
  // The lower limit is the smallest pool at the smallest chunk size; the store checks against its own chunk size.
  if (!bytes.is_ok() || *bytes < kMiB || *bytes > 1024 * kGiB) {
    return usage_error("option buffer_memory is '" + value.value_or("") +
                       "'; it must be a size from 1M to 1024G, like 256M");
  }
  out = *bytes;
  return Status::ok();
}

Status parse_compress(const Value& value) {
  if (value == "off") return Status::ok();
  const std::string text = value.value_or("");
  if (text == "auto" || text == "zstd" || text.starts_with("zstd:")) {
    return Status::error(StatusCode::kUnsupported,
                         "option compress=" + text + " is not available in this version; use compress=off");
  }
  return usage_error("option compress is '" + text + "'; it must be off");
}

Status not_available(const std::string& name) {
  return Status::error(StatusCode::kUnsupported, "option " + name + " is not available in this version; leave it out");
}

using Setter = std::function<Status(MountOptions&, const std::string& name, const Value&)>;

struct Option {
  const char* name;
  const char* argument;  // for the usage text; empty: a switch
  const char* help;
  Setter set;
};

Setter flag(bool MountOptions::*member) {
  return [member](MountOptions& o, const std::string& name, const Value& v) { return parse_flag(name, v, o.*member); };
}

const std::vector<Option>& own_options() {
  static const std::vector<Option> options = {
      {"ro", "", "mount read-only",
       [](MountOptions& o, const std::string& name, const Value& v) {
         FPFS_RETURN_IF_ERROR(parse_flag(name, v, o.store.array.read_only));
         return Status::ok();
       }},
      {"allow_other", "", "let other users in (without it only the mounting user)", flag(&MountOptions::allow_other)},
      {"durable", "close|fsync", "what close(2) promises: durable when it returns (default), or at fsync, else soon",
       [](MountOptions& o, const std::string&, const Value& v) { return parse_durable(v, o.store.durable); }},
      {"compress", "off", "compression of new data",
       [](MountOptions&, const std::string&, const Value& v) { return parse_compress(v); }},
      {"verify", "on|off", "check what is read against its checksum (off only to measure)",
       [](MountOptions& o, const std::string& name, const Value& v) { return parse_flag(name, v, o.store.verify); }},
      {"buffer_memory", "SIZE", "memory for file content, whatever the load (default 256M)",
       [](MountOptions& o, const std::string&, const Value& v) {
         return parse_buffer_memory(v, o.store.buffer_memory);
       }},
      {"queue_depth", "N", "transfers in flight per member, 1 to 1024 (default 16)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_number(name, v, 1, 1024, o.store.queue_depth);
       }},
      {"threads", "N", "threads that answer requests, 1 to 256 (default: twice the cores, at least 4)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_number(name, v, 1, 256, o.threads);
       }},
      {"io_uring", "", "take requests through io_uring where the kernel offers it (for many small files)",
       flag(&MountOptions::io_uring)},
      {"io_timeout", "SECONDS", "give up on a member that does not answer for so long, 0: never (default 120)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_seconds(name, v, o.store.io_timeout_ms);
       }},
      {"killed_saver", "keep_old|commit",
       "when a signal kills who is replacing a file: keep the old content (default), or commit what there is",
       [](MountOptions& o, const std::string&, const Value& v) { return parse_killed_saver(v, o.killed_keeps_old); }},
      {"commit_interval", "SECONDS", "commit a log that stays open so often, 0: not (default 30)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_seconds(name, v, o.store.commit_interval_ms);
       }},
      {"commit_idle", "SECONDS", "and when nothing was written to it for so long, 0: not (default 5)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_seconds(name, v, o.store.commit_idle_ms);
       }},
      {"read_ahead", "N", "chunks read ahead of a sequential reader, 0 to 1024 (0: by the number of members)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_number(name, v, 0, 1024, o.store.read_ahead);
       }},
      {"degraded", "", "with ro: mount with members missing",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_flag(name, v, o.store.array.degraded);
       }},
      {"buffered_members", "", "accept members without O_DIRECT (development)",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_flag(name, v, o.store.array.buffered_members);
       }},
      {"meta_dir", "DIR", "where the array's --meta-dir is now",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_text(name, v, o.store.array.metadata_directory);
       }},
      {"null_write", "", "discard what is written: measures the path itself",
       [](MountOptions& o, const std::string& name, const Value& v) {
         return parse_flag(name, v, o.store.null_write);
       }},
      {"init", "", "format the directories first when every one is absent or empty", flag(&MountOptions::init)},
      {"nonempty", "", "mount over a directory that holds something", flag(&MountOptions::nonempty)},
      {"log_level", "LEVEL", "debug, info (default), warning or error",
       [](MountOptions& o, const std::string&, const Value& v) {
         Result<LogLevel> level = parse_log_level(v.value_or(""));
         if (!level.is_ok())
           return usage_error("option log_level is '" + v.value_or("") + "'; it must be debug, info, warning or error");
         o.log_level = *level;
         return Status::ok();
       }},
      {"log_file", "FILE", "where the log goes (default stderr, in the background nowhere)",
       [](MountOptions& o, const std::string& name, const Value& v) { return parse_text(name, v, o.log_file); }},
      {"profile", "", "", [](MountOptions&, const std::string& name, const Value&) { return not_available(name); }},
      {"metrics", "", "", [](MountOptions&, const std::string& name, const Value&) { return not_available(name); }},
  };
  return options;
}

constexpr std::string_view kKernelOptions[] = {"suid",  "nosuid", "dev",     "nodev",   "exec",        "noexec",
                                               "async", "atime",  "noatime", "dirsync", "auto_unmount"};
// Meant for mount(8), systemd and fstab readers, or the default anyway.
constexpr std::string_view kIgnoredOptions[] = {"rw",
                                                "defaults",
                                                "default_permissions",
                                                "auto",
                                                "noauto",
                                                "user",
                                                "users",
                                                "nouser",
                                                "owner",
                                                "group",
                                                "_netdev",
                                                "nofail",
                                                "relatime",
                                                "norelatime",
                                                "strictatime",
                                                "nostrictatime",
                                                "lazytime",
                                                "nolazytime",
                                                "diratime",
                                                "nodiratime",
                                                "iversion",
                                                "noiversion",
                                                "silent",
                                                "loud",
                                                "mand",
                                                "nomand"};
constexpr std::string_view kIgnoredPrefixes[] = {"x-", "X-", "comment=", "user=", "uhelper=", "helper="};
constexpr std::string_view kKernelPrefixes[] = {"context=", "fscontext=", "defcontext=", "rootcontext="};

bool contains(std::span<const std::string_view> list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}
bool has_prefix(std::span<const std::string_view> prefixes, std::string_view text) {
  return std::any_of(prefixes.begin(), prefixes.end(), [text](std::string_view p) { return text.starts_with(p); });
}

// One option as it stands between commas, or after "--".
Status apply_option(MountOptions& options, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const Value value = equals == std::string::npos ? Value() : Value(text.substr(equals + 1));
  if (name == "rw") options.store.array.read_only = false;
  for (const Option& option : own_options())
    if (name == option.name) return option.set(options, name, value);
  if (name == "sync") {
    options.sync_writes = true;
    return Status::ok();
  }
  if (name == "atime" || name == "noatime") options.access_times = name == "atime";
  if (name == "diratime" || name == "nodiratime") options.directory_access_times = name == "diratime";
  if (contains(kKernelOptions, text) || has_prefix(kKernelPrefixes, text)) {
    options.kernel_options.push_back(text);
    return Status::ok();
  }
  if (contains(kIgnoredOptions, text) || has_prefix(kIgnoredPrefixes, text)) return Status::ok();
  return usage_error("unknown option '" + text + "'");
}

// Splits at commas; a backslash takes the next character as it is (libfuse's rule).
Status apply_list(MountOptions& options, const std::string& list) {
  std::string part;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || list[i] == ',') {
      if (!part.empty()) FPFS_RETURN_IF_ERROR(apply_option(options, part));
      part.clear();
    } else {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;
      part += list[i];
    }
  }
  return Status::ok();
}

Status check_combination(const MountOptions& options) {
  if (options.store.array.degraded && !options.store.array.read_only)
    return usage_error("option degraded needs ro: an array with members missing cannot be written");
  if (options.init && options.store.array.read_only)
    return usage_error("options init and ro exclude each other: a new array would be empty for ever");
  return Status::ok();
}

}  // namespace

Result<MountOptions> parse_mount_options(const std::vector<std::string>& arguments) {
  MountOptions options;
  std::vector<std::string> positional;
  bool only_positional = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_positional || argument.empty() || argument[0] != '-' || argument == "-") {
      positional.push_back(argument);
    } else if (argument == "--") {
      only_positional = true;
    } else if (argument == "-h" || argument == "--help") {
      options.action = MountOptions::Action::kHelp;
      return options;
    } else if (argument == "-V" || argument == "--version") {
      options.action = MountOptions::Action::kVersion;
      return options;
    } else if (argument == "-f" || argument == "--foreground") {
      options.foreground = true;
    } else if (argument == "-r") {
      FPFS_RETURN_IF_ERROR(apply_option(options, "ro"));
    } else if (argument == "-w") {
      FPFS_RETURN_IF_ERROR(apply_option(options, "rw"));
    } else if (argument == "-o") {
      if (i + 1 == arguments.size()) return usage_error("-o needs options behind it");
      FPFS_RETURN_IF_ERROR(apply_list(options, arguments[++i]));
    } else if (argument.starts_with("--")) {
      FPFS_RETURN_IF_ERROR(apply_option(options, argument.substr(2)));
    } else if (argument.starts_with("-o")) {
      FPFS_RETURN_IF_ERROR(apply_list(options, argument.substr(2)));
    } else {
      return usage_error("unknown option '" + argument + "'");
    }
  }
  if (positional.size() != 2)
    return usage_error("expected DIRS and MOUNTPOINT, found " + std::to_string(positional.size()) + " arguments");
  options.source = positional[0];
  options.mount_point = positional[1];
  FPFS_ASSIGN_OR_RETURN(options.directories, Array::split_directories(options.source));
  FPFS_RETURN_IF_ERROR(check_combination(options));
  return options;
}

Status make_paths_absolute(MountOptions& options) {
  std::error_code error;
  auto absolute = [&error](std::string& path) { path = std::filesystem::absolute(path, error).lexically_normal(); };
  for (std::string& directory : options.directories) absolute(directory);
  if (!options.log_file.empty()) absolute(options.log_file);
  if (!options.store.array.metadata_directory.empty()) absolute(options.store.array.metadata_directory);
  if (error) return Status::from_errno(error.value(), "find the current directory");
  char* resolved = ::realpath(options.mount_point.c_str(), nullptr);
  if (resolved == nullptr) {
    const int failure = errno;
    if (failure == ENOENT)
      return Status::error(StatusCode::kNotFound, "mount point " + options.mount_point +
                                                      " does not exist; make it: mkdir -p " + options.mount_point);
    if (failure == ENOTCONN)
      return Status::error(StatusCode::kBusy, "mount point " + options.mount_point +
                                                  " still carries a mount whose daemon is gone; remove it: umount -l " +
                                                  options.mount_point);
    return Status::from_errno(failure, "resolve mount point " + options.mount_point);
  }
  options.mount_point = resolved;
  ::free(resolved);
  return Status::ok();
}

std::string mount_usage() {
  std::string text =
      "usage: fastpersistfs [-f] [-o OPT[,OPT...]] [--OPT[=VALUE]] DIRS MOUNTPOINT\n"
      "Mounts the array of the directories DIRS (separated by colons) at MOUNTPOINT. Returns when the mount is live.\n"
      "  -f                         stay in the foreground\n"
      "  -h, --help                 this text\n"
      "  -V, --version              the version\n"
      "Options, each as -o NAME[=VALUE] or as --NAME[=VALUE]:\n";
  for (const Option& option : own_options()) {
    if (*option.help == '\0') continue;
    std::string name = option.name;
    if (*option.argument != '\0') name += std::string("=") + option.argument;
    text += "  " + name + std::string(name.size() < 26 ? 26 - name.size() : 1, ' ') + " " + option.help + "\n";
  }
  return text +
         "and the usual mount options (nosuid, nodev, noexec, noatime, sync, ...).\n"
         "umount or fusermount3 -u, SIGTERM and SIGINT end it after everything is committed.\n"
         "Exit status: 0 mounted (with -f: unmounted, everything committed), 1 with the reason on stderr.\n";
}

}  // namespace fpfs
