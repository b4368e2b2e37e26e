#include "fs/report/rebalance_report.h"

#include "fs/report/report_text.h"

namespace fpfs {

std::string rebalance_report(const Rebalance::Report& report) {
  const PassState& state = report.state;
  return to_text({{"state", name_of(state.phase)},
                  {"started", state.started_seconds},
                  {"ended", state.ended_seconds},
                  {"seconds", static_cast<double>(state.active_ms) / 1000},
                  {"limit", state.limit},
                  {"files_done", state.files},
                  {"chunks_done", state.chunks},
                  {"bytes_done", state.bytes},
                  {"bytes_total", report.bytes_total},
                  {"bytes_per_second", report.bytes_per_second},
                  {"eta_seconds", report.eta_seconds},
                  {"note", report.note},
                  {"chunks_moved", report.chunks_moved},
                  {"bytes_moved", report.bytes_moved},
                  {"chunks_left", report.chunks_left}});
}

}  // namespace fpfs
