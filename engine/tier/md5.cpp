#include "engine/tier/md5.h"

#include <openssl/evp.h>

#include <cstdint>

#include <fmt/format.h>

#include "engine/base/check.h"

namespace fpfs {

std::optional<Md5> md5_of(std::span<const std::byte> bytes) {
  Md5 digest;
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &length, EVP_md5(),
                 nullptr) != 1 ||
      length != digest.size())
    return std::nullopt;
  return digest;
}

std::string base64(std::span<const std::byte> digest) {
  unsigned char text[65];
  FPFS_CHECK(digest.size() <= 48, "a digest is short");
  const int length =
      EVP_EncodeBlock(text, reinterpret_cast<const unsigned char*>(digest.data()), static_cast<int>(digest.size()));
  return std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(length));
}

std::string hexadecimal(const Md5& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

std::optional<Md5> md5_from_hexadecimal(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  Md5 digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const size_t high = kDigits.find(text[2 * i]), low = kDigits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    digest[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

std::optional<std::string> tag_of_parts(const std::vector<std::string>& tags) {
  std::vector<std::byte> digests;
  for (const std::string& tag : tags) {
    const std::optional<Md5> digest = md5_from_hexadecimal(tag);
    if (!digest) return std::nullopt;
    digests.insert(digests.end(), digest->begin(), digest->end());
  }
  const std::optional<Md5> whole = md5_of(digests);
  if (!whole) return std::nullopt;
  return fmt::format("{}-{}", hexadecimal(*whole), tags.size());
}

}  // namespace fpfs
