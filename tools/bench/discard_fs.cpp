// The least that a FUSE filesystem can do for a writer: accepts every write and forgets it. What the null_write mount
// of fastpersistfs is measured against (row 13 of docs/benchmarks.md).
//
// One flat directory of up to kFilesMax files that know their size only. Files are opened with FOPEN_DIRECT_IO.
// Requests are handled by libfuse's own multi-threaded loop.
//
//   fpfs-bench-discard [--pool BYTES [--drives FILE[:FILE...]]] MOUNTPOINT
//
// With --pool what is written goes to the next place of a pool of so many bytes (huge pages where the system gives them,
// all of them resident), as in a filesystem that has to keep it: the kernel copies into memory that no cache holds. And
// to where it lies in its page of the file, as in one that gives it to a drive past the page cache (O_DIRECT): the kernel's
// copy of a page takes a fifth longer where source and destination are not a multiple of 32 bytes apart, and up to seven
// times where they are 1 to 31 apart (docs/benchmarks/row06.md). What is read comes from there, as long as the pool has
// not come round: what is left of a load without drives and hashes. The kernel's part of a save and of a load (rows 3, 6
// and 12).
//
// With --drives these files are read while a file is read from the pool, all at the same time, each from its beginning to its
// end as fast as it comes, past the page cache; and a read is answered when as much came from them as was asked for: what is
// left of a load from drives that give as much as these. When all has been asked for, it begins anew with a read that comes
// half a second later. The kernel asks for as much at once, and keeps as much, as with fastpersistfs.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tools/bench/serve.h"

namespace {

constexpr double kCacheSeconds = 1.0;
constexpr fuse_ino_t kFirstFile = FUSE_ROOT_ID + 1;
constexpr size_t kFilesMax = 64;

// What one write brought.
struct Piece {
  const std::byte* data;
  size_t size;
  std::unique_ptr<std::byte[]> own;  // of a small one: the data
};

struct File {
  std::string name;  // empty: not in use
  std::atomic<off_t> size{0};
  std::mutex mutex;               // of the pieces
  std::map<off_t, Piece> pieces;  // by where they begin; with a pool only. None overlaps another

  void clear() {
    const std::lock_guard lock(mutex);
    pieces.clear();
    size = 0;
  }
};

struct Files {
  std::mutex mutex;  // of the names
  std::array<File, kFilesMax> files;
};

Files g_files;

File& file_of(fuse_ino_t node) {
  return g_files.files[node - kFirstFile];
}

// --- the pool --------------------------------------------------------------------------------------------------------

constexpr size_t kHeaderBytes = 80;  // of a write request: fuse_in_header and fuse_write_in
constexpr size_t kPage = 4096;
constexpr size_t kPayloadMax = size_t{1} << 20;
constexpr size_t kPlaceBytes = kPayloadMax + kPage;
constexpr uint32_t kWriteOpcode = 16;

struct Pool {
  std::byte* memory = nullptr;
  std::mutex mutex;
  // But for those that threads have in hand: the next one first; what was kept last, last.
  std::deque<std::byte*> places;

  bool make(size_t bytes) {
    // So many that no thread finds none (libfuse has ten of them).
    const size_t count = std::max<size_t>(bytes / kPlaceBytes, 16);
    void* const made = ::mmap(nullptr, count * kPlaceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return false;
    (void)::madvise(made, count * kPlaceBytes, MADV_HUGEPAGE);
    std::memset(made, 1, count * kPlaceBytes);
    memory = static_cast<std::byte*>(made);
    for (size_t index = 0; index < count; ++index) places.push_back(memory + index * kPlaceBytes);
    return true;
  }

  std::byte* take() {
    const std::lock_guard lock(mutex);
    std::byte* const place = places.front();
    places.pop_front();
    return place;
  }
  void give_back(std::byte* place) {
    const std::lock_guard lock(mutex);
    places.push_front(place);
  }
  // Its content is needed until its turn comes again.
  void keep(std::byte* place) {
    const std::lock_guard lock(mutex);
    places.push_back(place);
  }
};

Pool g_pool;
thread_local std::byte* t_place = nullptr;  // of the request in hand
thread_local size_t t_in_place = 0;         // where its payload begins
// Where in its page the next write is expected to begin, as who writes goes on where he was: where it does is known when
// it has been read. (Who waits in read(2) has said so some requests before. It does not matter, as the offsets are of one
// kind: multiples of 64 or of 8. To wait in epoll and look then was slower by half, beside busy drives.)
std::atomic<size_t> g_next_in_page{0};

void keep(File& file, size_t size, off_t offset) {
  constexpr size_t kSmall = kPayloadMax / 4;
  Piece piece{t_place + t_in_place, size, nullptr};
  g_next_in_page.store((static_cast<size_t>(offset) + size) % kPage, std::memory_order_relaxed);
  if (size < kSmall) {
    piece.own = std::make_unique<std::byte[]>(size);
    std::memcpy(piece.own.get(), piece.data, size);
    piece.data = piece.own.get();
    g_pool.give_back(t_place);
  } else {
    g_pool.keep(t_place);
  }
  const std::lock_guard lock(file.mutex);
  file.pieces.insert_or_assign(offset, std::move(piece));
}

// --- drives that give as much ------------------------------------------------------------------------------------------

class Drives {
 public:
  void add(const char* path) {
    const int file = ::open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file < 0) {
      std::fprintf(stderr, "fpfs-bench-discard: %s: %s\n", path, std::strerror(errno));
      std::exit(1);
    }
    files_.emplace_back(file);
  }
  bool is_empty() const { return files_.empty(); }
  // A read of so many bytes came: returns when as much came from the drives, or all there is.
  void wait_for(size_t size) {
    using namespace std::chrono_literals;
    if (is_empty()) return;
    std::unique_lock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (reading_ == 0 && asked_ >= given_ && now - last_read_ > 500ms) begin();
    last_read_ = now;
    asked_ += size;
    came_.wait(lock, [this, wanted = asked_] { return given_ >= wanted || reading_ == 0; });
  }

 private:
  struct Drive {
    explicit Drive(int opened) : file(opened) {}
    int file;
    std::atomic<off_t> next{0};
  };

  void begin() {
    given_ = asked_ = 0;
    reading_ = files_.size() * kDepth;
    for (Drive& drive : files_) {
      drive.next = 0;
      for (unsigned transfer = 0; transfer < kDepth; ++transfer)
        std::thread(&Drives::read, this, std::ref(drive)).detach();
    }
  }
  void read(Drive& drive) {
    const std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kPage, kPayloadMax), &std::free);
    for (ssize_t got = 1; got > 0;) {
      got = ::pread(drive.file, block.get(), kPayloadMax, drive.next.fetch_add(kPayloadMax));
      if (got < 0) std::perror("fpfs-bench-discard: a drive");
      {
        const std::lock_guard lock(mutex_);
        given_ += static_cast<uint64_t>(std::max<ssize_t>(got, 0));
        reading_ -= got > 0 ? 0 : 1;
      }
      came_.notify_all();
    }
  }

  static constexpr unsigned kDepth = 4;  // transfers at a time, of each

  std::deque<Drive> files_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::chrono::steady_clock::time_point last_read_;
  uint64_t given_ = 0, asked_ = 0;  // bytes
  size_t reading_ = 0;              // threads
};

Drives g_drives;

void do_init(void*, fuse_conn_info* connection) {
  if (g_drives.is_empty()) return;
  connection->max_background = 256;
  connection->congestion_threshold = 192;
}

// --- the calls -------------------------------------------------------------------------------------------------------

struct stat attributes_of(fuse_ino_t node) {
  struct stat attributes {};
  attributes.st_ino = node;
  attributes.st_nlink = 1;
  attributes.st_uid = ::getuid();
  attributes.st_gid = ::getgid();
  attributes.st_mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
  if (node != FUSE_ROOT_ID) attributes.st_size = file_of(node).size.load(std::memory_order_relaxed);
  return attributes;
}

fuse_entry_param entry_of(fuse_ino_t node) {
  fuse_entry_param entry{};
  entry.ino = node;
  entry.attr = attributes_of(node);
  entry.attr_timeout = entry.entry_timeout = kCacheSeconds;
  return entry;
}

// 0: no file of that name. With g_files.mutex held.
fuse_ino_t find(const std::string& name) {
  for (size_t index = 0; index < kFilesMax; ++index)
    if (g_files.files[index].name == name) return kFirstFile + index;
  return 0;
}

void do_lookup(fuse_req_t request, fuse_ino_t, const char* name) {
  std::lock_guard lock(g_files.mutex);
  const fuse_ino_t node = find(name);
  if (node == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const fuse_entry_param entry = entry_of(node);
  fuse_reply_entry(request, &entry);
}

void do_getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  const struct stat attributes = attributes_of(node);
  fuse_reply_attr(request, &attributes, kCacheSeconds);
}

void do_setattr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int which, fuse_file_info*) {
  if ((which & FUSE_SET_ATTR_SIZE) != 0 && node != FUSE_ROOT_ID) file_of(node).size = wanted->st_size;
  const struct stat attributes = attributes_of(node);
  fuse_reply_attr(request, &attributes, kCacheSeconds);
}

void do_create(fuse_req_t request, fuse_ino_t, const char* name, mode_t, fuse_file_info* info) {
  std::lock_guard lock(g_files.mutex);
  fuse_ino_t node = find(name);
  if (node == 0) node = find("");
  if (node == 0) {
    fuse_reply_err(request, ENOSPC);
    return;
  }
  file_of(node).name = name;
  file_of(node).clear();
  info->direct_io = 1;
  const fuse_entry_param entry = entry_of(node);
  fuse_reply_create(request, &entry, info);
}

void do_open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) {
  if ((info->flags & O_TRUNC) != 0) file_of(node).clear();
  info->direct_io = (info->flags & O_ACCMODE) != O_RDONLY;
  info->keep_cache = !g_drives.is_empty();
  fuse_reply_open(request, info);
}

void do_write(fuse_req_t request, fuse_ino_t node, const char*, size_t size, off_t offset, fuse_file_info*) {
  File& file = file_of(node);
  const off_t end = offset + static_cast<off_t>(size);
  if (g_pool.memory != nullptr) keep(file, size, offset);
  if (end > file.size.load(std::memory_order_relaxed)) file.size.store(end, std::memory_order_relaxed);
  fuse_reply_write(request, size);
}

void do_unlink(fuse_req_t request, fuse_ino_t, const char* name) {
  std::lock_guard lock(g_files.mutex);
  const fuse_ino_t node = find(name);
  if (node != 0) {
    file_of(node).name.clear();
    file_of(node).clear();
  }
  fuse_reply_err(request, node == 0 ? ENOENT : 0);
}

void do_read(fuse_req_t request, fuse_ino_t node, size_t size, off_t offset, fuse_file_info*) {
  File& file = file_of(node);
  const off_t end = std::min(offset + static_cast<off_t>(size), file.size.load());
  std::vector<struct iovec> parts;
  {
    const std::lock_guard lock(file.mutex);
    auto piece = file.pieces.upper_bound(offset);
    if (piece != file.pieces.begin()) --piece;
    for (; offset < end && piece != file.pieces.end(); ++piece) {
      const off_t inside = offset - piece->first;
      if (inside < 0 || inside >= static_cast<off_t>(piece->second.size)) break;
      const size_t length = std::min<size_t>(piece->second.size - inside, end - offset);
      parts.push_back({const_cast<std::byte*>(piece->second.data) + inside, length});
      offset += static_cast<off_t>(length);
    }
  }
  g_drives.wait_for(size);
  if (offset < end)
    fuse_reply_err(request, EIO);  // a hole, or without a pool
  else
    fuse_reply_iov(request, parts.data(), static_cast<int>(parts.size()));
}

void do_nothing(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  fuse_reply_err(request, 0);
}

// --- receiving into the pool -----------------------------------------------------------------------------------------

// The payload of a write stays where it came; what else came there is moved to libfuse's buffer.
ssize_t read_to_pool(int descriptor, void* buffer, size_t length, void*) {
  std::byte* const place = g_pool.take();
  const size_t in_place = g_next_in_page.load(std::memory_order_relaxed);
  std::byte* const payload = place + in_place;
  auto* const bytes = static_cast<std::byte*>(buffer);
  const size_t behind = std::min(length - kHeaderBytes, kPayloadMax);
  const struct iovec parts[] = {
      {bytes, kHeaderBytes}, {payload, behind}, {bytes + kHeaderBytes + behind, length - kHeaderBytes - behind}};
  const ssize_t received = ::readv(descriptor, parts, 3);
  uint32_t opcode = 0;
  if (received > static_cast<ssize_t>(kHeaderBytes)) std::memcpy(&opcode, bytes + sizeof(uint32_t), sizeof opcode);
  if (opcode == kWriteOpcode) {
    t_place = place;
    t_in_place = in_place;
    return received;
  }
  if (received > static_cast<ssize_t>(kHeaderBytes))
    std::memcpy(bytes + kHeaderBytes, payload, std::min(static_cast<size_t>(received) - kHeaderBytes, behind));
  g_pool.give_back(place);
  return received;
}

ssize_t send(int descriptor, struct iovec* parts, int count, void*) {
  return ::writev(descriptor, parts, count);
}

fuse_custom_io io_with_pool() {
  fuse_custom_io io{};  // newer libraries have more of them
  io.read = read_to_pool;
  io.writev = send;
  return io;
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops table{};
  table.init = do_init;
  table.lookup = do_lookup;
  table.getattr = do_getattr;
  table.setattr = do_setattr;
  table.create = do_create;
  table.open = do_open;
  table.read = do_read;
  table.write = do_write;
  table.unlink = do_unlink;
  table.flush = do_nothing;
  table.release = do_nothing;
  return table;
}

}  // namespace

int main(int argc, char** argv) {
  const bool has_pool = argc >= 4 && std::strcmp(argv[1], "--pool") == 0;
  const bool has_drives = has_pool && argc == 6 && std::strcmp(argv[3], "--drives") == 0;
  if (argc != (has_drives ? 6 : has_pool ? 4 : 2)) {
    std::fprintf(stderr, "usage: fpfs-bench-discard [--pool BYTES [--drives FILE[:FILE...]]] MOUNTPOINT\n");
    return 16;
  }
  std::istringstream drives(has_drives ? argv[4] : "");
  for (std::string file; std::getline(drives, file, ':');) g_drives.add(file.c_str());
  const fuse_custom_io io = io_with_pool();
  if (has_pool && !g_pool.make(std::strtoull(argv[2], nullptr, 10))) {
    std::fprintf(stderr, "fpfs-bench-discard: no memory for a pool of %s bytes\n", argv[2]);
    return 1;
  }
  return fpfs::bench::serve(argv[0], "fsname=discard,subtype=fpfs-bench", operations(), argv[argc - 1],
                            has_pool ? &io : nullptr);
}
