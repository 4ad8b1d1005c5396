// The worker's ranks: what one of them loads, in the same way in a thread and in a separate
// process.
//
// Pure except for what the builder loads. WorkerLoader uses it to plan for all ranks, and each rank
// uses it to make the same program from the same settings; their identities are compared when a
// rank greets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "kernels/step_program.h"
#include "worker/config.h"
#include "worker/device/gpu_backend.h"
#include "worker/model/model.h"
#include "worker/ranks/rank.h"
#include "worker/ranks/rank_host.h"
#include "worker/runner/step_packet.h"

namespace quire {

// The settings' backend: the linked one, or the CPU with this many threads. UNAVAILABLE names the
// flag.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackend(const WorkerConfig& config,
                                                              int threads);

// Threads that this worker computes with, all its ranks together.
int ThreadsOfWorker(const WorkerConfig& config);

// The settings' pages of keys and values, where auto leaves the choice to the backend.
kernels::KvShape PagesOf(const WorkerConfig& config, const kernels::StepProgram& program,
                         const kernels::Backend& backend);

// The options that a rank's program is loaded with, except pages, longest context and communicator.
kernels::ProgramOptions RankProgramOptions(const WorkerConfig& config,
                                           const kernels::StepProgram& program,
                                           const kernels::Backend& backend);

// What every packet of steps is held to. The options have pages and the longest context.
StepLimits LimitsOf(const WorkerConfig& config, const kernels::ProgramOptions& options,
                    int32_t vocab_size);

// The type to which --dtype converts weights; auto converts none.
std::optional<kernels::DType> FloatTypeOf(const WorkerConfig& config);

// How the settings cut the model, for one of its ranks.
model::Rank RankOf(const WorkerConfig& config, int rank);

// Everything that changes bits: device kind, kernel revision and class, types, ranks and what they
// divide, batch invariance.
std::string NumericsId(const WorkerConfig& config, const kernels::Backend& backend,
                       kernels::KvType kv, const model::Model& model);
// The values that ranks must agree on.
std::string RankIdentity(const std::string& model_id, const std::string& numerics_id);

// Loads a rank's part of the settings' model. `config` outlives the builder.
RankBuilder MakeRankBuilder(const WorkerConfig& config);

// Whether ranks are separate from the engine, as threads or processes, instead of one in its
// thread. On a GPU they always are: a GPU may fail, and a rank can be started again.
inline bool HasRankGroup(const WorkerConfig& config) {
  return config.tensor_parallel_size > 1 || config.rank_backend == "process" || AsksForGpu(config);
}

}  // namespace quire
