// Transfer: one request of a user of the library. The files it has open, and which of its blocks come next.
//
// Thread safety: none of its own; its files may be used while blocks are handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/aio/aio.h"
#include "engine/base/file_descriptor.h"

namespace fastpersist {

struct Block {
  int file = -1;
  std::byte* data = nullptr;  // of the user; of a write it is only read
  uint64_t offset = 0;        // in the file
  uint32_t length = 0;        // bytes
  bool is_direct = false;     // whole blocks by O_DIRECT, from or to aligned memory
};

class Transfer {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kWriteFile };

  Transfer(Kind kind, std::string path, std::byte* data, size_t length, uint64_t offset, bool durable);
  // Of a file that is open already: `given` is used as far as it fits, and stays open.
  Transfer(Kind kind, int given, std::byte* data, size_t length, uint64_t offset, bool durable);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Opens what the blocks need. A write also gets its space, so that it finds out early when there is none, and so that
  // its blocks do not wait for each other to move the end of the file.
  void open_files(const AioOptions& options);
  // The next block, in the order of the file. False: there are no more, or one has failed.
  bool next_block(const AioOptions& options, Block* block);
  // Each block that next_block() gave out ends once.
  void block_ended(const Block& block, uint32_t moved, int error_number);
  // Nothing is under way and nothing will be.
  bool is_moved() const { return under_way_ == 0 && (next_ == length_ || !error_.is_ok()); }
  // After that: syncs and closes. It blocks.
  void finish();

  bool is_read() const { return kind_ == Kind::kRead; }
  const std::string& path() const { return path_; }
  const Error& error() const { return error_; }
  uint64_t moved() const { return moved_; }

  uint64_t number = 0;     // 0: of a sync_ call, which waits for it
  bool has_ended = false;  // of a sync_ call

 private:
  bool open_file(bool direct);
  bool check_given();
  void sync_directory();
  void size_file(const AioOptions& options);
  void close_file(fpfs::FileDescriptor& file);
  void fail(int error_number, const std::string& operation);

  const Kind kind_;
  const std::string path_;
  const std::optional<int> given_;  // otherwise the file is opened by its path
  bool given_is_direct_ = false;
  std::byte* const data_;
  const uint64_t length_, offset_;
  const bool durable_;

  fpfs::FileDescriptor direct_;  // O_DIRECT, where whole blocks are moved
  fpfs::FileDescriptor cached_;  // where others are
  uint64_t next_ = 0;            // bytes that were given out as blocks
  uint64_t moved_ = 0;
  unsigned under_way_ = 0;
  Error error_;
};

}  // namespace fastpersist
