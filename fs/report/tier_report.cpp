#include "fs/report/tier_report.h"

#include "fs/report/report_text.h"

namespace fpfs {
namespace {

std::string error_for(const TierCopyStatus& copies, bool for_owner) {
  if (copies.last_error.empty() || for_owner) return copies.last_error;
  return "only root and who mounted the array are shown it; the daemon's log has it, too";
}

}  // namespace

nlohmann::json tier_summary(const TierStatus& status) {
  const auto if_known = [&](uint64_t count) {
    return status.is_waiting_known ? nlohmann::json(count) : nlohmann::json(nullptr);
  };
  return {{"state", to_string(status.state)},
          {"store", status.store},
          {"files_waiting", if_known(status.copies.files_waiting)},
          {"bytes_waiting", if_known(status.copies.bytes_waiting)},
          {"lag_seconds", status.lag_seconds}};
}

std::string tier_report(const TierStatus& status, bool for_owner) {
  const TierCopyStatus& copies = status.copies;
  nlohmann::json report = tier_summary(status);
  report.update({{"store_id", status.store_id},
                 {"required", status.required},
                 {"paced", status.is_paced},
                 {"files_copying", copies.files_copying},
                 {"files_failed", copies.files_failed},
                 {"files_refused", copies.files_refused},
                 {"files_copied", copies.files_copied},
                 {"bytes_copied", copies.bytes_copied},
                 {"bytes_per_second", copies.bytes_per_second},
                 {"eta_seconds", status.eta_seconds},
                 {"errors", copies.errors},
                 {"last_error", error_for(copies, for_owner)},
                 {"last_error_at", copies.last_error_s},
                 {"scanning", copies.is_scanning},
                 {"files_shared", copies.files_shared},
                 {"conflicts", copies.conflicts},
                 {"keep", to_string(status.keep)},
                 {"files_left", status.files_left},
                 {"bytes_left", status.bytes_left},
                 {"files_pinned", status.files_pinned},
                 {"bytes_pinned", status.bytes_pinned},
                 {"restored",
                  {{"files", status.restored.files},
                   {"bytes", status.restored.bytes},
                   {"others", status.restored.others},
                   {"were_there", status.restored.were_there},
                   {"failed", status.restored.failed}}},
                 {"limits",
                  {{"rate", status.limits.rate},
                   {"rate_saving", status.rate_while_saving},
                   {"connections", status.limits.connections},
                   {"memory", status.limits.memory}}}});
  return to_text(report);
}

}  // namespace fpfs
