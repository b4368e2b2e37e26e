#include "tools/fsck/report.h"

#include <gtest/gtest.h>

#include "tools/common/json_output.h"

namespace fpfs::tools {
namespace {

CheckError error_with(bool repaired) {
  CheckError error;
  error.path = "/run1/step100.pt";
  error.chunk = 5;
  error.member = 1;
  error.object_offset = 1048576;
  error.kind = "checksum";
  error.detail = "stored bytes give another checksum";
  error.healing = repaired ? "" : "lost";
  error.repaired = repaired;
  return error;
}

CheckReport report_with(std::vector<CheckError> errors, bool cancelled = false, uint64_t omitted = 0) {
  CheckReport report;
  report.files = 3;
  report.chunks = 7;
  report.bytes_stored = 7000000;
  report.bytes_verified = 6000000;
  report.seconds = 0.5;
  report.errors = std::move(errors);
  report.errors_omitted = omitted;
  report.cancelled = cancelled;
  return report;
}

TEST(FsckExitCode, BitsOfFsck8) {
  EXPECT_EQ(fsck_exit_code(report_with({})), 0);
  EXPECT_EQ(fsck_exit_code(report_with({error_with(true)})), 1);
  EXPECT_EQ(fsck_exit_code(report_with({error_with(false)})), 4);
  EXPECT_EQ(fsck_exit_code(report_with({error_with(true), error_with(false)})), 5);
  EXPECT_EQ(fsck_exit_code(report_with({}, /*cancelled=*/true)), 32);
  EXPECT_EQ(fsck_exit_code(report_with({error_with(false)}, /*cancelled=*/true)), 36);
  EXPECT_EQ(fsck_exit_code(report_with({error_with(true)}, false, /*omitted=*/2)), 5);
}

Json printed(const CheckReport& report) {
  testing::internal::CaptureStdout();
  print_report_json(report);
  std::fflush(stdout);
  return parse_json(testing::internal::GetCapturedStdout());
}

TEST(FsckReport, JsonHasExactlyTheKeysOfTheContract) {
  const Json json = printed(report_with({error_with(false)}));
  std::vector<std::string> keys;
  for (auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"clean", "files", "chunks", "bytes_stored", "bytes_verified", "seconds",
                                            "orphans", "meta_dir", "errors", "repaired", "set_aside", "empty_files"}));
  EXPECT_EQ(json["clean"], false);
  EXPECT_EQ(json["bytes_verified"], 6000000);
  ASSERT_EQ(json["errors"].size(), 1U);
  const Json expected = {
      {"path", "/run1/step100.pt"}, {"chunk", 5},         {"member", 1},
      {"object_offset", 1048576},   {"kind", "checksum"}, {"detail", "stored bytes give another checksum"},
      {"healing", "lost"}};
  EXPECT_EQ(json["errors"][0], expected);
}

TEST(FsckReport, CleanMeansCheckedToTheEnd) {
  EXPECT_EQ(printed(report_with({}))["clean"], true);
  EXPECT_EQ(printed(report_with({}, /*cancelled=*/true))["clean"], false);
}

TEST(FsckReport, OmittedErrorsAreSaid) {
  const Json json = printed(report_with({error_with(false)}, false, 12));
  ASSERT_EQ(json["errors"].size(), 2U);
  EXPECT_EQ(json["errors"][1]["kind"], "omitted");
}

TEST(FsckReport, PathsThatAreNotUtf8StillGiveJson) {
  CheckError error = error_with(false);
  error.path = "/bad\xff\xfename";
  const Json json = printed(report_with({error}));
  EXPECT_TRUE(json.is_object());
  EXPECT_EQ(json["errors"][0]["path"].get<std::string>().substr(0, 4), "/bad");
}

TEST(FsckReport, PeopleReadOneLineForEachErrorAndAVerdict) {
  testing::internal::CaptureStdout();
  CheckError second = error_with(true);
  second.path = "/two\nlines\033[31m";
  print_report(report_with({error_with(false), second}), {"/a", "/b"}, Repair::kNone, true);
  std::fflush(stdout);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("/run1/step100.pt: chunk 5, member 1, object offset 1048576: checksum: stored bytes give another "
                      "checksum (lost)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("/two?lines?[31m: "), std::string::npos) << text;
  EXPECT_NE(text.find("(repaired)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("DAMAGED: 1 error; 1 error repaired\n"), std::string::npos) << text;
}

TEST(FsckReport, ManyChunksOfAFileAreOneLineForEachKind) {
  std::vector<CheckError> errors;
  for (int chunk = 0; chunk < 64; ++chunk) {
    errors.push_back(error_with(false));
    errors.back().chunk = chunk;
    errors.back().member = chunk % 2 + 1;
    if (chunk == 7) errors.back().kind = "unreadable";
  }
  errors.push_back(error_with(false));
  errors.back().path = "/run1/step200.pt";
  const CheckReport report = report_with(errors);
  testing::internal::CaptureStdout();
  print_report(report, {"/a", "/b"}, Repair::kNone, true);
  std::fflush(stdout);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(
      text.substr(0, text.find("Array:")),
      "/run1/step100.pt: 63 chunks (0-6, 8-63) on members 1, 2: checksum: stored bytes give another checksum (lost)\n"
      "/run1/step100.pt: chunk 7, member 2, object offset 1048576: unreadable: stored bytes give another checksum "
      "(lost)\n"
      "/run1/step200.pt: chunk 5, member 1, object offset 1048576: checksum: stored bytes give another checksum "
      "(lost)\n");
  EXPECT_NE(text.find("DAMAGED: 65 errors"), std::string::npos) << text;
  EXPECT_EQ(printed(report)["errors"].size(), 65U) << "JSON has each";
}

std::string text_of(const CheckReport& report) {
  testing::internal::CaptureStdout();
  print_report(report, {"/a", "/b"}, Repair::kNone, true);
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

std::string verdict_of(const CheckReport& report) {
  const std::string text = text_of(report);
  return text.substr(text.find("Result:"));
}

TEST(FsckReport, DamageOnSeveralMembersNamesThePlaceOnEach) {
  std::vector<CheckError> errors;
  for (int chunk = 0; chunk < 12; ++chunk) {
    errors.push_back(error_with(false));
    errors.back().chunk = chunk;
    errors.back().member = chunk % 6;
    errors.back().detail = "/m" + std::to_string(chunk % 6) + "/x: chunk " + std::to_string(chunk);
  }
  const std::string text = text_of(report_with(errors));
  EXPECT_EQ(text.substr(0, text.find("\nArray:")),
            "/run1/step100.pt: 12 chunks (0-11) on members 0, 1, 2, 3, 4, 5: checksum: /m0/x: chunk 0; /m1/x: chunk 1; "
            "/m2/x: chunk 2; /m3/x: chunk 3; and 2 more members (lost)");
}

TEST(FsckReport, MembersThatAreMissingAreOneLineAndNoDamage) {
  CheckReport report = report_with({});
  for (int member = 1; member < 3; ++member) {
    CheckError& error = report.errors.emplace_back();
    error.kind = "missing-member";
    error.member = member;
    error.detail = "none of the directories given is it";
  }
  for (int file = 0; file < 50; ++file) {
    CheckError& error = report.errors.emplace_back(error_with(false));
    error.path = "/file" + std::to_string(file);
    error.kind = "missing-member";
  }
  report.files_missing = 50;
  report.chunks_missing = 70;
  std::string text = text_of(report);
  EXPECT_EQ(text.find("members 1, 2: missing-member: none of the directories given is it\nArray:"), 0u) << text;
  EXPECT_NE(text.find("70 chunks of 50 files on members that are missing"), std::string::npos) << text;
  EXPECT_NE(text.find("INCOMPLETE: 2 members are missing, and what is on them was not checked\n"), std::string::npos);
  EXPECT_EQ(text.find("DAMAGED"), std::string::npos) << text;
  EXPECT_EQ(fsck_exit_code(report), 4);
  EXPECT_EQ(printed(report)["errors"].size(), 52U) << "JSON has each";
  report.was_checked = false;
  text = text_of(report);
  EXPECT_EQ(text.find("Chunks:"), std::string::npos) << text;
  EXPECT_NE(text.find("not looked at\n"), std::string::npos) << text;
  EXPECT_NE(text.find("nothing else was checked, and no file repaired"), std::string::npos) << text;
}

// What is on it, or named by its names, is as it was then: of that nobody knows whether anything is wrong.
TEST(FsckReport, AnOlderMemberIsNoDamage) {
  CheckError older;
  older.kind = "older-member";
  older.member = 1;
  older.detail = "/b: member 1: it is 1 mount older";
  CheckReport report = report_with({older});
  EXPECT_NE(verdict_of(report).find(" INCOMPLETE: 1 member is older than the others: bring back the right one\n"),
            std::string::npos)
      << verdict_of(report);
  report.errors.push_back(error_with(false));
  report.errors.back().of_older_member = true;
  EXPECT_NE(verdict_of(report).find("older than the others, of which 1 error may come: bring"), std::string::npos)
      << verdict_of(report);
  EXPECT_EQ(verdict_of(report).find("DAMAGED"), std::string::npos) << verdict_of(report);
  report.errors.push_back(error_with(false));
  EXPECT_NE(verdict_of(report).find("DAMAGED: 1 error; INCOMPLETE: 1 member is older"), std::string::npos)
      << verdict_of(report);
  EXPECT_EQ(fsck_exit_code(report), 4);
}

// Nothing is damaged where another directory is to be given.
TEST(FsckReport, AWrongListIsNoDamage) {
  for (const char* kind : {"foreign-member", "duplicate-member"}) {
    CheckError error;
    error.kind = kind;
    error.detail = "/c: it is another's";
    CheckReport report = report_with({error});
    report.was_checked = false;
    EXPECT_NE(verdict_of(report).find(" WRONG LIST: 1 directory is not to be given"), std::string::npos)
        << verdict_of(report);
    EXPECT_EQ(verdict_of(report).find("DAMAGED"), std::string::npos) << verdict_of(report);
    EXPECT_EQ(fsck_exit_code(report), 4);
  }
}

TEST(FsckReport, OfAFileWithoutAnIndexNothingIsSaidToBePlaced) {
  CheckReport report = report_with({error_with(false)});
  FileSetAside aside;
  aside.path = "/lost.pt";
  aside.moved_to = "lost+found/x";
  aside.is_index_lost = true;
  report.set_aside.push_back(aside);
  EXPECT_NE(text_of(report).find("its index cannot be read, so no byte of it can be placed\n"), std::string::npos);
  EXPECT_EQ(text_of(report).find("0 bytes"), std::string::npos) << "nobody knows how many it had";
}

CheckError orphan() {
  CheckError error;
  error.kind = "orphan";
  error.member = 0;
  error.detail = "bytes that no file names";
  return error;
}

TEST(FsckReport, LeftoversOfACrashAreNoDamage) {
  CheckReport report = report_with({orphan(), orphan()});
  EXPECT_NE(verdict_of(report).find("DAMAGED: 2 errors"), std::string::npos) << "after a clean end they may be content";
  report.errors[0].is_nobodys = true;
  EXPECT_NE(verdict_of(report).find("DAMAGED: 1 error; 1 leftover of files that are gone"), std::string::npos)
      << verdict_of(report);
  report.after_crash = true;
  const std::string verdict = verdict_of(report);
  EXPECT_EQ(verdict.find("DAMAGED"), std::string::npos) << verdict;
  EXPECT_NE(verdict.find("2 leftovers of a crash, which no file needs: mounting the array removes them, as does -p"),
            std::string::npos)
      << verdict;
  report.errors.push_back(error_with(false));
  EXPECT_NE(verdict_of(report).find("DAMAGED: 1 error; 2 leftovers"), std::string::npos) << verdict_of(report);
}

TEST(FsckReport, OfManyOrphansTheFirstAreLines) {
  std::vector<CheckError> errors(12, orphan());
  errors.resize(14, error_with(false));
  const CheckReport report = report_with(errors);
  const std::string text = text_of(report);
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("member 0: orphan: ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 5u) << text;
  EXPECT_NE(text.find("\n... and 7 more of kind orphan (--json lists each)\n/run1/step100.pt: "), std::string::npos)
      << text;
  EXPECT_EQ(printed(report)["errors"].size(), 14u);
}

TEST(FsckReport, WhatWasSetAsideIsNotRepaired) {
  CheckReport report = report_with({error_with(true), error_with(true), orphan()});
  report.errors.back().repaired = true;
  report.errors[0].set_aside = report.errors[1].set_aside = true;
  report.set_aside.push_back({"/run1/step100.pt", "lost+found/x.sidecar", 1000, false, {}});
  const std::string verdict = verdict_of(report);
  EXPECT_NE(verdict.find("1 damaged file was set aside and NOT restored: bring it back from a copy; 1 error repaired"),
            std::string::npos)
      << verdict;
  EXPECT_NE(printed(report)["errors"][0]["detail"].get<std::string>().find("(set aside, not restored)"),
            std::string::npos);
}

}  // namespace
}  // namespace fpfs::tools
