// The settings' adapters: their names and folders, and how they get into a loaded program.
//
// Pure except for what is read from folders. The worker and each of its ranks load the same ones,
// in the same slots.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/log/log.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/adapter_keeper.h"
#include "worker/adapters/adapter_table.h"
#include "worker/config.h"

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

// Whether the worker takes orders about adapters: its one rank is in its own process.
bool KeepsAdapters(const WorkerConfig& config);
AdapterKeeperOptions KeeperOptionsOf(const WorkerConfig& config,
                                     const std::vector<std::string>& served_names);
// How it reads adapters of this program; the program outlives the function.
AdapterRead AdapterReads(const WorkerConfig& config, const kernels::StepProgram& steps,
                         const kernels::LoadedProgram& program);

// Slots of adapters; 0: they are not served.
inline int MaxLoras(const WorkerConfig& config) {
  return config.enable_lora ? config.max_loras : 0;
}

// Loads all of the settings' adapters into a program that runs no step, in the order of their
// slots. Errors begin with "--lora-modules NAME".
absl::StatusOr<AdapterTable> LoadAdapters(const WorkerConfig& config,
                                          const kernels::StepProgram& steps,
                                          kernels::LoadedProgram& program);
// The same without a program to load them into, for the engine of ranks: they are read and checked
// against the first rank's.
absl::StatusOr<AdapterTable> ReadAdapters(const WorkerConfig& config,
                                          const kernels::StepProgram& steps);

// A line for each.
void LogAdapters(const AdapterTable& adapters, Logger& log);

// Slot by slot, the digests of a table: what ranks must agree on. Empty where there are none.
std::string AdapterIdentity(const AdapterTable& adapters);

}  // namespace quire
