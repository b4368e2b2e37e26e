// fpfs tier: the store outside this machine that a mounted array copies to.
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "tools/fpfs/mounted.h"
#include "tools/fpfs/tier_call.h"
#include "tools/fpfs/tier_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kTierProgram = "fpfs tier";
const char* const kNoStore = "none";

struct TierVerbOptions {
  std::string action;
  std::string mount_point;
  std::string url;
  bool share = false;
  bool existing = false;
  bool json = false;
};

Status set_store(const TierVerbOptions& options) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(options.mount_point));
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor root, open_path(root_path));
  auto question = std::make_unique<IoctlTier>();
  question->command = options.url == kNoStore ? IoctlTier::kLeave : IoctlTier::kSet;
  question->share = options.share ? 1 : 0;
  question->has_other_files = options.existing ? 1 : 0;
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

int run(const TierVerbOptions& options) {
  const bool sets = options.action == "set";
  if (sets && options.url.empty())
    return fail(kTierProgram, kExitUsage, "set needs a URL, or none (see fpfs tier --help)");
  if (!sets && (!options.url.empty() || options.share || options.existing))
    return fail(kTierProgram, kExitUsage, "a URL, --share and --existing go with set (see fpfs tier --help)");
  if (options.url.size() >= sizeof IoctlTier::url)
    return fail(kTierProgram, kExitUsage, fmt::format("the URL has {} bytes, which is too long", options.url.size()));
  if (!sets) return show(options);
  if (const Status set = set_store(options); !set.is_ok()) return fail(kTierProgram, kExitFailure, set.message());
  return kExitOk;
}

}  // namespace

Verb add_tier(CLI::App& fpfs) {
  auto options = std::make_shared<TierVerbOptions>();
  CLI::App* command = fpfs.add_subcommand("tier", "The store outside this machine that an array copies to");
  command->add_option("ACTION", options->action, "status or set")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"status", "set"}));
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted, or a path below that")
      ->required()
      ->type_name("");
  command
      ->add_option("URL", options->url,
                   "set: file:///DIRECTORY or s3://BUCKET/PREFIX?endpoint=..., remembered by the array; or none")
      ->type_name("");
  command->add_flag("--share", options->share, "set: also a store that other arrays copy to");
  command->add_flag("--existing", options->existing, "set: also where there are other files, which copies may replace");
  command->add_flag("--json", options->json, "status: print one JSON object");
  command->footer(
      "The daemon reaches the store, with the keys of its environment (AWS_ACCESS_KEY_ID, ...), of a credentials file "
      "or\n"
      "of its machine's role; a URL never has them. fpfs sync --tier waits until files are copied.\n"
      "Exit code: 0, 1 failure, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
