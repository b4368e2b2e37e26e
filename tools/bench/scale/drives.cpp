#include "tools/bench/scale/drives.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tools/bench/scale/cores.h"

namespace fpfs::scale {

void Drives::start(io_context_t drive, struct iocb& transfer) {
  const bool reads = transfer.aio_lio_opcode == IO_CMD_PREAD;
  const double rate = reads ? speed_.read_bytes : speed_.write_bytes;
  const unsigned long bytes = transfer.u.c.nbytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  Drive& own = drives_[drive];
  own.busy_until_ns = std::max(own.busy_until_ns, now_ns());
  if (rate > 0) own.busy_until_ns += static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / rate);
  struct io_event event {};
  event.data = transfer.data;
  event.obj = &transfer;
  event.res = bytes;
  under_way_.push({own.busy_until_ns + (reads ? speed_.read_latency_ns : speed_.write_latency_ns), &own, event,
                   static_cast<int>(transfer.u.c.resfd)});
  if (!runs_) {
    runs_ = true;
    std::thread([this] { run(); }).detach();  // until the process ends
  }
  earlier_.notify_one();
}

int Drives::take(io_context_t drive, int count, struct io_event* events) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto own = drives_.find(drive);
  if (own == drives_.end()) return 0;
  std::deque<struct io_event>& ended = own->second.ended;
  const int taken = std::min(count, static_cast<int>(ended.size()));
  std::copy_n(ended.begin(), taken, events);
  ended.erase(ended.begin(), ended.begin() + taken);
  return taken;
}

void Drives::run() {
  ::pthread_setname_np(::pthread_self(), "modelled-drives");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (under_way_.empty()) {
      earlier_.wait(lock);
      continue;
    }
    const Ending next = under_way_.top();
    const uint64_t now = now_ns();
    if (next.when_ns > now) {
      earlier_.wait_for(lock, std::chrono::nanoseconds(next.when_ns - now));
      continue;
    }
    under_way_.pop();
    next.drive->ended.push_back(next.event);
    const uint64_t one = 1;
    if (::write(next.eventfd, &one, sizeof one) != sizeof one) std::abort();
  }
}

}  // namespace fpfs::scale
