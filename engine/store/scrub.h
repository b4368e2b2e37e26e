// Scrub: reads every stored byte of an open array back in the background and checks it. The way through the array, its
// rate and its commands are BackgroundPass's; where the pass is, and what it found, is kept in the array
// (scrub_state.h).
//
// Reading is File::verify_chunk's: past every cache, in buffers of the pool. Damage is listed, and logged: one line
// for each file and kind of damage, when the file was read (of one that takes long, every ten seconds). A chunk that a
// copy has is healed by that (Store::set_chunk_source()); nothing else is changed.
//
// Thread safety: as BackgroundPass.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/check/error_lines.h"
#include "engine/store/background_pass.h"
#include "engine/store/scrub_state.h"
#include "engine/store/store.h"

namespace fpfs {

class Scrub : private PassVisitor {
 public:
  struct Report : BackgroundPass::Progress {
    ScrubState state;
  };

  // The store outlives it.
  explicit Scrub(Store& store);
  ~Scrub() override;
  Scrub(const Scrub&) = delete;
  Scrub& operator=(const Scrub&) = delete;

  // As those of BackgroundPass.
  void open() { pass_.open(); }
  Status start(uint64_t limit) { return pass_.start(limit); }
  Status pause() { return pass_.pause(); }
  Status resume(std::optional<uint64_t> limit) { return pass_.resume(limit); }
  Status cancel() { return pass_.cancel(); }
  void stop() { pass_.stop(); }
  Report report() const;

 private:
  struct Failure {
    ChunkIndex chunk;
    Extent extent;  // there is none when the content is in the sidecar
    Status status;
    ChunkVerifier::Remedy remedy;
  };

  void begin_pass() override;
  void visit_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                   std::function<void()> done) override;
  void file_done(const FileEntry& entry, File& file) override;
  void visit_unopened(const FileEntry& entry, const Status& failure) override;
  void end_pass(const PassState& state) override;
  Result<PassState> load() override;
  Status save(const PassState& state) override;

  void count_away(const FileEntry& entry, const File& file);
  void report_failures(const FileEntry& entry, const File& file);
  std::string describe_further_names(const FileEntry& entry) const;
  void report_failed_save(const std::string& path, const File& file);
  std::string kind_of(const Failure& failure, const File::Info& info) const;
  void add_damage(CheckError error);

  Store& store_;
  mutable Mutex mutex_;
  ScrubFindings findings_ FPFS_GUARDED_BY(mutex_);
  std::vector<Failure> failures_ FPFS_GUARDED_BY(mutex_);  // of the file being read, not reported yet
  std::string away_counted_ FPFS_GUARDED_BY(mutex_);       // the file whose chunks_away are counted, the last one
  // The pass's own.
  FileErrors unlogged_;           // of the file being read
  std::string failed_save_told_;  // the file of which that was said last
  BackgroundPass pass_;
};

}  // namespace fpfs
