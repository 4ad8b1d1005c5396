// Every worker by itself, and who serves each model, as this router sees it: what a dashboard draws
// and an alert compares.
//
// Owner: the pipeline; written on its executor only.
//  1. Labels are bounded: a worker's target is one for as long as the fleet knows it
//     (RouterLimits::max_workers), a model's name for as long as a pool has it (max_pools). Where a
//     worker has both, the model is one at a time: the first name of its last Hello.
//  2. There is a series of ready workers at all times: while no worker has ever named a model, that
//     of "unknown".
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

  // What the fleet knows now; the series of workers and models that it has forgotten go.
  void Update(const Fleet& fleet);

 private:
  static constexpr size_t kSeries = 7;
  using Worker = std::array<Gauge*, kSeries>;
  // By target and the first name that it serves. A target whose worker serves another model now
  // gets new series.
  using Key = std::pair<std::string, std::string>;
  Worker Add(const Key& key);
  void UpdateModels(const Fleet& fleet);

  Metrics& metrics_;
  std::map<Key, Worker> workers_;
  std::map<std::string, Gauge*> models_;  // by served name
};

}  // namespace quire
