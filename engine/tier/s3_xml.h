// The XML of S3: what it answers, and what it is sent. What a service answers is a stranger's: anything that is not as
// expected is an error, and unknown elements are ignored.
//
// Thread safety: pure. Errors: kCorruption where it is no XML, or ends early; kWrongStore where it is another document,
// as a web server answers that is no S3.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/tier/object_store.h"

namespace fpfs {

struct S3ErrorText {
  std::string code, message, region;  // empty: not said
};
S3ErrorText parse_s3_error(const std::string& text);

struct S3ListPage {
  std::vector<ObjectInfo> objects;  // keys as the service has them
  std::vector<std::string> directories;
  std::string next_token;
};
Result<S3ListPage> parse_s3_list(const std::string& text);

struct S3UploadPage {
  std::vector<Upload> uploads;
  std::string next_key, next_id;  // empty: there is no next page
};
Result<S3UploadPage> parse_s3_uploads(const std::string& text);

struct S3PartPage {
  std::vector<StoredPart> parts;
  std::string next_part;
};
Result<S3PartPage> parse_s3_parts(const std::string& text);

Result<std::string> parse_s3_upload_id(const std::string& text);

struct S3Written {
  std::string tag, checksum;  // empty: not said
};
// Of an upload that was finished. An answer of 200 may hold an error: that is what `error` is then, and the result is
// kRefused.
Result<S3Written> parse_s3_completed(const std::string& text, S3ErrorText& error);
// The same of a copy (CopyObjectResult) or of a part that was copied (CopyPartResult). kCorruption: it has no tag.
Result<S3Written> parse_s3_copied(const std::string& text, S3ErrorText& error);
// Whether it may be gone when the request is made again.
bool is_s3_error_for_now(const S3ErrorText& error);

struct S3RemoveError {
  std::string key;
  S3ErrorText error;
};
Result<std::vector<S3RemoveError>> parse_s3_removed(const std::string& text);

std::string write_s3_complete(const std::vector<StoredPart>& parts);
// No key has control characters: XML has none.
std::string write_s3_remove(const std::vector<std::string>& keys);

// Without the quotes.
std::string without_quotes(const std::string& tag);

}  // namespace fpfs
