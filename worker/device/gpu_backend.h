// Wraps the plugin's Backend as one of the worker's: for the engine, which plans and never uses a
// GPU, and for each rank, which computes on its own.
//
// The thread that opens it owns it. The plugin stays open until the Backend goes.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/driver/driver_report.h"

namespace quire {

struct GpuSettings {
  std::string plugin;       // path that the user gave; empty: by the table of places
  std::string nccl;         // the same
  std::string search_path;  // PATH: its Python environments may hold libraries
  bool batch_invariant = true;
  std::string cublaslt;  // the same, used where batch invariance is turned off
  int ranks = 1;
  std::string driver_library = "libcuda.so.1";
};

// The file of cuBLASLt that products may use; empty: none, and `why` gives the reason.
std::string FindCublasLt(const GpuSettings& settings, std::string& why);

// A Backend that only estimates, for ranks on such GPUs. UNAVAILABLE (exit code 4) in one line.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenGpuEstimate(
    const GpuSettings& settings, const kernels::cuda::DriverDevice& gpu);

// The Backend of a rank, on the device that "cuda:2,3" names for it, by index.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenGpuOfRank(const GpuSettings& settings,
                                                                const std::string& device,
                                                                int rank);

}  // namespace quire
