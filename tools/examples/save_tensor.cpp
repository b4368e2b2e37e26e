// Saves a tensor to a file and loads it again, with fastpersist-aio:
//
//   g++ -std=c++20 save_tensor.cpp -o save_tensor $(pkg-config --cflags --libs fastpersist-aio)
//   save_tensor FILE [ELEMENTS]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include <fastpersist/aio.h>

namespace {

[[noreturn]] void fail(const fastpersist::Error& error) {
  std::fprintf(stderr, "save_tensor: %s\n", error.message.c_str());
  std::exit(1);
}

void finish(fastpersist::AioHandle& aio) {
  const fastpersist::Waited waited = aio.wait();
  if (!waited.is_ok()) fail(waited.failures.front().error);
}

fastpersist::PinnedBuffer memory_of(size_t bytes) {
  fastpersist::Error error;
  fastpersist::PinnedBuffer buffer = fastpersist::PinnedBuffer::allocate(bytes, error);
  if (!error.is_ok()) fail(error);
  return buffer;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2 || count > 3) {
    std::fprintf(stderr, "usage: save_tensor FILE [ELEMENTS]\n");
    return 2;
  }
  const char* const file = words[1];
  const size_t elements = count == 3 ? std::strtoull(words[2], nullptr, 10) : 1'000'003;

  const fastpersist::PinnedBuffer saved = memory_of(elements * sizeof(float));
  const std::span tensor(reinterpret_cast<float*>(saved.data()), elements);
  for (size_t i = 0; i < elements; ++i) tensor[i] = static_cast<float>(i) * 0.5f;

  fastpersist::Error error;
  const auto aio = fastpersist::AioHandle::open({.queue_depth = 32, .intra_op_parallelism = 2}, error);
  if (aio == nullptr) fail(error);

  // On the drive when wait() returns. The memory stays as it is until then.
  aio->async_write_file(file, saved.data(), saved.size(), {.durable = true});
  finish(*aio);

  const fastpersist::PinnedBuffer loaded = memory_of(saved.size());
  aio->async_pread(file, loaded.data(), loaded.size(), 0);
  finish(*aio);

  if (std::memcmp(saved.data(), loaded.data(), saved.size()) != 0) {
    std::fprintf(stderr, "save_tensor: %s has other content\n", file);
    return 1;
  }
  std::printf("%zu bytes saved and loaded\n", saved.size());
  return 0;
}
