#include "engine/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/base/units.h"

namespace fpfs {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMetadataName = "__metadata__";
constexpr uint64_t kHeaderAlignment = 8;

struct ElementType {
  std::string_view name;
  unsigned bytes;
};
constexpr ElementType kElementTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8},
};

Status unusable(std::string message) {
  return Status::error(StatusCode::kInvalidArgument, std::move(message));
}

Status no_header(const std::string& why) {
  return unusable("no file of safetensors: " + why);
}

bool is_number(const Json& value) {
  return value.is_number_unsigned();
}

Result<TensorDescription> decode_tensor(const std::string& name, const Json& entry) {
  TensorDescription tensor;
  tensor.name = name;
  const auto dtype = entry.is_object() ? entry.find("dtype") : entry.end();
  const auto shape = entry.is_object() ? entry.find("shape") : entry.end();
  const auto offsets = entry.is_object() ? entry.find("data_offsets") : entry.end();
  if (dtype == entry.end() || !dtype->is_string() || shape == entry.end() || !shape->is_array() ||
      offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !std::all_of(shape->begin(), shape->end(), is_number) ||
      !std::all_of(offsets->begin(), offsets->end(), is_number))
    return no_header("its header does not say type, shape and place of '" + name + "'");
  tensor.dtype = dtype->get<std::string>();
  tensor.shape = shape->get<std::vector<uint64_t>>();
  tensor.begin = (*offsets)[0].get<uint64_t>();
  tensor.end = (*offsets)[1].get<uint64_t>();
  FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
  if (tensor.begin > tensor.end || tensor.end - tensor.begin != bytes)
    return no_header("'" + name + "' does not take what its type and shape need");
  return tensor;
}

Status decode_metadata(const Json& entry, TensorHeader& header) {
  if (!entry.is_object()) return no_header("its metadata is none");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return no_header("its metadata '" + key + "' is no text");
    header.metadata[key] = value.get<std::string>();
  }
  return Status::ok();
}

// Takes out of a header where its tensors begin, {"tensor": {"data_offsets": [this, ...], ...}, ...}, and needs no memory
// but for that.
class BeginsReader final : public nlohmann::json_sax<Json> {
 public:
  BeginsReader(std::vector<uint64_t>& begins, size_t count_max) : begins_(begins), count_max_(count_max) {}

  bool key(string_t& name) override {
    if (depth_ == 1) is_tensor_ = name != kMetadataName;
    is_place_ = depth_ == 2 && is_tensor_ && name == "data_offsets";
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    return other();
  }
  bool end_object() override {
    --depth_;
    return other();
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return other();
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!is_place_ || depth_ != 3) return other();
    is_place_ = false;  // the next one is its end
    begins_.push_back(value);
    return begins_.size() <= count_max_;
  }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool string(string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool other() {
    is_place_ = false;
    return true;
  }

  std::vector<uint64_t>& begins_;
  const size_t count_max_;
  unsigned depth_ = 0;
  bool is_tensor_ = false;
  bool is_place_ = false;  // of the first number of an array that begins here
};

}  // namespace

unsigned tensor_element_bytes(const std::string& dtype) {
  for (const ElementType& type : kElementTypes)
    if (type.name == dtype) return type.bytes;
  return 0;
}

Result<uint64_t> tensor_bytes(const std::string& dtype, std::span<const uint64_t> shape) {
  uint64_t bytes = tensor_element_bytes(dtype);
  if (bytes == 0) return unusable("a tensor of type '" + dtype + "': it must be one of safetensors, \"F32\" say");
  for (const uint64_t length : shape)
    if (__builtin_mul_overflow(bytes, length, &bytes) || bytes > kFileSizeMax)
      return unusable("a tensor of more bytes than a file can have");
  return bytes;
}

Result<std::string> encode_tensor_header(TensorHeader& header) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& left, const auto& right) {
    return tensor_element_bytes(left.dtype) > tensor_element_bytes(right.dtype);
  });
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadataName] = header.metadata;
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (TensorDescription& tensor : header.tensors) {
    if (tensor.name.empty() || tensor.name == kMetadataName || !names.insert(tensor.name).second)
      return unusable(fmt::format("a tensor named '{}': each needs a name of its own", tensor.name));
    FPFS_ASSIGN_OR_RETURN(const uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
    if (bytes > kFileSizeMax - end) return unusable("tensors of more bytes than a file can have");
    tensor.begin = end;
    tensor.end = end += bytes;
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception&) {
    return unusable("names and metadata of tensors must be UTF-8");
  }
  text.resize(round_up(text.size(), kHeaderAlignment), ' ');
  if (text.size() > kSafetensorsHeaderMax)
    return unusable(fmt::format("a header of {} bytes: other readers take {}", text.size(), kSafetensorsHeaderMax));
  header.content_begin = kSafetensorsLengthBytes + text.size();
  if (end > kFileSizeMax - header.content_begin) return unusable("tensors of more bytes than a file can have");
  std::string encoded;
  for (unsigned i = 0; i < kSafetensorsLengthBytes; ++i)
    encoded.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i) & 0xff));
  return encoded + text;
}

Result<uint64_t> decode_tensor_header_length(std::span<const std::byte> first, uint64_t file_size) {
  if (first.size() < kSafetensorsLengthBytes || file_size < kSafetensorsLengthBytes)
    return no_header("it is too short");
  uint64_t length = 0;
  for (unsigned i = 0; i < kSafetensorsLengthBytes; ++i) length |= std::to_integer<uint64_t>(first[i]) << (8 * i);
  if (length > kSafetensorsHeaderMax || length > file_size - kSafetensorsLengthBytes)
    return no_header("it does not begin with the length of a header");
  return length;
}

std::vector<uint64_t> find_tensor_begins(std::span<const std::byte> text, uint64_t file_size, size_t count_max) {
  std::vector<uint64_t> begins;
  BeginsReader reader(begins, count_max);
  const auto* const first = reinterpret_cast<const char*>(text.data());
  if (!Json::sax_parse(first, first + text.size(), &reader)) return {};
  std::sort(begins.begin(), begins.end());
  const uint64_t content_begin = kSafetensorsLengthBytes + text.size();
  if (file_size < content_begin || (!begins.empty() && begins.back() > file_size - content_begin)) return {};
  for (uint64_t& begin : begins) begin += content_begin;
  return begins;
}

Result<TensorHeader> decode_tensor_header(std::span<const std::byte> text, uint64_t file_size) {
  TensorHeader header;
  header.content_begin = kSafetensorsLengthBytes + text.size();
  const auto* const first = reinterpret_cast<const char*>(text.data());
  const Json json = Json::parse(first, first + text.size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return no_header("its header is not JSON");
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadataName) {
      FPFS_RETURN_IF_ERROR(decode_metadata(entry, header));
      continue;
    }
    FPFS_ASSIGN_OR_RETURN(TensorDescription tensor, decode_tensor(name, entry));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const auto& left, const auto& right) {
    return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
  });
  uint64_t end = 0;
  for (const TensorDescription& tensor : header.tensors) {
    if (tensor.begin != end) return no_header("'" + tensor.name + "' does not begin where the one before it ends");
    end = tensor.end;
  }
  if (file_size < header.content_begin || end != file_size - header.content_begin)
    return no_header(fmt::format("its tensors take {} bytes, and it has {}", end,
                                 file_size - std::min(file_size, header.content_begin)));
  return header;
}

}  // namespace fpfs
