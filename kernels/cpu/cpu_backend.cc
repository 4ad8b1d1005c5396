// Chooses the kernels that the host has and the options allow.
#include <sched.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/cpu_program.h"
#include "kernels/ops.h"

namespace quire::kernels {
namespace {

using cpu::CpuProgram;
using cpu::Isa;
using cpu::KernelTable;
using cpu::ThreadPool;

constexpr int kKernelRevision = 1;  // raised whenever a change may change bits
constexpr int kMaxThreads = 256;

int CpusAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

// A program that is cut needs a way to its other ranks.
std::string CheckGroup(const StepProgram& program, const ProgramOptions& options) {
  if (program.ranks == 1) return "";
  const Communicator* group = options.communicator;
  if (group == nullptr) return "no communicator for " + std::to_string(program.ranks) + " ranks";
  if (group->rank() == program.rank && group->size() == program.ranks) return "";
  return "the communicator is not that of rank " + std::to_string(program.rank) + " of " +
         std::to_string(program.ranks);
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, const CpuOptions& options)
      : kernels_(kernels),
        activation_dtype_(options.activation_dtype),
        pool_(options.threads > 0 ? options.threads : CpusAllowed()) {}

  std::unique_ptr<LoadedProgram> Load(const StepProgram& program,
                                      const ProgramOptions& options) override {
    std::string error = CheckProgram(program);
    if (error.empty()) error = CheckGroup(program, options);
    if (!error.empty()) {
      std::fprintf(stderr, "step program: %s\n", error.c_str());
      std::abort();
    }
    return std::make_unique<CpuProgram>(program, options, kernels_, pool_);
  }
  int64_t EstimateWeightBytes(const StepProgram& program) const override {
    return CpuProgram::EstimateWeights(program);
  }
  int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                 const ProgramOptions& options) const override {
    return CpuProgram::EstimateWorkspace(program, options, pool_.threads());
  }
  int64_t EstimateSharedBytes(const StepProgram& program,
                              const ProgramOptions& options) const override {
    return CpuProgram::EstimateShared(program, options);
  }
  std::string NumericsClass() const override {
    return "cpu-" + std::to_string(kKernelRevision) + "-" + activation_dtype_;
  }
  std::string Description() const override {
    return std::string("cpu, ") + kernels_.name + " kernels, " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads");
  }

 private:
  const KernelTable& kernels_;
  std::string activation_dtype_;
  ThreadPool pool_;
};

const KernelTable* ChooseKernels(const CpuOptions& options, std::string& error) {
  if (!cpu::HostHas(Isa::kAvx2)) {
    error = "this processor lacks AVX2, FMA or F16C, which the CPU kernels need";
    return nullptr;
  }
  if (options.activation_dtype == "bfloat16") {
    if (cpu::HostHas(Isa::kAvx512Bf16) && (options.isa == "auto" || options.isa == "avx512bf16")) {
      return &cpu::Avx512Bf16Kernels();
    }
    error =
        "activation dtype bfloat16 needs a processor with AVX-512 BF16 and cpu isa auto or "
        "avx512bf16; use float32";
    return nullptr;
  }
  if (options.activation_dtype != "float32") {
    error = "unknown activation dtype '" + options.activation_dtype + "'; use float32 or bfloat16";
    return nullptr;
  }
  if (options.isa == "reference") return &cpu::ReferenceKernels();
  if (options.isa == "avx2") return &cpu::Avx2Kernels();
  if (options.isa == "auto") {
    return cpu::HostHas(Isa::kAvx512) ? &cpu::Avx512Kernels() : &cpu::Avx2Kernels();
  }
  // With float32 activations the narrower sets add nothing to AVX-512.
  const std::pair<const char*, Isa> names[] = {
      {"avx512", Isa::kAvx512}, {"avx512vnni", Isa::kAvx512Vnni}, {"avx512bf16", Isa::kAvx512Bf16}};
  for (const auto& [name, isa] : names) {
    if (options.isa != name) continue;
    if (cpu::HostHas(isa)) return &cpu::Avx512Kernels();
    error = "this processor lacks " + options.isa + "; use cpu isa auto or avx2";
    return nullptr;
  }
  error = "unknown cpu isa '" + options.isa +
          "'; use auto, reference, avx2, avx512, avx512vnni or avx512bf16";
  return nullptr;
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options, std::string& error) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    error = "threads must be 0 (one per CPU) to " + std::to_string(kMaxThreads) + ", not " +
            std::to_string(options.threads);
    return nullptr;
  }
  const KernelTable* kernels = ChooseKernels(options, error);
  if (kernels == nullptr) return nullptr;
  return std::make_unique<CpuBackend>(*kernels, options);
}

}  // namespace quire::kernels
