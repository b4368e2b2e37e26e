// A mount's side of the FUSE protocol, without a kernel: an input is a row of requests with any names, sizes, offsets,
// flags and modes. What a kernel guarantees holds here too: node and handle numbers are those that were given out,
// texts end.
//
// Every request is answered, once, in bounded time; and when the fuzzer ends, what the array then holds is clean.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/check/check.h"
#include "engine/io/posix_environment.h"
#include "engine/io/scoped_handle.h"
#include "engine/tier/array_tier.h"
#include "fs/operations/operations.h"
#include "fs/protocol/fuse_wire.h"
#include "fs/transport/channel.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace fpfs;
using fuzz::Input;
using fuzz::require;
using Bytes = std::vector<std::byte>;

// Numbers from Linux include/uapi/linux/fuse.h.
enum Opcode : uint32_t {
  kLookup = 1,
  kForget = 2,
  kGetattr = 3,
  kSetattr = 4,
  kReadlink = 5,
  kSymlink = 6,
  kMknod = 8,
  kMkdir = 9,
  kUnlink = 10,
  kRmdir = 11,
  kRename = 12,
  kLink = 13,
  kOpen = 14,
  kRead = 15,
  kWrite = 16,
  kStatfs = 17,
  kRelease = 18,
  kFsync = 20,
  kSetxattr = 21,
  kGetxattr = 22,
  kListxattr = 23,
  kRemovexattr = 24,
  kFlush = 25,
  kInit = 26,
  kOpendir = 27,
  kReaddir = 28,
  kReleasedir = 29,
  kFsyncdir = 30,
  kAccess = 34,
  kCreate = 35,
  kIoctl = 39,
  kFallocate = 43,
  kReaddirplus = 44,
  kRename2 = 45,
  kLseek = 46,
  kTmpfile = 51,
  kUnknown = 4000,
};
constexpr Opcode kOpcodes[] = {
    kLookup,   kGetattr,   kSetattr,     kReadlink,    kSymlink, kMknod,   kMkdir,      kUnlink,   kRmdir,
    kRename,   kLink,      kOpen,        kRead,        kWrite,   kStatfs,  kRelease,    kFsync,    kSetxattr,
    kGetxattr, kListxattr, kRemovexattr, kFlush,       kOpendir, kReaddir, kReleasedir, kFsyncdir, kAccess,
    kCreate,   kIoctl,     kFallocate,   kReaddirplus, kRename2, kLseek,   kTmpfile,    kUnknown,  kForget,
};
constexpr size_t kEntrySize = 128, kEntryModeOffset = 100;
constexpr uint32_t kSetattrHasHandle = 1U << 6;
constexpr uint32_t kIoctlOfDirectory = 1U << 4;
constexpr uint32_t kTransferMax = 64 * 1024;
constexpr uint32_t kChunkSize = 64 * 1024;
constexpr int kAnswerMs = 30'000;

// The array, its file system and the channel, alive from the first input to the end of the process.
class World {
 public:
  World();
  void finish();
  // The answer's body; the error is 0 or an errno.
  Bytes ask(Opcode opcode, uint64_t node, uint32_t user, const Bytes& body, int* error);
  void tell(Opcode opcode, uint64_t node, uint32_t user, const Bytes& body);
  void clear() { clear(store_->root()); }

 private:
  bool has_answer();
  void clear(Handle directory);

  std::string place_;
  PosixEnvironment environment_{4};
  std::vector<std::string> directories_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ArrayTier> tier_;
  std::unique_ptr<FileSystem> file_system_;
  std::unique_ptr<Channel> channel_;
  int kernel_ = -1;  // our end of the connection
  uint64_t unique_ = 2;
  Bytes answer_ = Bytes(2 * kTransferMax);
};

World::World() {
  require(configure_log({.level = LogLevel::kError, .file = "/dev/null"}).is_ok(), "a log");
  std::string place = std::filesystem::temp_directory_path().string() + "/fpfs-fuzz-XXXXXX";
  require(::mkdtemp(place.data()) != nullptr, "a directory");
  place_ = place;
  directories_ = {place_ + "/a", place_ + "/b"};
  FormatOptions format;
  format.chunk_size = kChunkSize;
  require(Array::format(environment_, directories_, format).is_ok(), "an array");
  StoreOptions options;
  options.buffer_memory = 128 * kChunkSize;
  options.array.buffered_members = true;
  Result<std::unique_ptr<Store>> store = Store::open(environment_, directories_, options);
  require(store.is_ok(), "an open array");
  store_ = std::move(*store);
  const Result<struct stat> root = store_->attributes(store_->root());
  TierOptions nowhere;
  nowhere.url = TierOptions::kNone;
  tier_ = std::make_unique<ArrayTier>(environment_, *store_, environment_.storage(), nowhere);
  require(tier_->open().is_ok(), "no store outside");
  file_system_ = std::make_unique<FileSystem>(environment_, *store_, *tier_, FileSystem::Settings(), *root);

  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0, "a connection");
  for (const int end : ends) {
    const int room = 8 * static_cast<int>(kTransferMax);
    (void)::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  }
  kernel_ = ends[0];
  Channel::Settings settings;
  settings.mount_point = "/dev/fd/" + std::to_string(ends[1]);  // libfuse takes an open connection by this name
  settings.options = "default_permissions";
  settings.threads = 2;
  Result<std::unique_ptr<Channel>> channel = Channel::mount(*file_system_, fuse_operations(), settings);
  require(channel.is_ok(), "a channel");
  channel_ = std::move(*channel);
  channel_->start();
  wire::InitIn init{7, 38, 1U << 20, 0xffffffffU & ~wire::kInitExtended, 0};
  Bytes body(64);
  std::memcpy(body.data(), &init, sizeof init);
  int error = 0;
  require(!ask(kInit, 0, 0, body, &error).empty() && error == 0, "an answer to INIT");
  while (!channel_->is_live()) ::usleep(100);
}

void World::finish() {
  channel_->stop();
  channel_->join();
  file_system_->scrub().stop();
  file_system_->drain();
  channel_ = nullptr;
  file_system_->handles().clear();
  file_system_ = nullptr;
  require(tier_->stop(std::chrono::seconds(10)), "nothing is copied any more");
  tier_ = nullptr;
  require(store_->close().is_ok(), "everything can be committed");
  store_ = nullptr;
  CheckOptions check;
  check.verify_data = true;
  check.buffered_members = true;
  const Result<CheckReport> report = check_array(environment_, directories_, check);
  for (const CheckError& error : report.is_ok() ? report->errors : std::vector<CheckError>())
    std::fprintf(stderr, "%s %s: %s\n", error.kind.c_str(), error.path.c_str(), error.detail.c_str());
  require(report.is_ok() && report->clean(), "the array is clean at the end");
  std::filesystem::remove_all(place_);
}

void World::clear(Handle directory) {
  Storage& storage = store_->storage();
  std::vector<DirectoryEntry> entries;
  (void)storage.list(directory, [&](const DirectoryEntry& entry) {
    entries.push_back(entry);
    return true;
  });
  for (const DirectoryEntry& entry : entries) {
    const Result<Handle> inner = storage.open_at(directory, entry.name, O_PATH | O_DIRECTORY);
    if (!inner.is_ok()) {
      require(store_->unlink(directory, entry.name).is_ok(), "a file can be removed");
      continue;
    }
    {
      const ScopedHandle handle(storage, *inner);
      (void)storage.chmod(*inner, 0700);
      clear(*inner);
    }
    require(store_->remove_directory(directory, entry.name).is_ok(), "an empty directory can be removed");
  }
}

void World::tell(Opcode opcode, uint64_t node, uint32_t user, const Bytes& body) {
  wire::InHeader header{};
  header.length = static_cast<uint32_t>(sizeof header + body.size());
  header.opcode = opcode;
  header.unique = unique_ += 2;
  header.node = node;
  header.uid = header.gid = user;
  header.pid = 1;
  Bytes message(header.length);
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(body.begin(), body.end(), message.begin() + sizeof header);
  const ssize_t sent = TEMP_FAILURE_RETRY(::send(kernel_, message.data(), message.size(), 0));
  require(sent == static_cast<ssize_t>(message.size()), "a request goes");
}

// libFuzzer's watchdog sends a signal twice a minute. A wait that it interrupts begins again.
bool World::has_answer() {
  pollfd descriptor{kernel_, POLLIN, 0};
  return TEMP_FAILURE_RETRY(::poll(&descriptor, 1, kAnswerMs)) == 1;
}

Bytes World::ask(Opcode opcode, uint64_t node, uint32_t user, const Bytes& body, int* error) {
  tell(opcode, node, user, body);
  for (;;) {
    require(has_answer(), "every request is answered in bounded time");
    const ssize_t length = ::recv(kernel_, answer_.data(), answer_.size(), 0);
    require(length >= static_cast<ssize_t>(sizeof(wire::OutHeader)), "an answer has a header");
    wire::OutHeader header;
    std::memcpy(&header, answer_.data(), sizeof header);
    require(header.length == static_cast<uint64_t>(length), "an answer is as long as it says");
    if (header.unique == 0) continue;  // the daemon's own message to the kernel
    require(header.unique == unique_, "an answer is to the request, and the only one");
    require(header.error <= 0 && header.error > -1000, "an error is one that the kernel knows");
    *error = -header.error;
    return {answer_.begin() + sizeof header, answer_.begin() + length};
  }
}

World& world() {
  static World* const made = [] {
    auto* fresh = new World;
    std::atexit([] { world().finish(); });
    return fresh;
  }();
  return *made;
}

// One input: its nodes and handles, and the requests.
class Run {
 public:
  explicit Run(Input& input) : input_(input) {}
  void play();

 private:
  struct Open {
    uint64_t handle = 0;
    uint64_t node = 0;
    uint32_t flags = 0;
  };
  // In braces, because those are evaluated from left to right by every compiler: an input means the same to all.
  static void put(Bytes& body, std::initializer_list<uint32_t> numbers) {
    for (const uint32_t number : numbers) {
      body.resize(body.size() + 4);
      put_u32(&body[body.size() - 4], number);
    }
  }
  uint32_t number(size_t bytes) { return static_cast<uint32_t>(input_.number(bytes)); }
  static void put_long(Bytes& body, uint64_t number) {
    body.resize(body.size() + 8);
    put_u64(&body[body.size() - 8], number);
  }
  void put_text(Bytes& body, size_t length_max);
  void put_name(Bytes& body);
  uint64_t some_node() { return nodes_[input_.byte() % nodes_.size()]; }
  const Open* some(const std::vector<Open>& opens, bool writable = false);
  uint32_t open_flags();
  void note_entry(const Bytes& answer, size_t offset);
  void note_listing(const Bytes& answer);
  void play_one();
  void on_name(Opcode opcode);
  void on_file(Opcode opcode);
  void on_directory(Opcode opcode);
  void set_attributes();
  void set_xattr();
  void control(const Open& open, bool is_directory);
  void release(std::vector<Open>& opens, Opcode opcode, size_t index);
  Bytes ask(Opcode opcode, uint64_t node, const Bytes& body, int* error = nullptr);

  Input& input_;
  std::vector<uint64_t> nodes_;  // [0]: the directory of this run
  std::map<uint64_t, uint64_t> lookups_;
  std::map<uint64_t, uint32_t> modes_;
  std::vector<Open> files_, directories_;
};

Bytes Run::ask(Opcode opcode, uint64_t node, const Bytes& body, int* error) {
  int ignored = 0;
  return world().ask(opcode, node, input_.byte() < 200 ? 0 : 1000, body, error != nullptr ? error : &ignored);
}

void Run::put_text(Bytes& body, size_t length_max) {
  for (const std::byte byte : input_.bytes(input_.number(2) % (length_max + 1)))
    if (byte != std::byte{0}) body.push_back(byte);
  body.push_back(std::byte{0});
}

// Few names, so that they meet; or any.
void Run::put_name(Bytes& body) {
  const uint8_t which = input_.byte();
  if (which >= 240) return put_text(body, 300);
  if (which >= 236) body.push_back(std::byte{'.'});
  if (which >= 238) body.push_back(std::byte{'.'});
  if (which < 236) body.push_back(static_cast<std::byte>('a' + which % 6));
  body.push_back(std::byte{0});
}

const Run::Open* Run::some(const std::vector<Open>& opens, bool writable) {
  const uint8_t which = input_.byte();
  std::vector<const Open*> fit;
  for (const Open& open : opens)
    if (!writable || (open.flags & O_ACCMODE) != O_RDONLY) fit.push_back(&open);
  return fit.empty() ? nullptr : fit[which % fit.size()];
}

uint32_t Run::open_flags() {
  constexpr uint32_t kAllowed = O_TRUNC | O_APPEND | O_SYNC | O_DIRECT | O_NOATIME;
  const auto number = static_cast<uint32_t>(input_.number(3));
  return number % 3 | (number & kAllowed);
}

void Run::note_entry(const Bytes& answer, size_t offset) {
  if (answer.size() < offset + kEntrySize) return;
  const uint64_t node = get_u64(&answer[offset]);
  if (node == 0) return;
  if (lookups_[node]++ == 0) nodes_.push_back(node);
  modes_[node] = get_u32(&answer[offset + kEntryModeOffset]);
}

void Run::note_listing(const Bytes& answer) {
  for (size_t at = 0; at + kEntrySize + 24 <= answer.size();) {
    note_entry(answer, at);
    at += kEntrySize + 24 + round_up(get_u32(&answer[at + kEntrySize + 16]), 8);
  }
}

void Run::on_name(Opcode opcode) {
  Bytes body;
  switch (opcode) {
    case kMknod: {
      constexpr std::array<uint32_t, 5> kTypes = {S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFREG};
      put(body, {kTypes[input_.byte() % kTypes.size()] | (number(2) & 07777), 0, (number(2) & 0777), 0});
      break;
    }
    case kMkdir:
      put(body, {(number(2) & 07777), (number(2) & 0777)});
      break;
    case kCreate:
    case kTmpfile:
      put(body, {open_flags() | O_CREAT, S_IFREG | (number(2) & 07777), (number(2) & 0777), number(1) % 2});
      break;
    case kRename:
      put_long(body, some_node());
      break;
    case kRename2:
      put_long(body, some_node());
      put(body, {number(1) % 9, 0});
      break;
    case kLink:
      put_long(body, some_node());
      break;
    default:
      break;
  }
  const uint32_t flags = opcode == kCreate || opcode == kTmpfile ? get_u32(body.data()) : 0;
  put_name(body);
  if (opcode == kSymlink) put_text(body, 300);
  if (opcode == kRename || opcode == kRename2) put_name(body);
  const uint64_t directory = some_node();
  int error = 0;
  const Bytes answer = ask(opcode, directory, body, &error);
  if (error != 0) return;
  note_entry(answer, 0);
  if ((opcode == kCreate || opcode == kTmpfile) && answer.size() == kEntrySize + 16)
    files_.push_back({get_u64(&answer[kEntrySize]), get_u64(answer.data()), flags});
}

void Run::set_attributes() {
  auto valid = static_cast<uint32_t>(input_.number(2));
  const Open* open = some(files_, true);
  const uint64_t node = open != nullptr && (valid & kSetattrHasHandle) != 0 ? open->node : some_node();
  if (open == nullptr || node != open->node) valid &= ~kSetattrHasHandle;
  Bytes body;
  put(body, {valid, 0});
  put_long(body, open != nullptr ? open->handle : 0);
  put_long(body, input_.size_like() & INT64_MAX);  // size
  put_long(body, 0);
  for (int i = 0; i < 3; ++i) put_long(body, input_.size_like());
  for (int i = 0; i < 3; ++i) put(body, {number(4)});
  put(body, {number(2), 0, number(1), number(1), 0});
  ask(kSetattr, node, body);
}

void Run::set_xattr() {
  const std::span<const std::byte> value = input_.bytes(input_.byte());
  Bytes body;
  put(body, {static_cast<uint32_t>(value.size()), number(1) % 4});
  if (input_.byte() < 200)
    for (const char c : {'u', 's', 'e', 'r', '.'}) body.push_back(static_cast<std::byte>(c));
  put_name(body);
  body.insert(body.end(), value.begin(), value.end());
  ask(kSetxattr, some_node(), body);
}

void Run::control(const Open& open, bool is_directory) {
  Bytes body;
  put_long(body, open.handle);
  // The numbers of fs/interface/ioctl.h, or any.
  const auto command = static_cast<uint32_t>(input_.number(4));
  constexpr std::array<size_t, 4> kSizes = {88 + 40 * 256, 4120, 592, 0};
  const size_t size = input_.byte() < 200 ? kSizes[input_.byte() % kSizes.size()] : input_.number(2) % 16384;
  put(body, {is_directory ? kIoctlOfDirectory : 0, command});
  put_long(body, 0);
  put(body, {static_cast<uint32_t>(size), static_cast<uint32_t>(size)});
  const std::span<const std::byte> given = input_.bytes(std::min<size_t>(size, 64));
  const size_t begin = body.size();
  body.insert(body.end(), given.begin(), given.end());
  body.resize(begin + size);
  ask(kIoctl, open.node, body);
}

void Run::on_file(Opcode opcode) {
  if (opcode == kOpen) {
    const uint64_t node = some_node();
    if (!S_ISREG(modes_[node])) return;
    const uint32_t flags = open_flags();
    Bytes body;
    put(body, {flags, number(1) % 2});
    int error = 0;
    const Bytes answer = ask(kOpen, node, body, &error);
    if (error == 0 && answer.size() == 16) files_.push_back({get_u64(answer.data()), node, flags});
    return;
  }
  const bool writes = opcode == kWrite || opcode == kFallocate;
  const Open* open = some(files_, writes);
  if (open == nullptr) return;
  Bytes body;
  put_long(body, open->handle);
  switch (opcode) {
    case kRead:
    case kWrite: {
      const uint64_t offset = input_.size_like() & INT64_MAX;
      const size_t size = input_.byte() < 128 ? input_.byte() : input_.number(2) % kTransferMax;
      put_long(body, offset);
      put(body, {static_cast<uint32_t>(size), number(1) % 8});
      put_long(body, 0);
      put(body, {open->flags, 0});
      const auto fill = static_cast<std::byte>(input_.byte());
      if (opcode == kWrite) body.resize(body.size() + size, fill);
      break;
    }
    case kFallocate:
      put_long(body, input_.size_like() & INT64_MAX);
      put_long(body, std::max<uint64_t>(1, input_.size_like() & INT64_MAX));
      put(body, {number(1) % 64, 0});
      // As the kernel checks it.
      if (get_u64(&body[8]) > INT64_MAX - get_u64(&body[16])) return;
      break;
    case kLseek:
      put_long(body, input_.size_like() & INT64_MAX);
      put(body, {number(1) % 6, 0});
      break;
    case kFsync:
      put(body, {number(1) % 2, 0});
      break;
    case kFlush:
      put(body, {0, 0});
      put_long(body, 0);
      break;
    default:
      return control(*open, false);
  }
  ask(opcode, open->node, body);
}

void Run::on_directory(Opcode opcode) {
  if (opcode == kOpendir) {
    const uint64_t node = some_node();
    if (!S_ISDIR(modes_[node])) return;
    Bytes body;
    put(body, {0, 0});
    int error = 0;
    const Bytes answer = ask(kOpendir, node, body, &error);
    if (error == 0 && answer.size() == 16) directories_.push_back({get_u64(answer.data()), node, 0});
    return;
  }
  const Open* open = some(directories_);
  if (open == nullptr) return;
  if (opcode == kIoctl) return control(*open, true);
  Bytes body;
  put_long(body, open->handle);
  if (opcode == kFsyncdir) {
    put(body, {number(1) % 2, 0});
    ask(opcode, open->node, body);
    return;
  }
  put_long(body, input_.size_like() & INT64_MAX);
  put(body, {number(2) % kTransferMax, 0});
  put_long(body, 0);
  put(body, {0, 0});
  int error = 0;
  const Bytes answer = ask(opcode, open->node, body, &error);
  if (error == 0 && opcode == kReaddirplus) note_listing(answer);
}

void Run::release(std::vector<Open>& opens, Opcode opcode, size_t index) {
  Bytes body;
  put_long(body, opens[index].handle);
  put(body, {opens[index].flags, 0});
  put_long(body, 0);
  ask(opcode, opens[index].node, body);
  opens.erase(opens.begin() + static_cast<std::ptrdiff_t>(index));
}

void Run::play_one() {
  const Opcode opcode = kOpcodes[input_.byte() % std::size(kOpcodes)];
  switch (opcode) {
    case kLookup:
    case kSymlink:
    case kMknod:
    case kMkdir:
    case kUnlink:
    case kRmdir:
    case kRename:
    case kRename2:
    case kLink:
    case kCreate:
    case kTmpfile:
    case kRemovexattr:
      return on_name(opcode);
    case kSetattr:
      return set_attributes();
    case kSetxattr:
      return set_xattr();
    case kOpen:
    case kRead:
    case kWrite:
    case kFallocate:
    case kLseek:
    case kFsync:
    case kFlush:
      return on_file(opcode);
    case kIoctl:
      return input_.byte() < 128 ? on_file(opcode) : on_directory(opcode);
    case kOpendir:
    case kReaddir:
    case kReaddirplus:
    case kFsyncdir:
      return on_directory(opcode);
    case kRelease:
      return files_.empty() ? void() : release(files_, kRelease, input_.byte() % files_.size());
    case kReleasedir:
      return directories_.empty() ? void() : release(directories_, kReleasedir, input_.byte() % directories_.size());
    case kForget:
      return;  // at the end, of everything
    default:
      break;
  }
  Bytes body;
  if (opcode == kGetattr) {
    put(body, {0, 0});
    put_long(body, 0);
  } else if (opcode == kGetxattr || opcode == kListxattr) {
    put(body, {number(2), 0});
    if (opcode == kGetxattr) put_text(body, 300);
  } else if (opcode == kAccess) {
    put(body, {number(1) % 8, 0});
  }
  ask(opcode, some_node(), body);
}

void Run::play() {
  Bytes body;
  put(body, {0755, 022});
  body.push_back(std::byte{'r'});
  body.push_back(std::byte{0});
  int error = 0;
  const Bytes answer = world().ask(kMkdir, FUSE_ROOT_ID, 0, body, &error);
  require(error == 0, "a directory for the run");
  note_entry(answer, 0);
  for (int i = 0; i < 200 && !input_.empty(); ++i) play_one();

  while (!files_.empty()) release(files_, kRelease, 0);
  while (!directories_.empty()) release(directories_, kReleasedir, 0);
  world().clear();
  for (const auto& [node, count] : lookups_) {
    Bytes forget;
    put_long(forget, count);
    world().tell(kForget, node, 0, forget);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Run(input).play();
  return 0;
}
