// What an answer that is no success means, by HTTP status, the code in its XML, or what libcurl says.
//
// Thread safety: pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "engine/tier/http_client.h"

namespace fpfs {

struct S3Failure {
  Status status;         // never ok
  std::string code;      // of the service: "NoSuchKey"; empty: it said none
  long http_status = 0;  // 0: there was no answer
  bool retry = false;
  std::chrono::milliseconds retry_after{0};
};

// `what` begins the message: "put s3://bucket/key". `now_s`: this machine's clock.
S3Failure interpret_failure(const HttpResponse& response, const std::string& what, int64_t now_s);

}  // namespace fpfs
