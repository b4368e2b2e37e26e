// Any bytes as the XML of a service: an error in one line, or values that the requests after it can be made of.
#include <string>
#include <vector>

#include "engine/tier/s3_error.h"
#include "engine/tier/s3_xml.h"
#include "tests/fuzz/fuzz.h"

namespace {

using fpfs::fuzz::require;

template <typename T>
bool is_read(const fpfs::Result<T>& result) {
  if (result.is_ok()) return true;
  const std::string message = result.status().message();
  require(!message.empty() && message.find('\n') == std::string::npos, "a refusal is one line");
  const fpfs::StatusCode code = result.status().code();
  require(code == fpfs::StatusCode::kCorruption || code == fpfs::StatusCode::kWrongStore ||
              code == fpfs::StatusCode::kRefused,
          "a refusal says what is wrong");
  return false;
}

void read_lists(const std::string& text) {
  static_cast<void>(is_read(fpfs::parse_s3_list(text)));
  static_cast<void>(is_read(fpfs::parse_s3_uploads(text)));
  static_cast<void>(is_read(fpfs::parse_s3_removed(text)));
  const fpfs::Result<fpfs::S3PartPage> parts = fpfs::parse_s3_parts(text);
  if (!is_read(parts)) return;
  require(!fpfs::write_s3_complete(parts->parts).empty(), "what was read can be asked for");
}

void read_writes(const std::string& text) {
  const fpfs::Result<std::string> id = fpfs::parse_s3_upload_id(text);
  if (is_read(id)) require(!id->empty(), "an upload has an id");
  fpfs::S3ErrorText error;
  static_cast<void>(is_read(fpfs::parse_s3_completed(text, error)));
  const fpfs::Result<fpfs::S3Written> copied = fpfs::parse_s3_copied(text, error);
  if (is_read(copied)) require(!copied->tag.empty(), "a copy has a tag");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_lists(text);
  read_writes(text);
  for (const long status : {200, 301, 400, 403, 404, 500, 503}) {
    fpfs::HttpResponse response;
    response.status = status;
    response.text = text;
    response.headers["date"] = response.headers["retry-after"] = text.substr(0, 40);
    const fpfs::S3Failure failure = fpfs::interpret_failure(response, "GET s3://bucket/key", 1795563373);
    require(!failure.status.is_ok(), "a failure stays one");
    require(failure.status.message().find('\n') == std::string::npos, "it is one line");
    require(failure.retry_after.count() >= 0 && failure.retry_after.count() <= 86'400'000, "a pause has a limit");
  }
  return 0;
}
