// Checksums as S3 services send and check them: CRC32C, in base64 with the most significant byte first.
//
// An upload that was begun with checksums has "composite" ones: the service has the CRC32C of each part, and of the
// object the CRC32C of those, "-", and their number. It wants the checksum of every part when the upload is finished.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fpfs {

constexpr const char* kS3ChecksumHeader = "x-amz-checksum-crc32c";
constexpr const char* kS3ChecksumAlgorithmHeader = "x-amz-checksum-algorithm";
constexpr const char* kS3ChecksumAlgorithm = "CRC32C";
constexpr const char* kS3ChecksumElement = "ChecksumCRC32C";

std::string s3_checksum(std::span<const std::byte> content);
// None when one of them is no checksum.
std::optional<std::string> s3_checksum_of_parts(const std::vector<std::string>& checksums);

// The id of an Upload that was begun with checksums is the service's with this before it: whoever continues the upload
// must know. Ids of services are any text; none is known to begin like this.
constexpr const char* kS3ChecksummedUpload = "crc32c:";
bool is_checksummed_upload(const std::string& id);
std::string id_of_service(const std::string& id);

}  // namespace fpfs
