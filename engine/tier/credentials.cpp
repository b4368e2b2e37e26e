#include "engine/tier/credentials.h"

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/tier/trimmed.h"

namespace fpfs {
namespace {

constexpr int64_t kRefreshBefore_s = 300;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment
  return value == nullptr ? "" : value;
}

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// They go into headers, where a line break would begin another one.
bool is_one_line(const Credentials& credentials) {
  for (const std::string* text : {&credentials.access_key, &credentials.secret_key, &credentials.session_token})
    for (const char c : *text)
      if (static_cast<unsigned char>(c) < 0x20) return false;
  return true;
}

HttpRequest role_request(const std::string& method, const std::string& url) {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.direct = true;
  request.connect_timeout = std::chrono::milliseconds(1000);
  request.total_timeout = std::chrono::milliseconds(3000);
  return request;
}

Status no_answer(const std::string& who, const HttpResponse& response) {
  const std::string why = response.curl_code != 0 ? response.error : fmt::format("HTTP {}", response.status);
  const bool refused = response.curl_code == 0 && response.status >= 400 && response.status < 500;
  return Status::error(refused ? StatusCode::kPermission : StatusCode::kUnreachable,
                       fmt::format("credentials of {}: {}", who, why));
}

constexpr const char* kInstanceRole =
    "the instance's role (there are none in the daemon's environment, nor in a credentials file)";

}  // namespace

CredentialOptions CredentialOptions::from_environment(const std::string& profile, const std::string& path) {
  CredentialOptions options;
  // Whoever names a profile or a file means it.
  if (profile.empty() && path.empty()) {
    options.access_key = variable("AWS_ACCESS_KEY_ID");
    options.secret_key = variable("AWS_SECRET_ACCESS_KEY");
    options.session_token = variable("AWS_SESSION_TOKEN");
  }
  options.profile = !profile.empty() ? profile : variable("AWS_PROFILE");
  if (options.profile.empty()) options.profile = "default";
  options.file_path = !path.empty() ? path : variable("AWS_SHARED_CREDENTIALS_FILE");
  const std::string home = variable("HOME");
  if (options.file_path.empty() && !home.empty()) options.file_path = home + "/.aws/credentials";
  options.container_url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) options.container_url = "http://169.254.170.2" + relative;
  options.container_token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  options.container_token_path = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  const std::string endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (!endpoint.empty()) options.instance_endpoint = endpoint;
  while (options.instance_endpoint.ends_with('/')) options.instance_endpoint.pop_back();
  options.instance_disabled = variable("AWS_EC2_METADATA_DISABLED") == "true";
  return options;
}

CredentialSource::CredentialSource(CredentialOptions options, Fetch fetch)
    : options_(std::move(options)), fetch_(std::move(fetch)) {}

Result<Credentials> CredentialSource::get(int64_t now_s) {
  if (known_ && (known_->expires_s == 0 || now_s + kRefreshBefore_s < known_->expires_s)) return *known_;
  Result<Credentials> found = find();
  if (found.is_ok()) {
    known_ = *found;
  } else if (known_ && now_s < known_->expires_s) {
    return *known_;  // good until they expire; the next call asks again
  }
  return found;
}

Result<Credentials> CredentialSource::find() {
  if (!options_.access_key.empty() && !options_.secret_key.empty())
    return Credentials{options_.access_key, options_.secret_key, options_.session_token, 0};
  FPFS_ASSIGN_OR_RETURN(const std::optional<Credentials> in_file, from_file());
  if (in_file) return *in_file;
  if (!options_.container_url.empty()) return from_container();
  if (!options_.instance_disabled) {
    FPFS_ASSIGN_OR_RETURN(const std::optional<Credentials> of_instance, from_instance());
    if (of_instance) return *of_instance;
  }
  return Status::error(
      StatusCode::kPermission,
      fmt::format("no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, '{}' has no "
                  "profile '{}', and there is no role of a container or of an instance",
                  options_.file_path, options_.profile));
}

Result<std::optional<Credentials>> CredentialSource::from_file() {
  if (options_.file_path.empty()) return std::optional<Credentials>();
  const std::optional<std::string> text = read_text(options_.file_path);
  if (!text) return std::optional<Credentials>();
  return parse_credentials_file(*text, options_.profile);
}

Result<Credentials> CredentialSource::from_container() {
  HttpRequest request = role_request("GET", options_.container_url);
  std::string token = options_.container_token;
  if (!options_.container_token_path.empty()) token = trimmed(read_text(options_.container_token_path).value_or(""));
  if (token.find_first_of("\r\n") != std::string::npos)
    return Status::error(StatusCode::kPermission, "credentials of the container's role: the token has a line break");
  if (!token.empty()) request.headers.push_back("Authorization: " + token);
  const HttpResponse response = fetch_(request);
  if (response.curl_code != 0 || response.status != 200) return no_answer("the container's role", response);
  return parse_role_credentials(response.text);
}

Result<std::optional<Credentials>> CredentialSource::from_instance() {
  HttpRequest request = role_request("PUT", options_.instance_endpoint + "/latest/api/token");
  request.headers.push_back("X-aws-ec2-metadata-token-ttl-seconds: 21600");
  const HttpResponse token = fetch_(request);
  if (token.curl_code != 0) return std::optional<Credentials>();  // this is no instance
  if (token.status != 200 || token.text.find_first_of("\r\n") != std::string::npos)
    return no_answer(kInstanceRole, token);
  const std::string path = options_.instance_endpoint + "/latest/meta-data/iam/security-credentials/";
  HttpRequest question = role_request("GET", path);
  question.headers.push_back("X-aws-ec2-metadata-token: " + token.text);
  const HttpResponse role = fetch_(question);
  if (role.curl_code == 0 && role.status == 404) return std::optional<Credentials>();  // it has no role
  if (role.curl_code != 0 || role.status != 200) return no_answer(kInstanceRole, role);
  question.url = path + trimmed(role.text.substr(0, role.text.find('\n')));
  const HttpResponse answer = fetch_(question);
  if (answer.curl_code != 0 || answer.status != 200) return no_answer(kInstanceRole, answer);
  FPFS_ASSIGN_OR_RETURN(const Credentials found, parse_role_credentials(answer.text));
  return std::optional<Credentials>(found);
}

Result<Credentials> parse_role_credentials(const std::string& text) {
  const nlohmann::json answer = nlohmann::json::parse(text, nullptr, false);
  const auto value = [&](const char* name) -> std::string {
    if (!answer.is_object()) return "";
    const auto found = answer.find(name);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
  };
  Credentials found{value("AccessKeyId"), value("SecretAccessKey"), value("Token"), 0};
  struct tm parts {};
  const std::string expires = value("Expiration");
  if (!expires.empty() && strptime(expires.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr)
    found.expires_s = static_cast<int64_t>(timegm(&parts));
  if (found.access_key.empty() || found.secret_key.empty() || (!expires.empty() && found.expires_s == 0) ||
      !is_one_line(found))
    return Status::error(StatusCode::kCorruption, "credentials of the role: the answer has none");
  return found;
}

std::optional<Credentials> parse_credentials_file(const std::string& text, const std::string& profile) {
  std::istringstream lines(text);
  Credentials found;
  bool is_ours = false;
  for (std::string line; std::getline(lines, line);) {
    line = trimmed(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      is_ours = trimmed(line.substr(1, line.size() - 2)) == profile;
      continue;
    }
    const size_t equals = line.find('=');
    if (!is_ours || equals == std::string::npos) continue;
    const std::string name = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
    if (name == "aws_access_key_id") found.access_key = value;
    if (name == "aws_secret_access_key") found.secret_key = value;
    if (name == "aws_session_token") found.session_token = value;
  }
  if (found.access_key.empty() || found.secret_key.empty() || !is_one_line(found)) return std::nullopt;
  return found;
}

}  // namespace fpfs
