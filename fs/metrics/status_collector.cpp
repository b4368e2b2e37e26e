#include "fs/metrics/status_collector.h"

#include <initializer_list>
#include <limits>
#include <string>
#include <utility>

#include "engine/index/superblock.h"
#include "fs/report/status_report.h"

namespace fpfs {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// What is made so far.
class Families {
 public:
  // The metrics that follow are of this family.
  Families& counter(const char* name, const char* help) { return begin(MetricType::Counter, name, help); }
  Families& gauge(const char* name, const char* help) { return begin(MetricType::Gauge, name, help); }
  Families& histogram(const char* name, const char* help) { return begin(MetricType::Histogram, name, help); }

  template <typename Number>
  Families& add(Number value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (is_counter() ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
    families_.back().metric.push_back(std::move(metric));
    return *this;
  }
  // 1 for the state that is, 0 for the others.
  void add_states(std::initializer_list<const char*> states, const std::string& now, const Labels& labels = {}) {
    for (const char* state : states) {
      Labels with_state = labels;
      with_state.push_back({"state", state});
      add(now == state ? 1 : 0, std::move(with_state));
    }
  }
  void add(ClientMetric::Histogram histogram, Labels labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.histogram = std::move(histogram);
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  bool is_counter() const { return families_.back().type == MetricType::Counter; }
  Families& begin(MetricType type, const char* name, const char* help) {
    families_.push_back({std::string("fastpersistfs_") + name, help, type, {}});
    return *this;
  }
  std::vector<MetricFamily> families_;
};

ClientMetric::Histogram histogram_of(const OperationTotals& totals) {
  ClientMetric::Histogram histogram;
  for (size_t b = 0; b < kLatencyBuckets; ++b) {
    const bool is_last = b + 1 == kLatencyBuckets;
    histogram.sample_count += totals.buckets[b];
    histogram.bucket.push_back({histogram.sample_count, is_last ? std::numeric_limits<double>::infinity()
                                                                : static_cast<double>(latency_bound_us(b)) / 1e6});
  }
  histogram.sample_sum = static_cast<double>(totals.duration_ns) / 1e9;
  return histogram;
}

void add_operations(Families& families, const OperationTimes::Totals& totals) {
  families.histogram("operation_duration_seconds",
                     "Time from the receipt of a request of the kernel to its answer, by operation.");
  for (size_t o = 0; o < kOperations; ++o)
    families.add(histogram_of(totals.operations[o]), {{"op", to_string(static_cast<Operation>(o))}});
  families.counter("operation_failures_total", "Requests that were answered with an error, by operation and kind.");
  for (size_t o = 0; o < kOperations; ++o)
    for (size_t f = 0; f < kFailures; ++f)
      families.add(totals.operations[o].failures[f],
                   {{"op", to_string(static_cast<Operation>(o))}, {"kind", to_string(static_cast<Failure>(f))}});
  families.gauge("operations_in_progress", "Requests that are not answered yet.").add(totals.under_way);
  families.counter("read_bytes_total", "Bytes that applications read through the daemon.").add(totals.bytes_read);
  families.counter("written_bytes_total", "Bytes that applications wrote.").add(totals.bytes_written);
}

void add_array(Families& families, FileSystem& file_system, const StoreStatus& status) {
  Store& store = file_system.store();
  families.gauge("info", "Always 1; says which program and which array.")
      .add(1, {{"version", FPFS_VERSION}, {"array", to_string(store.array().superblock().array_id)}});
  families.gauge("uptime_seconds", "Time since the mount.").add(file_system.uptime_seconds());
  if (const Result<struct statvfs> space = store.space(); space.is_ok() && space->f_blocks > 0) {
    families.gauge("size_bytes", "Size of the filesystem.").add(space->f_blocks * space->f_frsize);
    families.gauge("free_bytes", "What of it can be written.").add(space->f_bavail * space->f_frsize);
  }
  families.gauge("read_only", "1: nothing can be written.").add(status.read_only ? 1 : 0);
  families.gauge("failed", "1: the array turned read-only by itself, after an error.")
      .add(status.read_only_reason.empty() ? 0 : 1);
  families.gauge("degraded", "1: a member is missing, or older than the others.")
      .add(is_degraded(store, status) ? 1 : 0);
  families
      .counter("metadata_errors_total",
               "Calls on names and indexes that their drive failed, and reads of damaged indexes.")
      .add(status.metadata_errors);
  families.gauge("metadata_stalled", "1: the drive with the names does not answer.")
      .add(status.metadata_stalled ? 1 : 0);
}

void add_members(Families& families, const StoreStatus& status) {
  const auto for_each = [&](auto&& value_of) {
    for (size_t index = 0; index < status.members.size(); ++index)
      families.add(value_of(status.members[index]), {{"member", std::to_string(index)}});
  };
  families.gauge("member_state", "1 for the state that the member is in.");
  for (size_t index = 0; index < status.members.size(); ++index)
    families.add_states({"ok", "missing", "outdated", "stalled", "failing", "leaving", "removed"},
                        state_of(status.members[index]), {{"member", std::to_string(index)}});
  // Of one that does not answer that is not known, and 0 would say that it is full.
  const auto for_each_known = [&](auto&& value_of) {
    for (size_t index = 0; index < status.members.size(); ++index)
      if (status.members[index].space_total > 0)
        families.add(value_of(status.members[index]), {{"member", std::to_string(index)}});
  };
  families.gauge("member_size_bytes", "Size of the member's filesystem.");
  for_each_known([](const MemberStatus& member) { return member.space_total; });
  families.gauge("member_free_bytes", "What of it is free.");
  for_each_known([](const MemberStatus& member) { return member.space_free; });
  families.gauge("member_spare_bytes", "Space of removed files that is kept for the next.");
  for_each([](const MemberStatus& member) { return member.space_spare; });
  families.counter("member_read_bytes_total", "Bytes read from the member.");
  for_each([](const MemberStatus& member) { return member.bytes_read; });
  families.counter("member_written_bytes_total", "Bytes written to the member.");
  for_each([](const MemberStatus& member) { return member.bytes_written; });
  families.counter("member_errors_total", "Transfers that failed, and content that was not what was written.");
  for (size_t index = 0; index < status.members.size(); ++index) {
    const MemberStatus& member = status.members[index];
    const std::string number = std::to_string(index);
    families.add(member.read_errors, {{"member", number}, {"kind", "read"}})
        .add(member.write_errors, {{"member", number}, {"kind", "write"}})
        .add(member.sync_errors, {{"member", number}, {"kind", "sync"}})
        .add(member.checksum_errors, {{"member", number}, {"kind", "checksum"}});
  }
}

void add_files(Families& families, const StoreStatus& status) {
  families.gauge("open_files", "Files that are open.").add(status.open_files);
  families.gauge("uncommitted_files", "Files with changes that are not committed.").add(status.dirty_files);
  families.counter("commits_total", "Commits of files.").add(status.commits);
  families.gauge("pending_frees", "Removed objects whose space is still to be freed.").add(status.pending_frees);
}

void add_pool(Families& families, const StoreStatus& status) {
  const BufferPool::Counters& buffers = status.buffers;
  const uint64_t idle = buffers.free + buffers.evictable;
  families.gauge("buffer_bytes", "Memory for file content (buffer_memory), by what it is used for.")
      .add(buffers.free * status.buffer_size, {{"state", "free"}})
      .add(buffers.evictable * status.buffer_size, {{"state", "clean"}})
      .add((buffers.total - std::min(buffers.total, idle)) * status.buffer_size, {{"state", "used"}});
  families.gauge("buffer_waiting_requests", "Requests that wait for a buffer.").add(buffers.waiting);
  families.counter("buffer_waits_total", "Requests that had to wait for a buffer.").add(buffers.waits);
  families.counter("buffer_evictions_total", "Clean buffers that were taken for something else.")
      .add(buffers.evictions);
}

void add_chunks(Families& families, const StoreStatus& status) {
  families.counter("compressed_chunks_total", "Chunks that were stored smaller.").add(status.chunks_encoded);
  families.counter("compression_input_bytes_total", "Their content.").add(status.bytes_before_encoding);
  families.counter("compression_output_bytes_total", "What is stored of it.").add(status.bytes_encoded);
  families.counter("shared_chunks_total", "Chunks that share the blocks of the file before (dedup=previous).")
      .add(status.chunks_shared);
  families.counter("shared_bytes_total", "Bytes of drives that were not written for that reason.")
      .add(status.bytes_shared);
  families
      .counter("copy_chunks_total",
               "Chunks that their members did not give: read from a copy, written back from it, not helped by a copy, "
               "and fetched because they were away.")
      .add(status.chunks_from_copy, {{"result", "from_copy"}})
      .add(status.chunks_healed, {{"result", "healed"}})
      .add(status.chunks_without_copy, {{"result", "without_copy"}})
      .add(status.chunks_fetched, {{"result", "fetched"}});
}

void add_scrub(Families& families, const Scrub::Report& report) {
  families.gauge("scrub_state", "1 for the state that the last scrub is in.");
  families.add_states({"none", "running", "paused", "finished", "cancelled"}, name_of(report.state.phase));
  families.gauge("scrub_start_timestamp_seconds", "When it began, since 1970; 0: never.")
      .add(report.state.started_seconds);
  families.gauge("scrub_end_timestamp_seconds", "When it ended; 0: not yet.").add(report.state.ended_seconds);
  families.gauge("scrub_checked_bytes", "What it has read and checked.").add(report.state.bytes);
  families.gauge("scrub_expected_bytes", "What there is to check; 0: not known.").add(report.bytes_total);
  families.gauge("scrub_damaged_chunks", "Damage that it found.").add(report.state.errors);
}

void add_rebalance(Families& families, const Rebalance::Report& report) {
  families.gauge("rebalance_state", "1 for the state that the last rebalance, or removal of members, is in.");
  families.add_states({"none", "running", "paused", "finished", "cancelled"}, name_of(report.state.phase));
  families.gauge("rebalance_seen_bytes", "What it has looked at.").add(report.state.bytes);
  families.gauge("rebalance_expected_bytes", "What there is to look at; 0: not known.").add(report.bytes_total);
  families.gauge("rebalance_moved_chunks", "Chunks that it has moved.").add(report.chunks_moved);
  families.gauge("rebalance_moved_bytes", "Their bytes.").add(report.bytes_moved);
  families.gauge("rebalance_left_chunks", "Chunks that it has left where they are.").add(report.chunks_left);
}

// Of the store outside this machine. All zero without one.
void add_tier(Families& families, const TierStatus& status) {
  const TierCopyStatus& copies = status.copies;
  families.gauge("tier_state", "1 for the state of the store that copies go to.");
  families.add_states({"none", "away", "scanning", "copying", "current", "reading", "restoring"},
                      to_string(status.state));
  families.gauge("tier_lag_seconds", "Time since the oldest commit that is not copied.").add(status.lag_seconds);
  const double not_known = std::numeric_limits<double>::quiet_NaN();
  families.gauge("tier_waiting_files", "Files that are not copied yet; NaN: not known.")
      .add(status.is_waiting_known ? static_cast<double>(copies.files_waiting) : not_known);
  families.gauge("tier_waiting_bytes", "Their bytes; NaN: not known.")
      .add(status.is_waiting_known ? static_cast<double>(copies.bytes_waiting) : not_known);
  families.gauge("tier_failed_files", "Those of them whose copy failed, and is tried again.").add(copies.files_failed);
  families.gauge("tier_refused_files", "Files that cannot be copied.").add(copies.files_refused);
  families.counter("tier_copied_files_total", "Files that were copied.").add(copies.files_copied);
  families.counter("tier_copied_bytes_total", "Bytes that were copied.").add(copies.bytes_copied);
  families.counter("tier_errors_total", "Requests of the store that failed.").add(copies.errors);
  families.counter("tier_conflicts_total", "Files that two arrays had changed.").add(copies.conflicts);
  families.counter("tier_left_bytes_total", "Content that has left the drives (tier_keep).").add(status.bytes_left);
}

}  // namespace

std::vector<MetricFamily> StatusCollector::Collect() const {
  const StoreStatus status = file_system_.store().status();
  Families families;
  add_array(families, file_system_, status);
  add_operations(families, file_system_.operation_times().totals());
  add_members(families, status);
  add_files(families, status);
  add_pool(families, status);
  add_chunks(families, status);
  add_scrub(families, file_system_.scrub().report());
  add_rebalance(families, file_system_.rebalance().report());
  add_tier(families, file_system_.tier().status());
  return families.take();
}

}  // namespace fpfs
