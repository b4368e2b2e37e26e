#include "tools/fpfs/status_view.h"

#include <gtest/gtest.h>

#include "tools/fpfs/tier_view.h"

namespace fpfs::tools {
namespace {

Json status_with(uint64_t read, uint64_t written) {
  return parse_json(R"({"files": {"commits": 4}, "members": [)"
                    R"({"path": "/a", "state": "ok", "bytes_read": )" +
                    std::to_string(read) + R"(, "bytes_written": )" + std::to_string(written) +
                    R"(},)"
                    R"({"path": "/b", "state": "missing", "bytes_read": )" +
                    std::to_string(2 * read) + R"(, "bytes_written": 7, "read_errors": 1, "checksum_errors": 2}]})");
}

TEST(StatusView, RatesAreDifferencesOverTime) {
  Json now = status_with(3000, 500);
  add_rates(now, status_with(1000, 100), 2.0);
  EXPECT_DOUBLE_EQ(now["members"][0]["read_bytes_per_second"].get<double>(), 1000);
  EXPECT_DOUBLE_EQ(now["members"][0]["write_bytes_per_second"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(now["members"][1]["read_bytes_per_second"].get<double>(), 2000);
  EXPECT_DOUBLE_EQ(now["rates"]["read_bytes_per_second"].get<double>(), 3000);
  EXPECT_DOUBLE_EQ(now["rates"]["write_bytes_per_second"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(now["rates"]["commits_per_second"].get<double>(), 0);
}

TEST(StatusView, CountersThatWentBackGiveNoRate) {
  Json now = status_with(10, 10);
  add_rates(now, status_with(1000, 1000), 1.0);
  EXPECT_DOUBLE_EQ(now["rates"]["read_bytes_per_second"].get<double>(), 0);
}

TEST(StatusView, MembersShowTheirErrorsInAll) {
  Json now = status_with(1, 1);
  const std::string text = describe_members(now);
  const std::string last_line = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_NE(last_line.find("/b"), std::string::npos);
  EXPECT_NE(last_line.find("missing"), std::string::npos);
  EXPECT_EQ(last_line.substr(last_line.size() - 3), " 3\n");
}

TEST(StatusView, ArrayTellsStateAndOptions) {
  const std::string text = describe_array(parse_json(
      R"({"array": {"id": "u-u", "label": "run", "chunk_size": 1048576, "read_only_reason": "sync failed"},
          "state": "failed", "options": {"durable": "close", "verify": true, "queue_depth": 16},
          "buffers": {"size": 1048576, "total": 256, "free": 6, "evictable": 200, "waiting": 3},
          "recovery": {"was_dirty": true, "orphans_removed": 2, "bytes_freed": 4096, "torn_tails": 1}})"));
  EXPECT_NE(text.find("u-u \"run\""), std::string::npos) << text;
  EXPECT_NE(text.find("failed, read-only since: sync failed"), std::string::npos) << text;
  EXPECT_NE(text.find("durable=close,verify=on,queue_depth=16"), std::string::npos) << text;
  EXPECT_NE(text.find("256 of 1 MiB: 6 free, 200 clean, 50 in use; 3 requests wait"), std::string::npos) << text;
  EXPECT_NE(text.find("2 orphan objects freed (4 KiB), 1 torn tail cut"), std::string::npos) << text;
}

TEST(StatusView, TheDriveWithTheNamesHasALine) {
  const char* const kStatus = R"({"metadata": {"path": "/ssd/names", "member": -1, "state": "failing", "errors": 2},
                                  "members": [{"path": "/a", "state": "ok"}]})";
  const std::string text = describe_array(parse_json(kStatus));
  EXPECT_NE(text.find("Names:"), std::string::npos) << text;
  EXPECT_NE(text.find("/ssd/names: failing, 2 errors\n"), std::string::npos) << text;
  EXPECT_NE(describe_errors(parse_json(kStatus)), "") << "what to do about them";
  const std::string whole =
      describe_array(parse_json(R"({"metadata": {"path": "/n0/fp", "member": 0, "state": "ok", "errors": 0}})"));
  EXPECT_NE(whole.find("/n0/fp (member 0): ok\n"), std::string::npos) << whole;
}

TEST(StatusView, OptionsOfCopiesAreThoseOfAStore) {
  const std::string options =
      R"("options": {"verify": true, "tier_keep": "3", "tier_share": -1, "tier_rate": 1048576})";
  const std::string without = describe_array(parse_json("{" + options + "}"));
  EXPECT_EQ(without.find("tier_"), std::string::npos) << without;
  const std::string with = describe_array(parse_json("{" + options + R"(, "tier": {"store": "file:///c"}})"));
  EXPECT_NE(with.find("verify=on,tier_keep=3,tier_rate=1M\n"), std::string::npos) << with;
}

TEST(StatusView, OpenFilesBusiestFirst) {
  const Json before = parse_json(R"({"open_files": [{"path": "/quiet", "bytes_written": 10},
                                                    {"path": "/busy", "bytes_written": 10},
                                                    {"path": "/busy", "bytes_read": 5}]})");
  const Json now = parse_json(R"({"open_files": [{"path": "/quiet", "bytes_written": 10},
                                                 {"path": "/busy", "bytes_written": 2058, "writing": true},
                                                 {"path": "/busy", "bytes_read": 3077},
                                                 {"path": "/new", "bytes_written": 1024}],
                                  "open_files_omitted": 3})");
  const std::string text = describe_open_files(now, before, 1.0);
  EXPECT_LT(text.find("/busy"), text.find("/quiet")) << text;
  EXPECT_NE(text.find("2 KiB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("3 KiB/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("/busy"), text.rfind("/busy")) << text;
  EXPECT_NE(text.find("/new"), std::string::npos) << text;
  EXPECT_NE(text.find("and 3 less busy"), std::string::npos) << text;
}

TEST(StatusView, PathsOfOthersAreHiddenNotLessBusy) {
  const Json now = parse_json(R"({"open_files": [], "open_files_omitted": 3, "paths_hidden": true})");
  EXPECT_EQ(describe_open_files(now, now, 1.0), "3 open files: only root and who mounted the array are shown which\n");
}

TEST(StatusView, SizesAreAsTheOptionsTakeThem) {
  const std::pair<const char*, const char*> expected[] = {{"0", "0"},
                                                          {"1023", "1023"},
                                                          {"65536", "64K"},
                                                          {"67108864", "64M"},
                                                          {"268435456", "256M"},
                                                          {"268435457", "268435457"},
                                                          {"1610612736", "1536M"},
                                                          {"2147483648", "2G"},
                                                          {"1099511627776", "1T"}};
  for (const auto& [bytes, text] : expected) {
    const std::string shown = describe_array(
        parse_json(std::string(R"({"options": {"buffer_memory": )") + bytes + R"(, "read_ahead": 1024}})"));
    EXPECT_NE(shown.find(std::string("buffer_memory=") + text + ",read_ahead=1024\n"), std::string::npos) << shown;
  }
}

TEST(StatusView, ErrorsAreOfEachRead) {
  EXPECT_EQ(describe_errors(parse_json(R"({"members": [{"read_errors": 0}]})")), "");
  const std::string note = describe_errors(parse_json(R"({"members": [{}, {"checksum_errors": 1}]})"));
  EXPECT_NE(note.find("each time it is read"), std::string::npos) << note;
}

// What somebody looks for (errors, rates, which drive, which file) is there in a window of 80 columns.
TEST(StatusView, ShowsWhatCountsInANarrowWindow) {
  const Json status = parse_json(
      R"({"members": [{"index": 255, "path": "/srv/checkpoints/nvme-0/fastpersistfs", "state": "outdated",
                       "space_total": 1098437885952, "space_free": 1098437885952, "space_spare": 1098437885952,
                       "bytes_read": 1098437885952, "bytes_written": 1098437885952,
                       "read_bytes_per_second": 1098437885952, "write_bytes_per_second": 1098437885952,
                       "read_errors": 123456}],
          "open_files": [{"path": "/run7/checkpoints-of-this-week/a-very-long-name-of-a-directory/step100.pt",
                          "size": 1098437885952, "writing": true}]})");
  Json array = status;
  array["array"] = {{"id", "4f0c6a4e-5b3d-4f0e-9d1a-2f4b8c7d6e5f"}};
  for (const char* name : {"buffer_memory", "compress", "dedup", "durable", "io_timeout", "io_uring", "queue_depth"})
    array["options"][name] = "as it was given";
  for (const std::string& text : {describe_array(array, 80), describe_members(status, 80), describe_errors(status),
                                  describe_open_files(status, status, 1.0, 80)}) {
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 80) << text;
  }
  const std::string members = describe_members(status, 80);
  for (const char* shown : {"READ/S", "WRITTEN/S", "ERRORS", "123456", "outdated", "FREE", "fs  outdated"})
    EXPECT_NE(members.find(shown), std::string::npos) << members;
  EXPECT_EQ(members.find("SPARE"), std::string::npos) << members;
  EXPECT_NE(describe_members(status).find("SPARE"), std::string::npos);
  EXPECT_NE(describe_open_files(status, status, 1.0, 80).find("/step100.pt\n"), std::string::npos);
}

// A daemon of another release may leave out anything and may mean something else by a name.
TEST(StatusView, AnyJsonIsShownWithoutFailing) {
  for (const char* text : {"{}", R"({"members": 3})", R"({"members": [1, null, "x"], "open_files": [[]]})",
                           R"({"array": [], "options": 1, "buffers": "x", "recovery": null, "uptime_seconds": "y"})",
                           R"({"members": [{"bytes_read": -1, "bytes_written": 1.5, "path": 7}], "commits": {}})",
                           R"({"buffers": {"total": 1, "free": 5, "evictable": 5}})"}) {
    Json status = parse_json(text);
    ASSERT_TRUE(status.is_object()) << text;
    Json now = status;
    add_rates(now, status, 0.0);
    EXPECT_FALSE(describe_array(now).empty());
    EXPECT_FALSE(describe_members(now).empty());
    EXPECT_FALSE(describe_open_files(now, status, 0.0).empty());
  }
}

// Only copies wait for a save.
TEST(TierView, CopiesAreSlowWhileSomethingIsSavedAndNothingElseIs) {
  const auto text = [](const std::string& state) {
    return describe_tier(
        parse_json(R"({"store": "file:///c", "paced": true, "errors": 1, "state": ")" + state + "\"}"));
  };
  EXPECT_NE(text("copying").find("State:   copying (slowly: something is being saved)\n"), std::string::npos)
      << text("copying");
  for (const char* const state : {"away", "scanning", "current", "reading", "restoring"})
    EXPECT_EQ(text(state).find("slowly"), std::string::npos) << text(state);
}

}  // namespace
}  // namespace fpfs::tools
