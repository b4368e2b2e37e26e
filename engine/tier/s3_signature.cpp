#include "engine/tier/s3_signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "engine/tier/trimmed.h"

namespace fpfs {
namespace {

using Digest = std::array<unsigned char, 32>;

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<Digest> sha256(std::string_view text) {
  Digest digest;
  unsigned length = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1 ||
      length != digest.size())
    return std::nullopt;
  return digest;
}

std::optional<Digest> hmac(std::string_view key, std::string_view text) {
  Digest digest;
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &length) == nullptr ||
      length != digest.size())
    return std::nullopt;
  return digest;
}

std::string_view view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

struct Place {
  std::string host, path, query;
};

// What libcurl makes of a URL: a port that the scheme has anyway is not in the header Host.
Place place_of(const std::string& url) {
  const size_t scheme_end = url.find("://") + 3, path = std::min(url.find_first_of("/?", scheme_end), url.size());
  Place place;
  place.host = url.substr(scheme_end, path - scheme_end);
  const std::string usual_port = url.starts_with("https") ? ":443" : ":80";
  if (place.host.ends_with(usual_port)) place.host.resize(place.host.size() - usual_port.size());
  const size_t question = url.find('?', path);
  place.path = url.substr(path, question - path);
  if (place.path.empty()) place.path = "/";
  if (question != std::string::npos) place.query = url.substr(question + 1);
  return place;
}

std::map<std::string, std::string> headers_of(const HttpRequest& request, const std::string& host) {
  std::map<std::string, std::string> headers = {{"host", host}};
  for (const std::string& line : request.headers) {
    const size_t end = line.find_first_of(":;");  // "Name;" has no value
    std::string name = line.substr(0, end);
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    headers[name] = end == std::string::npos ? "" : trimmed(line.substr(end + 1));
  }
  return headers;
}

}  // namespace

Status sign_s3_request(HttpRequest& request, const Credentials& credentials, int64_t now_s) {
  const auto seconds = static_cast<time_t>(now_s);
  struct tm parts {};
  gmtime_r(&seconds, &parts);
  const std::string day = fmt::format("{:04}{:02}{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
  const std::string time = fmt::format("{}T{:02}{:02}{:02}Z", day, parts.tm_hour, parts.tm_min, parts.tm_sec);
  request.headers.push_back("x-amz-date: " + time);
  if (!credentials.session_token.empty())
    request.headers.push_back("x-amz-security-token: " + credentials.session_token);

  const Place place = place_of(request.url);
  const std::map<std::string, std::string> headers = headers_of(request, place.host);
  std::string lines, names;
  for (const auto& [name, value] : headers) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, place.path, place.query, lines,
                                            names, headers.at("x-amz-content-sha256"));
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, request.region);
  std::optional<Digest> key = hmac("AWS4" + credentials.secret_key, day);
  for (const std::string_view step :
       {std::string_view(request.region), std::string_view("s3"), std::string_view("aws4_request")})
    if (key) key = hmac(view(*key), step);
  const std::optional<Digest> hashed = sha256(canonical);
  if (key && hashed)
    key = hmac(view(*key), fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, hexadecimal(*hashed)));
  if (!key || !hashed) return Status::error(StatusCode::kUnsupported, "libcrypto refuses HMAC-SHA256");
  request.headers.push_back(
      fmt::format("Authorization: AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, scope, names, hexadecimal(*key)));
  request.region.clear();
  return Status::ok();
}

}  // namespace fpfs
