// Repetitions in the log: the first line about something is written, what follows is counted, and the count is said
// once per interval. So one bad chunk that a program, or the kernel for it, reads again and again is one line and a
// count; and a store that is away, or a drive that died, cannot fill the log.
//
// What is a repetition is the caller's choice: lines with the same key. The line that is written stands for them all.
//
//   second 0   line             written
//   .. 1       the same key     the same event, as far as anybody knows: kernel and programs try again at once
//   .. 60      the same key     counted
//   60         due()            "LINE (17 times more in 60 s)", when any came after the first second
//   .. 180     the same key     counted; due() again at 180, then at 420, ...: the interval doubles up to an hour
//
// After an interval without any the next line is written as it is, and begins the next interval, twice as long; after
// two the key is forgotten.
//
// Thread safety: none. Knows no clock: times are the caller's, in nanoseconds, and never go back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fpfs {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

class LogRepeats {
 public:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr uint64_t kIntervalNs = 60 * kSecondNs, kIntervalMaxNs = 3600 * kSecondNs;
  // Keys that are remembered, which bounds the memory and how many lines an interval can have: beyond it lines are
  // counted together, whatever they are about.
  static constexpr size_t kKeysMax = 256;

  struct Line {
    LogLevel level = LogLevel::kError;
    std::string text;
  };

  // Whether the line is to be written; if not, it is counted.
  bool admits(const std::string& key, const Line& line, uint64_t now_ns);
  // The lines that say what was counted and is due, to be written by the caller. To be called before admits(), and now
  // and then when nothing is logged. Cheap when nothing is due.
  std::vector<Line> due(uint64_t now_ns);
  // The same of everything that was counted: at the end.
  std::vector<Line> rest(uint64_t now_ns);

 private:
  struct Entry {
    Line line;             // the one that was written
    uint64_t told_ns = 0;  // when it, or the count last
    uint64_t last_ns = 0;
    uint64_t count = 0;  // since told_ns
    uint64_t interval_ns = kIntervalNs;

    bool has_more() const { return count > 0 && last_ns - told_ns >= kSecondNs; }
    Line told(uint64_t now_ns) const;
    void begin_interval(uint64_t now_ns);
  };

  std::map<std::string, Entry> entries_;
  uint64_t next_due_ns_ = UINT64_MAX;
};

}  // namespace fpfs
