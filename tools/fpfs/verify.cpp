// fpfs verify: reads and checks files of a mounted array from their drives, past every cache.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/shell_word.h"
#include "engine/check/error_lines.h"
#include "fs/interface/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/table.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kVerifyProgram = "fpfs verify";
// Per call: short enough that Ctrl-C is answered soon.
constexpr uint64_t kChunksPerCall = 128;

struct VerifyOptions {
  std::vector<std::string> paths;
  bool json = false;
  bool quiet = false;
};

// A file of which not all is on the drives.
struct NotLookedAt {
  std::string path;
  uint64_t chunks_away = 0, chunks = 0;
};

constexpr int64_t kOfIndex = -1;

struct Finding {
  std::string path;
  int64_t chunk = 0;           // kOfIndex: the file's index cannot be read, and so nothing of it
  bool is_unreadable = false;  // a drive does not give it: it need not be damaged
  int member = -1;             // -1: on none, or not known
  std::string detail;
};

// A file whose index cannot be read can be neither opened nor looked at.
Status explain_file_error(int errno_value, const std::string& path) {
  return errno_value == EIO ? describe_unreadable(path) : explain_mount_error(errno_value, path);
}

// Calls visit(name, attributes) for every regular file below a directory, in the same mount, and complain(status, name)
// for what cannot be looked at.
template <typename Visit, typename Complain>
void for_each_file(const std::string& directory, const std::atomic<bool>& stop, const Visit& visit,
                   const Complain& complain) {
  std::error_code error;
  struct stat root {};
  if (::stat(directory.c_str(), &root) != 0) return complain(explain_mount_error(errno, directory), directory);
  const Result<std::string> top = mount_root_of(directory);
  std::filesystem::recursive_directory_iterator entries(directory, error), end;
  if (error) return complain(explain_mount_error(error.value(), directory), directory);
  while (entries != end && !stop) {
    const std::string name = entries->path().string();
    struct stat attributes {};
    if (::lstat(name.c_str(), &attributes) != 0) {
      if (errno != ENOENT) complain(explain_file_error(errno, name), name);  // removed meanwhile is no fault
    } else if (attributes.st_dev != root.st_dev) {
      entries.disable_recursion_pending();
    } else if (S_ISREG(attributes.st_mode)) {
      visit(name, attributes);
    } else if (S_ISDIR(attributes.st_mode)) {
      if (const Status listable = check_listable(name); !listable.is_ok()) {
        complain(listable, name);  // the iterator would end there, and not say where
        entries.disable_recursion_pending();
      }
    }
    entries.increment(error);
    if (error) return complain(explain_mount_error(error.value(), directory), directory);
  }
  // Names that go with their mount look like files that were removed meanwhile.
  struct stat now {};
  if (!stop && top.is_ok() && (::stat(top->c_str(), &now) != 0 || now.st_dev != root.st_dev))
    complain(
        Status::error(StatusCode::kIoError, directory + ": it was unmounted meanwhile; not everything was checked"),
        directory);
}

// Counts what there is to be read, while reading has begun already.
class WorkCount {
 public:
  explicit WorkCount(const std::vector<std::string>& paths) : thread_([this, &paths] { count(paths); }) {}
  ~WorkCount() {
    stop_ = true;
    thread_.join();
  }
  WorkCount(const WorkCount&) = delete;
  WorkCount& operator=(const WorkCount&) = delete;

  // Sets the totals when all is counted.
  void add_to(WorkDone& work) const {
    if (!is_over_.load(std::memory_order_acquire)) return;
    work.files_total = files_;
    work.bytes_total = bytes_;
  }

 private:
  void count(const std::vector<std::string>& paths) {
    const auto add = [this](const std::string&, const struct stat& attributes) {
      ++files_;
      bytes_ += static_cast<uint64_t>(attributes.st_size);
    };
    for (const std::string& path : paths) {
      struct stat attributes {};
      if (::stat(path.c_str(), &attributes) != 0) continue;  // for the verification to say
      if (S_ISDIR(attributes.st_mode))
        for_each_file(path, stop_, add, [](const Status&, const std::string&) {});
      else
        add(path, attributes);
    }
    is_over_.store(!stop_, std::memory_order_release);
  }

  std::atomic<bool> stop_{false}, is_over_{false};
  uint64_t files_ = 0, bytes_ = 0;
  std::thread thread_;  // last: it uses the others
};

class VerifyRun {
 public:
  explicit VerifyRun(const VerifyOptions& options)
      : options_(options),
        interrupted_(catch_interrupts()),
        progress_(options.quiet ? ProgressLine::Show::kNever : ProgressLine::Show::kOnTerminal) {
    if (progress_.is_on()) expected_.emplace(options.paths);
  }

  // A directory stands for every regular file below it in the same mount.
  void verify(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return verify_file(path);
    if (const Status mounted = check_mounted(path); !mounted.is_ok()) return complain(mounted, path);
    const uint64_t files_before = files_;
    for_each_file(
        path, interrupted_, [this](const std::string& name, const struct stat&) { verify_file(name); },
        [this](const Status& status, const std::string& name) { complain(status, name); });
    if (files_ == files_before && !failed_ && findings_.empty() && !interrupted_ && !options_.json)
      say("{}: no files", one_line(path));
  }

  int report() {
    progress_.clear();
    if (options_.json) {
      Json errors = Json::array();
      for (const Finding& finding : findings_)
        errors.push_back({{"path", finding.path},
                          {"chunk", finding.chunk},
                          {"kind", finding.is_unreadable       ? "unreadable"
                                   : finding.chunk == kOfIndex ? "index"
                                                               : "damaged"},
                          {"detail", finding.detail}});
      Json away_files = Json::array();
      uint64_t chunks_away = 0;
      for (const NotLookedAt& file : away_) {
        away_files.push_back({{"path", file.path}, {"away", file.chunks_away}, {"chunks", file.chunks}});
        chunks_away += file.chunks_away;
      }
      // What was not looked at is no damage, and nobody knows that it is right.
      print_json({{"clean", findings_.empty() && away_.empty() && !failed_ && !interrupted_},
                  {"files", files_},
                  {"chunks", chunks_},
                  {"away", chunks_away},
                  {"away_files", away_files},
                  {"errors", errors}});
    }
    if (interrupted_) fail(kVerifyProgram, kExitFailure, "interrupted; not everything was checked");
    if (!findings_.empty()) return kExitDamage;
    return failed_ || interrupted_ ? kExitFailure : kExitOk;
  }
  bool interrupted() const { return interrupted_; }

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    progress_.clear();
    fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  // A file whose index cannot be read is damaged, or its drive does not give it: as with chunks.
  void complain(const Status& status, const std::string& path) {
    if (status.code() == StatusCode::kCorruption || status.code() == StatusCode::kUnreachable)
      findings_.push_back({path, kOfIndex, status.code() == StatusCode::kUnreachable, -1, status.message()});
    else
      failed_ = true;
    progress_.clear();
    fail(kVerifyProgram, kExitFailure, status.message());
  }

  void verify_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), kOpenFlags));
    if (file.number() < 0) return complain(explain_file_error(errno, path), path);
    const size_t findings_before = findings_.size();
    struct stat attributes {};
    const uint64_t size = ::fstat(file.number(), &attributes) == 0 ? static_cast<uint64_t>(attributes.st_size) : 0;
    auto request = std::make_unique<IoctlVerify>();
    uint64_t next = 0, chunks_in_file = 0, chunks_away = 0;
    do {
      *request = IoctlVerify();
      request->first_chunk = next;
      request->chunk_count = kChunksPerCall;
      if (::ioctl(file.number(), FPFS_IOC_VERIFY, request.get()) != 0)
        return complain(explain_file_error(errno, path), path);
      if (request->error != 0) {
        request->message[sizeof request->message - 1] = '\0';
        findings_.push_back({path, static_cast<int64_t>(request->failed_chunk), request->is_unreadable != 0,
                             static_cast<int>(request->member_and_1) - 1, request->message});
      }
      if (request->next_chunk <= next && request->next_chunk < request->chunks_in_file)
        return complain(Status::error(StatusCode::kUnsupported, path + ": the daemon's answer makes no sense"), path);
      next = request->next_chunk;
      chunks_in_file = request->chunks_in_file;
      chunks_away = std::max(chunks_away, request->chunks_away);
      show_progress(chunks_in_file == 0 ? 0 : size / chunks_in_file * std::min(next, chunks_in_file));
    } while (next < chunks_in_file && !interrupted_);
    ++files_;
    bytes_ += size;
    chunks_ += std::min(next, chunks_in_file);
    if (findings_.size() > findings_before && !options_.json) {
      progress_.clear();
      const std::span<const Finding> found = std::span(findings_).subspan(findings_before);
      for (const bool is_unreadable : {false, true})
        if (const std::string line = describe(path, found, is_unreadable, chunks_in_file); !line.empty())
          fail(kVerifyProgram, kExitDamage, line);
    }
    if (chunks_away > 0) away_.push_back({path, chunks_away, chunks_in_file});
    if (options_.json || options_.quiet || next < chunks_in_file) return;
    const bool is_right = findings_.size() == findings_before;
    if (chunks_away > 0)
      say("{}: {} of {} {} only in {}, not looked at{}; {}fpfs tier restore {} fetches and checks {}", one_line(path),
          chunks_away, format_count(chunks_in_file, "chunk"), one_or_many(chunks_away, "is", "are"),
          store_of(file, path), is_right && chunks_away < chunks_in_file ? ", and the others are as written" : "",
          is_mounted_read_only(file) ? "mounted without ro, " : "", shell_word(path),
          one_or_many(chunks_away, "it", "them"));
    else if (is_right)
      say("{}: {}, as written", one_line(path), format_count(chunks_in_file, "chunk"));
  }

  static bool is_mounted_read_only(const FileDescriptor& file) {
    struct statvfs filesystem {};
    return ::fstatvfs(file.number(), &filesystem) == 0 && (filesystem.f_flag & ST_RDONLY) != 0;
  }

  // Of the copies of the mount that `path` is in. Asked once for each.
  const std::string& store_of(const FileDescriptor& file, const std::string& path) {
    struct stat attributes {};
    static_cast<void>(::fstat(file.number(), &attributes));
    const auto [known, is_new] = stores_.try_emplace(attributes.st_dev, "the store of the copies");
    if (!is_new) return known->second;
    if (const Result<Json> tier = read_tier_status(path); tier.is_ok() && !text_at(*tier, "store").empty())
      known->second = one_line(text_at(*tier, "store"));
    return known->second;
  }

  void show_progress(uint64_t bytes_of_this_file) {
    if (!progress_.is_due()) return;
    WorkDone work{.bytes = bytes_ + bytes_of_this_file, .files = files_};
    expected_->add_to(work);
    progress_.update(work);
  }

  // "m/x.pt: 21 of 62 chunks are damaged (1, 3-5, 7): FIRST; ...", what is wrong with the first of them on each member.
  // Empty: there are none of this kind.
  static std::string describe(const std::string& path, std::span<const Finding> findings, bool is_unreadable,
                              uint64_t chunks_in_file) {
    std::vector<uint64_t> chunks;
    std::vector<std::pair<int, std::string>> details;
    for (const Finding& finding : findings) {
      if (finding.is_unreadable != is_unreadable) continue;
      details.emplace_back(finding.member, finding.detail);
      chunks.push_back(static_cast<uint64_t>(finding.chunk));
    }
    if (chunks.empty()) return "";
    return fmt::format("{}: {} of {} {} ({}): {}", path, chunks.size(), format_count(chunks_in_file, "chunk"),
                       is_unreadable ? std::string("cannot be read")
                                     : fmt::format("{} damaged", one_or_many(chunks.size(), "is", "are")),
                       format_ranges(chunks), join_details(details)) +
           (is_unreadable ? "; that does not mean damage: look at the drive, then verify again" : "");
  }

  const VerifyOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::vector<Finding> findings_;
  std::vector<NotLookedAt> away_;
  std::map<dev_t, std::string> stores_;
  uint64_t files_ = 0, chunks_ = 0, bytes_ = 0;
  bool failed_ = false;
  ProgressLine progress_;
  std::optional<WorkCount> expected_;  // when progress is shown
};

int run(const VerifyOptions& options) {
  VerifyRun verification(options);
  for (const std::string& path : options.paths)
    if (!verification.interrupted()) verification.verify(path);
  return verification.report();
}

}  // namespace

Verb add_verify(CLI::App& fpfs) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = fpfs.add_subcommand("verify", "Read files from their drives now and check every byte");
  command->add_option("PATH", options->paths, "Files, or directories with all files below them")
      ->required()
      ->type_name("");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("-q,--quiet", options->quiet, "Print damage only");
  command->footer(
      "Exit code: 0 all that is on the drives is as written, 4 damaged (an index, too) or not given by its drive, 1\n"
      "something else could not be checked, 16 usage. Chunks that are in the store of the copies only are not looked "
      "at, but counted.");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
