// mkfs.fastpersistfs: formats an array.
#include <cstdlib>
#include <ctime>

#include <fmt/format.h>

#include "engine/array/array.h"
#include "engine/io/posix_environment.h"
#include "tools/common/command_line.h"
#include "tools/common/json_output.h"
#include "tools/common/placement_warnings.h"
#include "tools/common/table.h"

namespace fpfs::tools {

namespace {

const char* const kProgram = "mkfs.fastpersistfs";

struct Options {
  std::string directories;
  uint64_t chunk_size = kMiB;
  std::string metadata_directory;
  std::string label;
  bool force = false;
  bool quiet = false;
  bool json = false;
};

// Sizes and texts that the format cannot hold are refused before any directory is looked at.
Status validate(const Options& options) {
  const bool power_of_two = (options.chunk_size & (options.chunk_size - 1)) == 0;
  if (options.chunk_size < kChunkSizeMin || options.chunk_size > kChunkSizeMax || !power_of_two)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("--chunk-size: {} bytes given; it must be a power of two from {} to {}",
                                     options.chunk_size, format_size(kChunkSizeMin), format_size(kChunkSizeMax)));
  if (options.label.size() > kLabelSizeMax)
    return Status::error(StatusCode::kInvalidArgument,
                         fmt::format("--label: {} bytes given; at most {} fit", options.label.size(), kLabelSizeMax));
  return Status::ok();
}

// What was made, read back from the members: a format that cannot be opened again is a failure, not a success.
Status report(Environment& environment, const std::vector<std::string>& directories, const Options& options) {
  ArrayOptions how;
  how.read_only = true;
  how.lock = false;
  how.buffered_members = true;
  how.metadata_directory = options.metadata_directory;
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<Array> array, Array::open(environment, directories, how));
  if (options.json) {
    Json members = Json::array();
    for (const MemberIndex i : array->members()) members.push_back(array->member(i).path);
    print_json({{"array_id", to_string(array->id())},
                {"label", array->superblock().label},
                {"chunk_size", array->superblock().chunk_size},
                {"members", members},
                {"metadata_directory", array->metadata_path()}});
    return Status::ok();
  }
  if (options.quiet) return Status::ok();
  Facts facts;
  facts.add("Array", to_string(array->id()));
  if (!array->superblock().label.empty()) facts.add("Label", array->superblock().label);
  facts.add("Chunk size", format_size(array->superblock().chunk_size));
  facts.add("Names kept in", array->metadata_path());
  bool all_direct = true;
  for (const MemberIndex i : array->members()) {
    facts.add(fmt::format("Member {}", i), array->member(i).path);
    all_direct = all_direct && array->member(i).direct;
  }
  fmt::print("{}", facts.text());
  if (!all_direct) note(kProgram, "note: not every member's filesystem has O_DIRECT");
  return Status::ok();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Formats directories, one per drive, as one fastpersistfs array", kProgram);
  add_directories(app, options.directories);
  add_size_option(app, "--chunk-size", options.chunk_size,
                  "Unit of striping, checksum and compression: a power of two, 64K to 16M");
  app.add_option("--meta-dir", options.metadata_directory,
                 "Directory for names and indexes (default: the first of DIRS)")
      ->type_name("DIR");
  app.add_option("--label", options.label, "A name for people, at most 63 bytes")->type_name("TEXT");
  app.add_flag(
      "--force", options.force,
      "Format also directories that belong to an array, whose content is lost, or hold other files, which stay");
  app.add_flag("-q,--quiet", options.quiet, "Print nothing on success");
  app.add_flag("--json", options.json, "Print one JSON object");
  if (std::optional<int> exit_code = parse_command_line(app, kProgram, argc, argv)) return *exit_code;

  if (Status status = validate(options); !status.is_ok()) return fail(kProgram, status);
  Result<std::vector<std::string>> directories = Array::split_directories(options.directories);
  if (!directories.is_ok()) return fail(kProgram, directories.status());

  PosixEnvironment environment;
  FormatOptions format;
  format.chunk_size = static_cast<uint32_t>(options.chunk_size);
  format.metadata_directory = options.metadata_directory;
  format.label = options.label;
  format.force = options.force;
  if (Status status = check_outside_of_mounts(*directories); !status.is_ok()) return fail(kProgram, status);
  if (Status status = Array::format(environment, *directories, format); !status.is_ok()) return fail(kProgram, status);
  if (Status status = report(environment, *directories, options); !status.is_ok())
    return fail(kProgram, kExitFailure, status.with_context("formatted, but the array does not open").message());
  for (const std::string& warning : placement_warnings(*directories)) note(kProgram, "warning: " + warning);
  return kExitOk;
}

}  // namespace

}  // namespace fpfs::tools

int main(int argc, char** argv) {
  using namespace fpfs::tools;
  return run_program(kProgram, kExitFailure, [&] { return run(argc, argv); });
}
