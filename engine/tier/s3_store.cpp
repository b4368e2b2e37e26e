#include "engine/tier/s3_store.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ctime>
#include <optional>

#include <fmt/format.h>

#include "engine/base/clock.h"
#include "engine/tier/object_key.h"
#include "engine/tier/s3_call.h"
#include "engine/tier/s3_checksum.h"
#include "engine/tier/s3_content.h"
#include "engine/tier/s3_error.h"
#include "engine/tier/s3_signature.h"
#include "engine/tier/s3_xml.h"

namespace fpfs {
namespace {

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

// A tag goes into a header, where a line break would begin another one. A hostile service may have said it in a list.
Status check_s3_tag(const std::string& tag) {
  if (!has_control_character(tag)) return Status::ok();
  return Status::error(StatusCode::kInvalidArgument, "a tag has control characters");
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
  const std::string prefix = kS3MetadataHeader;
  for (const auto& [name, value] : response.headers) {
    if (!name.starts_with(prefix)) continue;
    const Result<std::string> plain = percent_decode(value);
    info.metadata[name.substr(prefix.size())] = plain.is_ok() ? *plain : value;  // not one of ours
  }
  return info;
}

}  // namespace

S3Store::S3Store(const S3Options& options)
    : options_(options), credentials_(options.credentials), client_(options.url.connections) {}

S3Store::~S3Store() {
  close();
}

void S3Store::close() {
  if (options_.lease != nullptr) options_.lease->close();  // which then calls nobody back any more
  client_.stop();
}

// --- calls ----------------------------------------------------------------------------------------------------------

S3Store::SharedCall S3Store::make_call(const std::string& method, const std::string& key, const Query& query) const {
  const TierUrl& url = options_.url;
  const std::string path = fmt::format("/{}{}{}", url.bucket, key.empty() ? "" : "/" + percent_encode(url.prefix, true),
                                       percent_encode(key, true));
  auto call =
      std::make_shared<Call>(fmt::format("{} s3://{}/{}{} at {}", method, url.bucket, url.prefix, key, url.endpoint),
                             policy_of(options_), monotonic_ms());
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
  request.total_timeout = options_.attempt_timeout;
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
  if (!call->changes() || options_.lease == nullptr || options_.lease->holds()) return send(call);
  options_.lease->when_known([this, call](const Status& known) {
    client_.after(std::chrono::milliseconds(0), [this, call, known](bool cancelled) {
      if (known.is_ok() && !cancelled) return send(call);
      S3Failure failure;
      failure.status = cancelled ? Status::error(StatusCode::kCancelled, call->what + ": the store was closed") : known;
      failure.retry = failure.status.code() == StatusCode::kUnreachable;
      try_again(call, failure);  // what was refused is the look, not this call
    });
  });
}

void S3Store::send(const SharedCall& call) {
  const Result<Credentials> credentials = credentials_.get(std::time(nullptr));
  if (!credentials.is_ok()) {
    S3Failure failure;
    failure.status = credentials.status();
    call->done(failure.status, &failure);
    return;
  }
  HttpRequest request = call->request;
  if (call->sign_here) {
    const Status is_signed = sign_s3_request(request, *credentials, std::time(nullptr));
    if (!is_signed.is_ok()) return call->done(is_signed, nullptr);
  } else {
    request.access_key = credentials->access_key;
    request.secret_key = credentials->secret_key;
    if (!credentials->session_token.empty())
      request.headers.push_back("x-amz-security-token: " + credentials->session_token);
  }
  if (call->changes() && options_.lease != nullptr)
    request.may_go_on = [lease = options_.lease] { return lease->holds(); };
  client_.start(std::move(request), [this, call](const HttpResponse& response) { answered(call, response); });
}

void S3Store::answered(const SharedCall& call, const HttpResponse& response) {
  S3Failure failure;
  const bool is_success = !response.cancelled && response.curl_code == 0 && response.status / 100 == 2;
  if (is_success) {
    const Status accepted = call->accept(response);
    if (accepted.is_ok()) {
      learn_of_checksums(*call, response);
      call->done(accepted, nullptr);
      return;
    }
    failure.status = accepted.with_context(call->what);
    failure.http_status = response.status;
    failure.retry = accepted.code() == StatusCode::kCorruption || accepted.code() == StatusCode::kUnreachable;
  } else {
    failure = interpret_failure(response, call->what, std::time(nullptr));
  }
  failed(call, failure);
}

void S3Store::failed(const SharedCall& call, const S3Failure& failure) {
  if (failure.code == "ExpiredToken" && !call->expired_before) {
    call->expired_before = true;
    credentials_.forget();
    attempt(call);
    return;
  }
  if (failure.status.code() == StatusCode::kRefused && call->may_do_without) {
    call->may_do_without = false;
    call->did_without = true;
    remove_s3_checksums(call->request);
    attempt(call);
    return;
  }
  if (call->ask_first && call->ask_first(failure)) return call->done(failure.status, &failure);
  try_again(call, failure);
}

void S3Store::try_again(const SharedCall& call, const S3Failure& failure) {
  std::optional<std::chrono::milliseconds> pause;
  const bool too_often =
      failure.status.code() == StatusCode::kCorruption && call->retry.attempts() + 1 >= kCorruptionAttemptsMax;
  if (failure.retry && !too_often) pause = call->retry.next_pause(monotonic_ms(), failure.retry_after, random_());
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

void S3Store::learn_of_checksums(const Call& call, const HttpResponse& response) {
  if (call.checksum_echo.empty()) return;
  const bool is_answered = !call.did_without && !response.header(call.checksum_echo).empty();
  if (is_answered)
    checksums_ = Checksums::kAnswered;
  else  // one that was known is asked once more: a service may be several
    checksums_ = checksums_ == Checksums::kAnswered ? Checksums::kUnknown : Checksums::kNone;
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

// --- reading --------------------------------------------------------------------------------------------------------

void S3Store::get(const std::string& key, uint64_t offset, std::span<std::byte> into, const std::string& tag,
                  Done<ReadRange> done) {
  Status valid = check_s3_key(key);
  if (valid.is_ok()) valid = check_s3_tag(tag);
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
  head_with_checksum(
      key,
      [done = std::move(done)](const Result<CheckedInfo>& found) {
        found.is_ok() ? done(found->info) : done(found.status());
      },
      false);
}

void S3Store::head_with_checksum(const std::string& key, const Done<CheckedInfo>& done, bool with_checksum) {
  const Status valid = check_s3_key(key);
  if (!valid.is_ok()) return fail_later(valid, done);
  const SharedCall call = make_call("HEAD", key, {});
  if (with_checksum && checksums_ != Checksums::kNone)
    call->request.headers.emplace_back("x-amz-checksum-mode: ENABLED");
  auto found = std::make_shared<CheckedInfo>();
  call->accept = [found, key](const HttpResponse& response) -> Status {
    FPFS_ASSIGN_OR_RETURN(found->info, accept_head(response, key));
    found->checksum = response.header(kS3ChecksumHeader);
    return Status::ok();
  };
  call->done = [found, done](const Status& status, const S3Failure*) { status.is_ok() ? done(*found) : done(status); };
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
  const S3Digests digests = add_s3_digests(call->request, std::as_bytes(std::span(call->request.text)), true, false);
  if (!digests.md5 || std::ranges::any_of(names, has_control_character)) return remove_singly(keys, done);
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
