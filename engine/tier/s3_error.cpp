#include "engine/tier/s3_error.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "engine/tier/s3_xml.h"

namespace fpfs {
namespace {

struct Meaning {
  StatusCode code;
  bool retry;
};

// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, and what RGW and others say.
const std::map<std::string, Meaning>& meanings() {
  static const std::map<std::string, Meaning> table = {
      {"NoSuchKey", {StatusCode::kNotFound, false}},
      {"NoSuchUpload", {StatusCode::kNotFound, false}},
      {"NoSuchVersion", {StatusCode::kNotFound, false}},
      {"PreconditionFailed", {StatusCode::kNotFound, false}},  // If-Match: another version by now
      {"AccessDenied", {StatusCode::kPermission, false}},
      {"AccountProblem", {StatusCode::kPermission, false}},
      {"AllAccessDisabled", {StatusCode::kPermission, false}},
      {"InvalidAccessKeyId", {StatusCode::kPermission, false}},
      {"InvalidToken", {StatusCode::kPermission, false}},
      {"ExpiredToken", {StatusCode::kPermission, false}},
      {"SignatureDoesNotMatch", {StatusCode::kPermission, false}},
      {"NoSuchBucket", {StatusCode::kWrongStore, false}},
      {"InvalidBucketName", {StatusCode::kWrongStore, false}},
      {"PermanentRedirect", {StatusCode::kWrongStore, false}},
      {"TemporaryRedirect", {StatusCode::kWrongStore, false}},
      {"AuthorizationHeaderMalformed", {StatusCode::kWrongStore, false}},
      {"IllegalLocationConstraintException", {StatusCode::kWrongStore, false}},
      {"RequestTimeTooSkewed", {StatusCode::kClockSkew, false}},
      {"RequestExpired", {StatusCode::kClockSkew, false}},
      {"BadDigest", {StatusCode::kCorruption, true}},
      {"XAmzContentSHA256Mismatch", {StatusCode::kCorruption, true}},
      {"XAmzContentChecksumMismatch", {StatusCode::kCorruption, true}},
      {"IncompleteBody", {StatusCode::kUnreachable, true}},
      {"RequestTimeout", {StatusCode::kUnreachable, true}},
      {"SlowDown", {StatusCode::kUnreachable, true}},
      {"ServiceUnavailable", {StatusCode::kUnreachable, true}},
      {"InternalError", {StatusCode::kUnreachable, true}},
      {"OperationAborted", {StatusCode::kUnreachable, true}},
      {"EntityTooLarge", {StatusCode::kTooLarge, false}},
      {"KeyTooLongError", {StatusCode::kTooLarge, false}},
      {"MetadataTooLarge", {StatusCode::kTooLarge, false}},
      {"QuotaExceeded", {StatusCode::kNoSpace, false}},
      {"XMinioStorageFull", {StatusCode::kNoSpace, false}},
  };
  return table;
}

Meaning meaning_of_status(long status) {
  switch (status) {
    case 301:
    case 302:
    case 307:
    case 308:
      return {StatusCode::kWrongStore, false};
    case 401:
    case 403:
      return {StatusCode::kPermission, false};
    case 404:
    case 412:
      return {StatusCode::kNotFound, false};
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
      return {StatusCode::kUnreachable, true};
    case 413:
      return {StatusCode::kTooLarge, false};
    case 507:
      return {StatusCode::kNoSpace, false};
    default:
      return {StatusCode::kRefused, false};
  }
}

// What somebody who reads of it is to do; empty: it is tried again, or the message says so.
std::string advice(StatusCode meaning, const std::string& code) {
  if (meaning == StatusCode::kClockSkew) return "; set the clocks right";
  if (meaning == StatusCode::kPermission)
    return "; give the credentials of somebody who may list, read, write and remove there";
  return code == "NoSuchBucket" ? "; make the bucket, or correct the URL" : "";
}

S3Failure no_answer(const HttpResponse& response, const std::string& what) {
  S3Failure failure;
  const auto fail = [&](StatusCode code, bool retry) {
    failure.status = Status::error(code, fmt::format("{}: {}", what, response.error));
    failure.retry = retry;
  };
  if (response.overflowed) {
    failure.status =
        Status::error(StatusCode::kWrongStore, fmt::format("{}: the answer is longer than what was asked for", what));
    return failure;
  }
  switch (response.curl_code) {
    case CURLE_PEER_FAILED_VERIFICATION:  // somebody else's certificate, or one that nobody here knows
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WEIRD_SERVER_REPLY:
      fail(StatusCode::kWrongStore, false);
      break;
    default:
      fail(StatusCode::kUnreachable, true);
  }
  return failure;
}

std::chrono::milliseconds retry_after(const HttpResponse& response) {
  const std::string text = response.header("retry-after");
  unsigned seconds = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), seconds).ec != std::errc())
    return std::chrono::milliseconds(0);
  return std::chrono::seconds(std::min(seconds, 86400u));
}

// Answers to HEAD have no XML: the clocks are compared by the Date of the answer.
int64_t clock_difference_s(const HttpResponse& response, int64_t now_s) {
  const int64_t theirs = curl_getdate(response.header("date").c_str(), nullptr);
  return theirs < 0 ? 0 : theirs - now_s;
}

}  // namespace

S3Failure interpret_failure(const HttpResponse& response, const std::string& what, int64_t now_s) {
  if (response.cancelled) {
    S3Failure failure;
    failure.status = Status::error(StatusCode::kCancelled, what + ": the store was closed");
    return failure;
  }
  if (response.curl_code != 0) return no_answer(response, what);
  S3Failure failure;
  const S3ErrorText said = parse_s3_error(response.text);
  failure.code = said.code;
  failure.http_status = response.status;
  const auto known = meanings().find(said.code);
  Meaning meaning = known != meanings().end() ? known->second : meaning_of_status(response.status);
  constexpr int64_t kSkewMax_s = 15 * 60;  // what AWS allows
  const int64_t difference_s = clock_difference_s(response, now_s);
  if (response.status == 403 && std::abs(difference_s) > kSkewMax_s) meaning = {StatusCode::kClockSkew, false};
  std::string message =
      fmt::format("{}: {}", what, said.code.empty() ? fmt::format("HTTP {}", response.status) : said.code);
  if (!said.message.empty()) message += ": " + said.message.substr(0, 300);
  if (meaning.code == StatusCode::kClockSkew)
    message += fmt::format(" (this machine's clock is {} s {})", std::abs(difference_s),
                           difference_s > 0 ? "behind the service's" : "ahead of the service's");
  const std::string region = !said.region.empty() ? said.region : response.header("x-amz-bucket-region");
  if (meaning.code == StatusCode::kWrongStore && !region.empty())
    message += fmt::format(" (the bucket is in region {}: say region={})", region, region);
  failure.status = Status::error(meaning.code, message + advice(meaning.code, said.code));
  failure.retry = meaning.retry;
  if (failure.retry) failure.retry_after = retry_after(response);
  return failure;
}

}  // namespace fpfs
