// StrongNumber: a number of one kind, which no other kind converts to or from, as wide as its representation.
//
// An *id* names something and can only be compared. An *index* names one of many in a row (a slot, a member): it can be
// stepped and moved by a count as well, and two of one kind have a distance, which is a plain number. What an index
// means in bytes is said by a function beside its type. Where a number is written to a drive or shown, it is value().
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <fmt/format.h>

namespace fpfs {

// `Kind` has the type `Representation` (unsigned) and the flag `kIsIndex`, and tells the kinds apart.
template <typename Kind>
class StrongNumber {
 public:
  using Representation = typename Kind::Representation;

  constexpr StrongNumber() = default;
  constexpr explicit StrongNumber(Representation value) : value_(value) {}

  constexpr Representation value() const { return value_; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes what the compiler compares with for a null pointer
  friend constexpr auto operator<=>(const StrongNumber&, const StrongNumber&) = default;

  constexpr StrongNumber& operator++() requires Kind::kIsIndex {
    ++value_;
    return *this;
  }
  constexpr StrongNumber& operator+=(Representation count) requires Kind::kIsIndex { return *this = *this + count; }
  friend constexpr StrongNumber operator+(StrongNumber a, Representation count) requires Kind::kIsIndex {
    return StrongNumber(static_cast<Representation>(a.value_ + count));
  }
  friend constexpr StrongNumber operator-(StrongNumber a, Representation count) requires Kind::kIsIndex {
    return StrongNumber(static_cast<Representation>(a.value_ - count));
  }
  friend constexpr Representation operator-(StrongNumber a, StrongNumber b) requires Kind::kIsIndex {
    return static_cast<Representation>(a.value_ - b.value_);
  }

 private:
  Representation value_ = 0;
};

// A kind of ids, and one of indices: `struct SlotKind : IndexKind<uint64_t> {}; using Slot = StrongNumber<SlotKind>;`
template <typename Number>
struct IdKind {
  using Representation = Number;
  static constexpr bool kIsIndex = false;
};
template <typename Number>
struct IndexKind {
  using Representation = Number;
  static constexpr bool kIsIndex = true;
};

// The indices [begin, end), for a range-based loop.
template <typename Kind>
class IndexRange {
 public:
  using Index = StrongNumber<Kind>;
  class Iterator {
   public:
    constexpr explicit Iterator(Index at) : at_(at) {}
    constexpr Index operator*() const { return at_; }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend constexpr bool operator==(const Iterator&, const Iterator&) = default;

   private:
    Index at_;
  };

  constexpr IndexRange(Index begin, Index end) : begin_(begin), end_(end < begin ? begin : end) {}
  constexpr Iterator begin() const { return Iterator(begin_); }
  constexpr Iterator end() const { return Iterator(end_); }

 private:
  Index begin_, end_;
};

// The indices below `end`.
template <typename Kind>
constexpr IndexRange<Kind> range_to(StrongNumber<Kind> end) {
  return {StrongNumber<Kind>(), end};
}

}  // namespace fpfs

template <typename Kind>
struct std::hash<fpfs::StrongNumber<Kind>> {
  size_t operator()(fpfs::StrongNumber<Kind> number) const {
    return std::hash<typename Kind::Representation>()(number.value());
  }
};

template <typename Kind>
struct fmt::formatter<fpfs::StrongNumber<Kind>> : fmt::formatter<typename Kind::Representation> {
  template <typename Context>
  auto format(fpfs::StrongNumber<Kind> number, Context& context) const {
    return fmt::formatter<typename Kind::Representation>::format(number.value(), context);
  }
};
