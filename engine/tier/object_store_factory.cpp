#include "engine/tier/object_store_factory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/mutex.h"
#include "engine/io/thread_executor.h"
#include "engine/tier/file_store.h"
#include "engine/tier/s3_store.h"
#include "engine/tier/tier_url.h"

namespace fpfs {
namespace {

constexpr size_t kFileBytesMax = 16 << 20;  // of certificates and credentials

Result<std::string> read_whole(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(file.is_open() ? kFileBytesMax : 0, '\0');
  ssize_t count = file.is_open() ? 1 : -1;
  size_t length = 0;
  while (count > 0 && length < text.size()) {
    count = ::read(file.number(), text.data() + length, text.size() - length);
    if (count > 0) length += static_cast<size_t>(count);
  }
  if (count < 0) return Status::from_errno(errno, "read " + path);
  text.resize(length);
  return text;
}

FileStore::Random random_of_process() {
  struct Generator {
    Mutex mutex;
    std::mt19937_64 engine FPFS_GUARDED_BY(mutex);
  };
  auto generator = std::make_shared<Generator>();
  {
    const MutexLock lock(generator->mutex);
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    generator->engine.seed(seed);
  }
  return [generator] {
    const MutexLock lock(generator->mutex);
    return generator->engine();
  };
}

Result<std::unique_ptr<ObjectStore>> make_file_store(Storage& storage, const TierUrl& url,
                                                     const ObjectStoreOptions& given) {
  FPFS_ASSIGN_OR_RETURN(std::unique_ptr<FileStore> store,
                        FileStore::open(storage, std::make_unique<ThreadExecutor>(url.connections, "fpfs-tier"),
                                        url.path, random_of_process(), given.lease));
  return std::unique_ptr<ObjectStore>(std::move(store));
}

Result<std::unique_ptr<ObjectStore>> make_s3_store(const TierUrl& url, const ObjectStoreOptions& given) {
  if (!url.ca_path.empty()) {
    const Result<std::string> certificates = read_whole(url.ca_path);
    if (!certificates.is_ok())
      return Status::error(StatusCode::kInvalidArgument,
                           fmt::format("tier: ca={}: {}", url.ca_path, certificates.status().message()));
  }
  S3Options options;
  options.url = url;
  if (given.deadline_s_max > 0) options.url.deadline_s = std::min(url.deadline_s, given.deadline_s_max);
  options.retry = given.retry;
  options.lease = given.lease;
  options.attempt_timeout = given.attempt_timeout;
  options.credentials =
      given.credentials ? *given.credentials : CredentialOptions::from_environment(url.profile, url.credentials_path);
  if (!url.credentials_path.empty() && !given.credentials) {
    const Result<std::string> text = read_whole(url.credentials_path);
    if (!text.is_ok())
      return Status::error(StatusCode::kPermission,
                           fmt::format("tier: credentials={}: {}", url.credentials_path, text.status().message()));
    if (!parse_credentials_file(*text, options.credentials.profile))
      return Status::error(
          StatusCode::kPermission,
          fmt::format("tier: credentials={} has no profile '{}' with aws_access_key_id and aws_secret_access_key",
                      url.credentials_path, options.credentials.profile));
  }
  return std::unique_ptr<ObjectStore>(std::make_unique<S3Store>(options));
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_object_store(Storage& storage, std::string_view url,
                                                       const ObjectStoreOptions& options) {
  FPFS_ASSIGN_OR_RETURN(TierUrl parsed, parse_tier_url(url));
  if (options.connections_max > 0) parsed.connections = std::min(parsed.connections, options.connections_max);
  return parsed.kind == TierUrl::Kind::kFile ? make_file_store(storage, parsed, options)
                                             : make_s3_store(parsed, options);
}

}  // namespace fpfs
