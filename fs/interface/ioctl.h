// The ioctls of a mounted fastpersistfs: what the tools (fpfs map, verify, sync) ask that POSIX has no call for.
//
// Every argument is one fixed-size struct, below the 16 KiB that FUSE passes for a restricted ioctl. The caller sets
// `version` to the constant of the struct and zeroes the rest; another version is refused with EPROTO, so that tools
// and a daemon of different releases fail in words rather than misread each other. Sizes and offsets are bytes.
//
// Errors of all of them: ENOTTY on a file system that is not fastpersistfs, or on the wrong kind of file. Of those
// about a regular file: EBADF on a descriptor that is not open for reading.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace fpfs {

// --- FPFS_IOC_EXTENTS: where a regular file's chunks are stored, one page of the table per call ----------------------

struct IoctlExtent {
  uint64_t chunk = 0;           // number of the chunk in the file: bytes [chunk * chunk_size, (chunk + 1) * chunk_size)
  uint64_t object_offset = 0;   // in the object file (FPFS_IOC_OBJECT_PATH) on `member`
  uint64_t checksum = 0;        // XXH3 of the stored bytes, seeded for their place
  uint32_t stored_length = 0;   // bytes on the drive
  uint32_t raw_length = 0;      // bytes after decoding
  uint32_t visible_length = 0;  // the first of those that the file shows
  uint16_t member = 0;
  uint8_t codec = 0;  // the format's codec numbers: 1 raw, 2 zstd, ..., kAway: in the store of the copies only, so
                      // nothing else but chunk and visible_length is said
  uint8_t reserved = 0;
};
static_assert(sizeof(IoctlExtent) == 40);

struct IoctlExtents {
  static constexpr uint32_t kVersion = 1;
  static constexpr uint32_t kCountMax = 256;
  static constexpr uint64_t kEnd = UINT64_MAX;

  uint32_t version = kVersion;
  uint32_t count = 0;         // out: entries filled in
  uint64_t first_chunk = 0;   // in: where to go on; 0 first
  uint64_t next_chunk = 0;    // out: first_chunk of the next call, kEnd after the last page
  uint64_t size = 0;          // out: of the file
  uint64_t file_id = 0;       // out: 0 when nothing was ever committed
  uint32_t generation = 0;    // out
  uint32_t chunk_size = 0;    // out
  uint32_t is_inline = 0;     // out: 1 when the content lives inside the sidecar: no extents
  uint32_t is_dirty = 0;      // out: 1 when something is not committed: what is not flushed yet is not listed
  uint8_t array_id[16] = {};  // out: with file_id, generation and chunk it makes the seed of a checksum (chunk_seed())
  uint64_t reserved[2] = {};
  IoctlExtent extents[kCountMax];
};
static_assert(sizeof(IoctlExtents) == 88 + 40 * 256 && sizeof(IoctlExtents) < 16384);

// --- FPFS_IOC_OBJECT_PATH: the object file of a regular file on one member -------------------------------------------

struct IoctlObjectPath {
  static constexpr uint32_t kVersion = 1;

  uint32_t version = kVersion;
  uint32_t member = 0;  // in; EINVAL when the array has no such member
  uint64_t reserved[2] = {};
  char path[4096] = {};  // out: absolute, as the daemon sees it. ENODATA: the file has no objects yet
};
static_assert(sizeof(IoctlObjectPath) == 24 + 4096);

// --- FPFS_IOC_VERIFY: read chunks of a regular file from their drives, past every cache, and check them --------------

struct IoctlVerify {
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kChunksMax = 1024;  // per call, so that a caller can show progress and be interrupted

  uint32_t version = kVersion;
  int32_t error = 0;            // out: 0, or the errno of the failure in `failed_chunk`
  uint64_t first_chunk = 0;     // in
  uint64_t chunk_count = 0;     // in: at most kChunksMax are looked at
  uint64_t next_chunk = 0;      // out: where the next call goes on (after a failure: behind the chunk that failed)
  uint64_t chunks_in_file = 0;  // out: the end of the work; chunks at or beyond it pass
  uint64_t failed_chunk = 0;    // out: valid when error != 0
  // Out, when error != 0: 1 the chunk could not be read, so nobody knows whether it is damaged; 0 it is damaged.
  uint32_t is_unreadable = 0;
  uint32_t member_and_1 = 0;  // out, when error != 0: 1 and the index of the member it is on; 0: on none, or not known
  // Out, of a call that begins at the first chunk or comes to the end of the file: chunks of the whole file that are in
  // the store of the copies only, and so were not looked at.
  uint64_t chunks_away = 0;
  uint64_t reserved[2] = {};
  char message[512] = {};  // out: of the failure, without file and chunk; one line, NUL-terminated
};
static_assert(sizeof(IoctlVerify) == 592);

// --- FPFS_IOC_SCRUB: commands to the scrub of the mount, on its root directory; what it does is told by the attribute
// user.fastpersistfs.scrub (fs/report/scrub_report.h). EPERM for anyone but root and the daemon's own user.
// --------------------------------------------------------------------------------------------------------------------

struct IoctlScrub {
  static constexpr uint32_t kVersion = 1;
  enum Command : uint32_t { kStart = 1, kPause = 2, kResume = 3, kCancel = 4 };

  uint32_t version = kVersion;
  uint32_t command = 0;    // in; EINVAL when it is none
  uint64_t limit = 0;      // in: of kStart, and of kResume when has_limit: bytes per second, 0 for no limit
  uint32_t has_limit = 0;  // in: kResume: 1 to change the limit
  int32_t error = 0;       // out: 0, or the errno of the refusal
  uint64_t reserved[4] = {};
  char message[512] = {};  // out: of the refusal, one line, NUL-terminated
};
static_assert(sizeof(IoctlScrub) == 568);

// --- FPFS_IOC_CLEAR: the mount's counts of errors begin anew, on its root directory. EPERM for anyone but root and the
// daemon's own user.
// --------------------------------------------------------------------------------------------------------------------

struct IoctlClear {
  static constexpr uint32_t kVersion = 1;

  uint32_t version = kVersion;
  uint32_t reserved32 = 0;
  uint64_t reserved[3] = {};
};
static_assert(sizeof(IoctlClear) == 32);

// --- FPFS_IOC_SYNC: waits until a file, or (on the root directory of the mount) every file and every name, is durable.
// What somebody is in the middle of writing is left alone: a save is ended by its writer's close, or fsync. EPERM for
// anyone but root and the daemon's own user, unless it is a file that is open for writing.
// --------------------------------------------------------------------------------------------------------------------

struct IoctlSync {
  static constexpr uint32_t kVersion = 1;

  uint32_t version = kVersion;
  uint32_t left_alone = 0;  // out: so many files are being written
  uint64_t reserved[2] = {};
  char paths[8192] =
      {};  // out: theirs, below the mount point ("/run7/x.pt"), each with a NUL behind it; as many as fit
};
static_assert(sizeof(IoctlSync) == 24 + 8192);

// --- FPFS_IOC_TIER: the store outside this machine that the array copies to. What may take long answers with a ticket
// at once, and kAsk with it says whether it is over; so nobody waits in the kernel for a store. Who does not ask for a
// minute is forgotten. kSet and kLeave, on the root directory: EPERM for anyone but root and the daemon's own user.
// kWait as FPFS_IOC_SYNC: on the root directory for all files, or on one.
// --------------------------------------------------------------------------------------------------------------------

struct IoctlTier {
  static constexpr uint32_t kVersion = 1;
  enum Command : uint32_t {
    kSet = 1,    // `url` becomes the array's store
    kLeave = 2,  // the array copies nowhere any more
    kWait = 3,   // until what is committed now is copied
    kAsk = 4,    // on any file or directory of the mount
    kFetch = 5,  // of a file: until all content is on the members, durably; it ends when nobody asks for a minute
  };

  uint32_t version = kVersion;
  uint32_t command = 0;          // in; EINVAL when it is none
  uint64_t ticket = 0;           // out; of kAsk: in
  uint32_t share = 0;            // in: kSet: 1 for a store that other arrays may be copying to
  uint32_t has_other_files = 0;  // in: kSet: 1 where there may be other files
  uint32_t is_over = 0;          // out: of kAsk
  int32_t error = 0;             // out: 0, or the errno of the failure
  uint32_t restores = 0;         // in: kSet: 1: what another array has copied there becomes this one's
  uint32_t reserved32 = 0;
  uint64_t reserved[3] = {};
  char url[4096] = {};      // in: of kSet, NUL-terminated
  char message[1024] = {};  // out: of the failure, one line, NUL-terminated
  char array[64] = {};      // in: of kSet with `restores`: that array's id, NUL-terminated; empty: the only one
};
static_assert(sizeof(IoctlTier) == 64 + 4096 + 1024 + 64);

// --- FPFS_IOC_MEMBERS: which members the array has, and where on them its files lie; on the root directory. How far a
// rebalance is is told by the attribute user.fastpersistfs.rebalance (fs/report/rebalance_report.h). EPERM for anyone but
// root and the daemon's own user.
// --------------------------------------------------------------------------------------------------------------------

struct IoctlMembers {
  static constexpr uint32_t kVersion = 1;
  enum Command : uint32_t {
    kAdd = 1,        // `paths` become members, in their order; all of them or none
    kRebalance = 2,  // begins
    kCancel = 3,     // ends a rebalance, or a removal's moving, where it is
    kRemove = 4,     // the member at `paths` leaves; what it holds is moved as a rebalance moves it
    kReplace = 5,    // the same, and the second of `paths` becomes a member and takes its place
    kTakeBack = 6,   // the member at `paths`, which is leaving, does not
  };

  uint32_t version = kVersion;
  uint32_t command = 0;  // in; EINVAL when it is none
  uint64_t limit = 0;    // in: of kRebalance, kRemove, kReplace: bytes per second, 0 for no limit
  uint32_t count = 0;    // in: how many paths
  int32_t error = 0;     // out: 0, or the errno of the refusal
  uint64_t reserved[4] = {};
  char message[1024] = {};  // out: of the refusal, one line, NUL-terminated
  char paths[12288] = {};   // in: absolute, each with a NUL behind it
};
static_assert(sizeof(IoctlMembers) == 56 + 1024 + 12288);

}  // namespace fpfs

// NOLINTBEGIN(cppcoreguidelines-macro-usage): request numbers are macros wherever ioctls are
#define FPFS_IOC_EXTENTS _IOWR(0xF5, 1, struct ::fpfs::IoctlExtents)
#define FPFS_IOC_OBJECT_PATH _IOWR(0xF5, 2, struct ::fpfs::IoctlObjectPath)
#define FPFS_IOC_VERIFY _IOWR(0xF5, 3, struct ::fpfs::IoctlVerify)
// 4 was a sync of everything that did not say what it left alone.
#define FPFS_IOC_SCRUB _IOWR(0xF5, 5, struct ::fpfs::IoctlScrub)
#define FPFS_IOC_SYNC _IOWR(0xF5, 6, struct ::fpfs::IoctlSync)
#define FPFS_IOC_CLEAR _IOWR(0xF5, 8, struct ::fpfs::IoctlClear)
#define FPFS_IOC_TIER _IOWR(0xF5, 7, struct ::fpfs::IoctlTier)
#define FPFS_IOC_MEMBERS _IOWR(0xF5, 9, struct ::fpfs::IoctlMembers)
// NOLINTEND
