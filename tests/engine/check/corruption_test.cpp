// Random damage to everything that lies on the members: one bit, or up to a sector of bytes. Whatever it hits, each
// file reads as it was written or fails; the checker has seen it whenever a read fails; and mounting loses nothing:
// with the damage undone everything is there again.
//
// 50 damages to each kind of file; with FPFS_TEST_LONG=1 10,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "engine/check/check.h"
#include "engine/store/scrub_state.h"
#include "tests/engine/file/sim_array.h"
#include "tests/support/test_data.h"

namespace fpfs::test {
namespace {

uint64_t damage_count() {
  const char* is_long = std::getenv("FPFS_TEST_LONG");
  return is_long != nullptr && std::strcmp(is_long, "1") == 0 ? 10'000 : 50;
}

struct Damage {
  std::string path;
  std::vector<std::pair<uint64_t, unsigned>> bits;  // offset, bit
};

class CorruptionTest : public ::testing::TestWithParam<std::string> {
 protected:
  CorruptionTest() : random_(std::hash<std::string>()(GetParam())), array_(7, 3, compressing()) {
    write_files();
    EXPECT_TRUE(array_.close().is_ok());
    clean_ = array_.sim().save();
    // The same in the middle of its life: not closed, with content that was never committed, and space to be freed.
    array_.open();
    std::shared_ptr<File> file = array_.open("log");
    EXPECT_TRUE(array_.write(*file, 0, make_bytes(3 * kTestChunk, 90)).is_ok());
    EXPECT_TRUE(array_.store().unlink(array_.store().root(), "gone").is_ok());
    array_.world().drain();
    file.reset();
    array_.kill();
    dirty_ = array_.sim().save();
  }

  // What shrinks is stored encoded.
  static StoreOptions compressing() {
    StoreOptions options;
    options.compression.mode = Compression::Mode::kZstd;
    return options;
  }
  static Bytes make_small(size_t length, uint64_t salt) {
    Bytes data = make_bytes(length, salt);
    make_shrink(data);
    return data;
  }

  void save(const std::string& name, const Bytes& content, uint64_t offset = 0) {
    const std::shared_ptr<File> file = files_.contains(name) ? array_.open(name) : array_.create(name);
    Bytes& all = files_[name];
    all.resize(std::max<size_t>(all.size(), offset + content.size()));
    std::copy(content.begin(), content.end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_TRUE(array_.write(*file, offset, content).is_ok());
    EXPECT_TRUE(array_.commit(*file).is_ok());
  }

  void write_files() {
    save("empty", {});
    save("gone", make_bytes(2 * kTestChunk, 1));
    save("log", make_bytes(6 * kTestChunk + 1234, 2));
    save("inline", make_bytes(1500, 3));
    save("sparse", make_bytes(5000, 4), 3 * kTestChunk + 100);
    save("short", make_bytes(kTestChunk / 2, 5));
    save("weights", make_small(4 * kTestChunk + 777, 6));
    EXPECT_GT(array_.open("weights")->info().codec_chunks[static_cast<size_t>(Codec::kBlocks)], 3u);
    // Long enough for the sidecar to be compacted.
    for (uint64_t i = 0; i < 80; ++i) save("log", make_bytes(700, 100 + i), i % 6 * kTestChunk + i);
    for (uint64_t i = 0; i < 5; ++i) save("inline", make_bytes(300, 200 + i), i * 250);
    files_.erase("gone");
    ScrubState state;
    state.phase = ScrubState::Phase::kPaused;
    state.position = "/log";
    state.damage.push_back({"/short", 0, 1, 0, "checksum", "not what was written", "lost", false});
    EXPECT_TRUE(save_scrub_state(array_.store().storage(), array_.store().array(), state).is_ok());
    array_.world().drain();
  }

  // Files of the kind that the test is about.
  std::vector<std::string> targets() {
    std::vector<std::string> found;
    for (const std::string& member : array_.paths())
      for (const std::string& path : array_.sim().files_below(member)) {
        const std::string below = path.substr(member.size() + 1);
        if (below.substr(0, below.find('/')) == GetParam() && !array_.sim().content_of(path).empty())
          found.push_back(path);
      }
    return found;
  }

  Damage choose_damage(const std::vector<std::string>& paths) {
    Damage damage;
    damage.path = paths[random_.below(paths.size())];
    const uint64_t size = array_.sim().content_of(damage.path).size();
    // Objects hold much that was only allocated ahead.
    const uint64_t offset = random_.below(random_.chance(80) ? std::min<uint64_t>(size, 3 * kTestChunk) : size);
    if (random_.chance(50)) {
      damage.bits.emplace_back(offset, static_cast<unsigned>(random_.below(8)));
      return damage;
    }
    const uint64_t end = std::min(size, offset + random_.between(2, random_.chance(50) ? 16 : 512));
    for (uint64_t at = offset; at < end; ++at) {
      const uint64_t mask = random_.between(1, 255);
      for (unsigned bit = 0; bit < 8; ++bit)
        if ((mask >> bit & 1) != 0) damage.bits.emplace_back(at, bit);
    }
    return damage;
  }
  // False when (a part of) the place is not there any more.
  bool apply(const Damage& damage) {
    bool all = true;
    for (const auto& [offset, bit] : damage.bits) all &= array_.sim().flip_bit(damage.path, offset, bit);
    return all;
  }

  bool check_is_clean() {
    CheckOptions options;
    options.verify_data = true;
    const Result<CheckReport> report = check_array(array_.world(), array_.paths(), options);
    EXPECT_TRUE(report.is_ok() || !report.status().message().empty());
    return report.is_ok() && report->clean();
  }

  // How many files cannot be read. The others must be right.
  size_t read_everything() {
    size_t failed = 0;
    for (const auto& [name, content] : files_) {
      const Result<std::shared_ptr<File>> file = array_.try_open(name);
      const Result<Bytes> read = file.is_ok() ? array_.read_all(**file) : Result<Bytes>(file.status());
      if (!read.is_ok()) {
        EXPECT_FALSE(read.status().message().empty());
        ++failed;
      } else {
        EXPECT_TRUE(*read == content) << name << " reads as something else";
      }
    }
    return failed;
  }

  void damage_once(const SimWorld& world, const std::vector<std::string>& paths) {
    array_.sim().restore(world);
    const Damage damage = choose_damage(paths);
    SCOPED_TRACE(damage.path + ", offset " + std::to_string(damage.bits.front().first) + ", " +
                 std::to_string(damage.bits.size()) + " bits");
    ASSERT_TRUE(apply(damage));
    const bool is_clean = check_is_clean();
    const Status opened = array_.try_open_array(random_.chance(30));
    const size_t failed = opened.is_ok() ? read_everything() : files_.size();
    array_.kill();
    if (failed > 0) {
      ++detected_;
      EXPECT_FALSE(is_clean) << failed << " files cannot be read, and the check did not notice";
      EXPECT_TRUE(opened.is_ok() || !opened.message().empty());
    }
    (void)apply(damage);  // undone, unless it hit what recovery has freed
    const Status again = array_.try_open_array();
    ASSERT_TRUE(again.is_ok()) << again.message();
    EXPECT_EQ(read_everything(), 0u) << "lost by mounting";
    array_.kill();
  }

  SimRandom random_;
  SimArray array_;
  std::map<std::string, Bytes> files_;
  std::optional<SimWorld> clean_, dirty_;
  uint64_t detected_ = 0;
};

TEST_P(CorruptionTest, NothingWrongIsEverRead) {
  const std::vector<std::string> paths = targets();  // of the dirty world, which has all kinds
  ASSERT_FALSE(paths.empty());
  for (uint64_t i = 0; i < damage_count() && !HasFailure(); ++i)
    damage_once(i % 2 == 0 || GetParam() == "state" ? *dirty_ : *clean_, paths);
  std::printf("%lu of %lu damages to %s were detected, the others harmless\n", static_cast<unsigned long>(detected_),
              static_cast<unsigned long>(damage_count()), GetParam().c_str());
  const bool matters =
      GetParam() == "superblock" || GetParam() == "mount" || GetParam() == "tree" || GetParam() == "objects";
  EXPECT_EQ(detected_ > 0, matters);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CorruptionTest,
                         ::testing::Values("superblock", "superblocks", "mount", "lock", "state", "scrub", "tree",
                                           "objects"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace fpfs::test
