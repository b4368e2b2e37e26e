// Whose close ends a save (engine/file/writer.h), and what nobody's does: each test ends with the power going or with
// the end of the array, and looks at what is there then.
#include <gtest/gtest.h>

#include <chrono>
#include <list>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

using Kind = ControlRequest::Kind;
using Unfinished = ControlRequest::Unfinished;
using Durable = StoreOptions::Durable;

// Processes: what a close says of itself. A write says half of it, depending on its way.
constexpr Actor kSaver{0xa1, 101}, kChild{0xa2, 102}, kOther{0xa3, 103};

Actor past_cache(const Actor& process) {
  return {process.owner, 0};
}
Actor by_cache(const Actor& process) {
  return {0, process.process};
}

// An open file description.
struct Opened {
  Opened(std::shared_ptr<File> opened, const Writer::Description& description)
      : file(std::move(opened)), writer(description) {
    file->attach(writer);
  }
  std::shared_ptr<File> file;
  Writer writer;
};

enum class Shape : uint8_t { kInline, kChunks };

class WritersTest : public ::testing::TestWithParam<std::tuple<uint64_t, Shape>> {
 protected:
  using Write = SimArray::Answer<WriteRequest>;
  using Control = SimArray::Answer<ControlRequest>;

  WritersTest() { start(Durable::kClose); }
  ~WritersTest() override { leave(); }

  // Trickles are committed when a test asks for it.
  void start(Durable durable, unsigned interval_ms = 0, unsigned idle_ms = 0) {
    StoreOptions options;
    options.durable = durable;
    options.commit_interval_ms = interval_ms;
    options.commit_idle_ms = idle_ms;
    leave();
    array_ = std::make_unique<SimArray>(std::get<uint64_t>(GetParam()), 3, options);
  }

  static Bytes content(uint64_t salt) {
    return make_bytes(std::get<Shape>(GetParam()) == Shape::kInline ? 20'000 + salt : 3 * kTestChunk + 100 * salt,
                      salt);
  }
  static Bytes half_of(Bytes bytes) {
    bytes.resize(bytes.size() / 2);
    return bytes;
  }

  // --- descriptions ----------------------------------------------------------------------------------------------
  Opened& open(const std::string& name, const Actor& opener, bool may_map = false, bool appends = false) {
    return opened_.emplace_back(
        array_->open(name), Writer::Description{.opener = by_cache(opener), .may_map = may_map, .appends = appends});
  }
  Opened& create(const std::string& name, const Actor& opener, bool appends = false) {
    return opened_.emplace_back(array_->create(name),
                                Writer::Description{.opener = by_cache(opener), .appends = appends, .is_new = true});
  }
  // O_TMPFILE.
  Opened& create_unnamed(const Actor& opener) {
    Result<Store::Created> created = array_->store().create_unnamed(array_->store().root(), 0600);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    unnamed_ = std::move(created->node.handle);
    return opened_.emplace_back(std::move(created->file),
                                Writer::Description{.opener = by_cache(opener), .is_new = true});
  }
  // After its last close. True: something is left to commit.
  bool release(Opened& opened) {
    const bool ends = opened.file->detach(opened.writer);
    opened_.remove_if([&opened](const Opened& entry) { return &entry == &opened; });
    return ends;
  }
  void leave() {
    while (!opened_.empty()) static_cast<void>(release(opened_.front()));
    unnamed_.reset();
    filler_.reset();
  }

  // --- calls -----------------------------------------------------------------------------------------------------
  void begin(Write& write, Opened& opened, const Actor& actor, uint64_t offset, const Bytes& bytes) {
    write.request.offset = FileOffset(offset);
    write.request.length = static_cast<uint32_t>(bytes.size());
    write.request.data = bytes.data();
    write.request.origin = {&opened.writer, actor, false};
    opened.file->write(write.request);
  }
  Status write(Opened& opened, const Actor& actor, uint64_t offset, const Bytes& bytes) {
    Write write;
    begin(write, opened, actor, offset, bytes);
    return array_->wait(write);
  }
  // A page of a mapping that the kernel writes back through `opened`.
  Status write_back(Opened& opened, uint64_t offset, const Bytes& bytes) {
    Write write;
    write.request.offset = FileOffset(offset);
    write.request.length = static_cast<uint32_t>(bytes.size());
    write.request.data = bytes.data();
    write.request.origin = {&opened.writer, {}, true};
    opened.file->write(write.request);
    return array_->wait(write);
  }
  void begin_close(Control& close, Opened& opened, const Actor& process, bool killed = false) {
    close.request.kind = Kind::kClose;
    close.request.origin = {&opened.writer, process, false};
    close.request.killed = killed;
    opened.file->control(close.request);
  }
  Status close(Opened& opened, const Actor& process) {
    Control close;
    begin_close(close, opened, process);
    return array_->wait(close);
  }
  // The close of a process that a signal ends.
  Status close_killed(Opened& opened, const Actor& process, bool& was_reverted) {
    Control close;
    begin_close(close, opened, process, true);
    const Status status = array_->wait(close);
    was_reverted = close.request.was_reverted;
    return status;
  }
  void begin_truncate(Control& truncate, Opened& opened) {
    truncate.request.kind = Kind::kTruncate;
    truncate.request.origin = {&opened.writer, opened.writer.description().opener, false};
    opened.file->control(truncate.request);
  }
  void truncate(Opened& opened) {
    Control truncate;
    begin_truncate(truncate, opened);
    ASSERT_TRUE(array_->wait(truncate).is_ok());
  }
  void fsync(Opened& opened) { ASSERT_TRUE(array_->commit(*opened.file).is_ok()); }
  // `fpfs sync`: the files that it left alone.
  std::vector<std::string> sync_everything() {
    std::optional<Store::CommitOutcome> outcome;
    array_->store().commit_all(Kind::kCommit, Unfinished::kTricklesCommitted,
                               [&outcome](const Store::CommitOutcome& result) { outcome = result; });
    EXPECT_TRUE(array_->world().run_until([&outcome] { return outcome.has_value(); }));
    EXPECT_TRUE(outcome.has_value() && outcome->status.is_ok());
    return outcome.has_value() ? outcome->unfinished : std::vector<std::string>();
  }

  // --- scenes ----------------------------------------------------------------------------------------------------
  void save(const std::string& name, const Bytes& bytes) {
    Opened& opened = create(name, kSaver);
    ASSERT_TRUE(write(opened, past_cache(kSaver), 0, bytes).is_ok());
    fsync(opened);
    ASSERT_TRUE(close(opened, kSaver).is_ok());
    EXPECT_FALSE(release(opened));
    array_->world().drain();
  }
  // The saver opens it with O_TRUNC and writes.
  Opened& replace(const std::string& name, const Bytes& bytes) {
    Opened& opened = open(name, kSaver);
    truncate(opened);
    EXPECT_TRUE(write(opened, past_cache(kSaver), 0, bytes).is_ok());
    return opened;
  }
  // The saver of "a", which holds `committed`, is killed while it replaces that. What is written right behind it stays.
  void expect_kept_when_written_after_a_killed_replacement(Opened& opened, Bytes committed) {
    truncate(opened);
    ASSERT_TRUE(write(opened, past_cache(kSaver), 0, half_of(content(2))).is_ok());
    bool was_reverted = false;
    EXPECT_TRUE(close_killed(opened, kSaver, was_reverted).is_ok());
    EXPECT_TRUE(was_reverted);

    const Bytes last = make_bytes(kTestChunk, 9);
    ASSERT_TRUE(write(opened, past_cache(kSaver), 0, last).is_ok());
    std::copy(last.begin(), last.end(), committed.begin());
    fsync(opened);
    EXPECT_TRUE(close(opened, kSaver).is_ok());
    EXPECT_FALSE(release(opened));
    array_->world().drain();
    expect_after_cut("a", committed);
    EXPECT_TRUE(end(true).is_ok());
    check();
  }
  // Takes all buffers, until the world goes on.
  void fill_pool() {
    filler_ = array_->create("filler");
    for (unsigned i = 0; i < std::size(fillers_); ++i) {
      fillers_[i].request.offset = FileOffset(i * uint64_t{kRequestBytesMax});
      fillers_[i].request.length = kRequestBytesMax;
      fillers_[i].request.data = filling_.data();
      filler_->write(fillers_[i].request);
    }
    ASSERT_FALSE(fillers_[2].answered) << "the pool is larger than this test knows";
  }
  void pass(unsigned milliseconds) {
    bool passed = false;
    array_->world().executor().post_after(std::chrono::milliseconds(milliseconds), [&passed] { passed = true; });
    ASSERT_TRUE(array_->world().run_until([&passed] { return passed; }));
    array_->world().drain();
  }
  // Long enough for background commits. What these leave in the page cache, in a sidecar, the kernel writes back.
  void pass_and_write_back(Opened& opened) {
    pass(10'000);
    if (!opened.file->info().is_inline) return;
    ASSERT_TRUE(array_->sync_all().is_ok());
  }
  // The end of the array, as a mount ends: with handles that are still there, or after it took them away.
  Status end(bool cuts_off) {
    while (cuts_off && !opened_.empty()) {
      opened_.front().file->cut_off(opened_.front().writer);
      opened_.pop_front();
    }
    std::optional<Status> ended;
    array_->store().close_async([&ended](const Status& status) { ended = status; });
    EXPECT_TRUE(array_->world().run_until([&ended] { return ended.has_value(); }));
    left_clean_ = array_->store().left_clean();
    leave();
    array_->kill();
    return ended.value_or(Status::error(StatusCode::kSystem, "no answer"));
  }
  void cut() {
    leave();
    array_->crash();
    array_->open();
  }

  uint64_t commits() { return array_->store().status().commits; }
  Result<Bytes> read(const std::string& name) {
    FPFS_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, array_->try_open(name));
    return array_->read_all(*file);
  }
  void expect(const std::string& name, const Bytes& bytes) {
    const Result<Bytes> found = read(name);
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    EXPECT_EQ(found->size(), bytes.size());
    EXPECT_TRUE(*found == bytes) << name;
  }
  void expect_after_cut(const std::string& name, const Bytes& bytes) {
    cut();
    expect(name, bytes);
  }
  void check() {
    CheckOptions options;
    options.verify_data = true;
    const Result<CheckReport> report = check_array(array_->world(), array_->paths(), options);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    for (const CheckError& error : report->errors)
      ADD_FAILURE() << error.path << " " << error.kind << " " << error.detail;
  }

  const Bytes filling_ = make_bytes(kRequestBytesMax, 99);
  std::unique_ptr<SimArray> array_;
  std::list<Opened> opened_;
  std::shared_ptr<File> filler_;
  NodeHandle unnamed_;  // the node of create_unnamed()
  Write fillers_[3];
  bool left_clean_ = false;
};

// --- writes that wait -----------------------------------------------------------------------------------------------

TEST_P(WritersTest, ACloseCoversAWriteThatWaitsForABuffer) {
  const Bytes bytes = content(1);
  Opened& opened = create("a", kSaver);
  fill_pool();
  Write write;
  begin(write, opened, past_cache(kSaver), 0, bytes);
  Control first;
  begin_close(first, opened, kSaver);  // of one of two descriptors
  ASSERT_FALSE(write.answered);
  EXPECT_TRUE(array_->wait(first).is_ok());
  EXPECT_TRUE(write.answered) << "the close was answered before the write that it covers";
  EXPECT_TRUE(array_->wait(write).is_ok());
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  expect_after_cut("a", bytes);
}

// It is not in the engine yet when the close before it takes its turn, and so it is the next one's.
TEST_P(WritersTest, TheLastCloseCoversAWriteThatWaitedBehindACommit) {
  const Bytes bytes = content(1), more = make_bytes(1'000, 2);
  Opened& opened = create("a", kSaver);
  fill_pool();
  Write waits_for_buffer, waits_for_commit;
  begin(waits_for_buffer, opened, past_cache(kSaver), 0, bytes);
  Control commit, first;
  opened.file->control(commit.request);
  begin_close(first, opened, kSaver);
  begin(waits_for_commit, opened, past_cache(kSaver), bytes.size(), more);
  ASSERT_FALSE(waits_for_buffer.answered || waits_for_commit.answered);
  EXPECT_TRUE(array_->wait(first).is_ok());
  EXPECT_TRUE(waits_for_buffer.answered);
  EXPECT_TRUE(array_->wait(commit).is_ok());
  EXPECT_TRUE(array_->wait(waits_for_commit).is_ok());
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  Bytes whole = bytes;
  whole.insert(whole.end(), more.begin(), more.end());
  expect_after_cut("a", whole);
}

// --- pages of mappings ----------------------------------------------------------------------------------------------

TEST_P(WritersTest, PagesOfAMappingAreCoveredByTheCloseOfAnyWhoMayHaveMapped) {
  save("a", content(1));
  const Bytes page = make_bytes(4096, 2);
  Bytes changed = content(1);
  std::copy(page.begin(), page.end(), changed.begin() + 8192);
  Opened& saver = open("a", kSaver, true);
  Opened& other = open("a", kOther, true);
  Opened& unmapped = open("a", kOther);
  ASSERT_TRUE(write_back(other, 8192, page).is_ok());
  const uint64_t before = commits();
  EXPECT_TRUE(close(saver, kChild).is_ok());
  EXPECT_TRUE(close(unmapped, kOther).is_ok());
  EXPECT_EQ(commits(), before) << "neither of them can have made a page";
  EXPECT_TRUE(close(saver, kSaver).is_ok());
  expect_after_cut("a", changed);
}

TEST_P(WritersTest, PagesOfAMappingThatOutlivesItsDescriptorsAreLeftToTheEndOfTheHandle) {
  save("a", content(1));
  const Bytes page = make_bytes(4096, 2);
  Bytes changed = content(1);
  std::copy(page.begin(), page.end(), changed.begin());
  Opened& opened = open("a", kSaver, true);
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  ASSERT_TRUE(write_back(opened, 0, page).is_ok());
  std::shared_ptr<File> file = opened.file;
  EXPECT_TRUE(release(opened));
  Control commit;
  commit.request.kind = Kind::kClose;
  commit.request.unfinished = Unfinished::kLeftAlone;
  file->control(commit.request);
  EXPECT_TRUE(array_->wait(commit).is_ok());
  file.reset();
  expect_after_cut("a", changed);
}

// --- who closes -----------------------------------------------------------------------------------------------------

TEST_P(WritersTest, ACloseByWhoWroteNothingCommitsNothing) {
  for (const bool cached : {false, true}) {
    start(Durable::kClose);
    save("a", content(1));
    Opened& opened = open("a", kSaver, true);
    truncate(opened);
    const Bytes whole = content(2);
    const Actor writer = cached ? by_cache(kSaver) : past_cache(kSaver);
    ASSERT_TRUE(write(opened, writer, 0, half_of(whole)).is_ok());
    const uint64_t before = commits();
    EXPECT_TRUE(close(opened, kChild).is_ok());
    Opened& second = open("a", kSaver);
    EXPECT_TRUE(close(second, kSaver).is_ok()) << "through another description";
    EXPECT_FALSE(release(second));
    EXPECT_EQ(commits(), before);
    if (std::get<uint64_t>(GetParam()) % 2 == 0) {
      expect_after_cut("a", content(1));
      continue;
    }
    const Bytes rest(whole.begin() + std::ssize(half_of(whole)), whole.end());
    ASSERT_TRUE(write(opened, writer, half_of(whole).size(), rest).is_ok());
    EXPECT_TRUE(close(opened, kSaver).is_ok());
    EXPECT_EQ(commits(), before + 1);
    expect_after_cut("a", whole);
  }
}

// The child of a dead writer, say, with the number that the writer had.
TEST_P(WritersTest, ALockOwnerThatComesAgainEndsNothing) {
  save("a", content(1));
  Opened& opened = replace("a", content(2));
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  truncate(opened);  // by the opener's process number
  fsync(opened);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, content(3)).is_ok());
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  ASSERT_TRUE(write(opened, past_cache(kOther), 0, half_of(content(4))).is_ok());
  const uint64_t before = commits();
  EXPECT_TRUE(close(opened, {kSaver.owner, kChild.process}).is_ok());
  EXPECT_EQ(commits(), before);
  expect_after_cut("a", content(3));
}

// What a commit has covered is finished, also when somebody else wrote while it was on its way.
TEST_P(WritersTest, AWriterWhoseChangesAreCommittedEndsNothing) {
  save("a", content(1));
  Opened& opened = replace("a", content(2));
  Control commit;
  opened.file->control(commit.request);
  Write write;
  const Bytes half = half_of(content(3));
  begin(write, opened, past_cache(kOther), 0, half);
  EXPECT_TRUE(array_->wait(commit).is_ok());
  EXPECT_TRUE(array_->wait(write).is_ok());
  const uint64_t before = commits();
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  EXPECT_EQ(commits(), before);
  EXPECT_TRUE(opened.file->is_dirty());
  expect_after_cut("a", content(2));
}

// And is in nobody's way either.
TEST_P(WritersTest, AWriterWhoseChangesAreCommittedKeepsNobodyFromFinishing) {
  start(Durable::kFsync);
  save("a", content(1));
  Opened& opened = replace("a", content(2));
  Control commit;
  opened.file->control(commit.request);
  Write write;
  Bytes whole = content(2);
  const Bytes piece = make_bytes(5'000, 3);
  std::copy(piece.begin(), piece.end(), whole.begin());
  begin(write, opened, past_cache(kOther), 0, piece);
  EXPECT_TRUE(array_->wait(commit).is_ok());
  EXPECT_TRUE(array_->wait(write).is_ok());
  opened.file->closed_by_writer({&opened.writer, kOther, false});
  pass_and_write_back(opened);
  EXPECT_FALSE(opened.file->is_dirty());
  expect_after_cut("a", whole);
}

// --- killed savers --------------------------------------------------------------------------------------------------

// What a commit has left to free is freed behind it. A place that waits for that is nobody's until then, also when the
// file went back to what that commit recorded.
TEST_P(WritersTest, WhatIsWrittenAfterAReplacementThatWasGivenUpIsNotFreed) {
  if (std::get<Shape>(GetParam()) == Shape::kInline) return;  // no place is freed
  save("a", content(1));
  Opened& opened = open("a", kSaver);
  Bytes expected = content(1);
  const Bytes chunk = make_bytes(kTestChunk, 7);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, chunk).is_ok());
  std::copy(chunk.begin(), chunk.end(), expected.begin());
  fsync(opened);  // the place of the first chunk 0 is about to be freed
  expect_kept_when_written_after_a_killed_replacement(opened, expected);
}

// Nor does what was on its way to its objects when the replacement began arrive behind what is written afterwards.
TEST_P(WritersTest, WhatIsWrittenAfterAReplacementThatWasGivenUpIsNotOverwritten) {
  if (std::get<Shape>(GetParam()) == Shape::kInline) return;  // nothing goes to an object
  save("a", content(1));
  Opened& opened = open("a", kSaver);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, make_bytes(kTestChunk, 7)).is_ok());  // full, so it is on its way
  expect_kept_when_written_after_a_killed_replacement(opened, content(1));
}

// Nor does it keep its space, when nobody writes afterwards.
TEST_P(WritersTest, WhatWasWrittenBeforeAReplacementThatWasGivenUpIsFreed) {
  if (std::get<Shape>(GetParam()) == Shape::kInline) return;  // nothing goes to an object
  save("a", content(1));
  Opened& opened = open("a", kSaver);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, make_bytes(7 * kTestChunk, 7)).is_ok());
  array_->world().drain();
  truncate(opened);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, half_of(content(2))).is_ok());
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(opened, kSaver, was_reverted).is_ok());
  EXPECT_TRUE(was_reverted);
  EXPECT_FALSE(release(opened));
  array_->world().drain();
  expect("a", content(1));
  EXPECT_TRUE(end(true).is_ok());
  check();
}

TEST_P(WritersTest, AKilledSaverLeavesTheOldContent) {
  save("a", content(1));
  Opened& opened = replace("a", half_of(content(2)));
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(opened, kSaver, was_reverted).is_ok());
  EXPECT_TRUE(was_reverted);
  expect("a", content(1));
  EXPECT_FALSE(opened.file->is_dirty());
  EXPECT_FALSE(release(opened));
  if (std::get<uint64_t>(GetParam()) % 2 == 0) {
    expect("a", content(1));
    ASSERT_TRUE(array_->commit(*array_->open("a")).is_ok());
  }
  expect_after_cut("a", content(1));
  // It can be saved again, and nothing of the half is left.
  Opened& again = replace("a", content(3));
  EXPECT_TRUE(close(again, kSaver).is_ok());
  EXPECT_TRUE(end(true).is_ok());
  check();
  array_->open();
  expect("a", content(3));
}

TEST_P(WritersTest, WithoutTheSignalItIsAClose) {  // killed_saver=commit
  save("a", content(1));
  Opened& opened = replace("a", half_of(content(2)));
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  expect_after_cut("a", half_of(content(2)));
}

TEST_P(WritersTest, AKilledWriterOfANewFileKeepsWhatWasWritten) {
  Opened& opened = create("a", kSaver);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, content(1)).is_ok());
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(opened, kSaver, was_reverted).is_ok());
  EXPECT_FALSE(was_reverted);
  expect_after_cut("a", content(1));
}

TEST_P(WritersTest, AKilledProcessThatWroteNothingGivesNothingUp) {
  save("a", content(1));
  Opened& opened = replace("a", content(2));
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(opened, kChild, was_reverted).is_ok());
  EXPECT_FALSE(was_reverted);
  expect("a", content(2));
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  expect_after_cut("a", content(2));
}

// It wrote to what was committed since, and may have mapped; another has begun a save since then.
TEST_P(WritersTest, AKilledProcessOfTheSaveBeforeGivesNothingUp) {
  save("a", content(1));
  Opened& opened = open("a", kSaver, true);
  ASSERT_TRUE(write(opened, by_cache(kChild), 0, make_bytes(1'000, 2)).is_ok());
  fsync(opened);
  ASSERT_TRUE(write_back(opened, 8192, make_bytes(4096, 3)).is_ok());
  truncate(opened);
  const Bytes whole = content(4);
  ASSERT_TRUE(write(opened, by_cache(kSaver), 0, half_of(whole)).is_ok());
  const uint64_t before = commits();
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(opened, kChild, was_reverted).is_ok());
  EXPECT_FALSE(was_reverted);
  EXPECT_TRUE(close(opened, kChild).is_ok());
  EXPECT_EQ(commits(), before) << "half of another's save";
  expect("a", half_of(whole));
  const Bytes rest(whole.begin() + std::ssize(half_of(whole)), whole.end());
  ASSERT_TRUE(write(opened, by_cache(kSaver), half_of(whole).size(), rest).is_ok());
  EXPECT_TRUE(close(opened, kSaver).is_ok());
  expect_after_cut("a", whole);
}

TEST_P(WritersTest, WhenOneOfSeveralSaversIsKilledTheOthersAreTold) {
  for (const bool same_description : {true, false}) {
    start(Durable::kClose);
    save("a", content(1));
    Opened& opened = replace("a", half_of(content(2)));
    Opened& other = same_description ? opened : open("a", kOther);
    ASSERT_TRUE(write(other, past_cache(kOther), 10'000, make_bytes(1'000, 3)).is_ok());
    bool was_reverted = false;
    EXPECT_EQ(close_killed(opened, kSaver, was_reverted).code(), StatusCode::kIoError);
    EXPECT_TRUE(was_reverted);
    EXPECT_EQ(write(other, past_cache(kOther), 0, make_bytes(10, 3)).code(), StatusCode::kIoError);
    EXPECT_EQ(close(other, kOther).code(), StatusCode::kIoError);
    leave();
    array_->world().drain();
    expect("a", content(1));
    expect_after_cut("a", content(1));
  }
}

// What is given up is what came after the save before, which is still on its way.
TEST_P(WritersTest, AKilledSaverDoesNotHarmTheSaveBefore) {
  save("a", content(1));
  Opened& first = replace("a", content(2));
  Opened& second = open("a", kOther);
  Control finished, truncated;
  begin_close(finished, first, kSaver);
  begin_truncate(truncated, second);
  EXPECT_TRUE(array_->wait(truncated).is_ok());
  ASSERT_TRUE(write(second, past_cache(kOther), 0, half_of(content(3))).is_ok());
  bool was_reverted = false;
  EXPECT_TRUE(close_killed(second, kOther, was_reverted).is_ok());
  EXPECT_TRUE(was_reverted);
  EXPECT_TRUE(array_->wait(finished).is_ok());
  expect("a", content(2));
  expect_after_cut("a", content(2));
}

// --- trickles -------------------------------------------------------------------------------------------------------

TEST_P(WritersTest, ATrickleIsCommittedEveryInterval) {
  start(Durable::kClose, 30'000, 0);
  Opened& log = create("log", kSaver, std::get<uint64_t>(GetParam()) % 2 == 0);
  const Bytes line = make_bytes(80, 1);
  Bytes lines;
  for (unsigned second = 0; second < 45; ++second) {
    ASSERT_TRUE(write(log, past_cache(kSaver), lines.size(), line).is_ok());
    lines.insert(lines.end(), line.begin(), line.end());
    pass(1'000);
  }
  cut();
  const Result<Bytes> found = read("log");
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_GE(found->size(), 14 * line.size());
  EXPECT_EQ(found->size() % line.size(), 0u);
  EXPECT_TRUE(std::equal(found->begin(), found->end(), lines.begin()));
}

// A machine that starts with a wrong clock may mount before it is set right.
TEST_P(WritersTest, ATrickleIsCommittedAlsoWhenTheClockGoesBack) {
  start(Durable::kClose, 30'000, 0);
  Opened& log = create("log", kSaver);
  Bytes lines;
  const auto write_line = [&](size_t length) {
    const Bytes line = make_bytes(length, lines.size());
    ASSERT_TRUE(write(log, past_cache(kSaver), lines.size(), line).is_ok());
    lines.insert(lines.end(), line.begin(), line.end());
    pass(35'000);
  };
  ASSERT_TRUE(write(log, past_cache(kSaver), 0, make_bytes(80, 1)).is_ok());
  lines = make_bytes(80, 1);
  array_->world().turn_clock_back(std::chrono::hours(1));
  pass(35'000);
  EXPECT_FALSE(log.file->is_dirty());
  // Nor is it taken for a stream: never more than a chunk comes within the interval.
  write_line(kTestChunk / 2);
  array_->world().turn_clock_back(std::chrono::hours(1));
  write_line(kTestChunk / 2);
  write_line(kTestChunk / 2);
  write_line(kTestChunk / 2);
  EXPECT_FALSE(log.file->is_dirty());
  expect_after_cut("log", lines);
}

TEST_P(WritersTest, ATrickleIsCommittedWhenIdle) {
  start(Durable::kClose, 0, 5'000);
  Opened& log = create("log", kSaver);
  ASSERT_TRUE(write(log, past_cache(kSaver), 0, make_bytes(80, 1)).is_ok());
  pass(7'000);
  EXPECT_FALSE(log.file->is_dirty());
  expect_after_cut("log", make_bytes(80, 1));
}

TEST_P(WritersTest, ATrickleIsNotCommittedByItselfWhenThatIsOff) {
  save("a", content(1));
  Opened& opened = open("a", kSaver, false, true);
  ASSERT_TRUE(write(opened, past_cache(kSaver), content(1).size(), make_bytes(80, 1)).is_ok());
  pass(100'000);
  EXPECT_TRUE(opened.file->is_dirty());
  expect_after_cut("a", content(1));
}

TEST_P(WritersTest, AStreamIsNotCommittedHoweverLongItPauses) {
  start(Durable::kClose, 30'000, 5'000);
  save("a", content(1));
  save("b", content(2));
  Opened& stream = replace("a", make_bytes(kTestChunk + 1, 3));
  // Beside a stream a trickle to the same file waits, too.
  Opened& beside = replace("b", make_bytes(kTestChunk + 1, 4));
  Opened& trickle = open("b", kOther, false, true);
  const uint64_t before = commits();
  for (unsigned i = 0; i < 5; ++i) {
    pass(25'000);
    ASSERT_TRUE(write(stream, past_cache(kSaver), kTestChunk + 1 + 80 * i, make_bytes(80, i)).is_ok());
    ASSERT_TRUE(write(trickle, past_cache(kOther), kTestChunk + 1 + 80 * i, make_bytes(80, i)).is_ok());
  }
  pass(100'000);
  EXPECT_EQ(commits(), before);
  EXPECT_TRUE(beside.file->is_dirty());
  cut();
  expect("a", content(1));
  expect("b", content(2));
}

TEST_P(WritersTest, ALongLogThatIsAppendedToIsATrickle) {
  start(Durable::kClose, 30'000, 5'000);
  Opened& log = create("log", kSaver, true);
  const Bytes bytes = make_bytes(2 * kTestChunk, 1);
  ASSERT_TRUE(write(log, past_cache(kSaver), 0, bytes).is_ok());
  pass(7'000);
  expect_after_cut("log", bytes);
}

// --- what is nobody's close -----------------------------------------------------------------------------------------

TEST_P(WritersTest, TheEndOfTheArrayCommitsNoHalf) {
  for (const bool cuts_off : {true, false}) {
    start(Durable::kClose, 30'000, 0);
    save("a", content(1));
    save("b", content(2));
    replace("a", make_bytes(kTestChunk + 1, 3));
    EXPECT_TRUE(close(replace("b", content(4)), kSaver).is_ok());
    ASSERT_TRUE(write(create("log", kSaver), past_cache(kSaver), 0, make_bytes(80, 5)).is_ok());
    EXPECT_EQ(end(cuts_off).code(), StatusCode::kBusy);
    EXPECT_FALSE(left_clean_);
    array_->open();
    EXPECT_TRUE(array_->store().recovery().was_dirty);
    expect("a", content(1));
    expect("b", content(4));
    expect("log", make_bytes(80, 5));
    EXPECT_TRUE(end(true).is_ok());
    check();
  }
}

// The file stays open, and nothing but its index remembers it once its handles were taken away.
TEST_P(WritersTest, TheEndOfTheArrayGivesBackWhatAnFsyncLeft) {
  for (const bool cuts_off : {true, false}) {
    start(Durable::kClose);
    Opened& opened = create("a", kSaver);
    Room::Sent sent;
    bool in_flight = false;
    ASSERT_TRUE(opened.file->reserve(FileOffset(0), 2 * kMiB, sent, in_flight).is_ok());
    ASSERT_TRUE(write(opened, past_cache(kSaver), 0, content(1)).is_ok());
    fsync(opened);
    EXPECT_TRUE(end(cuts_off).is_ok());
    EXPECT_TRUE(left_clean_);
    check();
    array_->open();
    EXPECT_FALSE(array_->store().recovery().was_dirty);
    expect("a", content(1));
  }
}

// `fpfs sync`.
TEST_P(WritersTest, ASyncOfEverythingLeavesWhatIsBeingWritten) {
  start(Durable::kClose, 30'000, 0);
  save("a", content(1));
  save("b", content(2));
  Opened& opened = replace("a", make_bytes(kTestChunk + 1, 3));
  ASSERT_TRUE(write(create("log", kSaver), past_cache(kSaver), 0, make_bytes(80, 5)).is_ok());
  Bytes shorter = content(2);
  shorter.resize(10'000);
  ASSERT_TRUE(array_->control(*array_->open("b"), Kind::kTruncate, shorter.size()).is_ok());
  EXPECT_EQ(sync_everything(), std::vector<std::string>{opened.file->path()});
  // And so does a sync of that file alone.
  Control sync;
  sync.request.unfinished = Unfinished::kTricklesCommitted;
  opened.file->control(sync.request);
  EXPECT_TRUE(array_->wait(sync).is_ok());
  EXPECT_TRUE(sync.request.was_left_alone);
  const bool finishes = std::get<uint64_t>(GetParam()) % 2 == 0;
  if (finishes) {
    EXPECT_TRUE(close(opened, kSaver).is_ok());
  }
  cut();
  expect("a", finishes ? make_bytes(kTestChunk + 1, 3) : content(1));
  expect("b", shorter);
  expect("log", make_bytes(80, 5));
}

// A file without a name (O_TMPFILE) gets one later, and what is durable of it then is what a power cut shows.
TEST_P(WritersTest, ASyncOfEverythingLeavesAFileWithoutANameThatIsBeingWritten) {
  start(Durable::kClose, 30'000, 0);
  Opened& opened = create_unnamed(kSaver);
  const Bytes whole = make_bytes(2 * kTestChunk + 2, 3), half = half_of(whole);
  ASSERT_TRUE(write(opened, past_cache(kSaver), 0, half).is_ok());
  EXPECT_EQ(sync_everything(), std::vector<std::string>{opened.file->path()});
  ASSERT_TRUE(array_->store().link(unnamed_.get(), array_->store().root(), "a").is_ok());
  const bool finishes = std::get<uint64_t>(GetParam()) % 2 == 0;
  if (finishes) {
    const Bytes rest(whole.begin() + std::ssize(half), whole.end());
    ASSERT_TRUE(write(opened, past_cache(kSaver), half.size(), rest).is_ok());
    EXPECT_TRUE(close(opened, kSaver).is_ok());
    expect_after_cut("a", whole);
    return;
  }
  // Its name may have become durable, no byte of its half.
  cut();
  const Result<Bytes> found = read("a");
  EXPECT_TRUE(!found.is_ok() || found->empty()) << found->size();
}

// And its half is nothing that the end of the array would leave.
TEST_P(WritersTest, TheEndOfTheArrayForgetsAFileWithoutAName) {
  start(Durable::kClose, 30'000, 0);
  ASSERT_TRUE(write(create_unnamed(kSaver), past_cache(kSaver), 0, half_of(content(3))).is_ok());
  EXPECT_TRUE(end(true).is_ok());
  EXPECT_TRUE(left_clean_);
  check();
}

// The commit that follows one save falls into the next.
TEST_P(WritersTest, TheBackgroundCommitLeavesAFileThatIsWrittenAnew) {
  start(Durable::kFsync);
  save("a", content(1));
  Opened& first = replace("a", content(2));
  first.file->closed_by_writer({&first.writer, kSaver, false});
  static_cast<void>(release(first));
  Opened& second = replace("a", half_of(content(3)));
  pass(10'000);
  EXPECT_TRUE(second.file->is_dirty());
  if (std::get<uint64_t>(GetParam()) % 2 == 0) {
    cut();
    const Result<Bytes> found = read("a");
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    // The lazy commit of a small file may have come before.
    EXPECT_TRUE(*found == content(1) || *found == content(2)) << found->size();
    return;
  }
  const Bytes whole = content(3), half = half_of(whole);
  const Bytes rest(whole.begin() + std::ssize(half), whole.end());
  ASSERT_TRUE(write(second, past_cache(kSaver), half.size(), rest).is_ok());
  second.file->closed_by_writer({&second.writer, kChild, false});
  pass(10'000);
  EXPECT_TRUE(second.file->is_dirty()) << "a child's close is nobody's";
  second.file->closed_by_writer({&second.writer, kSaver, false});
  pass_and_write_back(second);
  EXPECT_FALSE(second.file->is_dirty());
  expect_after_cut("a", whole);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WritersTest,
                         ::testing::Combine(::testing::Range<uint64_t>(0, 10),
                                            ::testing::Values(Shape::kInline, Shape::kChunks)),
                         [](const auto& test) {
                           return std::to_string(std::get<uint64_t>(test.param)) +
                                  (std::get<Shape>(test.param) == Shape::kInline ? "Inline" : "Chunks");
                         });

}  // namespace
}  // namespace fpfs::test
