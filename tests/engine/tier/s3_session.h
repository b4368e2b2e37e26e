// An S3Store at a server that answers as a test says.
#pragma once

#include <string>

#include <fmt/format.h>

#include "engine/tier/md5.h"
#include "engine/tier/s3_store.h"
#include "tests/engine/tier/blocking_store.h"
#include "tests/engine/tier/faulty_server.h"

namespace fpfs::test {

inline std::string md5_text(std::string_view content) {
  return hexadecimal(*md5_of(bytes_of(content)));
}

inline ServerReply error_reply(int status, const std::string& code, const std::string& more = "") {
  return {
      status,
      {},
      fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>as planned</Message>{}</Error>", code, more)};
}

inline ServerReply stored(const ServerRequest& request) {
  return {200, {"ETag: \"" + md5_text(request.content) + "\""}, ""};
}

// A store at a server that does what `handler` says; retries come at once.
class Session {
 public:
  explicit Session(FaultyServer::Handler handler, unsigned deadline_s = 20)
      : server_(std::move(handler)), store_(options(server_.endpoint(), deadline_s)), calls_(store_) {}
  BlockingStore* operator->() { return &calls_; }
  FaultyServer& server() { return server_; }
  S3Store& store() { return store_; }

  static S3Options options(const std::string& endpoint, unsigned deadline_s) {
    S3Options options;
    options.url =
        parse_tier_url(fmt::format("s3://bucket/p?region=r-1&endpoint={}&deadline={}", endpoint, deadline_s)).value();
    options.credentials.access_key = "AKID";
    options.credentials.secret_key = "hunter2";
    options.retry.pause_first = std::chrono::milliseconds(1);
    options.retry.pause_max = std::chrono::milliseconds(20);
    options.connect_timeout = std::chrono::milliseconds(1000);
    options.stall_timeout = std::chrono::seconds(1);
    return options;
  }

 private:
  FaultyServer server_;
  S3Store store_;
  BlockingStore calls_;
};

}  // namespace fpfs::test
