#include "tools/fpfs/tune_load.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "engine/array/member_directory.h"

namespace fpfs::tools {

namespace {

constexpr const char* kInsideName = "array";  // all that is ever in TuneArray::kName
constexpr const char* kWrittenName = "written";
constexpr const char* kKeptName = "kept";
// Directories, indexes and what the engine allocates ahead, of each member.
constexpr uint64_t kRoomBeside = 16 * kMiB;

Status refuse_place(const std::string& path, StatusCode code, const std::string& what) {
  return Status::error(code, fmt::format("{}: {}", path, what));
}

bool has_superblock(Storage& storage, const std::string& path) {
  const Result<Handle> opened = storage.open_directory(path);
  if (!opened.is_ok()) return false;
  const ScopedHandle directory(storage, *opened);
  return storage.stat_at(directory.get(), "superblock").is_ok();
}

}  // namespace

Result<std::unique_ptr<TuneArray>> TuneArray::make(Environment& environment, const TuneOptions& options) {
  FPFS_ASSIGN_OR_RETURN(std::vector<std::string> paths, Array::split_directories(options.directories));
  std::unique_ptr<TuneArray> array(new TuneArray(environment));
  const bool is_array = std::any_of(
      paths.begin(), paths.end(), [&](const std::string& path) { return has_superblock(environment.storage(), path); });
  if (is_array) FPFS_RETURN_IF_ERROR(array->open_outer(options, paths));
  if (is_array) {
    paths.clear();  // without a directory of its own for the names
    for (const MemberIndex m : array->outer_->members())
      if (array->outer_->is_present(m)) paths.push_back(array->outer_->member(m).path);
  }
  FPFS_RETURN_IF_ERROR(array->open_places(paths));
  for (Place& place : array->places_) FPFS_RETURN_IF_ERROR(array->take(place));
  // Only now: what an earlier run left took room.
  FPFS_RETURN_IF_ERROR(array->check_room(options));
  FormatOptions format;
  format.chunk_size = array->chunk_size_;
  format.may_lie_in_array = true;
  for (const Place& place : array->places_)
    array->directories_.push_back(fmt::format("{}/{}/{}", place.path, kName, kInsideName));
  FPFS_RETURN_IF_ERROR(Array::format(environment, array->directories_, format));
  return array;
}

Status TuneArray::open_outer(const TuneOptions& options, const std::vector<std::string>& paths) {
  ArrayOptions how;
  how.metadata_directory = options.metadata_directory;
  how.buffered_members = options.buffered_members;
  FPFS_ASSIGN_OR_RETURN(outer_, Array::open(environment_, paths, how));
  chunk_size_ = outer_->stripes().chunk_size;
  return Status::ok();
}

Status TuneArray::open_places(const std::vector<std::string>& paths) {
  Storage& storage = environment_.storage();
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const std::string& path : paths) {
    const Result<Handle> opened = storage.open_directory(path);
    if (opened.status().code() == StatusCode::kNotFound)
      return refuse_place(
          path, StatusCode::kNotFound,
          "no such directory; is its drive mounted? Name an array's directories, or make one on each drive");
    if (!opened.is_ok()) return refuse_failed(path, opened.status());
    Place place{path, ScopedHandle(storage, *opened), {}};
    FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage.fstat(place.handle.get()));
    const auto [first, is_new] = seen.emplace(std::pair(attributes.st_dev, attributes.st_ino), path);
    if (!is_new)
      return refuse_place(path, StatusCode::kInvalidArgument,
                          fmt::format("it is the same directory as {}; give each directory once", first->second));
    places_.push_back(std::move(place));
  }
  return Status::ok();
}

// Makes kName in a directory, or takes the one that an earlier run left.
Status TuneArray::take(Place& place) {
  Storage& storage = environment_.storage();
  const std::string path = place.path + "/" + kName;
  const Status made = storage.make_directory(place.handle.get(), kName, 0700);
  if (!made.is_ok() && made.code() != StatusCode::kExists) return refuse_failed(place.path, made);
  const Result<Handle> opened = storage.open_at(place.handle.get(), kName, O_RDONLY | O_DIRECTORY);
  if (!opened.is_ok()) return opened.status().with_context(path);
  ScopedHandle inside(storage, *opened);
  const Status locked = storage.lock(inside.get(), true);
  if (locked.code() == StatusCode::kBusy)
    return refuse_place(place.path, StatusCode::kBusy, "another fpfs tune measures there; wait for its end");
  if (!locked.is_ok()) return locked.with_context(path);
  // Its owner may have removed it between the two.
  FPFS_ASSIGN_OR_RETURN(const struct stat own, storage.fstat(inside.get()));
  const Result<struct stat> named = storage.stat_at(place.handle.get(), kName);
  if (!named.is_ok() || named->st_ino != own.st_ino)
    return refuse_place(place.path, StatusCode::kBusy, "another fpfs tune has just ended there; try again");
  std::string stranger;
  FPFS_RETURN_IF_ERROR(storage.list(inside.get(), [&stranger](const DirectoryEntry& entry) {
    if (entry.name != kInsideName) stranger = entry.name;
    return stranger.empty();
  }));
  if (!stranger.empty())
    return refuse_place(path, StatusCode::kExists,
                        fmt::format("it holds '{}', which is not of fpfs tune; move that away", stranger));
  place.inside = std::move(inside);
  return clear(place);
}

Status TuneArray::clear(const Place& place) {
  std::error_code error;
  const std::string path = fmt::format("{}/{}/{}", place.path, kName, kInsideName);
  std::filesystem::remove_all(path, error);
  return error ? Status::from_errno(error.value(), "remove " + path) : Status::ok();
}

Status TuneArray::check_room(const TuneOptions& options) const {
  Storage& storage = environment_.storage();
  struct Filesystem {
    std::string path;
    uint64_t free = 0;
    unsigned members = 0;
  };
  std::map<uint64_t, Filesystem> filesystems;
  for (const Place& place : places_) {
    FPFS_ASSIGN_OR_RETURN(const uint64_t number, storage.filesystem_of(place.handle.get()));
    FPFS_ASSIGN_OR_RETURN(const struct statvfs space, storage.fstatvfs(place.handle.get()));
    Filesystem& filesystem = filesystems[number];
    filesystem.path = place.path;
    filesystem.free = space.f_bavail * space.f_frsize;
    ++filesystem.members;
  }
  for (const auto& [number, filesystem] : filesystems) {
    const uint64_t needed = (options.size / places_.size() * 2 + kRoomBeside) * filesystem.members;
    if (filesystem.free < needed)
      return refuse_place(filesystem.path, StatusCode::kNoSpace,
                          fmt::format("{} are free there, but runs of {} need {}; make room, or give a smaller --size",
                                      format_size(filesystem.free), format_size(options.size), format_size(needed)));
  }
  return Status::ok();
}

TuneArray::~TuneArray() {
  Storage& storage = environment_.storage();
  for (const Place& place : places_)
    if (place.inside.is_open() && clear(place).is_ok())
      static_cast<void>(storage.remove_directory(place.handle.get(), kName));
}

BenchOptions TuneLoad::load_options(const char* name) const {
  BenchOptions options;
  options.size = options_.size;
  options.jobs = options_.jobs;
  options.name = name;
  return options;
}

Result<std::unique_ptr<Store>> TuneLoad::open(Environment& environment, const TuneSettings& settings,
                                              bool for_writing) const {
  StoreOptions how;
  how.buffer_memory = options_.buffer_memory;
  how.queue_depth = settings.queue_depth;
  how.transfer_size = settings.transfer_size;
  how.submit_batch = settings.submit_batch;
  how.read_ahead = settings.read_ahead;
  how.array.buffered_members = options_.buffered_members;
  how.array.read_only = !for_writing;
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::open(environment, array_.directories(), how));
  // The kernel clears each page at its first use: not while the clock runs.
  while (store->populate_buffers()) {
  }
  return store;
}

Result<double> TuneLoad::run(const TuneSettings& settings, TuneDirection direction) {
  if (direction == TuneDirection::kWrite) return write(settings, kWrittenName, false);
  if (!has_something_to_read_) FPFS_RETURN_IF_ERROR(write(TuneSettings(), kKeptName, true).status());
  has_something_to_read_ = true;
  return read(settings, kKeptName);
}

Result<double> TuneLoad::write(const TuneSettings& settings, const char* name, bool keep) {
  PosixEnvironment environment(PosixEnvironment::threads_default(), std::make_unique<PosixStorage>(), settings.workers);
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, open(environment, settings, true));
  std::optional<double> rate;
  Status status;
  {
    const BenchOptions options = load_options(name);
    FPFS_ASSIGN_OR_RETURN(std::unique_ptr<BenchLoad> load, BenchLoad::create(*store, options, interrupted_));
    const Result<BenchResult> written = load->write();
    status = written.status();
    if (written.is_ok()) rate = written->rate();
    if (const Status removed = keep ? Status::ok() : load->remove(); status.is_ok()) status = removed;
  }
  const Status closed = store->close();
  FPFS_RETURN_IF_ERROR(status);
  FPFS_RETURN_IF_ERROR(closed);
  return *rate;
}

Result<double> TuneLoad::read(const TuneSettings& settings, const char* name) {
  PosixEnvironment environment(PosixEnvironment::threads_default(), std::make_unique<PosixStorage>(), settings.workers);
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, open(environment, settings, false));
  Result<BenchResult> result = BenchResult();
  {
    const BenchOptions options = load_options(name);
    FPFS_ASSIGN_OR_RETURN(std::unique_ptr<BenchLoad> load, BenchLoad::find(*store, options, interrupted_));
    result = load->read();
  }
  const Status closed = store->close();
  FPFS_RETURN_IF_ERROR(result.status());
  FPFS_RETURN_IF_ERROR(closed);
  return result->rate();
}

}  // namespace fpfs::tools
