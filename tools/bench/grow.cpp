// fpfs-bench-grow: puts many files, or one of very many chunks, into an array that nobody has mounted. Through a mount it
// would take minutes or a terabyte of drives; what mounts, lists, opens and checks them afterwards sees no difference.
//
//   files DIRS DIRECTORY COUNT PER_DIRECTORY   small files, their content in the sidecar; 0: all in one directory
//   chunks DIRS NAME CHUNKS COMMITS            one file of so many chunks, each of which stores its first 4 KiB (zeros,
//                                              which are holes of the objects), as that many commits leave it
//
// Nothing is synced.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "engine/array/array.h"
#include "engine/base/file_descriptor.h"
#include "engine/codec/hash.h"
#include "engine/index/sidecar.h"
#include "engine/io/posix_environment.h"

namespace fpfs {
namespace {

constexpr uint32_t kStored = kIoAlignment;

Status failed(const std::string& path) {
  return Status::from_errno(errno, "make").with_context(path);
}

// Ids that nobody else has: by what they are for, and spread over the 256 directories of objects and the members.
FileId id_of(const std::string& directory, uint64_t number) {
  const std::string name = fmt::format("{}/{}", directory, number);
  return FileId(hash_bytes(std::as_bytes(std::span(name)), number + 1) | 1);
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.is_open()) return failed(path);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0) return failed(path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::ok();
}

Status make_directory(const std::string& path) {
  return ::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST ? Status::ok() : failed(path);
}

Status make_files(const Array& array, const std::string& directory, uint64_t count, uint64_t per_directory) {
  const std::string top = fmt::format("{}/tree/{}", array.metadata_path(), directory);
  FPFS_RETURN_IF_ERROR(make_directory(top));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string below = per_directory == 0 ? top : fmt::format("{}/{:05}", top, i / per_directory);
    if (per_directory != 0 && i % per_directory == 0) FPFS_RETURN_IF_ERROR(make_directory(below));
    const SidecarHeader header{array.id(), id_of(directory, i), array.stripes().chunk_size};
    const std::string content = fmt::format("{:020}\n", i);
    SidecarRecord record;
    record.sequence = 1;
    record.size = content.size();
    record.allocated = round_up(content.size(), 512);
    record.has_inline = true;
    record.truncate_from = ChunkIndex(0);
    const auto bytes = std::as_bytes(std::span(content));
    record.inline_data.assign(bytes.begin(), bytes.end());
    std::vector<std::byte> sidecar = encode_sidecar_header(header);
    encode_sidecar_record(header, record, SidecarOffset(sidecar.size()), SidecarOffset(0), sidecar);
    FPFS_RETURN_IF_ERROR(write_file(fmt::format("{}/f{:07}", below, i), sidecar));
  }
  return Status::ok();
}

// An object for each member, as long as the chunks that it holds, and all of it a hole.
Status make_objects(const Array& array, FileId file, uint64_t chunks) {
  const StripeMap stripes = array.stripes();
  PerMember<ObjectOffset> ends(stripes.member_count);
  const uint64_t two_rows = uint64_t{2} * stripes.member_count;  // of which one is whole at least
  for (uint64_t c = chunks - std::min(chunks, two_rows); c < chunks; ++c)
    ends[stripes.member_of(file, ChunkIndex(c))] =
        offset_of(stripes.natural_slot(ChunkIndex(c)), stripes.chunk_size) + kStored;
  for (const MemberIndex m : array.members()) {
    if (ends[m] == ObjectOffset(0)) continue;
    const std::string path =
        fmt::format("{}/objects/{}", array.member(m).path, Array::object_path(file, Generation(0)));
    FPFS_RETURN_IF_ERROR(write_file(path, {}));
    if (::truncate(path.c_str(), static_cast<off_t>(ends[m].value())) != 0) return failed(path);
  }
  return Status::ok();
}

Status make_chunks(const Array& array, const std::string& name, uint64_t chunks, uint64_t commits) {
  const StripeMap stripes = array.stripes();
  const FileId file = id_of(name, chunks);
  FPFS_RETURN_IF_ERROR(make_objects(array, file, chunks));
  const SidecarHeader header{array.id(), file, stripes.chunk_size};
  const std::array<std::byte, kStored> zeros{};
  std::vector<std::byte> sidecar = encode_sidecar_header(header);
  for (uint64_t commit = 0; commit < commits; ++commit) {
    SidecarRecord record;
    record.sequence = commit + 1;
    const uint64_t stop = chunks * (commit + 1) / commits;
    for (ChunkIndex c(chunks * commit / commits); c < ChunkIndex(stop); ++c) {
      Extent extent;
      extent.codec = Codec::kRaw;
      extent.member = stripes.member_of(file, c);
      extent.slot = stripes.natural_slot(c);
      extent.stored_length = extent.raw_length = extent.visible_length = kStored;
      extent.checksum = hash_bytes(zeros, chunk_seed(array.id().data(), file, Generation(0), c));
      record.extents.emplace_back(c, extent);
    }
    record.size = stop * stripes.chunk_size;
    record.allocated = stop * kStored;
    encode_sidecar_record(header, record, SidecarOffset(sidecar.size()), SidecarOffset(0), sidecar);
  }
  return write_file(fmt::format("{}/tree/{}", array.metadata_path(), name), sidecar);
}

int run(int argc, char** argv) {
  CLI::App app("Puts many files, or one of very many chunks, into an array that nobody has mounted.");
  std::string directories, name;
  uint64_t count = 0, parts = 0;
  CLI::App* const files = app.add_subcommand("files", "small files");
  CLI::App* const chunks = app.add_subcommand("chunks", "one file of many chunks");
  for (CLI::App* const what : {files, chunks}) {
    what->add_option("DIRS", directories, "the array")->required();
    what->add_option("NAME", name, "the directory, or the file")->required();
    what->add_option("COUNT", count, "how many files, or chunks")->required()->check(CLI::PositiveNumber);
    what->add_option("PARTS", parts, "files of a directory (0: all), or commits")->required();
  }
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  PosixEnvironment environment(1);
  const Status status = [&]() -> Status {
    FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Array::split_directories(directories));
    ArrayOptions options;
    options.buffered_members = true;
    FPFS_ASSIGN_OR_RETURN(const std::unique_ptr<Array> array, Array::open(environment, paths, options));
    return *files ? make_files(*array, name, count, parts)
                  : make_chunks(*array, name, count, std::clamp<uint64_t>(parts, 1, count));
  }();
  if (status.is_ok()) return 0;
  fmt::print(stderr, "{}\n", status.message());
  return 1;
}

}  // namespace
}  // namespace fpfs

int main(int argc, char** argv) {
  return fpfs::run(argc, argv);
}
