// The engine's requests as awaitable calls. The request lives in the coroutine's frame until its completion:
//
//   WriteCall call(scheduler, file, offset, data);
//   call.start();
//   const Status status = co_await call;
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/store/store.h"
#include "tests/crash/task.h"

namespace fpfs::crash {

// Common part: who waits, and that a completion comes exactly once.
struct Call {
  explicit Call(Scheduler& call_scheduler) : scheduler(call_scheduler) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { FPFS_CHECK(completed || !started, "a request is gone before its completion"); }
  void complete(const Status& result) {
    FPFS_CHECK(started && !completed, "a request completed twice");
    completed = true;
    status = result;
    if (waiting) scheduler.ready(waiting);
  }
  // Awaited where it stands, and not copied.
  struct Waiter {
    Call* call;
    bool await_ready() const { return call->completed; }
    void await_suspend(std::coroutine_handle<> client) { call->waiting = client; }
    Status await_resume() const { return call->status; }
  };
  Waiter operator co_await() { return {this}; }

  Scheduler& scheduler;
  std::coroutine_handle<> waiting;
  Status status;
  bool started = false;
  bool completed = false;
};

struct WriteCall : Call {
  WriteCall(Scheduler& call_scheduler, File& target, uint64_t offset, std::span<const std::byte> data)
      : Call(call_scheduler), file(target) {
    request.offset = FileOffset(offset);
    request.length = static_cast<uint32_t>(data.size());
    request.data = data.data();
    request.owner = this;
    request.complete = [](WriteRequest& done, const Status& result) {
      static_cast<WriteCall*>(done.owner)->complete(result);
    };
  }
  void start() {
    started = true;
    file.write(request);
  }

  File& file;
  WriteRequest request;
};

struct ControlCall : Call {
  ControlCall(Scheduler& call_scheduler, File& target, ControlRequest::Kind kind, uint64_t offset = 0,
              uint64_t length = 0)
      : Call(call_scheduler), file(target) {
    request.kind = kind;
    request.offset = FileOffset(offset);
    request.length = length;
    request.owner = this;
    request.complete = [](ControlRequest& done, const Status& result) {
      static_cast<ControlCall*>(done.owner)->complete(result);
    };
  }
  void start() {
    started = true;
    file.control(request);
  }

  File& file;
  ControlRequest request;
};

// `data`: the bytes that were read; fewer than asked for only at the end of the file.
struct ReadCall : Call {
  ReadCall(Scheduler& call_scheduler, File& target, uint64_t offset, uint32_t length, ReadCursor* cursor = nullptr)
      : Call(call_scheduler), file(target) {
    request.offset = FileOffset(offset);
    request.length = length;
    request.cursor = cursor;
    request.owner = this;
    request.complete = [](ReadRequest& done, const Status& result) {
      auto& self = *static_cast<ReadCall*>(done.owner);
      for (unsigned i = 0; result.is_ok() && i < done.iov_count; ++i) {
        const auto* bytes = static_cast<const std::byte*>(done.iov[i].iov_base);
        self.data.insert(self.data.end(), bytes, bytes + done.iov[i].iov_len);
      }
      FPFS_CHECK(!result.is_ok() || self.data.size() == done.bytes, "a read's vectors hold as much as it says");
      self.complete(result);
    };
  }
  void start() {
    started = true;
    file.read(request);
  }

  File& file;
  ReadRequest request;
  std::vector<std::byte> data;
};

struct RenameCall : Call {
  RenameCall(Scheduler& call_scheduler, Store& target, Handle from_directory, std::string from, Handle to_directory,
             std::string to, unsigned rename_flags)
      : Call(call_scheduler),
        store(target),
        from_handle(from_directory),
        to_handle(to_directory),
        from_name(std::move(from)),
        to_name(std::move(to)),
        flags(rename_flags) {}
  void start() {
    started = true;
    store.rename_async(from_handle, from_name, to_handle, to_name, flags,
                       [this](const Status& result) { complete(result); });
  }

  Store& store;
  Handle from_handle, to_handle;
  std::string from_name, to_name;
  unsigned flags;
};

struct SyncAllCall : Call {
  SyncAllCall(Scheduler& call_scheduler, Store& target, ControlRequest::Unfinished about_unfinished)
      : Call(call_scheduler), store(target), unfinished(about_unfinished) {}
  void start() {
    started = true;
    store.commit_all(ControlRequest::Kind::kCommit, unfinished,
                     [this](const Store::CommitOutcome& outcome) { complete(outcome.status); });
  }

  Store& store;
  ControlRequest::Unfinished unfinished;
};

}  // namespace fpfs::crash
