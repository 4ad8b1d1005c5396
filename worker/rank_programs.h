// The worker's ranks: what one of them loads, alike in a thread and in a process of its own.
//
// Pure but for what the builder loads. Used by WorkerLoader, which plans for all ranks, and by each
// rank, which makes of the same settings the same program; their identities are held against each
// other when a rank greets.
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

namespace quire {

// The settings' backend, linked to the program or on the CPU with so many threads. UNAVAILABLE
// names the flag.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackend(const WorkerConfig& config,
                                                              int threads);

// Threads that this worker computes with, all its ranks together.
int ThreadsOfWorker(const WorkerConfig& config);

// The settings' pages of keys and values, where auto is what the backend wants.
kernels::KvShape PagesOf(const WorkerConfig& config, const kernels::StepProgram& program,
                         const kernels::Backend& backend);

// What a rank's program is loaded with, but for pages, longest context and communicator.
kernels::ProgramOptions RankProgramOptions(const WorkerConfig& config,
                                           const kernels::StepProgram& program,
                                           const kernels::Backend& backend);

// What --dtype converts weights to; auto nothing.
std::optional<kernels::DType> FloatTypeOf(const WorkerConfig& config);

// All that changes bits: device kind, kernel revision and class, types, ranks, batch invariance.
std::string NumericsId(const WorkerConfig& config, const kernels::Backend& backend,
                       kernels::KvType kv, const model::Model& model);
// What ranks must agree on.
std::string RankIdentity(const std::string& model_id, const std::string& numerics_id);

// Loads a rank's part of the settings' model. `config` outlives the builder.
RankBuilder MakeRankBuilder(const WorkerConfig& config);

// Whether ranks stand apart from the engine, as threads or processes, rather than one in its place.
// On a GPU always: it may fail, and a rank can be started again.
inline bool HasRankGroup(const WorkerConfig& config) {
  return config.tensor_parallel_size > 1 || config.rank_backend == "process" || AsksForGpu(config);
}

}  // namespace quire
