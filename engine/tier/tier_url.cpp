#include "engine/tier/tier_url.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "engine/tier/object_key.h"

namespace fpfs {
namespace {

Status bad(const std::string& why) {
  return Status::error(StatusCode::kInvalidArgument, "tier: " + why);
}

// As AWS has it: 3 to 63 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit. Others allow capitals
// and '_'.
bool is_bucket(std::string_view name) {
  if (name.size() < 3 || name.size() > 63) return false;
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (!is_alphanumeric(name.front()) || !is_alphanumeric(name.back())) return false;
  return std::ranges::all_of(name, [&](char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; });
}

bool has_only(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

Result<std::string> parse_endpoint(const std::string& text) {
  if (text.find('@') != std::string::npos)
    return bad("the endpoint has credentials; they belong into the environment or a credentials file");
  std::string_view rest = text;
  if (rest.starts_with("http://"))
    rest.remove_prefix(7);
  else if (rest.starts_with("https://"))
    rest.remove_prefix(8);
  else
    return bad(fmt::format(
        "endpoint '{}' does not begin with http:// or https://; write https://HOST or http://HOST:PORT", text));
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#") != std::string_view::npos)
    return bad(
        fmt::format("endpoint '{}' has more than a host and a port; write https://HOST or http://HOST:PORT", text));
  if (!has_only(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]"))
    return bad(fmt::format("endpoint '{}' has no host; write https://HOST or http://HOST:PORT", text));
  return text.substr(0, static_cast<size_t>(rest.data() - text.data()) + rest.size());
}

Result<unsigned> parse_count(const std::string& name, const std::string& text, unsigned smallest, unsigned largest) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < smallest || value > largest)
    return bad(fmt::format("{}={} is not a number from {} to {}", name, text, smallest, largest));
  return value;
}

bool is_secret(const std::string& name) {
  std::string small = name;
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const char* word : {"key", "secret", "token", "password", "signature", "credential"})
    if (small.find(word) != std::string::npos) return true;
  return false;
}

Status unknown_option(const std::string& name, const char* known) {
  if (is_secret(name))
    return bad(
        fmt::format("option '{}' would show a secret in the list of processes; set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or use a credentials file",
                    name));
  return bad(fmt::format("unknown option '{}'; there {}", name, known));
}

Status set_option(TierUrl& url, const std::string& name, const std::string& value) {
  if (name == "connections") {
    FPFS_ASSIGN_OR_RETURN(url.connections, parse_count(name, value, 1, 256));
  } else if (url.kind == TierUrl::Kind::kFile) {
    return unknown_option(name, "is connections");
  } else if (name == "deadline") {
    FPFS_ASSIGN_OR_RETURN(url.deadline_s, parse_count(name, value, 1, 86400));
  } else if (name == "endpoint") {
    FPFS_ASSIGN_OR_RETURN(url.endpoint, parse_endpoint(value));
  } else if (name == "region") {
    if (!has_only(value, kNameCharacters))
      return bad(fmt::format("region '{}' is no name of a region, like eu-central-1", value));
    url.region = value;
  } else if (name == "profile") {
    if (value.empty() || value.find_first_of("[]\n") != std::string::npos)
      return bad(fmt::format("profile '{}' is no name of a profile, as in the file of credentials: [NAME]", value));
    url.profile = value;
  } else if (name == "credentials" || name == "ca") {
    if (!value.starts_with('/'))
      return bad(fmt::format("{}={} is not an absolute path, like /etc/fastpersistfs/{}", name, value, name));
    (name == "ca" ? url.ca_path : url.credentials_path) = value;
  } else {
    return unknown_option(name, "are endpoint, region, profile, credentials, ca, connections and deadline");
  }
  return Status::ok();
}

Status set_options(TierUrl& url, std::string_view query) {
  std::set<std::string> seen;
  std::string last;
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view option = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    const size_t equals = option.find('=');
    // Not repeated: it may be the rest of a secret with a '&' in it.
    if (equals == std::string_view::npos)
      return bad(fmt::format("{} has no value; options are written name=value, with '&' between them",
                             seen.empty() ? "the first option" : "the option behind " + last));
    const std::string name(option.substr(0, equals));
    const Result<std::string> value = percent_decode(option.substr(equals + 1));
    if (!value.is_ok()) return bad(fmt::format("option '{}' has a '%' without two hexadecimal digits", name));
    if (value->find('\0') != std::string::npos) return bad(fmt::format("option '{}' has a NUL byte", name));
    if (!seen.insert(name).second) return bad(fmt::format("option '{}' is given twice", name));
    FPFS_RETURN_IF_ERROR(set_option(url, name, *value));
    last = name;
  }
  return Status::ok();
}

Result<TierUrl> parse_file(std::string_view rest) {
  const size_t question = rest.find('?');
  const std::string_view place = rest.substr(0, question);
  if (!place.starts_with('/'))
    return bad(fmt::format("file://{} has no absolute path; write file:///mnt/directory", place));
  const Result<std::string> path = percent_decode(place);
  if (!path.is_ok()) return bad(fmt::format("file://{} has a '%' without two hexadecimal digits", place));
  if (path->find('\0') != std::string::npos) return bad("the path has a NUL byte");
  TierUrl url;
  url.path = *path;
  if (question != std::string_view::npos) FPFS_RETURN_IF_ERROR(set_options(url, rest.substr(question + 1)));
  return url;
}

Result<TierUrl> parse_s3(std::string_view rest) {
  TierUrl url;
  url.kind = TierUrl::Kind::kS3;
  url.region = "us-east-1";
  const size_t question = rest.find('?');
  const std::string_view place = rest.substr(0, question);
  const size_t slash = place.find('/');
  url.bucket = place.substr(0, slash);
  if (url.bucket.find(':') != std::string::npos)
    return bad("s3:// is followed by a bucket; a host and its port belong into endpoint=");
  if (!is_bucket(url.bucket))
    return bad(fmt::format("'{}' is no name of a bucket (3 to 63 letters, digits, '-', '.' and '_')", url.bucket));
  if (slash != std::string_view::npos) {
    const Result<std::string> prefix = percent_decode(place.substr(slash + 1));
    if (!prefix.is_ok()) return bad(fmt::format("s3://{} has a '%' without two hexadecimal digits", place));
    url.prefix = *prefix;
    if (!url.prefix.empty() && !url.prefix.ends_with('/')) url.prefix += '/';
    const Status valid = check_key_prefix(url.prefix, 0);
    if (!valid.is_ok()) return bad(valid.message());
    if (!is_utf8(url.prefix)) return bad("the prefix is not UTF-8");
  }
  if (question != std::string_view::npos) FPFS_RETURN_IF_ERROR(set_options(url, rest.substr(question + 1)));
  if (url.endpoint.empty()) url.endpoint = fmt::format("https://s3.{}.amazonaws.com", url.region);
  return url;
}

}  // namespace

Result<TierUrl> parse_tier_url(std::string_view text) {
  // "scheme://user:secret@..." in all its forms, also with a '/' in the secret. No key of ours needs an '@' there: it
  // can be written %40.
  if (text.substr(0, text.find('?')).find('@') != std::string_view::npos)
    return bad(
        "the URL has an '@', which ends credentials; they belong into the environment "
        "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or a credentials file. Write %40 for an '@' in a path");
  if (text.starts_with("file://")) return parse_file(text.substr(7));
  if (text.starts_with("s3://")) return parse_s3(text.substr(5));
  return bad(fmt::format("'{}' begins with neither file:// nor s3://; write file:///DIRECTORY or s3://BUCKET/PREFIX",
                         text.substr(0, std::min(text.find_first_of(":?@"), size_t{60}))));
}

std::string describe(const TierUrl& url) {
  if (url.kind == TierUrl::Kind::kFile) return "file://" + url.path;
  return fmt::format("s3://{}/{} at {}", url.bucket, url.prefix, url.endpoint);
}

}  // namespace fpfs
