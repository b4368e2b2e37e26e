// Ctrl-C and SIGTERM as a flag, so that long work ends in good order.
#pragma once

#include <atomic>
#include <chrono>

namespace fpfs::tools {

// Installs the handlers and returns the flag that they set. A second Ctrl-C ends the program at once, as it always did.
const std::atomic<bool>& catch_interrupts();
// Returns then, or soon after the flag was set.
void sleep_until(std::chrono::steady_clock::time_point wake, const std::atomic<bool>& interrupted);

}  // namespace fpfs::tools
