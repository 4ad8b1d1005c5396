// Keeps the dispatcher's workers equal to what discovery names: dials new ones, and removes those
// that no source names any more.
//
// Owner: the pipeline, on the router's executor; never called from inside a callback of a link.
#pragma once

#include <string>
#include <vector>

#include "router/discovery/worker_set.h"
#include "router/dispatch/dispatcher.h"
#include "router/pipeline/make_pipeline.h"

namespace quire {

class WorkerRoster {
 public:
  // All of them outlive the roster.
  WorkerRoster(const RouterLimits& limits, Dispatcher& dispatcher, const PipelineRuntime& runtime);

  // The whole current list of one source.
  void Named(const std::string& source, std::vector<std::string> targets);
  // Call every second.
  void Refresh();

 private:
  Dispatcher& dispatcher_;
  Executor& executor_;
  Logger& logger_;
  Gauge& left_out_;
  WorkerSet set_;
};

}  // namespace quire
