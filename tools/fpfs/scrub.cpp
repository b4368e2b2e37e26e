// fpfs scrub: commands to the scrub of a mounted array, and what it found.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "engine/base/shell_word.h"
#include "fs/interface/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/scrub_view.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kScrubProgram = "fpfs scrub";
constexpr std::chrono::milliseconds kWaitInterval{200};

struct ScrubOptions {
  std::string action;
  std::string mount_point;
  uint64_t limit = 0;
  CLI::Option* limit_given = nullptr;
  bool json = false;
  bool wait = false;
};

uint32_t command_of(const std::string& action) {
  if (action == "start") return IoctlScrub::kStart;
  if (action == "pause") return IoctlScrub::kPause;
  if (action == "resume") return IoctlScrub::kResume;
  return IoctlScrub::kCancel;
}

Status send(const ScrubOptions& options) {
  FPFS_ASSIGN_OR_RETURN(const std::string root_path, mount_root_of(options.mount_point));
  FPFS_ASSIGN_OR_RETURN(const FileDescriptor root, open_path(root_path));
  IoctlScrub request;
  request.command = command_of(options.action);
  request.limit = options.limit;
  request.has_limit = options.limit_given->count() > 0 ? 1 : 0;
  if (::ioctl(root.number(), FPFS_IOC_SCRUB, &request) != 0) {
    if (errno == EPERM)
      return Status::from_errno(EPERM,
                                options.mount_point + ": only root and the user who mounted it command its scrub");
    return explain_mount_error(errno, options.mount_point);
  }
  if (request.error == 0) return Status::ok();
  if (request.error == EBUSY && options.action == "start")
    if (const Result<Json> scrub = read_scrub_status(options.mount_point);
        scrub.is_ok() && text_at(*scrub, "state") == "running")
      return Status::error(
          StatusCode::kBusy,
          fmt::format("{0}: a scrub is under way, {1}; fpfs scrub status --wait {2} waits for it, fpfs scrub cancel "
                      "{2} ends it",
                      options.mount_point, describe_scrub_progress(*scrub), shell_word(options.mount_point)));
  request.message[sizeof request.message - 1] = '\0';
  return Status::error(StatusCode::kInvalidArgument, fmt::format("{}: {}", options.mount_point, request.message));
}

// Until the scrub ends or is stopped by someone.
Result<Json> wait_for_end(const std::string& mount_point) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  ProgressLine progress;
  FPFS_ASSIGN_OR_RETURN(Json scrub, read_scrub_status(mount_point));
  for (;;) {
    if (text_at(scrub, "state") != "running") return scrub;
    if (interrupted) return Status::error(StatusCode::kCancelled, "interrupted; the scrub goes on (fpfs scrub pause)");
    progress.show(describe_scrub_progress(scrub));
    std::this_thread::sleep_for(kWaitInterval);
    Result<Json> now = read_scrub_status(mount_point);
    // Unmounted, or its daemon is gone.
    if (!now.is_ok())
      return Status::error(now.status().code(),
                           fmt::format("{0}; it ended before the scrub did, which goes on when the array is mounted "
                                       "again: then fpfs scrub status --wait {1} waits for it",
                                       now.status().message(), shell_word(mount_point)));
    scrub = *std::move(now);
  }
}

int run(const ScrubOptions& options) {
  const bool begins = options.action == "start" || options.action == "resume";
  if (options.limit_given->count() > 0 && !begins)
    return fail(kScrubProgram, kExitUsage, "--limit goes with start and resume (see fpfs scrub --help)");
  if (options.wait && !begins && options.action != "status")
    return fail(kScrubProgram, kExitUsage, "--wait goes with start, resume and status (see fpfs scrub --help)");
  if (options.action != "status")
    if (const Status sent = send(options); !sent.is_ok()) return fail(kScrubProgram, kExitFailure, sent.message());
  const Result<Json> scrub = options.wait ? wait_for_end(options.mount_point) : read_scrub_status(options.mount_point);
  if (!scrub.is_ok()) return fail(kScrubProgram, kExitFailure, scrub.status().message());
  if (options.json) {
    print_json(*scrub);
  } else {
    fmt::print("{}", describe_scrub(*scrub));
  }
  if (!options.wait || text_at(*scrub, "state") == "none") return kExitOk;
  if (number_at(*scrub, "errors") > number_at(*scrub, "healed")) return kExitDamage;
  return text_at(*scrub, "state") == "finished" && number_at(*scrub, "failed_saves") == 0 ? kExitOk : kExitFailure;
}

}  // namespace

Verb add_scrub(CLI::App& fpfs) {
  auto options = std::make_shared<ScrubOptions>();
  CLI::App* command =
      fpfs.add_subcommand("scrub", "Read and check everything that a mounted array holds, in the background");
  command->add_option("ACTION", options->action, "What to do")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"start", "status", "pause", "resume", "cancel"}));
  command->add_option("MOUNTPOINT", options->mount_point, "Where the array is mounted")->required()->type_name("");
  options->limit_given = add_size_option(*command, "--limit", options->limit,
                                         "start, resume: at most this many bytes per second (200M); 0: no limit");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag(
      "--wait", options->wait,
      "start, resume, status: return when it has ended; with status begin nothing: wait for what is under way");
  command->footer(
      "A scrub goes on after a remount where it was; pause keeps it from that. Exit code: 0, 1 failure, 16 usage;\n"
      "with --wait: 0 everything is as written (also what was healed), 4 damage is left, 1 it was stopped before its\n"
      "end, or files that are open, and of which a save has failed, could not be looked at");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
