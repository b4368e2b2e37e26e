// S3Store: copies that the service makes. First it is asked what the source is: its size says how it is copied, its tag
// which version, and its metadata go with a copy in parts, which the service does not give them. The requests are
// signed by s3_signature.h.
#include <algorithm>

#include <fmt/format.h>

#include "engine/tier/md5.h"
#include "engine/tier/object_key.h"
#include "engine/tier/s3_call.h"
#include "engine/tier/s3_checksum.h"
#include "engine/tier/s3_content.h"
#include "engine/tier/s3_store.h"
#include "engine/tier/s3_xml.h"

namespace fpfs {
namespace {

constexpr unsigned kPartsAtATime = 4;
constexpr unsigned kCopyAttemptsMax = 3;        // of a copy of whatever version, when it is replaced meanwhile
constexpr uint64_t kBytesPerSecond = 20 << 20;  // at least so fast a service copies, in silence

Status accept_copied(const HttpResponse& response, S3Written& written) {
  S3ErrorText error;
  const Result<S3Written> parsed = parse_s3_copied(response.text, error);
  if (is_s3_error_for_now(error)) return Status::error(StatusCode::kUnreachable, parsed.status().message());
  if (!parsed.is_ok()) return parsed.status();
  written = *parsed;
  return Status::ok();
}

}  // namespace

struct S3Store::Copy {
  std::string from, tag, to;
  std::optional<ObjectMetadata> metadata;
  Done<StoredObject> done;
  unsigned attempts = 0;
  CheckedInfo source;
  // Of a copy in parts:
  Upload upload;
  uint64_t part_bytes = 0;
  std::vector<StoredPart> parts;
  size_t parts_begun = 0, parts_running = 0;
  Status failure;         // the first one
  bool replaced = false;  // the service says that the source is another version
};

void S3Store::copy(const std::string& from, const std::string& tag, const std::string& to,
                   const std::optional<ObjectMetadata>& metadata, Done<StoredObject> done) {
  Status valid = check_s3_key(from);
  if (valid.is_ok()) valid = check_s3_key(to);
  if (valid.is_ok() && metadata) valid = check_metadata(*metadata);
  if (valid.is_ok() && from == to)
    valid = Status::error(StatusCode::kInvalidArgument, fmt::format("copy {} to itself", from));
  if (!valid.is_ok()) return fail_later(valid, done);
  auto copy = std::make_shared<Copy>();
  copy->from = from;
  copy->tag = tag;
  copy->to = to;
  copy->metadata = metadata;
  copy->done = std::move(done);
  begin_copy(copy);
}

void S3Store::begin_copy(const SharedCopy& copy) {
  ++copy->attempts;
  head_with_checksum(copy->from, [this, copy](const Result<CheckedInfo>& found) {
    if (!found.is_ok()) return copy->done(found.status());
    copy->source = *found;
    if (!copy->tag.empty() && found->info.tag != copy->tag) return other_version(copy);
    found->info.size <= options_.copy_bytes_max ? copy_whole(copy) : copy_in_parts(copy);
  });
}

// The source is not what it was. Who asked for no version gets the one that is there now.
void S3Store::other_version(const SharedCopy& copy) {
  if (copy->tag.empty() && copy->attempts < kCopyAttemptsMax) return begin_copy(copy);
  copy->done(Status::error(StatusCode::kNotFound, copy->from + ": it is another version by now"));
}

S3Store::SharedCall S3Store::copy_call(const SharedCopy& copy, const Query& query, uint64_t length) const {
  const SharedCall call = make_call("PUT", copy->to, query);
  call->what += " as a copy of " + copy->from;
  call->sign_here = true;
  HttpRequest& request = call->request;
  request.headers.push_back(fmt::format("x-amz-copy-source: /{}/{}{}", options_.url.bucket,
                                        percent_encode(options_.url.prefix, true), percent_encode(copy->from, true)));
  request.headers.push_back(fmt::format("x-amz-copy-source-if-match: \"{}\"", copy->source.info.tag));
  request.stall_timeout += std::chrono::seconds(length / kBytesPerSecond);
  return call;
}

void S3Store::copy_whole(const SharedCopy& copy) {
  const SharedCall call = copy_call(copy, {}, copy->source.info.size);
  call->request.headers.push_back(fmt::format("x-amz-metadata-directive: {}", copy->metadata ? "REPLACE" : "COPY"));
  if (copy->metadata) add_s3_metadata(call->request, *copy->metadata);
  auto written = std::make_shared<S3Written>();
  call->accept = [written](const HttpResponse& response) { return accept_copied(response, *written); };
  call->done = [this, copy, written](const Status& status, const S3Failure* failure) {
    if (failure != nullptr && failure->http_status == 412) return other_version(copy);
    if (!status.is_ok()) return copy->done(status);
    const std::string& source = copy->source.checksum;
    const bool same_checksum = !source.empty() && source.find('-') == std::string::npos && written->checksum == source;
    const bool same_md5 = written->tag == copy->source.info.tag && md5_from_hexadecimal(written->tag.substr(0, 32));
    end_copy(copy, {written->tag, same_checksum || same_md5});
  };
  start(call);
}

// A service that knows no If-Match copies what is there. Where the tag does not say it, the source is looked at again.
void S3Store::end_copy(const SharedCopy& copy, const StoredObject& stored) {
  if (stored.verified || stored.tag == copy->source.info.tag) return copy->done(stored);
  head(copy->from, [this, copy, stored](const Result<ObjectInfo>& found) {
    if (!found.is_ok() && found.status().code() != StatusCode::kNotFound) return copy->done(found.status());
    found.is_ok() && found->tag == copy->source.info.tag ? copy->done(stored) : other_version(copy);
  });
}

// --- in parts -------------------------------------------------------------------------------------------------------

void S3Store::copy_in_parts(const SharedCopy& copy) {
  const ObjectMetadata& metadata = copy->metadata ? *copy->metadata : copy->source.info.metadata;
  begin_upload(copy->to, metadata, [this, copy](const Result<Upload>& upload) {
    if (!upload.is_ok()) return copy->done(upload.status());
    copy->upload = *upload;
    const uint64_t size = copy->source.info.size;
    copy->part_bytes = std::max(options_.copy_part_bytes, (size + part_count_max() - 1) / part_count_max());
    copy->parts.assign((size + copy->part_bytes - 1) / copy->part_bytes, StoredPart());
    copy->parts_begun = copy->parts_running = 0;
    copy->failure = Status::ok();
    copy->replaced = false;
    while (copy->parts_begun < std::min<size_t>(kPartsAtATime, copy->parts.size())) copy_next_part(copy);
  });
}

void S3Store::copy_next_part(const SharedCopy& copy) {
  const size_t index = copy->parts_begun++;
  ++copy->parts_running;
  const uint64_t begin = index * copy->part_bytes, length = std::min(copy->part_bytes, copy->source.info.size - begin);
  const SharedCall call = copy_call(
      copy, {{"partNumber", std::to_string(index + 1)}, {"uploadId", id_of_service(copy->upload.id)}}, length);
  call->request.headers.push_back(fmt::format("x-amz-copy-source-range: bytes={}-{}", begin, begin + length - 1));
  auto written = std::make_shared<S3Written>();
  call->accept = [written](const HttpResponse& response) { return accept_copied(response, *written); };
  call->done = [this, copy, index, length, written](const Status& status, const S3Failure* failure) {
    copy->parts[index] = {static_cast<uint32_t>(index + 1), length, written->tag, written->checksum};
    copy->replaced |= failure != nullptr && failure->http_status == 412;
    part_copied(copy, status);
  };
  start(call);
}

void S3Store::part_copied(const SharedCopy& copy, const Status& status) {
  --copy->parts_running;
  if (copy->failure.is_ok()) copy->failure = status;
  if (copy->failure.is_ok() && copy->parts_begun < copy->parts.size()) return copy_next_part(copy);
  if (copy->parts_running > 0) return;
  if (copy->failure.is_ok())
    return finish_upload(copy->upload, copy->parts, [this, copy](const Result<StoredObject>& stored) {
      // What is verified is that it has the parts that the service read.
      stored.is_ok() ? end_copy(copy, {stored->tag, false}) : copy->done(stored.status());
    });
  abort_upload(copy->upload, [this, copy](const Status&) {  // or uploads() finds it
    copy->replaced ? other_version(copy) : copy->done(copy->failure);
  });
}

}  // namespace fpfs
