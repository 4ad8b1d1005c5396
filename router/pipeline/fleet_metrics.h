// Each worker, and which workers serve each model, as this router sees them: metrics for dashboards
// and alerts.
//
// Owner: the pipeline; written on its executor only.
//  1. Labels are bounded: a worker's target is a label for as long as the fleet knows it
//     (RouterLimits::max_workers), a model's name for as long as a pool has it (max_pools). Where a
//     series has both, the model is the first name of the worker's last Hello.
//  2. A series of ready workers always exists: while no worker has ever named a model, its label is
//     "unknown".
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "common/metrics/metrics.h"
#include "router/fleet/fleet.h"

namespace quire {

class FleetMetrics {
 public:
  explicit FleetMetrics(Metrics& metrics) : metrics_(metrics) {}

  // What the fleet knows now; the series of workers and models that it has forgotten are removed.
  void Update(const Fleet& fleet);

 private:
  static constexpr size_t kSeries = 7;
  using Worker = std::array<Gauge*, kSeries>;
  // By target and the first name that it serves. A target whose worker now serves another model
  // gets new series.
  using Key = std::pair<std::string, std::string>;
  Worker Add(const Key& key);
  void UpdateModels(const Fleet& fleet);

  Metrics& metrics_;
  std::map<Key, Worker> workers_;
  std::map<std::string, Gauge*> models_;  // by served name
};

}  // namespace quire
