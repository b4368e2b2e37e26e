// What fpfs tune decides, without any I/O: which settings are worth measuring, when one cannot win any more, and which
// are best. Measuring is a function of the caller's, so that tests can give figures of their own.
//
//   search    for writing, then for reading: from the default on, one knob after another, one step further as long as
//             that is faster. A step is measured by turns with the best so far, and given up as soon as it cannot win.
//   final     the default and what the searches came to, all by turns, writing and reading
//   choose    one of these; the default, unless another one is faster by more than runs of one setting differ
//
// The searches only nominate: what they say by mistake the final puts right, as it measures the default beside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace fpfs::tools {

// Mount options, by their names. 0 is what the mount does by itself, where the option has such a value.
struct TuneSettings {
  unsigned queue_depth = 16;
  unsigned transfer_size = 0;
  unsigned submit_batch = 4;
  unsigned workers = 0;
  unsigned read_ahead = 0;
  bool operator==(const TuneSettings&) const = default;
};

enum class TuneDirection : uint8_t { kWrite, kRead };
inline constexpr std::array<TuneDirection, 2> kTuneDirections = {TuneDirection::kWrite, TuneDirection::kRead};
const char* to_string(TuneDirection direction);

// One thing that can be set, and the values that are tried: in the order in which they do more, or less, of the same.
// The default is one of them.
struct TuneKnob {
  const char* name = "";
  unsigned TuneSettings::*field = nullptr;
  std::vector<unsigned> values;
  bool for_writing = true;  // else only reading depends on it
};

// What bounds the values.
struct TuneLimits {
  uint64_t chunk_size = 0;  // bytes
  uint64_t buffers = 0;     // chunks of memory
  unsigned members = 1;
  unsigned workers = 8;  // by default
};
std::vector<TuneKnob> tune_knobs(const TuneLimits& limits);

// NAME=VALUE of all knobs, as in a profile.
std::vector<std::pair<std::string, std::string>> settings_of(const TuneSettings& settings);
// Those that are not at their default, "queue_depth=32,read_ahead=16"; "default" when none is.
std::string describe(const TuneSettings& settings);

// Rates of several runs, in bytes per second.
class TuneRuns {
 public:
  void add(double rate) { rates_.push_back(rate); }
  // Could not win any more, so there are no further runs.
  void give_up() { given_up_ = true; }
  bool is_given_up() const { return given_up_; }
  bool is_empty() const { return rates_.empty(); }
  size_t count() const { return rates_.size(); }
  double median() const;
  double low() const;
  double high() const;
  // How far apart the runs are; of four and more without the slowest one, which somebody else may have disturbed.
  double spread() const;

 private:
  std::vector<double> rates_;
  bool given_up_ = false;
};

struct TuneResult {
  TuneSettings settings;
  std::array<TuneRuns, kTuneDirections.size()> runs;  // by direction
  const TuneRuns& of(TuneDirection direction) const { return runs[static_cast<size_t>(direction)]; }
  TuneRuns& of(TuneDirection direction) { return runs[static_cast<size_t>(direction)]; }
};

// One run of these settings, in bytes per second.
using TuneMeasure = std::function<Result<double>(const TuneSettings& settings, TuneDirection direction)>;

constexpr unsigned kSearchRuns = 3, kFinalRuns = 7;

// Best settings for one direction, as far as the search can tell. What was measured is added to `measured`. Fails only
// when a measurement does.
Result<TuneSettings> search_best(const std::vector<TuneKnob>& knobs, TuneDirection direction,
                                 const TuneMeasure& measure, std::vector<TuneResult>& measured);

// kFinalRuns runs of each in each direction, by turns; the results are in the order of `settings`.
Result<std::vector<TuneResult>> measure_by_turns(const std::vector<TuneSettings>& settings, const TuneMeasure& measure);

// Which is best for both directions. The first is the default, and stays unless another one is faster in one of them by
// more than the spread of either, and by 3 % at least, while it is not slower in the other one by more than the spread,
// and by 2 % at most.
size_t choose(const std::vector<TuneResult>& results);

// All of it.
struct TuneOutcome {
  std::vector<TuneResult> searched;
  std::vector<TuneResult> finalists;  // the default first
  size_t chosen = 0;                  // of the finalists
  // Of the finalists, the fastest in this direction.
  const TuneResult& best(TuneDirection direction) const;
};
Result<TuneOutcome> tune(const std::vector<TuneKnob>& knobs, const TuneMeasure& measure);

}  // namespace fpfs::tools
