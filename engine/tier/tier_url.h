// The URL of a store, as the option tier= has it:
//
//   file:///mnt/cephfs/ckpt?connections=4          a directory of a mounted filesystem; it exists
//   s3://bucket/prefix?endpoint=https://host:port&region=eu-1
//
// A path or a value may have '%XX' for any byte (a comma ends a mount option: write %2C; an '@' in a path: %40).
// Options, all optional, of s3 but for connections:
//
//   endpoint=URL          http:// or https://, host, port; by default https://s3.REGION.amazonaws.com
//   region=NAME           default us-east-1
//   profile=NAME          of the credentials file
//   credentials=PATH      another credentials file
//   ca=PATH               certificates that https is checked with; default: the system's
//   connections=N         calls to the store at the same time, 1 to 256, default 16; as many that fetch, besides
//   deadline=SECONDS      a call is tried again for so long, 1 to 86400, default 300
//
// Secrets are refused, and not repeated by the message: a URL is seen in the list of processes.
//
// Thread safety: pure.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace fpfs {

struct TierUrl {
  enum class Kind : uint8_t { kFile, kS3 } kind = Kind::kFile;
  std::string path;  // of kFile: absolute; `connections` counts, too

  // Of kS3:
  std::string bucket;
  std::string prefix;    // empty, or ends with '/'
  std::string endpoint;  // scheme, host and port, without a '/' at its end
  std::string region;
  std::string profile;           // empty: AWS_PROFILE, or "default"
  std::string credentials_path;  // empty: AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials
  std::string ca_path;           // empty: the system's
  unsigned connections = 16;
  unsigned deadline_s = 300;
};

// kInvalidArgument, with one line that says what is wrong and what is right.
Result<TierUrl> parse_tier_url(std::string_view text);
// How messages name it: no options, "s3://bucket/prefix/ at http://host:port".
std::string describe(const TierUrl& url);

}  // namespace fpfs
