#include "engine/base/status.h"

#include <cerrno>
#include <vector>

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(StatusTest, SuccessHasNothingToSay) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.errno_value(), 0);
  EXPECT_EQ(status.member(), Status::kNoMember);
  EXPECT_TRUE(status.at(3, 4, 5).is_ok());
  EXPECT_TRUE(status.with_context("mounting").is_ok());
}

TEST(StatusTest, EveryCodeHasANameAndAnErrno) {
  const std::vector<std::pair<StatusCode, int>> expected = {{StatusCode::kInvalidArgument, EINVAL},
                                                            {StatusCode::kNotFound, ENOENT},
                                                            {StatusCode::kExists, EEXIST},
                                                            {StatusCode::kIoError, EIO},
                                                            {StatusCode::kNoSpace, ENOSPC},
                                                            {StatusCode::kCorruption, EIO},
                                                            {StatusCode::kUnsupported, EOPNOTSUPP},
                                                            {StatusCode::kReadOnly, EROFS},
                                                            {StatusCode::kBusy, EBUSY},
                                                            {StatusCode::kTooLarge, EFBIG},
                                                            {StatusCode::kPermission, EACCES},
                                                            {StatusCode::kCancelled, ECANCELED},
                                                            {StatusCode::kUnreachable, EIO},
                                                            {StatusCode::kWrongStore, EIO},
                                                            {StatusCode::kClockSkew, EIO},
                                                            {StatusCode::kRefused, EIO},
                                                            {StatusCode::kSystem, EIO}};
  for (const auto& [code, error] : expected) {
    const Status status = Status::error(code, "");
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.errno_value(), error) << to_string(code);
    EXPECT_EQ(status.message(), to_string(code)) << "a failure always has a message";
  }
}

TEST(StatusTest, SystemCallsKeepTheirErrno) {
  const std::vector<std::pair<int, StatusCode>> expected = {
      {ENOSPC, StatusCode::kNoSpace},    {EDQUOT, StatusCode::kNoSpace},         {EROFS, StatusCode::kReadOnly},
      {ENOENT, StatusCode::kNotFound},   {ENODATA, StatusCode::kNotFound},       {EEXIST, StatusCode::kExists},
      {EACCES, StatusCode::kPermission}, {EPERM, StatusCode::kPermission},       {EBUSY, StatusCode::kBusy},
      {EFBIG, StatusCode::kTooLarge},    {EINVAL, StatusCode::kInvalidArgument}, {EOPNOTSUPP, StatusCode::kUnsupported},
      {ENOTEMPTY, StatusCode::kSystem},  {ELOOP, StatusCode::kSystem},           {EXDEV, StatusCode::kSystem}};
  for (const auto& [error, code] : expected) {
    const Status status = Status::from_errno(error, "open /nvme0/fp/superblock");
    EXPECT_EQ(status.code(), code) << error;
    EXPECT_EQ(status.errno_value(), error);
  }
  EXPECT_EQ(Status::from_errno(EACCES, "open /nvme0/fp/superblock").message(),
            "open /nvme0/fp/superblock: Permission denied");
}

TEST(StatusTest, AFailingDriveIsEioWhateverTheBlockLayerCallsIt) {
  for (const int error : {EIO, EREMOTEIO, EILSEQ, ETIMEDOUT, ENOLINK, EUCLEAN, ENODEV}) {
    const Status status = Status::from_errno(error, "read");
    EXPECT_EQ(status.code(), StatusCode::kIoError) << error;
    EXPECT_EQ(status.errno_value(), EIO) << error;
  }
}

TEST(StatusTest, UnknownErrnoIsNamedByNumber) {
  EXPECT_EQ(Status::from_errno(4095, "open x").message(), "open x: errno 4095");
}

TEST(StatusTest, PlaceAndContextAreInTheMessage) {
  const Status status = Status::from_errno(EIO, "write").at(2, 4096, 1048576).with_context("commit of a.pt");
  EXPECT_EQ(status.message(), "commit of a.pt: write: Input/output error (member 2, offset 4096, length 1048576)");
  EXPECT_EQ(status.member(), 2);
  EXPECT_EQ(status.offset(), 4096u);
  EXPECT_EQ(status.length(), 1048576u);
  EXPECT_EQ(Status::error(StatusCode::kIoError, "sync").at(1, 0, 0).message(), "sync (member 1)");
  EXPECT_EQ(Status::error(StatusCode::kIoError, "read").at(Status::kNoMember, 8, 0).message(),
            "read (offset 8, length 0)");
  EXPECT_EQ(Status::from_errno(EIO, "read").with_context("member 2 (/m2), object x at offset 8").at(2, 8, 9).message(),
            "member 2 (/m2), object x at offset 8: read: Input/output error")
      << "the place is said once";
}

TEST(StatusTest, AContextIsSaidOnce) {
  const Status status = Status::error(StatusCode::kIoError, "no").with_context("/a.pt, chunk 1");
  EXPECT_EQ(status.with_context("/a.pt").message(), "/a.pt, chunk 1: no");
  EXPECT_EQ(status.with_context("/a.pt, chunk 1").message(), "/a.pt, chunk 1: no");
  EXPECT_EQ(status.with_context("/a").message(), "/a: /a.pt, chunk 1: no") << "another file";
}

TEST(StatusTest, StrangersNamesStayOnOneLine) {
  const Status status = Status::error(StatusCode::kNotFound, "a\nb\x1b[2J").with_context("c\rd\te");
  EXPECT_EQ(status.message(), "c?d?e: a?b?[2J");
  EXPECT_EQ(Status::from_errno(ENOENT, "open x\ny").message(), "open x?y: No such file or directory");
  EXPECT_EQ(Status::error(StatusCode::kNotFound, "größer").message(), "größer");
}

TEST(StatusTest, CopiesShareOneFailure) {
  const Status original = Status::error(StatusCode::kNoSpace, "full");
  Status copy;
  copy = original;
  EXPECT_EQ(copy.message(), original.message());
  EXPECT_EQ(original.at(1, 2, 3).member(), 1);
  EXPECT_EQ(original.member(), Status::kNoMember) << "a place is attached to a copy";
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status::error(StatusCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  FPFS_ASSIGN_OR_RETURN(const int once, half(value));
  FPFS_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status check(int value) {
  FPFS_RETURN_IF_ERROR(half(value).status());
  return Status::ok();
}

TEST(ResultTest, HoldsAValueOrAFailure) {
  EXPECT_EQ(half(6).value(), 3);
  EXPECT_FALSE(half(7).is_ok());
  EXPECT_EQ(half(7).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(half(6).status().is_ok());
}

TEST(ResultTest, FailuresPassThroughTheMacros) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_FALSE(quarter(6).is_ok());
  EXPECT_TRUE(check(2).is_ok());
  EXPECT_EQ(check(3).message(), "odd");
}

TEST(ResultTest, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(CheckDeathTest, ABrokenInvariantAbortsWithItsMessage) {
  EXPECT_DEATH((void)half(1).value(), "broken invariant: value\\(\\) of a failed Result");
  EXPECT_DEATH((void)Result<int>(Status::ok()), "must hold a failure");
  EXPECT_DEATH((void)Status::error(StatusCode::kOk, "x"), "broken invariant");
  EXPECT_DEATH((void)Status::from_errno(0, "x"), "broken invariant");
}

}  // namespace
}  // namespace fpfs
