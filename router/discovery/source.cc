#include "router/discovery/source.h"

#include <algorithm>
#include <utility>

namespace quire {

SourceMetrics::SourceMetrics(Metrics& metrics, const std::string& flag)
    : changes(metrics.AddCounter({"quire_router_discovery_changes_total",
                                  "Lists of workers that differed from the one before.",
                                  {{"source", flag}}})),
      failures(metrics.AddCounter(
          {"quire_router_discovery_failures_total",
           "Times that a source could not be asked or made no sense; its last list holds.",
           {{"source", flag}}})),
      workers(metrics.AddGauge({"quire_router_discovered_workers",
                                "Workers that a source names.",
                                {{"source", flag}}})) {}

SourceReport::SourceReport(std::string flag, std::string value, const DiscoveryRuntime& runtime,
                           SourceMetrics& metrics)
    : flag_(std::move(flag)), value_(std::move(value)), runtime_(runtime), metrics_(metrics) {}

void SourceReport::Found(std::vector<std::string> targets) {
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  if (!trouble_.empty()) runtime_.logger.Info("--" + flag_ + " works again", {{"value", value_}});
  trouble_.clear();
  if (found_any_ && targets == targets_) return;
  found_any_ = true;
  metrics_.changes.Add();
  metrics_.workers.Add(static_cast<double>(targets.size()) - static_cast<double>(targets_.size()));
  runtime_.logger.Info("workers found by --" + flag_,
                       {{"value", value_}, {"workers", targets.size()}});
  targets_ = targets;
  runtime_.found(flag_ + "=" + value_, std::move(targets));
}

void SourceReport::Failed(const absl::Status& why) {
  metrics_.failures.Add();
  const std::string message = StatusMessage(why);
  if (message == trouble_) return;
  trouble_ = message;
  runtime_.logger.Warning("--" + flag_ + ": " + message + "; the last list holds",
                          {{"value", value_}, {"workers", targets_.size()}});
}

}  // namespace quire
