// What a check found, as people read it: one line for each file and kind of damage, however many chunks it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/check/check.h"

namespace fpfs {

// Of which the same is to be said. Of several chunks of one file: in ascending order.
using ErrorGroup = std::vector<const CheckError*>;

// Errors of a file are expected to be side by side. The groups point into `errors`.
std::vector<ErrorGroup> group_errors(const std::vector<CheckError>& errors);

// "checksum: the checksum does not match what was written (lost)"
std::string kind_and_detail(const CheckError& error);

// "/run1/a.pt: chunk 5, member 1, object offset 1048576: WHAT", or
// "/run1/a.pt: 21 chunks (1, 3-5, 7) on members 0, 2: WHAT". One line, without its end.
std::string describe_errors(const ErrorGroup& group, const std::string& what);

}  // namespace fpfs
