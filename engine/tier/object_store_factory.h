// make_object_store: the store that a tier URL names (tier_url.h), ready for its first call.
//
// Nothing is asked of the store yet: whether it answers, whether the credentials do, and whether it is the store that
// is meant, say ObjectStore::check() and check_tier() (tier_marker.h). What is wrong on this machine is said here.
//
// The keys of S3 come from the environment, a credentials file, or the role of a container or instance
// (credentials.h); never from the URL.
//
// Thread safety: a function. It blocks in the filesystem; of a file:// URL that is one which may hang.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/io/storage.h"
#include "engine/tier/credentials.h"
#include "engine/tier/object_store.h"
#include "engine/tier/retry_policy.h"
#include "engine/tier/tier_lease.h"

namespace fpfs {

struct ObjectStoreOptions {
  // By default those of this process's environment, with the profile and the file that the URL names.
  std::optional<CredentialOptions> credentials;
  RetryPolicy retry;                 // its deadline is the URL's; of s3:// only
  unsigned connections_max = 0;      // fewer than the URL says. 0: as it says
  std::shared_ptr<TierLease> lease;  // of what changes the store; it ends with the store. Null: none is needed
  std::chrono::milliseconds attempt_timeout{0};  // of one attempt of a call, whatever it moves; 0: none. Of s3:// only
  unsigned deadline_s_max = 0;  // calls end earlier than the URL says: when somebody waits for them. 0: as it says
};

// `storage`: where a directory is looked for; it outlives the store. The store has threads of its own: one for s3://,
// as many as the URL has connections for file://.
//
// Errors, each one line that says what to do, and none with a secret in it:
//   kInvalidArgument  the URL is wrong, or names certificates that cannot be read
//   kPermission       the URL names a credentials file that cannot be read, or has no such profile
//   kWrongStore       the directory is not there: it is not mounted
//   kUnreachable, kPermission, kIoError   the directory cannot be opened
Result<std::unique_ptr<ObjectStore>> make_object_store(Storage& storage, std::string_view url,
                                                       const ObjectStoreOptions& options = {});

}  // namespace fpfs
