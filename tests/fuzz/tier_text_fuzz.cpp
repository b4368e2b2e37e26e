// Any text as the URL of a store, a credentials file, the answer of a role, and what says whose a store is: accepted
// with values in their ranges, or refused by one line, which repeats no secret.
#include <string>

#include "engine/tier/credentials.h"
#include "engine/tier/object_key.h"
#include "engine/tier/tier_marker.h"
#include "engine/tier/tier_url.h"
#include "tests/fuzz/fuzz.h"

namespace {

using fpfs::fuzz::require;

constexpr const char* kSecret = "hunter2-hunter2";

void check_refusal(const fpfs::Status& status) {
  const std::string message = status.message();
  require(!message.empty() && message.find('\n') == std::string::npos, "a refusal is one line");
}

void check_url(const std::string& text) {
  const fpfs::Result<fpfs::TierUrl> url = fpfs::parse_tier_url(text);
  if (!url.is_ok()) return check_refusal(url.status());
  require(url->connections >= 1 && url->connections <= 256, "a number of connections in its range");
  require(fpfs::describe(*url).find(kSecret) == std::string::npos || text.find(kSecret) != std::string::npos,
          "only what was given is described");
  if (url->kind == fpfs::TierUrl::Kind::kFile) {
    require(url->path.starts_with('/') && url->path.find('\0') == std::string::npos, "an absolute path");
    return;
  }
  require(url->prefix.empty() || url->prefix.ends_with('/'), "a prefix ends with a slash");
  require(fpfs::check_key_prefix(url->prefix, 0).is_ok() && fpfs::is_utf8(url->prefix), "a prefix of keys");
  require(url->bucket.find('/') == std::string::npos && url->endpoint.starts_with("http"), "a bucket and an endpoint");
  require(url->endpoint.find_first_of("@ \r\n") == std::string::npos, "an endpoint that can be asked");
  require(url->deadline_s >= 1 && url->deadline_s <= 86'400, "a deadline in its range");
}

// A secret where people put it.
void check_secrets(const std::string& text) {
  if (text.find_first_of("?&") != std::string::npos || text.find(kSecret) != std::string::npos) return;
  for (const std::string& url :
       {"s3://" + text + ":" + kSecret + "@bucket/p", "s3://bucket/" + text + kSecret + "@host",
        "file://" + text + ":" + kSecret + "@host/p", text + kSecret + "@host",
        "s3://bucket?secret_key=" + std::string(kSecret) + "&" + text,
        "s3://bucket?endpoint=http://" + text + ":" + kSecret + "@host"}) {
    const fpfs::Result<fpfs::TierUrl> parsed = fpfs::parse_tier_url(url);
    require(!parsed.is_ok(), "a secret is refused");
    require(parsed.status().message().find(kSecret) == std::string::npos, "a secret is not repeated");
  }
}

void check_credentials(const fpfs::Credentials& credentials) {
  require(!credentials.access_key.empty() && !credentials.secret_key.empty(), "both keys");
  for (const std::string* text : {&credentials.access_key, &credentials.secret_key, &credentials.session_token})
    for (const char c : *text) require(static_cast<unsigned char>(c) >= 0x20, "what goes into a header is one line");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_url(text);
  check_url("s3://bucket/" + text);
  check_url("s3://bucket?" + text);
  check_secrets(text);
  for (const char* profile : {"default", "lab"}) {
    const std::optional<fpfs::Credentials> in_file = fpfs::parse_credentials_file(text, profile);
    if (in_file) check_credentials(*in_file);
  }
  const fpfs::Result<fpfs::Credentials> of_role = fpfs::parse_role_credentials(text);
  of_role.is_ok() ? check_credentials(*of_role) : check_refusal(of_role.status());
  const fpfs::Result<std::string> store = fpfs::parse_tier_identity(text);
  store.is_ok() ? require(store->size() == 36, "an UUID") : check_refusal(store.status());
  return 0;
}
