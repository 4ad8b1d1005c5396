#include "worker/device/gpu_backend.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cublaslt/cublaslt_library.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "worker/device/ask_apart.h"
#include "worker/device/cuda_plugin.h"
#include "worker/device/device_choice.h"

namespace quire {
namespace {

using kernels::ProgramOptions;
using kernels::StepProgram;
using kernels::cuda::DriverDevice;

// Holds the plugin open behind its Backend.
class PluginBackend final : public kernels::Backend {
 public:
  PluginBackend(std::unique_ptr<CudaPlugin> plugin, CudaPlugin::BackendHandle backend)
      : plugin_(std::move(plugin)), backend_(std::move(backend)) {}

  std::unique_ptr<kernels::LoadedProgram> Load(const StepProgram& program,
                                               const ProgramOptions& options) override {
    return backend_->Load(program, options);
  }
  std::string Refusal(const StepProgram& program, const ProgramOptions& options) const override {
    return backend_->Refusal(program, options);
  }
  kernels::KvShape PageShape(const StepProgram& program, int block_size) const override {
    return backend_->PageShape(program, block_size);
  }
  int64_t EstimateWeightBytes(const StepProgram& program) const override {
    return backend_->EstimateWeightBytes(program);
  }
  kernels::WeightForms FormsOfWeights(const StepProgram& program) const override {
    return backend_->FormsOfWeights(program);
  }
  int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                 const ProgramOptions& options) const override {
    return backend_->EstimateWorkspaceBytes(program, options);
  }
  int64_t EstimateSharedBytes(const StepProgram& program,
                              const ProgramOptions& options) const override {
    return backend_->EstimateSharedBytes(program, options);
  }
  int MaxInFlight(const StepProgram& program) const override {
    return backend_->MaxInFlight(program);
  }
  std::string NumericsClass(const StepProgram& program) const override {
    return backend_->NumericsClass(program);
  }
  std::string Description() const override { return backend_->Description(); }

 private:
  std::unique_ptr<CudaPlugin> plugin_;
  CudaPlugin::BackendHandle backend_;
};

// Its file; empty with one rank, which needs none.
absl::StatusOr<std::string> FindNccl(const GpuSettings& settings) {
  if (settings.ranks == 1) return std::string();
  std::string error;
  const auto library =
      kernels::cuda::nccl::Library::Open(NcclPlaces(settings.nccl, settings.search_path), error);
  if (library == nullptr) return absl::UnavailableError(AbslView("--device: " + error));
  return library->path();
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> Open(const GpuSettings& settings,
                                                       const DriverDevice& gpu, int32_t device) {
  QUIRE_ASSIGN_OR_RETURN(auto plugin, CudaPlugin::Open(PluginPlaces(settings.plugin)));
  const std::string description = "cuda:" + std::to_string(gpu.index) + " (" + gpu.name + ")";
  QuireCudaRequest request = {};
  request.device = device;
  request.major = gpu.major;
  request.minor = gpu.minor;
  request.description = description.c_str();
  QUIRE_ASSIGN_OR_RETURN(const std::string nccl, FindNccl(settings));
  request.nccl_library = nccl.c_str();
  std::string why;
  const std::string cublaslt = FindCublasLt(settings, why);
  request.cublaslt_library = cublaslt.c_str();
  QUIRE_ASSIGN_OR_RETURN(auto backend, plugin->OpenBackend(request));
  return std::make_unique<PluginBackend>(std::move(plugin), std::move(backend));
}

}  // namespace

std::string FindCublasLt(const GpuSettings& settings, std::string& why) {
  if (settings.batch_invariant) return {};
  const auto library = kernels::cuda::cublaslt::Library::Open(
      CublasLtPlaces(settings.cublaslt, settings.search_path), why);
  return library == nullptr ? std::string() : library->path();
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenGpuEstimate(const GpuSettings& settings,
                                                                  const DriverDevice& gpu) {
  return Open(settings, gpu, -1);
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenGpuOfRank(const GpuSettings& settings,
                                                                const std::string& device,
                                                                int rank) {
  QUIRE_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDevice(device));
  if (rank < 0 || static_cast<size_t>(rank) >= request.names.size()) {
    return absl::UnavailableError(
        AbslView("--device: " + device + " names no device for rank " + std::to_string(rank)));
  }
  DeviceRequest own;
  own.names = {request.names[static_cast<size_t>(rank)]};
  AskOptions ask;
  ask.library = settings.driver_library;
  ask.ranks = 0;  // none is opened for the answer
  const kernels::cuda::DriverReport report = AskDriverApart(own, ask);
  for (const DriverDevice& gpu : report.devices) {
    if (IsWanted(own, gpu)) return Open(settings, gpu, gpu.index);
  }
  return absl::UnavailableError(AbslView("--device: cuda:" + own.names.front() + " is gone" +
                                         (report.error.empty() ? "" : " (" + report.error + ")")));
}

}  // namespace quire
