// fpfs tier: the store outside this machine that a mounted array copies to.
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/tier_call.h"
#include "tools/fpfs/tier_paths.h"
#include "tools/fpfs/tier_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kTierProgram = "fpfs tier";
const char* const kNoStore = "none";
const char* const kArrayExample = "0f1e2d3c-4b5a-4697-8877-665544332211";

struct TierVerbOptions {
  std::string action;
  std::string mount_point;
  std::string url;
  bool share = false;
  bool existing = false;
  bool restore = false;
  std::string array;
  bool json = false;
};

Status set_store(const TierVerbOptions& options) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(options.mount_point));
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor root, open_path(root_path));
  auto question = std::make_unique<IoctlTier>();
  question->command = options.url == kNoStore ? IoctlTier::kLeave : IoctlTier::kSet;
  question->share = options.share ? 1 : 0;
  question->has_other_files = options.existing ? 1 : 0;
  question->restores = options.restore ? 1 : 0;
  std::memcpy(question->array, options.array.c_str(), options.array.size() + 1);
  std::memcpy(question->url, options.url.c_str(), options.url.size() + 1);
  return call_tier(root, *question, options.mount_point, 0);
}

int show(const TierVerbOptions& options) {
  const Result<Json> tier = read_tier_status(options.mount_point);
  if (!tier.is_ok()) return fail(kTierProgram, kExitFailure, tier.status().message());
  if (options.json) {
    print_json(*tier);
  } else {
    fmt::print("{}", describe_tier(*tier));
  }
  return kExitOk;
}

int list_pinned(const TierVerbOptions& options) {
  std::vector<PinnedPath> pinned;
  const Status found = find_pinned(options.mount_point, pinned);
  uint64_t files = 0, bytes = 0;
  Json paths = Json::array();
  for (const PinnedPath& one : pinned) {
    files += one.is_directory ? 0 : 1;
    bytes += one.bytes;
    if (options.json)
      paths.push_back({{"path", one.path}, {"bytes", one.bytes}, {"directory", one.is_directory}});
    else if (one.is_directory)
      fmt::print("{}/: and what is made in it\n", one_line(one.path));
    else
      fmt::print("{}: {}\n", one_line(one.path), format_size(one.bytes));
  }
  if (options.json)
    print_json({{"files", files}, {"bytes", bytes}, {"pinned", std::move(paths)}});
  else if (found.is_ok() || !pinned.empty())
    fmt::print("{} pinned ({})\n", format_count(files, "file"), format_size(bytes));
  return found.is_ok() ? kExitOk : fail(kTierProgram, kExitFailure, found.message());
}

int fetch(const TierVerbOptions& options) {
  const Result<FetchedPaths> fetched = fetch_path(options.mount_point);
  if (!fetched.is_ok()) return fail(kTierProgram, kExitFailure, fetched.status().message());
  Json errors = Json::array();
  uint64_t come = 0;  // whose copies are well
  for (const FetchedPaths::Failure& failure : fetched->failures) {
    come += failure.has_come ? 1 : 0;
    errors.push_back({{"path", failure.path}, {"detail", failure.detail}});
    if (!options.json) fail(kTierProgram, kExitFailure, failure.detail);
  }
  if (options.json)
    print_json({{"files", fetched->files}, {"bytes", fetched->bytes}, {"errors", errors}});
  else if (errors.empty() || fetched->files > 0)
    fmt::print("{} fetched ({})\n", format_count(fetched->files, "file"), format_size(fetched->bytes));
  if (errors.empty()) return kExitOk;
  if (come > 0)
    fail(kTierProgram, kExitFailure,
         fmt::format("{} not on the drives, but in the store, which gives {}: make room (df, fpfs tier unpin), or "
                     "restore less at a time",
                     come == 1 ? "1 file is" : format_count(come, "file") + " are", one_or_many(come, "it", "them")));
  const uint64_t failed = errors.size() - come;
  if (failed == 0 || errors.size() == 1) return kExitFailure;
  return fail(
      kTierProgram, kExitFailure,
      fmt::format("{} could not be fetched; when {} cannot be had again, remove {}", format_count(failed, "file"),
                  one_or_many(failed, "its copy", "their copies"), one_or_many(failed, "it", "them")));
}

int exit_code_of(const Status& status) {
  return status.is_ok() ? kExitOk : fail(kTierProgram, kExitFailure, status.message());
}

int run(const TierVerbOptions& options) {
  const bool sets = options.action == "set";
  if (sets && options.url.empty())
    return fail(kTierProgram, kExitUsage, "set needs a URL, or none (see fpfs tier --help)");
  if (!sets && (!options.url.empty() || options.share || options.existing || options.restore))
    return fail(kTierProgram, kExitUsage,
                "a URL, --share, --existing and --restore go with set (see fpfs tier --help)");
  if (!options.array.empty() && !options.restore)
    return fail(kTierProgram, kExitUsage, "--array goes with --restore (see fpfs tier --help)");
  if (options.restore && options.url == kNoStore)
    return fail(kTierProgram, kExitUsage, "--restore needs the URL of a store (see fpfs tier --help)");
  if (options.url.size() >= sizeof IoctlTier::url)
    return fail(kTierProgram, kExitUsage, fmt::format("the URL has {} bytes, which is too long", options.url.size()));
  if (options.array.size() >= sizeof IoctlTier::array)
    return fail(kTierProgram, kExitUsage,
                fmt::format("--array is '{}'; it must be the id of an array, like {}", options.array, kArrayExample));
  if (sets) return exit_code_of(set_store(options));
  if (options.action == "restore") return fetch(options);
  if (options.action == "pins") return list_pinned(options);
  if (options.action == "pin" || options.action == "unpin")
    return exit_code_of(pin_path(options.mount_point, options.action == "pin"));
  return show(options);
}

}  // namespace

Verb add_tier(CLI::App& fpfs) {
  auto options = std::make_shared<TierVerbOptions>();
  CLI::App* command = fpfs.add_subcommand("tier", "The store outside this machine that an array copies to");
  command->add_option("ACTION", options->action, "status, set, restore, pin, unpin or pins")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"status", "set", "restore", "pin", "unpin", "pins"}));
  command
      ->add_option(
          "PATH", options->mount_point,
          "Where the array is mounted, or a path below that; restore: the file or directory whose content is to "
          "be on the drives; pin, unpin: whose content is to stay there, or may leave (tier_keep); pins: below which "
          "what is pinned is to be listed")
      ->required()
      ->type_name("");
  command
      ->add_option("URL", options->url,
                   "set: file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=..., remembered by the array; or none")
      ->type_name("");
  command->add_flag("--share", options->share, "set: also a store that other arrays copy to");
  command->add_flag("--existing", options->existing,
                    "set: also where there are other files, or newer copies of this array's, which copies may replace");
  command->add_flag(
      "--restore", options->restore,
      "set: what another array has copied there becomes this one's: its whole tree, whose content comes when "
      "it is read; that array copies there no more");
  command->add_option("--array", options->array, "set --restore: that array's id, where several have copied")
      ->type_name("ID");
  command->add_flag("--json", options->json, "status, restore, pins: print one JSON object");
  command->footer(
      "The daemon reaches the store, with the keys of its environment (AWS_ACCESS_KEY_ID, ...), of a credentials file "
      "or\n"
      "of its machine's role; a URL never has them. fpfs sync --tier waits until files are copied.\n"
      "Exit code: 0, 1 failure, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
