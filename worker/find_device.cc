#include "worker/find_device.h"

#include <utility>

#include "common/config/program.h"
#include "worker/device/gpu_backend.h"
#include "worker/device/linked_device.h"
#include "worker/rank_programs.h"

namespace quire {
namespace {

// A missing library that only adds speed is not an error.
void SayFastProducts(const WorkerConfig& config, Logger& log) {
  if (IsBatchInvariant(config)) {
    return log.Info("--no-batch-invariant changes nothing on a CPU, which has one way to compute");
  }
  std::string why;
  const std::string library = FindCublasLt(config.gpu, why);
  if (library.empty()) return log.Info("our own products alone", {{"why", why}});
  log.Info("products by cuBLASLt where it is faster", {{"library", library}});
}

}  // namespace

std::string SearchPath(const char* const* envp) {
  const config::Environment environment = config::EnvironmentFromMain(envp);
  const auto found = environment.find("PATH");
  return found == environment.end() ? std::string() : found->second;
}

bool FindDevice(WorkerConfig& config, Logger& log, DeviceChoice& choice, StartFailure& failure) {
  if (FindLinkedDevice(config.device) != nullptr) return true;
  DeviceSettings settings;
  settings.device = config.device;
  settings.ranks = config.tensor_parallel_size;
  settings.plugin = config.gpu.plugin;
  settings.nccl = config.gpu.nccl;
  settings.search_path = config.gpu.search_path;
  settings.for_a_plan = config.plan && config.plan_memory.value > 0;
  if (config.plan) settings.hint = "; quire plan --memory plans for GPUs of that memory elsewhere";
  absl::StatusOr<DeviceChoice> found = ChooseDevice(settings);
  if (!found.ok()) {
    const bool bad_argument = absl::IsInvalidArgument(found.status());
    failure = {bad_argument ? kExitBadArguments : kExitDeviceUnusable,
               StatusMessage(found.status())};
    return false;
  }
  choice = *std::move(found);
  if (!choice.note.empty()) log.Info("device", {{"cuda", choice.note}});
  config.device = choice.device;
  if (!config.gpu.batch_invariant) SayFastProducts(config, log);
  if (choice.gpus.empty()) return true;
  config.rank_backend = "process";
  // The device that auto has found may not support the other settings.
  const absl::Status fits = CheckWorkerConfig(config);
  if (!fits.ok()) failure = {kExitBadArguments, StatusMessage(fits)};
  return fits.ok();
}

std::unique_ptr<DeviceMonitor> MonitorDevices(const WorkerConfig& config,
                                              const DeviceChoice& choice, Metrics& metrics,
                                              Logger& log) {
  DeviceMonitorOptions options;
  options.places = NvmlPlaces();
  for (const auto& gpu : choice.gpus) options.uuids.push_back(gpu.uuid);
  if (const LinkedDevice* device = FindLinkedDevice(config.device)) {
    options.uuids.assign(static_cast<size_t>(config.tensor_parallel_size), device->uuid);
  }
  if (options.uuids.empty()) return nullptr;
  return std::make_unique<DeviceMonitor>(std::move(options), metrics, log);
}

absl::Status WithFaults(const absl::Status& status, DeviceMonitor* monitor) {
  const std::string faults = monitor == nullptr ? "" : monitor->Faults();
  if (faults.empty()) return status;
  return {status.code(), AbslView(StatusMessage(status) + " (NVML: " + faults + ")")};
}

}  // namespace quire
