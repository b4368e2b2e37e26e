// S3Store: what writes objects. s3_store.cpp has the calls themselves, s3_copying.cpp the copies.
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

// The checksum of an object in parts. One of another form, or none, says nothing.
Result<bool> verify_composite(const std::string& checksum, const std::optional<std::string>& expected) {
  if (!expected || checksum.find('-') == std::string::npos) return false;
  if (checksum == *expected) return true;
  return Status::error(StatusCode::kCorruption,
                       fmt::format("the service stored other bytes: their CRC32C is {}, not {}", checksum, *expected));
}

}  // namespace

void S3Store::put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                  Done<StoredObject> done) {
  Status valid = check_s3_key(key);
  if (valid.is_ok()) valid = check_metadata(metadata);
  if (valid.is_ok() && content.size() > part_size_max())
    valid = Status::error(StatusCode::kTooLarge, key + ": more than 5 GiB are uploaded in parts");
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("PUT", key, {});
  call->request.content = content;
  add_s3_metadata(call->request, metadata);
  // A service that answers checksums needs no MD5, which takes ten times as long.
  const Checksums known = checksums_;
  const S3Digests digests =
      add_s3_digests(call->request, content, known != Checksums::kAnswered, known != Checksums::kNone);
  if (digests.checksum) call->checksum_echo = kS3ChecksumHeader;
  call->may_do_without = known == Checksums::kUnknown;
  auto stored = std::make_shared<StoredObject>();
  call->accept = [stored, digests](const HttpResponse& response) -> Status {
    stored->tag = without_quotes(response.header("etag"));
    FPFS_ASSIGN_OR_RETURN(stored->verified, verify_s3_content(response, stored->tag, digests));
    return Status::ok();
  };
  call->done = [stored, done](const Status& status, const S3Failure*) {
    status.is_ok() ? done(*stored) : done(status);
  };
  start(call);
}

void S3Store::begin_upload(const std::string& key, const ObjectMetadata& metadata, Done<Upload> done) {
  Status valid = check_s3_key(key);
  if (valid.is_ok()) valid = check_metadata(metadata);
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("POST", key, {{"uploads", ""}});
  add_s3_metadata(call->request, metadata);
  const Checksums known = checksums_;
  if (known != Checksums::kNone) {
    call->request.headers.push_back(fmt::format("{}: {}", kS3ChecksumAlgorithmHeader, kS3ChecksumAlgorithm));
    call->checksum_echo = kS3ChecksumAlgorithmHeader;
    call->may_do_without = known == Checksums::kUnknown;
  }
  auto id = std::make_shared<std::string>();
  call->accept = [id](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*id, parse_s3_upload_id(response.text));
    if (response.header(kS3ChecksumAlgorithmHeader) == kS3ChecksumAlgorithm) *id = kS3ChecksummedUpload + *id;
    return Status::ok();
  };
  call->done = [key, id, done](const Status& status, const S3Failure*) {
    status.is_ok() ? done(Upload{key, *id}) : done(status);
  };
  start(call);
}

void S3Store::put_part(const Upload& upload, uint32_t number, uint64_t /*offset*/, std::span<const std::byte> content,
                       Done<StoredPart> done) {
  Status valid = check_s3_key(upload.key);
  if (valid.is_ok() && (number == 0 || number > part_count_max()))
    valid = Status::error(StatusCode::kTooLarge,
                          fmt::format("{}: part {} of at most {}", upload.key, number, part_count_max()));
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call =
      make_call("PUT", upload.key, {{"partNumber", std::to_string(number)}, {"uploadId", id_of_service(upload.id)}});
  call->request.content = content;
  const bool with_checksum = is_checksummed_upload(upload.id);
  const S3Digests digests = add_s3_digests(call->request, content, !with_checksum, with_checksum);
  auto part = std::make_shared<StoredPart>(StoredPart{number, content.size(), "", digests.checksum.value_or("")});
  call->accept = [part, digests](const HttpResponse& response) -> Status {
    part->tag = without_quotes(response.header("etag"));
    if (part->tag.empty()) return Status::error(StatusCode::kCorruption, "the answer has no ETag");
    return verify_s3_content(response, part->tag, digests).status();
  };
  call->done = [part, done](const Status& status, const S3Failure*) { status.is_ok() ? done(*part) : done(status); };
  start(call);
}

void S3Store::finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) {
  const Status valid = check_s3_key(upload.key);
  if (!valid.is_ok()) return fail_later(valid, done);
  const bool lacks_checksums = is_checksummed_upload(upload.id) &&
                               std::ranges::any_of(parts, [](const StoredPart& part) { return part.checksum.empty(); });
  if (!lacks_checksums) return finish_checked(upload, parts, done);
  // Somebody wrote down numbers and tags alone.
  this->parts(
      upload, [this, upload, parts = std::move(parts), done](const Result<std::vector<StoredPart>>& known) mutable {
        if (!known.is_ok()) return done(known.status());
        for (StoredPart& part : parts)
          for (const StoredPart& stored : *known)
            if (stored.number == part.number && stored.tag == part.tag) part.checksum = stored.checksum;
        for (const StoredPart& part : parts)
          if (part.checksum.empty())
            return done(Status::error(StatusCode::kNotFound,
                                      fmt::format("upload {} of {}: the service does not say the checksum of part "
                                                  "{}, and wants it; write the part again",
                                                  upload.id, upload.key, part.number)));
        finish_checked(upload, parts, done);
      });
}

// What a finished upload must be called, and what its checksum must be.
struct S3Store::Finish {
  Upload upload;
  std::optional<std::string> tag, checksum;
};

S3Store::Finish S3Store::expect_of(const Upload& upload, const std::vector<StoredPart>& parts) {
  std::vector<std::string> tags, checksums;
  for (const StoredPart& part : parts) {
    tags.push_back(part.tag);
    checksums.push_back(part.checksum);
  }
  return {upload, tag_of_parts(tags), s3_checksum_of_parts(checksums)};
}

void S3Store::finish_checked(const Upload& upload, const std::vector<StoredPart>& parts,
                             const Done<StoredObject>& done) {
  const SharedCall call = make_call("POST", upload.key, {{"uploadId", id_of_service(upload.id)}});
  call->request.text = write_s3_complete(parts);
  const Finish expected = expect_of(upload, parts);
  auto stored = std::make_shared<StoredObject>();
  call->accept = [stored, expected](const HttpResponse& response) -> Status {
    S3ErrorText error;
    const Result<S3Written> written = parse_s3_completed(response.text, error);
    // 200 is sent before it is done, to keep the connection alive.
    if (is_s3_error_for_now(error)) return Status::error(StatusCode::kUnreachable, written.status().message());
    if (!written.is_ok()) return written.status();
    stored->tag = written->tag;
    FPFS_ASSIGN_OR_RETURN(const bool by_checksum, verify_composite(written->checksum, expected.checksum));
    FPFS_ASSIGN_OR_RETURN(const bool by_tag, verify_s3_tag(response, stored->tag, expected.tag));
    stored->verified = by_checksum || by_tag;
    return Status::ok();
  };
  // RGW 16 says InternalError of an upload that is gone, for ever.
  call->ask_first = [](const S3Failure& failure) { return failure.code == "InternalError"; };
  call->done = [this, weak = std::weak_ptr<Call>(call), expected, stored, done](const Status& status,
                                                                                const S3Failure* failure) {
    if (status.is_ok() && stored->tag.empty()) return ask_for_tag(expected, done);  // RGW 16 does not say it
    if (status.is_ok()) return done(*stored);
    const SharedCall ended = weak.lock();
    if (!ended || failure == nullptr) return done(status);
    if (ended->ask_first && ended->ask_first(*failure)) return ask_for_upload(ended, expected, done);
    // An attempt before may have finished it, and its answer was lost.
    if (ended->retry.attempts() > 0 && status.code() == StatusCode::kNotFound)
      return find_finished(expected, status, done);
    done(status);
  };
  start(call);
}

void S3Store::ask_for_tag(const Finish& expected, const Done<StoredObject>& done) {
  head_with_checksum(expected.upload.key, [expected, done](const Result<CheckedInfo>& found) {
    if (!found.is_ok()) return done(found.status());
    done(StoredObject{found->info.tag, is_finished(expected, *found)});
  });
}

// Finishing failed: tries again when the upload is still there.
void S3Store::ask_for_upload(const SharedCall& finish, const Finish& expected, const Done<StoredObject>& done) {
  parts(expected.upload, [this, finish, expected, done](const Result<std::vector<StoredPart>>& found) {
    if (found.is_ok()) {
      finish->ask_first = nullptr;  // from now on as any other call
      return start(finish);
    }
    if (found.status().code() != StatusCode::kNotFound) return done(found.status());
    find_finished(expected, found.status(), done);
  });
}

void S3Store::find_finished(const Finish& expected, const Status& failure, const Done<StoredObject>& done) {
  if (!expected.tag && !expected.checksum) return done(failure);
  head_with_checksum(expected.upload.key, [expected, failure, done](const Result<CheckedInfo>& found) {
    found.is_ok() && is_finished(expected, *found) ? done(StoredObject{found->info.tag, true}) : done(failure);
  });
}

bool S3Store::is_finished(const Finish& expected, const CheckedInfo& found) {
  return (expected.checksum && found.checksum == *expected.checksum) ||
         (expected.tag && found.info.tag == *expected.tag);
}

void S3Store::abort_upload(const Upload& upload, DoneStatus done) {
  const Status valid = check_s3_key(upload.key);
  if (!valid.is_ok()) return fail_later(valid, std::move(done));
  const SharedCall call = make_call("DELETE", upload.key, {{"uploadId", id_of_service(upload.id)}});
  call->done = [done](const Status& status, const S3Failure* failure) {
    done(failure != nullptr && failure->code == "NoSuchUpload" ? Status::ok() : status);
  };
  start(call);
}

void S3Store::parts(const Upload& upload, Done<std::vector<StoredPart>> done) {
  const Status valid = check_s3_key(upload.key);
  if (!valid.is_ok()) return fail_later(valid, done);
  fetch_parts(upload, "0", {}, std::move(done));
}

void S3Store::fetch_parts(const Upload& upload, const std::string& after, std::vector<StoredPart> found,
                          Done<std::vector<StoredPart>> done) {
  const SharedCall call =
      make_call("GET", upload.key, {{"part-number-marker", after}, {"uploadId", id_of_service(upload.id)}});
  auto page = std::make_shared<S3PartPage>();
  call->accept = [page](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*page, parse_s3_parts(response.text));
    return Status::ok();
  };
  call->done = [this, upload, after, page, found = std::move(found), done = std::move(done)](const Status& status,
                                                                                             const S3Failure*) mutable {
    if (!status.is_ok()) return done(status);
    // SeaweedFS 4.48 wants checksums at the end, and does not list them: what has none comes again.
    for (const StoredPart& part : page->parts)
      if (!part.checksum.empty() || !is_checksummed_upload(upload.id)) found.push_back(part);
    if (page->next_part.empty() || page->next_part == after) return done(std::move(found));
    fetch_parts(upload, page->next_part, std::move(found), std::move(done));
  };
  start(call);
}

void S3Store::uploads(const std::string& prefix, Done<std::vector<Upload>> done) {
  const Status valid = check_key_prefix(prefix, options_.url.prefix.size());
  if (!valid.is_ok()) return fail_later(valid, done);
  fetch_uploads(options_.url.prefix + prefix, "", "", {}, std::move(done));
}

void S3Store::fetch_uploads(const std::string& prefix, const std::string& key, const std::string& id,
                            std::vector<Upload> found, Done<std::vector<Upload>> done) {
  // Not with encoding-type=url: RGW 16 encodes keys then, and does not say so.
  Query query = {{"prefix", prefix}, {"uploads", ""}};
  if (!key.empty()) query["key-marker"] = key;
  if (!key.empty() && !id.empty()) query["upload-id-marker"] = id;
  const SharedCall call = make_call("GET", "", query);
  auto page = std::make_shared<S3UploadPage>();
  call->accept = [page](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*page, parse_s3_uploads(response.text));
    return Status::ok();
  };
  call->done = [this, prefix, key, id, page, found = std::move(found), done = std::move(done)](
                   const Status& status, const S3Failure*) mutable {
    if (!status.is_ok()) return done(status);
    for (Upload& upload : page->uploads)
      if (upload.key.starts_with(options_.url.prefix))
        found.push_back({upload.key.substr(options_.url.prefix.size()), std::move(upload.id)});
    if (page->next_key.empty() || (page->next_key == key && page->next_id == id)) return done(std::move(found));
    fetch_uploads(prefix, page->next_key, page->next_id, std::move(found), std::move(done));
  };
  start(call);
}

}  // namespace fpfs
