#include "fs/report/rebalance_report.h"

#include <algorithm>

#include "engine/base/units.h"
#include "fs/report/pass_report.h"
#include "fs/report/report_text.h"

namespace fpfs {

namespace {

// An attribute holds 64 KiB.
constexpr size_t kLeftBytesMax = 48 * kKiB;

}  // namespace

std::string rebalance_report(const Rebalance::Report& report, bool for_owner) {
  nlohmann::json told = pass_report(report.state, report);
  told["kind"] = report.is_removal ? "removal" : "rebalance";
  told["chunks_moved"] = report.chunks_moved;
  told["bytes_moved"] = report.bytes_moved;
  told["chunks_left"] = report.chunks_left;
  nlohmann::json left = nlohmann::json::array();
  size_t bytes = 0;
  uint64_t omitted = report.chunks_left;
  for (const Rebalance::Left& one : report.left) {
    nlohmann::json entry = {{"path", one.path}, {"chunks", one.chunks}, {"first_chunks", one.first}, {"why", one.why}};
    bytes += to_text(entry).size() + 1;
    if (!for_owner || bytes > kLeftBytesMax) break;
    omitted -= std::min(omitted, one.chunks);
    left.push_back(std::move(entry));
  }
  told["left"] = std::move(left);
  told["left_omitted"] = omitted;
  told["paths_hidden"] = !for_owner;
  return to_text(told);
}

}  // namespace fpfs
