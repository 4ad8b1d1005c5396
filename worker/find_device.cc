#include "worker/find_device.h"

#include <utility>

#include "worker/device/linked_device.h"

namespace quire {

bool FindDevice(WorkerConfig& config, Logger& log, DeviceChoice& choice, StartFailure& failure) {
  if (FindLinkedDevice(config.device) != nullptr) return true;
  DeviceSettings settings;
  settings.device = config.device;
  settings.ranks = config.tensor_parallel_size;
  settings.plugin = config.cuda_plugin;
  settings.nccl = config.nccl_library;
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
  if (choice.gpus.empty()) return true;
  config.rank_backend = "process";
  // What auto has found may not do what the other settings ask of it.
  const absl::Status fits = CheckWorkerConfig(config);
  if (!fits.ok()) failure = {kExitBadArguments, StatusMessage(fits)};
  return fits.ok();
}

}  // namespace quire
