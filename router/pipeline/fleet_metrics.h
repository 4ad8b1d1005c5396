// Every worker by itself, as this router sees it: what a dashboard draws and an alert compares.
//
// Owner: the pipeline; written on its executor only. Labels are bounded: a worker's target is one
// for as long as the fleet knows it (RouterLimits::max_workers).
#pragma once

#include <array>
#include <map>
#include <string>

#include "common/metrics/metrics.h"
#include "router/fleet/fleet.h"

namespace quire {

class FleetMetrics {
 public:
  explicit FleetMetrics(Metrics& metrics) : metrics_(metrics) {}

  // What the fleet knows now; the series of workers that it has forgotten go.
  void Update(const Fleet& fleet);

 private:
  static constexpr size_t kSeries = 7;
  using Worker = std::array<Gauge*, kSeries>;
  Worker Add(const std::string& target);

  Metrics& metrics_;
  std::map<std::string, Worker> workers_;  // by target
};

}  // namespace quire
