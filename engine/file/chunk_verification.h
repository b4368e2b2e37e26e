// ChunkVerification: one chunk that is read from its drive, past the cache, and checked (File::verify_chunk). Of the
// file's list of those under way until it is answered, and alive until its transfer has ended.
#pragma once

#include <functional>
#include <memory>

#include "engine/base/intrusive_list.h"
#include "engine/file/object_set.h"
#include "engine/index/extent_table.h"
#include "engine/io/buffer_pool.h"
#include "engine/io/handle_cache.h"
#include "engine/io/io_queue.h"
#include "engine/io/stall_watch.h"

namespace fpfs {

class File;

struct ChunkVerification {
  std::shared_ptr<File> file;
  std::shared_ptr<ObjectSet> objects;
  HandleCache::Pin object;  // while it is read
  ChunkIndex chunk = 0;
  Extent extent;                  // there is none when the content is in the sidecar
  StallWatch::Domain domain = 0;  // whose drive is waited for
  Buffer* buffer = nullptr;
  BufferPool::Waiter waiter;
  IoRequest io;
  std::function<void(const Status&)> done;
  // Guarded by the file.
  ListLink<ChunkVerification> link;
  bool submitted = false;
  bool given_up = false;  // answered already; only the buffer is left to give back
};

}  // namespace fpfs
