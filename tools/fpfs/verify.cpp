// fpfs verify: reads and checks files of a mounted array from their drives, past every cache.
#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "fs/interface/ioctl.h"
#include "tools/common/interrupt.h"
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

struct Finding {
  std::string path;
  uint64_t chunk = 0;
  std::string detail;
};

class VerifyRun {
 public:
  explicit VerifyRun(const VerifyOptions& options) : options_(options), interrupted_(catch_interrupts()) {}

  // A directory stands for every regular file below it in the same mount.
  void verify(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) return verify_file(path);
    if (const Status mounted = check_mounted(path); !mounted.is_ok()) return complain(mounted);
    const uint64_t files_before = files_;
    struct stat root {};
    if (::stat(path.c_str(), &root) != 0) return complain(explain_mount_error(errno, path));
    std::filesystem::recursive_directory_iterator entries(path, error), end;
    if (error) return complain(explain_mount_error(error.value(), path));
    while (entries != end && !interrupted_) {
      const std::string name = entries->path().string();
      struct stat attributes {};
      if (::lstat(name.c_str(), &attributes) != 0) {
        if (errno != ENOENT) complain(explain_mount_error(errno, name));  // removed meanwhile is no fault
      } else if (attributes.st_dev != root.st_dev) {
        entries.disable_recursion_pending();
      } else if (S_ISREG(attributes.st_mode)) {
        verify_file(name);
      }
      entries.increment(error);
      if (error) return complain(explain_mount_error(error.value(), path));
    }
    if (files_ == files_before && !failed_ && !interrupted_ && !options_.json)
      fmt::print("{}: no files\n", one_line(path));
  }

  int report() const {
    if (options_.json) {
      Json errors = Json::array();
      for (const Finding& finding : findings_)
        errors.push_back({{"path", finding.path}, {"chunk", finding.chunk}, {"detail", finding.detail}});
      print_json({{"clean", findings_.empty() && !failed_ && !interrupted_},
                  {"files", files_},
                  {"chunks", chunks_},
                  {"errors", errors}});
    }
    if (interrupted_) fail(kVerifyProgram, kExitFailure, "interrupted; not everything was checked");
    if (!findings_.empty()) return kExitDamage;
    return failed_ || interrupted_ ? kExitFailure : kExitOk;
  }
  bool interrupted() const { return interrupted_; }

 private:
  void complain(const Status& status) {
    failed_ = true;
    fail(kVerifyProgram, kExitFailure, status.message());
  }

  void verify_file(const std::string& path) {
    Result<FileDescriptor> file = open_path(path);
    if (!file.is_ok()) return complain(file.status());
    const size_t findings_before = findings_.size();
    auto request = std::make_unique<IoctlVerify>();
    uint64_t next = 0, chunks_in_file = 0;
    do {
      *request = IoctlVerify();
      request->first_chunk = next;
      request->chunk_count = kChunksPerCall;
      if (::ioctl(file->number(), FPFS_IOC_VERIFY, request.get()) != 0)
        return complain(explain_mount_error(errno, path));
      if (request->error != 0) {
        request->message[sizeof request->message - 1] = '\0';
        findings_.push_back({path, request->failed_chunk, request->message});
      }
      if (request->next_chunk <= next && request->next_chunk < request->chunks_in_file)
        return complain(Status::error(StatusCode::kUnsupported, path + ": the daemon's answer makes no sense"));
      next = request->next_chunk;
      chunks_in_file = request->chunks_in_file;
    } while (next < chunks_in_file && !interrupted_);
    ++files_;
    chunks_ += std::min(next, chunks_in_file);
    if (findings_.size() > findings_before && !options_.json)
      fail(kVerifyProgram, kExitDamage,
           describe_damage(path, std::span(findings_).subspan(findings_before), chunks_in_file));
    if (findings_.size() == findings_before && next >= chunks_in_file && !options_.json && !options_.quiet)
      fmt::print("{}: {} {}, as written\n", one_line(path), chunks_in_file, chunks_in_file == 1 ? "chunk" : "chunks");
  }

  // "m/x.pt: 21 of 62 chunks are damaged (1, 3-5, 7): FIRST", FIRST being what is wrong with the first of them.
  static std::string describe_damage(const std::string& path, std::span<const Finding> findings,
                                     uint64_t chunks_in_file) {
    constexpr size_t kRangesMax = 16;
    std::vector<std::string> ranges;
    for (size_t i = 0; i < findings.size();) {
      const uint64_t first = findings[i].chunk;
      uint64_t last = first;
      while (++i < findings.size() && findings[i].chunk == last + 1) ++last;
      if (ranges.size() == kRangesMax) {
        ranges.emplace_back("...");
        break;
      }
      ranges.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
    }
    return fmt::format("{}: {} of {} {} damaged ({}): {}", path, findings.size(), chunks_in_file,
                       chunks_in_file == 1 ? "chunk is" : "chunks are", fmt::join(ranges, ", "),
                       findings.front().detail);
  }

  const VerifyOptions& options_;
  const std::atomic<bool>& interrupted_;
  std::vector<Finding> findings_;
  uint64_t files_ = 0, chunks_ = 0;
  bool failed_ = false;
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
  command->footer("Exit code: 0 all as written, 4 damage found, 1 something could not be checked, 16 usage");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
