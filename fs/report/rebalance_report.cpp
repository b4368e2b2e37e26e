#include "fs/report/rebalance_report.h"

#include "fs/report/pass_report.h"
#include "fs/report/report_text.h"

namespace fpfs {

std::string rebalance_report(const Rebalance::Report& report) {
  nlohmann::json told = pass_report(report.state, report);
  told["kind"] = report.is_removal ? "removal" : "rebalance";
  told["chunks_moved"] = report.chunks_moved;
  told["bytes_moved"] = report.bytes_moved;
  told["chunks_left"] = report.chunks_left;
  return to_text(told);
}

}  // namespace fpfs
