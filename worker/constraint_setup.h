// The settings of constraints as flags, and what a worker makes of them.
//
// Plain functions; for config.cc, loaded_worker.cc and main.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "common/config/schema.h"
#include "common/runtime/work_queue.h"
#include "worker/config.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/constrain/mask_pool.h"
#include "worker/model/model.h"

namespace quire {

inline constexpr int kCompileThreads = 2;  // of low priority, as all background work

void AddConstraintFlags(config::Schema& schema, WorkerConfig& config);

// Memory that constraints may hold: an estimate of a vocabulary of that many tokens, and the limits
// of the rest.
int64_t ConstraintBytes(const WorkerConfig& config, int32_t vocab_size);

// How many constraints may wait to be compiled, of all tenants and of one.
WorkLimits CompileLimits(const WorkerConfig& config);

// Made from the model's text, which outlives it, when it is first needed: it takes a second.
std::shared_ptr<SharedVocabulary> VocabularyOf(const model::Model& model);

MaskPoolOptions MaskOptions(const WorkerConfig& config, int32_t vocab_size);

}  // namespace quire
