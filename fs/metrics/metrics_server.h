// MetricsServer: answers `GET /metrics` with the metrics of a Collectable, in Prometheus' text format (prometheus-cpp
// writes it).
//
// Not prometheus-cpp's own Exposer: its HTTP server needs up to two seconds to stop, for which each umount would wait,
// and does not say why it cannot listen. What a scraper needs is little: one request, one answer, the connection closed.
//
// One thread, a few connections at a time. A client that does not speak or does not listen is dropped after some
// seconds, and holds nobody up.
//
// Thread safety: start() and stop() from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "engine/base/file_descriptor.h"
#include "engine/base/status.h"
#include "fs/metrics/metrics_address.h"

namespace fpfs {

class MetricsServer {
 public:
  // Listens when it returns. kBusy: another program has the port; kInvalidArgument, kPermission, kSystem: why else it
  // cannot listen there. Not before the process has forked.
  static Result<std::unique_ptr<MetricsServer>> start(const MetricsAddress& address,
                                                      std::unique_ptr<prometheus::Collectable> metrics);
  ~MetricsServer();  // after stop()
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // At once, unless the metrics are being collected. False: that has not ended within `patience_ms`; then this must not
  // be destroyed.
  bool stop(int patience_ms);

 private:
  struct Client {
    FileDescriptor socket;
    uint64_t deadline_ns = 0;
    std::string request, answer;  // an answer that is not empty is being sent
    size_t sent = 0;
  };

  explicit MetricsServer(std::unique_ptr<prometheus::Collectable> metrics) : metrics_(std::move(metrics)) {}
  void serve();
  void accept_clients();
  // False: it is to be closed.
  bool advance(Client& client);
  bool receive(Client& client);
  static bool send(Client& client);
  std::string answer_to(const std::string& request) const;

  const std::unique_ptr<prometheus::Collectable> metrics_;
  FileDescriptor listener_;
  FileDescriptor stopping_, stopped_;  // eventfds
  std::vector<Client> clients_;        // the thread's
  std::thread thread_;
};

}  // namespace fpfs
