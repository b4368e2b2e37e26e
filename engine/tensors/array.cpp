#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/formats/safetensors.h"
#include "engine/io/posix_environment.h"
#include "engine/store/find_in_array.h"
#include "engine/store/store.h"
#include "engine/tensors/array.h"
#include "engine/tensors/save_file.h"

namespace fastpersist {
namespace {

using fpfs::File;
using fpfs::FileOffset;
using fpfs::Result;
using fpfs::Status;
using fpfs::StatusCode;
using fpfs::Store;

constexpr size_t kReadBytes = fpfs::kRequestBytesMax;
constexpr mode_t kDirectoryMode = 0777;  // less the umask

Error told(const Status& status) {
  if (status.is_ok()) return {};
  const int number = status.errno_value();
  return {number == 0 ? EIO : number, status.message()};
}

Status invalid(std::string message) {
  return Status::error(StatusCode::kInvalidArgument, std::move(message));
}

// Where a file is, or will be.
struct Place {
  std::string directory;  // path; empty: the root
  std::string name;
};

Result<Place> place_of(const std::string& path) {
  if (path.find('\0') != std::string::npos) return invalid("a path with a null byte");
  const size_t slash = path.rfind('/');
  Place place{slash == std::string::npos ? "" : path.substr(0, slash),
              slash == std::string::npos ? path : path.substr(slash + 1)};
  if (place.name.empty() || place.name == "." || place.name == "..")
    return invalid("'" + path + "' names no file in the array");
  return place;
}

std::span<const std::byte> bytes_of(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

// Waits for a call of the engine that calls back.
class Answer {
 public:
  void operator()(const Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    changed_.notify_one();
  }
  Status wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Status> status_;
};

}  // namespace

class Array::Impl {
 public:
  Status open(const std::string& directories, const ArrayOptions& options);
  Status save(const std::string& path, const std::vector<Tensor>& tensors, const SaveOptions& options);
  Status list(const std::string& path, Contents& contents);
  Status load(const std::string& path, const std::vector<Target>& targets);
  Status make_directories(const std::string& path);
  Status remove(const std::string& path);
  Status close();

 private:
  struct OpenFile {
    std::shared_ptr<File> file;
    fpfs::TensorHeader header;
  };
  // A handle that lives as long as `node`, which is empty for the root.
  Result<fpfs::Handle> directory_of(const Place& place, std::optional<Store::Node>& node);
  Status may_change() const;
  Result<OpenFile> open_file(const std::string& path);
  Status read(File& file, FileOffset offset, std::span<std::byte> memory, fpfs::ReadCursor& cursor);

  fpfs::PosixEnvironment environment_;
  std::unique_ptr<Store> store_;  // goes before its environment
};

// --- life ------------------------------------------------------------------------------------------------------------

Status Array::Impl::open(const std::string& directories, const ArrayOptions& options) {
  static std::once_flag is_log_set;
  std::call_once(is_log_set, [] { static_cast<void>(fpfs::configure_log({.level = fpfs::LogLevel::kError})); });
  FPFS_ASSIGN_OR_RETURN(const std::vector<std::string> members, fpfs::Array::split_directories(directories));
  fpfs::StoreOptions how;
  how.buffer_memory = options.buffer_memory;
  how.array.read_only = options.read_only;
  how.array.metadata_directory = options.metadata_directory;
  how.array.buffered_members = options.buffered_members;
  FPFS_ASSIGN_OR_RETURN(store_, Store::open(environment_, members, how));
  // Other nodes may read copies of what is changed here: the files' own notes of that go with the change.
  store_->has_others();
  return Status::ok();
}

Status Array::Impl::close() {
  if (store_ == nullptr) return Status::ok();
  const Status closed = store_->close();
  store_.reset();
  return closed;
}

// --- saving ----------------------------------------------------------------------------------------------------------

// Of names the engine does not refuse it: to a mount the kernel does.
Status Array::Impl::may_change() const {
  if (!store_->read_only()) return Status::ok();
  const std::string reason = store_->status().read_only_reason;
  return Status::error(StatusCode::kReadOnly, reason.empty() ? "the array is open for reading only" : reason);
}

Result<fpfs::Handle> Array::Impl::directory_of(const Place& place, std::optional<Store::Node>& node) {
  if (place.directory.find_first_not_of("/.") == std::string::npos && place.directory.find("..") == std::string::npos)
    return store_->root();
  FPFS_ASSIGN_OR_RETURN(node, find_in_array(*store_, place.directory));
  if (S_ISDIR(node->attributes.st_mode)) return node->handle.get();
  return Status::from_errno(ENOTDIR, "find a directory at " + place.directory + ", in the array");
}

Status Array::Impl::save(const std::string& path, const std::vector<Tensor>& tensors, const SaveOptions& options) {
  FPFS_RETURN_IF_ERROR(may_change());
  fpfs::TensorHeader header;
  header.metadata = options.metadata;
  std::map<std::string, const Tensor*> by_name;
  for (const Tensor& tensor : tensors) {
    FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, fpfs::tensor_bytes(tensor.dtype, tensor.shape));
    if (bytes != tensor.bytes || (tensor.data == nullptr && bytes > 0))
      return invalid(fmt::format("'{}' has {} bytes in memory, and its type and shape need {}", tensor.name,
                                 tensor.data == nullptr ? 0 : tensor.bytes, bytes));
    by_name[tensor.name] = &tensor;
    header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  FPFS_ASSIGN_OR_RETURN(const std::string text, fpfs::encode_tensor_header(header));
  std::vector<std::span<const std::byte>> pieces{bytes_of(text.data(), text.size())};
  for (const fpfs::TensorDescription& described : header.tensors) {
    const Tensor& tensor = *by_name[described.name];
    pieces.push_back(bytes_of(tensor.data, tensor.bytes));
  }

  FPFS_ASSIGN_OR_RETURN(const Place place, place_of(path));
  std::optional<Store::Node> node;
  FPFS_ASSIGN_OR_RETURN(const fpfs::Handle directory, directory_of(place, node));
  return save_file(*store_, directory, place.name, options.mode & 07777, pieces, environment_.random_u64(),
                   [](const std::function<void(fpfs::Answered)>& start) {
                     Answer answer;
                     start([&answer](const Status& status) { answer(status); });
                     return answer.wait();
                   });
}

Status Array::Impl::make_directories(const std::string& path) {
  FPFS_RETURN_IF_ERROR(may_change());
  FPFS_RETURN_IF_ERROR(place_of(path + "/x").status());
  std::optional<Store::Node> here;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty() || name == ".") continue;
    if (name == "..") return invalid(path + ": '..' in a path inside the array");
    const fpfs::Handle parent = here ? here->handle.get() : store_->root();
    Result<Store::Node> next = store_->lookup(parent, name);
    if (next.status().code() == StatusCode::kNotFound) {
      const Status made = store_->make_directory(parent, name, kDirectoryMode);
      if (!made.is_ok() && made.code() != StatusCode::kExists) return made.with_context(path + ", in the array");
      FPFS_RETURN_IF_ERROR(store_->sync_directory(parent));
      next = store_->lookup(parent, name);
      if (made.is_ok() && next.is_ok())
        FPFS_RETURN_IF_ERROR(store_->inherit_settings(parent, next->handle.get()).status());
    }
    if (!next.is_ok()) return next.status().with_context(path + ", in the array");
    if (!S_ISDIR(next->attributes.st_mode))
      return Status::from_errno(ENOTDIR, "make a directory below " + name + " at " + path + ", in the array");
    here = *std::move(next);
  }
  return Status::ok();
}

Status Array::Impl::remove(const std::string& path) {
  FPFS_RETURN_IF_ERROR(may_change());
  FPFS_ASSIGN_OR_RETURN(const Place place, place_of(path));
  std::optional<Store::Node> node;
  FPFS_ASSIGN_OR_RETURN(const fpfs::Handle directory, directory_of(place, node));
  FPFS_RETURN_IF_ERROR(store_->unlink(directory, place.name));
  return store_->sync_directory(directory);
}

// --- loading ---------------------------------------------------------------------------------------------------------

Status Array::Impl::read(File& file, FileOffset offset, std::span<std::byte> memory, fpfs::ReadCursor& cursor) {
  while (!memory.empty()) {
    const std::span<std::byte> piece = memory.first(std::min(memory.size(), kReadBytes));
    FPFS_ASSIGN_OR_RETURN(const size_t count, store_->read_sync(file, offset, piece, &cursor));
    if (count < piece.size()) return Status::error(StatusCode::kIoError, "it became shorter while it was read");
    offset += count;
    memory = memory.subspan(count);
  }
  return Status::ok();
}

Result<Array::Impl::OpenFile> Array::Impl::open_file(const std::string& path) {
  FPFS_RETURN_IF_ERROR(place_of(path).status());
  OpenFile open;
  while (open.file == nullptr) {
    FPFS_ASSIGN_OR_RETURN(const Store::Node node, find_in_array(*store_, path));
    if (!S_ISREG(node.attributes.st_mode)) return invalid("not a regular file");
    Result<std::shared_ptr<File>> file = store_->open_file(node.handle.get(), /*for_writing=*/false);
    if (file.is_ok()) {
      open.file = *std::move(file);
    } else if (file.status().errno_value() != ESTALE) {  // or it was replaced since it was found
      return file.status();
    }
  }
  const uint64_t size = open.file->size();
  fpfs::ReadCursor cursor;
  std::vector<std::byte> bytes(std::min(size, fpfs::kSafetensorsLengthBytes));
  FPFS_RETURN_IF_ERROR(read(*open.file, FileOffset(), bytes, cursor));
  FPFS_ASSIGN_OR_RETURN(const uint64_t length, fpfs::decode_tensor_header_length(bytes, size));
  bytes.resize(length);
  FPFS_RETURN_IF_ERROR(read(*open.file, FileOffset(fpfs::kSafetensorsLengthBytes), bytes, cursor));
  FPFS_ASSIGN_OR_RETURN(open.header, fpfs::decode_tensor_header(bytes, size));
  return open;
}

Status Array::Impl::list(const std::string& path, Contents& contents) {
  FPFS_ASSIGN_OR_RETURN(OpenFile open, open_file(path));
  contents = {};
  for (fpfs::TensorDescription& tensor : open.header.tensors)
    contents.tensors.push_back(
        {std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), tensor.end - tensor.begin});
  contents.metadata = std::move(open.header.metadata);
  return Status::ok();
}

// In the order of the file, which is read ahead of.
Status Array::Impl::load(const std::string& path, const std::vector<Target>& targets) {
  FPFS_ASSIGN_OR_RETURN(const OpenFile open, open_file(path));
  std::map<std::string, const Target*> by_name;
  for (const Target& target : targets)
    if (!by_name.emplace(target.name, &target).second) return invalid("'" + target.name + "' is asked for twice");
  std::vector<std::pair<const fpfs::TensorDescription*, const Target*>> wanted;
  for (const fpfs::TensorDescription& tensor : open.header.tensors) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end()) continue;
    const Target& target = *found->second;
    if (target.bytes != tensor.end - tensor.begin || (target.data == nullptr && target.bytes > 0))
      return invalid(fmt::format("'{}' has {} bytes, and there is memory for {}", tensor.name,
                                 tensor.end - tensor.begin, target.data == nullptr ? 0 : target.bytes));
    wanted.emplace_back(&tensor, &target);
    by_name.erase(found);
  }
  if (!by_name.empty())
    return Status::error(StatusCode::kNotFound, "it has no tensor '" + by_name.begin()->first + "'");
  fpfs::ReadCursor cursor;
  for (const auto& [tensor, target] : wanted)
    FPFS_RETURN_IF_ERROR(read(*open.file, FileOffset(open.header.content_begin + tensor->begin),
                              {static_cast<std::byte*>(target->data), target->bytes}, cursor));
  return Status::ok();
}

// --- the public face -------------------------------------------------------------------------------------------------

namespace {

Error told(const Status& status, const std::string& path) {
  const std::string in_array = ", in the array";
  const bool says_where = status.message().find(path) != std::string::npos ||
                          status.message().find(in_array) != std::string::npos;  // a directory that it needs
  return told(status.is_ok() || says_where ? status : status.with_context(path + in_array));
}

}  // namespace

Array::Array(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Array::~Array() {
  static_cast<void>(impl_->close());
}

std::unique_ptr<Array> Array::open(const std::string& directories, const ArrayOptions& options, Error& error) {
  auto impl = std::make_unique<Impl>();
  error = told(impl->open(directories, options));
  if (!error.is_ok()) return nullptr;
  return std::unique_ptr<Array>(new Array(std::move(impl)));
}

Error Array::save(const std::string& path, const std::vector<Tensor>& tensors, const SaveOptions& options) {
  return told(impl_->save(path, tensors, options), path);
}

Error Array::list(const std::string& path, Contents& contents) {
  return told(impl_->list(path, contents), path);
}

Error Array::load(const std::string& path, const std::vector<Target>& targets) {
  return told(impl_->load(path, targets), path);
}

Error Array::make_directories(const std::string& path) {
  return told(impl_->make_directories(path), path);
}

Error Array::remove(const std::string& path) {
  return told(impl_->remove(path), path);
}

Error Array::close() {
  return told(impl_->close());
}

}  // namespace fastpersist
