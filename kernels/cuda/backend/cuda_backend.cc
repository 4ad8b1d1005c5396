#include "kernels/cuda/backend/cuda_backend.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/backend/halves.h"
#include "kernels/ops.h"
#include "kernels/rounded_weights.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kKernelRevision = 3;  // raised whenever a change may change bits

// Why inputs cannot be rounded as the program asks; empty: they can, or it asks for none.
std::string RefuseRoundings(const StepProgram& program, const DeviceProgram& lowered) {
  if (!program.round_activations) return {};
  if (program.dequantize_weights) {
    return "activation dtype w8a8 needs quantised weights; leave --dequantize-weights out";
  }
  for (size_t id = 0; id < program.weights.size(); ++id) {
    if (const char* why = WhyNotByCodes(program.weights[id], lowered.weights[id])) {
      return "activation dtype w8a8: \"" + program.weights[id].name +
             "\" asks for rounded inputs that have no kernel on this device (" + why +
             "); use --activation-dtype auto";
    }
  }
  return RefuseWithoutRoundings(program);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<runtime::Runtime> runtime, const CudaOptions& options)
      : runtime_(std::move(runtime)), options_(options) {}

  std::string Refusal(const StepProgram& program, const ProgramOptions& options) const override {
    DeviceProgram lowered;
    std::string error = CheckProgram(program);
    if (error.empty()) error = Lower(program, lowered);
    if (!error.empty()) return error;
    if (error = RefuseRoundings(program, lowered); !error.empty()) return error;
    if (options.kv.type == KvType::kF32) {
      return "keys and values in bfloat16, float16 or fp8 are served, not in float32";
    }
    if (program.ranks > 1 && options.communicator != nullptr &&
        (options.communicator->rank() != program.rank ||
         options.communicator->size() != program.ranks)) {
      return "the communicator is not that of the program's rank";
    }
    return {};
  }

  KvShape PageShape(const StepProgram& program, int block_size) const override {
    return KvShapeOf(program, block_size, KvType::kBF16);
  }

  std::unique_ptr<LoadedProgram> Load(const StepProgram& program,
                                      const ProgramOptions& options) override {
    std::string error = Refusal(program, options);
    if (error.empty() && program.ranks > 1 && options.communicator == nullptr) {
      error = "no communicator for " + std::to_string(program.ranks) + " ranks";
    }
    if (!error.empty()) {
      std::fprintf(stderr, "step program: %s\n", error.c_str());
      std::abort();
    }
    return std::make_unique<CudaProgram>(program, Lowered(program), options, *runtime_, options_);
  }

  int64_t EstimateWeightBytes(const StepProgram& program) const override {
    return PlanWeightBytes(program, Lowered(program));
  }
  int64_t EstimateAdapterBytes(const StepProgram& program, int rank) const override {
    return static_cast<int64_t>(PlanAdapters(Lowered(program), rank).slot_bytes);
  }
  WeightForms FormsOfWeights(const StepProgram& program) const override {
    return PlanWeightForms(program, Lowered(program));
  }
  int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                 const ProgramOptions& options) const override {
    const Workspace workspace = PlanWorkspace(program, Lowered(program), options);
    const bool over_nccl = program.ranks > 1 && options_.nccl != nullptr;
    const size_t fast = options_.cublaslt != nullptr ? cublaslt::FastProducts::kWorkspaceBytes : 0;
    return workspace.Bytes() + static_cast<int64_t>(fast) +
           (over_nccl ? RankExchange::DeviceBytes(program.ranks, workspace.shared_bytes) : 0);
  }
  int64_t EstimateSharedBytes(const StepProgram& program,
                              const ProgramOptions& options) const override {
    return PlanWorkspace(program, Lowered(program), options).shared_bytes;
  }
  // Ranks that meet in host memory wait there for each other, within a step.
  int MaxInFlight(const StepProgram& program) const override {
    return program.ranks == 1 || options_.nccl != nullptr ? kStepsInFlight : 1;
  }
  std::string NumericsClass(const StepProgram& program) const override {
    return "cuda-bf16-" + std::to_string(kKernelRevision) +
           (program.round_activations ? "-w8a8-" : "-") + options_.architecture;
  }
  std::string RoundedActivations(const StepProgram& program) const override {
    return program.round_activations ? DescribeRoundings(program) : "";
  }
  std::string Description() const override { return options_.description; }

 private:
  DeviceProgram Lowered(const StepProgram& program) const {
    DeviceProgram lowered;
    Lower(program, lowered);
    // cuBLASLt has no products of float16 whose result is bfloat16.
    if (options_.cublaslt == nullptr) ChooseHalves(program, lowered);
    return lowered;
  }

  std::unique_ptr<runtime::Runtime> runtime_;
  const CudaOptions options_;
};

}  // namespace

std::string DeviceRefusal(const runtime::Runtime& runtime) {
  const uint32_t has = runtime.SharedBytesPerBlock();
  if (has >= runtime::kLeastSharedBytes) return {};
  return "its blocks have " + std::to_string(has) + " bytes of shared memory, " +
         std::to_string(runtime::kLeastSharedBytes) +
         " are needed; take a device of compute capability 8.0 or newer, or --device cpu";
}

std::unique_ptr<Backend> MakeCudaBackend(std::unique_ptr<runtime::Runtime> runtime,
                                         const CudaOptions& options) {
  return std::make_unique<CudaBackend>(std::move(runtime), options);
}

}  // namespace quire::kernels::cuda
