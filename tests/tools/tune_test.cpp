// What fpfs tune decides and says, with drives that are a formula.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "fs/interface/profile.h"
#include "tools/fpfs/tune_report.h"
#include "tools/fpfs/tune_search.h"

namespace fpfs::tools {
namespace {

constexpr TuneLimits kLimits = {.chunk_size = kMiB, .buffers = 256, .members = 2, .workers = 8};

// Rates of a drive: what `rate` says, times one of these factors, the next one each time.
class FakeDrive {
 public:
  using Rate = std::function<double(const TuneSettings&, TuneDirection)>;
  explicit FakeDrive(Rate rate, std::vector<double> noise = {1}) : rate_(std::move(rate)), noise_(std::move(noise)) {}
  TuneMeasure measure() {
    return [this](const TuneSettings& settings, TuneDirection direction) -> Result<double> {
      ++runs_[describe(settings) + " " + to_string(direction)];
      return rate_(settings, direction) * noise_[count_++ % noise_.size()];
    };
  }
  unsigned runs(const std::string& what) const { return runs_.contains(what) ? runs_.at(what) : 0; }
  unsigned count() const { return count_; }

 private:
  Rate rate_;
  std::vector<double> noise_;
  std::map<std::string, unsigned> runs_;
  unsigned count_ = 0;
};

double rate_of_deep(const TuneSettings& settings, TuneDirection direction) {
  const double depth = std::min(settings.queue_depth, 64U);
  const double batch = settings.submit_batch == 1 ? 1.1 : 1;
  const double ahead = direction == TuneDirection::kRead && settings.read_ahead == 16 ? 1.2 : 1;
  return 1e9 * depth / 64 * batch * ahead;
}

TuneResult result(const TuneSettings& settings, const std::vector<double>& write, const std::vector<double>& read) {
  TuneResult result{settings, {}};
  for (const double rate : write) result.of(TuneDirection::kWrite).add(rate);
  for (const double rate : read) result.of(TuneDirection::kRead).add(rate);
  return result;
}

const TuneSettings kOther = {.queue_depth = 32};
const std::vector<double> kHundred = {99, 100, 100, 100, 101};

TEST(Tune, EveryKnobHasItsDefaultAmongItsValues) {
  for (const TuneLimits& limits : {kLimits, TuneLimits{64 * kKiB, 16, 1, 8}, TuneLimits{64 * kMiB, 16, 16, 200}}) {
    const std::vector<TuneKnob> knobs = tune_knobs(limits);
    ASSERT_EQ(knobs.size(), kProfileNames.size());
    for (size_t i = 0; i < knobs.size(); ++i) {
      EXPECT_EQ(knobs[i].name, kProfileNames[i]);
      EXPECT_EQ(std::count(knobs[i].values.begin(), knobs[i].values.end(), TuneSettings().*knobs[i].field), 1)
          << knobs[i].name;
      auto sorted = knobs[i].values;
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << knobs[i].name;
    }
    for (const unsigned size : knobs[1].values) EXPECT_LT(size, limits.chunk_size);
  }
}

TEST(Tune, FindsWhatIsFaster) {
  FakeDrive drive(rate_of_deep, {1, 1.01, 0.99});
  const Result<TuneOutcome> outcome = tune(tune_knobs(kLimits), drive.measure());
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->finalists.front().settings, TuneSettings());
  const TuneSettings expected = {.queue_depth = 64, .submit_batch = 1, .read_ahead = 16};
  EXPECT_EQ(outcome->finalists[outcome->chosen].settings, expected) << describe(expected);
  EXPECT_EQ(outcome->best(TuneDirection::kRead).settings, expected);
  for (const TuneResult& finalist : outcome->finalists)
    for (const TuneDirection direction : kTuneDirections) EXPECT_EQ(finalist.of(direction).count(), kFinalRuns);
}

TEST(Tune, GivesUpWhatCannotWin) {
  FakeDrive drive([](const TuneSettings& settings, TuneDirection) { return settings == TuneSettings() ? 1e9 : 8e8; });
  const Result<TuneOutcome> outcome = tune(tune_knobs(kLimits), drive.measure());
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_EQ(outcome->chosen, 0U);
  EXPECT_EQ(outcome->finalists.size(), 1U);
  // One run, and no step further the same way.
  for (const char* what : {"queue_depth=32 write", "queue_depth=8 read", "submit_batch=1 write", "read_ahead=4 read"})
    EXPECT_EQ(drive.runs(what), 1U) << what;
  for (const char* what : {"queue_depth=64 write", "queue_depth=4 read", "transfer_size=256K write",
                           "read_ahead=32 read", "read_ahead=4 write"})
    EXPECT_EQ(drive.runs(what), 0U) << what;
  for (const TuneResult& searched : outcome->searched)
    if (searched.settings != TuneSettings()) {
      EXPECT_TRUE(searched.of(TuneDirection::kWrite).is_given_up() || searched.of(TuneDirection::kRead).is_given_up());
    }
  // Two runs when the first could still be noise.
  FakeDrive close([](const TuneSettings& settings, TuneDirection) { return settings == TuneSettings() ? 1e9 : 9.6e8; });
  ASSERT_TRUE(tune(tune_knobs(kLimits), close.measure()).is_ok());
  EXPECT_EQ(close.runs("queue_depth=32 write"), 2U);
  EXPECT_GT(close.count(), drive.count());
}

TEST(Tune, NoiseAloneNeverBeatsTheDefault) {
  const std::vector<double> noise = {1, 0.93, 1.06, 0.97, 1.04, 0.99, 1.08, 0.9, 1.02, 0.95, 1.07};
  for (size_t shift = 0; shift < noise.size(); ++shift) {
    std::vector<double> shifted = noise;
    std::rotate(shifted.begin(), shifted.begin() + static_cast<std::ptrdiff_t>(shift), shifted.end());
    FakeDrive drive([](const TuneSettings&, TuneDirection) { return 1e9; }, shifted);
    const Result<TuneOutcome> outcome = tune(tune_knobs(kLimits), drive.measure());
    ASSERT_TRUE(outcome.is_ok());
    EXPECT_EQ(outcome->chosen, 0U) << shift << ": " << describe(outcome->finalists[outcome->chosen].settings);
  }
}

// A drive that gets slower all the time makes what is measured first look best, but for the turns.
TEST(Tune, ADriveThatGetsSlowerFavoursNobody) {
  double rate = 1e9;
  const auto measure = [&rate](const TuneSettings& settings, TuneDirection) -> Result<double> {
    rate *= 0.99;
    return rate * (settings.queue_depth > 16 ? 1.3 : 1);
  };
  const Result<TuneOutcome> outcome = tune(tune_knobs(kLimits), measure);
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_GT(outcome->finalists[outcome->chosen].settings.queue_depth, 16U);
}

TEST(Tune, AFailureEndsIt) {
  unsigned count = 0;
  const auto measure = [&count](const TuneSettings&, TuneDirection) -> Result<double> {
    if (++count == 5) return Status::error(StatusCode::kCancelled, "interrupted");
    return 1.0;
  };
  EXPECT_EQ(tune(tune_knobs(kLimits), measure).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(count, 5U);
}

TEST(TuneChoice, TheDefaultWinsTies) {
  const TuneResult standard = result({}, kHundred, kHundred);
  EXPECT_EQ(choose({standard}), 0U);
  EXPECT_EQ(choose({standard, result(kOther, kHundred, kHundred)}), 0U);
  EXPECT_EQ(choose({standard, result(kOther, {102, 102, 102, 102, 102}, kHundred)}), 0U) << "less than 3 %";
  EXPECT_EQ(choose({standard, result(kOther, {104, 104, 104, 104, 104}, kHundred)}), 1U);
  EXPECT_EQ(choose({standard, result(kOther, {20, 104, 104, 104, 104}, kHundred)}), 1U) << "somebody disturbed one";
  EXPECT_EQ(choose({standard, result(kOther, kHundred, {104, 104, 104, 104, 104})}), 1U);
  EXPECT_EQ(choose({standard, result(kOther, {90, 95, 106, 115, 120}, kHundred)}), 0U) << "within its own spread";
  EXPECT_EQ(
      choose({result({}, {80, 90, 100, 110, 120}, kHundred), result(kOther, {110, 110, 110, 110, 110}, kHundred)}), 0U)
      << "within the default's spread";
}

TEST(TuneChoice, NothingIsBoughtWithTheOtherDirection) {
  const TuneResult standard = result({}, kHundred, kHundred);
  EXPECT_EQ(choose({standard, result(kOther, {200, 200, 200, 200, 200}, {97, 97, 97, 97, 97})}), 0U);
  EXPECT_EQ(choose({standard, result(kOther, {97, 97, 97, 97, 97}, {200, 200, 200, 200, 200})}), 0U);
  EXPECT_EQ(choose({standard, result(kOther, {200, 200, 200, 200, 200}, {80, 90, 97, 110, 120})}), 0U)
      << "a wide spread excuses 2 % at most";
  EXPECT_EQ(choose({standard, result(kOther, {120, 120, 120, 120, 120}, kHundred),
                    result(kOther, {130, 130, 130, 130, 130}, kHundred)}),
            2U);
}

TEST(TuneReport, TheProfileIsOneThatTheMountReads) {
  TuneOutcome outcome;
  outcome.finalists = {result({}, kHundred, kHundred),
                       result({32, 256 * 1024, 1, 4, 16}, {200, 200, 200, 200, 200}, kHundred)};
  outcome.chosen = 1;
  const std::string text = tune_profile(outcome, "fpfs tune of a\nqueue_depth=9 \x01");
  const Result<std::vector<ProfileLine>> lines = parse_profile(text);
  ASSERT_TRUE(lines.is_ok()) << lines.status().message();
  std::string all;
  for (const ProfileLine& line : *lines) all += line.name + "=" + line.value + ";";
  EXPECT_EQ(all, "queue_depth=32;transfer_size=256K;submit_batch=1;workers=4;read_ahead=16;");
  EXPECT_NE(text.find("# write: 200 B/s (default 100 B/s)"), std::string::npos) << text;
}

TEST(TuneReport, TableAndChartHaveEverything) {
  FakeDrive drive(rate_of_deep);
  const Result<TuneOutcome> outcome = tune(tune_knobs(kLimits), drive.measure());
  ASSERT_TRUE(outcome.is_ok());
  const std::string table = tune_table(*outcome), chart = tune_chart(*outcome, "drives <a>&b\xff");
  for (const char* part : {"default", "queue_depth=32", "queue_depth=64,submit_batch=1,read_ahead=16", "chosen"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << table;
    EXPECT_NE(chart.find(part), std::string::npos) << part << chart;
  }
  EXPECT_NE(chart.find("drives &lt;a&gt;&amp;b?"), std::string::npos) << chart;
  EXPECT_TRUE(chart.starts_with("<svg ") && chart.ends_with("</svg>\n"));
  EXPECT_NE(chart.find("given up"), std::string::npos);
  EXPECT_TRUE(bar_chart("", "", {}).ends_with("</svg>\n"));
}

}  // namespace
}  // namespace fpfs::tools
