// fpfs: looks at, syncs, checks and measures fastpersistfs arrays and mounts. One verb, one file.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/base/nearest_word.h"
#include "tools/fpfs/verbs.h"

namespace fpfs::tools {

namespace {

const char* const kProgram = "fpfs";

std::vector<std::string> names_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  names.reserve(verbs.size());
  for (const Verb& verb : verbs) names.push_back(verb.command->get_name());
  return names;
}

// CLI11 would call a verb that it does not know an unexpected argument; people need to read which verbs there are.
std::string complaint_about_verb(const std::vector<Verb>& verbs, int argc, char** argv) {
  const std::vector<std::string> names = names_of(verbs);
  if (argc < 2) return fmt::format("no verb given; the verbs are {} (see fpfs --help)", fmt::join(names, ", "));
  const std::string word = argv[1];
  if (word.starts_with('-')) return "";
  if (std::ranges::find(names, word) != names.end()) return "";
  const std::string meant = nearest_word(word, names);
  return fmt::format("'{}' is not a verb of this version; {}the verbs are {} (see fpfs --help)", word,
                     meant.empty() ? "" : fmt::format("did you mean {}? ", meant), fmt::join(names, ", "));
}

int run(int argc, char** argv) {
  CLI::App app("Looks at, syncs, checks and measures fastpersistfs arrays and mounts", kProgram);
  const std::vector<Verb> verbs = {add_status(app), add_top(app),    add_stats(app),     add_stat(app),
                                   add_map(app),    add_sync(app),   add_verify(app),    add_scrub(app),
                                   add_tier(app),   add_member(app), add_rebalance(app), add_clear(app),
                                   add_umount(app), add_export(app), add_bench(app),     add_tune(app)};
  for (const Verb& verb : verbs) verb.command->fallthrough();  // so that "fpfs status --version" works too
  app.require_subcommand(1, 1);
  app.set_help_all_flag("--help-all", "Print this message with that of every verb and exit");
  if (std::string complaint = complaint_about_verb(verbs, argc, argv); !complaint.empty())
    return fail(kProgram, kExitUsage, complaint);
  if (std::optional<int> exit_code = parse_command_line(app, kProgram, argc, argv)) return *exit_code;
  for (const Verb& verb : verbs)
    if (verb.command->parsed()) return verb.run();
  return fail(kProgram, kExitUsage, "no verb given (see fpfs --help)");
}

}  // namespace

}  // namespace fpfs::tools

int main(int argc, char** argv) {
  using namespace fpfs::tools;
  return run_program(kProgram, kExitFailure, [&] { return run(argc, argv); });
}
