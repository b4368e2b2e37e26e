#include "fs/report/scrub_report.h"

#include "fs/report/pass_report.h"
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
  const uint64_t found = state.errors + state.failed_saves;
  const uint64_t omitted = found - std::min<uint64_t>(found, damage.size());
  json told = pass_report(state, report);
  told["errors"] = state.errors;
  told["healed"] = state.healed;
  told["chunks_away"] = state.chunks_away;
  told["failed_saves"] = state.failed_saves;
  told["damage"] = std::move(damage);
  told["damage_omitted"] = omitted;
  told["paths_hidden"] = !for_owner;
  return to_text(told);
}

}  // namespace fpfs
