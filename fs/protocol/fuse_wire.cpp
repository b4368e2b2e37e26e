#include "fs/protocol/fuse_wire.h"

#include <unistd.h>

#include <algorithm>

namespace fpfs::wire {

bool is_write_at(std::span<const std::byte> request, FileOffset offset) {
  InHeader header;
  WriteIn in;
  return read_struct(request, 0, header) && header.opcode == kOpcodeWrite && read_struct(request, sizeof header, in) &&
         FileOffset(in.offset) == offset;
}

uint64_t write_handle(std::span<const std::byte> request) {
  WriteIn in{};
  (void)read_struct(request, sizeof(InHeader), in);
  return in.handle;
}

Flow flow_of(std::span<const std::byte> request) {
  Flow flow;
  InHeader header;
  if (!read_struct(request, 0, header)) return flow;
  WriteIn in{};
  switch (header.opcode) {
    case kOpcodeRead:
    case kOpcodeWrite:
      if (!read_struct(request, sizeof header, in)) return flow;
      flow.kind = header.opcode == kOpcodeRead ? Flow::Kind::kRead : Flow::Kind::kWrite;
      flow.offset = FileOffset(in.offset);
      flow.bytes = in.size;
      flow.is_of_pages = header.opcode == kOpcodeWrite && (in.write_flags & kWriteCache) != 0;
      break;
    case kOpcodeFlush:
    case kOpcodeRelease:
      if (!read_struct(request, sizeof header, in.handle)) return flow;
      flow.kind = Flow::Kind::kEnd;
      break;
    default:
      return flow;
  }
  flow.handle = in.handle;
  return flow;
}

RequestFacts examine_request(std::span<const std::byte> request) {
  RequestFacts facts;
  InHeader header;
  if (!read_struct(request, 0, header)) return facts;
  facts.opcode = header.opcode;
  facts.unique = header.unique;
  facts.names[0] = header.node;
  for (size_t i = 1; i < facts.names.size(); ++i)
    (void)read_struct(request, sizeof header + (i - 1) * sizeof(uint64_t), facts.names[i]);
  switch (header.opcode) {
    case kOpcodeWrite: {
      WriteIn in;
      if (read_struct(request, sizeof header, in)) facts.kill_set_id = (in.write_flags & kWriteKillSetId) != 0;
      break;
    }
    case kOpcodeOpen: {
      OpenIn in;
      if (read_struct(request, sizeof header, in)) facts.kill_set_id = (in.open_flags & kOpenKillSetId) != 0;
      break;
    }
    case kOpcodeCreate: {
      CreateIn in;
      if (read_struct(request, sizeof header, in)) facts.kill_set_id = (in.open_flags & kOpenKillSetId) != 0;
      break;
    }
    case kOpcodeInit: {
      // Kernels before 5.17 send 16 bytes, without flags2.
      InitIn in{};
      const size_t length = request.size() - sizeof header < sizeof in ? request.size() - sizeof header : sizeof in;
      std::memcpy(&in, request.data() + sizeof header, length);
      facts.init_flags = in.flags;
      facts.init_flags2 = (in.flags & kInitExtended) != 0 ? in.flags2 : 0;
      break;
    }
    default:
      break;
  }
  return facts;
}

bool only_looks(uint32_t opcode) {
  switch (opcode) {
    case kOpcodeLookup:
    case kOpcodeGetAttributes:
    case kOpcodeReadLink:
    case kOpcodeStatfs:
    case kOpcodeGetXattr:
    case kOpcodeListXattr:
    case kOpcodeOpenDirectory:
    case kOpcodeReadDirectory:
    case kOpcodeReleaseDirectory:
    case kOpcodeAccess:
    case kOpcodeReadDirectoryPlus:
    case kOpcodeStatx:
      return true;
    default:
      return false;
  }
}

bool needs_names(uint32_t opcode) {
  switch (opcode) {
    case kOpcodeForget:
    case kOpcodeGetAttributes:
    case kOpcodeRead:
    case kOpcodeWrite:
    case kOpcodeStatfs:
    case kOpcodeRelease:
    case kOpcodeFsync:
    case kOpcodeGetXattr:
    case kOpcodeFlush:
    case kOpcodeInit:
    case kOpcodeReleaseDirectory:
    case kOpcodeInterrupt:
    case kOpcodeDestroy:
    case kOpcodeIoctl:
    case kOpcodeForgetMany:
    case kOpcodeSeek:
      return false;
    default:
      return true;
  }
}

bool translate_request(std::span<std::byte> request) {
  InHeader header;
  if (!read_struct(request, 0, header) || header.opcode != kOpcodeTemporaryFile) return false;
  header.opcode = kOpcodeCreate;
  std::memcpy(request.data(), &header, sizeof header);
  return true;
}

InitOut extend_init_reply(InitOut reply, const RequestFacts& request, unsigned read_pages_max) {
  // Without this the kernel asks for one name of a directory at a time, and lists it when it asks for none. (libfuse 3.14
  // has a capability for it, and does not say it to the kernel.)
  reply.flags |= request.init_flags & kInitParallelDirectoryOperations;
  // Without this it asks for security.capability before every write.
  reply.flags |= request.init_flags & kInitHandleKillPrivilegesV2;
  if ((request.init_flags2 & kInit2DirectIoAllowMmap) != 0) {
    reply.flags |= kInitExtended;
    reply.flags2 |= kInit2DirectIoAllowMmap;
  }
  // Writes have a limit of their own (write_max), which stays. A kernel that allows fewer pages takes as many as it
  // may.
  if ((reply.flags & kInitPagesMax) != 0)
    reply.pages_max = std::max(reply.pages_max, static_cast<uint16_t>(read_pages_max));
  return reply;
}

size_t ring_payload_bytes(const InitOut& reply) {
  constexpr size_t kLeast = 8192;
  constexpr size_t kPagesWithoutFlag = 32;
  const size_t pages = (reply.flags & kInitPagesMax) != 0 ? reply.pages_max : kPagesWithoutFlag;
  return std::max({kLeast, size_t{reply.write_max}, pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE))});
}

void allow_parallel_writes(const struct iovec& body) {
  OpenOut reply;
  if (body.iov_len < sizeof reply) return;
  std::byte* const end = static_cast<std::byte*>(body.iov_base) + body.iov_len - sizeof reply;
  std::memcpy(&reply, end, sizeof reply);
  if ((reply.open_flags & kReplyDirectIo) == 0) return;
  reply.open_flags |= kReplyParallelDirectWrites;
  std::memcpy(end, &reply, sizeof reply);
}

}  // namespace fpfs::wire
