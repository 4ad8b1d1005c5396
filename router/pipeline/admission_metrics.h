// Which requests were admitted, which were refused and why, and which wait: metrics for autoscalers
// and operators.
//
// Owner: the pipeline; written on its executor only. Labels are bounded: models by max_pools,
// tenants by max_tenant_labels, priorities by their sign.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "common/metrics/metrics.h"
#include "router/admission/admission.h"
#include "router/fleet/fleet.h"

namespace quire {

class AdmissionMetrics {
 public:
  explicit AdmissionMetrics(Metrics& metrics);

  // Counters since the last call; the requests that wait now, for every pool ever seen, including
  // empty ones.
  void Update(const Admission& admission, const Fleet& fleet);
  void Waited(double seconds) { queue_seconds_.Observe(seconds); }

 private:
  struct Counted {
    Counter* counter = nullptr;
    uint64_t last = 0;
    void Set(uint64_t now);
  };
  using QueueLabels = std::tuple<std::string, std::string, int>;  // name, model_id, sign

  void UpdateQueue(const FairQueue& queue, const Fleet& fleet);
  void SetQueued(const FairQueue& queue, const std::string& name, const std::string& model_id);

  Metrics& metrics_;
  Counted admitted_;
  std::array<Counted, kRefusalCauses> refused_;
  std::map<std::string, Counted> quota_refusals_;  // by tenant
  std::map<QueueLabels, Gauge*> queued_;
  Gauge& journal_bytes_;
  Histogram& queue_seconds_;
};

}  // namespace quire
