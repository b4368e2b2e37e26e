// TensorStarts: where the tensors of a file of safetensors begin, and what a reader who goes from the beginning of one to
// that of the next will ask for.
//
// Who maps such a file may touch the first page of each tensor before anything else; safetensors' load_file does. The
// kernel reads as much before that page as behind it, by one long request or several in any order, and to whoever
// answers each is a jump that waits for the drives. Where the next one leads stands in the header of the file, and how
// far the kernel reads is seen from what it asked for before.
//
// It is a hint, taken from what a user wrote: the worst that comes of it is what is read ahead in vain.
//
// Thread safety: none; the file's lock. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/units.h"

namespace fpfs {

// The way of one reader from tensor to tensor; a part of its ReadCursor. Pages are those that tensors begin in: bytes from
// the beginning of the file.
struct TensorHops {
  std::optional<uint64_t> at;  // the page that was asked for last
  bool has_jumped = false;     // since then
  unsigned kept_to = 0;        // how many came as expected, one after the other
  unsigned named = 0;          // by next_range(), and not come yet
  uint64_t last_named = 0;     // the page of the last of these
  uint64_t reach = 0;          // bytes before and behind a page that are asked for with it
};

class TensorStarts {
 public:
  // Shorter requests are those of who reads by himself what he needs, and no more.
  static constexpr uint32_t kRequestMin = 128 * kKiB;
  // Half of what the kernel reads around a page at most.
  static constexpr uint64_t kReachMax = 2 * kMiB;

  // Unknown, to be looked for, and looked for, as the owner says.
  enum class State : uint8_t { kUnknown, kAsked, kKnown };
  State state() const { return state_; }
  void ask() { state_ = State::kAsked; }
  // Bytes from the beginning of the file, ascending; none: it is no such file.
  void know(std::vector<uint64_t> begins);
  // The content is another one. Cheap when nothing is known.
  void forget() {
    if (state_ != State::kUnknown) *this = TensorStarts();
  }

  // A request for [offset, offset + length) came, which is a jump or may belong to one: the reader is no sequential one.
  // True: it belongs to one that was expected, and nothing behind it is.
  bool note(TensorHops& hops, FileOffset offset, uint32_t length, bool is_jump) const;
  // The next [begin, end) that is likely to be asked for; nothing, when so much was named that has not come yet: more
  // with each that came as expected, and `bytes_max` at most.
  std::optional<std::pair<FileOffset, FileOffset>> next_range(TensorHops& hops, uint64_t bytes_max) const;

 private:
  std::optional<uint64_t> page_from(uint64_t offset) const;
  std::optional<uint64_t> page_behind(uint64_t page, uint64_t reach) const;
  std::optional<uint64_t> cause_of(const std::optional<uint64_t>& expected, uint64_t begin, uint64_t end) const;

  State state_ = State::kUnknown;
  std::vector<uint64_t> begins_;
};

}  // namespace fpfs
