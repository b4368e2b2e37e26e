// fault_device BACKING MOUNTPOINT: a file `disk` with the content of BACKING, whose reads, writes and syncs fail or
// hang on command. A loop device over it is a drive that breaks as real ones do, on any kernel with FUSE and loop
// devices (the device-mapper targets for this need a kernel that has them).
//
// Commands come on stdin, one a line; each is answered by a line on stdout ("ok", or numbers):
//   fail KIND ERRNO [BEGIN END [COUNT]]   requests of KIND (read, write, sync) that touch bytes [BEGIN, END) of the
//   disk
//                                 fail; the first COUNT of them
//   hang KIND                     requests of KIND get no answer
//   room BYTES                    writes to places that were never written get so many bytes more, then ENOSPC: a thin
//   drive.
//                                 (A loop device over a full tmpfs is none: it takes a short write for a whole one.)
//   heal                          no failures from now on; what hangs goes on
//   count                         "reads N writes N syncs N failed N hanging N"
// It ends, and takes its mount down, at the end of stdin.
#define FUSE_USE_VERSION 312
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr fuse_ino_t kDiskNode = 2;
constexpr double kForever = 1e9;

class Faults {
 public:
  // Runs `action` now, later or (with an errno) `refuse`, as the commands say.
  void pass(const std::string& kind, uint64_t offset, uint64_t length, std::function<void()> action,
            const std::function<void(int)>& refuse) {
    int failure = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++(kind == "read" ? reads_ : kind == "write" ? writes_ : syncs_);
      for (Failure& rule : failures_)
        if (rule.kind == kind && offset < rule.end && rule.begin < offset + std::max<uint64_t>(length, 1) &&
            rule.count > 0) {
          failure = rule.error;
          --rule.count;
        }
      for (const std::string& hanging : hanging_kinds_)
        if (hanging == kind) {
          hanging_.push_back(std::move(action));
          return;
        }
      if (failure != 0) ++failed_;
    }
    failure != 0 ? refuse(failure) : action();
  }

  std::string command(const std::string& line) {
    std::istringstream words(line);
    std::string verb, kind;
    words >> verb >> kind;
    if (verb == "heal") {
      heal();
    } else if (verb == "count") {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::ostringstream text;
      text << "reads " << reads_ << " writes " << writes_ << " syncs " << syncs_ << " failed " << failed_ << " hanging "
           << hanging_.size();
      return text.str();
    } else if (verb == "hang") {
      const std::lock_guard<std::mutex> lock(mutex_);
      hanging_kinds_.push_back(kind);
    } else if (verb == "room") {
      const std::lock_guard<std::mutex> lock(mutex_);
      room_ = std::stoull(kind);
    } else if (verb == "fail") {
      Failure rule{kind, EIO, 0, UINT64_MAX, UINT64_MAX};
      words >> rule.error;
      if (uint64_t begin = 0; words >> begin) {
        rule.begin = begin;
        words >> rule.end;
      }
      if (uint64_t count = 0; words >> count) rule.count = count;
      const std::lock_guard<std::mutex> lock(mutex_);
      failures_.push_back(rule);
    } else {
      return "what is " + line;
    }
    return "ok";
  }

  // False: there is no room for so many new bytes.
  bool take_room(uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > room_) return false;
    room_ -= bytes;
    return true;
  }

  void heal() {
    std::vector<std::function<void()>> go_on;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      failures_.clear();
      hanging_kinds_.clear();
      go_on.swap(hanging_);
    }
    for (const auto& action : go_on) action();
  }

 private:
  struct Failure {
    std::string kind;
    int error;
    uint64_t begin, end, count;
  };
  std::mutex mutex_;
  std::vector<Failure> failures_;
  std::vector<std::string> hanging_kinds_;
  std::vector<std::function<void()>> hanging_;
  uint64_t room_ = UINT64_MAX;
  uint64_t reads_ = 0, writes_ = 0, syncs_ = 0, failed_ = 0;
};

struct Disk {
  int file = -1;
  Faults faults;
};

Disk& disk_of(fuse_req_t request) {
  return *static_cast<Disk*>(fuse_req_userdata(request));
}

struct stat attributes_of(const Disk& disk, fuse_ino_t node) {
  struct stat attributes {};
  attributes.st_ino = node;
  if (node == FUSE_ROOT_ID) {
    attributes.st_mode = S_IFDIR | 0755;
    attributes.st_nlink = 2;
    return attributes;
  }
  struct stat backing {};
  ::fstat(disk.file, &backing);
  attributes.st_mode = S_IFREG | 0600;
  attributes.st_nlink = 1;
  attributes.st_size = backing.st_size;
  attributes.st_blksize = 4096;
  return attributes;
}

constexpr unsigned kReadMax = 1 << 20;

void init(void*, fuse_conn_info* connection) {
  connection->max_read = kReadMax;
}

void lookup(fuse_req_t request, fuse_ino_t, const char* name) {
  if (std::strcmp(name, "disk") != 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry{};
  entry.ino = kDiskNode;
  entry.attr = attributes_of(disk_of(request), kDiskNode);
  entry.attr_timeout = entry.entry_timeout = kForever;
  fuse_reply_entry(request, &entry);
}

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  const struct stat attributes = attributes_of(disk_of(request), node);
  fuse_reply_attr(request, &attributes, kForever);
}

void open(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  info->direct_io = 1;  // every request of the loop device comes here, none is answered from the page cache
  fuse_reply_open(request, info);
}

void read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  Disk& disk = disk_of(request);
  const auto answer = [request, &disk, size, offset] {
    std::vector<char> data(size);
    const ssize_t count = ::pread(disk.file, data.data(), size, offset);
    count < 0 ? fuse_reply_err(request, errno) : fuse_reply_buf(request, data.data(), static_cast<size_t>(count));
  };
  disk.faults.pass("read", static_cast<uint64_t>(offset), size, answer,
                   [request](int error) { fuse_reply_err(request, error); });
}

// Bytes of a range that were never written.
uint64_t missing_bytes(int file, off_t begin, off_t end) {
  uint64_t missing = 0;
  while (begin < end) {
    const off_t data = ::lseek(file, begin, SEEK_DATA);
    const off_t hole_end = data < 0 ? end : std::min(data, end);
    missing += static_cast<uint64_t>(hole_end - begin);
    if (hole_end == end) break;
    begin = ::lseek(file, hole_end, SEEK_HOLE);
  }
  return missing;
}

void write(fuse_req_t request, fuse_ino_t, const char* data, size_t size, off_t offset, fuse_file_info*) {
  Disk& disk = disk_of(request);
  const auto answer = [request, &disk, bytes = std::string(data, size), offset] {
    const auto end = offset + static_cast<off_t>(bytes.size());
    if (!disk.faults.take_room(missing_bytes(disk.file, offset, end))) {
      fuse_reply_err(request, ENOSPC);
      return;
    }
    const ssize_t count = ::pwrite(disk.file, bytes.data(), bytes.size(), offset);
    count < 0 ? fuse_reply_err(request, errno) : fuse_reply_write(request, static_cast<size_t>(count));
  };
  disk.faults.pass("write", static_cast<uint64_t>(offset), size, answer,
                   [request](int error) { fuse_reply_err(request, error); });
}

void fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) {
  disk_of(request).faults.pass(
      "sync", 0, 0, [request] { fuse_reply_err(request, 0); },
      [request](int error) { fuse_reply_err(request, error); });
}

void fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t length, fuse_file_info*) {
  const int result = ::fallocate(disk_of(request).file, mode, offset, length);
  fuse_reply_err(request, result < 0 ? errno : 0);
}

void follow_commands(Disk& disk, const std::string& mount_point) {
  for (std::string line; std::getline(std::cin, line);) std::cout << disk.faults.command(line) << std::endl;
  disk.faults.heal();
  const std::string unmount = "umount -l '" + mount_point + "' 2>/dev/null";
  (void)!std::system(unmount.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 16;
  const std::string mount_point = argv[2];
  Disk disk;
  disk.file = ::open(argv[1], O_RDWR | O_CLOEXEC);
  if (disk.file < 0) {
    std::perror(argv[1]);
    return 1;
  }
  fuse_lowlevel_ops operations{};
  operations.init = init;
  operations.lookup = lookup;
  operations.getattr = getattr;
  operations.open = open;
  operations.read = read;
  operations.write = write;
  operations.fsync = fsync;
  operations.fallocate = fallocate;
  std::string program = argv[0], flag = "-o", options = "fsname=fault_device,max_read=" + std::to_string(kReadMax);
  char* arguments[] = {program.data(), flag.data(), options.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, arguments);
  fuse_session* session = fuse_session_new(&args, &operations, sizeof operations, &disk);
  if (session == nullptr || fuse_session_mount(session, mount_point.c_str()) != 0) return 1;
  std::thread commands([&] { follow_commands(disk, mount_point); });
  std::cout << "ready" << std::endl;
  fuse_loop_config* config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(config, 64);
  fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  // Also when the connection was aborted: who waits for this process may count on it that nothing more is unmounted.
  commands.join();
  fuse_session_destroy(session);
}
