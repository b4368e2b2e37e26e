// Damaged chunks that come back from their copy, while the power of the machine goes at any step, the process is killed,
// the store fails calls and goes away, and programs go on reading and writing the file. What holds:
//
//   - whoever reads gets the content as it is, or an error, never other bytes
//   - after every life the file is one that was committed, whole: the last, or the one whose commit was under way. What a
//     program has written and not committed is not in it, however much was healed meanwhile
//   - what was not damaged can be read from the members alone, and after an end in order what was healed, too
//   - with the store well again, everything can be read
//   - the array has nothing to complain of but what is still damaged
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "engine/check/check.h"
#include "tests/engine/tier/healing_world.h"
#include "tests/support/sanitizers.h"

namespace fpfs::test {
namespace {

class HealingLives {
 public:
  explicit HealingLives(uint64_t seed) : random_(SimRandom(seed ^ 0x6865616c).next()), world_(seed, store_options()) {}

  // The first thing that was wrong.
  std::string run() {
    begin();
    for (uint64_t lives = random_.between(1, 3); lives > 0 && wrong_.empty(); --lives) live();
    if (wrong_.empty()) end_well();
    return wrong_;
  }
  uint64_t cuts() const { return cuts_; }
  uint64_t healed() const { return healed_; }
  uint64_t served() const { return served_; }

 private:
  static constexpr size_t kChunksMax = 12;

  SimObjectStore::Options store_options() {
    SimObjectStore::Options options;
    options.delay_ms_max = static_cast<unsigned>(random_.between(1, 100));
    return options;
  }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }
  bool is_off() { return world_.world().is_off(); }

  // A file that is copied, and whose chunks are then spoilt.
  void begin() {
    const size_t length = random_.between(2, kChunksMax) * kTestChunk - random_.below(kTestChunk);
    compressed_ = random_.chance(50);
    committed_ = make(length);
    world_.save("a", committed_, compressed_);
    world_.copy();
    if (random_.chance(30)) {
      // The copy is of the commit before.
      std::shared_ptr<File> file = world_.array().open("a");
      static_cast<void>(world_.tier().stop());
      const size_t at = random_.below(length);
      const Bytes piece = make(std::min<size_t>(random_.between(1, kTestChunk), length - at));
      std::copy(piece.begin(), piece.end(), committed_.begin() + static_cast<ptrdiff_t>(at));
      static_cast<void>(world_.array().write(*file, at, piece));
      static_cast<void>(world_.array().control(*file, ControlRequest::Kind::kClose));
      for (size_t chunk = at / kTestChunk; chunk <= (at + piece.size() - 1) / kTestChunk; ++chunk)
        is_not_copied_.insert(chunk);
    }
    world_.reopen();
    world_.tier().set_deaf(random_.chance(70));  // else what is committed is copied
    if (random_.chance(50)) {
      SimObjectStore::Options options = store_options();
      options.failed_percent = static_cast<unsigned>(random_.below(25));
      world_.objects().set_options(options);
    }
    spoil_some();
  }
  Bytes make(size_t length) { return compressed_ ? make_compressible(length, ++salt_) : make_bytes(length, ++salt_); }
  size_t chunks() const { return (committed_.size() + kTestChunk - 1) / kTestChunk; }
  // Only what has a copy: all else would be lost.
  void spoil_some() {
    std::shared_ptr<File> file = world_.array().open("a");
    for (uint64_t count = random_.between(1, 4); count > 0; --count) {
      const uint64_t chunk = random_.below(chunks());
      if (is_not_copied_.contains(chunk) || chunk * kTestChunk >= committed_.size()) continue;
      const Extent at = world_.extent(*file, chunk);
      world_.spoil(world_.object_of(*file, at.member), at, Damage::kBit);
      damaged_.insert(chunk);
    }
  }

  // --- a life --------------------------------------------------------------------------------------------------------
  void live() {
    SimEnvironment& world = world_.world();
    if (random_.chance(70)) world.cut_at(world.boundaries() + random_.between(1, 60));
    pending_.reset();
    file_ = nullptr;
    for (uint64_t calls = random_.between(1, 8); calls > 0 && !is_off() && wrong_.empty(); --calls) {
      act();
      for (uint64_t steps = random_.below(80); steps > 0 && !is_off(); --steps) world.step();
      if (random_.chance(10)) world_.objects().set_away(true);
      if (random_.chance(50)) world_.objects().set_away(false);
    }
    const bool goes_in_order = !is_off() && !uncommitted_ && random_.chance(40);
    if (goes_in_order) {
      world.cut_at(0);
      close_file();
    }
    const StoreStatus status = world_.status();
    healed_ += status.chunks_healed;
    served_ += status.chunks_from_copy;
    file_ = nullptr;
    if (goes_in_order) {
      if (!world_.tier().stop()) fail("does not stop");
      world_.tier().leave_store();
      const Status closed = world_.array().close();
      if (!closed.is_ok()) fail("the array is not closed: " + closed.message());
    } else {
      ++cuts_;
      const bool is_killed = !is_off() && random_.chance(50);
      world_.tier().leave();
      is_killed ? world_.array().kill() : world_.array().crash();
    }
    if (!wrong_.empty()) return;
    uncommitted_ = false;
    world_.array().open();
    look();
    world_.tier().connect();
    world_.connect();
  }
  void act() {
    if (file_ == nullptr) {
      Result<std::shared_ptr<File>> opened = world_.array().try_open("a");
      if (!opened.is_ok()) {
        if (!is_off()) fail("cannot be opened: " + opened.status().message());
        return;
      }
      file_ = std::move(*opened);
    }
    const uint64_t what = random_.below(100);
    if (what < 50) return read();
    if (what < 65) return verify();
    if (what < 80) return change();
    if (what < 90) return commit();
    close_file();
  }
  // As a mount does: space that is left over is given back.
  void close_file() {
    if (file_ == nullptr || uncommitted_) return;
    const Status closed = world_.array().control(*file_, ControlRequest::Kind::kClose);
    if (!closed.is_ok() && !is_off()) fail("not closed: " + closed.message());
    file_ = nullptr;
  }
  // What whoever reads now must find.
  const Bytes& current() const { return uncommitted_ ? written_ : committed_; }
  void read() {
    if (is_unclear_) return;
    const Bytes& now = current();
    const size_t at = random_.below(now.size());
    const size_t length = std::min<size_t>(random_.between(1, 3 * kTestChunk), now.size() - at);
    const Result<Bytes> got = world_.array().read(*file_, at, static_cast<uint32_t>(length));
    if (!got.is_ok() || is_off()) return;
    if (got->size() != length || !std::equal(got->begin(), got->end(), now.begin() + static_cast<ptrdiff_t>(at)))
      fail(fmt::format("wrong bytes were read at {}", at));
  }
  void verify() {
    auto told = std::make_shared<bool>(false);
    file_->verify_chunk(ChunkIndex(random_.below(chunks())),
                        [told](const Status&, ChunkVerifier::Remedy) { *told = true; });
    if (random_.chance(50)) world_.world().run_until([told] { return *told; });
  }
  void change() {
    if (!uncommitted_) written_ = committed_;
    const size_t at = random_.below(written_.size());
    const Bytes piece = make(std::min<size_t>(random_.between(1, 2 * kTestChunk), written_.size() - at));
    const Status status = world_.array().write(*file_, at, piece);
    // A part may be taken when a chunk cannot be read; the rest of this life is not looked at then.
    if (!status.is_ok()) {
      uncommitted_ = true;
      is_unclear_ = true;
      return;
    }
    std::copy(piece.begin(), piece.end(), written_.begin() + static_cast<ptrdiff_t>(at));
    for (size_t chunk = at / kTestChunk; chunk <= (at + piece.size() - 1) / kTestChunk; ++chunk) touched_.insert(chunk);
    uncommitted_ = true;
  }
  void commit() {
    if (!uncommitted_ || is_unclear_) return;
    pending_ = written_;
    pending_chunks_ = touched_;
    const Status committed = world_.array().commit(*file_);
    if (!committed.is_ok()) {
      if (!is_off()) fail("not committed: " + committed.message());
      return;
    }
    take_pending();
    uncommitted_ = false;
  }
  void take_pending() {
    committed_ = *pending_;
    for (const uint64_t chunk : pending_chunks_) {
      is_not_copied_.insert(chunk);
      damaged_.erase(chunk);
    }
    pending_.reset();
    touched_.clear();
  }

  // --- what must hold ------------------------------------------------------------------------------------------------
  // From the members alone.
  void look() {
    is_unclear_ = false;
    touched_.clear();
    std::shared_ptr<File> file = world_.array().open("a");
    if (file->size() != committed_.size()) return fail(fmt::format("{} bytes long", file->size()));
    // What is damaged says nothing about which of the two it is.
    bool is_old = true, is_new = pending_.has_value();
    std::set<uint64_t> unreadable;
    for (uint64_t chunk = 0; chunk < chunks(); ++chunk) {
      const size_t begin = chunk * kTestChunk;
      const size_t length = std::min<size_t>(kTestChunk, committed_.size() - begin);
      const Result<Bytes> got = world_.array().read(*file, begin, static_cast<uint32_t>(length));
      if (!got.is_ok()) {
        unreadable.insert(chunk);
        continue;
      }
      const auto at = static_cast<ptrdiff_t>(begin);
      is_old = is_old && std::equal(got->begin(), got->end(), committed_.begin() + at);
      is_new = is_new && std::equal(got->begin(), got->end(), pending_->begin() + at);
    }
    if (!is_old && !is_new) return fail("it is no content that was committed");
    if (is_new && !is_old) take_pending();
    for (const uint64_t chunk : unreadable)
      if (!damaged_.contains(chunk)) return fail(fmt::format("chunk {} is lost, which was not damaged", chunk));
    pending_.reset();
    damaged_ = unreadable;
  }
  void end_well() {
    world_.objects().set_options({});
    world_.objects().set_away(false);
    for (const bool again : {false, true}) {
      const Result<Bytes> got = world_.read("a");
      if (!got.is_ok()) return fail("in the end it cannot be read: " + got.status().message());
      if (*got != committed_) return fail("in the end it is another");
      world_.settle();
      if (!again) world_.reopen();
    }
    // What came is on the members by now.
    world_.disconnect();
    const Result<Bytes> got = world_.read("a");
    if (!got.is_ok()) return fail("what was healed is not: " + got.status().message());
    static_cast<void>(world_.tier().stop());
    world_.tier().leave_store();
    if (const Status closed = world_.array().close(); !closed.is_ok()) return fail("not closed: " + closed.message());
    const Result<CheckReport> report = check_array(world_.world(), world_.array().paths(), {});
    if (!report.is_ok()) return fail("cannot be checked: " + report.status().message());
    for (const CheckError& error : report->errors) fail(error.kind + ": " + error.detail);
  }

  SimRandom random_;
  HealingWorld world_;
  bool compressed_ = false;
  Bytes committed_, written_;
  std::optional<Bytes> pending_;  // whose commit was asked for
  std::set<uint64_t> pending_chunks_, touched_, damaged_, is_not_copied_;
  std::shared_ptr<File> file_;
  bool uncommitted_ = false, is_unclear_ = false;
  uint64_t salt_ = 0, cuts_ = 0, healed_ = 0, served_ = 0;
  std::string wrong_;
};

// FPFS_HEALING_SEED=N: one seed. FPFS_HEALING_SEEDS=N: so many.
uint64_t healing_number(const char* name, uint64_t otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

TEST(TierHealingPowerCutTest, WhatIsHealedIsWhatWasCommitted) {
  if (const uint64_t seed = healing_number("FPFS_HEALING_SEED", 0); seed > 0) {
    EXPECT_EQ(HealingLives(seed).run(), "") << "seed " << seed;
    return;
  }
  const uint64_t seeds = alike(healing_number("FPFS_HEALING_SEEDS", 2000));
  uint64_t cuts = 0, healed = 0, served = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    HealingLives lives(seed);
    ASSERT_EQ(lives.run(), "") << "seed " << seed;
    cuts += lives.cuts();
    healed += lives.healed();
    served += lives.served();
  }
  EXPECT_GT(cuts, seeds / 2);
  EXPECT_GT(healed, seeds / 4);
  EXPECT_GT(served, seeds / 2);
  fmt::print("{} seeds, {} ends without order, {} chunks from copies, {} written back\n", seeds, cuts, served, healed);
}

}  // namespace
}  // namespace fpfs::test
