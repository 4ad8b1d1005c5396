// The settings' adapters: their names and folders, and how they get into a loaded program.
//
// Pure except for what is read from folders.
#pragma once

#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/adapter_keeper.h"
#include "worker/adapters/adapter_table.h"
#include "worker/config.h"
#include "worker/runner/runner.h"

namespace quire {

// Their flags.
void AddAdapterFlags(config::Schema& schema, WorkerConfig& config);

// What --lora-modules names, in its order: NAME=FOLDER, or vLLM's {"name": …, "path": …}.
// INVALID_ARGUMENT says what is wrong with which entry.
struct AdapterSetting {
  std::string name;
  std::string path;
};
absl::StatusOr<std::vector<AdapterSetting>> ParseLoraModules(
    const std::vector<std::string>& entries);

// Whether an adapter beside these names of its model can have this one. INVALID_ARGUMENT says what
// is wrong with it, without the name.
absl::Status CheckUsableAdapterName(const std::string& name,
                                    const std::vector<std::string>& served_names);

// The same of the flags of adapters together, for CheckWorkerConfig.
absl::Status CheckAdapterFlags(const WorkerConfig& config);

AdapterKeeperOptions KeeperOptionsOf(const WorkerConfig& config,
                                     const std::vector<std::string>& served_names);
// How adapters of this program are packed; both outlive the function.
AdapterPack PackFor(const kernels::StepProgram& steps, const kernels::LoadedProgram& program);
// How the worker reads adapters at run time; `steps` outlive the function.
AdapterRead AdapterReads(const WorkerConfig& config, const kernels::StepProgram& steps,
                         AdapterPack pack);

// Slots of adapters; 0: they are not served.
inline int MaxLoras(const WorkerConfig& config) {
  return config.enable_lora ? config.max_loras : 0;
}

// Loads all of the settings' adapters, in the order of their slots, while no step runs. Errors
// begin with "--lora-modules NAME".
absl::StatusOr<AdapterTable> LoadAdapters(const WorkerConfig& config, const AdapterPack& pack,
                                          Runner& runner);
// The same errors, before anything has been loaded.
absl::Status CheckAdapters(const WorkerConfig& config, const kernels::StepProgram& steps);

// A line for each.
void LogAdapters(const AdapterTable& adapters, Logger& log);

}  // namespace quire
