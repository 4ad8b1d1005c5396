#include "worker/adapter_job_metrics.h"

namespace quire {

AdapterJobMetrics::AdapterJobMetrics(Metrics& metrics)
    : loads(metrics.AddCounter(
          {"quire_worker_lora_loads_total", "Adapters that were put into a slot at run time."})),
      load_failures(metrics.AddCounter(
          {"quire_worker_lora_load_failures_total", "Adapters that could not be loaded."})),
      switches(metrics.AddCounter(
          {"quire_worker_lora_switches_total",
           "Names that --lora-dir gave another content which was in a slot already."})),
      evictions(metrics.AddCounter({"quire_worker_lora_evictions_total",
                                    "Adapters that gave way to others in --max-loras slots."})),
      jobs_refused(metrics.AddCounter(
          {"quire_worker_lora_jobs_refused_total",
           "Orders about adapters refused since the most that may wait were under way."})),
      jobs(metrics.AddGauge(
          {"quire_worker_lora_jobs", "Orders about adapters that wait or are under way."})),
      contents(metrics.AddGauge(
          {"quire_worker_lora_contents", "Adapters in slots, with a name or without."})),
      broken(metrics.AddGauge({"quire_worker_lora_broken_entries",
                               "Entries of --lora-dir that cannot be served as they are."})),
      load_seconds(metrics.AddHistogram({"quire_worker_lora_load_seconds",
                                         "Time to load an adapter, or to find that it is held."},
                                        {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5})) {}

}  // namespace quire
