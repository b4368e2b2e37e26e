#include "tools/fpfs/tier_call.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "tools/common/interrupt.h"
#include "tools/fpfs/mounted.h"

namespace fpfs::tools {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two looks, a part of the time that has passed: what is over is seen so much later at most.
constexpr int kPauses = 32;
constexpr milliseconds kShortestPause{2}, kLongestPause{250};

Status send_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named) {
  if (::ioctl(file.number(), FPFS_IOC_TIER, &question) == 0) return Status::ok();
  if (errno == EPERM) return refuse_tier(named);
  return explain_mount_error(errno, named);
}

}  // namespace

Status refuse_tier(const std::string& named) {
  return Status::error(StatusCode::kPermission,
                       named + ": only root, who mounted it, and for a file who may write it can ask for that");
}

Status begin_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named) {
  FPFS_RETURN_IF_ERROR(send_tier(file, question, named));
  question.command = IoctlTier::kAsk;
  return Status::ok();
}

std::optional<Status> ask_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named) {
  if (Status asked = send_tier(file, question, named); !asked.is_ok()) return asked;
  if (question.is_over == 0) return std::nullopt;
  if (question.error == 0) return Status::ok();
  question.message[sizeof question.message - 1] = '\0';
  return Status::error(question.error == EBUSY ? StatusCode::kBusy : StatusCode::kInvalidArgument,
                       fmt::format("{}: {}", named, question.message));
}

Status call_tier(const FileDescriptor& file, IoctlTier& question, const std::string& named, unsigned timeout_s,
                 const std::function<void()>& meanwhile) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  const bool only_waits = question.command == IoctlTier::kWait;
  FPFS_RETURN_IF_ERROR(begin_tier(file, question, named));
  const auto begun = steady_clock::now();
  const auto deadline = begun + std::chrono::seconds(timeout_s);
  for (;;) {
    if (const std::optional<Status> outcome = ask_tier(file, question, named)) return *outcome;
    if (interrupted)
      return Status::error(StatusCode::kCancelled,
                           named + (only_waits ? ": interrupted; copying goes on"
                                               : ": interrupted; the daemon goes on with it (fpfs tier status)"));
    if (timeout_s > 0 && steady_clock::now() >= deadline)
      return Status::error(
          StatusCode::kUnreachable,
          fmt::format("{}: not over after {} s; fpfs tier status says how far it is, or why it cannot go on", named,
                      timeout_s));
    if (meanwhile) meanwhile();
    const steady_clock::duration pause = (steady_clock::now() - begun) / kPauses;
    std::this_thread::sleep_for(std::clamp<steady_clock::duration>(pause, kShortestPause, kLongestPause));
  }
}

}  // namespace fpfs::tools
