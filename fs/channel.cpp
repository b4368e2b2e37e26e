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
  int epoll = -1;
  ReceiveBuffer* buffer = nullptr;
  Landing landing;
  wire::RequestFacts request;
};

namespace {

// Writes that the engine has not taken yet, beyond one per worker.
constexpr unsigned kSpareBuffers = 32;
// Interrupts a worker's read so that it looks at stopping_.
constexpr int kWakeSignal = SIGUSR1;

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
  // A request that poll() saw may be interrupted before it is read; the leader must not wait for the next one then.
  const int flags = ::fcntl(fuse_session_fd(session_), F_GETFL);
  if (flags < 0 || ::fcntl(fuse_session_fd(session_), F_SETFL, flags | O_NONBLOCK) < 0) {
    const Status status = Status::from_errno(errno, "make /dev/fuse non-blocking");
    unmount();
    return status;
  }
  for (unsigned i = 0; i < threads_; ++i) {
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event requests{EPOLLIN | EPOLLEXCLUSIVE, {}};
    if (epoll >= 0) epolls_.push_back(epoll);
    if (epoll >= 0 && ::epoll_ctl(epoll, EPOLL_CTL_ADD, fuse_session_fd(session_), &requests) == 0) continue;
    const Status status = Status::from_errno(errno, "make an epoll set for /dev/fuse");
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
  for (const int epoll : epolls_) ::close(epoll);
  if (event_ >= 0) ::close(event_);
}

void Channel::start() {
  install_wake_handler();
  running_ = threads_;
  for (unsigned i = 0; i < threads_; ++i)
    workers_.push_back(start_thread("fpfs-serve-" + std::to_string(i), [this, i] { serve(epolls_[i]); }));
}

void Channel::serve(int epoll) {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, kWakeSignal);
  pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
  Worker worker;
  worker.channel = this;
  worker.epoll = epoll;
  t_worker = &worker;
  bool receiving = false;
  bool is_open = true;
  while (is_open && !stopping_.load(std::memory_order_relaxed)) {
    if (worker.buffer == nullptr) worker.buffer = buffers_->try_take();
    if (worker.buffer == nullptr) {
      // It may take long until one is free; somebody else has to receive then.
      if (receiving) retire_receiver();
      receiving = false;
      worker.buffer = &buffers_->take();
    }
    if (!receiving) become_receiver();
    receiving = true;
    size_t length = 0;
    is_open = receive(worker, length);
    if (length == 0) continue;
    if (!may_stay_receiver(worker)) {
      retire_receiver();
      receiving = false;
    }
    process(worker, length);
    if (receiving && receivers_.load(std::memory_order_relaxed) > receivers_wanted()) {
      retire_receiver();
      receiving = false;
    }
  }
  if (receiving) retire_receiver();
  t_worker = nullptr;
  if (worker.buffer != nullptr) buffers_->give_back(*worker.buffer);
  if (running_.fetch_sub(1) == 1) signal_event();
}

void Channel::become_receiver() {
  MutexLock lock(receivers_mutex_);
  while (receivers_.load(std::memory_order_relaxed) >= receivers_wanted() && !stopping_.load())
    receiver_wanted_.wait(receivers_mutex_);
  receivers_.fetch_add(1);
}

// Another worker takes the place when nobody else waits for requests.
void Channel::retire_receiver() {
  MutexLock lock(receivers_mutex_);
  if (receivers_.fetch_sub(1) == 1) receiver_wanted_.notify_one();
}

// Reads one request into the worker's buffer, but for what has landed: then worker.landing is held. `length` stays 0
// when there was none. False at the end of the connection.
bool Channel::receive(Worker& worker, size_t& length) {
  // The landing is taken when the request is there, so that it is held during the copy only.
  epoll_event event;
  if (::epoll_wait(worker.epoll, &event, 1, -1) <= 0) return true;
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

void Channel::process(Worker& worker, size_t length) {
  const std::span<std::byte> bytes(worker.buffer->request, length);
  const bool unnamed = wire::translate_request(bytes);
  worker.request = wire::examine_request(bytes);
  worker.request.unnamed = unnamed;
  fuse_buf request{};
  request.mem = worker.buffer->request;
  request.size = length;
  fuse_session_process_buf(session_, &request);
  worker.request = {};
  // A write that was refused before it reached the engine.
  if (worker.landing.file != nullptr) worker.landing.file->cancel_landing(worker.landing);
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

ssize_t Channel::writev_hook(int fd, struct iovec* parts, int count, void*) {
  if (t_worker == nullptr) return ::writev(fd, parts, count);
  const wire::RequestFacts& request = t_worker->request;
  const auto& header = *static_cast<const wire::OutHeader*>(parts[0].iov_base);
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
  reply = wire::extend_init_reply(reply, request);
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
    for (std::thread& worker : workers_) pthread_kill(worker.native_handle(), kWakeSignal);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Channel::join() {
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

}  // namespace fpfs
