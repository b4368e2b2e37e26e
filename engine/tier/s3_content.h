// What goes to S3 with the content of an object, and what an answer says of the content that is stored.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "engine/base/status.h"
#include "engine/tier/http_client.h"
#include "engine/tier/object_store.h"

namespace fpfs {

constexpr const char* kS3MetadataHeader = "x-amz-meta-";

void add_s3_metadata(HttpRequest& request, const ObjectMetadata& metadata);

// Of content that is sent. None: not computed, or this machine cannot.
struct S3Digests {
  std::optional<std::string> md5;       // hexadecimal: what most services call an object
  std::optional<std::string> checksum;  // CRC32C, as in its header (s3_checksum.h)
};
S3Digests add_s3_digests(HttpRequest& request, std::span<const std::byte> content, bool with_md5, bool with_checksum);
// The request without checksums, for a service that refuses them.
void remove_s3_checksums(HttpRequest& request);

// Compares what the answer says of the stored content with what it should say: true when that shows that it is the
// same, kCorruption when it shows that it is not. `tag`: what the service calls it.
Result<bool> verify_s3_content(const HttpResponse& response, const std::string& tag, const S3Digests& digests);
// The same of a tag alone. It says nothing where the service encrypts with keys of its own, or names objects by
// something else than MD5.
Result<bool> verify_s3_tag(const HttpResponse& response, const std::string& tag,
                           const std::optional<std::string>& expected);

}  // namespace fpfs
