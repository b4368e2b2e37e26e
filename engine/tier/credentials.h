// Where the keys of S3 come from, in the order in which AWS's own tools look: the environment, the shared credentials
// file, the role of a container, the role of an instance (IMDSv2). They are in memory only, and in no message.
//
// Thread safety: a CredentialSource belongs to one thread. get() may block for some seconds while it asks for a role.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/tier/http_client.h"

namespace fpfs {

struct Credentials {
  std::string access_key, secret_key;
  std::string session_token;  // empty: none
  int64_t expires_s = 0;      // seconds since 1970; 0: never
};

// The names and defaults of AWS's tools (AWS_PROFILE, ...). Empty: not set.
struct CredentialOptions {
  std::string access_key, secret_key, session_token;
  std::string profile = "default";
  std::string file_path;             // of the shared credentials file
  std::string container_url;         // AWS_CONTAINER_CREDENTIALS_FULL_URI, or made of ..._RELATIVE_URI
  std::string container_token;       // AWS_CONTAINER_AUTHORIZATION_TOKEN
  std::string container_token_path;  // ..._TOKEN_FILE, read each time
  std::string instance_endpoint = "http://169.254.169.254";
  bool instance_disabled = false;

  // What the environment of this process says. `profile` and `path` come before it where they are not empty.
  static CredentialOptions from_environment(const std::string& profile, const std::string& path);
};

class CredentialSource {
 public:
  using Fetch = std::function<HttpResponse(const HttpRequest&)>;

  explicit CredentialSource(CredentialOptions options, Fetch fetch = &HttpClient::perform);

  // Those of a role are asked for again when they have less than five minutes left. kPermission: there are none, with
  // a line that says where it was looked for; kUnreachable: who has them does not answer.
  Result<Credentials> get(int64_t now_s);
  // The service says that they have expired: they are asked for again.
  void forget() { known_.reset(); }

 private:
  Result<Credentials> find();
  Result<std::optional<Credentials>> from_file();
  Result<Credentials> from_container();
  Result<std::optional<Credentials>> from_instance();

  const CredentialOptions options_;
  const Fetch fetch_;
  std::optional<Credentials> known_;
};

// The answer of a role's endpoint (JSON). kCorruption when it is none.
Result<Credentials> parse_role_credentials(const std::string& text);
// The section of a profile in a shared credentials file; none when there is no such section.
std::optional<Credentials> parse_credentials_file(const std::string& text, const std::string& profile);

}  // namespace fpfs
