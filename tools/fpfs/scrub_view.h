// How people read a scrub: from the JSON of fs/report/scrub_report.h to text.
#pragma once

#include <string>

#include "tools/common/json_output.h"

namespace fpfs::tools {

// Several lines: state, progress with rate and time left, findings.
std::string describe_scrub(const Json& scrub);
// "12.0 GiB of 40.0 GiB (30.0 %), 1.2 GiB/s, 0:23 left".
std::string describe_scrub_progress(const Json& scrub);

}  // namespace fpfs::tools
