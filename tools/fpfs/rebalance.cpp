// fpfs rebalance: moves what a mounted array holds over all of its members.
#include <memory>

#include <fmt/format.h>

#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "tools/fpfs/member_call.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/moving_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kRebalanceProgram = "fpfs rebalance";

struct RebalanceOptions {
  std::string mount_point;
  uint64_t limit = 0;
  bool status = false;
  bool wait = false;
  bool cancel = false;
  bool json = false;
};

std::string how_to_go_on(const Json& rebalance, const RebalanceOptions& options) {
  return text_at(rebalance, "kind") == "removal"
             ? fmt::format("fpfs member remove {} DIR, with the member's directory, goes on",
                           shell_word(options.mount_point))
             : fmt::format("fpfs rebalance {} goes on", shell_word(options.mount_point));
}

// The moving for them has ended; they have not come back with that.
void tell_of_leaving(const Json& rebalance, const RebalanceOptions& options) {
  if (text_at(rebalance, "state") == "running") return;
  const Result<Json> status = read_mount_status(options.mount_point);
  if (!status.is_ok()) return;
  for (const std::string& directory : leaving_members(*status))
    note(kRebalanceProgram, "note: " + describe_leaving(directory, options.mount_point));
}

// What was moved last was for a removal, which has ended.
bool was_removal(const std::string& mount_point) {
  const Result<Json> moving = read_rebalance_status(mount_point);
  return moving.is_ok() && text_at(*moving, "kind") == "removal" && text_at(*moving, "state") != "running";
}

int run(const RebalanceOptions& options) {
  const bool begins = !options.status && !options.wait && !options.cancel;
  const bool waits = begins || options.wait;
  if (begins || options.cancel) {
    const auto question = std::make_unique<IoctlMembers>();
    question->command = begins ? IoctlMembers::kRebalance : IoctlMembers::kCancel;
    question->limit = options.limit;
    const Status sent = call_members(options.mount_point, *question);
    if (!sent.is_ok() && options.cancel && was_removal(options.mount_point))
      return fail(kRebalanceProgram, kExitFailure, "nothing to cancel: no content of a member is being moved");
    if (!sent.is_ok()) return fail(kRebalanceProgram, kExitFailure, sent.message());
  }
  Result<Json> rebalance = read_rebalance_status(options.mount_point);
  if (waits && rebalance.is_ok()) {
    Result<Json> end = follow_moving(options.mount_point);
    // Unmounted, or its daemon is gone.
    if (!end.is_ok() && end.status().code() != StatusCode::kCancelled)
      return fail(
          kRebalanceProgram, kExitFailure,
          fmt::format("{}; it ended before the {} did: when the array is mounted again, {}", end.status().message(),
                      text_at(*rebalance, "kind", "rebalance"), how_to_go_on(*rebalance, options)));
    rebalance = std::move(end);
  }
  if (rebalance.status().code() == StatusCode::kCancelled)
    return fail(kRebalanceProgram, kExitFailure, "interrupted; it goes on (fpfs rebalance --cancel ends it)");
  if (!rebalance.is_ok()) return fail(kRebalanceProgram, kExitFailure, rebalance.status().message());
  if (options.json)
    print_json(*rebalance);
  else
    fmt::print("{}", describe_moving(*rebalance));
  if (!waits) tell_of_leaving(*rebalance, options);
  if (!waits || text_at(*rebalance, "state") == "none") return kExitOk;
  if (text_at(*rebalance, "kind") == "removal" && text_at(*rebalance, "state") == "cancelled")
    if (const Result<Json> status = read_mount_status(options.mount_point);
        status.is_ok() && leaving_members(*status).empty())
      return fail(kRebalanceProgram, kExitFailure, "the removal was cancelled: no member is leaving any more");
  if (text_at(*rebalance, "state") != "finished")
    return fail(kRebalanceProgram, kExitFailure, why_it_ended(*rebalance) + "; " + how_to_go_on(*rebalance, options));
  if (const uint64_t left = number_at(*rebalance, "chunks_left"); left > 0)
    return fail(kRebalanceProgram, kExitFailure,
                fmt::format("{} {} where {}, for the reasons above; after that {}", format_count(left, "chunk"),
                            one_or_many(left, "stays", "stay"), one_or_many(left, "it is", "they are"),
                            how_to_go_on(*rebalance, options)));
  if (!array_at(*rebalance, "left").empty())
    return fail(kRebalanceProgram, kExitFailure,
                fmt::format("something stays where it is, for the reasons above; after that {}",
                            how_to_go_on(*rebalance, options)));
  return kExitOk;
}

}  // namespace

Verb add_rebalance(CLI::App& fpfs) {
  auto options = std::make_shared<RebalanceOptions>();
  CLI::App* command =
      fpfs.add_subcommand("rebalance", "Move what a mounted array holds over all members, and wait for it");
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  add_size_option(*command, "--limit", options->limit, "Move at most this many bytes per second (200M); 0: no limit");
  CLI::Option* status = command->add_flag("--status", options->status, "Only say how far it is");
  CLI::Option* wait = command->add_flag("--wait", options->wait,
                                        "Begin nothing: wait for what is under way, also for a removal's moving");
  CLI::Option* cancel = command->add_flag("--cancel", options->cancel, "End it where it is; begun again, it goes on");
  status->excludes(wait)->excludes(cancel);
  wait->excludes(cancel);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "It goes on when this command is interrupted, and ends when the array is unmounted. What is in its place is\n"
      "passed by. Exit code: 0 all is in its place, 1 failure or some is not, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
