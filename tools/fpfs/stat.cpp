// fpfs stat: how one file of a mounted array is stored.
#include <cerrno>
#include <ctime>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "engine/base/units.h"
#include "tools/common/table.h"
#include "tools/fpfs/mounted.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kStatProgram = "fpfs stat";

struct StatOptions {
  std::string path;
  bool json = false;
};

std::string local_time(uint64_t seconds) {
  const auto moment = static_cast<time_t>(seconds);
  struct tm parts {};
  char text[64];
  if (localtime_r(&moment, &parts) == nullptr || strftime(text, sizeof text, "%F %T %z", &parts) == 0) return "-";
  return text;
}

// "raw 90.0 %, zstd 10.0 %", by chunks.
std::string codec_shares(const Json& stat) {
  if (number_at(stat, "stored_bytes") == 0) return number_at(stat, "size") > 0 ? "nothing is stored (a hole)" : "-";
  if (flag_at(stat, "inline")) return "inline (content inside the index)";
  const Json& codecs = object_at(stat, "codecs");
  uint64_t total = 0;
  for (auto& [name, count] : codecs.items()) total += number_at(codecs, name.c_str());
  std::vector<std::string> shares;
  for (auto& [name, count] : codecs.items())
    if (uint64_t chunks = number_at(codecs, name.c_str()); chunks > 0)
      shares.push_back(fmt::format("{} {}", name, format_percent(chunks, total)));
  return shares.empty() ? "-" : fmt::format("{}", fmt::join(shares, ", "));
}

std::string member_list(const Json& stat) {
  std::vector<std::string> members;
  for (const Json& member : array_at(stat, "members"))
    members.push_back(member.is_string() ? member.get<std::string>() : member.dump());
  return members.empty() ? "-" : fmt::format("{}", fmt::join(members, ", "));
}

void print_human(const std::string& path, const Json& stat) {
  const uint64_t size = number_at(stat, "size");
  const uint64_t stored = number_at(stat, "stored_bytes");
  Facts facts;
  facts.add("File", path);
  const std::string failed = text_at(stat, "failed");
  facts.add("Size", fmt::format("{} ({} bytes){}", format_size(size), size,
                                failed.empty() ? "" : ", of the save that has failed"));
  facts.add("Stored", fmt::format("{} ({} of the size)", format_size(stored), format_percent(stored, size)));
  facts.add("Chunks", fmt::format("{} of {}", number_at(stat, "chunks"), format_size(number_at(stat, "chunk_size"))));
  facts.add("Codecs", codec_shares(stat));
  facts.add("Members", member_list(stat));
  facts.add("File id", text_at(stat, "file_id", "-"));
  const uint64_t last_commit = number_at(stat, "changed");
  facts.add("Last commit", last_commit == 0 ? "-" : local_time(last_commit));
  const uint64_t committed = number_at(stat, "committed_size");
  facts.add("State", !failed.empty()
                         ? fmt::format("failed, and not committed; what was committed before, {} ({} bytes), is there "
                                       "again when everybody has closed it: {}",
                                       format_size(committed), committed, failed)
                     : flag_at(stat, "dirty") ? "being written: not everything is committed"
                                              : "committed");
  fmt::print("{}", facts.text());
}

int run(const StatOptions& options) {
  Result<Json> stat = read_file_stat(options.path);
  if (!stat.is_ok())
    return fail(kStatProgram, kExitFailure,
                stat.status().errno_value() == EIO && check_mounted(options.path).is_ok()
                    ? describe_unreadable(options.path).message()
                    : stat.status().message());
  if (options.json) {
    Json object = {{"path", options.path}};
    object.update(*stat);
    print_json(object);
  } else {
    print_human(options.path, *stat);
  }
  return kExitOk;
}

}  // namespace

Verb add_stat(CLI::App& fpfs) {
  auto options = std::make_shared<StatOptions>();
  CLI::App* command = fpfs.add_subcommand("stat", "Show how one file is stored");
  command->add_option("PATH", options->path, "A regular file of a mounted array")->required()->type_name("");
  command->add_flag("--json", options->json, "Print one JSON object");
  return {command, [options] { return run(*options); }};
}

}  // namespace fpfs::tools
