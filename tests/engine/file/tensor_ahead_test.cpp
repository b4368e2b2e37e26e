// Files of safetensors whose reader goes from the beginning of one tensor to that of the next: what is in memory before it
// comes. And files that only look like them.
#include <gtest/gtest.h>

#include <string>

#include "engine/formats/safetensors.h"
#include "tests/engine/file/sim_array.h"
#include "tests/support/tensor_header.h"

namespace fpfs::test {
namespace {

constexpr uint64_t kTensor = kMiB;
constexpr uint32_t kRequest = 128 * kKiB;
constexpr unsigned kTensors = 8;

std::string header_of(uint64_t metadata_bytes = 0, unsigned empty_tensors = 0) {
  TensorHeader header;
  for (unsigned i = 0; i < kTensors; ++i) header.tensors.push_back({"tensor" + std::to_string(i), "U8", {kTensor}});
  for (unsigned i = 0; i < empty_tensors; ++i) header.tensors.push_back({"empty" + std::to_string(i), "U8", {0}});
  if (metadata_bytes > 0) header.metadata["much"] = std::string(metadata_bytes, 'x');
  const Result<std::string> encoded = encode_tensor_header(header);
  EXPECT_TRUE(encoded.is_ok()) << encoded.status().message();
  return *encoded;
}

class TensorAheadTest : public ::testing::Test {
 protected:
  static StoreOptions options() {
    StoreOptions options;
    options.inline_max = 0;
    return options;
  }
  // A file with this in front, of which the store that is mounted now has nothing in memory.
  void save(const std::string& header) {
    content_ = make_bytes(header.size() + kTensors * kTensor, 1);
    std::memcpy(content_.data(), header.data(), header.size());
    begin_ = header.size();
    const auto file = array_.create("a");
    for (size_t at = 0; at < content_.size(); at += kMiB)
      ASSERT_TRUE(array_.write(*file, at, std::span(content_).subspan(at, std::min<size_t>(kMiB, content_.size() - at)))
                      .is_ok());
    ASSERT_TRUE(array_.commit(*file).is_ok());
  }
  void open() {
    ASSERT_TRUE(array_.close().is_ok());
    array_.open();
    file_ = array_.open("a");
  }
  uint64_t page(unsigned tensor) const { return round_down(begin_ + tensor * kTensor, kIoAlignment); }
  // How many of the requests around the page of the tensor are answered at once. The second half comes first.
  unsigned hop(unsigned tensor) {
    unsigned at_once = 0;
    for (const uint64_t offset : {page(tensor), page(tensor) - kRequest}) {
      SimArray::Read part(offset, kRequest);
      part.request.cursor = &cursor_;
      part.request.reader_caches = true;
      file_->read(part.request);
      if (part.answered) ++at_once;
      EXPECT_TRUE(array_.wait(part).is_ok());
      EXPECT_TRUE(std::equal(part.data.begin(), part.data.end(), content_.begin() + static_cast<ptrdiff_t>(offset)));
    }
    array_.world().drain();
    return at_once;
  }
  std::vector<unsigned> hops() {
    std::vector<unsigned> at_once;
    for (unsigned tensor = 1; tensor < kTensors; ++tensor) at_once.push_back(hop(tensor));
    return at_once;
  }

  SimArray array_{1, 2, options()};
  Bytes content_;
  uint64_t begin_ = 0;
  std::shared_ptr<File> file_;
  ReadCursor cursor_;
};

TEST_F(TensorAheadTest, WhoHasReadTheHeaderHasTheNextTensorsInMemory) {
  save(header_of());
  open();
  ReadCursor other;
  ASSERT_TRUE(array_.read(*file_, 0, 4096, &other).is_ok());
  array_.world().drain();
  EXPECT_EQ(hops(), (std::vector<unsigned>{0, 0, 2, 2, 2, 2, 2}));
}

// The kernel has it, and the file was opened anew. It is loaded while the second one is come for, and looked at then.
TEST_F(TensorAheadTest, WithoutTheHeaderItTakesLonger) {
  save(header_of());
  open();
  const std::vector<unsigned> at_once = hops();
  EXPECT_EQ(std::vector(at_once.begin(), at_once.begin() + 3), std::vector<unsigned>(3, 0));
  EXPECT_EQ(std::vector(at_once.begin() + 4, at_once.end()), std::vector<unsigned>(3, 2));
}

TEST_F(TensorAheadTest, AHeaderThatIsInMemoryIsLookedAtOnTheFirstJump) {
  save(header_of());
  open();
  ASSERT_TRUE(array_.read(*file_, 0, 4096).is_ok());
  EXPECT_EQ(hops(), (std::vector<unsigned>{0, 0, 2, 2, 2, 2, 2}));
}

// Around a page it is five chunks.
TEST_F(TensorAheadTest, NoMoreIsReadAheadThanTheOptionSays) {
  save(header_of());
  for (const auto& [read_ahead, expected] :
       {std::pair(4U, std::vector<unsigned>(7, 0)), std::pair(5U, std::vector<unsigned>{0, 0, 2, 2, 2, 2, 2})}) {
    array_.set_read_ahead(read_ahead);
    open();
    ASSERT_TRUE(array_.read(*file_, 0, 4096).is_ok());
    EXPECT_EQ(hops(), expected) << read_ahead;
    file_.reset();
    cursor_ = {};
  }
}

TEST_F(TensorAheadTest, AnotherHeaderIsLookedForWhenTheFileWasWritten) {
  save(header_of());
  open();
  ASSERT_TRUE(array_.read(*file_, 0, 4096).is_ok());
  EXPECT_EQ(hop(1), 0u);
  EXPECT_EQ(hop(2), 0u);
  EXPECT_EQ(hop(3), 2u);
  const Bytes nothing(kIoAlignment, std::byte{0});
  ASSERT_TRUE(array_.write(*file_, 0, nothing).is_ok());
  std::copy(nothing.begin(), nothing.end(), content_.begin());
  ASSERT_TRUE(array_.commit(*file_).is_ok());
  array_.world().drain();
  hop(4), hop(5);  // what was read ahead before
  EXPECT_EQ(hop(6), 0u);
  EXPECT_EQ(hop(7), 0u);
}

// Three jumps, the last of which fails with its three chunks and the header beside them.
TEST_F(TensorAheadTest, AHeaderThatDoesNotComeIsLoadedOnTheNextJump) {
  save(header_of());
  open();
  hop(1);
  SimFault fault;
  fault.call = SimFault::Call::kRead;
  fault.role = SimRole::kObjects;
  fault.count = 4;
  array_.sim().inject(fault);
  SimArray::Read part(page(2), kRequest);
  part.request.cursor = &cursor_;
  file_->read(part.request);
  EXPECT_FALSE(array_.wait(part).is_ok());
  array_.world().drain();
  for (const unsigned tensor : {3, 4, 5}) EXPECT_EQ(hop(tensor), 0u);
  EXPECT_EQ(hop(6), 2u);
}

// A request is used for one read after the other, of any files: what it held in the last one is not this one's.
TEST_F(TensorAheadTest, ReadingAnEmptyFileLooksAtNoChunkOfAnother) {
  save(header_of());
  open();
  SimArray::Read part(0, 4096);
  part.request.cursor = &cursor_;
  file_->read(part.request);
  ASSERT_TRUE(array_.wait(part).is_ok());
  array_.world().drain();
  file_.reset();
  const auto empty = array_.create("empty");
  ASSERT_TRUE(array_.commit(*empty).is_ok());
  part.answered = false;
  part.data.clear();
  empty->read(part.request);
  ASSERT_TRUE(array_.wait(part).is_ok());
  EXPECT_TRUE(part.data.empty());
  array_.world().drain();
}

struct Header {
  const char* name;
  std::string text;
};
class OtherHeaderTest : public TensorAheadTest, public ::testing::WithParamInterface<Header> {};

TEST_P(OtherHeaderTest, ReadsNothingAhead) {
  save(GetParam().text);
  open();
  ReadCursor other;
  ASSERT_TRUE(array_.read(*file_, 0, 4096, &other).is_ok());
  EXPECT_EQ(hops(), std::vector<unsigned>(7, 0));
  EXPECT_TRUE(array_.read_all(*file_).is_ok());
}

INSTANTIATE_TEST_SUITE_P(
    Headers, OtherHeaderTest,
    ::testing::Values(Header{"None", std::string(512, '\1')}, Header{"Zeros", std::string(512, '\0')},
                      Header{"NoJson", with_length(std::string(1000, '{'))},
                      Header{"Deep", with_length(std::string(60'000, '['))},
                      Header{"NoPlaces", with_length("{" + std::string(30'000, ' ') + R"("a":{"dtype":"U8"}})")},
                      Header{"LongerThanAChunk", header_of(70'000)},
                      Header{"MoreTensorsThanChunks", header_of(0, 150)}),
    [](const auto& header) { return header.param.name; });

}  // namespace
}  // namespace fpfs::test
