// Status and Result<T>: how every fallible call of the engine reports.
//
// A Status is one pointer: null means success, so returning success costs nothing. A failure carries what an
// operator needs to act: the code, the errno behind it, and where it happened (member, offset, length). Statuses are
// immutable and cheap to copy; one failure is often reported to many waiters.
//
// Thread safety: values; share freely.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "engine/base/check.h"

namespace fpfs {

enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,  // the caller's input is wrong (options, offsets out of range)
  kNotFound,
  kExists,
  kIoError,      // a drive or the filesystem under a member failed
  kNoSpace,      // ENOSPC or EDQUOT of a member
  kCorruption,   // bytes on a member are not what was written
  kUnsupported,  // unknown version, unknown feature flag, a filesystem without O_DIRECT
  kReadOnly,     // the array is mounted or has become read-only
  kBusy,         // held by another process, or by an open file
  kTooLarge,     // beyond a limit of the format
  kPermission,
  kCancelled,
  // Of a service (engine/tier):
  kUnreachable,  // it does not answer, answers too slowly, or says to come again later
  kWrongStore,   // what answers is not the store that is meant: bucket, region, endpoint or directory
  kClockSkew,    // its clock and that of this machine differ too much
  kRefused,      // it refuses this request, and would again
  kSystem,       // any other errno of a system call; see errno_value()
};

const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  static constexpr int kNoMember = -1;

  Status() = default;
  static Status ok() { return Status(); }
  // A failure that is not a failed system call.
  static Status error(StatusCode code, std::string message);
  // A failed system call: `operation` says what was tried and on what ("open /nvme0/fp/superblock"), `errno_value` is
  // positive. The code is derived from errno_value (ENOSPC and EDQUOT: kNoSpace, EIO: kIoError, ...).
  static Status from_errno(int errno_value, std::string operation);

  bool is_ok() const { return detail_ == nullptr; }
  explicit operator bool() const = delete;  // write is_ok(): "if (status)" reads as its opposite to C programmers
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::kOk; }
  // The positive errno that a FUSE reply or a libc-like caller should see; 0 when ok. The one place that maps codes to
  // errno values (kCorruption: EIO, kReadOnly: EROFS, kNoSpace: ENOSPC, kSystem: the call's own errno ...).
  int errno_value() const;
  int member() const { return detail_ ? detail_->member : kNoMember; }
  uint64_t offset() const { return detail_ ? detail_->offset : 0; }
  uint64_t length() const { return detail_ ? detail_->length : 0; }
  // One line for a person: what was found, where. Never empty for a failure.
  std::string message() const;

  // The same failure with a place attached.
  Status at(int member, uint64_t offset, uint64_t length) const;
  // The same failure with "context: " before its message.
  Status with_context(const std::string& context) const;

 private:
  struct Detail {
    StatusCode code = StatusCode::kOk;
    int errno_value = 0;
    int member = kNoMember;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::string message;
  };
  explicit Status(std::shared_ptr<const Detail> detail) : detail_(std::move(detail)) {}
  std::shared_ptr<const Detail> detail_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : value_(std::in_place_index<1>, std::move(status)) {  // NOLINT: implicit by design
    FPFS_CHECK(!std::get<1>(value_).is_ok(), "a Result made from a Status must hold a failure");
  }
  bool is_ok() const { return value_.index() == 0; }
  Status status() const { return is_ok() ? Status::ok() : std::get<1>(value_); }
  T& value() & {
    FPFS_CHECK(is_ok(), "value() of a failed Result");
    return std::get<0>(value_);
  }
  const T& value() const& {
    FPFS_CHECK(is_ok(), "value() of a failed Result");
    return std::get<0>(value_);
  }
  T&& value() && {
    FPFS_CHECK(is_ok(), "value() of a failed Result");
    return std::get<0>(std::move(value_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::variant<T, Status> value_;
};

// The outcome of a call of either kind, for code that serves both.
inline const Status& status_of(const Status& status) {
  return status;
}
template <typename T>
Status status_of(const Result<T>& result) {
  return result.status();
}

// FPFS_RETURN_IF_ERROR(expr): leave the function with the failure of a Status expression.
#define FPFS_RETURN_IF_ERROR(expr)                  \
  do {                                              \
    ::fpfs::Status fpfs_status_ = (expr);           \
    if (!fpfs_status_.is_ok()) return fpfs_status_; \
  } while (false)

#define FPFS_CONCAT_INNER(a, b) a##b
#define FPFS_CONCAT(a, b) FPFS_CONCAT_INNER(a, b)
// FPFS_ASSIGN_OR_RETURN(auto x, expr): x from a Result, or leave the function with its failure.
#define FPFS_ASSIGN_OR_RETURN(lhs, expr) FPFS_ASSIGN_OR_RETURN_INNER(FPFS_CONCAT(fpfs_result_, __LINE__), lhs, expr)
#define FPFS_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.is_ok()) return tmp.status();            \
  lhs = std::move(tmp).value()

}  // namespace fpfs
