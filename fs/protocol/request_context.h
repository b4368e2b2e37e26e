// RequestContext: what an operation may know and want of its request beside what libfuse passes. Whoever receives
// requests (fs/transport) fills it in; the operation looks at it while it runs, and on that thread only. So operations
// and transport know each other by this file and by libfuse's table of functions alone.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/file/landing.h"
#include "fs/protocol/fuse_wire.h"

namespace fpfs {

class Channel;
class FileSystem;

// The memory that requests come in. Whoever lent it has it back when its owner lets it go.
class ReceivedPayload {
 public:
  std::byte* request = nullptr;  // where the request's header goes
  virtual void give_back() = 0;

 protected:
  ~ReceivedPayload() = default;
};
struct GivesBack {
  void operator()(ReceivedPayload* payload) const { payload->give_back(); }
};
using KeptPayload = std::unique_ptr<ReceivedPayload, GivesBack>;

struct RequestContext {
  wire::RequestFacts facts;
  // WRITE: when its `file` is not null, (the first of) the bytes have landed there. Who moves it away owns it.
  Landing landing;
  // Where the request lies. Who moves it away keeps a WRITE's bytes where they are for as long.
  KeptPayload payload;
  // The handle whose long read or write it is, until it is answered; 0: none, or over.
  uint64_t stream = 0;
  // Not null: its caller shares a processor with who answers it, and is to come first there (fs/transport/give_way.h); the
  // processors that who answers may run on if that takes too long. Stays from request to request while that is so.
  const cpu_set_t* elsewhere = nullptr;

  // Of the request that this thread handles; null on a thread that handles none.
  static RequestContext* current();

  // Makes it the thread's, for a scope.
  class Scope {
   public:
    explicit Scope(RequestContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
};

// What libfuse hands to the operations and to the hooks of the transport (the user data of its session).
struct Session {
  FileSystem& file_system;
  Channel& channel;
};

}  // namespace fpfs
