// Rebalance: moves the chunks of an open array's files in the background to the members that they would be written to
// now (File::move_chunk()): over all members, when some were added. Or (a removal) only those on members that are leaving,
// which are taken out of the array at the end (Store::take_out_members()). The way through the array, its rate and its
// commands are BackgroundPass's. When members were added meanwhile, or stay after all, it goes through the files again:
// those that it had behind it lie where they belonged before, and it had some open itself.
//
// Nothing is kept of it from mount to mount: what is in its place is passed by, so that one that was interrupted, by a
// crash too, is begun again and goes on. Chunks stay where they are while their file is being changed, when they
// cannot be read, and where there is no room; they are counted, and told with the reason. So are those of files that
// have been open since before members were added, and whatever else keeps a member that is to leave
// (Store::what_keeps_members()).
//
// Thread safety: as BackgroundPass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/store/background_pass.h"
#include "engine/store/store.h"

namespace fpfs {

class Rebalance : private PassVisitor {
 public:
  // Chunks of a file that stay where they are for the same reason, or something else that does.
  struct Left {
    std::string path;             // "/run7/x.pt"; or of something outside of the mount, in a directory of the array
    std::string why;              // and what to do
    uint64_t chunks = 0;          // 0: it is not about chunks, but the file could not be opened, or keeps a member
    std::vector<uint64_t> first;  // the lowest of them, at most kFirstMax; ascending
  };
  static constexpr size_t kLeftMax = 64, kFirstMax = 64;
  struct Report : BackgroundPass::Report {  // bytes_per_second: moved, from the beginning on
    bool is_removal = false;
    uint64_t chunks_moved = 0, bytes_moved = 0;  // committed
    uint64_t chunks_left = 0;                    // that should have been moved
    std::vector<Left> left;                      // at most kLeftMax; what is beyond is counted only
  };

  // The store outlives it.
  explicit Rebalance(Store& store);
  ~Rebalance() override;
  Rebalance(const Rebalance&) = delete;
  Rebalance& operator=(const Rebalance&) = delete;

  // As those of BackgroundPass. `is_removal`: of members that were said to be leaving before.
  Status start(uint64_t limit, bool is_removal = false);
  // kBusy, kReadOnly: it cannot be started now.
  Status may_start() const;
  Status cancel() { return pass_.cancel(); }
  void stop() { pass_.stop(); }
  Report report() const;

 private:
  // Chunks that are read, written or wait for their commit. It outlives the pass: what was written is committed all the
  // same.
  struct Moves {
    Mutex mutex;
    CondVar ended;
    uint64_t under_way FPFS_GUARDED_BY(mutex) = 0;
    uint64_t chunks_moved FPFS_GUARDED_BY(mutex) = 0, bytes_moved FPFS_GUARDED_BY(mutex) = 0;
    uint64_t chunks_left FPFS_GUARDED_BY(mutex) = 0;
    std::vector<Left> left FPFS_GUARDED_BY(mutex);

    void add_left(const std::string& path, ChunkIndex chunk, const std::string& why) FPFS_REQUIRES(mutex);
    Left* left_of(const std::string& path, const std::string& why) FPFS_REQUIRES(mutex);
    void add_kept(const std::vector<Store::KeepsMember>& kept) FPFS_REQUIRES(mutex);
    void forget_left() FPFS_REQUIRES(mutex);
    bool is_removal FPFS_GUARDED_BY(mutex) = false;
    unsigned rounds FPFS_GUARDED_BY(mutex) = 0;
  };
  // A commit follows what it names after a moment, and takes one; until then its chunks are where they were and where
  // they will be, and their file stays open.
  static constexpr uint64_t kUnderWayMax = 256;
  // Of a removal. What was renamed, written or read is found in the next one, where nothing else is in its place.
  static constexpr unsigned kRoundsMax = 5;
  static constexpr std::chrono::milliseconds kBetweenRounds{200};

  void begin_pass() override;
  bool wants_chunk(File& file, ChunkIndex chunk, const Extent& extent) override;
  void visit_chunk(const FileEntry& entry, File& file, ChunkIndex chunk, const Extent& extent,
                   std::function<void()> done) override;
  void file_done(const FileEntry&, File& file) override { file.drop_left_objects(); }
  void visit_unopened(const FileEntry& entry, const Status& failure) override;
  Result<bool> finish() override;
  void end_pass(const PassState& state) override;
  Result<PassState> load() override { return PassState(); }
  Status save(const PassState&) override { return Status::ok(); }

  Store& store_;
  const std::shared_ptr<Moves> moves_;
  StripeMap goes_by_;  // the members when this way through the files began
  BackgroundPass pass_;
};

}  // namespace fpfs
