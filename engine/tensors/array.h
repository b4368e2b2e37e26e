// fastpersist-array: tensors saved to an array of fastpersistfs and loaded from it, without a mount.
//
//   fastpersist::Error error;
//   auto array = fastpersist::Array::open("/nvme0/fp:/nvme1/fp", {}, error);          // null: error says why
//   error = array->save("/run7/step100.safetensors", {{"weight", "F32", {1024, 1024}, data, bytes}});
//   error = array->load("/run7/step100.safetensors", {{"weight", data, bytes}});
//   error = array->close();
//
// What is saved is an ordinary file of the array, in the layout of safetensors: whoever mounts the array reads it, by
// the safetensors package for example, and what was saved by that on a mount is loaded here. Striped over all members,
// as any file.
//
// Exclusive. An array that is mounted, or open in another process, is refused (EBUSY, with the process). An array that
// was not closed cleanly is recovered first, as a mount does.
//
// Durability. When save() has returned without an error the file survives a power cut, whole. Until then, and after a
// failure, there is what the path had before: the old file, whole, or none. (A crash at the moment when one replaces the
// other may leave the new one beside it, as ".fastpersist-" and a number.)
//
// Errors. Nothing is thrown but std::bad_alloc. ENOENT, EEXIST, ENOTDIR, EACCES, ...; EINVAL for arguments, for a file
// that is not one of safetensors, and for symbolic links in a path, which are not followed; ENOSPC; EROFS when opened
// with read_only; EIO: a drive failed, or the checksum of what it gave is wrong: no such byte is returned as content.
// After an error of load() its memory is unspecified. What drives did wrong is on stderr, too.
//
// Threads. Every function may be called from any thread, but close() alone. An array does not survive fork(2) in the
// child. It has threads of its own, which block all signals.
//
// Copies outside the machine (tier=) are a mount's: a file whose content is only there cannot be loaded here (EIO).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "error.h"

namespace fastpersist {

struct ArrayOptions {
  bool read_only = false;  // only load() and list(); nothing on the members is changed
  // Bytes of memory that content passes through, 64 MiB and more for large chunks.
  uint64_t buffer_memory = uint64_t{256} << 20;
  std::string metadata_directory = {};  // where the array's --meta-dir is now, if it has one and was moved
  bool buffered_members = false;        // accept members without O_DIRECT, for tests
};

struct Tensor {
  std::string name;   // UTF-8
  std::string dtype;  // BOOL, U8, I8, F8_E4M3, F8_E5M2, I16, U16, F16, BF16, I32, U32, F32, I64, U64, F64, C64
  std::vector<uint64_t> shape;  // empty: one element
  const void* data = nullptr;   // its elements, row by row, little-endian
  size_t bytes = 0;             // what dtype and shape need (EINVAL)
};

struct SaveOptions {
  unsigned mode = 0666;                              // less the umask
  std::map<std::string, std::string> metadata = {};  // texts beside the tensors, UTF-8
};

// Where a tensor goes that is loaded.
struct Target {
  std::string name;
  void* data = nullptr;
  size_t bytes = 0;  // the tensor's (EINVAL)
};

// What a file has.
struct Contents {
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    size_t bytes = 0;
  };
  std::vector<Entry> tensors;  // in the order of the file
  std::map<std::string, std::string> metadata;
};

class FASTPERSIST_EXPORT Array {
 public:
  // `directories`: the members, in any order, "DIR:DIR:DIR". Null when `error` is set: EBUSY; EINVAL for directories
  // that are no array, or not all of one; EACCES, EMFILE, ...
  static std::unique_ptr<Array> open(const std::string& directories, const ArrayOptions& options, Error& error);
  // close() without its error.
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  // Paths are from the root of the array: "/run7/step100.safetensors", with or without the first slash.
  //
  // Makes the file, or replaces the one that is there (its mode and owner too). Its directory must be there.
  Error save(const std::string& path, const std::vector<Tensor>& tensors, const SaveOptions& options = {});
  Error list(const std::string& path, Contents& contents);
  // Some tensors of a file, or all. ENOENT when it has no such tensor.
  Error load(const std::string& path, const std::vector<Target>& targets);
  // The directory and those above it, as far as they are missing. Durable on return.
  Error make_directories(const std::string& path);
  // Removes a file, of any kind but a directory. Durable on return.
  Error remove(const std::string& path);

  // What was saved is durable before. Marks the array clean, so that nothing has to be recovered. No other call may
  // follow; further ones of close() do nothing.
  Error close();

 private:
  class __attribute__((visibility("hidden"))) Impl;
  explicit Array(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace fastpersist
