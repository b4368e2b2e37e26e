#include "fs/transport/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <system_error>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/io/named_thread.h"
#include "engine/io/own_task.h"
#include "fs/transport/short_turns.h"

namespace fpfs {

namespace {

// Writes that the engine has not taken yet, beyond one per worker.
constexpr unsigned kSpareBuffers = 32;
// Interrupts a worker's read so that it looks at stopping_.
constexpr int kWakeSignal = SIGUSR1;
// Worker::began_ns of one that was caught in a call and given up: it ends when the call returns.
constexpr uint64_t kReplaced = UINT64_MAX;

// While mounting: where libfuse's words go, so that the failure is one line of ours.
thread_local std::string* t_captured = nullptr;

// What the workers at rings may take besides the pool.
uint64_t ring_memory(uint64_t buffer_memory) {
  return buffer_memory / 2;
}

void log_from_libfuse(fuse_log_level level, const char* format, va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string line = text;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  if (line.empty()) return;
  if (t_captured != nullptr) {
    *t_captured += (t_captured->empty() ? "" : "; ") + line;
  } else {
    log_line(level <= FUSE_LOG_ERR ? LogLevel::kError : LogLevel::kInfo, line);
  }
}

void install_wake_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART: read() returns EINTR
  sigemptyset(&action.sa_mask);
  sigaction(kWakeSignal, &action, nullptr);
}

}  // namespace

Channel::Channel(FileSystem& file_system, std::unique_ptr<ReceiveBuffers> buffers, const Settings& settings)
    : file_system_(file_system),
      as_user_data_{file_system, *this},
      replies_(file_system.caught_requests()),
      threads_(settings.threads),
      wants_rings_(settings.io_uring),
      expects_rings_(settings.io_uring_expected),
      buffers_(std::move(buffers)),
      at_device_(*this, *buffers_, threads_, file_system.store().options().null_write),
      at_rings_(*this, *buffers_, ring_memory(file_system.store().options().buffer_memory),
                file_system.store().options().null_write) {}

Result<std::unique_ptr<Channel>> Channel::mount(FileSystem& file_system, const fuse_lowlevel_ops& operations,
                                                const Settings& settings) {
  const uint64_t for_rings = ring_memory(file_system.store().options().buffer_memory);
  const unsigned ring_workers = settings.io_uring ? RingReceivers::workers_max(for_rings, kRequestBytesMax) : 0;
  FPFS_ASSIGN_OR_RETURN(auto buffers, ReceiveBuffers::create(settings.threads + ring_workers + kSpareBuffers));
  std::unique_ptr<Channel> channel(new Channel(file_system, std::move(buffers), settings));
  channel->event_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!channel->event_.is_open()) return Status::from_errno(errno, "make an eventfd");
  channel->nothing_ = open_nothing();
  if (!channel->nothing_.is_open()) return Status::from_errno(errno, "open /dev/null");
  std::string reason;
  t_captured = &reason;
  fuse_set_log_func(log_from_libfuse);
  Status status = channel->open_session(operations, settings);
  t_captured = nullptr;
  if (status.is_ok()) return channel;
  return reason.empty() ? status : status.with_context(reason);
}

Status Channel::open_session(const fuse_lowlevel_ops& operations, const Settings& settings) {
  std::string program = "fastpersistfs", dash_o = "-o", text = settings.options;
  char* arguments[] = {program.data(), dash_o.data(), text.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  session_ = fuse_session_new(&args, &operations, sizeof operations, &as_user_data_);
  fuse_opt_free_args(&args);
  if (session_ == nullptr)
    return Status::error(StatusCode::kInvalidArgument, "libfuse refused the mount options " + text);
  if (fuse_session_mount(session_, settings.mount_point.c_str()) != 0)
    return Status::error(
        StatusCode::kPermission,
        "could not mount at " + settings.mount_point +
            (settings.labels.empty() ? "" : " with " + settings.labels + ", which the kernel takes with SELinux only") +
            (::geteuid() == 0 ? "" : "; if fusermount3 was asked, its own message says why"));
  static const fuse_custom_io io = [] {
    fuse_custom_io hooks{};  // newer libraries have more of them
    hooks.writev = writev_hook;
    hooks.read = read_hook;
    return hooks;
  }();
  if (fuse_session_custom_io(session_, &io, fuse_session_fd(session_)) != 0) {
    unmount();
    return Status::error(StatusCode::kSystem, "libfuse refused the I/O hooks; it must be 3.13 or newer");
  }
  // A request that poll() saw may be interrupted before it is read; the receiver must not wait for the next one then.
  const int flags = ::fcntl(fuse_session_fd(session_), F_GETFL);
  if (flags < 0 || ::fcntl(fuse_session_fd(session_), F_SETFL, flags | O_NONBLOCK) < 0) {
    const Status status = Status::from_errno(errno, "make /dev/fuse non-blocking");
    unmount();
    return status;
  }
  file_system_.set_session(session_);
  return Status::ok();
}

Channel::~Channel() {
  if (session_ != nullptr) {
    file_system_.set_session(nullptr);
    // Of a connection that the kernel has ended this only releases memory. One that it keeps (files still open after a
    // lazy unmount) must not be unmounted by path: something else may be mounted there by now.
    if (!stopping_) fuse_session_unmount(session_);
    fuse_session_destroy(session_);
  }
}

void Channel::start() {
  install_wake_handler();
  running_ = threads_;
  MutexLock lock(workers_mutex_);
  for (unsigned i = 0; i < threads_; ++i) start_worker(nullptr);
}

void Channel::start_worker(RingEntry* entry) {
  workers_.push_back(std::make_unique<Worker>());
  Worker& worker = *workers_.back();
  worker.channel = this;
  worker.entry = entry;
  worker.thread = start_thread("fpfs-serve-" + std::to_string(workers_.size() - 1), [this, &worker] { work(worker); });
}

bool Channel::start_ring_worker(RingEntry& entry) {
  const MutexLock lock(workers_mutex_);
  running_.fetch_add(1);
  try {
    start_worker(&entry);
    return true;
  } catch (const std::system_error& failure) {
    workers_.pop_back();
    running_.fetch_sub(1);  // never the last: the caller runs
    log(LogLevel::kWarning, "no thread for one more worker: {}", failure.what());
    return false;
  }
}

void Channel::work(Worker& worker) {
  ask_for_short_turns();
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, kWakeSignal);
  pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
  {
    const RequestContext::Scope scope(worker.request);
    worker.entry != nullptr ? at_rings_.serve(worker) : at_device_.serve(worker);
  }
  worker.request.payload = nullptr;
  worker.finished = true;
  if (worker.began_ns.load() != kReplaced && running_.fetch_sub(1) == 1) signal_event();
}

// False: meanwhile another worker has taken this one's place.
bool Channel::handle(Worker& worker, size_t length) {
  RequestContext& context = worker.request;
  worker.has_waited = false;
  const std::span<std::byte> bytes(context.payload->request, length);
  const bool unnamed = wire::translate_request(bytes);
  context.facts = wire::examine_request(bytes);
  context.facts.unnamed = unnamed;
  const uint64_t now = monotonic_ns();
  file_system_.operation_times().begin(context.facts.unique, context.facts.opcode, now);
  if (wire::needs_names(context.facts.opcode) && file_system_.store().names_stalled()) {
    (void)refuse(context.facts.unique);
    context.facts = {};
    return true;
  }
  replies_.begin(context.facts);  // before somebody can take this one for caught with it
  worker.unique.store(context.facts.unique, std::memory_order_relaxed);
  worker.opcode.store(context.facts.opcode, std::memory_order_relaxed);
  worker.names.store(context.facts.names);
  worker.began_ns.store(now);
  fuse_buf request{};
  request.mem = context.payload->request;
  request.size = length;
  {
    // What the operation left to do is done here rather than by a thread that has to be woken. But not when it has been
    // answered at a ring: the answer goes when this thread is back there.
    std::optional<OwnTask> own;
    if (worker.is_free && wire::asks_for_commit(context.facts.opcode)) own.emplace();
    fuse_session_process_buf(session_, &request);
    if (own && worker.entry != nullptr && worker.entry->is_answered()) own->pass_on();
    worker.has_waited = own && own->run();
  }
  context.facts = {};
  // A write that was refused before it reached the engine.
  if (context.landing.file != nullptr) context.landing.file->cancel_landing(context.landing);
  uint64_t began = worker.began_ns.load();
  return began != kReplaced && worker.began_ns.compare_exchange_strong(began, 0);
}

// libfuse wants it, but we read ourselves.
ssize_t Channel::read_hook(int fd, void* buffer, size_t length, void*) {
  return ::read(fd, buffer, length);
}

ssize_t Channel::writev_hook(int fd, struct iovec* parts, int count, void* user_data) {
  Channel& channel = static_cast<Session*>(user_data)->channel;
  const auto& header = *static_cast<const wire::OutHeader*>(parts[0].iov_base);
  if (!channel.replies_.may_reply(header.unique)) {
    errno = ENOENT;  // as when the kernel does not wait for it any more
    return -1;
  }
  RequestContext* const context = RequestContext::current();
  const bool is_own = context != nullptr && header.unique == context->facts.unique;
  if (is_own && header.error == 0 && count == 2) {
    const wire::RequestFacts& request = context->facts;
    if (request.opcode == wire::kOpcodeInit) return channel.reply_to_init(fd, parts, count, request);
    if (request.opcode == wire::kOpcodeOpen || request.opcode == wire::kOpcodeCreate)
      wire::allow_parallel_writes(parts[1]);
  }
  const auto send = [&] { return channel.send(fd, parts, count); };
  const ssize_t sent = is_own ? channel.at_device_.answer(*context, send) : send();
  const int failure = errno;
  if (sent < 0 && failure == ENOENT) channel.replies_.had_answer(header.unique);
  channel.file_system_.operation_times().end(parts, count, monotonic_ns());
  if (is_own) channel.at_device_.answered(*context);  // now: its caller may be back before this returns to serve()
  errno = failure;
  return sent;
}

// To where the request came from.
ssize_t Channel::send(int fd, const struct iovec* parts, int count) {
  const auto& header = *static_cast<const wire::OutHeader*>(parts[0].iov_base);
  return RingEntries::has_number(header.unique) ? at_rings_.entries()->answer(parts, count)
                                                : ::writev(fd, parts, count);
}

ssize_t Channel::reply_to_init(int fd, struct iovec* parts, int count, const wire::RequestFacts& request) {
  wire::InitOut reply;
  if (parts[1].iov_len < sizeof reply) return ::writev(fd, parts, count);
  std::memcpy(&reply, parts[1].iov_base, sizeof reply);
  reply = wire::extend_init_reply(
      reply, request, file_system_.settings().read_bytes_max / static_cast<unsigned>(::sysconf(_SC_PAGESIZE)));
  const bool offered = (request.init_flags2 & wire::kInit2OverIoUring) != 0;
  if (expects_rings_ && !offered)
    log(LogLevel::kWarning,
        "requests do not come through io_uring: the kernel does not offer it; it does from Linux 6.14 on, after: "
        "echo Y >/sys/module/fuse/parameters/enable_uring");
  const bool rings = wants_rings_ && offered && at_rings_.prepare(reply);
  if (rings) {
    file_system_.set_over_io_uring(true);
    reply.flags |= wire::kInitExtended;
    reply.flags2 |= wire::kInit2OverIoUring;
  }
  std::memcpy(parts[1].iov_base, &reply, sizeof reply);
  // Before the answer: the first open may follow at once.
  file_system_.set_direct_mmap((reply.flags2 & wire::kInit2DirectIoAllowMmap) != 0);
  const ssize_t written = ::writev(fd, parts, count);
  at_rings_.open(rings && written >= 0);
  if (written >= 0) {
    live_ = true;
    signal_event();
  }
  return written;
}

void Channel::connection_ended() {
  fuse_session_exit(session_);
}

void Channel::signal_event() {
  const uint64_t one = 1;
  // The counter cannot overflow: it is raised twice in a life.
  (void)!::write(event_.number(), &one, sizeof one);
}

void Channel::clear_event() {
  uint64_t count = 0;
  (void)!::read(event_.number(), &count, sizeof count);
}

void Channel::unmount() {
  fuse_session_unmount(session_);
}

void Channel::stop() {
  stopping_ = true;
  at_device_.wake_all();
  // A signal that comes just before read() is lost, hence the repetition.
  while (!has_ended()) {
    {
      MutexLock lock(workers_mutex_);
      for (const auto& worker : workers_) pthread_kill(worker->thread.native_handle(), kWakeSignal);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  disconnect();
}

bool Channel::join() {
  while (!has_ended()) {
    pollfd event{event_.number(), POLLIN, 0};
    ::poll(&event, 1, 1000);
    clear_event();
  }
  bool all_came_back = true;
  MutexLock lock(workers_mutex_);
  for (const auto& worker : workers_) {
    if (worker->finished) {
      worker->thread.join();
    } else {
      worker->thread.detach();
      all_came_back = false;
    }
  }
  if (all_came_back) workers_.clear();
  return all_came_back;
}

// --- when a drive hangs ----------------------------------------------------------------------------------------------

bool Channel::refuse(uint64_t unique) {
  wire::OutHeader header{sizeof header, -EIO, unique};
  const struct iovec answer { &header, sizeof header };
  // Fails with ENOENT when the kernel does not wait for it any more, and otherwise when the connection has ended.
  const bool was_awaited = send(fuse_session_fd(session_), &answer, 1) >= 0 || errno != ENOENT;
  file_system_.operation_times().end(&answer, 1, monotonic_ns());
  return was_awaited;
}

void Channel::give_up_requests(uint64_t since_ns) {
  for (const uint64_t unique : replies_.give_up(since_ns)) (void)refuse(unique);
  MutexLock lock(workers_mutex_);
  const size_t count = workers_.size();
  for (size_t i = 0; i < count; ++i) {
    Worker& worker = *workers_[i];
    uint64_t began = worker.began_ns.load();
    if (began == 0 || began > since_ns) continue;  // kReplaced too
    wire::RequestFacts request;
    request.unique = worker.unique.load(std::memory_order_relaxed);
    request.opcode = worker.opcode.load(std::memory_order_relaxed);
    request.names = worker.names.load();
    if (!worker.began_ns.compare_exchange_strong(began, kReplaced)) continue;  // it came back just now
    if (replies_.give_up_one(request) && !refuse(request.unique)) replies_.had_answer(request.unique);
    log(LogLevel::kError, "a thread is caught in a call to a drive that does not answer; another takes its place");
    at_device_.retire(worker);
    if (has_ended() || stopping_) {
      if (running_.fetch_sub(1) == 1) signal_event();
    } else {
      start_worker(worker.entry);
    }
  }
}

// Answers that are still under way go to the number: it must not become a file's.
void Channel::disconnect() {
  connection_ended();
  (void)::dup3(nothing_.number(), fuse_session_fd(session_), O_CLOEXEC);
}

}  // namespace fpfs
