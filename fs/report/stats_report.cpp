#include "fs/report/stats_report.h"

#include "fs/report/report_text.h"

namespace fpfs {
namespace {

using nlohmann::json;

json operation_report(const OperationTotals& totals) {
  json failures = json::object();
  for (size_t f = 0; f < kFailures; ++f) failures[to_string(static_cast<Failure>(f))] = totals.failures[f];
  size_t used = kLatencyBuckets;
  while (used > 0 && totals.buckets[used - 1] == 0) --used;
  return {{"count", totals.count()},
          {"seconds", static_cast<double>(totals.duration_ns) / 1e9},
          {"failures", std::move(failures)},
          {"buckets", std::vector<uint64_t>(totals.buckets.begin(), totals.buckets.begin() + used)}};
}

json errors_report(const StoreStatus& status) {
  uint64_t read = 0, write = 0, sync = 0, checksum = 0;
  for (const MemberStatus& member : status.members) {
    read += member.read_errors;
    write += member.write_errors;
    sync += member.sync_errors;
    checksum += member.checksum_errors;
  }
  return {{"read", read}, {"write", write}, {"sync", sync}, {"checksum", checksum}};
}

}  // namespace

std::string stats_report(FileSystem& file_system) {
  const StoreStatus status = file_system.store().status();
  const OperationTimes::Totals totals = file_system.operation_times().totals();
  json operations = json::object();
  for (size_t operation = 0; operation < kOperations; ++operation)
    if (const OperationTotals& one = totals.operations[operation]; one.count() > 0)
      operations[to_string(static_cast<Operation>(operation))] = operation_report(one);
  json bounds = json::array();
  for (size_t b = 0; b + 1 < kLatencyBuckets; ++b) bounds.push_back(static_cast<double>(latency_bound_us(b)) / 1e6);
  return to_text({{"uptime_seconds", file_system.uptime_seconds()},
                  {"bytes_read", totals.bytes_read},
                  {"bytes_written", totals.bytes_written},
                  {"commits", status.commits},
                  {"buffer_waits", status.buffers.waits},
                  {"under_way", totals.under_way},
                  {"errors", errors_report(status)},
                  {"metadata_errors", status.metadata_errors},
                  {"latency_bounds", std::move(bounds)},
                  {"operations", std::move(operations)}});
}

}  // namespace fpfs
