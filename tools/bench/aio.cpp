// How fast fastpersist-aio moves one file, with the knobs given; row 24 of the suite compares it.
//
//   fpfs-bench-aio read|write FILE BYTES BLOCK DEPTH PARALLELISM [single] [nooverlap] [small]
//
// small: memory of the smallest pages, as fio's is.
// Prints bytes per second of one request over the whole file. A write ends with fdatasync(2) and goes into a file that
// is made first, as fio's does.
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/aio/aio.h"

namespace {

using namespace fastpersist;

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "fpfs-bench-aio: %s\n", message.c_str());
  std::exit(1);
}

}  // namespace

int main(int count, char** words) {
  if (count < 7)
    fail("usage: fpfs-bench-aio read|write FILE BYTES BLOCK DEPTH PARALLELISM [single] [nooverlap] [small]");
  const std::string kind = words[1], file = words[2];
  const size_t size = std::strtoull(words[3], nullptr, 10);
  AioOptions options;
  options.block_size = std::strtoull(words[4], nullptr, 10);
  options.queue_depth = static_cast<unsigned>(std::atoi(words[5]));
  options.intra_op_parallelism = static_cast<unsigned>(std::atoi(words[6]));
  bool small = false;
  for (int i = 7; i < count; ++i) {
    if (std::strcmp(words[i], "single") == 0) options.single_submit = true;
    if (std::strcmp(words[i], "nooverlap") == 0) options.overlap_events = false;
    if (std::strcmp(words[i], "small") == 0) small = true;
  }

  Error error;
  const auto aio = AioHandle::open(options, error);
  if (aio == nullptr) fail(error.message);
  const PinnedBuffer memory = PinnedBuffer::allocate(small ? 1 : size, error);
  if (!error.is_ok()) fail(error.message);
  std::byte* bytes = memory.data();
  if (small)
    bytes = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (bytes == MAP_FAILED) fail("no memory");
  std::memset(bytes, 0x5A, size);

  const auto before = std::chrono::steady_clock::now();
  error = kind == "read" ? aio->sync_pread(file, bytes, size, 0)
                         : aio->sync_write_file(file, bytes, size, {.durable = true});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  if (!error.is_ok()) fail(error.message);
  std::printf("%.0f\n", static_cast<double>(size) / took.count());
  return 0;
}
