#include "engine/tier/http_client.h"

#include <curl/curl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/io/named_thread.h"
#include "engine/tier/trimmed.h"

namespace fpfs {
namespace {

constexpr size_t kBufferBytesLeast = 16 * 1024, kBufferBytesMost = 512 * 1024;
constexpr const char* kGivenUp = "given up, as it is not known any more whose copies these are";

void initialise_curl() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  FPFS_CHECK(initialised == CURLE_OK, "libcurl can be initialised");
}

// libcurl takes it anew for each request: what is longer than a small answer needs comes from the kernel, page by page.
long buffer_bytes(size_t content) {
  return static_cast<long>(std::clamp(content, kBufferBytesLeast, kBufferBytesMost));
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

// One request on its way.
struct HttpClient::Transfer {
  Transfer(HttpRequest given, Done answer) : request(std::move(given)), done(std::move(answer)) {}
  ~Transfer() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void prepare();
  void prepare_content();
  void finish(CURLcode code);

  std::span<const std::byte> content() const {
    return request.content.empty() ? std::as_bytes(std::span(request.text)) : request.content;
  }

  static size_t on_read(char* to, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const auto rest = transfer.content().subspan(transfer.sent);
    const size_t length = std::min(size * count, rest.size());
    if (length > 0) std::memcpy(to, rest.data(), length);
    transfer.sent += length;
    return length;
  }
  static int on_seek(void* self, curl_off_t offset, int origin) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > transfer.content().size())
      return CURL_SEEKFUNC_FAIL;
    transfer.sent = static_cast<size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }
  static size_t on_write(char* from, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    HttpResponse& response = transfer.response;
    const size_t length = size * count;
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    const bool is_content = (status == 200 || status == 206) && transfer.request.into.data() != nullptr;
    const size_t room = is_content ? transfer.request.into.size() - response.received
                                   : HttpClient::kTextBytesMax - response.text.size();
    if (length > room) {
      response.overflowed = true;
      return 0;
    }
    if (is_content) {
      std::memcpy(transfer.request.into.data() + response.received, from, length);
      response.received += length;
    } else {
      response.text.append(from, length);
    }
    return length;
  }
  static size_t on_header(char* from, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::string line(from, size * count);
    transfer.head_ended = line == "\r\n" || line == "\n";
    if (line.starts_with("HTTP/")) transfer.response.headers.clear();  // there was a "100 Continue" before
    const size_t colon = line.find(':');
    if (colon != std::string::npos && transfer.response.headers.size() < 1000)
      transfer.response.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    return size * count;
  }

  // Called once a second, and whenever something has moved. (CURLOPT_LOW_SPEED_TIME looks at an average over 5 s.)
  static int on_progress(void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent_bytes) {
    auto& transfer = *static_cast<Transfer*>(self);
    const uint64_t now = monotonic_ns();
    const curl_off_t moved = received + sent_bytes;
    if (transfer.moved_ns == 0 || moved != transfer.moved) {
      transfer.moved = moved;
      transfer.moved_ns = now;
    }
    const auto limit_ns = static_cast<uint64_t>(std::chrono::nanoseconds(transfer.request.stall_timeout).count());
    transfer.stalled = now - transfer.moved_ns >= limit_ns;
    transfer.given_up = !transfer.may_go_on();
    return transfer.stalled || transfer.given_up ? 1 : 0;
  }

  bool may_go_on() const { return !request.may_go_on || request.may_go_on(); }
  // Closing alone would have the kernel send what it has, for minutes: to whoever answers by then.
  static int on_close(void*, curl_socket_t connection) {
    int unsent = 0;
    const struct linger none = {1, 0};
    if (::ioctl(connection, SIOCOUTQ, &unsent) != 0 || unsent > 0)
      ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    return ::close(connection);
  }

  HttpRequest request;
  Done done;
  HttpResponse response;
  bool head_ended = false;
  bool stalled = false, given_up = false;
  curl_off_t moved = 0;
  uint64_t moved_ns = 0;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  size_t sent = 0;
  char error[CURL_ERROR_SIZE] = "";
};

void HttpClient::Transfer::prepare_content() {
  if (request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(content().size()));
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, &Transfer::on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, this);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, &Transfer::on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, this);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, buffer_bytes(content().size()));
  } else if (request.method != "GET") {
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
}

void HttpClient::Transfer::prepare() {
  easy = curl_easy_init();
  FPFS_CHECK(easy != nullptr, "libcurl has memory for a request");
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);  // the path is signed as it stands
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, buffer_bytes(request.into.size()));
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::on_write);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, this);
  curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &Transfer::on_close);
  if (!request.ca_path.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, request.ca_path.c_str());
  if (request.direct) curl_easy_setopt(easy, CURLOPT_PROXY, "");
  if (!request.range.empty()) curl_easy_setopt(easy, CURLOPT_RANGE, request.range.c_str());
  for (const std::string& header : request.headers) headers = curl_slist_append(headers, header.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  if (!request.region.empty()) {
    const std::string scope = "aws:amz:" + request.region + ":s3";
    curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, scope.c_str());
    curl_easy_setopt(easy, CURLOPT_USERNAME, request.access_key.c_str());
    curl_easy_setopt(easy, CURLOPT_PASSWORD, request.secret_key.c_str());
  }
  prepare_content();
}

void HttpClient::Transfer::finish(CURLcode code) {
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &response.status);
  response.curl_code = code;
  if (code != CURLE_OK) response.error = error[0] != '\0' ? error : curl_easy_strerror(code);
  if (stalled) response.error = fmt::format("nothing came for {} s", request.stall_timeout.count());
  if (given_up) response.error = kGivenUp;
  if (code == CURLE_OK && !head_ended) {  // libcurl takes that for an answer without content
    response.curl_code = CURLE_PARTIAL_FILE;
    response.error = "the connection was closed within the head of the answer";
  }
}

HttpResponse HttpClient::perform(const HttpRequest& request) {
  initialise_curl();
  Transfer transfer(request, nullptr);
  transfer.prepare();
  transfer.finish(curl_easy_perform(transfer.easy));
  return std::move(transfer.response);
}

HttpClient::HttpClient(unsigned connections)
    : connections_(connections), multi_((initialise_curl(), curl_multi_init())) {
  FPFS_CHECK(multi_ != nullptr, "libcurl has memory");
  curl_multi_setopt(static_cast<CURLM*>(multi_), CURLMOPT_MAXCONNECTS, static_cast<long>(connections));
  thread_ = start_thread("fpfs-tier", [this] { run(); });
}

HttpClient::~HttpClient() {
  stop();
  curl_multi_cleanup(static_cast<CURLM*>(multi_));
}

void HttpClient::post(Command command) {
  {
    const MutexLock lock(mutex_);
    if (!stopped_) {
      posted_.push_back(std::move(command));
      // The client's own thread looks before it sleeps.
      const bool may_sleep = posted_.size() == 1 && std::this_thread::get_id() != thread_.get_id();
      if (may_sleep) curl_multi_wakeup(static_cast<CURLM*>(multi_));
      return;
    }
  }
  if (command.task) {
    command.task(true);
    return;
  }
  HttpResponse response;
  response.cancelled = true;
  command.done(std::move(response));
}

void HttpClient::start(HttpRequest request, Done done) {
  post({std::move(request), std::move(done), 0, nullptr});
}

void HttpClient::after(std::chrono::milliseconds delay, Task task) {
  const auto delay_ns = static_cast<uint64_t>(std::chrono::nanoseconds(delay).count());
  post({HttpRequest(), nullptr, monotonic_ns() + delay_ns, std::move(task)});
}

void HttpClient::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  curl_multi_wakeup(static_cast<CURLM*>(multi_));
  if (thread_.joinable()) thread_.join();
}

bool HttpClient::take_commands() {
  std::vector<Command> taken;
  bool stopped = false;
  {
    const MutexLock lock(mutex_);
    taken.swap(posted_);
    stopped = stopped_;
  }
  for (Command& command : taken) {
    if (command.task)
      delayed_.emplace(command.due_ns, std::move(command.task));
    else
      waiting_.push_back(std::move(command));
  }
  return !stopped;
}

bool HttpClient::has_commands() const {
  const MutexLock lock(mutex_);
  return !posted_.empty();
}

void HttpClient::start_waiting() {
  while (!waiting_.empty() && running_.size() < connections_) {
    auto transfer = std::make_unique<Transfer>(std::move(waiting_.front().request), std::move(waiting_.front().done));
    waiting_.pop_front();
    if (!transfer->may_go_on()) {
      transfer->response.curl_code = CURLE_ABORTED_BY_CALLBACK;
      transfer->response.error = kGivenUp;
      transfer->done(std::move(transfer->response));
      continue;
    }
    transfer->prepare();
    CURL* const easy = transfer->easy;
    running_.emplace(easy, std::move(transfer));
    const CURLMcode added = curl_multi_add_handle(static_cast<CURLM*>(multi_), easy);
    FPFS_CHECK(added == CURLM_OK, "libcurl takes a request");
  }
}

void HttpClient::reap() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(static_cast<CURLM*>(multi_), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const easy = message->easy_handle;
    const CURLcode code = message->data.result;
    const auto found = running_.find(easy);
    std::unique_ptr<Transfer> transfer = std::move(found->second);
    running_.erase(found);
    transfer->finish(code);
    curl_multi_remove_handle(static_cast<CURLM*>(multi_), easy);
    transfer->done(std::move(transfer->response));
  }
}

int HttpClient::run_due() {
  while (!delayed_.empty()) {
    const uint64_t now = monotonic_ns(), due = delayed_.begin()->first;
    if (due > now) return static_cast<int>(std::min<uint64_t>((due - now) / 1'000'000 + 1, 1000));
    const Task task = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    task(false);
  }
  return 1000;
}

void HttpClient::cancel_all() {
  for (auto& [easy, transfer] : running_) {
    curl_multi_remove_handle(static_cast<CURLM*>(multi_), easy);
    transfer->response.cancelled = true;
    transfer->done(std::move(transfer->response));
  }
  running_.clear();
  take_commands();
  for (Command& command : waiting_) {
    HttpResponse response;
    response.cancelled = true;
    command.done(std::move(response));
  }
  waiting_.clear();
  for (auto& [due, task] : delayed_) task(true);
  delayed_.clear();
}

void HttpClient::run() {
  auto* const multi = static_cast<CURLM*>(multi_);
  while (take_commands()) {
    const int timeout_ms = run_due();
    start_waiting();
    int count = 0;
    curl_multi_perform(multi, &count);
    reap();
    if (has_commands()) continue;  // of those who were answered
    start_waiting();
    if (waiting_.empty() || running_.size() >= connections_) curl_multi_poll(multi, nullptr, 0, timeout_ms, nullptr);
  }
  cancel_all();
}

}  // namespace fpfs
