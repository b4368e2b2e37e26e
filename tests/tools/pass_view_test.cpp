// What is shown of passes over all files: scrub and rebalance.
#include <gtest/gtest.h>

#include "tools/fpfs/moving_view.h"
#include "tools/fpfs/scrub_view.h"

namespace fpfs::tools {
namespace {

TEST(PassView, NoRateBeforeThereIsOne) {
  EXPECT_EQ(describe_scrub_progress(parse_json(R"({"state": "running", "bytes_total": 1024, "seconds": 0.1,
                                                   "bytes_per_second": 0})")),
            "0 B of 1 KiB (0.0 %)");
  EXPECT_EQ(describe_scrub_progress(parse_json(R"({"state": "running", "bytes_total": 1024, "seconds": 9})")),
            "0 B of 1 KiB (0.0 %), 0 B/s");
  EXPECT_EQ(describe_moving_progress(parse_json(R"({"state": "running", "bytes_total": 1024, "seconds": 0.1})")),
            "0 B of 1 KiB (0.0 %), 0 B moved");
}

// Files that cannot be opened are not read to their ends.
TEST(PassView, WhatHasEndedIsNoShareOfMore) {
  const std::string text =
      describe_scrub_progress(parse_json(R"({"state": "finished", "bytes_done": 1048576, "bytes_total": 4194304})"));
  EXPECT_EQ(text, "1 MiB of 4 MiB; the others are in files that cannot be opened, or that changed meanwhile");
  EXPECT_EQ(describe_scrub_progress(parse_json(R"({"state": "paused", "bytes_done": 1048576})")), "1 MiB");
}

// --limit holds back what is moved; what is in its place is passed by at any rate.
TEST(PassView, ARebalanceShowsItsLimitAndTheRateOfWhatItMoves) {
  const Json rebalance = parse_json(R"({"state": "running", "kind": "rebalance", "bytes_done": 3221225472,
                                        "bytes_total": 4294967296, "bytes_moved": 1073741824, "seconds": 8,
                                        "bytes_per_second": 134217728, "eta_seconds": 7, "limit": 134217728})");
  EXPECT_EQ(describe_moving_progress(rebalance), "3 GiB of 4 GiB (75.0 %), 1 GiB moved, 128 MiB/s, 7.00 s left");
  const std::string text = describe_moving(rebalance);
  EXPECT_NE(text.find("Limit:      128 MiB/s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Rate:       128 MiB/s moved\n"), std::string::npos) << text;
  EXPECT_NE(describe_moving(parse_json(R"({"state": "finished"})")).find("Limit:      none"), std::string::npos);
}

TEST(PassView, WhoMayNotSeePathsIsToldSo) {
  const std::string hidden = describe_scrub(
      parse_json(R"({"state": "finished", "errors": 2, "damage": [], "damage_omitted": 2, "paths_hidden": true})"));
  EXPECT_NE(hidden.find("Errors:    2\nOnly root and who mounted the array are shown"), std::string::npos) << hidden;
  EXPECT_EQ(hidden.find("more"), std::string::npos) << hidden;
  const std::string shown = describe_scrub(
      parse_json(R"({"state": "finished", "errors": 2, "damage": [], "damage_omitted": 2, "paths_hidden": false})"));
  EXPECT_NE(shown.find("... and 2 more; "), std::string::npos) << shown;
  const std::string left = describe_moving(
      parse_json(R"({"state": "finished", "chunks_left": 3, "left": [], "left_omitted": 3, "paths_hidden": true})"));
  EXPECT_NE(left.find("Only root and who mounted the array are shown"), std::string::npos) << left;
}

TEST(MovingView, WhatIsUnderWayIsSaidWithHowToWait) {
  const Json moving = parse_json(R"({"state": "running", "kind": "removal", "bytes_done": 1073741824,
                                     "bytes_total": 4294967296, "bytes_moved": 104857600, "seconds": 2,
                                     "bytes_per_second": 52428800,
                                     "eta_seconds": 7})");
  EXPECT_EQ(
      describe_under_way(moving, {"/a", "/b"}, "/mnt/ckpt"),
      "/mnt/ckpt: a removal of /a, /b is under way, 1 GiB of 4 GiB (25.0 %), 100 MiB moved, 50 MiB/s, 7.00 s left; "
      "fpfs rebalance --wait /mnt/ckpt waits for it, --status says how far it is, --cancel ends the moving only (they "
      "are leaving still); to keep the members: fpfs member remove --cancel /mnt/ckpt /a, fpfs member remove --cancel "
      "/mnt/ckpt /b");
  EXPECT_EQ(
      describe_under_way({}, {}, "/m"),
      "/m: a rebalance is under way, 0 B, 0 B moved; fpfs rebalance --wait /m waits for it, --status says how far "
      "it is, --cancel ends it");
}

}  // namespace
}  // namespace fpfs::tools
