// fpfs bench: the engine on these directories, without a mount.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "engine/array/member_directory.h"
#include "engine/base/ranges.h"
#include "engine/io/posix_environment.h"
#include "tools/common/interrupt.h"
#include "tools/common/json_output.h"
#include "tools/common/table.h"
#include "tools/fpfs/bench_load.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kBenchProgram = "fpfs bench";

constexpr std::string_view kScratchPrefix = ".fpfs-bench-array-";

// The arrays of processes that were killed: they have ended, and nobody has them open.
Status remove_left_behind(Storage& storage, const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_numbered(name, kScratchPrefix)) continue;
    const pid_t process = static_cast<pid_t>(std::strtol(name.c_str() + kScratchPrefix.size(), nullptr, 10));
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) left.push_back(entry.path());
  }
  for (const std::filesystem::path& path : left) {
    const Result<Handle> opened = storage.open_directory(path.string());
    if (!opened.is_ok()) continue;  // its owner has removed it
    const ScopedHandle scratch(storage, *opened);
    const Result<ScopedHandle> lock = lock_member(storage, *opened, path.string(), LockMode::kExclusive, false);
    if (lock.status().code() == StatusCode::kBusy) continue;  // of another namespace of processes
    std::filesystem::remove_all(path, error);
    if (error) return Status::from_errno(error.value(), "remove " + path.string());
  }
  return Status::ok();
}

// The array to measure. Directories that hold one are used as they are. Empty directories get an array below them for as
// long as this object lives, and are left as they were.
class BenchArray {
 public:
  static Result<std::unique_ptr<BenchArray>> prepare(Environment& environment, std::vector<std::string> directories) {
    std::unique_ptr<BenchArray> array(new BenchArray);
    for (const std::string& directory : directories)
      FPFS_RETURN_IF_ERROR(remove_left_behind(environment.storage(), directory));
    FPFS_ASSIGN_OR_RETURN(const bool blank, Array::is_blank(environment, directories));
    if (!blank) {
      array->directories_ = std::move(directories);
      return array;
    }
    for (const std::string& directory : directories) {
      // A misspelt one would be on whichever drive its parent is on, the system's for one.
      std::error_code error;
      if (!std::filesystem::is_directory(directory, error))
        return Status::error(StatusCode::kNotFound,
                             directory +
                                 ": no such directory; is its drive mounted? Name an array's directories, or "
                                 "make an empty one on each drive");
      array->directories_.push_back(fmt::format("{}/{}{}", directory, kScratchPrefix, ::getpid()));
      array->made_.push_back(array->directories_.back());
    }
    FormatOptions format;
    format.may_lie_in_array = true;
    FPFS_RETURN_IF_ERROR(Array::format(environment, array->directories_, format));
    return array;
  }
  ~BenchArray() {
    std::error_code ignored;  // what stays is named in the message of the failure that led here, or is empty
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) std::filesystem::remove_all(*path, ignored);
  }
  BenchArray(const BenchArray&) = delete;
  BenchArray& operator=(const BenchArray&) = delete;
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  BenchArray() = default;
  std::vector<std::string> directories_;
  std::vector<std::string> made_;
};

struct Results {
  std::optional<BenchResult> write, read;
};

Result<Results> measure(Store& store, const BenchOptions& options) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<BenchLoad> load, BenchLoad::create(store, options, catch_interrupts()));
  Results results;
  Status status;
  Result<BenchResult> written = load->write();  // what is to be read must be written too
  if (written.is_ok()) {
    if (options.measure_write()) results.write = *written;
  } else {
    status = written.status();
  }
  if (status.is_ok() && options.measure_read()) {
    Result<BenchResult> read = load->read();
    if (read.is_ok()) results.read = *read;
    status = read.status();
  }
  Status removed = load->remove();
  if (!status.is_ok()) return status;
  if (!removed.is_ok()) return removed.with_context("removing what was written");
  return results;
}

Json result_json(const BenchResult& result) {
  return {{"bytes", result.bytes},
          {"seconds", result.seconds},
          {"bytes_per_second", result.rate()},
          {"drive_bytes", result.drive_bytes},
          {"latency_seconds", {{"p50", result.latency_p50}, {"p99", result.latency_p99}, {"max", result.latency_max}}}};
}

void print_results_json(const Array& array, const BenchOptions& options, const Results& results) {
  Json object = {{"directories", options.directories},
                 {"members", array.member_count()},
                 {"chunk_size", array.stripes().chunk_size},
                 {"size", options.size},
                 {"block_size", options.block_size},
                 {"queue_depth", options.queue_depth},
                 {"jobs", options.jobs},
                 {"buffer_memory", options.buffer_memory}};
  if (results.write) {
    object["write"] = result_json(*results.write);
    object["write"]["commit_seconds"] = results.write->commit_seconds;
  }
  if (results.read) object["read"] = result_json(*results.read);
  print_json(object);
}

void add_result_row(Table& table, const char* name, const BenchResult& result) {
  const auto milliseconds = [](double seconds) { return fmt::format("{:.2f} ms", seconds * 1000); };
  table.add_row({name, format_size(result.bytes), format_duration(result.seconds), format_rate(result.rate()),
                 format_size(result.drive_bytes), milliseconds(result.latency_p50), milliseconds(result.latency_p99),
                 milliseconds(result.latency_max)});
}

void print_results(const Array& array, const BenchOptions& options, const Results& results) {
  fmt::print("{} in {}, blocks of {}, on {}, chunks of {}, queue depth {}, {} of buffers\n\n",
             format_size(options.size), format_count(options.jobs, "file"), format_size(options.block_size),
             format_count(array.member_count(), "member"), format_size(array.stripes().chunk_size), options.queue_depth,
             format_size(options.buffer_memory));
  Table table;
  table.add_column("", Table::Align::kLeft);
  for (const char* heading : {"BYTES", "TIME", "RATE", "ON DRIVES", "CALL P50", "P99", "MAX"})
    table.add_column(heading, Table::Align::kRight);
  if (results.write) add_result_row(table, "write", *results.write);
  if (results.read) add_result_row(table, "read", *results.read);
  fmt::print("{}", table.text());
  if (results.write)
    fmt::print("\nWriting ends with the commit (the longest took {}).\n",
               format_duration(results.write->commit_seconds));
}

int run(const BenchOptions& options) {
  Result<std::vector<std::string>> directories = Array::split_directories(options.directories);
  if (!directories.is_ok()) return fail(kBenchProgram, kExitUsage, directories.status().message());
  if (options.block_size == 0 || options.size < options.jobs)
    return fail(kBenchProgram, kExitUsage, "--size and --block-size: each job needs at least one byte");
  if (Status status = PosixEnvironment::check_buffer_memory(options.buffer_memory); !status.is_ok())
    return fail(kBenchProgram, status);
  if (Status status = silence_engine_log(); !status.is_ok()) return fail(kBenchProgram, status);
  PosixEnvironment environment;
  Result<std::unique_ptr<BenchArray>> array = BenchArray::prepare(environment, *directories);
  if (!array.is_ok()) return fail(kBenchProgram, kExitFailure, array.status().message());

  StoreOptions how;
  how.buffer_memory = options.buffer_memory;
  how.queue_depth = options.queue_depth;
  how.array.metadata_directory = options.metadata_directory;
  how.array.buffered_members = options.buffered_members;
  Result<std::unique_ptr<Store>> store = Store::open(environment, (*array)->directories(), how);
  if (!store.is_ok()) return fail(kBenchProgram, store.status());
  Result<Results> results = measure(**store, options);
  if (results.is_ok()) {
    if (options.json) {
      print_results_json((*store)->array(), options, *results);
    } else {
      print_results((*store)->array(), options, *results);
    }
  }
  Status closed = (*store)->close();
  store->reset();
  if (!results.is_ok()) return fail(kBenchProgram, kExitFailure, results.status().message());
  if (!closed.is_ok()) return fail(kBenchProgram, kExitFailure, closed.message());
  return kExitOk;
}

}  // namespace

Verb add_bench(CLI::App& fpfs) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = fpfs.add_subcommand("bench", "Measure the engine on these directories, without a mount");
  add_directories(*command, options->directories,
                  "Directories of an array, or empty ones, separated by colons; none is made");
  add_size_option(*command, "--size", options->size, "Bytes in all");
  add_size_option(*command, "--block-size", options->block_size, "Bytes of one call");
  add_size_option(*command, "--buffer-memory", options->buffer_memory, "Buffer pool of the engine");
  command->add_option("--queue-depth", options->queue_depth, "Transfers in flight per member")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--jobs", options->jobs, "Files, each with a thread")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* read = command->add_flag("--read", options->read, "Measure reading only");
  CLI::Option* write = command->add_flag("--write", options->write, "Measure writing only");
  CLI::Option* both = command->add_flag("--both", options->both, "Measure both (the default)");
  read->excludes(write)->excludes(both);
  write->excludes(both);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--meta-dir", options->metadata_directory, "Where the array's --meta-dir is now")
      ->type_name("DIR");
  command->add_flag("--buffered-members", options->buffered_members, "Accept members without O_DIRECT (development)");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
