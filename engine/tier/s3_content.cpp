#include "engine/tier/s3_content.h"

#include <fmt/format.h>

#include "engine/tier/md5.h"
#include "engine/tier/object_key.h"
#include "engine/tier/s3_checksum.h"

namespace fpfs {

void add_s3_metadata(HttpRequest& request, const ObjectMetadata& metadata) {
  for (const auto& [name, value] : metadata) {
    const std::string encoded = percent_encode(value, false);
    // libcurl takes "Name;" for a header without a value.
    request.headers.push_back(kS3MetadataHeader + name + (encoded.empty() ? ";" : ": " + encoded));
  }
}

S3Digests add_s3_digests(HttpRequest& request, std::span<const std::byte> content, bool with_md5, bool with_checksum) {
  S3Digests digests;
  if (with_checksum) {
    digests.checksum = s3_checksum(content);
    request.headers.push_back(fmt::format("{}: {}", kS3ChecksumHeader, *digests.checksum));
  }
  const std::optional<Md5> md5 = with_md5 ? md5_of(content) : std::nullopt;
  if (md5) {
    digests.md5 = hexadecimal(*md5);
    request.headers.push_back("Content-MD5: " + base64(*md5));
  }
  return digests;
}

void remove_s3_checksums(HttpRequest& request) {
  std::erase_if(request.headers, [](const std::string& header) { return header.starts_with("x-amz-checksum-"); });
}

Result<bool> verify_s3_tag(const HttpResponse& response, const std::string& tag,
                           const std::optional<std::string>& expected) {
  const std::string encryption = response.header("x-amz-server-side-encryption");
  const bool is_md5 = encryption.empty() || encryption == "AES256";
  if (!expected || !is_md5 || !response.header("x-amz-server-side-encryption-customer-algorithm").empty()) return false;
  if (tag == *expected) return true;
  // Of another form: this service names objects by something else.
  const std::string digest = tag.substr(0, 32);
  const bool same_form = md5_from_hexadecimal(digest) && tag.substr(32) == expected->substr(32);
  if (!same_form) return false;
  return Status::error(StatusCode::kCorruption,
                       fmt::format("the service stored other bytes: their MD5 is {}, not {}", tag, *expected));
}

Result<bool> verify_s3_content(const HttpResponse& response, const std::string& tag, const S3Digests& digests) {
  const std::string checksum = response.header(kS3ChecksumHeader);
  if (digests.checksum && !checksum.empty() && checksum != *digests.checksum)
    return Status::error(
        StatusCode::kCorruption,
        fmt::format("the service stored other bytes: their CRC32C is {}, not {}", checksum, *digests.checksum));
  FPFS_ASSIGN_OR_RETURN(const bool by_tag, verify_s3_tag(response, tag, digests.md5));
  return by_tag || (digests.checksum && !checksum.empty());
}

}  // namespace fpfs
