// What users say of single nodes: extended attributes that are real, and mean something here.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "engine/store/store_impl.h"

namespace fpfs {
namespace {

constexpr const char* kSettings[] = {Store::kCompressAttribute, Store::kDurableAttribute, Store::kPinAttribute};
constexpr std::string_view kYes = "yes", kNo = "no";

// Nothing: there is none, or none that can be had, or one that nobody could have set here.
Result<std::optional<std::string>> setting(Storage& storage, Handle node, const char* name) {
  std::array<char, 32> value{};  // longer ones mean nothing here
  const Result<size_t> length = storage.get_xattr(node, name, std::as_writable_bytes(std::span(value)));
  if (length.is_ok()) return std::optional<std::string>({value.data(), *length});
  // None, none possible, one that is too long, or (a daemon that is not root) one that it may not read.
  const int reason = length.status().errno_value();
  if (reason == ENODATA || reason == EOPNOTSUPP || reason == ERANGE || reason == EACCES)
    return std::optional<std::string>();
  return length.status();
}

Status check(std::string_view name, std::string_view value) {
  if (name == Store::kPinAttribute)
    return value == kYes || value == kNo ? Status::ok()
                                         : Status::error(StatusCode::kInvalidArgument, "a file is pinned, yes or no");
  return name == Store::kCompressAttribute ? parse_compression(value).status() : parse_durable(value).status();
}

}  // namespace

bool Store::is_setting(std::string_view name) {
  return std::ranges::find(kSettings, name) != std::end(kSettings);
}

Result<bool> Store::is_pinned(Handle node) {
  FPFS_ASSIGN_OR_RETURN(const std::optional<std::string> said, setting(storage(), node, kPinAttribute));
  return said == kYes;
}

Result<std::optional<Compression>> Store::compression(Handle node) {
  FPFS_ASSIGN_OR_RETURN(const std::optional<std::string> said, setting(storage(), node, kCompressAttribute));
  if (!said.has_value()) return std::optional<Compression>();
  const Result<Compression> compression = parse_compression(*said);
  return compression.is_ok() ? std::optional<Compression>(*compression) : std::nullopt;
}

Result<std::optional<Durable>> Store::durable(Handle node) {
  FPFS_ASSIGN_OR_RETURN(const std::optional<std::string> said, setting(storage(), node, kDurableAttribute));
  if (!said.has_value()) return std::optional<Durable>();
  const Result<Durable> durable = parse_durable(*said);
  return durable.is_ok() ? std::optional<Durable>(*durable) : std::nullopt;
}

// An open file is told how to compress.
Status Store::change_setting(Handle node, std::string_view name, const std::function<Status()>& change) {
  FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
  {
    MutexLock lock(impl_->files.name_lock(attributes.st_ino));
    FPFS_RETURN_IF_ERROR(change());
    std::shared_ptr<File> file = name == kCompressAttribute ? impl_->files.find(attributes.st_ino) : nullptr;
    if (file != nullptr) {
      FPFS_ASSIGN_OR_RETURN(const std::optional<Compression> now, compression(node));
      file->set_compression(now);
    }
  }
  tell_attributes(node);
  return Status::ok();
}

Status Store::set_setting(Handle node, const std::string& name, const std::string& value, int flags) {
  FPFS_RETURN_IF_ERROR(check(name, value));
  return change_setting(node, name,
                        [&] { return storage().set_xattr(node, name, std::as_bytes(std::span(value)), flags); });
}

Status Store::remove_setting(Handle node, const std::string& name) {
  return change_setting(node, name, [&] { return storage().remove_xattr(node, name); });
}

Result<bool> Store::inherit_settings(Handle directory, Handle node) {
  bool inherited = false;
  for (const char* name : kSettings) {
    FPFS_ASSIGN_OR_RETURN(const std::optional<std::string> said, setting(storage(), directory, name));
    if (!said.has_value() || !check(name, *said).is_ok()) continue;
    const auto set = [&] { return impl_->reclaimer->with_space([&] { return set_setting(node, name, *said, 0); }); };
    Status status = set();
    if (status.errno_value() == EACCES) {
      // A daemon that is not root, and a file that its owner may not write: for this moment he may.
      FPFS_ASSIGN_OR_RETURN(const struct stat attributes, storage().fstat(node));
      FPFS_RETURN_IF_ERROR(storage().chmod(node, (attributes.st_mode & 07777) | S_IWUSR));
      status = set();
      FPFS_RETURN_IF_ERROR(storage().chmod(node, attributes.st_mode & 07777));
    }
    FPFS_RETURN_IF_ERROR(status);
    inherited = true;
  }
  return inherited;
}

}  // namespace fpfs
