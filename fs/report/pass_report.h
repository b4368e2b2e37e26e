// What the reports of all background passes say alike: a JSON object with "state", "started", "ended", "seconds", "limit",
// "files_done", "chunks_done", "bytes_done", "bytes_total", "bytes_per_second", "eta_seconds" and "note", whose meaning is
// in scrub_report.h and rebalance_report.h.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/store/background_pass.h"

namespace fpfs {

inline nlohmann::json pass_report(const PassState& state, const BackgroundPass::Progress& progress) {
  return {{"state", name_of(state.phase)},
          {"started", state.started_seconds},
          {"ended", state.ended_seconds},
          {"seconds", static_cast<double>(state.active_ms) / 1000},
          {"limit", state.limit},
          {"files_done", state.files},
          {"chunks_done", state.chunks},
          {"bytes_done", state.bytes},
          {"bytes_total", progress.bytes_total},
          {"bytes_per_second", progress.bytes_per_second},
          {"eta_seconds", progress.eta_seconds},
          {"note", progress.note}};
}

}  // namespace fpfs
