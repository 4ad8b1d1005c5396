#include "router/pipeline/admission_metrics.h"

#include <set>

namespace quire {
namespace {

constexpr const char* kPriorityNames[] = {"high", "normal", "low"};
constexpr size_t kModelIdLabelBytes = 16;  // of its digest: enough to separate two

int ClassOf(int32_t priority) { return priority < 0 ? 0 : priority == 0 ? 1 : 2; }

}  // namespace

void AdmissionMetrics::Counted::Set(uint64_t now) {
  counter->Add(now - last);
  last = now;
}

AdmissionMetrics::AdmissionMetrics(Metrics& metrics)
    : metrics_(metrics),
      admitted_{&metrics.AddCounter(
          {"quire_router_admitted_requests_total", "Requests that were let in."})},
      journal_bytes_(metrics.AddGauge(
          {"quire_router_journal_bytes", "Accepted tokens kept to carry running answers on."})),
      queue_seconds_(metrics.AddHistogram(
          {"quire_router_queue_seconds", "From a request's turn to wait to its first Submit."},
          LatencyBuckets())) {
  for (size_t i = 0; i < refused_.size(); ++i) {
    const std::string name(RefusalCauseName(static_cast<RefusalCause>(i)));
    refused_[i].counter =
        &metrics.AddCounter({"quire_router_refused_requests_total",
                             "Requests refused with 503 or, over a tenant's quota, 429.",
                             {{"cause", name}}});
  }
}

void AdmissionMetrics::Update(const Admission& admission, const Fleet& fleet) {
  admitted_.Set(admission.admitted_total());
  for (size_t i = 0; i < refused_.size(); ++i) {
    refused_[i].Set(admission.refused_total(static_cast<RefusalCause>(i)));
  }
  for (const auto& [tenant, count] : admission.quota_refusals()) {
    auto [it, is_new] = quota_refusals_.try_emplace(tenant);
    if (is_new) {
      it->second.counter =
          &metrics_.AddCounter({"quire_router_quota_refusals_total",
                                "Requests refused over their tenant's quota; past the limit of "
                                "labels under other.",
                                {{"tenant", tenant}}});
    }
    it->second.Set(count);
  }
  journal_bytes_.Set(static_cast<double>(admission.journal_bytes()));
  UpdateQueue(admission.queue(), fleet);
}

void AdmissionMetrics::UpdateQueue(const FairQueue& queue, const Fleet& fleet) {
  std::set<std::string> counted;  // a model that is served under several names waits under one
  for (const Pool& pool : fleet.pools()) {
    // A request for an adapter waits under its model.
    if (!pool.adapter.empty() || !counted.insert(pool.model_id).second) continue;
    SetQueued(queue, pool.name, pool.model_id);
  }
  SetQueued(queue, "unknown", kNoModel);
}

void AdmissionMetrics::SetQueued(const FairQueue& queue, const std::string& name,
                                 const std::string& model_id) {
  std::array<size_t, 3> waiting{};
  for (const auto& [priority, count] : queue.ByPriority(model_id)) {
    waiting[static_cast<size_t>(ClassOf(priority))] += count;
  }
  for (int sign = 0; sign < 3; ++sign) {
    // By the label that Prometheus sees, so that models with the same prefix share a series.
    const std::string label = model_id.substr(0, kModelIdLabelBytes);
    Gauge*& gauge = queued_[{name, label, sign}];
    if (gauge == nullptr) {
      gauge = &metrics_.AddGauge(
          {"quire_router_queued_requests",
           "Requests that wait for room at a worker, also while there is no "
           "worker at all; under unknown if no worker ever had their model. "
           "Priorities below 0 are high, above 0 low.",
           {{"model", name}, {"model_id", label}, {"priority", kPriorityNames[sign]}}});
    }
    gauge->Set(static_cast<double>(waiting[static_cast<size_t>(sign)]));
  }
}

}  // namespace quire
