#include "fs/process/mount_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/array/member_directory.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "fs/interface/mount_point.h"
#include "fs/metrics/status_collector.h"
#include "fs/operations/operations.h"
#include "fs/process/heap.h"

namespace fpfs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr unsigned kThreadsMin = 4;
// A daemon whose mount is already gone may still be committing when the array is mounted again.
constexpr seconds kHolderLeavesMax{30};
// When who waits for that is told so.
constexpr seconds kHolderTold{1};
// The kernel answers a mount at once; longer means that it never will.
constexpr seconds kLiveMax{60};
// After a signal: how long files may stay open in other processes before they get EIO.
constexpr seconds kOpenFilesMax{10};
constexpr milliseconds kRetry{50};
// How long a store outside this machine, a filesystem that hangs, can hold up the end.
constexpr seconds kTierEndMax{5};
constexpr seconds kShownMax{2};
// How long who asks for metrics can hold up the end: it takes milliseconds, unless a drive hangs.
constexpr int kMetricsEndMaxMs = 5000;
// With a drive that hangs: how long the end waits for the others after their commits.
constexpr uint64_t kLeaveAfterCommitNs = 2'000'000'000;
constexpr rlim_t kDescriptorsWanted = 1024 * 1024;
constexpr int kNice = -10;

// Each name that the kernel remembers costs a descriptor.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlimit wanted = limit;
  if (wanted.rlim_max != RLIM_INFINITY) wanted.rlim_max = std::max(wanted.rlim_max, kDescriptorsWanted);
  wanted.rlim_cur = wanted.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;  // raising the hard limit takes privileges
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// The kernel enlarges the table of a process's descriptors when the next one does not fit: twice as large each time, and
// while the process has threads whoever wants that descriptor waits until all processors have been through a switch
// (expand_fdtable() in fs/file.c, synchronize_rcu()): 5 to 30 ms. So it gets its size at once, up to what half a megabyte
// holds.
void enlarge_descriptor_table() {
  constexpr rlim_t kEntriesMax = 64 * 1024;
  rlimit limit{};
  const FileDescriptor any(::open("/", O_PATH | O_CLOEXEC));
  if (!any.is_open() || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const int last = static_cast<int>(std::min(limit.rlim_cur, kEntriesMax)) - 1;
  const FileDescriptor far_away(::fcntl(any.number(), F_DUPFD_CLOEXEC, last));
}

constexpr int kBetweenTrims = 2000;  // milliseconds

// The caller of write(2) waits for this process to be scheduled, for a few microseconds of work each time: that should
// not have to wait for what computes. A wish; it takes privileges. Where sessions are scheduled as groups (autogroup),
// the nice value alone counts within this one only.
void raise_priority() {
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
  std::ofstream("/proc/self/autogroup") << kNice << std::flush;
}

// What the descriptors are for: what calls need while they run, what is kept open of the members, and for the rest what
// users hold by their open files and the names that they look up.
constexpr size_t kForCallsMin = 256;
constexpr size_t kKeptOfMemberMin = 32;
constexpr size_t kKeptOfMemberMax = 16 * 1024;

void divide_descriptors(size_t members, StoreOptions& options) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const size_t all = static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, kDescriptorsWanted));
  options.array.handles_kept = std::clamp(all / 8 / members, kKeptOfMemberMin, kKeptOfMemberMax);
  const size_t others = std::max(all / 16, kForCallsMin) + members * options.array.handles_kept;
  options.shared_handles = all - std::min(all, others);
}

// Half of what users may hold is for nodes that nobody uses; more than this cost more memory than they save time.
constexpr size_t kNodesMax = 256 * 1024;

size_t nodes_max(const StoreOptions& options) {
  return std::min(options.shared_handles / 2, kNodesMax);
}

FileDescriptor open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// As long as the kernel allows and the pool can serve.
uint32_t read_bytes_max(uint64_t buffer_memory) {
  const uint64_t longest = std::min({request_bytes_limit(), buffer_memory / 8, uint64_t{kReadBytesMax}});
  return std::max(kRequestBytesMax, static_cast<uint32_t>(round_down(longest, kMiB)));
}

unsigned thread_count(const MountOptions& options) {
  return options.threads != 0 ? options.threads : std::max(kThreadsMin, 2 * std::thread::hardware_concurrency());
}

// What the kernel reads ahead of a reader: one whole request where one core or two do everything. With more workers
// several, as each is answered by one of them: the copies of one reader's data go side by side then. Not without limit,
// because a page fault in a mapped file reads as much around it.
uint64_t kernel_read_ahead(unsigned threads, uint64_t request_bytes) {
  constexpr uint64_t kBytesMax = 4 * kMiB, kThreadsForEach = 4;
  return std::max(request_bytes, std::min(kBytesMax, threads / kThreadsForEach * request_bytes));
}

std::string escape_commas(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == ',' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string libfuse_options(const MountOptions& options) {
  std::string text = "default_permissions,subtype=fastpersistfs,fsname=" + escape_commas(options.source);
  if (options.store.array.read_only) text += ",ro";
  if (options.allow_other) text += ",allow_other";
  if (options.sync_writes) text += ",sync";
  for (const std::string& option : options.kernel_options) text += "," + escape_commas(option);
  return text;
}

// "context=...": the kernel refuses them where it has no SELinux, and does not say why.
std::string label_options(const MountOptions& options) {
  std::string labels;
  for (const std::string& option : options.kernel_options)
    if (option.find("context=") != std::string::npos) labels += (labels.empty() ? "" : ",") + option;
  return labels;
}

Channel::Settings channel_settings(const MountOptions& options) {
  using IoUring = MountOptions::IoUring;
  return {.mount_point = options.mount_point,
          .options = libfuse_options(options),
          .labels = label_options(options),
          .threads = thread_count(options),
          .io_uring = options.io_uring != IoUring::kOff,
          .io_uring_expected = options.io_uring == IoUring::kOn};
}

// Nothing moves for them by itself.
void log_leaving(const Store& store, const std::string& mount_point) {
  const Array& array = store.array();
  for (const MemberIndex m : array.members())
    if (array.is_leaving(m))
      log(LogLevel::kWarning,
          "{}, member {}, is leaving the array still: fpfs member remove {} {} goes on with that, and with --cancel it "
          "stays",
          array.member(m).path, m, shell_word(mount_point), shell_word(array.member(m).path));
}

// Those that say how copies are made, and not where to.
std::vector<std::string> tier_options_given(const TierOptions& options) {
  const TierOptions usual;
  std::vector<std::string> given;
  const auto add = [&given](const char* name, bool is_given) {
    if (is_given) given.emplace_back(name);
  };
  add("tier_keep", !(options.keep == usual.keep));
  add("tier_delete", options.copy.tier_delete != usual.copy.tier_delete);
  add("tier_share", options.share.has_value());
  add("tier_rate", options.copy.rate != usual.copy.rate);
  add("tier_rate_saving", options.rate_while_saving != usual.rate_while_saving);
  add("tier_connections", options.copy.connections != usual.copy.connections);
  add("tier_memory", options.copy.memory != usual.copy.memory);
  return given;
}

// Whether it was formatted.
Result<bool> format_if_blank(Environment& environment, const MountOptions& options) {
  FPFS_ASSIGN_OR_RETURN(const bool blank, Array::is_blank(environment, options.directories));
  if (!blank) return false;
  FormatOptions format;
  format.metadata_directory = options.store.array.metadata_directory;
  FPFS_RETURN_IF_ERROR(Array::format(environment, options.directories, format));
  const std::string made = fmt::format("{}: an array was made there, as each was absent or empty (--init)",
                                       fmt::join(options.directories, ":"));
  log(LogLevel::kInfo, "{}", made);
  if (!options.log_file.empty()) print_error(made);
  return true;
}

}  // namespace

Status MountProcess::run(Launcher& launcher) {
  FPFS_RETURN_IF_ERROR(PosixEnvironment::check_buffer_memory(options_.store.buffer_memory));
  signals_ = open_signals();
  if (!signals_.is_open()) return Status::from_errno(errno, "make a signalfd");
  raise_descriptor_limit();
  enlarge_descriptor_table();
  divide_descriptors(options_.directories.size(), options_.store);
  raise_priority();  // inherited by all threads
  launcher_ = &launcher;
  environment_.watch()->start(milliseconds(options_.store.io_timeout_ms));
  stall_listener_ = environment_.watch()->add_listener([this](StallDomain domain) { on_stall(domain); });
  {
    const StallWatch::Call looking(*environment_.watch(), kElsewhereDomain);  // at members too
    FPFS_RETURN_IF_ERROR(check_mount_point(options_.mount_point, options_.directories, options_.nonempty));
  }
  FPFS_RETURN_IF_ERROR(open_store());
  Status status = start();
  if (status.is_ok()) status = serve(launcher);
  // Also after a failed start: an array that was opened is closed properly.
  Status closed = close();
  if (status.is_ok()) status = closed;
  end_report_.say(status.is_ok() ? 0 : 1, status.is_ok() ? left_over_ : status.message());
  if (tier_is_caught_) leave_tier_behind(status);
  return status;
}

Status MountProcess::open_store() {
  bool is_formatted = false;
  if (options_.init) {
    FPFS_ASSIGN_OR_RETURN(is_formatted, format_if_blank(environment_, options_));
  }
  const auto told_at = steady_clock::now() + kHolderTold;
  const auto deadline = steady_clock::now() + kHolderLeavesMax;
  bool is_told = false;
  for (;;) {
    Result<std::unique_ptr<Store>> store = Store::open(environment_, options_.directories, options_.store);
    if (store.is_ok()) {
      store_ = std::move(*store);
      return Status::ok();
    }
    if (options_.init && !is_formatted && store.status().code() == StatusCode::kNotFound)
      return Status::error(StatusCode::kNotFound,
                           fmt::format("{}; --init formatted nothing, as not all directories are absent or empty",
                                       store.status().message()));
    const bool holder_leaves = store.status().code() == StatusCode::kBusy && !is_source_mounted(options_.source);
    if (!holder_leaves || steady_clock::now() >= deadline) return store.status();
    if (!is_told && steady_clock::now() >= told_at) {
      is_told = true;
      const std::string waits =
          fmt::format("waiting for at most {} s: {}", kHolderLeavesMax.count(), store.status().message());
      log(LogLevel::kWarning, "{}", waits);
      if (!options_.log_file.empty()) print_error(waits);
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Status MountProcess::open_tier() {
  tier_ = std::make_unique<ArrayTier>(environment_, *store_, outside_, options_.tier);
  FPFS_RETURN_IF_ERROR(tier_->open());
  const std::vector<std::string> idle = tier_options_given(options_.tier);
  if (!idle.empty() && tier_->status().state == TierStatus::State::kNone)
    log(LogLevel::kWarning,
        "{}: without effect, as this array copies nowhere; name a store by tier=URL or fpfs tier set",
        fmt::join(idle, ", "));
  return Status::ok();
}

Status MountProcess::start() {
  FPFS_RETURN_IF_ERROR(open_tier());
  FPFS_ASSIGN_OR_RETURN(const struct stat root, store_->attributes(store_->root()));
  FileSystem::Settings settings;
  settings.durable = options_.store.durable;
  settings.tier_timeout = std::chrono::milliseconds(options_.tier_timeout_ms);
  settings.killed_keeps_old = options_.killed_keeps_old;
  settings.sync_writes = options_.sync_writes;
  settings.file_access_times = options_.access_times && !options_.store.array.read_only;
  settings.directory_access_times = settings.file_access_times && options_.directory_access_times;
  if (!options_.store.array.read_only) settings.shared_for = options_.tier.share;
  settings.nodes_max = nodes_max(options_.store);
  settings.read_bytes_max = read_bytes_max(options_.store.buffer_memory);
  settings.threads = thread_count(options_);
  settings.workers = options_.workers != 0 ? options_.workers : PosixEnvironment::threads_default();
  settings.profile = options_.profile;
  settings.allow_other = options_.allow_other;
  settings.metrics = options_.metrics.text;
  settings.tier = options_.tier;
  settings.mount_point = options_.mount_point;
  settings.source = options_.source;
  file_system_ = std::make_unique<FileSystem>(environment_, *store_, *tier_, std::move(settings), root);
  FPFS_RETURN_IF_ERROR(start_metrics());
  FPFS_ASSIGN_OR_RETURN(auto channel, Channel::mount(*file_system_, fuse_operations(), channel_settings(options_)));
  const MutexLock lock(channel_mutex_);
  channel_ = std::move(channel);
  channel_->start();
  return Status::ok();
}

// Before anything is mounted: a port that is taken is a reason not to.
Status MountProcess::start_metrics() {
  if (!options_.metrics.is_set()) return Status::ok();
  FPFS_ASSIGN_OR_RETURN(metrics_,
                        MetricsServer::start(options_.metrics, std::make_unique<StatusCollector>(*file_system_)));
  return Status::ok();
}

// Its thread looks at the file system.
void MountProcess::end_metrics() {
  if (metrics_ == nullptr) return;
  if (!metrics_->stop(kMetricsEndMaxMs)) {
    if (!store_->read_only()) commit_finished();
    leave(hanging_drive());
  }
  metrics_ = nullptr;
}

Status MountProcess::serve(Launcher& launcher) {
  const auto deadline = steady_clock::now() + kLiveMax;
  while (!channel_->is_live() && !channel_->has_ended() && steady_clock::now() < deadline) {
    pollfd event{channel_->event_descriptor(), POLLIN, 0};
    ::poll(&event, 1, 1000);
    channel_->clear_event();
  }
  if (!channel_->is_live()) {
    (void)detach_mount(options_.mount_point);
    channel_->stop();
    return Status::error(StatusCode::kSystem, "the kernel did not accept the mount at " + options_.mount_point +
                                                  "; see the log above and dmesg");
  }
  const std::optional<MountEntry> mount = own_entry();
  if (mount) file_system_->set_device(makedev(mount->device_major, mount->device_minor));
  const uint64_t read_ahead = kernel_read_ahead(thread_count(options_), file_system_->settings().read_bytes_max);
  file_system_->set_cached_reads(mount && raise_read_ahead(*mount, static_cast<unsigned>(read_ahead / kKiB)));
  if (PosixEnvironment::memory_available() > options_.store.buffer_memory)
    file_system_->populate_buffers();
  else
    log(LogLevel::kWarning,
        "the machine has less memory left than buffer_memory={}: buffers take theirs as they are used; give less, or "
        "make room",
        format_size(options_.store.buffer_memory));
  file_system_->scrub().open();
  listen_for_waiters(mount);
  stage_ = Stage::kServing;
  if (!options_.foreground && options_.log_file.empty() && ::access(_PATH_LOG, F_OK) != 0)
    print_error("what this mount will have to say is lost, as no system log runs here (there is no " _PATH_LOG
                "): mount with log_file=FILE, or with -f, which logs to stderr");
  if (!options_.store.verify) log(LogLevel::kWarning, "verify=off: what programs read is not checked; to measure only");
  log_leaving(*store_, options_.mount_point);
  launcher.report_live();
  log(LogLevel::kInfo, "{} mounted at {}, {}{}{}", options_.source, options_.mount_point,
      format_count(thread_count(options_), "thread"),
      file_system_->over_io_uring() ? ", requests come through io_uring" : "",
      metrics_ != nullptr ? ", metrics at http://" + options_.metrics.text + "/metrics" : "");
  wait_for_end();
  end_report_.stop_listening();
  return Status::ok();
}

// The kernel shows what it has accepted; but once, on a busy machine, it did not at once (1 of 900 mounts of a test run).
std::optional<MountEntry> MountProcess::own_entry() const {
  const auto deadline = steady_clock::now() + kShownMax;
  for (;;) {
    std::optional<MountEntry> mount = topmost_at(options_.mount_point, kFilesystemType);
    if (mount || channel_->has_ended() || steady_clock::now() >= deadline) return mount;
    std::this_thread::sleep_for(kRetry);
  }
}

void MountProcess::listen_for_waiters(const std::optional<MountEntry>& mount) {
  const Status listening =
      mount ? end_report_.listen(*mount) : Status::error(StatusCode::kNotFound, "the mount table does not show it");
  if (!listening.is_ok())
    log(LogLevel::kWarning, "umount cannot wait for the end of this mount: {}", listening.message());
}

void MountProcess::wait_for_end() {
  Heap heap;
  while (!channel_->has_ended()) {
    pollfd events[] = {{channel_->event_descriptor(), POLLIN, 0},
                       {signals_.number(), POLLIN, 0},
                       {end_report_.descriptor(), POLLIN, 0}};
    const int ready = ::poll(events, 3, kBetweenTrims);
    if (ready < 0 && errno != EINTR) log(LogLevel::kError, "poll failed with errno {}", errno);
    if (ready == 0) heap.give_back();
    channel_->clear_event();
    end_report_.accept();
    log_repetitions();
    signalfd_siginfo signal{};
    if (::read(signals_.number(), &signal, sizeof signal) != sizeof signal) continue;
    if (signal.ssi_signo != SIGHUP) return end_by_signal(static_cast<int>(signal.ssi_signo));
    reopen_log();
  }
}

// Waits until every file that nobody is in the middle of writing is committed; failures are logged.
void MountProcess::commit_finished() {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  constexpr auto kUnfinished = ControlRequest::Unfinished::kTricklesCommitted;
  store_->commit_all(ControlRequest::Kind::kClose, kUnfinished, [&](const Store::CommitOutcome& outcome) {
    if (!outcome.status.is_ok()) log(LogLevel::kError, "{}", outcome.status.message());
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    done_changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(mutex);
  done_changed.wait(lock, [&done] { return done; });
}

// Commits what is finished, detaches the mount, and gives the processes that still have files open a bounded time to
// close them.
void MountProcess::end_by_signal(int signal) {
  log(LogLevel::kInfo, "signal {}: committing what was closed and unmounting {}", signal, options_.mount_point);
  begin_to_end();
  commit_finished();
  file_system_->copy_waits().end();  // they let go of their files

  Status detached = detach_mount(options_.mount_point);
  if (!detached.is_ok()) log(LogLevel::kError, "{}", detached.message());
  const auto deadline = steady_clock::now() + kOpenFilesMax;
  while (!channel_->has_ended() && steady_clock::now() < deadline) {
    pollfd event{channel_->event_descriptor(), POLLIN, 0};
    ::poll(&event, 1, 100);
    channel_->clear_event();
  }
  if (channel_->has_ended()) return;
  log(LogLevel::kWarning, "files of {} are still open in other processes; they get errors from now on",
      options_.mount_point);
  channel_->stop();
}

Status MountProcess::close() {
  const bool was_live = stage_ != Stage::kOpening;
  begin_to_end();
  if (channel_ != nullptr) {
    const bool all_came_back = channel_->join();
    if (!all_came_back) {
      if (!store_->read_only()) commit_finished();
      leave(hanging_drive());
    }
    file_system_->scrub().stop();
    file_system_->rebalance().stop();
  }
  if (file_system_ != nullptr) file_system_->drain();
  {
    const MutexLock lock(channel_mutex_);
    channel_ = nullptr;
  }
  end_metrics();
  if (tier_ != nullptr) end_tier(was_live);
  stage_began_ns_ = monotonic_ns();
  committed_ = true;
  if (file_system_ != nullptr) file_system_->handles().clear();
  if (tier_is_caught_)
    static_cast<void>(file_system_.release());  // leave_tier_behind()
  else
    file_system_ = nullptr;
  if (was_live) log_leaving(*store_, options_.mount_point);
  Status status = store_->close();
  const bool left_clean = store_->left_clean() || options_.store.array.read_only;
  const bool had_failed_saves = store_->had_failed_saves();
  const bool had_losses = store_->had_losses();
  const std::string not_saved = store_->not_saved();
  std::unique_ptr<Store> closed;
  {
    const MutexLock lock(channel_mutex_);
    closed = std::move(store_);
  }
  if (tier_is_caught_) {
    static_cast<void>(closed.release());  // leave_tier_behind()
  } else {
    closed = nullptr;
    tier_ = nullptr;
  }
  stall_listener_.reset();
  signals_.reset();
  end_log();
  if (!was_live && status.is_ok()) return status;  // nothing was mounted
  if (!status.is_ok() && status.code() == StatusCode::kBusy && tier_is_caught_ && !had_losses)
    log(LogLevel::kWarning, "{} unmounted; {}{}", options_.source, status.message(),
        had_failed_saves ? "; saves failed, as those who made them were told" : "");
  else if (!status.is_ok() && status.code() == StatusCode::kReadOnly && !had_losses)
    log(LogLevel::kError, "{} unmounted; {}; what was committed before that is there", options_.source,
        status.message());
  else if (!status.is_ok())
    log(LogLevel::kError, "{} unmounted, but something is lost: {}", options_.source, status.message());
  else if (left_clean)
    log(LogLevel::kInfo, "{} unmounted, everything is committed", options_.source);
  else if (!had_failed_saves)
    log(LogLevel::kWarning,
        "{} unmounted, everything is committed; something that no file needs could not be freed, the next mount does",
        options_.source);
  else
    log(LogLevel::kWarning,
        "{} unmounted; saves failed, as those who made them were told, and the next mount frees what they left behind: "
        "{}",
        options_.source, not_saved);
  if (status.is_ok() && had_failed_saves)
    left_over_ = fmt::format("saves failed, as those who made them were told: {}{}{}", not_saved,
                             left_over_.empty() ? "" : "; ", left_over_);
  return status;
}

// What is not copied yet is for the next mount.
void MountProcess::end_tier(bool was_live) {
  if (was_live) left_over_ = tier_->left_over();
  if (!left_over_.empty()) log(LogLevel::kInfo, "tier: {}", left_over_);
  tier_is_caught_ = !tier_->stop(kTierEndMax);
  if (tier_is_caught_) log(LogLevel::kError, "the store that copies go to does not let go of what was being copied");
}

// Its threads use what this process would destroy on its way out.
void MountProcess::leave_tier_behind(const Status& status) {
  if (!status.is_ok()) launcher_->report_failure(status.message());
  ::_exit(status.is_ok() ? 0 : 1);
}

// --- when a drive hangs ----------------------------------------------------------------------------------------------

void MountProcess::begin_to_end() {
  if (stage_.exchange(Stage::kEnding) != Stage::kEnding) stage_began_ns_ = monotonic_ns();
}

void MountProcess::on_stall(StallDomain domain) {
  const StallWatch& watch = *environment_.watch();
  if (stage_ == Stage::kOpening) {
    // Only the members are asked before the mount is live, so it is one of them, whichever.
    launcher_->report_failure(watch.check(domain).message() + "; the array is not mounted");
    ::_exit(1);
  }
  const uint64_t now = monotonic_ns();
  const auto limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(watch.limit()).count());
  {
    const MutexLock lock(channel_mutex_);
    if (channel_ != nullptr && now > limit_ns) channel_->give_up_requests(now - limit_ns);
  }
  if (stage_ != Stage::kEnding) return;
  // What other drives can take is committed soon after the requests for the one that hangs were given up.
  const uint64_t patience = committed_ ? kLeaveAfterCommitNs : 2 * limit_ns + kLeaveAfterCommitNs;
  if (now - stage_began_ns_ > patience) leave(watch.check(domain).message());
}

// For the end: what does not answer, or has not answered when threads were caught in it.
std::string MountProcess::hanging_drive() {
  const StallWatch& watch = *environment_.watch();
  for (uint16_t domain = 0; domain < kStallDomains; ++domain)
    if (const Status stalled = watch.check(StallDomain(domain)); !stalled.is_ok()) return stalled.message();
  return "threads are caught in calls to a drive that has answered by now, or to the kernel";
}

void MountProcess::leave(const std::string& why) {
  std::string lost;
  {
    const MutexLock lock(channel_mutex_);
    if (store_ != nullptr) lost = store_->not_saved();
  }
  if (!lost.empty()) lost = ": " + lost;
  log(LogLevel::kError,
      "{} ends without a drive that does not answer ({}); what was not committed is lost, the next mount cleans up{}",
      options_.source, why, lost);
  end_log();
  end_report_.say(1, why + "; what was not committed is lost" + lost);
  {
    const MutexLock lock(channel_mutex_);
    // The kernel keeps a process with calls under way on such a drive; nobody else may have to wait for it.
    if (channel_ != nullptr) channel_->disconnect();
  }
  ::_exit(1);
}

}  // namespace fpfs
