// Chunks that share blocks with previous content (dedup=previous): what is shared, what is not, and that everything is
// what was written whatever happens.
#include "engine/file/chunk_sharer.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {
namespace {

constexpr size_t kChunks = 8;

StoreOptions options(Compression::Mode mode = Compression::Mode::kOff) {
  StoreOptions options;
  options.dedup = StoreOptions::Dedup::kPrevious;
  options.compression.mode = mode;
  options.inline_max = 4096;
  options.spare_least = 1;
  options.spare_life = {};
  return options;
}

// That zstd makes smaller by the half of it: noise, and zeros.
Bytes half_noise(size_t length, uint64_t salt) {
  Bytes content = make_bytes(length, salt);
  for (size_t i = 0; i < length; ++i)
    if (i / 2048 % 2 == 0) content[i] = std::byte{0};
  return content;
}

class ChunkSharerTest : public ::testing::TestWithParam<Compression::Mode> {
 protected:
  static Bytes make(size_t length, uint64_t salt) {
    return GetParam() == Compression::Mode::kOff ? make_bytes(length, salt) : half_noise(length, salt);
  }
  // The first chunks of `content` are others.
  static Bytes changed(Bytes content, size_t chunks, uint64_t salt) {
    const Bytes other = make(chunks * kTestChunk, salt);
    std::copy(other.begin(), other.end(), content.begin());
    return content;
  }
  Status put(File& file, const Bytes& content) {
    FPFS_RETURN_IF_ERROR(array_.write(file, 0, content));
    return array_.control(file, ControlRequest::Kind::kClose);
  }
  std::shared_ptr<File> save(const std::string& name, const Bytes& content) {
    std::shared_ptr<File> file = array_.create(name);
    const Status status = put(*file, content);
    EXPECT_TRUE(status.is_ok()) << status.message();
    array_.world().drain();
    return file;
  }
  std::shared_ptr<File> save_again(const std::string& name, const Bytes& content) {
    std::shared_ptr<File> file = array_.open(name);
    EXPECT_TRUE(array_.control(*file, ControlRequest::Kind::kTruncate).is_ok());
    EXPECT_TRUE(put(*file, content).is_ok());
    array_.world().drain();
    return file;
  }
  uint64_t shared() { return array_.store().status().chunks_shared; }
  void expect(const std::string& name, const Bytes& content) {
    const Result<Bytes> read = array_.read_all(*array_.open(name));
    ASSERT_TRUE(read.is_ok()) << name << ": " << read.status().message();
    EXPECT_TRUE(*read == content) << name;
  }
  // Nothing is found by a check that reads everything.
  void expect_sound() {
    array_.world().drain();
    ASSERT_TRUE(array_.close().is_ok());
    CheckOptions check;
    check.verify_data = true;
    const Result<CheckReport> report = check_array(array_.world(), array_.paths(), check);
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    for (const CheckError& error : report->errors) ADD_FAILURE() << error.path << ": " << error.kind << error.detail;
    array_.open();
  }
  // An object of a member, by its position among them.
  std::string object(unsigned member, size_t position = 0) {
    const std::vector<std::string> objects = array_.sim().files_below(array_.paths()[member] + "/objects");
    EXPECT_GT(objects.size(), position);
    return objects.size() > position ? objects[position] : "";
  }

  SimArray array_{5, 2, options(GetParam())};
  const Bytes first_ = make(kChunks * kTestChunk + 5000, 1);
};

TEST_P(ChunkSharerTest, WhatIsTheSameIsShared) {
  const Bytes second = changed(first_, 3, 2);
  save("step1", first_);
  save("step2", second);
  EXPECT_GE(shared(), kChunks - 3);
  EXPECT_GE(shared(), array_.sim().clones());
  EXPECT_GT(array_.store().status().bytes_shared, 0U);
  expect("step1", first_);
  expect("step2", second);
  expect_sound();
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "step1").is_ok());
  array_.world().drain();
  expect("step2", second);
  expect_sound();
  expect("step2", second);
}

TEST_P(ChunkSharerTest, AFileThatIsWrittenOver) {
  const Bytes second = changed(first_, 2, 2), third = changed(second, 1, 3);
  save("latest", first_);
  save_again("latest", second);
  EXPECT_GE(shared(), kChunks - 2);
  expect("latest", second);
  array_.crash();
  array_.open();
  expect("latest", second);
  const uint64_t before = shared();
  save_again("latest", third);
  EXPECT_GE(shared() - before, kChunks - 1);
  expect("latest", third);
  expect_sound();
}

// Memory still has what the drive has not: read back, compared, and not inherited.
TEST_P(ChunkSharerTest, DamageIsNotInherited) {
  save("step1", first_);
  for (const unsigned member : {0, 1}) {
    // In each chunk of the object; 4096 is behind what is looked at first.
    const std::string path = object(member);
    const uint64_t length = array_.sim().content_of(path).size();
    for (uint64_t at = 4096 + 600; at < length; at += kTestChunk) ASSERT_TRUE(array_.sim().flip_bit(path, at, 3));
  }
  save("step2", first_);
  EXPECT_LE(shared(), 1U);  // the last chunk, which is shorter
  expect("step2", first_);
  const StoreStatus status = array_.store().status();
  EXPECT_GE(status.members[0].checksum_errors + status.members[1].checksum_errors, kChunks / 2);
  EXPECT_FALSE(array_.read_all(*array_.open("step1")).is_ok());
}

TEST_P(ChunkSharerTest, WhatLiesBesideTheContentIsNotInherited) {
  const Bytes content = make(4 * kTestChunk + 1000, 1);
  save("step1", content);
  // Behind the last chunk's bytes, in its block, where there should be zeros.
  unsigned hit = 0;
  for (const unsigned member : {0, 1}) {
    const std::string path = object(member);
    const Bytes stored = array_.sim().content_of(path);
    if (stored.size() % kTestChunk == 4096) hit += array_.sim().flip_bit(path, stored.size() - 1, 0) ? 1 : 0;
  }
  ASSERT_EQ(hit, 1U);
  save("step2", content);
  EXPECT_EQ(shared(), 4U);
  expect("step2", content);
}

TEST_P(ChunkSharerTest, ThePreviousFileIsChangedMeanwhile) {
  save("step1", first_);
  std::shared_ptr<File> second = array_.create("step2");
  ASSERT_TRUE(array_.write(*second, 0, std::span(first_).first(2 * kTestChunk)).is_ok());
  array_.world().drain();
  EXPECT_EQ(shared(), 2U);
  const Bytes patch = make_bytes(3 * kTestChunk, 9);
  std::shared_ptr<File> first = array_.open("step1");
  ASSERT_TRUE(array_.write(*first, 0, patch).is_ok());
  ASSERT_TRUE(array_.write(*second, 2 * kTestChunk, std::span(first_).subspan(2 * kTestChunk, kTestChunk)).is_ok());
  array_.world().drain();
  EXPECT_EQ(shared(), 2U);  // it has changes
  ASSERT_TRUE(array_.control(*first, ControlRequest::Kind::kClose).is_ok());
  array_.world().drain();
  ASSERT_TRUE(array_.write(*second, 3 * kTestChunk, std::span(first_).subspan(3 * kTestChunk)).is_ok());
  ASSERT_TRUE(array_.control(*second, ControlRequest::Kind::kClose).is_ok());
  EXPECT_GT(shared(), 2U);  // as it is committed now
  first = second = nullptr;
  expect("step2", first_);
  Bytes all = first_;
  std::copy(patch.begin(), patch.end(), all.begin());
  expect("step1", all);
  expect_sound();
}

TEST_P(ChunkSharerTest, WhatIsSharedIsWrittenOver) {
  save("step1", first_);
  std::shared_ptr<File> second = array_.create("step2");
  ASSERT_TRUE(array_.write(*second, 0, first_).is_ok());
  array_.world().drain();
  const Bytes patch = make_bytes(kTestChunk, 4);
  ASSERT_TRUE(array_.write(*second, 0, patch).is_ok());  // in place: no record names it
  array_.world().drain();
  ASSERT_TRUE(array_.control(*second, ControlRequest::Kind::kClose).is_ok());
  ASSERT_TRUE(array_.write(*second, 2 * kTestChunk, patch).is_ok());  // elsewhere: one does
  ASSERT_TRUE(array_.control(*second, ControlRequest::Kind::kClose).is_ok());
  second = nullptr;
  Bytes all = first_;
  std::copy(patch.begin(), patch.end(), all.begin());
  std::copy(patch.begin(), patch.end(), all.begin() + 2 * kTestChunk);
  expect("step1", first_);
  expect("step2", all);
  expect_sound();
  expect("step1", first_);
}

TEST_P(ChunkSharerTest, ObjectsThatShareAreNoSpares) {
  save("step1", first_);
  save("step2", first_);
  ASSERT_GE(shared(), kChunks);
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "step1").is_ok());
  array_.world().drain();
  for (const MemberStatus& member : array_.store().status().members) EXPECT_EQ(member.space_spare, 0U);
  EXPECT_EQ(array_.sim().files_below("/m0/objects").size(), 1U);
  save("alone", make_bytes(kChunks * kTestChunk, 3));
  ASSERT_TRUE(array_.store().unlink(array_.store().root(), "alone").is_ok());
  array_.world().drain();
  EXPECT_GT(array_.store().status().members[0].space_spare, 0U);
}

TEST_P(ChunkSharerTest, WhatFailsIsStored) {
  for (const SimFault::Call call : {SimFault::Call::kClone, SimFault::Call::kRead, SimFault::Call::kWrite})
    for (const int error : {ENOSPC, EIO, EOPNOTSUPP}) {
      if (call == SimFault::Call::kWrite && GetParam() == Compression::Mode::kOff) continue;
      SimArray array(7, 2, options(GetParam()));
      const auto put_in = [&](const std::string& name) {
        std::shared_ptr<File> file = array.create(name);
        array.world().drain();
        if (name == "step2")
          array.sim().inject({.call = call, .error = error, .filesystem = {}, .role = SimRole::kObjects, .count = 1});
        EXPECT_TRUE(array.write(*file, 0, first_).is_ok());
        return array.control(*file, ControlRequest::Kind::kClose);
      };
      ASSERT_TRUE(put_in("step1").is_ok());
      array.world().drain();
      const Status status = put_in("step2");
      array.sim().clear_faults();
      if (call == SimFault::Call::kWrite && !status.is_ok()) continue;  // it hit a chunk that is stored
      ASSERT_TRUE(status.is_ok()) << status.message();
      array.crash();
      array.open();
      EXPECT_TRUE(*array.read_all(*array.open("step2")) == first_);
    }
}

TEST_P(ChunkSharerTest, PowerCutsAtEveryStep) {
  const Bytes second = changed(first_, 3, 2);
  for (const bool over : {false, true})
    for (uint64_t step = 1; step < 400; step += 3) {
      SimArray array(100 + step, 2, options(GetParam()));
      const auto write = [&](const std::string& name, const Bytes& content) {
        Result<std::shared_ptr<File>> file = array.try_open(name);
        if (!file.is_ok()) {
          Result<Store::Created> created = array.store().create(array.store().root(), name, 0644);
          if (!created.is_ok()) return created.status();
          created->node.handle.reset();
          file = created->file;
        } else {
          FPFS_RETURN_IF_ERROR(array.control(**file, ControlRequest::Kind::kTruncate));
        }
        FPFS_RETURN_IF_ERROR(array.write(**file, 0, content));
        return array.control(**file, ControlRequest::Kind::kClose);
      };
      ASSERT_TRUE(write("step1", first_).is_ok());
      array.world().drain();
      array.sim().cut_at(array.sim().boundaries() + step);
      const std::string name = over ? "step1" : "step2";
      const Status saved = write(name, second);
      const bool was_cut = array.sim().is_off();
      array.crash();
      array.open();
      const Result<std::shared_ptr<File>> file = array.try_open(name);
      ASSERT_TRUE(file.is_ok() || !saved.is_ok()) << step;
      if (file.is_ok()) {
        const Result<Bytes> content = array.read_all(**file);
        ASSERT_TRUE(content.is_ok()) << step << ": " << content.status().message();
        const bool is_new = *content == second;
        const bool is_old = over ? *content == first_ : content->empty();
        EXPECT_TRUE(is_new || (is_old && !saved.is_ok())) << "step " << step;
      }
      EXPECT_TRUE(over || *array.read_all(*array.open("step1")) == first_) << step;
      if (!was_cut) break;
    }
}

INSTANTIATE_TEST_SUITE_P(Compression, ChunkSharerTest,
                         ::testing::Values(Compression::Mode::kOff, Compression::Mode::kZstd),
                         [](const auto& one) { return one.param == Compression::Mode::kOff ? "off" : "zstd"; });

TEST(ChunkSharer, AFilesystemThatCannotShareIsRefused) {
  SimArray array(3, 2, {});
  ASSERT_TRUE(array.close().is_ok());
  array.sim().set_shares_blocks(2, false);
  const SimWorld world = array.sim().save();
  SimArray other(3, 2, options(), world);
  const Status status = other.try_open_array();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("member 1 (/m1)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("reflink=1"), std::string::npos) << status.message();
  EXPECT_TRUE(other.try_open_array(true).is_ok());  // nothing is written
}

}  // namespace
}  // namespace fpfs::test
