// That fsck has nothing to say of a simulated array that is closed, data included.
#pragma once

#include <gtest/gtest.h>

#include "engine/check/check.h"
#include "tests/engine/file/sim_array.h"

namespace fpfs::test {

inline void expect_clean(SimArray& array) {
  CheckOptions check;
  check.verify_data = true;
  const Result<CheckReport> report = check_array(array.world(), array.paths(), check);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  for (const CheckError& error : report->errors)
    ADD_FAILURE() << error.kind << " " << error.path << " " << error.detail;
}

}  // namespace fpfs::test
