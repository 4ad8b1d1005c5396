#include "worker/rank_programs.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/numerics.h"
#include "kernels/collectives/futex.h"
#include "worker/adapter_setup.h"
#include "worker/device/linked_device.h"
#include "worker/draft/speculation.h"
#include "worker/host_cpus.h"
#include "worker/model/model.h"
#include "worker/rank_adapters.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int64_t kProgressMicros = 250'000;

// One rank on its device. Members are destroyed in reverse order: each uses those above it.
class LoadedRank final : public RankProgram {
 public:
  LoadedRank(std::unique_ptr<model::Model> model, std::unique_ptr<kernels::Backend> backend)
      : model_(std::move(model)), backend_(std::move(backend)) {}

  absl::Status Load(const WorkerConfig& config, const RankParts& parts,
                    kernels::ProgramOptions options) {
    identity_ =
        RankIdentity(model_->model_id, NumericsId(config, *backend_, options.kv.type, *model_));
    QUIRE_RETURN_IF_ERROR(model_->FillWeights(backend_->TakesRowWriters()));
    program_ = backend_->Load(model_->program, options);
    if (parts.adapters != nullptr) {
      adapters_ = std::make_unique<RankAdapters>(
          *parts.adapters, RankAdapters::Of{model_->program.lora_targets, *program_,
                                            parts.setup.rank, config.max_lora_rank});
    }
    CpuRunnerOptions runner;
    runner.limits = parts.setup.limits;
    runner.masks = &parts.masks;
    runner.max_in_flight = program_->MaxInFlight();
    runner.now_us = [] { return kernels::FutexNowMicros(); };
    runner_ = std::make_unique<CpuRunner>(*program_, std::move(runner));
    return DeviceStatus();
  }

  absl::Status Run(std::span<const std::byte> packet, StepResult& result) override {
    QUIRE_RETURN_IF_ERROR(runner_->TryLaunch(packet));
    runner_->Collect(result);
    return DeviceStatus();
  }

  int MaxInFlight() const override { return runner_->MaxInFlight(); }
  absl::Status Launch(std::span<const std::byte> packet) override {
    QUIRE_RETURN_IF_ERROR(runner_->TryLaunch(packet));
    return DeviceStatus();
  }
  bool Ready() override { return runner_->Ready(); }
  absl::Status Collect(StepResult& result) override {
    runner_->Collect(result);
    return DeviceStatus();
  }

  absl::Status SetAdapter(const RankAdapterSlot& slot) override {
    QUIRE_ASSIGN_OR_RETURN(auto weights, adapters_->Take({slot.entry, slot.number}));
    program_->SetAdapter(slot.slot, std::move(weights));
    return DeviceStatus();
  }

  RankReady Describe() override {
    const kernels::DeviceMemoryUse memory = program_->DeviceMemory();
    return {identity_, program_->WeightBytes() + program_->WorkspaceBytes() + program_->PoolBytes(),
            program_->PageCount(), memory.total, memory.free};
  }
  int64_t DeviceFreeBytes() override { return program_->DeviceMemory().free; }

 private:
  absl::Status DeviceStatus() const {
    const std::string failure = program_->Failure();
    if (failure.empty()) return absl::OkStatus();
    return absl::UnavailableError(AbslView("the device failed: " + failure));
  }

  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  std::unique_ptr<RankAdapters> adapters_;  // null: none are served
  std::unique_ptr<CpuRunner> runner_;
  std::string identity_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackend(const WorkerConfig& config,
                                                              int threads) {
  std::string error;
  if (const LinkedDevice* device = FindLinkedDevice(config.device)) {
    LinkedLibraries libraries;
    libraries.nccl = config.gpu.nccl;
    if (!config.gpu.batch_invariant) libraries.cublaslt = config.gpu.cublaslt;
    auto backend = device->open(libraries, error);
    if (backend == nullptr) return absl::UnavailableError(AbslView("--device: " + error));
    return backend;
  }
  kernels::CpuOptions options = config.cpu;
  options.threads = threads;
  std::unique_ptr<kernels::Backend> backend = kernels::MakeCpuBackend(options, error);
  if (backend != nullptr) return backend;
  return absl::UnavailableError(AbslView("--cpu-isa, --activation-dtype: " + error));
}

int ThreadsOfWorker(const WorkerConfig& config) {
  if (config.cpu.threads > 0) return config.cpu.threads;
  return DefaultThreads(ReadHostCpus(""), config.workers_on_host);
}

kernels::KvShape PagesOf(const WorkerConfig& config, const kernels::StepProgram& program,
                         const kernels::Backend& backend) {
  using kernels::KvType;
  kernels::KvShape shape = backend.PageShape(program, BlockSizeOf(config));
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kF16, KvType::kFp8}) {
    if (config.kv_cache_dtype == kernels::KvTypeName(type)) shape.type = type;
  }
  return shape;
}

kernels::ProgramOptions RankProgramOptions(const WorkerConfig& config,
                                           const kernels::StepProgram& program,
                                           const kernels::Backend& backend) {
  kernels::ProgramOptions options;
  options.kv =
      kernels::DealLayers(program.layer_windows, PagesOf(config, program, backend), program.states);
  options.max_tokens = MaxStepTokens(config.engine.max_num_seqs,
                                     config.engine.max_num_batched_tokens, BlockSizeOf(config));
  options.max_rows = config.engine.max_num_seqs;
  options.max_loras = MaxLoras(config);
  if (options.max_loras > 0) options.max_lora_rank = config.max_lora_rank;
  // All positions of a row that verifies drafts sample: the logits of one come in one piece.
  const absl::StatusOr<Speculation> speculation = ParseSpeculation(config.speculative_config);
  const int32_t drafts = speculation.ok() ? speculation->num_speculative_tokens : 0;
  options.max_samples = std::max(config.engine.max_num_seqs, 1 + drafts);
  return options;
}

StepLimits LimitsOf(const WorkerConfig& config, const kernels::ProgramOptions& options,
                    int32_t vocab_size) {
  StepLimits limits;
  limits.max_rows = config.engine.max_num_seqs;
  limits.max_tokens = options.max_tokens;
  limits.max_model_len = options.max_positions;
  limits.block_size = BlockSizeOf(config);
  limits.groups = static_cast<int32_t>(options.kv.groups.size());
  limits.page_count = options.page_count;
  limits.vocab_size = vocab_size;
  limits.max_loras = MaxLoras(config);
  return limits;
}

std::optional<kernels::DType> FloatTypeOf(const WorkerConfig& config) {
  if (config.dtype == "float32" || config.dtype == "float") return kernels::DType::kF32;
  if (config.dtype == "float16" || config.dtype == "half") return kernels::DType::kF16;
  if (config.dtype == "bfloat16") return kernels::DType::kBF16;
  return std::nullopt;
}

std::string NumericsId(const WorkerConfig& config, const kernels::Backend& backend,
                       kernels::KvType kv, const model::Model& model) {
  std::string id = backend.NumericsClass(model.program) + "/kv-" + kernels::KvTypeName(kv) +
                   "/tp-" + std::to_string(config.tensor_parallel_size);
  if (RankOf(config, 0).whole_experts) id += "/experts";
  if (const auto type = model.memory->converted_to()) {
    id += std::string("/weights-") + kernels::DTypeName(*type);
  }
  id += IsBatchInvariant(config) ? "/batch-invariant" : kBatchVariant;
  return id;
}

model::Rank RankOf(const WorkerConfig& config, int rank) {
  model::Rank of;
  of.rank = rank;
  of.ranks = config.tensor_parallel_size;
  of.adapters = MaxLoras(config) > 0;
  of.whole_experts = config.enable_expert_parallel && of.ranks > 1;
  return of;
}

std::string RankIdentity(const std::string& model_id, const std::string& numerics_id) {
  return model_id + " " + numerics_id;
}

namespace {

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenRankBackend(const WorkerConfig& config,
                                                                  const RankSetup& setup) {
  const bool linked = FindLinkedDevice(config.device) != nullptr;
  if (!linked && AsksForGpu(config)) {
    return OpenGpuOfRank(config.gpu, config.device, setup.rank);
  }
  WorkerConfig own = config;
  own.cpu.rank = setup.rank;
  own.cpu.ranks = setup.size;
  return OpenBackend(own, std::max(1, ThreadsOfWorker(config) / setup.size));
}

}  // namespace

RankBuilder MakeRankBuilder(const WorkerConfig& config) {
  return [&shared = config](
             const RankParts& parts,
             const RankProgress& progress) -> absl::StatusOr<std::unique_ptr<RankProgram>> {
    const RankSetup& setup = parts.setup;
    // The engine has resolved --device.
    WorkerConfig config = shared;
    if (!setup.device.empty()) config.device = setup.device;
    QUIRE_ASSIGN_OR_RETURN(auto backend, OpenRankBackend(config, setup));
    model::LoadOptions load;
    load.allowed_roots = config.allowed_model_roots;
    load.float_type = FloatTypeOf(config);
    load.max_model_len = config.max_model_len;
    load.skipped_layers = config.skipped_layers;
    load.rank = RankOf(config, setup.rank);
    // Text is for routers: the engine has read it once to identify the model.
    load.with_text = false;
    load.text_digest = setup.text_digest;
    QUIRE_ASSIGN_OR_RETURN(auto model, model::LoadModel(config.model, load));
    model->program.dequantize_weights = config.dequantize_weights;
    model->program.round_activations = config.cpu.activation_dtype == "w8a8";
    kernels::ProgramOptions options = RankProgramOptions(config, model->program, *backend);
    options.max_positions = setup.limits.max_model_len;
    options.page_count = setup.limits.page_count;
    if (setup.size > 1) options.communicator = &parts.communicator;
    options.capture_wait_micros = kCaptureWaitMicros;
    int64_t told_us = 0;
    options.progress = [&](int64_t, int64_t) {
      const int64_t now_us = kernels::FutexNowMicros();
      if (now_us - told_us < kProgressMicros) return;
      told_us = now_us;
      progress();
    };
    options.release_source = [model = model.get()](const void* data, int64_t bytes) {
      model->ReleaseSource(data, bytes);
    };
    auto rank = std::make_unique<LoadedRank>(std::move(model), std::move(backend));
    QUIRE_RETURN_IF_ERROR(rank->Load(config, parts, std::move(options)));
    return rank;
  };
}

}  // namespace quire
