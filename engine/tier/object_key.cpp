#include "engine/tier/object_key.h"

#include <cctype>

#include <fmt/format.h>

namespace fpfs {
namespace {

Status bad(const char* what, std::string_view text, const std::string& why) {
  return Status::error(StatusCode::kInvalidArgument, fmt::format("{} '{}' {}", what, text, why));
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

// `whole`: nothing may follow the last component.
Status check_components(std::string_view key, const char* what, bool whole) {
  std::string_view rest = key;
  while (true) {
    const size_t slash = rest.find('/');
    const bool last = slash == std::string_view::npos;
    const std::string_view component = rest.substr(0, slash);
    if (last && !whole && component.empty()) return Status::ok();
    if (component.empty()) return bad(what, key, "has an empty name between its slashes");
    if (component.size() > ObjectStore::kComponentBytesMax)
      return bad(what, key, fmt::format("has a name of more than {} bytes", ObjectStore::kComponentBytesMax));
    if ((!last || whole) && (component == "." || component == ".."))
      return bad(what, key, "has '.' or '..' for a name, which would lead elsewhere");
    if (component.starts_with(ObjectStore::kUnfinishedPrefix))
      return bad(what, key, fmt::format("has a name that begins with {}", ObjectStore::kUnfinishedPrefix));
    if (last) return Status::ok();
    rest.remove_prefix(slash + 1);
  }
}

Status check_text(std::string_view key, size_t prefix_bytes, const char* what, bool whole) {
  if (key.size() + prefix_bytes > ObjectStore::kKeyBytesMax)
    return bad(what, key, fmt::format("is longer than {} bytes", ObjectStore::kKeyBytesMax));
  if (key.find('\0') != std::string_view::npos) return bad(what, key, "has a NUL byte");
  return check_components(key, what, whole);
}

int value_of_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status check_key(std::string_view key, size_t prefix_bytes) {
  return check_text(key, prefix_bytes, "key", true);
}

Status check_key_prefix(std::string_view prefix, size_t prefix_bytes) {
  return check_text(prefix, prefix_bytes, "prefix", false);
}

Status check_metadata(const ObjectMetadata& metadata) {
  size_t bytes = 0;
  const std::string* before = nullptr;
  for (const auto& [name, value] : metadata) {  // sorted: who begins with another name comes behind it
    if (name.empty() || name.size() > 64 ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos)
      return bad("name of metadata", name, "is not 1 to 64 of a-z, 0-9 and '-'");
    if (before != nullptr && name.starts_with(*before))
      return bad("name of metadata", name, fmt::format("begins with another name, '{}'", *before));
    before = &name;
    bytes += name.size() + percent_encode(value, false).size();
  }
  if (bytes <= kMetadataBytesMax) return Status::ok();
  return Status::error(StatusCode::kTooLarge,
                       fmt::format("{} bytes of metadata; an object has room for {}", bytes, kMetadataBytesMax));
}

std::string percent_encode(std::string_view text, bool keep_slash) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (keep_slash && c == '/')) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4];
    encoded += kDigits[byte & 15];
  }
  return encoded;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? value_of_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? value_of_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return bad("text", text, "has a '%' without two hexadecimal digits");
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t j = 1; j < length; ++j)
      if ((static_cast<unsigned char>(text[i + j]) & 0xc0) != 0x80) return false;
    if (length > 2) {  // overlong forms, surrogates, and what is above U+10FFFF
      const auto second = static_cast<unsigned char>(text[i + 1]);
      if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
          (first == 0xf4 && second > 0x8f))
        return false;
    }
    i += length;
  }
  return true;
}

}  // namespace fpfs
