// A directory for one test, removed with everything in it afterwards.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace fpfs::test {

// In memory where there is such a place: for tests with time limits that a sync on a slow disk would pass, and for
// arrays, which are hundreds of directories.
inline std::string quick_place() {
  const char* const memory = "/dev/shm";
  return ::access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path().string();
}

class TemporaryDirectory {
 public:
  // Under `parent`; by default where the machine keeps temporary files ($TMPDIR or /tmp).
  explicit TemporaryDirectory(const std::string& parent = std::filesystem::temp_directory_path().string()) {
    std::string path = parent + "/fpfs-test-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      ADD_FAILURE() << "cannot make a directory in " << parent;
      return;
    }
    path_ = path;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fpfs::test
