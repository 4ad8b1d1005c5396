#include "worker/rank_programs.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kernels/collectives/futex.h"
#include "worker/host_cpus.h"
#include "worker/model/model.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int64_t kProgressMicros = 250'000;

// One rank on the CPU. Members are destroyed in reverse order: each uses those above it.
class CpuRank final : public RankProgram {
 public:
  CpuRank(std::unique_ptr<model::Model> model, std::unique_ptr<kernels::Backend> backend)
      : model_(std::move(model)), backend_(std::move(backend)) {}

  void Load(const RankSetup& setup, kernels::ProgramOptions options) {
    identity_ = RankIdentity(model_->model_id, NumericsId(*backend_, options.kv.type, setup.size));
    program_ = backend_->Load(model_->program, options);
    CpuRunnerOptions runner;
    runner.limits = setup.limits;
    runner.now_us = [] { return kernels::FutexNowMicros(); };
    runner_ = std::make_unique<CpuRunner>(*program_, std::move(runner));
  }

  absl::Status Run(std::span<const std::byte> packet, StepResult& result) override {
    QUIRE_RETURN_IF_ERROR(runner_->TryLaunch(packet));
    runner_->Collect(result);
    return absl::OkStatus();
  }

  RankReady Describe() const override {
    return {identity_,
            program_->WeightBytes() + program_->WorkspaceBytes() + program_->PoolBytes()};
  }

 private:
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  std::unique_ptr<CpuRunner> runner_;
  std::string identity_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenCpuBackend(const WorkerConfig& config,
                                                                 int threads) {
  kernels::CpuOptions options;
  options.threads = threads;
  options.isa = config.cpu_isa;
  options.activation_dtype = config.activation_dtype;
  std::string error;
  std::unique_ptr<kernels::Backend> backend = kernels::MakeCpuBackend(options, error);
  if (backend != nullptr) return backend;
  return absl::UnavailableError(AbslView("--cpu-isa, --activation-dtype: " + error));
}

int ThreadsOfWorker(const WorkerConfig& config) {
  if (config.threads > 0) return config.threads;
  return DefaultThreads(ReadHostCpus(""), config.workers_on_host);
}

kernels::KvType KvTypeOf(const WorkerConfig& config) {
  using kernels::KvType;
  for (const KvType type : {KvType::kBF16, KvType::kF16, KvType::kFp8}) {
    if (config.kv_cache_dtype == kernels::KvTypeName(type)) return type;
  }
  return KvType::kF32;
}

kernels::ProgramOptions RankProgramOptions(const WorkerConfig& config,
                                           const kernels::StepProgram& program) {
  kernels::KvShape shape;
  shape.block_size = config.block_size;
  shape.kv_heads = program.kv_heads;
  shape.head_dim = program.head_dim;
  shape.type = KvTypeOf(config);
  kernels::ProgramOptions options;
  options.kv = kernels::DealLayers(program.layer_windows, shape);
  options.max_tokens =
      MaxStepTokens(config.max_num_seqs, config.max_num_batched_tokens, config.block_size);
  options.max_rows = config.max_num_seqs;
  options.max_samples = config.max_num_seqs;
  return options;
}

std::string NumericsId(const kernels::Backend& backend, kernels::KvType kv, int ranks) {
  return backend.NumericsClass() + "/kv-" + kernels::KvTypeName(kv) + "/tp-" +
         std::to_string(ranks) + "/batch-invariant";
}

std::string RankIdentity(const std::string& model_id, const std::string& numerics_id) {
  return model_id + " " + numerics_id;
}

RankBuilder MakeRankBuilder(const WorkerConfig& config) {
  return [&config](const RankSetup& setup, kernels::Communicator& communicator,
                   const RankProgress& progress) -> absl::StatusOr<std::unique_ptr<RankProgram>> {
    const int threads = std::max(1, ThreadsOfWorker(config) / setup.size);
    QUIRE_ASSIGN_OR_RETURN(auto backend, OpenCpuBackend(config, threads));
    model::LoadOptions load;
    load.rank = {setup.rank, setup.size};
    // Text is the router's: the engine has read it once to identify the model.
    load.with_text = false;
    load.text_digest = setup.text_digest;
    QUIRE_ASSIGN_OR_RETURN(auto model, model::LoadModel(config.model, load));
    kernels::ProgramOptions options = RankProgramOptions(config, model->program);
    options.page_count = setup.limits.page_count;
    if (setup.size > 1) options.communicator = &communicator;
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
    auto rank = std::make_unique<CpuRank>(std::move(model), std::move(backend));
    rank->Load(setup, std::move(options));
    return rank;
  };
}

}  // namespace quire
