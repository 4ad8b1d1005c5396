#include "router/pipeline/worker_roster.h"

#include <map>
#include <utility>

#include "common/check.h"

namespace quire {

WorkerRoster::WorkerRoster(const RouterLimits& limits, Dispatcher& dispatcher,
                           const PipelineRuntime& runtime)
    : dispatcher_(dispatcher),
      executor_(runtime.executor),
      logger_(runtime.logger),
      left_out_(runtime.metrics.AddGauge({"quire_router_workers_left_out",
                                          "Workers that are named and over the router's limit."})),
      set_(limits.max_workers) {}

void WorkerRoster::Named(const std::string& source, std::vector<std::string> targets) {
  set_.Named(source, std::move(targets));
  const auto left_out = static_cast<double>(set_.left_out());
  if (left_out > 0 && left_out != left_out_.value()) {
    logger_.Warning("more workers are named than a router takes",
                    {{"named", set_.named() + set_.left_out()}, {"taken", set_.named()}});
  }
  left_out_.Set(left_out);
  Refresh();
}

void WorkerRoster::Refresh() {
  std::vector<WorkerSet::Present> present;
  std::map<std::string, WorkerIndex, std::less<>> indexes;
  for (const WorkerRecord& worker : dispatcher_.fleet().workers()) {
    if (worker.phase == WorkerPhase::kGone) continue;
    present.push_back({worker.target, worker.attached, worker.live_attempts > 0});
    indexes.emplace(worker.target, worker.index);
  }
  const WorkerSet::Changes changes = set_.Decide(present, executor_.clock().Now());
  for (const std::string& target : changes.remove) {
    logger_.Info("worker is named no more", {{"worker", target}});
    dispatcher_.RemoveWorker(indexes.at(target));
  }
  for (const std::string& target : changes.add) {
    const absl::Status added = dispatcher_.AddWorker(target);
    QUIRE_CHECK_MSG(added.ok(), "the set keeps to the fleet's limit, and names each worker once");
  }
}

}  // namespace quire
