#include "engine/tier/tier_fetch.h"

#include <utility>

namespace fpfs {
namespace {

struct Fetch : std::enable_shared_from_this<Fetch> {
  explicit Fetch(Executor& of) : executor(of) {}

  Executor& executor;
  std::shared_ptr<File> file;
  std::function<void(const Status&)> done;
  ReadRequest request;
  ReadCursor cursor;
  std::shared_ptr<Fetch> keep;  // while it is being read

  void read(FileOffset offset);
  static void answered(ReadRequest& request, const Status& status);
};

void Fetch::read(FileOffset offset) {
  keep = shared_from_this();
  request.offset = offset;
  request.length = kRequestBytesMax;
  request.cursor = &cursor;
  request.reader_caches = true;
  request.owner = this;
  request.complete = answered;
  file->read(request);
}

// What was read is the pool's until this returns.
void Fetch::answered(ReadRequest& request, const Status& status) {
  const std::shared_ptr<Fetch> self = std::move(static_cast<Fetch*>(request.owner)->keep);
  const bool is_at_end = !status.is_ok() || request.bytes < request.length;
  const FileOffset next = request.offset + request.bytes;
  self->executor.post([self, is_at_end, next, status] { is_at_end ? self->done(status) : self->read(next); });
}

}  // namespace

void fetch_content(Executor& executor, const std::shared_ptr<File>& file, std::function<void(const Status&)> done) {
  const auto fetch = std::make_shared<Fetch>(executor);
  fetch->file = file;
  fetch->done = std::move(done);
  fetch->read(FileOffset(0));
}

}  // namespace fpfs
