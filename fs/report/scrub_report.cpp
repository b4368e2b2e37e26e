#include "fs/report/scrub_report.h"

#include "fs/report/report_text.h"

namespace fpfs {
namespace {

using nlohmann::json;

// An attribute holds 64 KiB.
constexpr size_t kDamageBytesMax = 48 * kKiB;

}  // namespace

std::string scrub_report(const Scrub::Report& report, bool for_owner) {
  const ScrubState& state = report.state;
  json damage = json::array();
  size_t bytes = 0;
  for (const CheckError& error : state.damage) {
    json entry = {{"path", error.path},      {"chunk", error.chunk},
                  {"member", error.member},  {"object_offset", error.object_offset},
                  {"kind", error.kind},      {"detail", error.detail},
                  {"healing", error.healing}};
    bytes += to_text(entry).size() + 1;
    if (!for_owner || bytes > kDamageBytesMax) break;
    damage.push_back(std::move(entry));
  }
  const uint64_t omitted = state.errors - std::min<uint64_t>(state.errors, damage.size());
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
                  {"errors", state.errors},
                  {"note", report.note},
                  {"damage", std::move(damage)},
                  {"damage_omitted", omitted}});
}

}  // namespace fpfs
