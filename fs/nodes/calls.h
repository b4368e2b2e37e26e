// What a request under way keeps until it is answered: the engine's request with what is needed for the reply. Taken
// from CallPools, so the data path allocates none.
#pragma once

#include <functional>
#include <memory>

#include "engine/file/file.h"
#include "engine/file/requests.h"
#include "fs/protocol/fuse_library.h"
#include "fs/protocol/request_context.h"

namespace fpfs {

class FileSystem;
struct OpenFile;

struct ReadCall {
  ReadRequest request;
  FileSystem* file_system = nullptr;
  OpenFile* open = nullptr;
  fuse_req_t reply_to = nullptr;
};

struct WriteCall {
  WriteRequest request;
  ControlRequest commit;  // of an O_SYNC write
  FileSystem* file_system = nullptr;
  OpenFile* open = nullptr;
  fuse_req_t reply_to = nullptr;
  KeptPayload payload;  // null: all of it has landed
  Landing landing;
  bool synchronous = false;
  bool is_direct = false;  // O_DIRECT
};

struct ControlCall {
  ControlRequest request;
  FileSystem* file_system = nullptr;
  std::shared_ptr<File> file;
  std::function<void(const ControlRequest& request, const Status& status)> then;
};

}  // namespace fpfs
