#include "router/pipeline/dispatch_options.h"

#include <string>

namespace quire {

absl::Status CheckPolicy(const PipelineOptions& options) {
  if (FindPolicy(options.routing_policy) == nullptr) {
    std::string known;
    for (const Policy& policy : Policies()) {
      known += (known.empty() ? "" : ", ") + std::string(policy.name);
    }
    return InvalidArgument("--routing-policy: '" + options.routing_policy +
                           "' is unknown; must be one of " + known);
  }
  return absl::OkStatus();
}

DispatchOptions MakeDispatchOptions(const PipelineOptions& options, RouterInstance instance) {
  DispatchOptions dispatch;
  dispatch.instance = instance;
  dispatch.policy = FindPolicy(options.routing_policy);
  dispatch.limits = options.limits;
  dispatch.link.silence_ms = options.worker_silence_ms;
  dispatch.carry_on = options.carry_on;
  dispatch.traces_attempts = options.sampler.has_value();
  if (options.carry_on_exact) dispatch.carry_on_mode = CarryOnMode::kExact;
  return dispatch;
}

}  // namespace quire
