#include "fs/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>

#include "engine/base/log.h"
#include "engine/io/named_thread.h"
#include "fs/operations.h"

namespace fpfs {

// What a worker has in hand. Operations and the reply hook reach it through t_worker.
struct Channel::Worker {
  Channel* channel = nullptr;
  int epoll = -1;         // that wakes this worker only; -1: none could be made, it is woken with others
  bool receives = false;  // guarded by receivers_mutex_
  ReceiveBuffer* buffer = nullptr;
  Landing landing;
  wire::RequestFacts request;
  std::thread thread;
  // For who looks whether it is caught with a request: since when it has one (0: it has none), and which.
  std::atomic<uint64_t> began_ns{0};
  std::atomic<uint64_t> unique{0};
  std::atomic<bool> finished{false};
};

namespace {

// Writes that the engine has not taken yet, beyond one per worker.
constexpr unsigned kSpareBuffers = 32;
// Interrupts a worker's read so that it looks at stopping_.
constexpr int kWakeSignal = SIGUSR1;
// Worker::began_ns of one that was caught in a call and given up: it ends when the call returns.
constexpr uint64_t kReplaced = UINT64_MAX;

thread_local Channel::Worker* t_worker = nullptr;
// While mounting: where libfuse's words go, so that the failure is one line of ours.
thread_local std::string* t_captured = nullptr;

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

// An epoll set of which the kernel wakes one waiter for a request; -1: it could not be made.
int watch_requests(int descriptor) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event requests{EPOLLIN | EPOLLEXCLUSIVE, {}};
  if (epoll < 0 || ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &requests) == 0) return epoll;
  ::close(epoll);
  return -1;
}

void install_wake_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // without SA_RESTART: read() returns EINTR
  sigemptyset(&action.sa_mask);
  sigaction(kWakeSignal, &action, nullptr);
}

}  // namespace

Channel::Channel(FileSystem& file_system, std::unique_ptr<ReceiveBuffers> buffers, unsigned threads)
    : file_system_(file_system),
      threads_(threads),
      discards_(file_system.store().options().null_write),
      buffers_(std::move(buffers)) {}

Result<std::unique_ptr<Channel>> Channel::mount(FileSystem& file_system, const MountOptions& options,
                                                unsigned threads) {
  FPFS_ASSIGN_OR_RETURN(auto buffers, ReceiveBuffers::create(threads + kSpareBuffers));
  std::unique_ptr<Channel> channel(new Channel(file_system, std::move(buffers), threads));
  channel->event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (channel->event_ < 0) return Status::from_errno(errno, "make an eventfd");
  std::string reason;
  t_captured = &reason;
  fuse_set_log_func(log_from_libfuse);
  Status status = channel->open_session(options);
  t_captured = nullptr;
  if (status.is_ok()) return channel;
  return reason.empty() ? status : status.with_context(reason);
}

Status Channel::open_session(const MountOptions& options) {
  std::string program = "fastpersistfs", dash_o = "-o", text = libfuse_options(options);
  char* arguments[] = {program.data(), dash_o.data(), text.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  session_ = fuse_session_new(&args, &fuse_operations(), sizeof(fuse_lowlevel_ops), &file_system_);
  fuse_opt_free_args(&args);
  if (session_ == nullptr)
    return Status::error(StatusCode::kInvalidArgument, "libfuse refused the mount options " + text);
  if (fuse_session_mount(session_, options.mount_point.c_str()) != 0)
    return Status::error(StatusCode::kPermission,
                         "could not mount at " + options.mount_point +
                             (::geteuid() == 0 ? "" : "; if fusermount3 was asked, its own message says why"));
  static const fuse_custom_io io = {writev_hook, read_hook, nullptr, nullptr};
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
  if (event_ >= 0) ::close(event_);
}

void Channel::start() {
  install_wake_handler();
  running_ = threads_;
  MutexLock lock(workers_mutex_);
  for (unsigned i = 0; i < threads_; ++i) start_worker();
}

void Channel::start_worker() {
  workers_.push_back(std::make_unique<Worker>());
  Worker& worker = *workers_.back();
  worker.channel = this;
  worker.epoll = watch_requests(fuse_session_fd(session_));
  worker.thread = start_thread("fpfs-serve-" + std::to_string(workers_.size() - 1), [this, &worker] { serve(worker); });
}

void Channel::serve(Worker& worker) {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, kWakeSignal);
  pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
  t_worker = &worker;
  bool goes_on = true;
  while (goes_on && !stopping_.load(std::memory_order_relaxed)) {
    if (worker.buffer == nullptr) worker.buffer = buffers_->try_take();
    if (worker.buffer == nullptr) {
      // It may take long until one is free; somebody else has to receive then.
      retire_receiver(worker);
      worker.buffer = &buffers_->take();
    }
    become_receiver(worker);
    size_t length = 0;
    goes_on = receive(worker, length);
    if (length == 0) continue;
    note_transfer(worker, length);
    if (!may_stay_receiver(worker)) retire_receiver(worker);
    goes_on = process(worker, length);
    if (receivers_.load(std::memory_order_relaxed) > receivers_wanted()) retire_receiver(worker);
  }
  retire_receiver(worker);
  t_worker = nullptr;
  if (worker.epoll >= 0) ::close(worker.epoll);
  if (worker.buffer != nullptr) buffers_->give_back(*worker.buffer);
  worker.finished = true;
  if (worker.began_ns.load() != kReplaced && running_.fetch_sub(1) == 1) signal_event();
}

// When it is not one already.
void Channel::become_receiver(Worker& worker) {
  MutexLock lock(receivers_mutex_);
  while (!worker.receives && receivers_.load(std::memory_order_relaxed) >= receivers_wanted() && !stopping_.load())
    receiver_wanted_.wait(receivers_mutex_);
  if (!std::exchange(worker.receives, true)) receivers_.fetch_add(1);
}

// When it is one: also by who finds it caught in a call (give_up_requests()). Another worker takes the place when
// nobody else waits for requests.
void Channel::retire_receiver(Worker& worker) {
  MutexLock lock(receivers_mutex_);
  if (std::exchange(worker.receives, false) && receivers_.fetch_sub(1) == 1) receiver_wanted_.notify_one();
}

bool Channel::wait_for_request(const Worker& worker) {
  epoll_event event;
  if (worker.epoll >= 0) return ::epoll_wait(worker.epoll, &event, 1, -1) > 0;
  pollfd descriptor{fuse_session_fd(session_), POLLIN, 0};
  return ::poll(&descriptor, 1, -1) > 0;
}

// Reads one request into the worker's buffer, but for what has landed: then worker.landing is held. `length` stays 0
// when there was none. False at the end of the connection.
bool Channel::receive(Worker& worker, size_t& length) {
  // The landing is taken when the request is there, so that it is held during the copy only.
  if (!wait_for_request(worker)) return true;
  Landing& landing = worker.landing;
  std::shared_ptr<File> stream;
  if (streaming_.load(std::memory_order_relaxed) && odds_.are_good()) {
    MutexLock lock(stream_mutex_);
    stream = stream_.lock();
    if (stream == nullptr) streaming_ = false;
  }
  if (stream != nullptr) (void)stream->begin_landing(landing);
  std::byte* const memory = worker.buffer->request;
  std::array<struct iovec, 4> parts;
  int count = 0;
  parts[count++] = {memory, wire::kWritePayloadOffset};
  for (unsigned i = 0; landing.file != nullptr && i < landing.part_count; ++i) parts[count++] = landing.parts[i];
  // What does not fit the landing goes where it would be without one.
  const size_t landed = landing.file != nullptr ? landing.capacity : 0;
  if (wire::kWritePayloadOffset + landed < ReceiveBuffers::kRequestSizeMax)
    parts[count++] = {memory + wire::kWritePayloadOffset + landed,
                      ReceiveBuffers::kRequestSizeMax - wire::kWritePayloadOffset - landed};
  const ssize_t result = ::readv(fuse_session_fd(session_), parts.data(), count);
  if (result >= 0) {
    length = static_cast<size_t>(result);
    settle_landing(worker, length);
    return true;
  }
  const int failure = errno;
  if (landing.file != nullptr) landing.file->cancel_landing(landing);
  if (stopping_.load(std::memory_order_relaxed)) return false;
  // ENOENT: the request was interrupted before it reached us. ENODEV: unmounted, or the connection was aborted.
  if (failure == EINTR || failure == EAGAIN || failure == ENOENT) return true;
  fuse_session_exit(session_);  // replies still under way find nobody: that is no error to speak of
  if (failure != ENODEV) log(LogLevel::kError, "reading /dev/fuse failed with errno {}; the mount ends", failure);
  return false;
}

void LandingOdds::guessed(bool right) {
  const int credit = credit_.load(std::memory_order_relaxed) + (right ? 1 : -kWrongCosts);
  credit_.store(std::clamp(credit, 0, kCreditMax), std::memory_order_relaxed);
  if (credit < 0) pause_.store(kPause, std::memory_order_relaxed);
}

// Keeps the landing when the request is the write that was expected; else moves what came there to the buffer.
void Channel::settle_landing(Worker& worker, size_t length) {
  Landing& landing = worker.landing;
  if (landing.file == nullptr) return;
  std::byte* const memory = worker.buffer->request;
  if (wire::is_write_at({memory, std::min(length, wire::kWritePayloadOffset)}, landing.offset) &&
      OpenHandles::file(wire::write_handle({memory, wire::kWritePayloadOffset})).file == landing.file) {
    odds_.guessed(true);
    return;
  }
  if (length > File::kLandingWriteMin) odds_.guessed(false);
  size_t position = wire::kWritePayloadOffset;
  for (unsigned i = 0; i < landing.part_count && position < length; ++i) {
    const size_t part = std::min(landing.parts[i].iov_len, length - position);
    std::memcpy(memory + position, landing.parts[i].iov_base, part);
    position += part;
  }
  landing.file->cancel_landing(landing);
}

void Channel::note_transfer(const Worker& worker, size_t length) {
  constexpr int kOthersBetween = 16;
  wire::InHeader header;
  std::memcpy(&header, worker.buffer->request, sizeof header);
  const int seen = transfers_seen_.load(std::memory_order_relaxed);
  if (header.opcode == wire::kOpcodeRead || length > File::kLandingWriteMin)
    transfers_seen_.store(kOthersBetween, std::memory_order_relaxed);
  else if (seen > 0)
    transfers_seen_.store(seen - 1, std::memory_order_relaxed);
}

// Some requests never wait for a drive: what they start is finished by other threads. Another request that is there
// already need not wait for this one's copy either.
bool Channel::may_stay_receiver(const Worker& worker) {
  wire::InHeader header;
  std::memcpy(&header, worker.buffer->request, sizeof header);
  switch (header.opcode) {
    case wire::kOpcodeWrite:
      if (worker.landing.file != nullptr || discards_) return true;  // no copy
      break;
    case wire::kOpcodeRead:
    case wire::kOpcodeGetAttributes:  // of an inode that is in memory, as the node holds it open
    case wire::kOpcodeGetXattr:
    case wire::kOpcodeFlush:
    case wire::kOpcodeRelease:
    case wire::kOpcodeForget:
    case wire::kOpcodeForgetMany:
      break;
    default:
      return false;
  }
  if (receivers_.load(std::memory_order_relaxed) > 1) return true;
  pollfd descriptor{fuse_session_fd(session_), POLLIN, 0};
  return ::poll(&descriptor, 1, 0) <= 0;
}

// False: meanwhile another worker has taken this one's place.
bool Channel::process(Worker& worker, size_t length) {
  const std::span<std::byte> bytes(worker.buffer->request, length);
  const bool unnamed = wire::translate_request(bytes);
  worker.request = wire::examine_request(bytes);
  worker.request.unnamed = unnamed;
  if (wire::needs_names(worker.request.opcode) && file_system_.store().names_stalled()) {
    fail_request(worker.request.unique);
    worker.request = {};
    return true;
  }
  worker.unique.store(worker.request.unique, std::memory_order_relaxed);
  worker.began_ns.store(StallWatch::monotonic_ns());
  file_system_.replies().begin(worker.request.unique, worker.request.opcode);
  fuse_buf request{};
  request.mem = worker.buffer->request;
  request.size = length;
  fuse_session_process_buf(session_, &request);
  worker.request = {};
  // A write that was refused before it reached the engine.
  if (worker.landing.file != nullptr) worker.landing.file->cancel_landing(worker.landing);
  uint64_t began = worker.began_ns.load();
  return began != kReplaced && worker.began_ns.compare_exchange_strong(began, 0);
}

const wire::RequestFacts& Channel::current_request() {
  return t_worker->request;
}

ReceiveBuffer& Channel::keep_payload() {
  ReceiveBuffer& buffer = *t_worker->buffer;
  t_worker->buffer = nullptr;
  return buffer;
}

bool Channel::take_landing(Landing& landing) {
  if (t_worker->landing.file == nullptr) return false;
  landing = std::exchange(t_worker->landing, Landing());
  return true;
}

void Channel::expect_more_of(const std::shared_ptr<File>& file) {
  Channel& channel = *t_worker->channel;
  MutexLock lock(channel.stream_mutex_);
  channel.stream_ = file;
  channel.streaming_ = true;
}

// libfuse wants it, but we read ourselves.
ssize_t Channel::read_hook(int fd, void* buffer, size_t length, void*) {
  return ::read(fd, buffer, length);
}

ssize_t Channel::writev_hook(int fd, struct iovec* parts, int count, void* user_data) {
  const auto& header = *static_cast<const wire::OutHeader*>(parts[0].iov_base);
  if (!static_cast<FileSystem*>(user_data)->replies().may_reply(header.unique)) {
    errno = ENOENT;  // as when the kernel does not wait for it any more
    return -1;
  }
  if (t_worker == nullptr) return ::writev(fd, parts, count);
  const wire::RequestFacts& request = t_worker->request;
  if (header.unique != request.unique || header.error != 0 || count != 2) return ::writev(fd, parts, count);
  if (request.opcode == wire::kOpcodeInit) return t_worker->channel->reply_to_init(fd, parts, count, request);
  if (request.opcode == wire::kOpcodeOpen || request.opcode == wire::kOpcodeCreate)
    wire::allow_parallel_writes(parts[1]);
  return ::writev(fd, parts, count);
}

ssize_t Channel::reply_to_init(int fd, struct iovec* parts, int count, const wire::RequestFacts& request) {
  wire::InitOut reply;
  if (parts[1].iov_len < sizeof reply) return ::writev(fd, parts, count);
  std::memcpy(&reply, parts[1].iov_base, sizeof reply);
  reply = wire::extend_init_reply(
      reply, request, file_system_.settings().read_bytes_max / static_cast<unsigned>(::sysconf(_SC_PAGESIZE)));
  std::memcpy(parts[1].iov_base, &reply, sizeof reply);
  // Before the answer: the first open may follow at once.
  file_system_.set_direct_mmap((reply.flags2 & wire::kInit2DirectIoAllowMmap) != 0);
  const ssize_t written = ::writev(fd, parts, count);
  if (written >= 0) {
    live_ = true;
    signal_event();
  }
  return written;
}

void Channel::signal_event() {
  const uint64_t one = 1;
  // The counter cannot overflow: it is raised twice in a life.
  (void)!::write(event_, &one, sizeof one);
}

void Channel::clear_event() {
  uint64_t count = 0;
  (void)!::read(event_, &count, sizeof count);
}

void Channel::unmount() {
  fuse_session_unmount(session_);
}

void Channel::stop() {
  {
    MutexLock lock(receivers_mutex_);
    stopping_ = true;
  }
  receiver_wanted_.notify_all();
  // A signal that comes just before read() is lost, hence the repetition.
  while (!has_ended()) {
    {
      MutexLock lock(workers_mutex_);
      for (const auto& worker : workers_) pthread_kill(worker->thread.native_handle(), kWakeSignal);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Channel::join() {
  while (!has_ended()) {
    pollfd event{event_, POLLIN, 0};
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

void Channel::fail_request(uint64_t unique) {
  wire::OutHeader header{sizeof header, -EIO, unique};
  // Fails when the answer was on its way already, or the connection has ended.
  (void)!::write(fuse_session_fd(session_), &header, sizeof header);
}

void Channel::give_up_requests(uint64_t since_ns) {
  for (const uint64_t unique : file_system_.replies().give_up(since_ns)) fail_request(unique);
  MutexLock lock(workers_mutex_);
  const size_t count = workers_.size();
  for (size_t i = 0; i < count; ++i) {
    Worker& worker = *workers_[i];
    uint64_t began = worker.began_ns.load();
    if (began == 0 || began > since_ns) continue;  // kReplaced too
    const uint64_t unique = worker.unique.load(std::memory_order_relaxed);
    if (!worker.began_ns.compare_exchange_strong(began, kReplaced)) continue;  // it came back just now
    if (file_system_.replies().give_up_one(unique)) fail_request(unique);
    log(LogLevel::kError, "a thread is caught in a call to a drive that does not answer; another takes its place");
    retire_receiver(worker);
    if (has_ended() || stopping_) {
      if (running_.fetch_sub(1) == 1) signal_event();
    } else {
      start_worker();
    }
  }
}

void Channel::disconnect() {
  ::close(fuse_session_fd(session_));
}

}  // namespace fpfs
