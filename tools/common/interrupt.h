// Ctrl-C and SIGTERM as a flag, so that long work ends in good order.
#pragma once

#include <atomic>

namespace fpfs::tools {

// Installs the handlers and returns the flag that they set. A second Ctrl-C ends the program at once, as it always did.
const std::atomic<bool>& catch_interrupts();

}  // namespace fpfs::tools
