// The checker: is what is stored what was written, and does every byte on the members belong to something?
// fsck.fastpersistfs is a command line around check_array(); Store::open() uses recover_array() after a crash.
//
// Reads superblocks, every sidecar of tree/ and every object directory; with verify_data every stored chunk, on all
// members in parallel (a few reading threads per member, O_DIRECT), and content that is kept in sidecars. Works beside
// a live mount with repair = kNone: a file that changes while it is looked at is looked at again rather than reported.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/status.h"
#include "engine/io/environment.h"

namespace fpfs {

struct FileImage;

enum class Repair : uint8_t {
  kNone,   // fsck -n: changes nothing
  kPreen,  // fsck -p: orphan objects, torn tails, leftovers of crashes; after a clean end only what no file can have
           // named
  kYes,    // fsck -y: also sets damaged files aside under lost+found, and frees what a clean end left over
};

struct CheckOptions {
  Repair repair = Repair::kNone;
  bool verify_data = false;
  bool buffered_members = false;
  std::string metadata_directory;  // where the array's --meta-dir is now; empty: where its superblocks say
  // A few times a second. `bytes_total` is 0 until reading begins; before, files are looked at.
  struct Progress {
    uint64_t files = 0, bytes_done = 0, bytes_total = 0;
  };
  std::function<void(const Progress&)> progress;
  const std::atomic<bool>* cancelled = nullptr;
  // Whether a file, as this image has it, was copied to a store outside of the array. Its sidecar is open to be read;
  // the path has no '/' at its beginning. None: nothing was. (engine/tier/noted_copy.h)
  using IsCopied = std::function<bool(Storage&, Handle sidecar, const std::string& path, const FileImage&)>;
  std::function<IsCopied(Storage&, const Array&)> copies = nullptr;  // asked once; null: no copies are kept
};

struct CheckError {
  std::string path;    // in the array, "/run1/step100.pt"; empty when no file is known (an orphan, a superblock)
  int64_t chunk = -1;  // -1: not about one chunk
  int member = -1;
  int64_t object_offset = -1;  // bytes in the object file
  // Of members: "missing-member", "foreign-member", "duplicate-member", "older-member", "superblock", "mount-record",
  // "missing-directory" (of objects). Of a file's index: "sidecar", "foreign-sidecar", "torn-tail", "overlap", "extent". Of its data: "missing-object", "short-object",
  // "missing-member" (with a path), "checksum" (or a frame that does not decode), "misplaced" (the bytes are another
  // chunk's of the same file), "unreadable". Of space: "orphan", "leftover-space". Of the commit log: "pending-commit",
  // "commit-log" (damaged). Not ours, and left alone: "foreign".
  std::string kind;
  std::string detail;  // one sentence
  // Of a chunk: "healed": it came from a copy outside of the array, and is on its member again. "healable": a copy has
  // it. "lost": none has, as far as is known. Empty: not about a chunk, or its copy cannot be asked for, or nobody knows
  // whether it is lost ("missing-member").
  std::string healing;
  bool repaired = false;   // or set aside
  bool set_aside = false;  // Repair::kYes moved its file away, which is not the same as being whole again
  // Of what is on a member that is older than the others, or named by one: it may come of that.
  bool of_older_member = false;
  // An object of a file that no index knows, and none can have forgotten: nobody misses it.
  bool is_nobodys = false;
};

// A damaged file that Repair::kYes moved out of the tree.
struct FileSetAside {
  std::string path;
  std::string moved_to;  // "lost+found/000000000000002a-step100.pt.sidecar", below the directory that keeps the names
  uint64_t size = 0;     // 0 when its index cannot be read
  bool is_index_lost = false;
  struct Range {
    FileOffset offset;
    uint64_t length = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> surviving;  // read and checked; ascending
};

struct CheckReport {
  uint64_t files = 0, chunks = 0;
  uint64_t chunks_away = 0;                        // of the chunks: on no member, and so not looked at
  uint64_t bytes_stored = 0, bytes_verified = 0;   // of the members, and content that is kept in sidecars
  uint64_t files_missing = 0, chunks_missing = 0;  // of all: with chunks on members that are not there, and these
  uint64_t orphans = 0;
  uint64_t repaired = 0;  // errors that are gone; without those of files that were set aside
  double seconds = 0;
  // False: something is wrong with the members, and nothing that they hold was looked at.
  bool was_checked = true;
  bool cancelled = false;
  std::string names_in;  // the directory of names only, where it has one
  // The array was not closed: what is left over ("torn-tail", "orphan", "leftover-space") is of a crash, and no file's.
  bool after_crash = false;
  // In path order; at most 10,000, then `errors_omitted` counts on, but for "missing-member".
  std::vector<CheckError> errors;
  std::vector<FileSetAside> set_aside;
  // When an orphan may be the content of one whose index was emptied: the files that are empty, at most 10,000.
  std::vector<std::string> empty_files;
  uint64_t errors_omitted = 0;
  bool clean() const { return errors.empty() && errors_omitted == 0; }
};

// A Status failure: the check itself could not run (fsck exit 8). Damage found is in the report. Members that are
// missing, damaged, another array's or there twice are damage: named in the report. With members missing Repair::kNone
// checks what the others hold; otherwise no further check runs then.
Result<CheckReport> check_array(Environment& environment, const std::vector<std::string>& directories,
                                const CheckOptions& options);

// What Store::open() does with an array that was not closed cleanly: torn sidecar tails are cut, objects that no
// sidecar names are removed, space beyond the committed extents is given back. Idempotent: a power cut during it
// changes nothing that a second run would not finish.
// Logs the files whose tails were cut, and what it cannot repair.
struct RecoveryCounts {
  uint64_t orphans_removed = 0, torn_tails = 0, bytes_freed = 0;
  uint64_t commits_put_back = 0;  // from the commit log
};
Result<RecoveryCounts> recover_array(Environment& environment, Array& array);

}  // namespace fpfs
