// fpfs map: the physical extents of a file.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "engine/base/one_line.h"
#include "engine/base/ranges.h"
#include "engine/base/units.h"
#include "engine/codec/hash.h"
#include "engine/index/superblock.h"
#include "fs/interface/ioctl.h"
#include "tools/common/table.h"
#include "tools/fpfs/codec_name.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kMapProgram = "fpfs map";

struct MapOptions {
  std::string path;
  bool json = false;
};

struct FileMap {
  uint64_t size = 0;
  uint32_t chunk_size = 0;
  bool is_inline = false;
  bool is_dirty = false;
  FileId file_id;
  Generation generation;
  Uuid array_id{};
  std::vector<IoctlExtent> extents;
  std::map<uint16_t, std::string> object_paths;  // by member
};

// In the store of the copies only.
bool is_away(const IoctlExtent& extent) {
  return extent.codec == static_cast<uint8_t>(Codec::kAway);
}

Result<std::string> object_path_of(const FileDescriptor& file, const std::string& path, uint16_t member) {
  auto request = std::make_unique<IoctlObjectPath>();
  request->member = member;
  if (::ioctl(file.number(), FPFS_IOC_OBJECT_PATH, request.get()) != 0) return explain_mount_error(errno, path);
  request->path[sizeof request->path - 1] = '\0';
  return std::string(request->path);
}

// The table comes in pages. A file that is rewritten between two of them would give a mixture: then it is read anew.
Result<FileMap> read_map_once(const FileDescriptor& file, const std::string& path, bool& changed) {
  FileMap map;
  auto page = std::make_unique<IoctlExtents>();
  uint32_t generation = 0;
  changed = false;
  for (uint64_t next = 0; next != IoctlExtents::kEnd; next = page->next_chunk) {
    *page = IoctlExtents();
    page->first_chunk = next;
    if (::ioctl(file.number(), FPFS_IOC_EXTENTS, page.get()) != 0) return explain_mount_error(errno, path);
    if (page->count > IoctlExtents::kCountMax || (page->next_chunk <= next && page->next_chunk != IoctlExtents::kEnd))
      return Status::error(StatusCode::kUnsupported, path + ": the daemon's answer makes no sense");
    changed = changed || (next != 0 && (page->generation != generation || page->size != map.size));
    generation = page->generation;
    map.size = page->size;
    map.chunk_size = page->chunk_size;
    map.is_inline = page->is_inline != 0;
    map.is_dirty = map.is_dirty || page->is_dirty != 0;
    map.file_id = FileId(page->file_id);
    map.generation = Generation(page->generation);
    std::memcpy(map.array_id.data(), page->array_id, sizeof page->array_id);
    map.extents.insert(map.extents.end(), page->extents, page->extents + page->count);
  }
  for (const IoctlExtent& extent : map.extents) {
    if (is_away(extent)) continue;
    if (map.object_paths.count(extent.member) != 0) continue;
    FPFS_ASSIGN_OR_RETURN(map.object_paths[extent.member], object_path_of(file, path, extent.member));
  }
  return map;
}

Result<FileMap> read_map(const std::string& path) {
  constexpr int kAttemptsMax = 5;
  FPFS_RETURN_IF_ERROR(check_regular_file(path));
  FPFS_ASSIGN_OR_RETURN(FileDescriptor file, open_path(path));
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    bool changed = false;
    FPFS_ASSIGN_OR_RETURN(FileMap map, read_map_once(file, path, changed));
    if (!changed) return map;
  }
  return Status::error(StatusCode::kBusy, path + ": it is being rewritten; try again when the writer has closed it");
}

FileOffset begin_of(const FileMap& map, const IoctlExtent& extent) {
  return offset_of(ChunkIndex(extent.chunk), map.chunk_size);
}

uint64_t shown_length(const FileMap& map, const IoctlExtent& extent) {
  const FileOffset begin = begin_of(map, extent), end(map.size);
  return begin >= end ? 0 : std::min<uint64_t>(extent.visible_length, end - begin);
}

uint64_t seed_of(const FileMap& map, const IoctlExtent& extent) {
  return chunk_seed(map.array_id.data(), map.file_id, map.generation, ChunkIndex(extent.chunk));
}

// Of what has left the drives there is no place: nulls, for a reader that asks for one to fail.
Json json_of(const FileMap& map, const IoctlExtent& extent) {
  Json json = {{"offset", begin_of(map, extent).value()},
               {"length", shown_length(map, extent)},
               {"codec", codec_name(extent.codec)}};
  if (is_away(extent)) {
    for (const char* key : {"member", "file", "file_offset", "stored_length", "xxh3", "xxh3_seed"}) json[key] = nullptr;
    return json;
  }
  json["member"] = extent.member;
  json["file"] = map.object_paths.at(extent.member);
  json["file_offset"] = extent.object_offset;
  json["stored_length"] = extent.stored_length;
  json["xxh3"] = fmt::format("{:016x}", extent.checksum);
  json["xxh3_seed"] = fmt::format("{:016x}", seed_of(map, extent));
  return json;
}

void print_map_json(const std::string& path, const FileMap& map) {
  Json extents = Json::array();
  for (const IoctlExtent& extent : map.extents) extents.push_back(json_of(map, extent));
  print_json({{"path", path},
              {"size", map.size},
              {"chunk_size", map.chunk_size},
              {"inline", map.is_inline},
              {"dirty", map.is_dirty},
              {"extents", extents}});
}

// Of a file of which nothing, or not all, is on the members.
std::string describe_away(const FileMap& map) {
  const auto away = static_cast<size_t>(std::count_if(map.extents.begin(), map.extents.end(), is_away));
  if (away == 0) return "";
  return away == map.extents.size()
             ? ", in the store of the copies only"
             : fmt::format(", of which {} in the store of the copies only", format_count(away, "chunk"));
}

void print_map(const std::string& path, const FileMap& map) {
  fmt::print("{}: {}, chunks of {}{}\n", one_line(path), format_size(map.size), format_size(map.chunk_size),
             map.is_inline ? ", stored inside its index: no extents" : describe_away(map));
  if (map.extents.empty()) return;
  Table table;
  for (const char* heading : {"OFFSET", "LENGTH", "MEMBER", "FILE OFFSET", "STORED"})
    table.add_column(heading, Table::Align::kRight);
  for (const char* heading : {"CODEC", "XXH3"}) table.add_column(heading, Table::Align::kLeft);
  for (const IoctlExtent& extent : map.extents) {
    const auto of_drives = [&extent](std::string text) { return is_away(extent) ? std::string("-") : std::move(text); };
    table.add_row({fmt::format("{}", begin_of(map, extent)), fmt::format("{}", shown_length(map, extent)),
                   of_drives(fmt::format("{}", extent.member)), of_drives(fmt::format("{}", extent.object_offset)),
                   of_drives(fmt::format("{}", extent.stored_length)), codec_name(extent.codec),
                   of_drives(fmt::format("{:016x}", extent.checksum))});
  }
  fmt::print("{}\n", table.text());
  Facts files;
  for (const auto& [member, file] : map.object_paths) files.add(fmt::format("Member {}", member), file);
  fmt::print("{}", files.text());
}

int run(const MapOptions& options) {
  Result<FileMap> map = read_map(options.path);
  if (!map.is_ok()) return fail(kMapProgram, kExitFailure, map.status().message());
  if (options.json) {
    print_map_json(options.path, *map);
  } else {
    print_map(options.path, *map);
  }
  if (map->is_dirty)
    note(kMapProgram, "note: " + options.path + " is being written; what is not on the drives yet is not listed");
  return kExitOk;
}

}  // namespace

Verb add_map(CLI::App& fpfs) {
  auto options = std::make_shared<MapOptions>();
  CLI::App* command = fpfs.add_subcommand("map", "Show where a file's bytes are on the members");
  command->add_option("PATH", options->path, "A regular file of a mounted array")->required()->type_name("");
  command->add_flag("--json", options->json, "Print one JSON object");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
