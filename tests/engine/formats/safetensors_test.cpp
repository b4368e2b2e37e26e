#include "engine/formats/safetensors.h"

#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/tensor_header.h"

namespace fpfs {
namespace {

using test::with_length;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Result<TensorHeader> decode(const std::string& encoded, uint64_t file_size) {
  FPFS_ASSIGN_OR_RETURN(
      const uint64_t length,
      decode_tensor_header_length(bytes_of(encoded).first(std::min<size_t>(8, encoded.size())), file_size));
  return decode_tensor_header(bytes_of(encoded).subspan(8, length), file_size);
}

TEST(SafetensorsTest, AHeaderComesBack) {
  TensorHeader header;
  header.tensors = {
      {"byte", "U8", {3}}, {"names \"\u00e4\"\n", "F32", {2, 5}}, {"none", "BF16", {0, 7}}, {"one", "I64", {}}};
  header.metadata = {{"step", "7"}, {"\u00fc", ""}};
  const Result<std::string> encoded = encode_tensor_header(header);
  ASSERT_TRUE(encoded.is_ok()) << encoded.status().message();
  EXPECT_EQ(encoded->size() % 8, 0u);
  EXPECT_EQ(header.content_begin, encoded->size());
  const uint64_t size = encoded->size() + 8 + 40 + 0 + 3;
  const Result<TensorHeader> decoded = decode(*encoded, size);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(decoded->metadata, header.metadata);
  EXPECT_EQ(decoded->content_begin, header.content_begin);
  ASSERT_EQ(decoded->tensors.size(), 4u);
  // Large elements first, so that all are aligned.
  const char* const names[] = {"one", "names \"\u00e4\"\n", "none", "byte"};
  const uint64_t ends[] = {8, 48, 48, 51};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(decoded->tensors[i].name, names[i]);
    EXPECT_EQ(decoded->tensors[i].end, ends[i]);
    EXPECT_EQ(decoded->tensors[i].shape, header.tensors[i].shape);
    EXPECT_EQ(decoded->tensors[i].dtype, header.tensors[i].dtype);
  }
}

TEST(SafetensorsTest, WhatCannotBeSaved) {
  const uint64_t much = uint64_t{1} << 40;
  const std::vector<TensorDescription> wrong[] = {
      {{"", "F32", {1}}},
      {{"__metadata__", "F32", {1}}},
      {{"a", "F32", {1}}, {"a", "U8", {1}}},
      {{"a", "float", {1}}},
      {{"\xff", "F32", {1}}},
      {{"a", "F32", {much, much}}},
      {{"a", "U8", {uint64_t{1} << 63}}, {"b", "U8", {uint64_t{1} << 63}}},
  };
  for (const auto& tensors : wrong) {
    TensorHeader header;
    header.tensors = tensors;
    EXPECT_EQ(encode_tensor_header(header).status().code(), StatusCode::kInvalidArgument) << tensors[0].name;
  }
}

TEST(SafetensorsTest, WhatIsNoHeaderIsRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_TRUE(decode(with_length(good), 8 + good.size() + 8).is_ok());
  EXPECT_FALSE(decode(with_length(good), 8 + good.size() + 7).is_ok());
  EXPECT_FALSE(decode(with_length(good), 8 + good.size() + 9).is_ok());
  EXPECT_FALSE(decode("1234567", 7).is_ok());
  EXPECT_FALSE(decode("", 0).is_ok());
  EXPECT_FALSE(decode(std::string(8, '\xff'), 1 << 20).is_ok());
  for (
      const char* const header : {
          R"([])",
          R"({)",
          R"(7)",
          R"({"a":7})",
          R"({"a":{}})",
          R"({"__metadata__":[]})",
          R"({"__metadata__":{"a":1}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
          R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
          R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
      })
    EXPECT_EQ(decode(with_length(header), 8 + std::strlen(header) + 8).status().code(), StatusCode::kInvalidArgument)
        << header;
}

// Whatever bytes are changed, what is accepted describes the file and no byte behind it.
TEST(SafetensorsTest, DamagedHeaders) {
  TensorHeader header;
  header.tensors = {{"first", "F32", {10, 3}}, {"second", "U8", {5}}, {"third", "F64", {2}}};
  header.metadata = {{"key", "value"}};
  const std::string encoded = *encode_tensor_header(header);
  const uint64_t size = encoded.size() + 120 + 5 + 16;
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = encoded;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
      damaged[8 + random() % (damaged.size() - 8)] = static_cast<char>(random());
    const Result<TensorHeader> decoded = decode(damaged, size);
    if (!decoded.is_ok()) continue;
    uint64_t end = 0;
    for (const TensorDescription& tensor : decoded->tensors) {
      ASSERT_EQ(tensor.begin, end);
      ASSERT_EQ(tensor.end - tensor.begin, *tensor_bytes(tensor.dtype, tensor.shape));
      end = tensor.end;
    }
    ASSERT_EQ(decoded->content_begin + end, size);
  }
}

std::vector<uint64_t> begins_in(const std::string& header, uint64_t content, size_t count_max = 100) {
  std::vector<uint64_t> begins = find_tensor_begins(bytes_of(header), 8 + header.size() + content, count_max);
  for (uint64_t& begin : begins) begin -= 8 + header.size();
  return begins;
}

TEST(SafetensorsTest, WhereTensorsBeginIsFound) {
  TensorHeader header;
  header.tensors = {{"byte", "U8", {3}}, {"two", "F32", {2, 5}}, {"none", "BF16", {0, 7}}, {"one", "I64", {}}};
  header.metadata = {{"data_offsets", "7"}};
  const std::string encoded = *encode_tensor_header(header);
  EXPECT_EQ(begins_in(encoded.substr(8), 51), (std::vector<uint64_t>{0, 8, 48, 48}));
  EXPECT_EQ(begins_in(encoded.substr(8), 51, 4).size(), 4u);
  EXPECT_TRUE(begins_in(encoded.substr(8), 51, 3).empty());   // more than are wanted
  EXPECT_TRUE(begins_in(encoded.substr(8), 47).empty());      // behind the end of the file
  EXPECT_TRUE(begins_in(encoded.substr(8, 60), 51).empty());  // cut off
  EXPECT_EQ(begins_in(R"({"b": {"data_offsets": [9, 12]}, "a": {"shape": [3], "data_offsets": [4, 9]}})", 12),
            (std::vector<uint64_t>{4, 9}));
}

TEST(SafetensorsTest, OtherNumbersAreNoBeginnings) {
  for (const char* const header :
       {"", "5", "[]", "{}", R"([{"data_offsets": [1, 2]}])", R"({"data_offsets": [1, 2]})",
        R"({"__metadata__": {"data_offsets": [1, 2]}})", R"({"a": {"shape": [1, 2]}})", R"({"a": {"data_offsets": 1}})",
        R"({"a": {"data_offsets": {"b": 1}}})", R"({"a": {"data_offsets": [[1, 2]]}})",
        R"({"a": {"data_offsets": [-1, 2]}})", R"({"a": {"data_offsets": ["1", 2]}})",
        R"({"a": {"data_offsets": [18446744073709551616, 2]}})", R"({"a": {"b": {"data_offsets": [1, 2]}}})"})
    EXPECT_TRUE(begins_in(header, 100).empty()) << header;
  EXPECT_TRUE(begins_in(std::string(500'000, '['), 100).empty());
  EXPECT_TRUE(begins_in(R"({"a": {"data_offsets": [18446744073709551615, 2]}})", 100).empty());
}

}  // namespace
}  // namespace fpfs
