// The few parts of the kernel's FUSE protocol that libfuse 3.14 does not show: request headers, so that the receive
// loop can place a WRITE's payload and see flags that the library drops, and INIT/OPEN flags that are newer than the
// library. Own definitions, because installed <linux/fuse.h> headers differ in age; numbers from Linux 6.18
// include/uapi/linux/fuse.h.
//
// All of it is host-endian: both ends of /dev/fuse are this machine.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/base/units.h"

namespace fpfs::wire {

struct InHeader {
  uint32_t length;
  uint32_t opcode;
  uint64_t unique;
  uint64_t node;
  uint32_t uid;
  uint32_t gid;
  uint32_t pid;
  uint16_t extension_length;
  uint16_t padding;
};
static_assert(sizeof(InHeader) == 40);

struct OutHeader {
  uint32_t length;
  int32_t error;  // negative errno, or 0
  uint64_t unique;
};
static_assert(sizeof(OutHeader) == 16);

// A message of the daemon's own: OutHeader::unique is 0 and `error` says what it is.
constexpr int32_t kNotifyPrune = 9;
struct PruneOut {
  uint32_t count;  // node numbers that follow
  uint32_t padding;
  uint64_t spare;
};
static_assert(sizeof(PruneOut) == 16);

constexpr uint32_t kOpcodeLookup = 1;
constexpr uint32_t kOpcodeForget = 2;
constexpr uint32_t kOpcodeGetAttributes = 3;
constexpr uint32_t kOpcodeReadLink = 5;
constexpr uint32_t kOpcodeOpen = 14;
constexpr uint32_t kOpcodeRead = 15;
constexpr uint32_t kOpcodeWrite = 16;
constexpr uint32_t kOpcodeStatfs = 17;
constexpr uint32_t kOpcodeRelease = 18;
constexpr uint32_t kOpcodeFsync = 20;
constexpr uint32_t kOpcodeGetXattr = 22;
constexpr uint32_t kOpcodeListXattr = 23;
constexpr uint32_t kOpcodeFlush = 25;
constexpr uint32_t kOpcodeInit = 26;
constexpr uint32_t kOpcodeOpenDirectory = 27;
constexpr uint32_t kOpcodeReadDirectory = 28;
constexpr uint32_t kOpcodeReleaseDirectory = 29;
constexpr uint32_t kOpcodeAccess = 34;
constexpr uint32_t kOpcodeCreate = 35;
constexpr uint32_t kOpcodeInterrupt = 36;
constexpr uint32_t kOpcodeDestroy = 38;
constexpr uint32_t kOpcodeIoctl = 39;
constexpr uint32_t kOpcodeForgetMany = 42;
constexpr uint32_t kOpcodeReadDirectoryPlus = 44;
constexpr uint32_t kOpcodeSeek = 46;
constexpr uint32_t kOpcodeTemporaryFile = 51;
constexpr uint32_t kOpcodeStatx = 52;

struct InitIn {
  uint32_t major;
  uint32_t minor;
  uint32_t readahead_max;
  uint32_t flags;
  uint32_t flags2;  // bits 32..63 of the flags; valid when flags has kInitExtended
};
static_assert(sizeof(InitIn) == 20 && offsetof(InitIn, flags2) == 16);

// The beginning of the INIT reply, as far as flags2.
struct InitOut {
  uint32_t major;
  uint32_t minor;
  uint32_t readahead_max;
  uint32_t flags;
  uint16_t background_max;
  uint16_t congestion_threshold;
  uint32_t write_max;
  uint32_t time_granularity;
  uint16_t pages_max;
  uint16_t map_alignment;
  uint32_t flags2;
};
static_assert(sizeof(InitOut) == 36 && offsetof(InitOut, flags) == 12 && offsetof(InitOut, flags2) == 32);

constexpr uint32_t kInitParallelDirectoryOperations = 1U << 18;
constexpr uint32_t kInitPagesMax = 1U << 22;
constexpr uint32_t kInitHandleKillPrivilegesV2 = 1U << 28;
constexpr uint32_t kInitExtended = 1U << 30;
constexpr uint32_t kInit2DirectIoAllowMmap = 1U << 4;  // bit 36
constexpr uint32_t kInit2OverIoUring = 1U << 9;        // bit 41

struct WriteIn {
  uint64_t handle;
  uint64_t offset;
  uint32_t size;
  uint32_t write_flags;
  uint64_t lock_owner;
  uint32_t flags;
  uint32_t padding;
};
static_assert(sizeof(WriteIn) == 40 && offsetof(WriteIn, write_flags) == 20);
// A READ's arguments have the first three in the same places; those of FLUSH and RELEASE have the first.
constexpr uint32_t kWriteCache = 1U << 0;  // pages of the page cache
constexpr uint32_t kWriteKillSetId = 1U << 2;

struct OpenIn {
  uint32_t flags;
  uint32_t open_flags;
};
static_assert(sizeof(OpenIn) == 8);

struct CreateIn {
  uint32_t flags;
  uint32_t mode;
  uint32_t umask;
  uint32_t open_flags;
};
static_assert(sizeof(CreateIn) == 16);
constexpr uint32_t kOpenKillSetId = 1U << 0;

// The end of an OPEN reply (and, after an entry, of a CREATE reply).
struct OpenOut {
  uint64_t handle;
  uint32_t open_flags;
  uint32_t padding;
};
static_assert(sizeof(OpenOut) == 16);
constexpr uint32_t kReplyDirectIo = 1U << 0;
constexpr uint32_t kReplyParallelDirectWrites = 1U << 6;

// setattr's `to_set` reaches the handler unchanged up to this bit: kill set-user-ID and set-group-ID on truncation.
constexpr int kSetattrKillSetId = 1 << 11;

// FUSE over io_uring: a request and its answer in memory that the kernel shares with the daemon, beside a payload: of a
// request all behind its first argument, of an answer all behind the header.
struct RingEntryHeader {
  std::byte in_out[128];     // InHeader, then OutHeader
  std::byte operation[128];  // the first argument
  uint64_t flags;
  uint64_t commit_id;  // says which request is answered
  uint32_t payload_bytes;
  uint32_t padding;
  uint64_t reserved;
};
static_assert(sizeof(RingEntryHeader) == 288 && offsetof(RingEntryHeader, payload_bytes) == 272);
// What an io_uring command on /dev/fuse carries in its second half.
struct RingCommand {
  uint64_t flags;
  uint64_t commit_id;
  uint16_t queue;
  uint8_t padding[6];
};
static_assert(sizeof(RingCommand) == 24);
constexpr uint32_t kRingRegister = 1;
constexpr uint32_t kRingCommitAndFetch = 2;

// A WRITE's payload starts this far into the request.
constexpr size_t kWritePayloadOffset = sizeof(InHeader) + sizeof(WriteIn);

// What a request may name of what the kernel was given: its node, and the first two numbers behind its header, where
// those that have a handle or a second node have it. With others these are anything.
using Names = std::array<uint64_t, 3>;

// What of a raw request the handlers and the reply hook need besides what libfuse passes.
struct RequestFacts {
  uint32_t opcode = 0;
  uint64_t unique = 0;
  Names names{};
  bool unnamed = false;      // CREATE: without a name (see translate_request)
  bool kill_set_id = false;  // WRITE, OPEN, CREATE: the caller may not keep set-user-ID and set-group-ID bits
  uint32_t init_flags = 0;   // INIT: what the kernel offers
  uint32_t init_flags2 = 0;
};

// Reads a struct that must lie wholly inside `bytes` at `offset`; false when it does not.
template <typename T>
bool read_struct(std::span<const std::byte> bytes, size_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

// Whether the request is a WRITE at `offset` of the file; then write_handle() says through which handle.
bool is_write_at(std::span<const std::byte> request, FileOffset offset);
uint64_t write_handle(std::span<const std::byte> request);

// What a request says about the flow of data through an open handle.
struct Flow {
  enum class Kind : uint8_t { kNone, kRead, kWrite, kEnd } kind = Kind::kNone;  // kEnd: FLUSH, RELEASE
  uint64_t handle = 0;
  FileOffset offset;
  uint32_t bytes = 0;        // asked for, or written
  bool is_of_pages = false;  // a write of what lies in the page cache: nobody knows whose
};
Flow flow_of(std::span<const std::byte> request);

RequestFacts examine_request(std::span<const std::byte> request);

// Nobody waits for an answer to the others.
inline bool is_answered(uint32_t opcode) {
  return opcode != kOpcodeForget && opcode != kOpcodeForgetMany && opcode != kOpcodeInterrupt;
}

// Whether what it asks for is a commit: nothing else is started for it, and it is answered when that has ended.
inline bool asks_for_commit(uint32_t opcode) {
  return opcode == kOpcodeFlush || opcode == kOpcodeFsync;
}

// Whether the request asks for names, attributes or lists, and changes nothing.
bool only_looks(uint32_t opcode);

// Whether the request looks at the tree, so that it cannot be served while the drive with the names hangs. Not so:
// content of open files, attributes of nodes in memory, the mount's own state, and what ends something.
bool needs_names(uint32_t opcode);

// TMPFILE (O_TMPFILE), which libfuse 3.14 does not know, has the arguments and the answer of CREATE: the request is
// turned into one. Returns true when it was.
bool translate_request(std::span<std::byte> request);

// The flags to add to an INIT reply, given what the kernel offered. Returns the changed reply.
InitOut extend_init_reply(InitOut reply, const RequestFacts& request, unsigned read_pages_max);
// The most that one request or answer of a connection with this INIT reply carries behind its header: the least size of
// a ring entry's payload.
size_t ring_payload_bytes(const InitOut& reply);

// Lets the kernel send writes of one file side by side when an OPEN or CREATE reply (`body`: all behind the header)
// opened it for direct I/O.
void allow_parallel_writes(const struct iovec& body);

}  // namespace fpfs::wire
