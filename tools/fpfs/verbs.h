// The verbs of fpfs. Each file here adds one to the command line and knows how to run it.
#pragma once

#include <functional>
#include <string>

#include "tools/common/command_line.h"

namespace fpfs::tools {

struct Verb {
  CLI::App* command = nullptr;
  std::function<int()> run;  // after parsing; returns the exit code
};

// Of a mounted array.
Verb add_status(CLI::App& fpfs);
Verb add_top(CLI::App& fpfs);
Verb add_stats(CLI::App& fpfs);
Verb add_stat(CLI::App& fpfs);
Verb add_map(CLI::App& fpfs);
Verb add_sync(CLI::App& fpfs);
Verb add_verify(CLI::App& fpfs);
Verb add_scrub(CLI::App& fpfs);
Verb add_tier(CLI::App& fpfs);
Verb add_member(CLI::App& fpfs);
Verb add_rebalance(CLI::App& fpfs);
Verb add_clear(CLI::App& fpfs);
Verb add_umount(CLI::App& fpfs);
// Of directories that are not mounted.
Verb add_export(CLI::App& fpfs);
Verb add_bench(CLI::App& fpfs);
Verb add_tune(CLI::App& fpfs);

}  // namespace fpfs::tools
