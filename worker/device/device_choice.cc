#include "worker/device/device_choice.h"

#include <unistd.h>

#include <algorithm>

#include "kernels/cuda/nccl/nccl_library.h"
#include "worker/device/ask_apart.h"
#include "worker/device/cuda_plugin.h"

namespace quire {
namespace {

constexpr int64_t kMarginBytes = int64_t{512} << 20;

std::string ProgramFolder() {
  char path[4096] = {};
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);
  const std::string program(path, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t slash = program.rfind('/');
  return slash == std::string::npos ? "" : program.substr(0, slash);
}

absl::Status CheckNccl(const DeviceSettings& settings) {
  if (settings.ranks == 1) return absl::OkStatus();
  std::string error;
  if (kernels::cuda::nccl::Library::Open(NcclPlaces(settings.nccl, settings.search_path), error) !=
      nullptr) {
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

// For the machine code that every build of the plugin has: compute capability 9.0.
std::vector<kernels::cuda::DriverDevice> PlannedDevices(int ranks) {
  std::vector<kernels::cuda::DriverDevice> devices(static_cast<size_t>(ranks));
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].index = static_cast<int>(i);
    devices[i].name = "not here, compute capability 9.0";
    devices[i].major = 9;
  }
  return devices;
}

}  // namespace

kernels::LibraryPlaces NcclPlaces(const std::string& named, const std::string& search_path) {
  kernels::LibraryPlaces places = kernels::UsualPlaces(ProgramFolder(), search_path);
  places.named = named;
  return places;
}

kernels::LibraryPlaces CublasLtPlaces(const std::string& named, const std::string& search_path) {
  return NcclPlaces(named, search_path);
}

kernels::LibraryPlaces PluginPlaces(const std::string& named) {
  kernels::LibraryPlaces places;
  places.program_folder = ProgramFolder();
  places.named = named;
  places.loader_cache = false;
  return places;
}

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
  auto devices = FindDevices(settings, request, **plugin);
  if (!devices.ok() && settings.for_a_plan && !automatic) {
    devices = PlannedDevices(settings.ranks);
  }
  if (!devices.ok()) {
    if (!automatic) {
      return absl::Status(devices.status().code(),
                          AbslView(StatusMessage(devices.status()) + settings.hint));
    }
    choice.note = StatusMessage(devices.status());
    return choice;
  }
  choice.gpus = *std::move(devices);
  choice.device = "cuda:";
  for (size_t i = 0; i < choice.gpus.size(); ++i) {
    choice.device += (i == 0 ? "" : ",") + std::to_string(choice.gpus[i].index);
  }
  return choice;
}

int64_t PlannedBytes(const DeviceChoice& choice) {
  const auto fullest =
      std::min_element(choice.gpus.begin(), choice.gpus.end(),
                       [](const auto& a, const auto& b) { return a.free_bytes < b.free_bytes; });
  return std::max<int64_t>(0, fullest->free_bytes - kMarginBytes);
}

}  // namespace quire
