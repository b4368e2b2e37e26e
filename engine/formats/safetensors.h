// The layout of safetensors: 8 bytes with the length of a header, little-endian; the header, JSON; the tensors one after
// another. https://huggingface.co/docs/safetensors has it. Pure; no I/O.
//
// Elements stay aligned to their own size, as readers that map the file want it: the header is padded with spaces, and
// larger elements come first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace fpfs {

constexpr uint64_t kSafetensorsLengthBytes = 8;
constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;  // bytes; other readers refuse more

struct TensorDescription {
  std::string name;
  std::string dtype;            // "F32"
  std::vector<uint64_t> shape;  // empty: one element
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header on
};

struct TensorHeader {
  std::vector<TensorDescription> tensors;       // in the order of the file
  std::map<std::string, std::string> metadata;  // texts for whoever wants them
  uint64_t content_begin = 0;                   // bytes, in the file
};

// Bytes of one element; 0: there is no such type here.
unsigned tensor_element_bytes(const std::string& dtype);
// Bytes of all elements. kInvalidArgument: no such type, or more than a file can have.
Result<uint64_t> tensor_bytes(const std::string& dtype, std::span<const uint64_t> shape);

// Sorts the tensors and gives each its place; `header.content_begin` too. What is to be written in front of them is
// returned. kInvalidArgument: a name twice, none, "__metadata__" or no UTF-8; a type that is none; too much of it.
Result<std::string> encode_tensor_header(TensorHeader& header);

// How long the header is. kInvalidArgument: it cannot be, in a file of this size.
Result<uint64_t> decode_tensor_header_length(std::span<const std::byte> first, uint64_t file_size);
// From the bytes behind the length. kInvalidArgument when it is no such header, or does not describe all of the file.
Result<TensorHeader> decode_tensor_header(std::span<const std::byte> text, uint64_t file_size);
// From the same, for who wants no more than that, and can do without: where in the file its tensors begin, ascending. Empty
// when it is no such header or has more than `count_max`; what else is wrong with it is not looked for.
std::vector<uint64_t> find_tensor_begins(std::span<const std::byte> text, uint64_t file_size, size_t count_max);

}  // namespace fpfs
