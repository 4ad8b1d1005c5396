// What the log says while a model loads.
#pragma once

#include <cstdint>
#include <string>

#include "common/log/log.h"
#include "kernels/backend.h"
#include "worker/config.h"
#include "worker/load/memory_plan.h"
#include "worker/model/model.h"

namespace quire {

struct LoadedForms {
  const WorkerConfig& config;
  const model::Model& model;
  const kernels::Backend& backend;
  std::string rounded;  // Backend::RoundedActivations
};

// Which quantised weights the device keeps quantised: expanding them takes memory and time.
void LogWeightForms(const LoadedForms& forms, Logger& log);

void LogMemoryPlan(const load::MemoryPlan& plan, int32_t max_model_len, Logger& log);

}  // namespace quire
