#include "router/pipeline/fleet_metrics.h"

#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace quire {
namespace {

struct Series {
  const char* name;
  const char* help;
  double (*value)(const WorkerRecord& worker);
  bool by_model = false;  // has the label `model`: to compare the workers of one model
};

double KvShare(const WorkerRecord& worker) {
  const Load& load = worker.load;
  const uint64_t total = load.free_blocks + load.evictable_blocks + load.held_blocks;
  return total == 0 ? 0 : static_cast<double>(load.held_blocks) / static_cast<double>(total);
}

constexpr Series kSeriesOfWorker[] = {
    {"quire_router_worker_ready", "1: it takes new work.",
     [](const WorkerRecord& worker) { return worker.phase == WorkerPhase::kReady ? 1.0 : 0.0; }},
    {"quire_router_worker_deaths", "Deaths that count against it now.",
     [](const WorkerRecord& worker) { return static_cast<double>(worker.health.deaths()); }},
    {"quire_router_worker_attempts", "Attempts of this router that run on it.",
     [](const WorkerRecord& worker) { return static_cast<double>(worker.live_attempts); }, true},
    {"quire_router_worker_running_rows", "Rows in its batch, of all routers, as it reports.",
     [](const WorkerRecord& worker) { return static_cast<double>(worker.load.running_rows); }},
    {"quire_router_worker_waiting_requests", "What waits there, of all routers, as it reports.",
     [](const WorkerRecord& worker) { return static_cast<double>(worker.load.waiting_requests); }},
    {"quire_router_worker_prefill_tokens", "Prefill work that it has before it, as it reports.",
     [](const WorkerRecord& worker) {
       return static_cast<double>(worker.load.waiting_prefill_tokens +
                                  worker.load.running_prefill_tokens);
     }},
    {"quire_router_worker_kv_held_ratio", "Share of its cache that requests hold.", KvShare}};

}  // namespace

FleetMetrics::Worker FleetMetrics::Add(const Key& key) {
  static_assert(std::size(kSeriesOfWorker) == kSeries);
  Worker worker{};
  for (size_t i = 0; i < kSeries; ++i) {
    MetricName name{kSeriesOfWorker[i].name, kSeriesOfWorker[i].help, {{"worker", key.first}}};
    if (kSeriesOfWorker[i].by_model) name.labels.push_back({"model", key.second});
    worker[i] = &metrics_.AddGauge(std::move(name));
  }
  return worker;
}

void FleetMetrics::Update(const Fleet& fleet) {
  std::map<Key, const WorkerRecord*> known;
  for (const WorkerRecord& worker : fleet.workers()) {
    if (worker.phase == WorkerPhase::kGone) continue;
    const std::vector<std::string>& names = worker.hello.served_names;
    known[{worker.target, names.empty() ? "unknown" : names.front()}] = &worker;
  }
  // Before others of the same target come.
  std::erase_if(workers_, [&](const auto& entry) {
    if (known.contains(entry.first)) return false;
    for (const Gauge* gauge : entry.second) metrics_.Remove(*gauge);
    return true;
  });
  for (const auto& [key, worker] : known) {
    const auto at = workers_.find(key);
    const Worker& gauges = at != workers_.end() ? at->second : workers_[key] = Add(key);
    for (size_t i = 0; i < kSeries; ++i) gauges[i]->Set(kSeriesOfWorker[i].value(*worker));
  }
  UpdateModels(fleet);
}

// A name may refer to several models, as in a rolling update: any worker of them serves it.
void FleetMetrics::UpdateModels(const Fleet& fleet) {
  std::map<std::string, uint32_t> ready;
  for (const auto& [name, of_name] : fleet.PoolsByName()) {
    uint32_t& count = ready[std::string(name)];
    for (const PoolCapacity& pool : of_name) count += pool.ready_workers;
  }
  if (ready.empty()) ready["unknown"] = 0;
  for (const auto& [name, count] : ready) {
    Gauge*& gauge = models_[name];
    if (gauge == nullptr) {
      gauge = &metrics_.AddGauge({"quire_router_model_ready_workers",
                                  "Ready workers of a served name; 0 of unknown while no worker "
                                  "has ever had its model.",
                                  {{"model", name}}});
    }
    gauge->Set(count);
  }
  std::erase_if(models_, [&](const auto& entry) {
    if (ready.contains(entry.first)) return false;
    metrics_.Remove(*entry.second);
    return true;
  });
}

}  // namespace quire
