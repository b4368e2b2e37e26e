// Reading back what is stored: every chunk of the files given, from all members in parallel, against its checksum.
//
//   add()  ──→ one bounded queue per member ──→ reading threads of that member: large O_DIRECT reads, XXH3, judge
//
// A few threads per member, so that one reads while another hashes. Files go through the queues in the order they are
// given, each object front to back: the order in which the drives are fastest.
#pragma once

#include <atomic>
#include <bitset>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/array/array.h"
#include "engine/base/mutex.h"
#include "engine/check/check.h"
#include "engine/check/object_space.h"
#include "engine/check/scan.h"

namespace fpfs {

// A file whose chunks are read, and what was found. Shared by the threads that read it.
struct VerifiedFile {
  std::string path;
  struct stat attributes {};  // of the sidecar that named the chunks
  FileId file_id;
  Generation generation;
  // Members whose object is known to be missing or too short: that is reported already.
  std::bitset<kMemberCountMax> known_damaged;
  PerMember<std::vector<PlacedChunk>> chunks;  // in the order of their slots; set by add()

  Mutex mutex;
  std::vector<CheckError> errors FPFS_GUARDED_BY(mutex);
};

class DataVerifier {
 public:
  struct Totals {
    std::atomic<uint64_t> bytes_done{0};      // stored bytes looked at, good or not
    std::atomic<uint64_t> bytes_verified{0};  // stored bytes that matched their checksum
  };

  // `idle` is called now and then while add() and finish() wait. All references outlive the verifier.
  DataVerifier(Storage& storage, Array& array, Totals& totals, const std::atomic<bool>* cancelled,
               std::function<void()> idle);
  ~DataVerifier();
  DataVerifier(const DataVerifier&) = delete;
  DataVerifier& operator=(const DataVerifier&) = delete;

  // Queues every chunk of the file; waits while the queues are full. From one thread.
  void add(const std::shared_ptr<VerifiedFile>& file, const FileImage& image);
  // Waits until everything was read (or cancelled) and ends the threads. Called once, before the destructor.
  void finish();

 private:
  class SharedObject;
  struct Run;
  class MemberReader;
  Storage& storage_;
  Array& array_;
  Totals& totals_;
  const std::atomic<bool>* cancelled_;
  std::function<void()> idle_;
  PerMember<std::unique_ptr<MemberReader>> readers_;  // null for a missing one
};

}  // namespace fpfs
