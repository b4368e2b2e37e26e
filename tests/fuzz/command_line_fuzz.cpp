// Any command line of fastpersistfs, one argument a line, and any profile: accepted, or refused by one line.
#include <string>
#include <string_view>
#include <vector>

#include "engine/array/array.h"
#include "fs/interface/profile.h"
#include "fs/process/options.h"
#include "tests/fuzz/fuzz.h"

namespace {

void check_refusal(const fpfs::Status& status) {
  const std::string message = status.message();
  fpfs::fuzz::require(!message.empty() && message.find('\n') == std::string::npos, "a refusal is one line");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> arguments(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n')
      arguments.emplace_back();
    else if (data[i] != 0)  // ends an argument of a process
      arguments.back() += static_cast<char>(data[i]);
  }
  const fpfs::Result<fpfs::MountOptions> options = fpfs::parse_mount_options(arguments);
  if (!options.is_ok()) {
    check_refusal(options.status());
  } else if (options->action == fpfs::MountOptions::Action::kMount) {
    fpfs::fuzz::require(!options->directories.empty() && options->directories.size() <= fpfs::kMemberCountMax,
                        "as many directories as an array has members");
    for (const std::string& directory : options->directories)
      fpfs::fuzz::require(!directory.empty(), "no directory without a name");
    fpfs::fuzz::require(options->store.queue_depth >= 1 && options->store.queue_depth <= 1024, "a depth in its range");
  }
  const auto profile = fpfs::parse_profile(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!profile.is_ok()) check_refusal(profile.status());
  const fpfs::Result<std::vector<std::string>> directories = fpfs::Array::split_directories(arguments[0]);
  if (!directories.is_ok()) return check_refusal(directories.status()), 0;
  std::string joined;
  for (const std::string& directory : *directories) joined += (joined.empty() ? "" : ":") + directory;
  fpfs::fuzz::require(joined == arguments[0], "splitting loses nothing");
  return 0;
}
