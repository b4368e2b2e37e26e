// AWS Signature Version 4, for requests that libcurl cannot sign: up to version 8.5 or so (7.88 was tried) it sorts
// headers by their lines, not by their names, so that of two names neither may be the beginning of the other, as
// x-amz-copy-source is of x-amz-copy-source-if-match.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
//
// Thread safety: pure.
#pragma once

#include <cstdint>

#include "engine/base/status.h"
#include "engine/tier/credentials.h"
#include "engine/tier/http_client.h"

namespace fpfs {

// Signs all headers that the request has, and adds x-amz-date, x-amz-security-token where there is one, and
// Authorization. The query is sorted and encoded, and there is an x-amz-content-sha256. Afterwards libcurl signs
// nothing: the region is empty. `now_s`: seconds since 1970. kUnsupported: this machine's libcrypto has no HMAC-SHA256.
Status sign_s3_request(HttpRequest& request, const Credentials& credentials, int64_t now_s);

}  // namespace fpfs
