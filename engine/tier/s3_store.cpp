#include "engine/tier/s3_store.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ctime>
#include <optional>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/tier/md5.h"
#include "engine/tier/object_key.h"
#include "engine/tier/s3_error.h"
#include "engine/tier/s3_xml.h"

namespace fpfs {
namespace {

constexpr const char* kMetadataHeader = "x-amz-meta-";
constexpr size_t kRemoveManyMax = 1000;

std::chrono::milliseconds monotonic_ms() {
  return std::chrono::milliseconds(monotonic_ns() / 1'000'000);
}

bool has_control_character(const std::string& text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

RetryPolicy policy_of(const S3Options& options) {
  RetryPolicy policy = options.retry;
  policy.deadline = std::chrono::seconds(options.url.deadline_s);
  return policy;
}

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Compares what the service calls the object with what it should be called: kCorruption, or whether that says anything.
Result<bool> verify_tag(const HttpResponse& response, const std::string& tag,
                        const std::optional<std::string>& expected) {
  const std::string encryption = response.header("x-amz-server-side-encryption");
  const bool is_md5 = encryption.empty() || encryption == "AES256";
  if (!expected || !is_md5 || !response.header("x-amz-server-side-encryption-customer-algorithm").empty()) return false;
  if (tag == *expected) return true;
  // Of another form: this service names objects by something else.
  const std::string digest = tag.substr(0, 32);
  const bool same_form = md5_from_hexadecimal(digest) && tag.substr(32) == expected->substr(32);
  if (!same_form) return false;
  return Status::error(StatusCode::kCorruption,
                       fmt::format("the service stored other bytes: their MD5 is {}, not {}", tag, *expected));
}

// "bytes 0-99/1234"
struct ContentRange {
  uint64_t first = 0, last = 0, size = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
  const auto first = number_of(text.substr(0, dash)), last = number_of(text.substr(dash + 1, slash - dash - 1)),
             size = number_of(text.substr(slash + 1));
  if (!first || !last || !size || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{*first, *last, *size};
}

Result<ReadRange> accept_range(const HttpResponse& response, uint64_t offset, size_t wanted) {
  ReadRange range;
  range.tag = without_quotes(response.header("etag"));
  range.length = response.received;
  if (response.status == 200) {  // all of it: an answer that a service may give
    range.object_size = response.received;
    if (offset == 0) return range;
    return Status::error(StatusCode::kWrongStore, "the service does not read ranges");
  }
  const auto given = parse_content_range(response.header("content-range"));
  if (!given || given->first != offset || given->last - given->first + 1 != response.received ||
      response.received != std::min<uint64_t>(wanted, given->size - offset))
    return Status::error(StatusCode::kCorruption,
                         fmt::format("{} bytes at {} were asked for, and the answer is {} of '{}'", wanted, offset,
                                     response.received, response.header("content-range")));
  range.object_size = given->size;
  return range;
}

Result<ObjectInfo> accept_head(const HttpResponse& response, const std::string& key) {
  ObjectInfo info;
  info.key = key;
  const auto size = number_of(response.header("content-length"));
  if (!size) return Status::error(StatusCode::kCorruption, "the answer has no length");
  info.size = *size;
  info.tag = without_quotes(response.header("etag"));
  info.modified_s = std::max<int64_t>(0, curl_getdate(response.header("last-modified").c_str(), nullptr));
  const std::string prefix = kMetadataHeader;
  for (const auto& [name, value] : response.headers) {
    if (!name.starts_with(prefix)) continue;
    const Result<std::string> plain = percent_decode(value);
    info.metadata[name.substr(prefix.size())] = plain.is_ok() ? *plain : value;  // not one of ours
  }
  return info;
}

void add_metadata(HttpRequest& request, const ObjectMetadata& metadata) {
  for (const auto& [name, value] : metadata) {
    const std::string encoded = percent_encode(value, false);
    // libcurl takes "Name;" for a header without a value.
    request.headers.push_back(kMetadataHeader + name + (encoded.empty() ? ";" : ": " + encoded));
  }
}

// None where this machine cannot compute it: nothing is verified then.
std::optional<std::string> add_md5(HttpRequest& request, std::span<const std::byte> content) {
  const std::optional<Md5> digest = md5_of(content);
  if (!digest) return std::nullopt;
  request.headers.push_back("Content-MD5: " + base64(*digest));
  return hexadecimal(*digest);
}

}  // namespace

// One call, from its first attempt to its answer.
struct S3Store::Call {
  Call(std::string words, const RetryPolicy& policy) : what(std::move(words)), retry(policy, monotonic_ms()) {}
  std::string what;     // begins messages
  HttpRequest request;  // not signed
  RetryState retry;
  bool expired_before = false;  // credentials were asked for again
  // Failures that are not tried again before `done` has looked into them. May be empty.
  std::function<bool(const S3Failure&)> ask_first;
  // Reads an answer of 200 to 299. kUnreachable and kCorruption are tried again.
  std::function<Status(const HttpResponse&)> accept = [](const HttpResponse&) { return Status::ok(); };
  // `failure` is null on success.
  std::function<void(Status, const S3Failure* failure)> done;
};

S3Store::S3Store(const S3Options& options)
    : options_(options), credentials_(options.credentials), client_(options.url.connections) {}

S3Store::~S3Store() {
  close();
}

void S3Store::close() {
  client_.stop();
}

// --- calls ----------------------------------------------------------------------------------------------------------

S3Store::SharedCall S3Store::make_call(const std::string& method, const std::string& key, const Query& query) const {
  const TierUrl& url = options_.url;
  const std::string path = fmt::format("/{}{}{}", url.bucket, key.empty() ? "" : "/" + percent_encode(url.prefix, true),
                                       percent_encode(key, true));
  auto call = std::make_shared<Call>(
      fmt::format("{} s3://{}/{}{} at {}", method, url.bucket, url.prefix, key, url.endpoint), policy_of(options_));
  HttpRequest& request = call->request;
  request.method = method;
  request.url = url.endpoint + path;
  char separator = '?';
  for (const auto& [name, value] : query) {  // sorted, as it is signed
    request.url += fmt::format("{}{}={}", separator, name, percent_encode(value, false));
    separator = '&';
  }
  request.headers.push_back("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  request.region = url.region;
  request.ca_path = url.ca_path;
  request.connect_timeout = options_.connect_timeout;
  request.stall_timeout = options_.stall_timeout;
  return call;
}

void S3Store::start(const SharedCall& call) {
  client_.after(std::chrono::milliseconds(0), [this, call](bool cancelled) {
    if (!cancelled) return attempt(call);
    HttpResponse response;
    response.cancelled = true;
    answered(call, response);
  });
}

void S3Store::attempt(const SharedCall& call) {
  const Result<Credentials> credentials = credentials_.get(std::time(nullptr));
  if (!credentials.is_ok()) {
    S3Failure failure;
    failure.status = credentials.status();
    call->done(failure.status, &failure);
    return;
  }
  HttpRequest request = call->request;
  request.access_key = credentials->access_key;
  request.secret_key = credentials->secret_key;
  if (!credentials->session_token.empty())
    request.headers.push_back("x-amz-security-token: " + credentials->session_token);
  client_.start(std::move(request), [this, call](const HttpResponse& response) { answered(call, response); });
}

void S3Store::answered(const SharedCall& call, const HttpResponse& response) {
  S3Failure failure;
  const bool is_success = !response.cancelled && response.curl_code == 0 && response.status / 100 == 2;
  if (is_success) {
    const Status accepted = call->accept(response);
    if (accepted.is_ok()) {
      call->done(accepted, nullptr);
      return;
    }
    failure.status = accepted.with_context(call->what);
    failure.http_status = response.status;
    failure.retry = accepted.code() == StatusCode::kCorruption || accepted.code() == StatusCode::kUnreachable;
  } else {
    failure = interpret_failure(response, call->what, std::time(nullptr));
  }
  if (failure.code == "ExpiredToken" && !call->expired_before) {
    call->expired_before = true;
    credentials_.forget();
    attempt(call);
    return;
  }
  std::optional<std::chrono::milliseconds> pause;
  const bool too_often =
      failure.status.code() == StatusCode::kCorruption && call->retry.attempts() + 1 >= kCorruptionAttemptsMax;
  const bool asks_first = call->ask_first && call->ask_first(failure);
  if (failure.retry && !too_often && !asks_first)
    pause = call->retry.next_pause(monotonic_ms(), failure.retry_after, random_());
  if (!pause) {
    call->done(failure.status, &failure);
    return;
  }
  client_.after(*pause, [this, call, failure](bool cancelled) {
    if (!cancelled) return attempt(call);
    call->done(Status::error(StatusCode::kCancelled, "the store was closed; before that, " + failure.status.message()),
               &failure);
  });
}

void S3Store::fail_later(Status status, DoneStatus done) {
  client_.after(std::chrono::milliseconds(0),
                [status = std::move(status), done = std::move(done)](bool) { done(status); });
}

Status S3Store::check_s3_key(const std::string& key) const {
  FPFS_RETURN_IF_ERROR(check_key(key, options_.url.prefix.size()));
  if (is_utf8(key)) return Status::ok();
  return Status::error(StatusCode::kInvalidArgument, fmt::format("key '{}' is not UTF-8, as S3 needs it", key));
}

// --- writing --------------------------------------------------------------------------------------------------------

void S3Store::put(const std::string& key, std::span<const std::byte> content, const ObjectMetadata& metadata,
                  Done<StoredObject> done) {
  Status valid = check_s3_key(key);
  if (valid.is_ok()) valid = check_metadata(metadata);
  if (valid.is_ok() && content.size() > part_size_max())
    valid = Status::error(StatusCode::kTooLarge, key + ": more than 5 GiB are uploaded in parts");
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("PUT", key, {});
  call->request.content = content;
  add_metadata(call->request, metadata);
  const auto expected = add_md5(call->request, content);
  auto stored = std::make_shared<StoredObject>();
  call->accept = [stored, expected](const HttpResponse& response) {
    stored->tag = without_quotes(response.header("etag"));
    const Result<bool> verified = verify_tag(response, stored->tag, expected);
    stored->verified = verified.is_ok() && *verified;
    return verified.status();
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
  add_metadata(call->request, metadata);
  auto id = std::make_shared<std::string>();
  call->accept = [id](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*id, parse_s3_upload_id(response.text));
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
      make_call("PUT", upload.key, {{"partNumber", std::to_string(number)}, {"uploadId", upload.id}});
  call->request.content = content;
  const auto expected = add_md5(call->request, content);
  auto part = std::make_shared<StoredPart>(StoredPart{number, content.size(), ""});
  call->accept = [part, expected](const HttpResponse& response) -> Status {
    part->tag = without_quotes(response.header("etag"));
    if (part->tag.empty()) return Status::error(StatusCode::kCorruption, "the answer has no ETag");
    return verify_tag(response, part->tag, expected).status();
  };
  call->done = [part, done](const Status& status, const S3Failure*) { status.is_ok() ? done(*part) : done(status); };
  start(call);
}

void S3Store::finish_upload(const Upload& upload, std::vector<StoredPart> parts, Done<StoredObject> done) {
  const Status valid = check_s3_key(upload.key);
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("POST", upload.key, {{"uploadId", upload.id}});
  call->request.text = write_s3_complete(parts);
  std::vector<std::string> tags;
  tags.reserve(parts.size());
  for (const StoredPart& part : parts) tags.push_back(part.tag);
  const auto expected = tag_of_parts(tags);
  auto stored = std::make_shared<StoredObject>();
  call->accept = [stored, expected](const HttpResponse& response) -> Status {
    S3ErrorText error;
    const Result<std::string> tag = parse_s3_completed(response.text, error);
    // 200 is sent before it is done, to keep the connection alive.
    if (error.code == "InternalError" || error.code == "SlowDown" || error.code == "ServiceUnavailable")
      return Status::error(StatusCode::kUnreachable, tag.status().message());
    if (!tag.is_ok()) return tag.status();
    stored->tag = *tag;
    FPFS_ASSIGN_OR_RETURN(stored->verified, verify_tag(response, stored->tag, expected));
    return Status::ok();
  };
  // RGW 16 says InternalError of an upload that is gone, for ever.
  call->ask_first = [](const S3Failure& failure) { return failure.code == "InternalError"; };
  call->done = [this, weak = std::weak_ptr<Call>(call), upload, expected, stored, done](const Status& status,
                                                                                        const S3Failure* failure) {
    if (status.is_ok() && stored->tag.empty()) return ask_for_tag(upload, expected, done);  // RGW 16 does not say it
    if (status.is_ok()) return done(*stored);
    const SharedCall ended = weak.lock();
    if (!ended || failure == nullptr) return done(status);
    if (ended->ask_first && ended->ask_first(*failure)) return ask_for_upload(ended, upload, expected, done);
    // An attempt before may have finished it, and its answer was lost.
    if (ended->retry.attempts() > 0 && status.code() == StatusCode::kNotFound)
      return find_finished(upload, expected, status, done);
    done(status);
  };
  start(call);
}

void S3Store::ask_for_tag(const Upload& upload, const std::optional<std::string>& expected,
                          const Done<StoredObject>& done) {
  head(upload.key, [expected, done](const Result<ObjectInfo>& found) {
    if (!found.is_ok()) return done(found.status());
    done(StoredObject{found->tag, expected && found->tag == *expected});
  });
}

// Finishing failed: tries again when the upload is still there.
void S3Store::ask_for_upload(const SharedCall& finish, const Upload& upload, const std::optional<std::string>& tag,
                             const Done<StoredObject>& done) {
  parts(upload, [this, finish, upload, tag, done](const Result<std::vector<StoredPart>>& found) {
    if (found.is_ok()) {
      finish->ask_first = nullptr;  // from now on as any other call
      return start(finish);
    }
    if (found.status().code() != StatusCode::kNotFound) return done(found.status());
    find_finished(upload, tag, found.status(), done);
  });
}

void S3Store::find_finished(const Upload& upload, const std::optional<std::string>& tag, const Status& failure,
                            const Done<StoredObject>& done) {
  if (!tag) return done(failure);
  head(upload.key, [tag, failure, done](const Result<ObjectInfo>& found) {
    found.is_ok() && found->tag == *tag ? done(StoredObject{*tag, true}) : done(failure);
  });
}

void S3Store::abort_upload(const Upload& upload, DoneStatus done) {
  const Status valid = check_s3_key(upload.key);
  if (!valid.is_ok()) return fail_later(valid, std::move(done));
  const SharedCall call = make_call("DELETE", upload.key, {{"uploadId", upload.id}});
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
  const SharedCall call = make_call("GET", upload.key, {{"part-number-marker", after}, {"uploadId", upload.id}});
  auto page = std::make_shared<S3PartPage>();
  call->accept = [page](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*page, parse_s3_parts(response.text));
    return Status::ok();
  };
  call->done = [this, upload, after, page, found = std::move(found), done = std::move(done)](const Status& status,
                                                                                             const S3Failure*) mutable {
    if (!status.is_ok()) return done(status);
    found.insert(found.end(), page->parts.begin(), page->parts.end());
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

// --- reading --------------------------------------------------------------------------------------------------------

void S3Store::get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
                  Done<ReadRange> done) {
  const Status valid = check_s3_key(key);
  if (!valid.is_ok()) return fail_later(valid, done);
  if (into.empty()) return read_end(key, tag, done);
  const SharedCall call = make_call("GET", key, {});
  call->request.range = fmt::format("{}-{}", offset, offset + into.size() - 1);
  call->request.into = into;
  if (!tag.empty()) call->request.headers.push_back("If-Match: \"" + tag + "\"");
  auto range = std::make_shared<ReadRange>();
  call->accept = [range, offset, wanted = into.size(), tag](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*range, accept_range(response, offset, wanted));
    if (!tag.empty() && range->tag != tag) return Status::error(StatusCode::kNotFound, "it is another version by now");
    return Status::ok();
  };
  call->done = [this, key, tag, range, done](const Status& status, const S3Failure* failure) {
    if (status.is_ok()) return done(*range);
    if (failure != nullptr && failure->http_status == 416) return read_end(key, tag, done);
    done(status);
  };
  start(call);
}

// What is behind the end of an object: nothing, of this version.
void S3Store::read_end(const std::string& key, const std::string& tag, const Done<ReadRange>& done) {
  head(key, [key, tag, done](const Result<ObjectInfo>& found) {
    if (!found.is_ok()) return done(found.status());
    if (!tag.empty() && found->tag != tag)
      return done(Status::error(StatusCode::kNotFound, key + ": it is another version by now"));
    done(ReadRange{0, found->size, found->tag});
  });
}

void S3Store::head(const std::string& key, Done<ObjectInfo> done) {
  const Status valid = check_s3_key(key);
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("HEAD", key, {});
  auto info = std::make_shared<ObjectInfo>();
  call->accept = [info, key](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*info, accept_head(response, key));
    return Status::ok();
  };
  call->done = [info, done](const Status& status, const S3Failure*) { status.is_ok() ? done(*info) : done(status); };
  start(call);
}

void S3Store::list(const ListRequest& request, Done<ListPage> done) {
  Status valid = check_key_prefix(request.prefix, options_.url.prefix.size());
  if (valid.is_ok() && (request.keys_max == 0 || request.keys_max > 1000))
    valid = Status::error(StatusCode::kInvalidArgument, "a page has 1 to 1000 keys");
  if (!valid.is_ok()) return fail_later(valid, done);
  Query query = {{"encoding-type", "url"},
                 {"list-type", "2"},
                 {"max-keys", std::to_string(request.keys_max)},
                 {"prefix", options_.url.prefix + request.prefix}};
  if (request.one_level) query["delimiter"] = "/";
  if (!request.position.empty()) query["continuation-token"] = request.position;
  const SharedCall call = make_call("GET", "", query);
  auto page = std::make_shared<S3ListPage>();
  call->accept = [page](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(*page, parse_s3_list(response.text));
    return Status::ok();
  };
  call->done = [this, page, position = request.position, done](const Status& status, const S3Failure*) {
    if (!status.is_ok()) return done(status);
    const std::string& prefix = options_.url.prefix;
    ListPage found;
    for (ObjectInfo& info : page->objects) {
      if (!info.key.starts_with(prefix)) continue;
      info.key.erase(0, prefix.size());
      // What others put there and no key of ours can name, such as "directory/", is left out.
      if (check_key(info.key, prefix.size()).is_ok()) found.objects.push_back(std::move(info));
    }
    for (const std::string& directory : page->directories)
      if (directory.starts_with(prefix)) found.directories.push_back(directory.substr(prefix.size()));
    found.position = page->next_token;
    if (!found.position.empty() && found.position == position)
      return done(Status::error(StatusCode::kCorruption, describe() + ": the list does not go on"));
    done(std::move(found));
  };
  start(call);
}

void S3Store::check(DoneStatus done) {
  ListRequest request;
  request.keys_max = 1;
  list(request, [done = std::move(done)](const Result<ListPage>& page) {
    done(page.is_ok() ? Status::ok() : page.status().with_context("tier"));
  });
}

// --- removing -------------------------------------------------------------------------------------------------------

void S3Store::remove(const std::string& key, DoneStatus done) {
  const Status valid = check_s3_key(key);
  if (!valid.is_ok()) return fail_later(valid, std::move(done));
  const SharedCall call = make_call("DELETE", key, {});
  call->done = [done](const Status& status, const S3Failure*) {
    done(status.code() == StatusCode::kNotFound ? Status::ok() : status);
  };
  start(call);
}

void S3Store::remove_singly(const std::vector<std::string>& keys, const Done<std::vector<RemoveFailure>>& done) {
  struct Progress {  // on the client's thread
    size_t left = 0;
    std::vector<RemoveFailure> failures;
  };
  auto progress = std::make_shared<Progress>();
  progress->left = keys.size();
  const size_t count = keys.size();
  for (const std::string& key : keys)
    remove(key, [key, count, progress, done](const Status& status) {
      if (!status.is_ok()) progress->failures.push_back({key, status});
      if (--progress->left > 0) return;
      progress->failures.size() == count ? done(progress->failures.front().status)
                                         : done(std::move(progress->failures));
    });
}

void S3Store::remove_many(std::vector<std::string> keys, Done<std::vector<RemoveFailure>> done) {
  Status valid;
  for (const std::string& key : keys)
    if (valid.is_ok()) valid = check_s3_key(key);
  if (keys.size() > kRemoveManyMax)
    valid =
        Status::error(StatusCode::kInvalidArgument, fmt::format("{} keys; at most {}", keys.size(), kRemoveManyMax));
  if (!valid.is_ok()) return fail_later(valid, done);
  if (keys.empty()) return fail_later(Status::ok(), [done](const Status&) { done(std::vector<RemoveFailure>()); });
  // The service wants an MD5 of the list, and XML has no control characters.
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const std::string& key : keys) names.push_back(options_.url.prefix + key);
  const SharedCall call = make_call("POST", "", {{"delete", ""}});
  call->request.text = write_s3_remove(names);
  const auto digest = add_md5(call->request, std::as_bytes(std::span(call->request.text)));
  if (!digest || std::ranges::any_of(names, has_control_character)) return remove_singly(keys, done);
  auto failures = std::make_shared<std::vector<RemoveFailure>>();
  call->accept = [this, failures](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(const std::vector<S3RemoveError> errors, parse_s3_removed(response.text));
    failures->clear();
    for (const S3RemoveError& error : errors) {
      if (error.error.code == "NoSuchKey") continue;
      HttpResponse as_answer;
      as_answer.status = 400;
      as_answer.text = fmt::format("<Error><Code>{}</Code></Error>", error.error.code);
      const S3Failure failure = interpret_failure(as_answer, "DELETE " + error.key, std::time(nullptr));
      failures->push_back({error.key.substr(std::min(options_.url.prefix.size(), error.key.size())), failure.status});
    }
    return Status::ok();
  };
  call->done = [failures, count = keys.size(), done](const Status& status, const S3Failure*) {
    if (!status.is_ok()) return done(status);
    failures->size() == count ? done(failures->front().status) : done(std::move(*failures));
  };
  start(call);
}

}  // namespace fpfs
