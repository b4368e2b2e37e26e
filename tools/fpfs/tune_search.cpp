#include "tools/fpfs/tune_search.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/units.h"

namespace fpfs::tools {

namespace {

// A first run that is slower by so much is not repeated.
constexpr double kHopeless = 0.05;
// A step that gains less is none: it would lead on along the noise.
constexpr double kStepMin = 0.02;
// What a finalist must gain in one direction, and may lose in the other one, as parts of the default's rate.
constexpr double kGainMin = 0.03, kLossMax = 0.02;

std::string value_text(const TuneKnob& knob, unsigned value) {
  const bool is_size = knob.field == &TuneSettings::transfer_size;
  return is_size && value != 0 && value % kKiB == 0 ? fmt::format("{}K", value / kKiB) : fmt::format("{}", value);
}

// The order in which they are said; and without limits.
const std::array<TuneKnob, 5>& all_knobs() {
  static const std::array<TuneKnob, 5> kKnobs = {{{"queue_depth", &TuneSettings::queue_depth, {}, true},
                                                  {"transfer_size", &TuneSettings::transfer_size, {}, true},
                                                  {"submit_batch", &TuneSettings::submit_batch, {}, true},
                                                  {"workers", &TuneSettings::workers, {}, true},
                                                  {"read_ahead", &TuneSettings::read_ahead, {}, false}}};
  return kKnobs;
}

TuneResult& result_of(std::vector<TuneResult>& results, const TuneSettings& settings) {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&](const TuneResult& result) { return result.settings == settings; });
  if (found != results.end()) return *found;
  results.push_back({settings, {}});
  return results.back();
}

// Climbs, from the default on, in one direction.
class Search {
 public:
  Search(TuneDirection direction, const TuneMeasure& measure, std::vector<TuneResult>& measured)
      : direction_(direction), measure_(measure), measured_(measured) {}

  Status climb(const TuneKnob& knob) {
    const auto start = std::find(knob.values.begin(), knob.values.end(), best_.*knob.field);
    FPFS_CHECK(start != knob.values.end(), "what is best is one of the values");
    const auto at = start - knob.values.begin();
    const auto end = static_cast<std::ptrdiff_t>(knob.values.size());
    const TuneSettings before = best_;
    for (const std::ptrdiff_t step : {1, -1}) {
      for (std::ptrdiff_t i = at + step; i >= 0 && i < end; i += step) {
        TuneSettings next = best_;
        next.*knob.field = knob.values[static_cast<size_t>(i)];
        FPFS_ASSIGN_OR_RETURN(const bool is_faster, beats_best(next));
        if (!is_faster) break;
        best_ = next;
      }
      if (best_ != before) break;  // the other way leads down
    }
    return Status::ok();
  }
  const TuneSettings& best() const { return best_; }

 private:
  // By turns, so that a drive that gets slower meanwhile does so for both.
  Result<bool> beats_best(const TuneSettings& settings) {
    TuneRuns own, of_best;
    for (unsigned round = 0; round < kSearchRuns; ++round) {
      FPFS_RETURN_IF_ERROR(run(settings, own));
      FPFS_RETURN_IF_ERROR(run(best_, of_best));
      if (own.high() < of_best.low() * (round == 0 ? 1 - kHopeless : 1)) {
        result_of(measured_, settings).of(direction_).give_up();
        return false;
      }
    }
    return own.median() > of_best.median() * (1 + kStepMin);
  }
  Status run(const TuneSettings& settings, TuneRuns& runs) {
    FPFS_ASSIGN_OR_RETURN(const double rate, measure_(settings, direction_));
    runs.add(rate);
    result_of(measured_, settings).of(direction_).add(rate);
    return Status::ok();
  }

  const TuneDirection direction_;
  const TuneMeasure& measure_;
  std::vector<TuneResult>& measured_;
  TuneSettings best_;
};

// Multiples of the default, which stands for itself as 0.
std::vector<unsigned> around_default(uint64_t value, uint64_t low, uint64_t high,
                                     std::initializer_list<double> factors) {
  std::vector<unsigned> values;
  for (const double factor : factors) {
    const auto product = static_cast<uint64_t>(static_cast<double>(value) * factor);
    if (factor == 1)
      values.push_back(0);
    else if (product >= low && product <= high)
      values.push_back(static_cast<unsigned>(product));
  }
  return values;
}

}  // namespace

const char* to_string(TuneDirection direction) {
  return direction == TuneDirection::kWrite ? "write" : "read";
}

std::vector<TuneKnob> tune_knobs(const TuneLimits& limits) {
  std::vector<TuneKnob> knobs(all_knobs().begin(), all_knobs().end());
  // No more can be on its way than half of the buffers hold.
  const uint64_t depth_max = std::max<uint64_t>(16, limits.buffers / 2 / limits.members);
  for (const unsigned depth : {2U, 4U, 8U, 16U, 32U, 64U, 128U})
    if (depth <= depth_max) knobs[0].values.push_back(depth);
  for (const uint64_t size : {64 * kKiB, 128 * kKiB, 256 * kKiB, 512 * kKiB, kMiB})
    if (size < limits.chunk_size) knobs[1].values.push_back(static_cast<unsigned>(size));
  knobs[1].values.push_back(0);
  knobs[2].values = {1, 4, 16};
  knobs[3].values = around_default(limits.workers, 1, 256, {0.125, 0.25, 0.5, 1, 2});
  // Auto is max(8, 4 for each member); a quarter of the buffers is the limit (StoreOptions::read_ahead).
  knobs[4].values = around_default(std::max(8U, 4 * limits.members), 2, std::min<uint64_t>(1024, limits.buffers / 4),
                                   {0.25, 0.5, 1, 2, 4});
  return knobs;
}

std::vector<std::pair<std::string, std::string>> settings_of(const TuneSettings& settings) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const TuneKnob& knob : all_knobs()) list.emplace_back(knob.name, value_text(knob, settings.*knob.field));
  return list;
}

std::string describe(const TuneSettings& settings) {
  std::string text;
  for (const TuneKnob& knob : all_knobs())
    if (settings.*knob.field != TuneSettings().*knob.field)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", knob.name, value_text(knob, settings.*knob.field));
  return text.empty() ? "default" : text;
}

double TuneRuns::median() const {
  if (rates_.empty()) return 0;
  std::vector<double> sorted = rates_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double TuneRuns::low() const {
  return rates_.empty() ? 0 : *std::min_element(rates_.begin(), rates_.end());
}

double TuneRuns::high() const {
  return rates_.empty() ? 0 : *std::max_element(rates_.begin(), rates_.end());
}

double TuneRuns::spread() const {
  if (rates_.size() < 4) return high() - low();
  std::vector<double> sorted = rates_;
  std::sort(sorted.begin(), sorted.end());
  return sorted.back() - sorted[1];
}

Result<TuneSettings> search_best(const std::vector<TuneKnob>& knobs, TuneDirection direction,
                                 const TuneMeasure& measure, std::vector<TuneResult>& measured) {
  Search search(direction, measure, measured);
  for (const TuneKnob& knob : knobs)
    if (knob.for_writing || direction == TuneDirection::kRead) FPFS_RETURN_IF_ERROR(search.climb(knob));
  return search.best();
}

Result<std::vector<TuneResult>> measure_by_turns(const std::vector<TuneSettings>& settings,
                                                 const TuneMeasure& measure) {
  std::vector<TuneResult> results;
  results.reserve(settings.size());
  for (const TuneSettings& one : settings) results.push_back({one, {}});
  for (unsigned round = 0; round < kFinalRuns; ++round)
    for (const TuneDirection direction : kTuneDirections)
      for (size_t i = 0; i < results.size(); ++i) {
        // Each is the first of its round once: who comes first may find the drive rested.
        TuneResult& result = results[(i + round) % results.size()];
        FPFS_ASSIGN_OR_RETURN(const double rate, measure(result.settings, direction));
        result.of(direction).add(rate);
      }
  return results;
}

size_t choose(const std::vector<TuneResult>& results) {
  FPFS_CHECK(!results.empty(), "the default is there");
  const TuneResult& standard = results.front();
  size_t chosen = 0;
  double highest = 1;
  for (size_t i = 1; i < results.size(); ++i) {
    bool is_faster = false, is_slower = false;
    double score = 1;
    for (const TuneDirection direction : kTuneDirections) {
      const TuneRuns& own = results[i].of(direction);
      const TuneRuns& usual = standard.of(direction);
      const double gain = own.median() - usual.median();
      const double spread = std::max(own.spread(), usual.spread());
      is_faster |= gain > std::max(spread, kGainMin * usual.median());
      is_slower |= -gain > std::min(spread, kLossMax * usual.median());
      score *= usual.median() > 0 ? own.median() / usual.median() : 0;
    }
    if (!is_faster || is_slower || score <= highest) continue;
    highest = score;
    chosen = i;
  }
  return chosen;
}

const TuneResult& TuneOutcome::best(TuneDirection direction) const {
  return *std::max_element(finalists.begin(), finalists.end(), [direction](const TuneResult& a, const TuneResult& b) {
    return a.of(direction).median() < b.of(direction).median();
  });
}

Result<TuneOutcome> tune(const std::vector<TuneKnob>& knobs, const TuneMeasure& measure) {
  TuneOutcome outcome;
  std::vector<TuneSettings> finalists = {TuneSettings()};
  const auto nominate = [&finalists](const TuneSettings& settings) {
    if (std::find(finalists.begin(), finalists.end(), settings) == finalists.end()) finalists.push_back(settings);
  };
  FPFS_ASSIGN_OR_RETURN(TuneSettings writing, search_best(knobs, TuneDirection::kWrite, measure, outcome.searched));
  nominate(writing);
  FPFS_ASSIGN_OR_RETURN(const TuneSettings reading,
                        search_best(knobs, TuneDirection::kRead, measure, outcome.searched));
  nominate(reading);
  // What only reading depends on goes with the best for writing, too.
  for (const TuneKnob& knob : knobs)
    if (!knob.for_writing) writing.*knob.field = reading.*knob.field;
  nominate(writing);
  FPFS_ASSIGN_OR_RETURN(outcome.finalists, measure_by_turns(finalists, measure));
  outcome.chosen = choose(outcome.finalists);
  return outcome;
}

}  // namespace fpfs::tools
