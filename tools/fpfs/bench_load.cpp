#include "tools/fpfs/bench_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "engine/base/bytes.h"

namespace fpfs::tools {

namespace {

constexpr std::string_view kLoadPrefix = ".fpfs-bench-";

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Incompressible, and different in every job.
std::vector<std::byte> make_block(size_t size, uint64_t seed) {
  std::vector<std::byte> block(round_up(size, sizeof(uint64_t)));
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < block.size(); i += sizeof(uint64_t)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    put_u64(block.data() + i, state);
  }
  block.resize(size);
  return block;
}

// Every block begins with its offset, so that a block in the wrong place is noticed.
void stamp(std::span<std::byte> block, FileOffset offset) {
  if (block.size() >= sizeof(uint64_t)) put_u64(block.data(), offset.value());
}
bool is_stamped(std::span<const std::byte> block, FileOffset offset) {
  return block.size() < sizeof(uint64_t) || FileOffset(get_u64(block.data())) == offset;
}

double percentile(std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

uint64_t moved_bytes(const Store& store) {
  uint64_t bytes = 0;
  for (const MemberStatus& member : store.status().members) bytes += member.bytes_read + member.bytes_written;
  return bytes;
}

// The engine takes requests of up to kRequestBytesMax; a larger block is several, as it is through a mount.
template <typename Piece>
Status in_pieces(std::span<std::byte> block, Piece piece) {
  for (size_t done = 0; done < block.size(); done += kRequestBytesMax)
    FPFS_RETURN_IF_ERROR(piece(done, block.subspan(done, std::min<size_t>(kRequestBytesMax, block.size() - done))));
  return Status::ok();
}

}  // namespace

BenchLoad::BenchLoad(Store& store, const BenchOptions& options, const std::atomic<bool>& interrupted)
    : store_(store),
      options_(options),
      interrupted_(interrupted),
      name_(options.name.empty() ? fmt::format("{}{}", kLoadPrefix, ::getpid()) : options.name),
      jobs_(options.jobs) {
  for (unsigned i = 0; i < options.jobs; ++i) {
    jobs_[i].name = fmt::format("job-{}", i);
    jobs_[i].size = options.size / options.jobs + (i == 0 ? options.size % options.jobs : 0);
  }
}

namespace {

// Of jobs only, as a load makes it.
bool is_of_a_load(Storage& storage, Handle directory, std::vector<std::string>& jobs) {
  const Status listed = storage.list(directory, [&jobs](const DirectoryEntry& entry) {
    jobs.push_back(entry.name);
    return is_numbered(entry.name, "job-");
  });
  return listed.is_ok() && (jobs.empty() || is_numbered(jobs.back(), "job-"));
}

// Whoever was killed left them: nobody else has the array while it is open.
Status remove_left_behind(Store& store) {
  std::vector<std::string> names;
  FPFS_RETURN_IF_ERROR(store.storage().list(store.root(), [&names](const DirectoryEntry& entry) {
    if (is_numbered(entry.name, kLoadPrefix)) names.push_back(entry.name);
    return true;
  }));
  for (const std::string& name : names) {
    FPFS_ASSIGN_OR_RETURN(const Store::Node node, store.lookup(store.root(), name));
    if (!S_ISDIR(node.attributes.st_mode)) continue;
    FPFS_ASSIGN_OR_RETURN(const Handle opened,
                          store.storage().open_at(store.root(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    const ScopedHandle directory(store.storage(), opened);
    std::vector<std::string> jobs;
    if (!is_of_a_load(store.storage(), opened, jobs)) continue;
    for (const std::string& job : jobs) FPFS_RETURN_IF_ERROR(store.unlink(node.handle.get(), job));
    FPFS_RETURN_IF_ERROR(store.remove_directory(store.root(), name));
  }
  return Status::ok();
}

}  // namespace

bool is_numbered(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() > prefix.size() &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

Result<std::unique_ptr<BenchLoad>> BenchLoad::create(Store& store, const BenchOptions& options,
                                                     const std::atomic<bool>& interrupted) {
  std::unique_ptr<BenchLoad> load(new BenchLoad(store, options, interrupted));
  FPFS_RETURN_IF_ERROR(remove_left_behind(store).with_context("removing what an earlier run left"));
  FPFS_RETURN_IF_ERROR(store.make_directory(store.root(), load->name_, 0700));
  return find(store, options, interrupted);
}

Result<std::unique_ptr<BenchLoad>> BenchLoad::find(Store& store, const BenchOptions& options,
                                                   const std::atomic<bool>& interrupted) {
  std::unique_ptr<BenchLoad> load(new BenchLoad(store, options, interrupted));
  FPFS_ASSIGN_OR_RETURN(Store::Node node, store.lookup(store.root(), load->name_));
  load->directory_ = std::move(node.handle);
  return load;
}

Status BenchLoad::remove() {
  Status first;
  for (Job& job : jobs_) {
    job.file.reset();
    Status status = store_.unlink(directory_.get(), job.name);
    if (!status.is_ok() && status.code() != StatusCode::kNotFound && first.is_ok()) first = status;
  }
  Status status = store_.remove_directory(store_.root(), name_);
  return first.is_ok() ? status : first;
}

Result<BenchResult> BenchLoad::write() {
  FPFS_RETURN_IF_ERROR(make_files());
  return run(&BenchLoad::write_file);
}

Result<BenchResult> BenchLoad::read() {
  FPFS_RETURN_IF_ERROR(open_files());
  return run(&BenchLoad::read_file);
}

Status BenchLoad::make_files() {
  for (Job& job : jobs_) {
    FPFS_ASSIGN_OR_RETURN(Store::Created created, store_.create(directory_.get(), job.name, 0600));
    job.file = std::move(created.file);
  }
  return Status::ok();
}

// The engine lets go of a file, and of what it holds in memory, when its last work in the background is done.
void BenchLoad::forget_files() {
  constexpr auto kPatience = std::chrono::seconds(10);
  for (Job& job : jobs_) job.file.reset();
  const Clock::time_point start = Clock::now();
  while (store_.status().open_files > 0 && Clock::now() - start < kPatience)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Status BenchLoad::open_files() {
  forget_files();
  for (Job& job : jobs_) {
    FPFS_ASSIGN_OR_RETURN(Store::Node node, store_.lookup(directory_.get(), job.name));
    FPFS_ASSIGN_OR_RETURN(job.file, store_.open_file(node.handle.get(), /*for_writing=*/false));
  }
  return Status::ok();
}

void BenchLoad::write_file(Job& job) {
  std::vector<std::byte> block = make_block(options_.block_size, static_cast<uint64_t>(&job - jobs_.data()) + 1);
  const FileOffset end(job.size);
  for (FileOffset offset; offset < end && !interrupted_; offset += options_.block_size) {
    std::span<std::byte> data(block.data(), std::min<uint64_t>(options_.block_size, end - offset));
    stamp(data, offset);
    const Clock::time_point start = Clock::now();
    job.status = in_pieces(
        data, [&](size_t at, std::span<std::byte> piece) { return store_.write_sync(*job.file, offset + at, piece); });
    if (!job.status.is_ok()) return;
    job.latencies.push_back(seconds_since(start));
  }
  const Clock::time_point start = Clock::now();
  job.status = store_.commit_sync(*job.file);
  job.commit_seconds = seconds_since(start);
}

void BenchLoad::read_file(Job& job) {
  std::vector<std::byte> block(options_.block_size);
  ReadCursor cursor;
  const FileOffset end(job.size);
  for (FileOffset offset; offset < end && !interrupted_; offset += options_.block_size) {
    std::span<std::byte> data(block.data(), std::min<uint64_t>(options_.block_size, end - offset));
    const Clock::time_point start = Clock::now();
    job.status = in_pieces(data, [&](size_t at, std::span<std::byte> piece) {
      Result<size_t> count = store_.read_sync(*job.file, offset + at, piece, &cursor);
      if (!count.is_ok()) return count.status();
      return *count == piece.size() ? Status::ok() : Status::error(StatusCode::kIoError, "a read came back short");
    });
    if (!job.status.is_ok()) return;
    job.latencies.push_back(seconds_since(start));
    if (!is_stamped(data, offset)) {
      job.status = Status::error(StatusCode::kCorruption,
                                 fmt::format("{}: other bytes at {} than were written", job.name, offset));
      return;
    }
  }
}

Result<BenchResult> BenchLoad::run(void (BenchLoad::*work)(Job&)) {
  for (Job& job : jobs_) {
    job.latencies.clear();
    job.latencies.reserve(job.size / options_.block_size + 1);
  }
  const uint64_t moved_before = moved_bytes(store_);
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> threads;
  for (Job& job : jobs_) threads.emplace_back([this, work, &job] { (this->*work)(job); });
  for (std::thread& thread : threads) thread.join();

  BenchResult result;
  result.seconds = seconds_since(start);
  result.drive_bytes = moved_bytes(store_) - moved_before;
  std::vector<double> latencies;
  for (const Job& job : jobs_) {
    if (!job.status.is_ok()) return job.status;
    result.bytes += job.size;
    result.commit_seconds = std::max(result.commit_seconds, job.commit_seconds);
    latencies.insert(latencies.end(), job.latencies.begin(), job.latencies.end());
  }
  if (interrupted_) return Status::error(StatusCode::kCancelled, "interrupted");
  std::sort(latencies.begin(), latencies.end());
  result.latency_p50 = percentile(latencies, 0.5);
  result.latency_p99 = percentile(latencies, 0.99);
  result.latency_max = latencies.empty() ? 0 : latencies.back();
  return result;
}

}  // namespace fpfs::tools
