// Every call that a save and the end of a mount make fails once, with every errno that space and drives have for it.
//
// A run without a fault counts the calls; then there are runs in which one of them fails. The life goes on after it, as
// programs do: the same file is saved again, others are, directories are synced, the array is closed,
// or the power goes, or the daemon is killed. Whatever was acknowledged must be there after that, whole, and nothing
// may be unreadable: a call that failed may have done its work or a part of it, and what a failed sync left behind is
// lost although the next sync of the same file succeeds (SimStorage), as on Linux.
//
// A short run takes a third of the pairs of a call and an errno, each with one way to end; FPFS_TEST_LONG=1 all of
// them, with every way to end and more seeds.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr unsigned kMembers = 2;
constexpr int kErrors[] = {ENOSPC, EDQUOT, EIO};

bool is_long_run() {
  const char* value = std::getenv("FPFS_TEST_LONG");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

enum class Kind : uint8_t {
  kNewInline,
  kNewChunks,
  kReplaceInline,
  kReplaceChunks,
  kShare,  // with what it replaces
  kSpare,
  kChange,
  kCompaction
};
constexpr const char* kKindNames[] = {"NewInline", "NewChunks", "ReplaceInline", "ReplaceChunks",
                                      "Share",     "Spare",     "Change",        "Compaction"};

enum class End : uint8_t {
  kCut,            // the power goes
  kCutAtOnce,      // as soon as the call in which the fault was returned
  kClose,          // unmounted, mounted again
  kCloseAndCut,    // unmounted, then the power goes
  kKill,           // kill -9, mounted again; the page cache stays
  kKillWhenFails,  // the calls that fail are those of the mount after that
};
constexpr End kEnds[] = {End::kCut, End::kCutAtOnce, End::kClose, End::kCloseAndCut, End::kKill, End::kKillWhenFails};
constexpr const char* kEndNames[] = {"cut", "cut at once", "close", "close and cut", "kill", "kill, mount fails"};

bool closes(End end) {
  return end == End::kClose || end == End::kCloseAndCut;
}

// What a file was given, and what is promised of it.
struct Promised {
  std::string name;
  std::vector<Bytes> versions;  // in the order in which they were written; the first is what it begins with
  size_t acknowledged = 0;      // this one or a later one must be there
  size_t closed = 0;  // the last whose close reported nothing: acknowledged once a sync of everything succeeds
  bool may_be_absent = false;
};

struct Plan {
  Kind kind = Kind::kNewInline;
  StoreOptions::Durable durable = StoreOptions::Durable::kClose;
  End end = End::kCut;
  uint64_t call = UINT64_MAX;  // that fails, of those that match:
  SimFault::Call match = SimFault::Call::kAny;
  int error = EIO;
  uint64_t seed = 0;

  std::string describe() const {
    return fmt::format("{}, durable={}, {}, errno {} at call {}, seed {}", kKindNames[static_cast<size_t>(kind)],
                       durable == StoreOptions::Durable::kClose ? "close" : "fsync",
                       kEndNames[static_cast<size_t>(end)], error, call, seed);
  }
};

StoreOptions options_for(const Plan& plan) {
  StoreOptions options;
  options.durable = plan.durable;
  options.spare_least = 1;
  options.spare_life = {};
  if (plan.kind == Kind::kShare) options.dedup = StoreOptions::Dedup::kPrevious;
  return options;
}

bool is_inline(Kind kind) {
  return kind == Kind::kNewInline || kind == Kind::kReplaceInline || kind == Kind::kCompaction;
}

Bytes content_of(Kind kind, uint64_t salt) {
  Bytes content = make_bytes(is_inline(kind) ? 30'000 + salt : 3 * kTestChunk + 100 * salt, salt);
  if (kind == Kind::kShare) {
    const Bytes same = make_bytes(2 * kTestChunk, 99);
    std::copy(same.begin(), same.end(), content.begin());
  }
  return content;
}

// How many commits of the same size a sidecar takes before the next one compacts it.
constexpr int kCommitsToCompaction = 7;

// An array in which "a" is as the kind begins, and "other" is committed.
const SimWorld& world_for(Kind kind) {
  static std::map<Kind, SimWorld> worlds;
  if (const auto found = worlds.find(kind); found != worlds.end()) return found->second;
  Plan plan;
  plan.kind = kind;
  SimArray array(1, kMembers, options_for(plan));
  const auto save = [&array](const std::string& name, const Bytes& content, int times) {
    const std::shared_ptr<File> file = array.create(name);
    for (int i = 0; i < times; ++i) {
      EXPECT_TRUE(array.write(*file, 0, content).is_ok());
      EXPECT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
    }
  };
  save("other", content_of(Kind::kNewChunks, 1), 1);
  if (kind != Kind::kNewInline && kind != Kind::kNewChunks)
    save("a", content_of(kind, 1), kind == Kind::kCompaction ? kCommitsToCompaction : 1);
  array.world().drain();
  EXPECT_TRUE(array.close().is_ok());
  return worlds.emplace(kind, array.sim().save()).first->second;
}

class Life {
 public:
  explicit Life(const Plan& plan) : plan_(plan), array_(plan.seed, kMembers, options_for(plan), world_for(plan.kind)) {
    const bool is_new = plan.kind == Kind::kNewInline || plan.kind == Kind::kNewChunks;
    a_ = {"a", {is_new ? Bytes() : content_of(plan.kind, 1)}, 0, 0, is_new};
    other_ = {"other", {content_of(Kind::kNewChunks, 1)}, 0, 0, false};
    fresh_ = {"fresh", {Bytes()}, 0, 0, true};
    // The same calls in the same order, whatever becomes of them.
    array_.sim().reseed(plan.seed * 1'000'003 + plan.call * 1009 + static_cast<uint64_t>(plan.error));
  }

  // Lives, ends and looks. How many calls could have failed.
  uint64_t run();
  const std::string& failed_call() const { return failed_call_; }
  uint64_t compactions() { return array_.sim().index_punches(); }
  uint64_t shared() { return array_.sim().clones(); }
  uint64_t recycled() { return array_.sim().object_renames(); }

 private:
  void live();
  void end();
  void look();
  void arm() {
    array_.sim().inject({.call = plan_.match, .error = plan_.error, .filesystem = {}, .role = {}, .nth = plan_.call});
  }
  void disarm();
  bool is_over() { return plan_.end == End::kCutAtOnce && array_.sim().fault_hits() > 0; }
  void save(Promised& file, const Bytes& content, bool in_place = false, bool synced = false);
  Status try_save(Promised& file, const Bytes& content, bool in_place, bool synced);
  void acknowledge_closed();
  void check(Promised& file);

  const Plan plan_;
  SimArray array_;
  Promised a_, other_, fresh_;
  uint64_t calls_ = 0;
  std::string failed_call_ = "nothing";
};

void Life::disarm() {
  calls_ += array_.sim().fault_calls();
  if (array_.sim().fault_hits() > 0) failed_call_ = array_.sim().last_fault();
  array_.sim().clear_faults();
}

Status Life::try_save(Promised& promised, const Bytes& content, bool in_place, bool synced) {
  Result<std::shared_ptr<File>> opened = array_.try_open(promised.name);
  if (opened.status().code() == StatusCode::kNotFound) {
    Result<Store::Created> created = array_.store().create(array_.store().root(), promised.name, 0644);
    if (!created.is_ok()) return created.status();
    created->node.handle.reset();
    opened = created->file;
  }
  if (!opened.is_ok()) return opened.status();
  File& file = **opened;
  promised.versions.push_back(content);
  const size_t version = promised.versions.size() - 1;
  if (in_place) {
    const size_t begin = content.size() / 3, length = content.size() / 3;
    FPFS_RETURN_IF_ERROR(array_.write(file, begin, std::span(content).subspan(begin, length)));
  } else {
    if (file.size() > 0) FPFS_RETURN_IF_ERROR(array_.control(file, ControlRequest::Kind::kTruncate, 0));
    FPFS_RETURN_IF_ERROR(array_.write(file, 0, content));
  }
  if (plan_.durable == StoreOptions::Durable::kClose) {
    FPFS_RETURN_IF_ERROR(array_.control(file, ControlRequest::Kind::kClose));
    promised.acknowledged = promised.closed = version;
    return Status::ok();
  }
  file.closed_by_writer();
  FPFS_RETURN_IF_ERROR(file.error());
  promised.closed = version;
  if (!synced) return Status::ok();
  FPFS_RETURN_IF_ERROR(array_.commit(file));
  promised.acknowledged = version;
  return Status::ok();
}

void Life::save(Promised& promised, const Bytes& content, bool in_place, bool synced) {
  if (is_over()) return;
  static_cast<void>(try_save(promised, content, in_place, synced));
  if (plan_.durable == StoreOptions::Durable::kFsync && plan_.seed % 2 == 1)
    array_.world().run_until([] { return false; });
  array_.world().drain();
}

void Life::acknowledge_closed() {
  for (Promised* file : {&a_, &other_, &fresh_}) file->acknowledged = std::max(file->acknowledged, file->closed);
}

void Life::live() {
  const Kind shape = plan_.kind;
  if (shape == Kind::kSpare) save(a_, content_of(shape, 2));  // what it replaces becomes a spare
  if (plan_.end != End::kKillWhenFails) arm();
  Bytes next = content_of(shape, 3);
  if (shape == Kind::kChange) {
    const Bytes changed = next;
    next = a_.versions[0];
    std::copy_n(changed.begin() + static_cast<ptrdiff_t>(next.size() / 3), next.size() / 3,
                next.begin() + static_cast<ptrdiff_t>(next.size() / 3));
  }
  save(a_, next, shape == Kind::kChange, true);
  save(fresh_, content_of(shape, 4));
  save(a_, content_of(shape, 5));
  if (!is_over()) static_cast<void>(array_.store().sync_directory(array_.store().root()));
  save(other_, content_of(Kind::kNewChunks, 6));
  if (!is_over() && array_.sync_all().is_ok()) acknowledge_closed();
  save(a_, content_of(shape, 7));
  save(fresh_, content_of(shape, 8));
}

void Life::end() {
  if (closes(plan_.end)) {
    const Status closed = array_.close();
    if (closed.is_ok()) acknowledge_closed();
    disarm();
    if (plan_.end == End::kCloseAndCut) array_.world().crash();
    return;
  }
  disarm();
  if (plan_.end == End::kCut || plan_.end == End::kCutAtOnce) return array_.crash();
  array_.kill();
  if (plan_.end != End::kKillWhenFails) return;
  arm();
  if (array_.try_open_array().is_ok()) array_.kill();
  disarm();
}

void Life::check(Promised& promised) {
  const Result<std::shared_ptr<File>> file = array_.try_open(promised.name);
  if (file.status().code() == StatusCode::kNotFound && promised.may_be_absent && promised.acknowledged == 0) return;
  ASSERT_TRUE(file.is_ok()) << promised.name << " was acknowledged: " << file.status().message();
  const Result<Bytes> content = array_.read_all(**file);
  ASSERT_TRUE(content.is_ok()) << promised.name << ": " << content.status().message();
  const auto first = promised.versions.begin() + static_cast<ptrdiff_t>(promised.acknowledged);
  EXPECT_TRUE(std::find(first, promised.versions.end(), *content) != promised.versions.end())
      << promised.name << " has " << content->size() << " bytes of "
      << (std::find(promised.versions.begin(), first, *content) != first ? "an older version" : "none of its versions");
}

void Life::look() {
  ASSERT_NO_FATAL_FAILURE(array_.open());
  for (Promised* file : {&a_, &other_, &fresh_}) ASSERT_NO_FATAL_FAILURE(check(*file));
}

uint64_t Life::run() {
  EXPECT_TRUE(array_.try_open_array().is_ok());
  live();
  end();
  look();
  if (::testing::Test::HasFailure()) return calls_;
  // The array works, and what recovery made of it is on the drives.
  for (Promised* file : {&a_, &other_, &fresh_}) {
    const Status saved = try_save(*file, content_of(plan_.kind, 9), false, false);
    EXPECT_TRUE(saved.is_ok()) << saved.message();
    array_.world().drain();
  }
  EXPECT_TRUE(array_.sync_all().is_ok());
  acknowledge_closed();
  array_.crash();
  look();
  if (::testing::Test::HasFailure()) return calls_;
  EXPECT_TRUE(array_.close().is_ok());
  CheckOptions options;
  options.verify_data = true;
  const Result<CheckReport> report = check_array(array_.world(), array_.paths(), options);
  EXPECT_TRUE(report.is_ok() && report->clean())
      << (report.is_ok() ? report->errors[0].detail : report.status().message());
  return calls_;
}

class FailingCallsTest : public ::testing::TestWithParam<std::tuple<Kind, StoreOptions::Durable>> {};

using Call = SimFault::Call;

// All of one sort fail, one in each run; in a short run each pair of a call and an errno with one way to end, and of
// all sorts together every ninth pair.
void run_all(Plan plan, size_t end) {
  Life whole(plan);
  const uint64_t calls = whole.run();
  ASSERT_FALSE(::testing::Test::HasFailure()) << plan.describe();
  if (closes(plan.end) && plan.durable == StoreOptions::Durable::kClose) {
    EXPECT_TRUE(whole.compactions() > 0 || plan.kind != Kind::kCompaction);
    EXPECT_TRUE(whole.recycled() > 0 || plan.kind != Kind::kSpare);
    EXPECT_TRUE(whole.shared() > 0 || plan.kind != Kind::kShare);
  }
  for (plan.call = 1; plan.call <= calls; ++plan.call) {
    for (size_t i = 0; i < std::size(kErrors); ++i) {
      const uint64_t pair = plan.call * std::size(kErrors) + i + static_cast<size_t>(plan.kind);
      const bool is_chosen = plan.match != Call::kAny || pair % 9 == 0;
      const bool ends_so = plan.end == End::kKillWhenFails || pair % (std::size(kEnds) - 1) == end;
      if (!is_long_run() && !(is_chosen && ends_so)) continue;
      plan.error = kErrors[i];
      Life life(plan);
      life.run();
      ASSERT_FALSE(::testing::Test::HasFailure()) << plan.describe() << ": " << life.failed_call();
    }
  }
}

TEST_P(FailingCallsTest, NothingAcknowledgedIsLost) {
  const auto [kind, durable] = GetParam();
  const uint64_t seeds = is_long_run() ? 20 : 1;
  for (uint64_t seed = 0; seed < seeds; ++seed)
    for (size_t end = 0; end < std::size(kEnds); ++end)
      for (const Call match : {Call::kSyncFilesystem, Call::kSyncFile, Call::kSyncDirectory, Call::kAny}) {
        // A mount after a crash makes thousands of calls.
        if (kEnds[end] == End::kKillWhenFails && match != Call::kSyncFilesystem && !is_long_run()) continue;
        run_all({.kind = kind, .durable = durable, .end = kEnds[end], .match = match, .seed = seed}, end);
        if (HasFailure()) return;
      }
}

// Whoever saves again after a first save that failed finds the name, and is promised it.
TEST(FailedFirstSaveTest, NameOfAFailedFirstSaveIsMadeDurableWithTheNext) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SimArray array(seed, kMembers);
    const Bytes content = make_bytes(3 * kTestChunk, seed);
    std::shared_ptr<File> file = array.create("a");
    array.sim().inject({.call = Call::kSyncFile, .error = ENOSPC, .filesystem = {}, .role = SimRole::kObjects});
    ASSERT_TRUE(array.write(*file, 0, content).is_ok());
    ASSERT_FALSE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
    array.sim().clear_faults();
    file.reset();
    array.world().drain();
    file = array.open("a");
    ASSERT_TRUE(array.write(*file, 0, content).is_ok());
    ASSERT_TRUE(array.control(*file, ControlRequest::Kind::kClose).is_ok());
    file.reset();
    array.crash();
    array.open();
    const Result<std::shared_ptr<File>> opened = array.try_open("a");
    ASSERT_TRUE(opened.is_ok()) << "seed " << seed << ": " << opened.status().message();
    const Result<Bytes> read = array.read_all(**opened);
    EXPECT_TRUE(read.is_ok() && *read == content);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Saves, FailingCallsTest,
    ::testing::Combine(::testing::Values(Kind::kNewInline, Kind::kNewChunks, Kind::kReplaceInline, Kind::kReplaceChunks,
                                         Kind::kShare, Kind::kSpare, Kind::kChange, Kind::kCompaction),
                       ::testing::Values(StoreOptions::Durable::kClose, StoreOptions::Durable::kFsync)),
    [](const auto& test) {
      return std::string(kKindNames[static_cast<size_t>(std::get<0>(test.param))]) +
             (std::get<1>(test.param) == StoreOptions::Durable::kClose ? "Close" : "Fsync");
    });

}  // namespace
}  // namespace fpfs::test
