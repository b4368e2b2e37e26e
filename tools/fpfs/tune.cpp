// fpfs tune: which options suit these drives best, by trying. Writes a profile for the mount.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <span>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "tools/common/interrupt.h"
#include "tools/common/json_output.h"
#include "tools/common/progress.h"
#include "tools/common/table.h"
#include "tools/fpfs/tune_load.h"
#include "tools/fpfs/tune_report.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kTuneProgram = "fpfs tune";

using TuneClock = std::chrono::steady_clock;

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Before anything is measured: the minutes would be lost.
Status check_output(const std::string& path) {
  if (path.empty()) return Status::ok();
  struct stat attributes {};
  const bool exists = ::stat(path.c_str(), &attributes) == 0;
  if (exists && !S_ISREG(attributes.st_mode))
    return Status::error(StatusCode::kExists, path + ": it is no regular file; name a file");
  const std::string parent = parent_of(path);
  if (::access(parent.c_str(), F_OK) != 0 && errno == ENOENT)
    return Status::error(StatusCode::kNotFound, fmt::format("{}: its directory does not exist; make it: mkdir -p {}",
                                                            path, shell_word(parent)));
  if (::access(parent.c_str(), W_OK | X_OK) != 0) return Status::from_errno(errno, "write " + path);
  return Status::ok();
}

// The file is there whole, or as it was.
Status write_output(const std::string& path, const std::string& text) {
  const std::string part = fmt::format("{}.{}.part", path, ::getpid());
  const FileDescriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.is_open()) return Status::from_errno(errno, "make " + part);
  const bool is_written = ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                          ::fsync(file.number()) == 0 && ::rename(part.c_str(), path.c_str()) == 0;
  const int failure = errno != 0 ? errno : EIO;
  if (is_written) return Status::ok();
  ::unlink(part.c_str());
  return Status::from_errno(failure, "write " + path);
}

struct Tuned {
  TuneOutcome outcome;
  size_t runs = 0;
  double seconds = 0;
};

Result<Tuned> tune_array(const TuneArray& array, const TuneOptions& options) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  TuneLoad load(array, options, interrupted);
  TuneLimits limits;
  limits.chunk_size = array.chunk_size();
  limits.buffers = options.buffer_memory / array.chunk_size();
  limits.members = static_cast<unsigned>(array.directories().size());
  limits.workers = PosixEnvironment::threads_default();
  Tuned tuned;
  ProgressLine progress;
  const TuneClock::time_point start = TuneClock::now();
  const auto measure = [&](const TuneSettings& settings, TuneDirection direction) -> Result<double> {
    if (interrupted) return Status::error(StatusCode::kCancelled, "interrupted");
    progress.show(fmt::format("run {}, {}: {}", tuned.runs + 1, to_string(direction), describe(settings)));
    FPFS_ASSIGN_OR_RETURN(const double rate, load.run(settings, direction));
    ++tuned.runs;
    progress.show(
        fmt::format("run {}, {}: {}, {}", tuned.runs, to_string(direction), describe(settings), format_rate(rate)));
    return rate;
  };
  // What the first run finds differs from all others: nothing is where the drive will have it.
  FPFS_RETURN_IF_ERROR(measure(TuneSettings(), TuneDirection::kWrite).status());
  FPFS_ASSIGN_OR_RETURN(tuned.outcome, tune(tune_knobs(limits), measure));
  tuned.seconds = std::chrono::duration<double>(TuneClock::now() - start).count();
  return tuned;
}

void print_tuned_json(const TuneArray& array, const TuneOptions& options, const Tuned& tuned) {
  const TuneOutcome& outcome = tuned.outcome;
  Json object = {{"directories", options.directories},
                 {"members", array.directories().size()},
                 {"chunk_size", array.chunk_size()},
                 {"size", options.size},
                 {"jobs", options.jobs},
                 {"buffer_memory", options.buffer_memory},
                 {"runs", tuned.runs},
                 {"seconds", tuned.seconds},
                 {"default", tune_result_json(outcome.finalists.front())},
                 {"chosen", tune_result_json(outcome.finalists[outcome.chosen])},
                 {"best_write", tune_result_json(outcome.best(TuneDirection::kWrite))},
                 {"best_read", tune_result_json(outcome.best(TuneDirection::kRead))},
                 {"is_default", outcome.chosen == 0},
                 {"finalists", Json::array()},
                 {"searched", Json::array()},
                 {"profile", options.out}};
  for (const TuneResult& result : outcome.finalists) object["finalists"].push_back(tune_result_json(result));
  for (const TuneResult& result : outcome.searched) object["searched"].push_back(tune_result_json(result));
  print_json(object);
}

void print_tuned(const TuneArray& array, const TuneOptions& options, const Tuned& tuned) {
  const TuneOutcome& outcome = tuned.outcome;
  const size_t members = array.directories().size();
  fmt::print("{} of {} in {}, on {}, chunks of {}, {} of buffers; {}\n\n{}\n", tuned.runs, format_size(options.size),
             format_count(options.jobs, "file"), format_count(members, "member"), format_size(array.chunk_size()),
             format_size(options.buffer_memory), format_duration(tuned.seconds), tune_table(outcome));
  Facts facts;
  for (const TuneDirection direction : kTuneDirections) {
    const TuneResult& best = outcome.best(direction);
    facts.add(direction == TuneDirection::kWrite ? "Best write" : "Best read",
              fmt::format("{} with {} (default {})", format_rate(best.of(direction).median()), describe(best.settings),
                          format_rate(outcome.finalists.front().of(direction).median())));
  }
  facts.add("Chosen", outcome.chosen == 0 ? "default: nothing else is faster by more than runs differ"
                                          : describe(outcome.finalists[outcome.chosen].settings));
  if (!options.out.empty()) facts.add("Profile", fmt::format("{}; mount with -o profile={}", options.out, options.out));
  if (!options.svg.empty()) facts.add("Chart", options.svg);
  fmt::print("{}", facts.text());
}

int run(const TuneOptions& options) {
  if (options.size < options.jobs) return fail(kTuneProgram, kExitUsage, "--size: each job needs at least one byte");
  for (const std::string& path : {options.out, options.svg})
    if (const Status status = check_output(path); !status.is_ok()) return fail(kTuneProgram, status);
  if (Status status = PosixEnvironment::check_buffer_memory(options.buffer_memory); !status.is_ok())
    return fail(kTuneProgram, status);
  if (Status status = silence_engine_log(); !status.is_ok()) return fail(kTuneProgram, status);
  PosixEnvironment environment;
  const Result<std::unique_ptr<TuneArray>> array = TuneArray::make(environment, options);
  if (!array.is_ok()) return fail(kTuneProgram, array.status());
  const Result<Tuned> tuned = tune_array(**array, options);
  if (!tuned.is_ok()) return fail(kTuneProgram, tuned.status());

  const std::string about =
      fmt::format("fpfs tune {} of {}, {:%F}", FPFS_VERSION, options.directories, fmt::gmtime(std::time(nullptr)));
  if (!options.out.empty())
    if (const Status status = write_output(options.out, tune_profile(tuned->outcome, about)); !status.is_ok())
      return fail(kTuneProgram, status);
  if (!options.svg.empty())
    if (const Status status = write_output(options.svg, tune_chart(tuned->outcome, about)); !status.is_ok())
      return fail(kTuneProgram, status);
  if (options.json)
    print_tuned_json(**array, options, *tuned);
  else
    print_tuned(**array, options, *tuned);
  return kExitOk;
}

}  // namespace

Verb add_tune(CLI::App& fpfs) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = fpfs.add_subcommand("tune", "Find the options that suit these drives best, and write a profile");
  add_directories(*command, options->directories,
                  "Directories of an array that is not mounted, or any, separated by colons");
  add_size_option(*command, "--size", options->size, "Bytes of one run; twice as much must be free");
  add_size_option(*command, "--buffer-memory", options->buffer_memory, "Buffer pool of the engine, as the mount's");
  command->add_option("--jobs", options->jobs, "Files that are written or read at a time")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--out", options->out, "Write the profile, for -o profile=FILE of a mount")->type_name("FILE");
  command->add_option("--svg", options->svg, "Write a chart of all that was measured")->type_name("FILE");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--meta-dir", options->metadata_directory, "Where the array's --meta-dir is now")
      ->type_name("DIR");
  command->add_flag("--buffered-members", options->buffered_members, "Accept members without O_DIRECT (development)");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
