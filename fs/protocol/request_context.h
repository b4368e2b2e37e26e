// RequestContext: what an operation may know and want of its request beside what libfuse passes. Whoever received the
// request (fs/transport) makes it; the operation asks for it while it runs, and on that thread only. So operations
// and transport know each other by this file and by libfuse's table of functions alone.
#pragma once

#include <memory>

#include "engine/file/landing.h"

namespace fpfs {

class Channel;
class File;
class FileSystem;

// The memory that a WRITE's bytes came in, kept past the operation. Whoever lent it has it back when this goes.
class ReceivedPayload {
 public:
  virtual void give_back() = 0;

 protected:
  ~ReceivedPayload() = default;
};
struct GivesBack {
  void operator()(ReceivedPayload* payload) const { payload->give_back(); }
};
using KeptPayload = std::unique_ptr<ReceivedPayload, GivesBack>;

class RequestContext {
 public:
  // Of the request that this thread handles.
  static RequestContext& current();

  // CREATE: without a name (O_TMPFILE).
  virtual bool is_unnamed() const = 0;
  // WRITE, OPEN, CREATE: the caller may not keep set-user-ID and set-group-ID bits.
  virtual bool kills_set_id() const = 0;
  // WRITE: its bytes stay where they are until what is returned goes. Once.
  virtual KeptPayload keep_payload() = 0;
  // When (the first of) the WRITE's bytes have landed in their file, the landing becomes the caller's.
  virtual bool take_landing(Landing& landing) = 0;
  // The next request is probably a write to this file.
  virtual void expect_more_of(const std::shared_ptr<File>& file) = 0;

 protected:
  ~RequestContext() = default;
  // What current() gives on this thread; null at its end.
  static void set_current(RequestContext* context);
};

// What libfuse hands to the operations and to the hooks of the transport (the user data of its session).
struct Session {
  FileSystem& file_system;
  Channel& channel;
};

}  // namespace fpfs
