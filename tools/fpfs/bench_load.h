// The load of fpfs bench: jobs that each write, then read, one file of an open Store, timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/store/store.h"

namespace fpfs::tools {

struct BenchOptions {
  std::string directories;
  std::string metadata_directory;
  uint64_t size = kGiB;        // bytes in all, shared out to the jobs
  uint64_t block_size = kMiB;  // bytes of one call
  uint64_t buffer_memory = 256 * kMiB;
  unsigned queue_depth = 16;  // transfers in flight per member
  unsigned jobs = 1;          // files, and threads
  bool read = false, write = false, both = false;
  bool json = false;
  bool buffered_members = false;
  std::string name;  // of the load's directory in the array's root; empty: one of this process

  bool measure_write() const { return write || both || !read; }
  bool measure_read() const { return read || both || !write; }
};

struct BenchResult {
  uint64_t bytes = 0;
  uint64_t drive_bytes = 0;   // what the members were asked to move: a read from memory would show here
  double seconds = 0;         // from the first call to the last answer; writing: to the last commit
  double commit_seconds = 0;  // writing: the part spent in the longest commit
  double latency_p50 = 0, latency_p99 = 0, latency_max = 0;  // seconds of one call
  double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// "job-17" is, of "job-": what is named so was made by a program, and has its number or that of its process.
bool is_numbered(std::string_view name, std::string_view prefix);

class BenchLoad {
 public:
  // Makes a directory of its own in the array's root, and removes those that killed processes left there.
  static Result<std::unique_ptr<BenchLoad>> create(Store& store, const BenchOptions& options,
                                                   const std::atomic<bool>& interrupted);
  // The one that an earlier load of these options made, and did not remove: for read().
  static Result<std::unique_ptr<BenchLoad>> find(Store& store, const BenchOptions& options,
                                                 const std::atomic<bool>& interrupted);
  // Removes the files and the directory.
  Status remove();

  Result<BenchResult> write();
  Result<BenchResult> read();  // after write(); each file is opened anew, so that nothing comes from memory

 private:
  struct Job {
    std::string name;
    uint64_t size = 0;
    std::shared_ptr<File> file;
    std::vector<double> latencies;
    double commit_seconds = 0;
    Status status;
  };
  BenchLoad(Store& store, const BenchOptions& options, const std::atomic<bool>& interrupted);
  Status make_files();
  void forget_files();
  Status open_files();
  void write_file(Job& job);
  void read_file(Job& job);
  Result<BenchResult> run(void (BenchLoad::*work)(Job&));

  Store& store_;
  const BenchOptions& options_;
  const std::atomic<bool>& interrupted_;
  const std::string name_;
  NodeHandle directory_;
  std::vector<Job> jobs_;
};

}  // namespace fpfs::tools
