#include "engine/tier/s3_checksum.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "engine/tier/crc32c.h"
#include "engine/tier/md5.h"

namespace fpfs {
namespace {

constexpr size_t kBytes = 4, kCharacters = 8;  // "AAAAAA=="

std::string encoded(uint32_t checksum) {
  const std::array<std::byte, kBytes> bytes = {
      static_cast<std::byte>(checksum >> 24), static_cast<std::byte>(checksum >> 16 & 0xff),
      static_cast<std::byte>(checksum >> 8 & 0xff), static_cast<std::byte>(checksum & 0xff)};
  return base64(bytes);
}

}  // namespace

std::string s3_checksum(std::span<const std::byte> content) {
  return encoded(crc32c(content));
}

std::optional<std::string> s3_checksum_of_parts(const std::vector<std::string>& checksums) {
  std::vector<std::byte> all;
  for (const std::string& checksum : checksums) {
    if (checksum.size() != kCharacters || !checksum.ends_with("==")) return std::nullopt;
    unsigned char bytes[kCharacters / 4 * 3] = {};
    if (EVP_DecodeBlock(bytes, reinterpret_cast<const unsigned char*>(checksum.data()), kCharacters) < 0)
      return std::nullopt;
    const auto decoded = std::as_bytes(std::span(bytes)).first(kBytes);
    all.insert(all.end(), decoded.begin(), decoded.end());
  }
  return encoded(crc32c(all)) + "-" + std::to_string(checksums.size());
}

bool is_checksummed_upload(const std::string& id) {
  return id.starts_with(kS3ChecksummedUpload);
}

std::string id_of_service(const std::string& id) {
  return is_checksummed_upload(id) ? id.substr(std::strlen(kS3ChecksummedUpload)) : id;
}

}  // namespace fpfs
