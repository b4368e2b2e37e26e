#include "engine/array/array_health.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

Status failure() {
  return Status::error(StatusCode::kIoError, "write: Input/output error");
}

TEST(ArrayHealth, TheFirstFilesAreNamedAndTheOthersCounted) {
  ArrayHealth health;
  EXPECT_EQ(health.failed_files(), "");
  for (uint64_t key = 0; key < 3; ++key) health.note_file_failure(key, "/f" + std::to_string(key), failure());
  health.note_file_failure(1, "/renamed", failure());  // once is enough
  EXPECT_EQ(health.failed_files(), "/f0, /f1, /f2");
  for (uint64_t key = 3; key < 6; ++key) health.note_file_failure(key, "/f" + std::to_string(key), failure());
  EXPECT_EQ(health.failed_files(), "/f0, /f1, /f2, /f3, /f4 and 1 other file");
  for (uint64_t key = 6; key < 5000; ++key) health.note_file_failure(key, "/more", failure());
  EXPECT_EQ(health.failed_files(), "/f0, /f1, /f2, /f3, /f4 and at least 1019 other files");
  EXPECT_TRUE(health.all_losses().is_ok()) << "their savers were told";
}

TEST(ArrayHealth, AFailedSaveIsKnownUntilTheNextOne) {
  ArrayHealth health;
  EXPECT_TRUE(health.last_save(1).is_ok());
  health.note_file_failure(1, "/a", failure());
  health.note_file_failure(1, "/a", Status::error(StatusCode::kNoSpace, "full"));
  EXPECT_EQ(health.last_save(1).code(), StatusCode::kNoSpace) << "the last one counts";
  EXPECT_TRUE(health.last_save(2).is_ok());
  health.forget_file_failure(1);
  EXPECT_TRUE(health.last_save(1).is_ok());
  EXPECT_TRUE(health.had_failure()) << "what it left behind is there still";
}

TEST(ArrayHealth, WhatIsLostIsSaidWithAllThatIs) {
  ArrayHealth health;
  health.note_file_failure(1, "/a", failure());
  health.note_loss(1, "/a", failure().with_context("/a, chunk 3"));
  EXPECT_EQ(health.all_losses().message(), "/a, chunk 3: write: Input/output error");
  health.note_file_failure(2, "/b", failure());
  EXPECT_EQ(health.all_losses().message(), "/a, chunk 3: write: Input/output error");
  EXPECT_EQ(health.with_failed_files(failure()).message(), "write: Input/output error; all saves that failed: /a, /b");
  EXPECT_TRUE(health.with_failed_files(Status::ok()).is_ok());
  health.note_loss(2, "/b", failure());
  EXPECT_EQ(health.all_losses().message(), "/a, chunk 3: write: Input/output error; and so is what was closed in /b");
  EXPECT_EQ(health.with_failed_files(failure()).message(), failure().message()) << "that has them all";
  EXPECT_EQ(health.take_loss(2).message(), "/b: write: Input/output error");
  EXPECT_EQ(health.all_losses().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace fpfs
