// Chooses the kernels that the host has and the options allow.
#include <sched.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/backend.h"
#include "kernels/cpu/amx_numbers.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/formats.h"
#include "kernels/ops.h"
#include "kernels/rounded_weights.h"

namespace quire::kernels {
namespace {

using cpu::CpuProgram;
using cpu::Isa;
using cpu::KernelTable;
using cpu::ThreadPool;

constexpr int kKernelRevision = 2;  // raised whenever a change may change bits
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

// The formats of files that have passed a gate on real weights (kernels/README.md). For the K
// formats the next token moves at most half as far from float32 activations as llama.cpp's own
// rounding moves it. Where that rounding is as fine as ours, the token moves no further than it
// does there.
constexpr bool IsGated(DType type) {
  return type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kQ6_K ||
         type == DType::kQ8_0 || type == DType::kMXFP4;
}
// Formats that are parts of such files.
constexpr bool GoesWithGated(DType type) {
  return IsGated(type) || type == DType::kQ5_0 || type == DType::kQ5_1;
}

// Whether `auto` is int8: some matrix has a format that has passed, and all are of such files.
bool SuitsInt8(const StepProgram& program) {
  const std::vector<cpu::WeightRole> roles = cpu::FindRoles(program);
  bool found = false;
  for (size_t id = 0; id < roles.size(); ++id) {
    if (!roles[id].matrix) continue;
    for (const WeightSource& part : program.weights[id].parts) {
      if (!cpu::IsQuantised(part.type)) continue;
      if (!GoesWithGated(part.type)) return false;
      found = found || IsGated(part.type);
    }
  }
  return found;
}

// The kernels of the class that is chosen, or of the two that `auto` chooses from by program.
struct Kernels {
  const KernelTable* main = nullptr;
  const KernelTable* int8 = nullptr;
  const KernelTable* screen = nullptr;  // where heads of floats are multiplied in float32
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, const CpuOptions& options)
      : kernels_(kernels),
        activation_dtype_(options.activation_dtype),
        pool_(options.threads > 0 ? options.threads : CpusAllowed(),
              options.numa ? cpu::NodesOfPart(cpu::ReadNumaNodes(""), options.rank, options.ranks)
                           : std::vector<cpu::NumaNode>()) {}

  std::unique_ptr<LoadedProgram> Load(const StepProgram& program,
                                      const ProgramOptions& options) override {
    std::string error = CheckProgram(program);
    if (error.empty()) error = CheckGroup(program, options);
    if (error.empty() && options.kv.states.layers.size() != program.states.size()) {
      error = "the pages have no place for the states of recurrent layers";
    }
    if (!error.empty()) {
      std::fprintf(stderr, "step program: %s\n", error.c_str());
      std::abort();
    }
    return std::make_unique<CpuProgram>(program, options, For(program), kernels_.screen, pool_);
  }
  bool TakesRowWriters() const override { return true; }
  int64_t EstimateWeightBytes(const StepProgram& program) const override {
    return CpuProgram::EstimateWeights(program, kernels_.screen != nullptr);
  }
  int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                 const ProgramOptions& options) const override {
    return CpuProgram::EstimateWorkspace(program, options, pool_.threads(), For(program),
                                         kernels_.screen != nullptr);
  }
  int64_t EstimateSharedBytes(const StepProgram& program,
                              const ProgramOptions& options) const override {
    return CpuProgram::EstimateShared(program, options);
  }
  int64_t EstimateAdapterBytes(const StepProgram& program, int rank) const override {
    return cpu::MostAdapterBytes(program.lora_targets, rank);
  }
  // Attention reads half the bytes; what that rounds is far below what int8 activations do.
  KvShape PageShape(const StepProgram& program, int block_size) const override {
    KvShape shape = Backend::PageShape(program, block_size);
    if (IsInt8(program) || Rounds()) shape.type = KvType::kF16;
    return shape;
  }
  std::string Refusal(const StepProgram& program,
                      const ProgramOptions& /*options*/) const override {
    return Rounds() ? cpu::RefuseRoundings(program) : "";
  }
  std::string RoundedActivations(const StepProgram& program) const override {
    return Rounds() ? DescribeRoundings(program) : "";
  }
  std::string NumericsClass(const StepProgram& program) const override {
    std::string name = activation_dtype_ != "auto" ? activation_dtype_
                       : IsInt8(program)           ? "int8"
                                                   : "float32";
    const bool amx =
        kernels_.main == &cpu::AmxKernels() || kernels_.main == &cpu::ReferenceAmxKernels();
    if (amx) name += "-amx";
    return "cpu-" + std::to_string(kKernelRevision) + "-" + name;
  }
  std::string Description() const override {
    const KernelTable& widest = kernels_.int8 != nullptr ? *kernels_.int8 : *kernels_.main;
    return std::string("cpu, ") + widest.name + " kernels, " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads") +
           (pool_.nodes().empty() ? "" : " on " + std::to_string(pool_.nodes().size()) + " nodes");
  }

 private:
  const KernelTable& For(const StepProgram& program) const {
    return kernels_.int8 != nullptr && SuitsInt8(program) ? *kernels_.int8 : *kernels_.main;
  }
  bool IsInt8(const StepProgram& program) const { return For(program).quantise != nullptr; }
  bool Rounds() const { return kernels_.main->round != nullptr; }

  Kernels kernels_;
  std::string activation_dtype_;
  ThreadPool pool_;
};

// The tables of one instruction set, by class.
struct Tables {
  const KernelTable* float32;
  const KernelTable* int8;
  const KernelTable* rounded;
};
Tables TablesOf(const std::string& isa) {
  if (isa == "reference") {
    return {&cpu::ReferenceKernels(), &cpu::ReferenceInt8Kernels(),
            &cpu::ReferenceRoundedKernels()};
  }
  if (isa == "avx2" || isa == "avxvnni" || !cpu::HostHas(Isa::kAvx512)) {
    const bool vnni = isa != "avx2" && cpu::HostHas(Isa::kAvxVnni);
    return {&cpu::Avx2Kernels(), vnni ? &cpu::AvxVnniInt8Kernels() : &cpu::Avx2Int8Kernels(),
            &cpu::Avx2RoundedKernels()};
  }
  // With float32 activations the narrower sets add nothing to AVX-512; integers have its VNNI.
  if (isa == "avx512" || !cpu::HostHas(Isa::kAvx512Vnni)) {
    return {&cpu::Avx512Kernels(), &cpu::Avx2Int8Kernels(), &cpu::Avx2RoundedKernels()};
  }
  return {&cpu::Avx512Kernels(), &cpu::Avx512VnniKernels(), &cpu::Avx512VnniRoundedKernels()};
}

// Null, and why, where the instruction set has none. AMX's class has other bits than AVX-512's, so
// `auto` does not depend on which of two processors it meets.
const KernelTable* BFloatKernels(const std::string& isa, std::string& error) {
  if (isa == "reference") return &cpu::ReferenceAmxKernels();
  if (isa == "amx") {
    if (cpu::AmxTilesAgree(cpu::MakeAmxNumbers())) return &cpu::AmxKernels();
    error =
        "the tiles of this processor round in another way than AMX's documentation says; use cpu "
        "isa avx512bf16";
    return nullptr;
  }
  if (cpu::HostHas(Isa::kAvx512Bf16) && (isa == "auto" || isa == "avx512bf16")) {
    return &cpu::Avx512Bf16Kernels();
  }
  error =
      "activation dtype bfloat16 needs a processor with AVX-512 BF16 and cpu isa auto, avx512bf16 "
      "or amx; use auto, float32, int8 or w8a8";
  return nullptr;
}

// Why this host has no such instruction set; empty: it has.
std::string RefuseIsa(const std::string& isa) {
  const std::pair<const char*, Isa> names[] = {{"avx2", Isa::kAvx2},
                                               {"avxvnni", Isa::kAvxVnni},
                                               {"avx512", Isa::kAvx512},
                                               {"avx512vnni", Isa::kAvx512Vnni},
                                               {"avx512bf16", Isa::kAvx512Bf16},
                                               {"amx", Isa::kAmx}};
  std::string present = "auto, reference";
  bool known = isa == "auto" || isa == "reference";
  for (const auto& [name, set] : names) {
    known = known || isa == name;
    if (!cpu::HostHas(set)) continue;
    if (isa == name) return "";
    present += std::string(", ") + name;
  }
  if (isa == "auto" || isa == "reference") return "";
  return (known ? "this processor lacks " + isa : "unknown cpu isa '" + isa + "'") + "; here are " +
         present;
}

Kernels ChooseKernels(const CpuOptions& options, std::string& error) {
  if (!cpu::HostHas(Isa::kAvx2)) {
    error = "this processor lacks AVX2, FMA or F16C, which the CPU kernels need";
    return {};
  }
  error = RefuseIsa(options.isa);
  if (!error.empty()) return {};
  const Tables tables = TablesOf(options.isa);
  const std::string& dtype = options.activation_dtype;
  if (dtype == "auto") return {tables.float32, tables.int8, tables.int8};
  if (dtype == "float32") return {tables.float32, nullptr, tables.int8};
  if (dtype == "int8") return {tables.int8, nullptr, tables.int8};
  if (dtype == "w8a8") return {tables.rounded, nullptr, tables.int8};
  if (dtype != "bfloat16") {
    error = "unknown activation dtype '" + dtype + "'; use auto, float32, bfloat16, int8 or w8a8";
    return {};
  }
  return {BFloatKernels(options.isa, error), nullptr};
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options, std::string& error) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    error = "threads must be 0 (one per CPU) to " + std::to_string(kMaxThreads) + ", not " +
            std::to_string(options.threads);
    return nullptr;
  }
  const Kernels kernels = ChooseKernels(options, error);
  if (kernels.main == nullptr) return nullptr;
  return std::make_unique<CpuBackend>(kernels, options);
}

}  // namespace quire::kernels
