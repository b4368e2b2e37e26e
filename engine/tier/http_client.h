// HttpClient: requests to a service, many at a time, by libcurl on one thread.
//
// Memory: a request's content is sent from the caller's memory, and an answer's content goes straight to the caller's.
// Other answers are kept up to kTextBytesMax. libcurl has about 1 MiB of buffers for each connection.
//
// A request that ends without its answer (given up, stalled, cancelled) is not sent on: what the kernel still has of it is
// dropped with its connection.
//
// Secrets go to libcurl only: no message has them, and libcurl's own log is off.
//
// Thread safety: start() and after() from any thread. Functions given to them are called on the client's thread, one at
// a time; they must not block for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"

namespace fpfs {

struct HttpRequest {
  std::string method;  // GET, HEAD, PUT, POST, DELETE
  std::string url;     // as it is sent: encoded
  std::vector<std::string> headers;
  std::span<const std::byte> content;  // of the caller, until the answer
  std::string text;                    // sent where there is no content
  std::string range;                   // "0-99"
  // Where the content of an answer of 200 or 206 goes; what is longer than that fails.
  std::span<std::byte> into;

  // AWS Signature Version 4, where `region` is not empty.
  std::string region;
  std::string access_key, secret_key;

  std::string ca_path;  // empty: the system's certificates
  bool direct = false;  // never by a proxy
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::seconds stall_timeout{30};      // without a byte in either direction
  std::chrono::milliseconds total_timeout{0};  // 0: none
  // Asked on the client's thread before the request is sent, and at least once a second until its answer. False: it is
  // given up. Empty: it may.
  std::function<bool()> may_go_on;
};

struct HttpResponse {
  bool cancelled = false;  // the client was stopped
  int curl_code = 0;       // not 0: there is no answer, or a part of one
  std::string error;       // what curl_code means
  long status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string text;                            // content that did not go to `into`
  size_t received = 0;                         // bytes in `into`
  bool overflowed = false;                     // the content was longer than `into`, or than kTextBytesMax

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class HttpClient {
 public:
  static constexpr size_t kTextBytesMax = 8 * 1024 * 1024;
  using Done = std::function<void(HttpResponse)>;
  using Task = std::function<void(bool cancelled)>;

  explicit HttpClient(unsigned connections);
  ~HttpClient();  // stop()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // At most `connections` run at a time; the others wait in the order in which they came.
  void start(HttpRequest request, Done done);
  // Runs `task` on the client's thread after `delay`, or when the client is stopped.
  void after(std::chrono::milliseconds delay, Task task);
  // Answers everything as cancelled, and ends the thread. Not from the client's thread.
  void stop();

  // A request by itself, which blocks.
  static HttpResponse perform(const HttpRequest& request);

 private:
  struct Transfer;
  struct Command {
    HttpRequest request;
    Done done;
    uint64_t due_ns = 0;
    Task task;  // when set, this is no request
  };

  void post(Command command);
  void run();
  bool take_commands();  // false: stopped
  bool has_commands() const;
  void start_waiting();
  void reap();
  int run_due();  // milliseconds until the next
  void cancel_all();

  const unsigned connections_;
  void* const multi_;  // CURLM
  mutable Mutex mutex_;
  std::vector<Command> posted_ FPFS_GUARDED_BY(mutex_);
  bool stopped_ FPFS_GUARDED_BY(mutex_) = false;
  // Of the thread:
  std::deque<Command> waiting_;
  std::multimap<uint64_t, Task> delayed_;
  std::map<void*, std::unique_ptr<Transfer>> running_;  // by CURL
  std::thread thread_;
};

}  // namespace fpfs
