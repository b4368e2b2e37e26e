// TensorStarts: where the tensors of a file of safetensors begin, and what a reader who goes from the beginning of one to
// that of the next will ask for.
//
// Who maps such a file may touch the first page of each tensor before anything else; safetensors' load_file does. The
// kernel reads as much before that page as behind it, by one long request or several in any order, and to whoever
// answers each is a jump that waits for the drives. Where the next one leads stands in the header of the file, and how
// far the kernel reads is seen from what it asked for before.
//
// It is a hint, taken from what a user wrote. Where it is wrong, no more is read in vain than of a sequential reader who
// stops.
//
// Thread safety: none; the file's lock. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/units.h"

namespace fpfs {

// The way of one reader from tensor to tensor; a part of its ReadCursor. Pages are those that tensors begin in: bytes from
// the beginning of the file.
struct TensorHops {
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  std::optional<uint64_t> at;      // the page that was asked for last
  std::optional<Range> jump;       // the last request that was one, since then
  uint64_t before = 0, after = 0;  // of that page: bytes that were asked for with it
  uint64_t reach = 0;              // bytes on each side that are
  unsigned kept_to = 0;            // how many came as expected, one after the other
  unsigned named = 0;              // are read ahead, and have not come yet
  uint64_t last_named = 0;         // the page of the last of these
  void name(uint64_t page) { ++named, last_named = page; }
};

class TensorStarts {
 public:
  // Shorter requests are those of who reads by himself what he needs, and no more.
  static constexpr uint32_t kRequestMin = 128 * kKiB;
  // Half of what the kernel reads around a page at most.
  static constexpr uint64_t kReachMax = 2 * kMiB;

  // --- knowing, which the owner sees to ----------------------------------------------------------------------------
  // Nothing is known, nor on its way.
  bool is_unknown() const { return state_ == State::kUnknown; }
  // A reader jumps, and the header is not at hand. True: this was one of some jumps, and it is worth loading.
  bool count_jump();
  // It is being loaded.
  void await_header() { state_ = State::kAwaited; }
  bool awaits_header() const { return state_ == State::kAwaited; }
  // It is being looked at: the question's number.
  uint64_t ask();
  // The answer to the question that was asked last; others are late. Bytes from the beginning of the file, ascending;
  // none: it is no such file.
  void know(uint64_t question, const std::vector<uint64_t>& begins);
  // The header is another one, or did not come.
  void forget();

  // --- of one reader -----------------------------------------------------------------------------------------------
  // A request for [offset, offset + length) came. It is a jump, or nothing is read ahead of the reader: it may belong to
  // one. True: he came for a tensor as expected, and what this asks for is around its first page.
  bool note(TensorHops& hops, FileOffset offset, uint32_t length, bool is_jump) const;
  // The next page whose surroundings (`reach` on each side) he is likely to ask for. Nothing: so many were named already,
  // more with each that came as expected, or `count_max`. The owner calls name() when that is done.
  std::optional<uint64_t> next(const TensorHops& hops, uint64_t count_max) const;

 private:
  enum class State : uint8_t { kUnknown, kAwaited, kAsked, kKnown };

  std::optional<uint64_t> first_from(uint64_t offset) const;
  std::optional<uint64_t> behind(uint64_t page, uint64_t reach) const;
  std::optional<uint64_t> cause_of(const std::optional<uint64_t>& expected, uint64_t begin, uint64_t end) const;
  void move(TensorHops& hops, uint64_t page) const;

  State state_ = State::kUnknown;
  unsigned jumps_ = 0;  // while it is unknown
  uint64_t questions_ = 0;
  std::vector<uint64_t> pages_;
};

}  // namespace fpfs
