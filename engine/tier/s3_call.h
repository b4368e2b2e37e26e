// One call of S3Store, from its first attempt to its answer. For the sources of S3Store only.
//
// Thread safety: belongs to whoever makes it until start(), then to the client's thread.
#pragma once

#include <functional>
#include <string>

#include "engine/tier/http_client.h"
#include "engine/tier/retry_policy.h"
#include "engine/tier/s3_error.h"
#include "engine/tier/s3_store.h"

namespace fpfs {

struct S3Store::Call {
  Call(std::string words, const RetryPolicy& policy, std::chrono::milliseconds now)
      : what(std::move(words)), retry(policy, now) {}
  // What is stored, not what is kept of it or read: by a lease only (S3Options).
  bool changes() const { return request.method != "GET" && request.method != "HEAD"; }

  std::string what;     // begins messages
  HttpRequest request;  // not signed
  RetryState retry;
  bool expired_before = false;  // credentials were asked for again
  bool sign_here = false;       // by s3_signature.h, not by libcurl
  // Of a request with checksums: the header by which an answer shows that the service knows them.
  std::string checksum_echo;
  bool may_do_without = false;  // what refuses the request may refuse its checksums
  bool did_without = false;
  // Failures that are not tried again before `done` has looked into them. May be empty.
  std::function<bool(const S3Failure&)> ask_first;
  // Reads an answer of 200 to 299. kUnreachable and kCorruption are tried again.
  std::function<Status(const HttpResponse&)> accept = [](const HttpResponse&) { return Status::ok(); };
  // `failure` is null on success.
  std::function<void(Status, const S3Failure* failure)> done;
};

}  // namespace fpfs
