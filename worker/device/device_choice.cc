#include "worker/device/device_choice.h"

#include <unistd.h>

#include "kernels/cuda/nccl/nccl_library.h"
#include "worker/device/ask_apart.h"
#include "worker/device/cuda_plugin.h"

namespace quire {
namespace {

std::string ProgramFolder() {
  char path[4096] = {};
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string program(path, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t slash = program.rfind('/');
  return slash == std::string::npos ? "" : program.substr(0, slash);
}

kernels::LibraryPlaces PlacesOf(const std::string& named) {
  kernels::LibraryPlaces places = kernels::UsualPlaces(ProgramFolder());
  places.named = named;
  return places;
}

// The plugin is of this project alone: it is in no wheel, no toolkit and no
// folder of the system.
kernels::LibraryPlaces PluginPlaces(const std::string& named) {
  kernels::LibraryPlaces places;
  places.program_folder = ProgramFolder();
  places.named = named;
  places.loader_cache = false;
  return places;
}

absl::Status CheckNccl(const DeviceSettings& settings) {
  if (settings.ranks == 1) return absl::OkStatus();
  std::string error;
  if (kernels::cuda::nccl::Library::Open(PlacesOf(settings.nccl), error) != nullptr) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(AbslView("--device: " + error));
}

absl::StatusOr<std::vector<kernels::cuda::DriverDevice>> FindDevices(const DeviceSettings& settings,
                                                                     const DeviceRequest& request,
                                                                     const CudaPlugin& plugin) {
  AskOptions ask;
  ask.library = settings.driver_library;
  ask.ranks = settings.ranks;
  DeviceNeeds needs;
  needs.ranks = settings.ranks;
  needs.toolkit_version = plugin.toolkit_version();
  needs.oldest_major = plugin.oldest_major();
  auto devices = ChooseDevices(request, needs, AskDriverApart(request, ask));
  if (devices.ok()) QUIRE_RETURN_IF_ERROR(CheckNccl(settings));
  return devices;
}

}  // namespace

absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDevice(settings.device));
  DeviceChoice choice;
  if (request.kind == DeviceRequest::Kind::kCpu) return choice;
  const bool automatic = request.kind == DeviceRequest::Kind::kAuto;
  const auto plugin = CudaPlugin::Open(PluginPlaces(settings.plugin));
  if (!plugin.ok()) {
    if (automatic && settings.plugin.empty()) return choice;
    return plugin.status();
  }
  const auto devices = FindDevices(settings, request, **plugin);
  const absl::Status unused =
      devices.ok() ? absl::UnavailableError(
                         AbslView("--device: " + DeviceText(devices->front()) +
                                  " would do, but this worker does not compute on GPUs yet; set "
                                  "--device cpu"))
                   : devices.status();
  if (!automatic) return unused;
  choice.note = StatusMessage(unused);
  return choice;
}

}  // namespace quire
