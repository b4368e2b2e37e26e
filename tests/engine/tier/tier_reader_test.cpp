// Reading copies back: what is found, what is refused, and that nothing unchecked is returned.
#include "engine/tier/tier_reader.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include "engine/codec/hash.h"
#include "engine/tier/sim/sim_object_store.h"
#include "engine/tier/tier_note.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr uint32_t kChunk = kTestChunk;

// What a network does to answers: the first ones of a key are spoilt. Only what a reader asks for.
class SpoilingStore final : public ObjectStore {
 public:
  explicit SpoilingStore(SimObjectStore& store) : store_(store) {}
  void spoil(const std::string& key, unsigned answers) { spoilt_[key] = answers; }
  void shorten(bool shortens) { shortens_ = shortens; }
  unsigned asked() const { return asked_; }

  std::string describe() const override { return store_.describe(); }
  uint64_t part_size_min() const override { return 1; }
  uint64_t part_size_max() const override { return 1; }
  uint32_t part_count_max() const override { return 1; }
  void get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
           Done<ReadRange> done) override {
    ++asked_;
    store_.get(key, offset, into, tag, [this, key, into, done = std::move(done)](Result<ReadRange> range) {
      if (range.is_ok() && spoilt_[key] > 0) {
        --spoilt_[key];
        if (shortens_)
          --range->length;
        else
          into[range->length / 2] ^= std::byte{4};
      }
      done(std::move(range));
    });
  }
  void head(const std::string& key, Done<ObjectInfo> done) override { store_.head(key, std::move(done)); }

  void check(DoneStatus) override { FPFS_CHECK(false, "not asked for"); }
  void put(const std::string&, std::span<const std::byte>, const ObjectMetadata&, Done<StoredObject>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void begin_upload(const std::string&, const ObjectMetadata&, Done<Upload>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void put_part(const Upload&, uint32_t, uint64_t, std::span<const std::byte>, Done<StoredPart>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void parts(const Upload&, Done<std::vector<StoredPart>>) override { FPFS_CHECK(false, "not asked for"); }
  void finish_upload(const Upload&, std::vector<StoredPart>, Done<StoredObject>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void abort_upload(const Upload&, DoneStatus) override { FPFS_CHECK(false, "not asked for"); }
  void uploads(const std::string&, Done<std::vector<Upload>>) override { FPFS_CHECK(false, "not asked for"); }
  void list(const ListRequest&, Done<ListPage>) override { FPFS_CHECK(false, "not asked for"); }
  void copy(const std::string&, const std::string&, const std::string&, const std::optional<ObjectMetadata>&,
            Done<StoredObject>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void remove(const std::string&, DoneStatus) override { FPFS_CHECK(false, "not asked for"); }
  void remove_many(std::vector<std::string>, Done<std::vector<RemoveFailure>>) override {
    FPFS_CHECK(false, "not asked for");
  }
  void close() override { store_.close(); }

 private:
  SimObjectStore& store_;
  std::map<std::string, unsigned> spoilt_;
  bool shortens_ = false;
  unsigned asked_ = 0;
};

class TierReaderTest : public ::testing::Test {
 protected:
  TierReaderTest() { objects_.connect(world_); }
  ~TierReaderTest() override {
    world_.stop();
    objects_.disconnect();
  }
  // A copy in the store, as the copier makes it.
  TierManifest put(const std::string& path, const Bytes& content, uint64_t sequence = 7) {
    TierManifest manifest;
    manifest.path = path;
    manifest.mode = S_IFREG | 0644;
    manifest.file_id = FileId(42);
    manifest.generation = Generation(1);
    manifest.sequence = sequence;
    manifest.size = content.size();
    manifest.chunk_size = content.empty() ? 0 : kChunk;
    for (size_t begin = 0; begin < content.size(); begin += kChunk)
      manifest.checksums.push_back(
          hash_bytes(std::span(content).subspan(begin, std::min<size_t>(kChunk, content.size() - begin))));
    manifest.content_tag = fmt::format("c{}", sequence);
    objects_.objects()[path] = {content, {}, manifest.content_tag};
    put_manifest(manifest);
    return manifest;
  }
  void put_manifest(const TierManifest& manifest) {
    objects_.objects()[manifest_key(manifest.path)] = {encode_manifest(manifest), {}, fmt::format("m{}", ++tags_)};
  }
  template <typename Answer, typename Start>
  Answer wait(Start start) {
    auto answer = std::make_shared<std::optional<Answer>>();
    start([answer](auto given) {
      EXPECT_FALSE(answer->has_value()) << "answered twice";
      answer->emplace(std::move(given));
    });
    EXPECT_TRUE(world_.run_until([&answer] { return answer->has_value(); }));
    return std::move(**answer);
  }
  Result<TierReader::Manifest> find(const std::string& path, TierReader::Which which = TierReader::Which::kNewest) {
    return wait<Result<TierReader::Manifest>>([&](auto done) { reader_->find(path, which, done); });
  }
  Result<TierReader::Manifest> find_commit(const TierCommit& commit) {
    return wait<Result<TierReader::Manifest>>([&](auto done) { reader_->find_commit("a", commit, done); });
  }
  Status read(const TierReader::Manifest& manifest, uint64_t first, std::span<std::byte> into) {
    return wait<Status>([&](auto done) { reader_->read(manifest, ChunkIndex(first), into, done); });
  }
  void use(const TierReadOptions& options) { reader_ = TierReader::create(world_, spoiling_, options); }

  SimEnvironment world_{1, {.mount_paths = {"/m0"}}};
  SimObjectStore objects_{1, {}};
  SpoilingStore spoiling_{objects_};
  std::shared_ptr<TierReader> reader_ = TierReader::create(world_, spoiling_);
  const Bytes content_ = make_bytes(3 * kChunk + 100, 1);
  unsigned tags_ = 0;
};

TEST_F(TierReaderTest, ReadsWhatIsThere) {
  const TierManifest manifest = put("a", content_);
  const Result<TierReader::Manifest> found = find("a");
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_TRUE(**found == manifest);
  for (uint64_t first = 0; first < 4; ++first)
    for (uint64_t last = first; last < 4; ++last) {
      const size_t begin = first * kChunk, end = std::min<size_t>((last + 1) * kChunk, content_.size());
      Bytes into(end - begin);
      ASSERT_TRUE(read(*found, first, into).is_ok());
      EXPECT_TRUE(std::equal(into.begin(), into.end(), content_.begin() + static_cast<ptrdiff_t>(begin)));
    }
  EXPECT_EQ(chunk_bytes_of(manifest, ChunkIndex(2)), kChunk);
  EXPECT_EQ(chunk_bytes_of(manifest, ChunkIndex(3)), 100u);
  EXPECT_EQ(chunk_bytes_of(manifest, ChunkIndex(4)), 0u);
}

TEST_F(TierReaderTest, WhatComesSpoiltIsAskedForOnceMore) {
  put("a", content_);
  for (const bool shortens : {false, true}) {
    spoiling_.shorten(shortens);
    spoiling_.spoil(manifest_key("a"), 1);
    const Result<TierReader::Manifest> found = find("a");
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    Bytes into(2 * kChunk);
    spoiling_.spoil("a", 1);
    ASSERT_TRUE(read(*found, 1, into).is_ok());
    EXPECT_TRUE(std::equal(into.begin(), into.end(), content_.begin() + kChunk));
    const unsigned asked = spoiling_.asked();
    spoiling_.spoil("a", 2);
    const Status damaged = read(*found, 1, into);
    EXPECT_EQ(damaged.code(), StatusCode::kCorruption);
    EXPECT_EQ(spoiling_.asked(), asked + 2);
    if (shortens) continue;  // the rest of a manifest is asked for anyway
    spoiling_.spoil(manifest_key("a"), 2);
    EXPECT_EQ(find("a").status().code(), StatusCode::kCorruption);
  }
}

// Every byte of the content, at its ends and in the middle of each chunk.
TEST_F(TierReaderTest, NothingDamagedIsReturned) {
  put("a", content_);
  const Result<TierReader::Manifest> found = find("a");
  ASSERT_TRUE(found.is_ok());
  for (const size_t at : {size_t{0}, size_t{kChunk} - 1, size_t{kChunk}, size_t{2 * kChunk + 5}, content_.size() - 1}) {
    objects_.objects().at("a").content[at] ^= std::byte{1};
    Bytes all(content_.size());
    const Status status = read(*found, 0, all);
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << at;
    EXPECT_NE(status.message().find(fmt::format("chunk {} ", at / kChunk)), std::string::npos) << status.message();
    objects_.objects().at("a").content[at] ^= std::byte{1};
  }
}

TEST_F(TierReaderTest, WhatIsNoCopy) {
  EXPECT_EQ(find("a").status().code(), StatusCode::kNotFound);
  put("a", content_);
  const auto whole = objects_.objects();
  objects_.objects().erase("a");
  EXPECT_EQ(find("a").status().code(), StatusCode::kNotFound) << "the content is missing";
  objects_.objects() = whole;
  objects_.objects().at("a").tag = "other";
  EXPECT_EQ(find("a").status().code(), StatusCode::kNotFound) << "it is being replaced";
  objects_.objects() = whole;
  objects_.objects().at("a").content.pop_back();
  EXPECT_EQ(find("a").status().code(), StatusCode::kNotFound) << "it is shorter";
  objects_.objects() = whole;
  objects_.objects()[manifest_key("b")] = objects_.objects().at(manifest_key("a"));
  objects_.objects()["b"] = objects_.objects().at("a");
  EXPECT_EQ(find("b").status().code(), StatusCode::kNotFound) << "the manifest of another path";
  for (size_t at = 0; at < whole.at(manifest_key("a")).content.size(); at += 7) {
    objects_.objects() = whole;
    objects_.objects().at(manifest_key("a")).content[at] ^= std::byte{2};
    const StatusCode code = find("a").status().code();
    EXPECT_TRUE(code == StatusCode::kCorruption || code == StatusCode::kUnsupported) << at;
  }
  objects_.objects() = whole;
  EXPECT_TRUE(find("a").is_ok());
  objects_.set_away(true);
  EXPECT_EQ(find("a").status().code(), StatusCode::kUnreachable);
}

TEST_F(TierReaderTest, TheCopyOfOneCommit) {
  const TierManifest manifest = put("a", content_);
  TierCommit commit{manifest.array_id, manifest.file_id, manifest.generation, manifest.sequence, manifest.size, 0};
  EXPECT_TRUE(find_commit(commit).is_ok());
  commit.content_tag = TierNote::tag_of(manifest.content_tag);
  EXPECT_TRUE(find_commit(commit).is_ok());
  const auto is_refused = [&](const std::function<void(TierCommit&)>& change) {
    TierCommit other = commit;
    change(other);
    return find_commit(other).status().code() == StatusCode::kNotFound;
  };
  EXPECT_TRUE(is_refused([](TierCommit& c) { c.array_id[3] ^= std::byte{1}; }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { c.file_id = FileId(43); }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { ++c.generation; }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { ++c.sequence; }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { --c.sequence; }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { ++c.size; }));
  EXPECT_TRUE(is_refused([](TierCommit& c) { ++c.content_tag; }));
}

TEST_F(TierReaderTest, ALongManifestComesInTwoCalls) {
  TierManifest manifest = put("a", content_);
  for (int i = 0; i < 5; ++i) manifest.xattrs[fmt::format("user.{}", i)] = std::string(60'000, static_cast<char>(i));
  put_manifest(manifest);
  const Result<TierReader::Manifest> found = find("a");
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_TRUE(**found == manifest);
  EXPECT_EQ(spoiling_.asked(), 2u);
  TierReadOptions options;
  options.manifest_bytes_max = 100'000;
  use(options);
  EXPECT_EQ(find("a").status().code(), StatusCode::kTooLarge);
}

TEST_F(TierReaderTest, ManifestsAreKeptUpToABound) {
  TierReadOptions options;
  options.manifest_memory = 4000;
  use(options);
  for (int i = 0; i < 30; ++i) put(fmt::format("f{}", i), content_);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(find(fmt::format("f{}", i)).is_ok());
    EXPECT_LE(reader_->manifest_bytes_kept(), 4000u);
  }
  const unsigned asked = spoiling_.asked();
  EXPECT_TRUE(find("f29", TierReader::Which::kKept).is_ok());
  EXPECT_EQ(spoiling_.asked(), asked);
  EXPECT_TRUE(find("f0", TierReader::Which::kKept).is_ok());
  EXPECT_EQ(spoiling_.asked(), asked + 1) << "it was the first to go";
}

TEST_F(TierReaderTest, AReplacedCopyIsForgotten) {
  put("a", content_);
  const Result<TierReader::Manifest> old = find("a");
  ASSERT_TRUE(old.is_ok());
  const Bytes other = make_bytes(content_.size(), 2);
  const TierManifest manifest = put("a", other, 8);
  Bytes into(kChunk);
  EXPECT_EQ(read(*old, 0, into).code(), StatusCode::kNotFound);
  const Result<TierReader::Manifest> now = find("a", TierReader::Which::kKept);
  ASSERT_TRUE(now.is_ok());
  EXPECT_TRUE(**now == manifest);
  ASSERT_TRUE(read(*now, 0, into).is_ok());
  EXPECT_TRUE(std::equal(into.begin(), into.end(), other.begin()));
}

TEST_F(TierReaderTest, NeverMoreCallsThanAllowedAndOneForAll) {
  TierReadOptions options;
  options.requests = 3;
  use(options);
  put("a", content_);
  unsigned found = 0;
  TierReader::Manifest manifest;
  for (int i = 0; i < 10; ++i)
    reader_->find("a", TierReader::Which::kKept, [&](Result<TierReader::Manifest> answer) {
      ++found;
      manifest = *answer;
    });
  world_.run_until([&] { return found == 10; });
  EXPECT_EQ(spoiling_.asked(), 1u);
  std::vector<Bytes> pieces(40, Bytes(kChunk));
  unsigned done = 0;
  for (Bytes& piece : pieces)
    reader_->read(manifest, ChunkIndex(1), piece, [&](const Status& status) {
      EXPECT_TRUE(status.is_ok());
      ++done;
    });
  EXPECT_TRUE(world_.run_until([&] {
    EXPECT_LE(objects_.under_way(), 3u);
    return done == pieces.size();
  }));
}

TEST_F(TierReaderTest, WhatWaitsAtTheEndIsTold) {
  TierReadOptions options;
  options.requests = 1;
  use(options);
  put("a", content_);
  std::vector<StatusCode> codes;
  for (int i = 0; i < 3; ++i)
    reader_->find("a", TierReader::Which::kNewest,
                  [&](const Result<TierReader::Manifest>& found) { codes.push_back(found.status().code()); });
  reader_->close();
  EXPECT_EQ(codes.size(), 2u);
  EXPECT_EQ(find("a").status().code(), StatusCode::kCancelled);
  world_.run_until([&] { return codes.size() == 3; });
  EXPECT_EQ(codes, std::vector<StatusCode>(3, StatusCode::kCancelled));
}

}  // namespace
}  // namespace fpfs::test
