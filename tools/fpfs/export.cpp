// fpfs export: copies one file out of an array that is not mounted, also a damaged one.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "engine/base/bytes.h"
#include "engine/base/ranges.h"
#include "engine/io/posix_environment.h"
#include "engine/store/find_in_array.h"
#include "engine/tier/tier_binding.h"
#include "tools/common/interrupt.h"
#include "tools/common/json_output.h"
#include "tools/common/placement_warnings.h"
#include "tools/common/progress.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kExportProgram = "fpfs export";

struct ExportOptions {
  std::string directories;
  std::string path;
  std::string output;
  std::string metadata_directory;
  bool partial = false;
  bool force = false;
  bool json = false;
  bool buffered_members = false;
};

// The copy under a name of its own until it is whole: a failed export leaves nothing that looks like the file.
class Output {
 public:
  static Result<std::unique_ptr<Output>> create(const std::string& path, bool replaces) {
    struct stat existing {};
    const bool exists = ::stat(path.c_str(), &existing) == 0;
    if (exists && !S_ISREG(existing.st_mode))
      return Status::error(StatusCode::kInvalidArgument, path + ": exists and is no regular file; name a new file");
    if (exists && existing.st_size > 0 && !replaces) return refuse_existing(path);
    std::string part = fmt::format("{}.part-{}", path, ::getpid());
    const int number = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (number < 0) return Status::from_errno(errno, "create " + part);
    return std::unique_ptr<Output>(new Output(path, std::move(part), number, replaces || exists));
  }
  ~Output() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }

  Status write(FileOffset offset, std::span<const std::byte> data) {
    if (all_zero(data)) return Status::ok();  // stays a hole
    while (!data.empty()) {
      const ssize_t count = ::pwrite(file_.number(), data.data(), data.size(), static_cast<off_t>(offset.value()));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Status::from_errno(errno, "write " + part_);
      data = data.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return Status::ok();
  }

  Status finish(uint64_t size, const struct stat& attributes) {
    const struct timespec times[2] = {attributes.st_atim, attributes.st_mtim};
    if (::ftruncate(file_.number(), static_cast<off_t>(size)) != 0 ||
        ::fchmod(file_.number(), attributes.st_mode & 0777) != 0 || ::futimens(file_.number(), times) != 0 ||
        ::fsync(file_.number()) != 0)
      return Status::from_errno(errno, "finish " + part_);
    const unsigned how = replaces_ ? 0 : RENAME_NOREPLACE;
    if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), how) != 0) {
      if (errno == EEXIST) return refuse_existing(path_);  // it was made meanwhile
      // Not every filesystem has that.
      if (how == 0 || errno != EINVAL || ::rename(part_.c_str(), path_.c_str()) != 0)
        return Status::from_errno(errno, "rename to " + path_);
    }
    part_.clear();
    return Status::ok();
  }

 private:
  Output(std::string path, std::string part, int number, bool replaces)
      : path_(std::move(path)), part_(std::move(part)), file_(number), replaces_(replaces) {}
  // A whole copy takes the place of another, as cp's does. One that may have lost something does not: what is there may
  // be of before the damage.
  static Status refuse_existing(const std::string& path) {
    return Status::error(
        StatusCode::kExists,
        path + ": exists, and may have what --partial does not find any more; name another file, or add --force");
  }
  const std::string path_;
  std::string part_;
  FileDescriptor file_;
  const bool replaces_;
};

struct Losses {
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  Json places = Json::array();
};

// Of content that has left the drives: where it is.
std::string explain_away(Store& store, const ExportOptions& options) {
  std::string copies = "the store of the copies";
  if (const auto binding = load_binding(store.storage(), store.array()); binding.is_ok() && binding->has_value())
    copies += fmt::format(" ({})", (**binding).url);
  return fmt::format("only in {}: copy {} from there", copies,
                     options.path.substr(std::min(options.path.find_first_not_of('/'), options.path.size())));
}

// With something left to save, --partial saves that.
Status check_here(Store& store, const File& file, const ExportOptions& options) {
  const File::Info info = file.info();
  const uint64_t away = info.codec_chunks[static_cast<size_t>(Codec::kAway)];
  if (away == 0 || (options.partial && away < info.chunks)) return Status::ok();
  const std::string what = away == info.chunks
                               ? std::string("its content is")
                               : fmt::format("{} of its {} are", away, format_count(info.chunks, "chunk"));
  return Status::error(StatusCode::kNotFound,
                       fmt::format("{}: {} {}", options.path, what, explain_away(store, options)));
}

void note_loss(const ExportOptions& options, Losses& losses, FileOffset begin, FileOffset end, uint64_t chunks,
               const std::string& why) {
  constexpr size_t kPlacesTold = 20;
  const size_t told = losses.places.size();
  if (!options.json && told < kPlacesTold)
    fail(kExportProgram, kExitFailure, fmt::format("lost bytes {} to {}: {}", begin, end - 1, why));
  else if (!options.json && told == kPlacesTold)
    fail(kExportProgram, kExitFailure, "lost bytes in more places, too (--json lists each)");
  losses.places.push_back({{"offset", begin.value()}, {"length", end - begin}, {"detail", why}});
  losses.chunks += chunks;
  losses.bytes += end - begin;
}

// The end of the content at `offset`, which is data, that is in the store of the copies only; `offset`: it is here.
FileOffset first_here(const File& file, const StripeMap& stripes, FileOffset offset, FileOffset end) {
  const ChunkIndex chunk = stripes.chunk_of(offset);
  const std::optional<ChunkIndex> next = file.next_stored(chunk);
  if (next == chunk) return offset;
  const Result<FileOffset> hole = file.seek(offset, /*hole=*/true);
  return std::min({end, hole.is_ok() ? *hole : end, next ? offset_of(*next, stripes.chunk_size) : end});
}

// Chunk by chunk, so that a damaged one costs no more than itself.
Status copy_content(Store& store, File& file, const ExportOptions& options, Output& output, Losses& losses) {
  const std::atomic<bool>& interrupted = catch_interrupts();
  const StripeMap stripes = store.array().stripes();
  const FileOffset end(file.size());
  std::vector<std::byte> buffer(std::min<uint64_t>(stripes.chunk_size, kRequestBytesMax));
  ReadCursor cursor;
  ProgressLine progress;
  for (FileOffset offset; offset < end;) {
    if (interrupted) return Status::error(StatusCode::kCancelled, "interrupted");
    // Over holes at once: they may be most of a file of any size, and stay holes.
    const Result<FileOffset> data = file.seek(offset, /*hole=*/false);
    if (data.status().errno_value() == ENXIO) break;
    if (data.is_ok()) offset = *data;
    if (const FileOffset here = first_here(file, stripes, offset, end); here > offset) {
      progress.clear();
      note_loss(options, losses, offset, here, (stripes.chunks_end(here) - stripes.chunk_of(offset)),
                explain_away(store, options));
      offset = here;
      continue;
    }
    const FileOffset chunk_end = std::min(end, offset_of(stripes.chunk_of(offset) + 1, stripes.chunk_size));
    std::span<std::byte> piece(buffer.data(), std::min<uint64_t>(buffer.size(), chunk_end - offset));
    const Result<size_t> count = store.read_sync(file, offset, piece, &cursor);
    if (count.is_ok() && *count == piece.size()) {
      FPFS_RETURN_IF_ERROR(output.write(offset, piece));
      offset += piece.size();
      progress.update({offset.value(), end.value()});
      continue;
    }
    const Status failure =
        count.is_ok() ? Status::error(StatusCode::kIoError, "a read came back short") : count.status();
    if (!options.partial)
      return failure.with_context(fmt::format("{} at {} (--partial saves the rest)", options.path, offset));
    progress.clear();
    note_loss(options, losses, offset, chunk_end, 1, failure.message());
    offset = chunk_end;
  }
  return Status::ok();
}

Status export_file(Store& store, const ExportOptions& options, Losses& losses, uint64_t& size) {
  FPFS_ASSIGN_OR_RETURN(Store::Node node, find_in_array(store, options.path));
  if (!S_ISREG(node.attributes.st_mode))
    return Status::error(StatusCode::kInvalidArgument, options.path + ", in the array: not a regular file");
  FPFS_ASSIGN_OR_RETURN(std::shared_ptr<File> file, store.open_file(node.handle.get(), /*for_writing=*/false));
  FPFS_RETURN_IF_ERROR(check_here(store, *file, options));
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<Output> output,
                        Output::create(options.output, !options.partial || options.force));
  FPFS_RETURN_IF_ERROR(copy_content(store, *file, options, *output, losses));
  size = file->size();
  return output->finish(size, node.attributes);
}

bool opens_partially(Environment& environment, const std::vector<std::string>& directories, StoreOptions how) {
  how.array.degraded = true;
  Result<std::unique_ptr<Store>> store = Store::open(environment, directories, how);
  return store.is_ok() && (*store)->close().is_ok();
}

int run(const ExportOptions& options) {
  if (options.output == "-")
    return fail(
        kExportProgram, kExitUsage,
        "-o -: a copy goes to a file, whose place it takes once it is whole; name one (./- for a file called -)");
  Result<std::vector<std::string>> directories = Array::split_directories(options.directories);
  if (!directories.is_ok()) return fail(kExportProgram, kExitUsage, directories.status().message());
  const Status outside =
      check_no_mount_points(*directories, "copy the file from there, or unmount it and give its directories");
  if (!outside.is_ok()) return fail(kExportProgram, outside);
  if (Status status = silence_engine_log(); !status.is_ok()) return fail(kExportProgram, status);
  PosixEnvironment environment;
  StoreOptions how;
  how.array.read_only = true;
  how.array.degraded = options.partial;
  how.array.metadata_directory = options.metadata_directory;
  how.array.buffered_members = options.buffered_members;
  Result<std::unique_ptr<Store>> store = Store::open(environment, *directories, how);
  if (!store.is_ok())
    return fail(kExportProgram, kExitFailure,
                store.status().message() +
                    (!options.partial && opens_partially(environment, *directories, how) ? " (here: --partial)" : ""));
  Losses losses;
  uint64_t size = 0;
  Status status = export_file(**store, options, losses, size);
  if (Status closed = (*store)->close(); status.is_ok()) status = closed;
  if (!status.is_ok()) return fail(kExportProgram, kExitFailure, status.message());
  if (options.json)
    print_json({{"path", options.path},
                {"output", options.output},
                {"size", size},
                {"bytes_lost", losses.bytes},
                {"chunks_lost", losses.chunks},
                {"lost", losses.places}});
  if (losses.bytes > 0)
    return fail(kExportProgram, kExitFailure,
                fmt::format("{}: {} of {} bytes in {} could not be read; they are zeros in the copy", options.output,
                            losses.bytes, size, format_count(losses.chunks, "chunk")));
  return kExitOk;
}

}  // namespace

Verb add_export(CLI::App& fpfs) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = fpfs.add_subcommand("export", "Copy one file out of an array that is not mounted");
  command->add_option("DIRS", options->directories, kDirectoriesHelp)->required()->type_name("");
  command->add_option("PATH-IN-ARRAY", options->path, "The file, from the array's root")->required()->type_name("");
  command
      ->add_option("-o,--output", options->output, "Where the copy goes; it takes the place of FILE once it is whole")
      ->required()
      ->type_name("FILE");
  command->add_flag("--partial", options->partial,
                    "Of a damaged array or file: save what can be read, zeros elsewhere; exit 1 when bytes are lost");
  command->add_flag("--force", options->force, "With --partial, replace FILE also when there is content in it");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--meta-dir", options->metadata_directory, "Where the array's --meta-dir is now")
      ->type_name("DIR");
  command->add_flag("--buffered-members", options->buffered_members, "Accept members without O_DIRECT (development)");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
