// What a scrub remembers: every field survives, and nothing that was damaged is taken for a state.
#include "engine/store/scrub_state.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "engine/io/posix_environment.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

Uuid test_array() {
  Uuid id{};
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

ScrubState example() {
  ScrubState state;
  state.phase = ScrubState::Phase::kPaused;
  state.limit = 200 * kMiB;
  state.started_seconds = 1'700'000'000;
  state.active_ms = 61'500;
  state.files = 3;
  state.chunks = 70;
  state.bytes = 70 * kMiB;
  state.errors = 1;
  state.position = "/run1/step100.pt";
  state.file = 0x0123456789abcdef;
  state.generation = 2;
  state.next_chunk = 9;
  CheckError damage;
  damage.path = "/a";
  damage.chunk = 5;
  damage.member = 1;
  damage.object_offset = static_cast<int64_t>(kMiB);
  damage.kind = "checksum";
  damage.detail = "bad";
  state.damage.push_back(damage);
  return state;
}

void expect_equal(const ScrubState& a, const ScrubState& b) {
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.limit, b.limit);
  EXPECT_EQ(a.started_seconds, b.started_seconds);
  EXPECT_EQ(a.ended_seconds, b.ended_seconds);
  EXPECT_EQ(a.active_ms, b.active_ms);
  EXPECT_EQ(a.files, b.files);
  EXPECT_EQ(a.chunks, b.chunks);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.errors, b.errors);
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.file, b.file);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.next_chunk, b.next_chunk);
  ASSERT_EQ(a.damage.size(), b.damage.size());
  for (size_t i = 0; i < a.damage.size(); ++i) {
    EXPECT_EQ(a.damage[i].path, b.damage[i].path);
    EXPECT_EQ(a.damage[i].chunk, b.damage[i].chunk);
    EXPECT_EQ(a.damage[i].member, b.damage[i].member);
    EXPECT_EQ(a.damage[i].object_offset, b.damage[i].object_offset);
    EXPECT_EQ(a.damage[i].kind, b.damage[i].kind);
    EXPECT_EQ(a.damage[i].detail, b.damage[i].detail);
  }
}

TEST(ScrubState, EveryFieldSurvives) {
  for (ScrubState state : {ScrubState(), example()}) {
    const auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    expect_equal(*decoded, state);
  }
  ScrubState state = example();
  state.phase = ScrubState::Phase::kFinished;
  state.ended_seconds = 1'700'000'900;
  state.damage[0].chunk = state.damage[0].object_offset = state.damage[0].member = -1;
  for (const char* kind :
       {"sidecar", "foreign-sidecar", "missing-object", "short-object", "unreadable", "missing-member"}) {
    state.damage[0].kind = kind;
    const auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    expect_equal(*decoded, state);
  }
}

// docs/format.md shows these bytes.
TEST(ScrubState, TheBytesAreThoseOfTheFormat) {
  std::ifstream file(FPFS_TESTS_DIR "/golden/scrub-v1.hex");
  std::vector<std::byte> golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) golden.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
  }
  ASSERT_FALSE(golden.empty());
  EXPECT_EQ(encode_scrub_state(example(), test_array()), golden);
  const auto decoded = decode_scrub_state(golden, test_array());
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  expect_equal(*decoded, example());
}

TEST(ScrubState, NoDamagedByteIsTakenForAState) {
  const std::vector<std::byte> good = encode_scrub_state(example(), test_array());
  for (size_t at = 0; at < good.size(); ++at)
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> bad = good;
      bad[at] ^= static_cast<std::byte>(1U << bit);
      EXPECT_EQ(decode_scrub_state(bad, test_array()).status().code(), StatusCode::kCorruption) << at;
    }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_scrub_state(std::span(good).first(size), test_array()).is_ok()) << size;
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_scrub_state(longer, test_array()).is_ok());
  EXPECT_FALSE(decode_scrub_state(good, Uuid{}).is_ok());
}

TEST(ScrubState, IsBoundedWhateverWasFound) {
  ScrubState state = example();
  state.damage.assign(1000, state.damage[0]);
  auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->damage.size(), ScrubState::kDamageMax);

  for (CheckError& damage : state.damage) {
    damage.path.assign(20'000, 'p');
    damage.detail.assign(5000, 'd');
  }
  const std::vector<std::byte> bytes = encode_scrub_state(state, test_array());
  EXPECT_LE(bytes.size(), ScrubState::kEncodedMax);
  decoded = decode_scrub_state(bytes, test_array());
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_GT(decoded->damage.size(), 10u);

  state.position.assign(70'000, 'x');  // cannot be kept: from the beginning
  decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->position, "");
}

TEST(ScrubState, DamageOfAFileIsInTheOrderOfItsChunks) {
  ScrubState state;
  const auto add = [&state](const char* path, int64_t chunk) {
    CheckError error;
    error.path = path;
    error.chunk = chunk;
    error.kind = "unreadable";
    state.add(error);
  };
  add("/z", 7);
  add("/a", 11);
  add("/a", 8);
  add("/a", 9);
  add("/a", -1);
  std::vector<std::pair<std::string, int64_t>> found;
  for (const CheckError& error : state.damage) found.emplace_back(error.path, error.chunk);
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"/z", 7}, {"/a", -1}, {"/a", 8}, {"/a", 9}, {"/a", 11}};
  EXPECT_EQ(found, expected);

  for (int64_t chunk = 0; chunk < 1000; ++chunk) add("/more", chunk);
  EXPECT_EQ(state.damage.size(), ScrubState::kDamageMax);
  EXPECT_EQ(state.errors, 1005U);
}

TEST(ScrubState, LiesBesideTheTreeAndGoesWithTheArray) {
  const test::TemporaryDirectory place;
  PosixEnvironment environment{2};
  const std::vector<std::string> directories = {place / "a"};
  ASSERT_TRUE(Array::format(environment, directories, FormatOptions()).is_ok());
  ArrayOptions options;
  options.buffered_members = true;
  {
    const auto array = Array::open(environment, directories, options);
    ASSERT_TRUE(array.is_ok());
    EXPECT_EQ(load_scrub_state(environment.storage(), **array)->phase, ScrubState::Phase::kNone);
    ASSERT_TRUE(save_scrub_state(environment.storage(), **array, example()).is_ok());
    expect_equal(*load_scrub_state(environment.storage(), **array), example());
    EXPECT_TRUE(std::filesystem::exists(place / "a/scrub"));
    EXPECT_FALSE(std::filesystem::exists(place / "a/scrub.new"));
  }
  FormatOptions again;
  again.force = true;
  ASSERT_TRUE(Array::format(environment, directories, again).is_ok());
  EXPECT_FALSE(std::filesystem::exists(place / "a/scrub"));
}

}  // namespace
}  // namespace fpfs
