#include "fs/process/options.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "engine/array/array.h"
#include "engine/base/nearest_word.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/tier/tier_url.h"
#include "fs/interface/profile.h"

namespace fpfs {
namespace {

constexpr const char* kProgram = "Options";
constexpr const char* kMount = "Mount options, each as -o NAME[=VALUE] or as --NAME[=VALUE]";

Status usage_error(const std::string& message) {
  return Status::error(StatusCode::kInvalidArgument, message + " (see fastpersistfs --help)");
}

// Says "it must be ALLOWED" of a value that `check` refuses.
CLI::Validator must_be(const std::string& allowed, const CLI::Validator& check) {
  return {[=](std::string& value) { return check(value).empty() ? "" : "it must be " + allowed; }, ""};
}

CLI::Validator on_or_off() {
  return must_be("on or off", CLI::IsMember({"on", "yes", "true", "1", "off", "no", "false", "0"}));
}

// A switch that may be left to the program. Becomes the value's number, of which CLI11 makes the enumeration.
CLI::Validator on_off_or_auto() {
  const auto to_number = [](std::string& value) -> std::string {
    using Wanted = MountOptions::IoUring;
    const bool is_switch = on_or_off()(value).empty();
    if (!is_switch && value != "auto") return "no such word";
    const Wanted wanted = !is_switch                              ? Wanted::kAuto
                          : CLI::detail::to_flag_value(value) > 0 ? Wanted::kOn
                                                                  : Wanted::kOff;
    value = std::to_string(static_cast<int>(wanted));
    return "";
  };
  return must_be("auto, on or off", {to_number, ""});
}

// Decimal digits only: CLI11 would take 010 for octal and numbers far below zero for others. `of_what`: " of seconds".
CLI::Validator number(unsigned low, unsigned high, const std::string& of_what) {
  const auto in_range = [range = CLI::Range(low, high)](std::string& value) -> std::string {
    if (value.find_first_not_of("0123456789") != std::string::npos) return "no number";
    value.erase(0, std::min(value.find_first_not_of('0'), value.size() - 1));
    return range(value);
  };
  return must_be(fmt::format("a number{} from {} to {}", of_what, low, high), {in_range, ""});
}

CLI::Validator way_to_compress() {
  const auto is_one = [](std::string& value) -> std::string {
    const Result<Compression> way = parse_compression(value);
    return way.is_ok() ? "" : way.status().message();
  };
  return must_be("off, auto, zstd or zstd:1 to zstd:19", {is_one, ""});
}

// Becomes the number of bytes.
CLI::Validator size_from(uint64_t low, const std::string& words) {
  const auto to_bytes = [low](std::string& value) -> std::string {
    const Result<uint64_t> bytes = parse_size(value);
    if (!bytes.is_ok()) return bytes.status().message();
    value = std::to_string(*bytes);
    return CLI::Range(low, 1024 * kGiB)(value);
  };
  return must_be(words, {to_bytes, ""});
}

// Becomes the number of bytes.
CLI::Validator size_of_transfers() {
  const auto to_bytes = [](std::string& value) -> std::string {
    const Result<uint64_t> bytes = parse_size(value);
    if (!bytes.is_ok()) return bytes.status().message();
    value = std::to_string(*bytes);
    if (*bytes == 0) return "";
    if (*bytes % kIoAlignment != 0) return "no whole number of blocks";
    return CLI::Range(StoreOptions::kTransferSizeMin, StoreOptions::kTransferSizeMax)(value);
  };
  return must_be("a size from 64K to 64M in steps of 4K, like 256K, or 0 for whole chunks", {to_bytes, ""});
}

void add_size(CLI::App& app, const std::string& name, uint64_t& out, const CLI::Validator& allowed,
              const std::string& help) {
  app.add_option(name, out, help)->type_name("SIZE")->transform(allowed);
}

CLI::Option* add_switch(CLI::App& app, const std::string& names, bool& out, const std::string& help) {
  return app.add_flag(names, out, help)->type_name("on|off")->check(on_or_off());
}

void add_action(CLI::App& app, const std::string& names, const std::string& help, std::function<void()> action) {
  app.add_flag_callback(names, std::move(action), help)->type_name("on|off")->check(on_or_off());
}

void add_number(CLI::App& app, const std::string& name, unsigned& out, unsigned low, unsigned high,
                const std::string& help, const std::string& of_what = "") {
  app.add_option(name, out, help)->type_name(fmt::format("{}..{}", low, high))->transform(number(low, high, of_what));
}

template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
void add_choice(CLI::App& app, const std::string& name, Value& out, const Choices<Value>& choices,
                const std::string& help) {
  std::string words;
  std::string allowed;
  for (const auto& [word, value] : choices) {
    words += (words.empty() ? "" : "|") + word;
    allowed += (allowed.empty() ? "" : word == choices.back().first ? " or " : ", ") + word;
  }
  const auto choose = [&out, choices](const std::string& word) {
    out = std::ranges::find(choices, word, &Choices<Value>::value_type::first)->second;
  };
  app.add_option_function<std::string>(name, choose, help)
      ->type_name(words)
      ->check(must_be(allowed, CLI::IsMember(choices)));
}

// Whole seconds, 0 .. a day, kept in milliseconds.
void add_seconds(CLI::App& app, const std::string& name, unsigned& out_ms, const std::string& help) {
  const auto set = [&out_ms](unsigned in_seconds) { out_ms = in_seconds * 1000; };
  app.add_option_function<unsigned>(name, set, help)->type_name("SECONDS")->transform(number(0, 86400, " of seconds"));
}

class Help : public CLI::Formatter {
 public:
  Help() { column_width(29); }
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [-f] [-o OPT[,OPT...]] [--OPT[=VALUE]] DIRS MOUNTPOINT\n";
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return CLI::detail::find_and_replace(Formatter::make_option_name(option, is_positional), ",", ", ");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_expected_min() == 0 ? option->get_option_text() : "=" + option->get_type_name();
  }
};

// The store outside this machine.
void describe_tier(CLI::App& app, TierOptions& o) {
  app.add_option("--tier", o.url,
                 "copy what is committed to this store: file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=... (default: "
                 "as fpfs tier set has said; none: not in this mount)")
      ->type_name("URL");
  add_choice(app, "--tier_required", o.required,
             {{"yes", std::optional<bool>(true)}, {"no", std::optional<bool>(false)}},
             "whether the mount fails when that store is not there (default: yes with tier=, else no)");
  add_choice(app, "--tier_delete", o.copy.tier_delete, {{"follow", TierDelete::kFollow}, {"keep", TierDelete::kKeep}},
             "whether copies of what is removed go or stay (default: follow)");
  app.add_option_function<std::string>(
         "--tier_keep", [&o](const std::string& text) { o.keep = parse_tier_keep(text).value(); },
         "what stays on the drives of what is copied: all (default), so many bytes, or so many files of each "
         "directory; "
         "the rest leaves, and is fetched when it is read")
      ->type_name("all|SIZE|N")
      ->check(must_be("all, a size like 500G, or a number of files like 3",
                      {[](std::string& text) { return parse_tier_keep(text).is_ok() ? "" : "neither"; }, ""}));
  app.add_option_function<unsigned>(
         "--tier_share",
         [&o](unsigned in_seconds) {
           // A name may be out of date by what the kernel keeps, what a look found before, and how old that may be.
           o.share = std::chrono::milliseconds(in_seconds * uint64_t{1000} / 3);
         },
         "other arrays copy to the same store: show what they have copied, at most so many seconds later")
      ->type_name("SECONDS")
      ->transform(number(0, 86400, " of seconds"));
  const CLI::Validator rate = size_from(0, "bytes per second up to 1024G, like 200M, or 0 for any rate");
  add_size(app, "--tier_rate", o.copy.rate, rate, "copy at most so many bytes per second (default 0: at any rate)");
  add_size(app, "--tier_rate_saving", o.rate_while_saving, rate,
           "the same while something is being saved (default 64M)");
  add_number(app, "--tier_connections", o.copy.connections, 1, 256,
             "parts of files that are copied at a time (default 8)");
  add_size(app, "--tier_memory", o.copy.memory, size_from(kMiB, "a size from 1M to 1024G, like 64M"),
           "memory that copies pass through, beside buffer_memory (default 64M)");
}

// What the program takes, bound to `o`.
void describe(CLI::App& app, MountOptions& o) {
  app.name("fastpersistfs");
  app.description(
      "Mounts the array of the directories DIRS (separated by colons) at MOUNTPOINT. Returns when the mount is live.");
  app.footer(
      "And the usual mount options (nosuid, nodev, noexec, noatime, sync, ...).\n"
      "umount or fusermount3 -u, SIGTERM and SIGINT end it after everything is committed.\n"
      "Exit status: 0 mounted (with -f: unmounted, everything committed), 1 with the reason on stderr.");
  app.formatter(std::make_shared<Help>());
  app.allow_extras();  // apply_argument() looks at what is left

  app.option_defaults()->group(kProgram);
  app.set_help_flag();
  add_switch(app, "-f,--foreground", o.foreground, "stay in the foreground");
  add_action(app, "-h,--help", "this text", [&o] { o.action = MountOptions::Action::kHelp; });
  add_action(app, "-V,--version", "the version", [&o] { o.action = MountOptions::Action::kVersion; });

  app.option_defaults()->group(kMount);
  add_switch(app, "-r,--ro", o.store.array.read_only, "mount read-only");
  add_action(app, "-w", "mount read-write (default)", [&o] { o.store.array.read_only = false; });
  add_switch(app, "--allow_other", o.allow_other, "let other users in (without it only the mounting user)");
  add_choice(app, "--durable", o.store.durable,
             {{"close", StoreOptions::Durable::kClose}, {"fsync", StoreOptions::Durable::kFsync}},
             "what close(2) promises: durable when it returns (default), or at fsync, else soon");
  const auto set_compression = [&o](const std::string& text) { o.store.compression = parse_compression(text).value(); };
  app.add_option_function<std::string>(
         "--compress", set_compression,
         "how new data is stored: as it is (default), smaller where that costs no time, or smaller")
      ->type_name("off|auto|zstd[:LEVEL]")
      ->check(way_to_compress());
  add_choice(app, "--dedup", o.store.dedup,
             {{"off", StoreOptions::Dedup::kOff}, {"previous", StoreOptions::Dedup::kPrevious}},
             "previous: chunks that the checkpoint before has, too, share its blocks (members on XFS or btrfs)");
  add_switch(app, "--verify", o.store.verify, "check what is read against its checksum (off only to measure, with ro)")
      ->option_text("=on|off");
  // The lower limit is the smallest pool at the smallest chunk size; the store checks against its own chunk size.
  add_size(app, "--buffer_memory", o.store.buffer_memory, size_from(kMiB, "a size from 1M to 1024G, like 256M"),
           "memory for file content, whatever the load (default 256M)");
  add_number(app, "--queue_depth", o.store.queue_depth, 1, 1024, "transfers in flight per member (default 16)");
  app.add_option("--transfer_size", o.store.transfer_size,
                 "a chunk goes to its member, and comes from it, in pieces of this size (default 0: whole)")
      ->type_name("SIZE")
      ->transform(size_of_transfers());
  add_number(app, "--submit_batch", o.store.submit_batch, 1, StoreOptions::kSubmitBatchMax,
             "transfers that are submitted by one call (default 4; 1: each by itself)");
  add_number(app, "--workers", o.workers, 0, 256,
             "threads that hash, verify, compress and expand (default 0: one for each core, at least 8)");
  add_number(app, "--threads", o.threads, 1, 256,
             "threads that answer requests (default: twice the cores, at least 4)");
  app.add_flag("--io_uring", o.io_uring, "take requests through io_uring (default auto: where the kernel offers it)")
      ->option_text("=auto|on|off")
      ->transform(on_off_or_auto());
  add_seconds(app, "--io_timeout", o.store.io_timeout_ms,
              "give up on a member that does not answer for so long, 0: never (default 120)");
  add_choice(app, "--killed_saver", o.killed_keeps_old, {{"keep_old", true}, {"commit", false}},
             "when a signal kills who is replacing a file: keep the old content (default), or commit what there is");
  add_seconds(app, "--commit_interval", o.store.commit_interval_ms,
              "commit a log that stays open so often, 0: not (default 30)");
  add_seconds(app, "--commit_idle", o.store.commit_idle_ms,
              "and when nothing was written to it for so long, 0: not (default 5)");
  add_number(app, "--read_ahead", o.store.read_ahead, 0, 1024,
             "chunks read ahead of a sequential reader (default 0: by the number of members)", " of chunks");
  app.add_option("--profile", o.profile,
                 "what fpfs tune has written, of " + fmt::format("{}", fmt::join(kProfileNames, ", ")) +
                     "; options that are given count more")
      ->type_name("FILE");
  describe_tier(app, o.tier);
  add_seconds(
      app, "--tier_timeout", o.tier_timeout_ms,
      "what waits for its copy (durable=tier) fails when nothing was copied for so long, 0: never (default 60)");
  add_switch(app, "--degraded", o.store.array.degraded, "with ro: mount with members missing");
  add_switch(app, "--buffered_members", o.store.array.buffered_members,
             "accept members without O_DIRECT (development)");
  app.add_option("--meta_dir", o.store.array.metadata_directory, "where the array's --meta-dir is now")
      ->type_name("DIR");
  add_switch(app, "--null_write", o.store.null_write, "discard what is written: measures the path itself");
  add_switch(app, "--init", o.init, "format the directories first when every one is absent or empty");
  add_switch(app, "--nonempty", o.nonempty, "mount over a directory that holds something");
  app.add_option_function<std::string>(
         "--metrics", [&o](const std::string& text) { o.metrics = parse_metrics_address(text).value(); },
         "serve metrics for Prometheus at http://127.0.0.1:PORT/metrics; ADDRESS:PORT: to other machines, too")
      ->type_name("PORT")
      ->check([](const std::string& text) {
        const Status valid = parse_metrics_address(text).status();
        return valid.is_ok() ? std::string() : "it must be " + valid.message();
      });
  add_choice(app, "--log_level", o.log_level,
             {{"debug", LogLevel::kDebug},
              {"info", LogLevel::kInfo},
              {"warning", LogLevel::kWarning},
              {"error", LogLevel::kError}},
             "what the log holds (default info)");
  app.add_option("--log_file", o.log_file,
                 "where the log goes (default: with -f stderr, else the system's log: journalctl -t fastpersistfs)")
      ->type_name("FILE");
}

constexpr std::string_view kKernelOptions[] = {"suid",  "nosuid", "dev",     "nodev",   "exec",        "noexec",
                                               "async", "atime",  "noatime", "dirsync", "auto_unmount"};
// Meant for mount(8), systemd and fstab readers, or the default anyway.
constexpr std::string_view kIgnoredOptions[] = {"rw",
                                                "sync",
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

Status refuse_unknown(const CLI::App& app, const std::string& text) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  if (text.find('=') == std::string::npos)  // they take no value
    names.insert(names.end(), std::begin(kKernelOptions), std::end(kKernelOptions));
  return usage_error(describe_unknown_option(text, names, ""));
}

// An option that is not ours: one of mount(8), or unknown.
Status apply_usual(const CLI::App& app, MountOptions& o, const std::string& text) {
  if (text == "rw") o.store.array.read_only = false;
  if (text == "sync") o.sync_writes = true;
  if (text == "atime" || text == "noatime") o.access_times = text == "atime";
  if (text == "diratime" || text == "nodiratime") o.directory_access_times = text == "diratime";
  if (contains(kKernelOptions, text) || has_prefix(kKernelPrefixes, text)) {
    o.kernel_options.push_back(text);
    return Status::ok();
  }
  if (contains(kIgnoredOptions, text) || has_prefix(kIgnoredPrefixes, text)) return Status::ok();
  return refuse_unknown(app, text);
}

// One argument that begins with '-'. CLI11 is given one at a time: they act in their order, and none takes the next for
// its value.
Status apply_argument(CLI::App& app, MountOptions& o, const std::string& argument) {
  const bool is_long = argument.starts_with("--");
  const std::string text = argument.substr(is_long ? 2 : 0);
  const size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  const std::string value = text.substr(std::min(equals + 1, text.size()));
  const CLI::Option* option = is_long ? app.get_option_no_throw("--" + name) : nullptr;
  if (option != nullptr && value.empty() && (equals < text.size() || option->get_expected_min() > 0))
    return usage_error("option " + name + " needs a value: " + name + "=" + option->get_type_name());
  try {
    app.parse(std::vector<std::string>{argument});
  } catch (const CLI::ParseError& error) {  // "--NAME: it must be ..."
    const std::string_view reason = error.what();
    return usage_error(fmt::format("option {} is '{}'; {}", name, value, reason.substr(reason.find(": ") + 2)));
  }
  if (app.remaining().empty()) return Status::ok();
  return is_long ? apply_usual(app, o, text) : refuse_unknown(app, argument);
}

// Splits at commas; a backslash takes the next character as it is (libfuse's rule).
Status apply_list(CLI::App& app, MountOptions& o, const std::string& list) {
  // Of a mounted array mount(8) knows the type fuse.fastpersistfs, whatever fstab says, and so asks us, with options of
  // the kernel's (user_id=0) before this one. mount.fastpersistfs says the same.
  if (("," + list + ",").find(",remount,") != std::string::npos)
    return Status::error(StatusCode::kUnsupported,
                         "options of a mounted array cannot be changed; umount it and mount it again");
  std::string part;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || list[i] == ',') {
      const CLI::Option* option = app.get_option_no_throw("--" + part.substr(0, part.find('=')));
      if (option != nullptr && option->get_group() == kProgram) return refuse_unknown(app, part);
      if (!part.empty()) FPFS_RETURN_IF_ERROR(apply_argument(app, o, "--" + part));
      part.clear();
    } else {
      if (list[i] == '\\' && i + 1 < list.size()) ++i;
      part += list[i];
    }
  }
  return Status::ok();
}

Status apply_profile(const std::string& path, MountOptions& options) {
  CLI::App app;
  describe(app, options);
  FPFS_ASSIGN_OR_RETURN(const std::string text, read_profile(path));
  FPFS_ASSIGN_OR_RETURN(const std::vector<ProfileLine> lines, parse_profile(text));
  for (const ProfileLine& line : lines)
    FPFS_RETURN_IF_ERROR(apply_argument(app, options, fmt::format("--{}={}", line.name, line.value))
                             .with_context(fmt::format("line {}", line.number)));
  return Status::ok();
}

Status check_combination(const MountOptions& options) {
  if (options.store.array.degraded && !options.store.array.read_only)
    return usage_error("option degraded needs ro: an array with members missing cannot be written");
  if (!options.store.verify && !options.store.array.read_only)
    return usage_error("option verify=off needs ro: what is read unchecked could be written back, or copied, as right");
  if (options.init && options.store.array.read_only)
    return usage_error("options init and ro exclude each other: a new array would be empty for ever");
  if (options.tier.share.has_value() && options.tier.copy.tier_delete == TierDelete::kKeep)
    return usage_error("options tier_share and tier_delete=keep exclude each other: what is removed would come back");
  // Here rather than where it is parsed: what is wrong with it may be a secret, which is not to be repeated.
  if (!options.tier.url.empty() && options.tier.url != TierOptions::kNone)
    if (const Status valid = parse_tier_url(options.tier.url).status(); !valid.is_ok())
      return usage_error(valid.message());
  return Status::ok();
}

// On top of what `options` says already.
Result<MountOptions> parse_arguments(const std::vector<std::string>& arguments, MountOptions options) {
  CLI::App app;
  describe(app, options);
  std::vector<std::string> positional;
  bool only_positional = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (only_positional || !argument.starts_with('-') || argument == "-") {
      positional.push_back(argument);
    } else if (argument == "--") {
      only_positional = true;
    } else if (argument == "-o") {
      if (i + 1 == arguments.size()) return usage_error("-o needs options behind it");
      FPFS_RETURN_IF_ERROR(apply_list(app, options, arguments[++i]));
    } else if (argument.starts_with("-o")) {
      FPFS_RETURN_IF_ERROR(apply_list(app, options, argument.substr(2)));
    } else {
      FPFS_RETURN_IF_ERROR(apply_argument(app, options, argument));
      if (options.action != MountOptions::Action::kMount) return options;
    }
  }
  if (positional.size() > 2) {
    const std::span<const std::string> directories = std::span(positional).first(positional.size() - 1);
    return usage_error(fmt::format("expected DIRS and MOUNTPOINT, found {} arguments; directories are one argument: {}",
                                   positional.size(), fmt::join(directories, ":")));
  }
  if (positional.size() != 2)
    return usage_error("expected DIRS and MOUNTPOINT, found " + format_count(positional.size(), "argument"));
  options.source = positional[0];
  options.mount_point = positional[1];
  FPFS_ASSIGN_OR_RETURN(options.directories, Array::split_directories(options.source));
  FPFS_RETURN_IF_ERROR(check_combination(options));
  return options;
}

// A log within the mount would keep the mount busy, from the next SIGHUP on, and end with it.
Status check_log_is_elsewhere(const MountOptions& options) {
  std::error_code error;
  const std::string place =
      std::filesystem::canonical(std::filesystem::path(options.log_file).parent_path(), error).string();
  if (options.log_file.empty() || error || !(place + "/").starts_with(options.mount_point + "/")) return Status::ok();
  return Status::error(StatusCode::kInvalidArgument,
                       fmt::format("log_file: {} is in the mount itself ({}); name a file elsewhere", options.log_file,
                                   options.mount_point));
}

}  // namespace

Result<MountOptions> parse_mount_options(const std::vector<std::string>& arguments) {
  FPFS_ASSIGN_OR_RETURN(MountOptions options, parse_arguments(arguments, {}));
  if (options.profile.empty() || options.action != MountOptions::Action::kMount) return options;
  MountOptions of_profile;
  FPFS_RETURN_IF_ERROR(apply_profile(options.profile, of_profile).with_context("profile " + options.profile));
  return parse_arguments(arguments, std::move(of_profile));
}

Status make_paths_absolute(MountOptions& options) {
  std::error_code error;
  auto absolute = [&error](std::string& path) { path = std::filesystem::absolute(path, error).lexically_normal(); };
  const bool is_relative = std::any_of(options.directories.begin(), options.directories.end(),
                                       [](const std::string& directory) { return !directory.starts_with('/'); });
  for (std::string& directory : options.directories) absolute(directory);
  if (!options.log_file.empty()) absolute(options.log_file);
  if (!options.profile.empty()) absolute(options.profile);
  if (!options.store.array.metadata_directory.empty()) absolute(options.store.array.metadata_directory);
  if (error) return Status::from_errno(error.value(), "find the current directory");
  // As given where that is absolute: mount(8) compares it with fstab's.
  if (is_relative) options.source = fmt::format("{}", fmt::join(options.directories, ":"));
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
  return check_log_is_elsewhere(options);
}

std::string mount_usage() {
  MountOptions options;
  CLI::App app;
  describe(app, options);
  return app.help();
}

}  // namespace fpfs
