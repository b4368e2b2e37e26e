// The log of a program that somebody has called and reads: lines on stderr with its name, as its own messages have it,
// rather than with the time and the level.
#pragma once

#include <string>

namespace fpfs {

// Instead of configure_log(). Before threads start.
void log_for_tool(const std::string& program);

}  // namespace fpfs
