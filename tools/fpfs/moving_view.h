// What moves chunks to other members (fpfs rebalance, fpfs member remove and replace), followed and told.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "tools/common/json_output.h"

namespace fpfs::tools {

// Shows how far it is until it does not run any more, and returns the last report. kCancelled: interrupted; it goes on.
Result<Json> follow_moving(const std::string& mount_point);

// "3 GiB of 4 GiB (75.0 %), 1 GiB moved, 128 MiB/s, 7 s left": looked at, and moved.
std::string describe_moving_progress(const Json& rebalance);
// Why nothing else can be moved now, how to wait for that, and what ends it: one line. `leaving`: as leaving_members().
std::string describe_under_way(const Json& rebalance, const std::vector<std::string>& leaving,
                               const std::string& mount_point);
// The directories of the members that are leaving, of a mount's status or fpfs member's list.
std::vector<std::string> leaving_members(const Json& status);
// "DIR is leaving: COMMAND goes on with it, COMMAND keeps it", of one of them.
std::string describe_leaving(const std::string& directory, const std::string& mount_point);
// Of one that did not finish: somebody ended it, or what it stopped for.
std::string why_it_ended(const Json& report);
// Several lines.
std::string describe_moving(const Json& report);
// What stays where it is: a line for each file and reason. Empty: nothing does.
std::string describe_left(const Json& report);

}  // namespace fpfs::tools
