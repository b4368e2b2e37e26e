#include "engine/base/status.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "engine/base/one_line.h"

namespace fpfs {
namespace {

StatusCode code_of_errno(int error) {
  switch (error) {
    case EINVAL:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case ENOENT:
    case ENODATA:  // no such extended attribute
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kExists;
    // What the block layer and filesystems say of a failing drive besides EIO; EUCLEAN is XFS's and ext4's "corrupted".
    case EIO:
    case EUCLEAN:
    case EREMOTEIO:
    case EILSEQ:
    case EBADMSG:
    case ENODEV:
    case ENOLINK:
    case ETIMEDOUT:
    case ESHUTDOWN:
      return StatusCode::kIoError;
    case ENOSPC:
    case EDQUOT:
      return StatusCode::kNoSpace;
    case EOPNOTSUPP:
    case ENOSYS:
      return StatusCode::kUnsupported;
    case EROFS:
      return StatusCode::kReadOnly;
    case EBUSY:
    case EAGAIN:
    case ETXTBSY:
      return StatusCode::kBusy;
    case EFBIG:
    case EOVERFLOW:
    case E2BIG:
      return StatusCode::kTooLarge;
    case EACCES:
    case EPERM:
      return StatusCode::kPermission;
    case ECANCELED:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kSystem;
  }
}

int errno_of_code(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kInvalidArgument:
      return EINVAL;
    case StatusCode::kNotFound:
      return ENOENT;
    case StatusCode::kExists:
      return EEXIST;
    case StatusCode::kNoSpace:
      return ENOSPC;
    case StatusCode::kUnsupported:
      return EOPNOTSUPP;
    case StatusCode::kReadOnly:
      return EROFS;
    case StatusCode::kBusy:
      return EBUSY;
    case StatusCode::kTooLarge:
      return EFBIG;
    case StatusCode::kPermission:
      return EACCES;
    case StatusCode::kCancelled:
      return ECANCELED;
    case StatusCode::kIoError:
    case StatusCode::kCorruption:
    case StatusCode::kUnreachable:
    case StatusCode::kWrongStore:
    case StatusCode::kClockSkew:
    case StatusCode::kRefused:
    case StatusCode::kSystem:
      return EIO;
  }
  return EIO;
}

}  // namespace

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kExists:
      return "exists";
    case StatusCode::kIoError:
      return "I/O error";
    case StatusCode::kNoSpace:
      return "no space";
    case StatusCode::kCorruption:
      return "corruption";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kReadOnly:
      return "read-only";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kTooLarge:
      return "too large";
    case StatusCode::kPermission:
      return "permission denied";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kUnreachable:
      return "unreachable";
    case StatusCode::kWrongStore:
      return "wrong store";
    case StatusCode::kClockSkew:
      return "clock skew";
    case StatusCode::kRefused:
      return "refused";
    case StatusCode::kSystem:
      return "system error";
  }
  return "unknown status code";
}

Status Status::error(StatusCode code, std::string message) {
  FPFS_CHECK(code != StatusCode::kOk, "a failure needs a failure's code");
  auto detail = std::make_shared<Detail>();
  detail->code = code;
  detail->message = message.empty() ? to_string(code) : one_line(std::move(message));
  return Status(std::move(detail));
}

Status Status::from_errno(int errno_value, std::string operation) {
  FPFS_CHECK(errno_value > 0, "a failed system call has a positive errno");
  auto detail = std::make_shared<Detail>();
  detail->code = code_of_errno(errno_value);
  detail->errno_value = errno_value;
  const char* description = strerrordesc_np(errno_value);
  detail->message = one_line(std::move(operation));
  detail->message += ": ";
  detail->message += description != nullptr ? std::string(description) : fmt::format("errno {}", errno_value);
  return Status(std::move(detail));
}

int Status::errno_value() const {
  if (detail_ == nullptr) return 0;
  // A drive's failure reads EIO whatever the block layer called it: programs expect nothing else from read and write.
  if (detail_->code == StatusCode::kIoError) return EIO;
  return detail_->errno_value != 0 ? detail_->errno_value : errno_of_code(detail_->code);
}

std::string Status::message() const {
  if (detail_ == nullptr) return "ok";
  // A context may have named it already: "member 2 (/nvme2/fp), object ... at offset 4096: read: Input/output error".
  if (detail_->member != kNoMember &&
      detail_->message.find(fmt::format("member {} (", detail_->member)) != std::string::npos)
    return detail_->message;
  std::string place;
  if (detail_->member != kNoMember) place = fmt::format("member {}", detail_->member);
  if (detail_->length != 0 || detail_->offset != 0)
    place += fmt::format("{}offset {}, length {}", place.empty() ? "" : ", ", detail_->offset, detail_->length);
  return place.empty() ? detail_->message : fmt::format("{} ({})", detail_->message, place);
}

Status Status::at(int member, uint64_t offset, uint64_t length) const {
  if (detail_ == nullptr) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->member = member;
  detail->offset = offset;
  detail->length = length;
  return Status(std::move(detail));
}

// A message that begins with it already ("/run1/x.pt, chunk 7: ...") says it once.
Status Status::with_context(const std::string& context) const {
  if (detail_ == nullptr) return *this;
  const std::string before = one_line(context);
  const std::string& message = detail_->message;
  if (message.starts_with(before + ": ") || message.starts_with(before + ", ")) return *this;
  auto detail = std::make_shared<Detail>(*detail_);
  detail->message = before + ": " + message;
  return Status(std::move(detail));
}

}  // namespace fpfs
