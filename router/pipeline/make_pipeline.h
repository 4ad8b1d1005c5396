// How main builds a pipeline: settings, and interfaces to the outside.
//
// Called once on the executor's thread before the loop runs, or inside it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/trace/context.h"
#include "router/core/answer_format.h"
#include "router/core/model_text.h"
#include "router/dispatch/dispatch_types.h"
#include "router/fleet/pools.h"
#include "router/pipeline/pipeline.h"
#include "router/records/request_record.h"

namespace quire {

struct PipelineOptions : DispatchOptions {
  std::vector<std::string> workers;  // HOST:PORT
  bool generation_defaults = true;   // the model's own sampling defaults where a request sets none
  std::string salt_key;              // empty: the public key
  ModelTextFactory text_factory;     // MakeBundleText of router/chat; tests fake it
  PoolRules pool_rules;              // aliases, pins, weights
  AnswerRules answer_rules;          // dialects and thoughts in place of those of templates
  size_t max_waiting_prompt_bytes = size_t{1} << 30;  // of all prompts until they are tokens
  // What the router holds for all clients, and the limit of one tenant's part of it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  size_t max_tenant_memory_bytes = size_t{1} << 29;
  bool ready_without_workers = false;     // for pools that scale to zero
  std::optional<trace::Sampler> sampler;  // set: traces are exported, and continue at workers
  RecordSink* records = nullptr;          // outlives the pipeline; nullptr: no records are kept
};

// All of them outlive the pipeline.
struct PipelineRuntime {
  Executor& executor;
  Background& background;
  Dialer& dialer;
  Rng& rng;
  Logger& logger;
  Metrics& metrics;
};

// INVALID_ARGUMENT names the setting: a worker is listed twice.
absl::StatusOr<std::unique_ptr<Pipeline>> MakePipeline(PipelineOptions options,
                                                       const PipelineRuntime& runtime);

}  // namespace quire
