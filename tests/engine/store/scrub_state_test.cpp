// What a scrub remembers: every field survives, and nothing that was damaged is taken for a state.
#include "engine/store/scrub_state.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/codec/hash.h"
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
  state.file = FileId(0x0123456789abcdef);
  state.generation = Generation(2);
  state.next_chunk = ChunkIndex(9);
  CheckError damage;
  damage.path = "/caf\xe9";  // no UTF-8
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
  EXPECT_EQ(a.bytes_total, b.bytes_total);
  EXPECT_EQ(a.errors, b.errors);
  EXPECT_EQ(a.healed, b.healed);
  EXPECT_EQ(a.chunks_away, b.chunks_away);
  EXPECT_EQ(a.failed_saves, b.failed_saves);
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
  for (const ScrubState& state : {ScrubState(), example()}) {
    const auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    expect_equal(*decoded, state);
  }
  ScrubState state = example();
  state.phase = ScrubState::Phase::kFinished;
  state.chunks_away = 20;
  state.bytes_total = 90 * kMiB;
  state.healed = 1;
  state.failed_saves = 2;
  state.ended_seconds = 1'700'000'900;
  state.damage[0].chunk = state.damage[0].object_offset = state.damage[0].member = -1;
  for (const char* kind :
       {"sidecar", "foreign-sidecar", "missing-object", "short-object", "unreadable", "missing-member", "another"}) {
    state.damage[0].kind = kind;
    const auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
    ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
    expect_equal(*decoded, state);
  }
}

TEST(ScrubState, NotMoreIsHealedThanWasWrong) {
  ScrubState state = example();
  state.healed = state.errors + 1;
  EXPECT_FALSE(decode_scrub_state(encode_scrub_state(state, test_array()), test_array()).is_ok());
}

// docs/format.md shows it.
TEST(ScrubState, TheTextIsThatOfTheFormat) {
  std::ifstream file(FPFS_TESTS_DIR "/golden/scrub-v2.json", std::ios::binary);
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(encode_scrub_state(example(), test_array()), golden);
  const auto decoded = decode_scrub_state(golden, test_array());
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  expect_equal(*decoded, example());
  const auto json = nlohmann::json::parse(golden);
  EXPECT_EQ(json.at("scrub").at("phase"), "paused");
  EXPECT_EQ(json.at("scrub").at("damage").at(0).at("path"), "/caf%E9");
}

TEST(ScrubState, EveryByteOfAPathSurvives) {
  ScrubState state = example();
  for (int byte = 1; byte < 256; ++byte) state.position += static_cast<char>(byte);
  state.position += "/%41/%/100%";
  state.damage[0].path = "/\xff\xfe\xc3\xa9\xc3";  // also what is UTF-8 in part
  state.damage[0].detail = state.position;
  const std::string text = encode_scrub_state(state, test_array());
  EXPECT_TRUE(nlohmann::json::accept(text));
  const auto decoded = decode_scrub_state(text, test_array());
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  expect_equal(*decoded, state);
}

TEST(ScrubState, NoDamagedByteIsTakenForAState) {
  const std::string good = encode_scrub_state(example(), test_array());
  for (size_t at = 0; at < good.size(); ++at)
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      EXPECT_EQ(decode_scrub_state(bad, test_array()).status().code(), StatusCode::kCorruption) << at;
    }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_scrub_state(good.substr(0, size), test_array()).is_ok()) << size;
  EXPECT_FALSE(decode_scrub_state(good + '\0', test_array()).is_ok());
  EXPECT_FALSE(decode_scrub_state(good + "\n", test_array()).is_ok());
  EXPECT_FALSE(decode_scrub_state(good, Uuid{}).is_ok());
}

// With a checksum that is right.
TEST(ScrubState, WhatWouldNotBeWrittenIsRefused) {
  const std::string good = encode_scrub_state(example(), test_array());
  const std::string before = R"({"checksum":"0123456789abcdef","scrub":)";
  const std::string content = good.substr(before.size(), good.size() - before.size() - 2);
  const auto decode = [&](const std::string& changed) {
    const uint64_t checksum = hash_bytes(std::as_bytes(std::span(changed)));
    return decode_scrub_state(fmt::format(R"({{"checksum":"{:016x}","scrub":{}}})", checksum, changed) + "\n",
                              test_array());
  };
  EXPECT_TRUE(decode(content).is_ok());
  for (const auto& [from, to] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"("version":2)", R"("version":3)"},
           {R"("version":2)", R"("version":"2")"},
           {R"("version":2,)", ""},
           {R"("phase":"paused")", R"("phase":"asleep")"},
           {R"("phase":"paused")", R"("phase":2)"},
           {R"("limit":209715200)", R"("limit":-1)"},
           {R"("limit":209715200)", R"("limit":1.5)"},
           {R"("limit":209715200)", R"("limit":18446744073709551616)"},
           {R"("limit":209715200)", R"("limit":0209715200)"},
           {R"("files":3)", R"("files":null)"},
           {R"("files":3)", R"("files":3,"files":3)"},
           {R"("files":3)", R"("files": 3)"},
           {R"("files":3)", R"("files":3,"more":1)"},
           {R"("generation":2)", R"("generation":4294967296)"},
           {R"("position":"/run1)", R"("position":"%2Frun1)"},
           {R"("position":"/run1)", R"("position":"%2G)"},
           {R"("position":"/run1)", R"("position":"\u002frun1)"},
           {R"(caf%E9)", "caf%e9"},
           {R"(caf%E9)", "caf\xc3\xa9"},
           {R"(caf%E9)", "caf%"},
           {R"("chunk":5)", R"("chunk":-2)"},
           {R"("member":1)", R"("member":256)"},
           {R"("member":1)", R"("member":-2)"},
           {R"("damage":[{)", R"("damage":[7,{)"},
           {R"("damage":[{)", R"("damage":[{},{)"},
           {R"("damage":[)", R"("damage":{},"rest":[)"},
           {content, ""},
           {content, "7"},
           {content, "[]"},
           {content, "{}"},
           {content, content + " "},
           {content, std::string(100'000, '[')}}) {
    std::string changed = content;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    EXPECT_EQ(decode(changed).status().code(), StatusCode::kCorruption) << from << " -> " << to.substr(0, 100);
  }
}

// As releases before version 2 wrote it.
TEST(ScrubState, ABinaryStateIsNone) {
  std::string old = "FPFSSCRB";
  old += '\1';
  old.resize(200, '\0');
  EXPECT_EQ(decode_scrub_state(old, test_array()).status().code(), StatusCode::kCorruption);
}

TEST(ScrubState, IsBoundedWhateverWasFound) {
  ScrubState state = example();
  state.damage.assign(1000, state.damage[0]);
  auto decoded = decode_scrub_state(encode_scrub_state(state, test_array()), test_array());
  ASSERT_TRUE(decoded.is_ok());
  EXPECT_EQ(decoded->damage.size(), ScrubState::kDamageMax);

  // Also when each byte takes three, or is a quotation mark that takes two.
  for (const char byte : {'p', '\xff', '"'}) {
    for (CheckError& damage : state.damage) {
      damage.path.assign(20'000, byte);
      damage.detail.assign(5000, byte);
    }
    const std::string text = encode_scrub_state(state, test_array());
    EXPECT_LE(text.size(), ScrubState::kEncodedMax);
    EXPECT_GT(text.size(), ScrubState::kEncodedMax - 70'000);
    decoded = decode_scrub_state(text, test_array());
    ASSERT_TRUE(decoded.is_ok());
    EXPECT_GT(decoded->damage.size(), 10u);
    EXPECT_EQ(decoded->damage[0].path, state.damage[0].path);
    EXPECT_EQ(decoded->damage[0].detail, state.damage[0].detail.substr(0, 1000));
  }

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
