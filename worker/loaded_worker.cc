#include "worker/loaded_worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/memory_limits.h"
#include "common/wire/values.h"
#include "worker/adapter_setup.h"
#include "worker/canary.h"
#include "worker/chat_templates.h"
#include "worker/constraint_setup.h"
#include "worker/device/gpu_backend.h"
#include "worker/device/linked_device.h"
#include "worker/find_device.h"
#include "worker/load/memory_plan.h"
#include "worker/load_log.h"
#include "worker/progress_printer.h"
#include "worker/rank_programs.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"
#include "worker/worker_hello.h"

namespace quire {
namespace {

constexpr int32_t kLeastModelLen = 256;  // a default is not made smaller than this to fit memory

}  // namespace

class WorkerLoader::Steps {
 public:
  Steps(const WorkerConfig& config, const DeviceChoice& device, const Clock& clock,
        Metrics& metrics, Logger& log)
      : config_(config),
        device_(device),
        clock_(clock),
        metrics_(metrics),
        log_(log),
        worker_(std::make_unique<LoadedWorker>()) {
    worker_->metrics = std::make_unique<EngineMetrics>(metrics);
    worker_->rank_metrics = std::make_unique<RankMetrics>(metrics);
  }

  // Each step names the exit code of its failure.
  using Step = std::pair<absl::Status (Steps::*)(), int>;
  bool Run(std::initializer_list<Step> steps, StartFailure& failure) {
    for (const auto& [step, exit_code] : steps) {
      const absl::Status status = (this->*step)();
      if (status.ok()) continue;
      const bool bad_argument = exit_code == kExitDeviceUnusable && absl::IsInvalidArgument(status);
      failure = {bad_argument ? kExitBadArguments : exit_code, StatusMessage(status)};
      return false;
    }
    return true;
  }
  std::unique_ptr<LoadedWorker> Take() { return std::move(worker_); }
  PlanReport Report() const;
  // Empty before there is a device.
  std::string RoundedActivations() const {
    if (worker_->backend == nullptr) return "";
    return worker_->backend->RoundedActivations(worker_->model->program);
  }
  std::string Numerics() const {
    return NumericsId(config_, *worker_->backend, program_options_.kv.type, *worker_->model);
  }
  // The exit code of failures while weights load: the model's file has been read before.
  int LoadExitCode() const {
    return AsksForGpu(config_) ? kExitDeviceUnusable : kExitModelUnusable;
  }

  absl::Status OpenDevice();
  absl::Status OpenModel();
  absl::Status CutModel();
  absl::Status OpenDrafts();
  absl::Status ChooseContext();
  absl::Status PlanMemory();
  absl::Status PrepareConstraints();
  absl::Status LoadWeights();
  absl::Status StartRanks();
  absl::Status TakeAdapters();
  absl::Status TakePages(int64_t page_count);
  absl::Status BuildEngine();
  absl::Status Canary();

 private:
  load::MemoryRequest MakeMemoryRequest() const;
  // Grammars are in the host's memory: a plan of a device's says nothing about them.
  bool PlansHost() const {
    return device_.gpus.empty() && FindLinkedDevice(config_.device) == nullptr;
  }
  // Ranks that share one memory: the plan is the share of one.
  int RanksHere() const { return device_.gpus.empty() ? config_.tensor_parallel_size : 1; }
  void SayPlan() const;

  const WorkerConfig& config_;
  const DeviceChoice& device_;
  const Clock& clock_;
  Metrics& metrics_;
  Logger& log_;
  std::unique_ptr<LoadedWorker> worker_;
  Speculation speculation_;
  int32_t max_model_len_ = 0;
  load::MemoryRequest memory_request_;
  load::MemoryPlan memory_plan_;
  kernels::ProgramOptions program_options_;
};

absl::Status WorkerLoader::Steps::OpenDevice() {
  // Where ranks compute, this backend only estimates their needs.
  if (!device_.gpus.empty()) {
    QUIRE_ASSIGN_OR_RETURN(worker_->backend, OpenGpuEstimate(config_.gpu, device_.gpus.front()));
    return absl::OkStatus();
  }
  const int threads = HasRankGroup(config_) ? 1 : ThreadsOfWorker(config_);
  QUIRE_ASSIGN_OR_RETURN(worker_->backend, OpenBackend(config_, threads));
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::OpenModel() {
  model::LoadOptions load;
  load.allowed_roots = config_.allowed_model_roots;
  load.float_type = FloatTypeOf(config_);
  load.max_model_len = config_.max_model_len;
  load.rank.adapters = MaxLoras(config_) > 0;
  QUIRE_ASSIGN_OR_RETURN(speculation_, ParseSpeculation(config_.speculative_config));
  if (speculation_.HasHead()) {
    QUIRE_ASSIGN_OR_RETURN(worker_->draft_head, DraftHeadSetup::Open(config_, speculation_));
    load.features = [head = worker_->draft_head.get()](const load::ModelConfig& config) {
      return head->Features(config);
    };
  }
  QUIRE_ASSIGN_OR_RETURN(load.chat_template, ChatTemplateOf(config_.chat_template));
  absl::StatusOr<std::unique_ptr<model::Model>> model = model::LoadModel(config_.model, load);
  if (!model.ok()) return Annotate(model.status(), "--model");
  worker_->model = *std::move(model);
  worker_->makeup = MakeupOf(*worker_->model, RoundedActivations());
  return CheckTemplateTokens(config_.chat_template, worker_->model->bundle);
}

// From here on the model's program is the first rank's; the others' programs have the same size.
absl::Status WorkerLoader::Steps::CutModel() {
  const int ranks = config_.tensor_parallel_size;
  if (ranks > 1) {
    QUIRE_ASSIGN_OR_RETURN(worker_->model->program, worker_->model->BuildRank(RankOf(config_, 0)));
  }
  worker_->model->program.dequantize_weights = config_.dequantize_weights;
  worker_->model->program.round_activations = config_.cpu.activation_dtype == "w8a8";
  if (MaxLoras(config_) == 0) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckAdapters(config_, worker_->model->program));
  QUIRE_ASSIGN_OR_RETURN(worker_->group_adapters, GroupAdapters::Make(config_, *worker_->model));
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::OpenDrafts() {
  if (speculation_.num_speculative_tokens > 0 && !worker_->model->program.states.empty()) {
    return InvalidArgument("--speculative-config: " + config_.model +
                           " has recurrent layers, whose states cannot step back behind a rejected "
                           "draft; leave the flag out");
  }
  if (worker_->draft_head != nullptr) {
    QUIRE_RETURN_IF_ERROR(worker_->draft_head->Attach(*worker_->model, *worker_->backend));
  }
  if (!speculation_.HasModel()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(
      worker_->draft_model,
      DraftModel::Open(config_, speculation_, *worker_->model, *worker_->backend));
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::ChooseContext() {
  const int32_t context = worker_->model->program.max_positions;
  max_model_len_ = config_.max_model_len == 0 ? context : config_.max_model_len;
  if (max_model_len_ <= context) return absl::OkStatus();
  return InvalidArgument("--max-model-len: " + std::to_string(max_model_len_) +
                         " is beyond the model's context; use at most " + std::to_string(context));
}

load::MemoryRequest WorkerLoader::Steps::MakeMemoryRequest() const {
  const kernels::StepProgram& program = worker_->model->program;
  const MemoryLimit limit = UsableMemory(ReadMemoryFiles("/"));
  load::MemoryRequest request;
  request.usable_bytes = config_.AtMostMaxMemory(limit.usable_bytes);
  request.limited_by_cgroup =
      limit.from_cgroup && device_.gpus.empty() && config_.plan_memory.value == 0;
  if (!device_.gpus.empty()) {  // of those, whatever the machine itself has
    request.usable_bytes = PlannedBytes(device_) * config_.tensor_parallel_size;
  }
  if (config_.plan_memory.value > 0) request.usable_bytes = config_.plan_memory.value;
  // Each rank has its share of the machine, and the plan is one rank's.
  request.workers = config_.workers_on_host * config_.tensor_parallel_size;
  if (const LinkedDevice* device = FindLinkedDevice(config_.device)) {
    request.usable_bytes = std::min(request.usable_bytes, device->memory_bytes * request.workers);
  }
  request.weight_bytes = worker_->backend->EstimateWeightBytes(program);
  request.workspace_bytes = worker_->backend->EstimateWorkspaceBytes(program, program_options_);
  request.adapter_bytes =
      MaxLoras(config_) * worker_->backend->EstimateAdapterBytes(program, config_.max_lora_rank);
  const bool shared = worker_->group_adapters != nullptr && device_.gpus.empty();
  if (shared) request.adapter_bytes += worker_->group_adapters->BytesOfRank();
  if (worker_->draft_model != nullptr) {
    request.draft_bytes = worker_->draft_model->FixedBytes() / RanksHere();
    request.draft_bytes_per_page =
        worker_->draft_model->BytesPerPage(program_options_.kv) / RanksHere();
  }
  if (worker_->draft_head != nullptr) {
    request.draft_bytes = worker_->draft_head->FixedBytes();
    request.draft_bytes_per_page = worker_->draft_head->BytesPerPage();
  }
  request.kv = program_options_.kv;
  request.on_gpu = !device_.gpus.empty();
  request.max_num_seqs = config_.engine.max_num_seqs;
  request.max_model_len = max_model_len_;
  request.max_num_batched_tokens = config_.engine.max_num_batched_tokens;
  if (PlansHost()) {
    request.constraint_bytes =
        ConstraintBytes(config_, program.vocab_size) / config_.tensor_parallel_size;
  }
  if (config_.kv_cache_memory.value > 0) {
    request.kv_cache_memory_bytes = config_.kv_cache_memory.value / config_.tensor_parallel_size;
  }
  return request;
}

absl::Status WorkerLoader::Steps::PlanMemory() {
  const kernels::StepProgram& program = worker_->model->program;
  program_options_ = RankProgramOptions(config_, program, *worker_->backend);
  program_options_.max_positions = max_model_len_;
  if (const std::string why = worker_->backend->Refusal(program, program_options_); !why.empty()) {
    return InvalidArgument("--model: this device does not run it: " + why);
  }
  if (worker_->draft_head != nullptr) {
    QUIRE_RETURN_IF_ERROR(worker_->draft_head->Follow(program_options_.kv));
  }
  load::MemoryRequest request = MakeMemoryRequest();
  absl::StatusOr<load::MemoryPlan> plan = load::PlanMemory(request);
  if (!plan.ok()) {  // what makes a step faster is the first to go
    worker_->model->program.screen_head = false;
    request.weight_bytes = worker_->backend->EstimateWeightBytes(program);
    plan = load::PlanMemory(request);
  }
  // The default context is shortened until it fits; one that a flag sets is not.
  while (!plan.ok() && config_.max_model_len == 0 && max_model_len_ / 2 >= kLeastModelLen) {
    max_model_len_ /= 2;
    request.max_model_len = program_options_.max_positions = max_model_len_;
    request.workspace_bytes = worker_->backend->EstimateWorkspaceBytes(program, program_options_);
    plan = load::PlanMemory(request);
  }
  QUIRE_RETURN_IF_ERROR(plan.status());
  program_options_.page_count = plan->page_count;
  memory_request_ = std::move(request);
  worker_->plan = memory_plan_ = *plan;
  return absl::OkStatus();
}

void WorkerLoader::Steps::SayPlan() const {
  const model::Model& model = *worker_->model;
  const load::MemoryPlan& plan = memory_plan_;
  log_.Info("device", {{"device", worker_->backend->Description()},
                       {"numerics", worker_->backend->NumericsClass(model.program)}});
  log_.Info(
      "model",
      {{"path", config_.model}, {"family", model.config.family}, {"model_id", model.model_id}});
  const std::string warning = ChatWarning(model.bundle);
  if (!warning.empty()) log_.Warning(warning, {});
  LogWeightForms({config_, model, *worker_->backend, RoundedActivations()}, log_);
  if (config_.max_model_len == 0 && max_model_len_ < model.program.max_positions) {
    log_.Warning("the model's whole context does not fit in memory",
                 {{"context", model.program.max_positions}, {"max_model_len", max_model_len_}});
  }
  worker_->planned_bytes = plan.PlannedBytes();
  worker_->memory_line = load::MemoryPlanLine(plan);
  if (HasRankGroup(config_)) {
    const int ranks = config_.tensor_parallel_size;
    worker_->memory_line +=
        ", in each of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  }
  if (isatty(2) != 0) {
    std::fprintf(stderr, "%s\n", load::MemoryPlanText(plan, memory_request_).c_str());
    return;
  }
  LogMemoryPlan(plan, max_model_len_, log_);
}

absl::Status WorkerLoader::Steps::PrepareConstraints() {
  if (PlansHost() && memory_plan_.constraint_bytes == 0) {
    log_.Warning("no memory is left for grammars: constraints are not served",
                 {{"needed_bytes", memory_request_.constraint_bytes}});
    return absl::OkStatus();
  }
  worker_->vocabulary = VocabularyOf(*worker_->model);
  MaskPoolOptions masks = MaskOptions(config_, worker_->model->program.vocab_size);
  masks.clock = &clock_;
  masks.metrics = &metrics_;
  worker_->masks = std::make_unique<MaskPool>(masks);
  return absl::OkStatus();
}

// They load while this thread waits.
absl::Status WorkerLoader::Steps::StartRanks() {
  const model::Model& model = *worker_->model;
  RankGroupOptions group = config_.ranks;
  group.setup.size = config_.tensor_parallel_size;
  group.setup.arena_bytes =
      static_cast<uint64_t>(worker_->backend->EstimateSharedBytes(model.program, program_options_));
  group.setup.limits = LimitsOf(config_, program_options_, model.program.vocab_size);
  group.setup.text_digest = model.bundle_digest;
  group.setup.device = config_.device;
  group.identity = RankIdentity(model.model_id, Numerics());
  group.max_in_flight = worker_->backend->MaxInFlight(model.program);
  group.progress = &worker_->progress;
  group.masks = worker_->masks.get();
  if (worker_->group_adapters != nullptr) group.adapters = worker_->group_adapters->arena();
  worker_->device_monitor = MonitorDevices(config_, device_, metrics_, log_);
  if (worker_->device_monitor != nullptr) {
    group.device_note = [monitor = worker_->device_monitor.get()] { return monitor->Note(); };
  }
  group.on_hopeless = [](const std::string& what) {
    std::fprintf(stderr, "quire-worker: %s\n", what.c_str());
    std::_Exit(kExitFailed);  // a thread that hangs cannot be waited for
  };
  worker_->rank_host = config_.rank_backend == "process"
                           ? MakeProcessRanks(config_.own_arguments)
                           : MakeThreadRanks(MakeRankBuilder(config_));
  auto ranks = std::make_unique<RankGroup>(std::move(group), *worker_->rank_host, log_,
                                           *worker_->rank_metrics);
  worker_->ranks = ranks.get();
  worker_->runner = std::move(ranks);
  if (const absl::Status started = worker_->ranks->Start(); !started.ok()) {
    return WithFaults(started, worker_->device_monitor.get());
  }
  if (worker_->group_adapters != nullptr) {
    worker_->pack_adapter = worker_->group_adapters->Packer();
    QUIRE_RETURN_IF_ERROR(TakeAdapters());
  }
  return TakePages(worker_->ranks->page_count());
}

// How many fit into memory once everything else has been allocated.
absl::Status WorkerLoader::Steps::TakePages(int64_t page_count) {
  const int64_t planned = program_options_.page_count;
  if (page_count >= planned) return absl::OkStatus();
  if (page_count < memory_plan_.pages_per_sequence) {
    return absl::ResourceExhaustedError(
        AbslView("--max-model-len: the device has memory left for " + std::to_string(page_count) +
                 " pages of keys and values; " + std::to_string(max_model_len_) + " tokens need " +
                 std::to_string(memory_plan_.pages_per_sequence)));
  }
  log_.Warning("the device has less memory left than was planned",
               {{"pages_planned", planned}, {"pages", page_count}});
  program_options_.page_count = page_count;
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::LoadWeights() {
  SayPlan();
  if (worker_->draft_model != nullptr) {
    const int64_t pages = memory_plan_.draft_bytes - memory_request_.draft_bytes;
    QUIRE_RETURN_IF_ERROR(worker_->draft_model->Load(pages * RanksHere(), clock_, log_));
  }
  if (HasRankGroup(config_)) return StartRanks();
  worker_->rank_metrics->count.Set(1);
  worker_->rank_metrics->ready.Set(1);
  ProgressPrinter print(clock_);
  program_options_.progress = [&print](int64_t done, int64_t total) {
    print({"weights", done, total});
  };
  program_options_.release_source = [model = worker_->model.get()](const void* data,
                                                                   int64_t bytes) {
    model->ReleaseSource(data, bytes);
  };
  QUIRE_RETURN_IF_ERROR(worker_->model->FillWeights(worker_->backend->TakesRowWriters()));
  if (worker_->draft_head != nullptr) {
    QUIRE_RETURN_IF_ERROR(worker_->draft_head->Load(program_options_.page_count));
  }
  worker_->program = worker_->backend->Load(worker_->model->program, program_options_);
  CpuRunnerOptions runner;
  runner.limits = LimitsOf(config_, program_options_, worker_->model->program.vocab_size);
  runner.masks = worker_->masks.get();
  runner.now_us = [&clock = clock_] { return clock.Now(); };
  if (worker_->draft_head != nullptr) {
    auto drafter =
        worker_->draft_head->MakeDrafter(*worker_->program, max_model_len_, clock_, metrics_);
    runner.observer = drafter.get();
    worker_->drafter = std::move(drafter);
  }
  worker_->runner = std::make_unique<CpuRunner>(*worker_->program, std::move(runner));
  if (MaxLoras(config_) > 0) {
    worker_->pack_adapter = PackFor(worker_->model->program, *worker_->program);
  }
  return TakeAdapters();
}

// Those of the settings; later ones come in the same way.
absl::Status WorkerLoader::Steps::TakeAdapters() {
  if (worker_->pack_adapter == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(worker_->adapters,
                         LoadAdapters(config_, worker_->pack_adapter, *worker_->runner));
  LogAdapters(worker_->adapters, log_);
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::BuildEngine() {
  const model::Model& model = *worker_->model;
  const kernels::KvLayout& kv = program_options_.kv;
  worker_->hello = MakeWorkerHello({config_, model, kv, worker_->adapters,
                                    program_options_.page_count, max_model_len_, Numerics()});
  EngineOptions engine = config_.engine;
  engine.max_model_len = max_model_len_;
  engine.max_step_time_us = StepTimeMillis(config_, AsksForGpu(config_)) * kMicrosPerMilli;
  engine.block_size = BlockSizeOf(config_);
  engine.page_count = program_options_.page_count;
  engine.cache_kinds = CacheKindsOf(kv);
  engine.model_id = worker_->hello.model_id;
  engine.numerics_id = worker_->hello.numerics_id;
  engine.eos_token_ids = model.bundle.eos_token_ids;
  engine.vocab_size = model.program.vocab_size;
  worker_->metrics->AddFieldNames(metrics_, worker_->hello.served_names.front());
  engine.metrics = worker_->metrics.get();
  engine.masks = worker_->masks.get();
  engine.adapters = &worker_->adapters;
  worker_->adapter_metrics = std::make_unique<AdapterMetrics>(worker_->adapters, clock_, metrics_);
  engine.adapter_metrics = worker_->adapter_metrics.get();
  DraftRunner second;
  if (worker_->draft_model != nullptr) second = worker_->draft_model->MakeRunner(metrics_);
  second.head = std::move(worker_->drafter);
  worker_->drafter = MakeDrafter(speculation_, std::move(second));
  engine.drafter = worker_->drafter.get();
  engine.max_drafts = speculation_.num_speculative_tokens;
  worker_->metrics->AddDraftNames(metrics_, worker_->hello.served_names.front(), engine.max_drafts);
  worker_->hello.features = ServedFeatures(engine);
  worker_->engine = std::make_unique<Engine>(engine, *worker_->runner, worker_->progress);
  return absl::OkStatus();
}

absl::Status WorkerLoader::Steps::Canary() {
  const Micros start = clock_.Now();
  QUIRE_RETURN_IF_ERROR(
      Annotate(RunCanary(*worker_->engine, worker_->hello.model_id, clock_), "--model"));
  log_.Info("first token", {{"ms", (clock_.Now() - start) / kMicrosPerMilli}});
  return absl::OkStatus();
}

WorkerLoader::WorkerLoader(const WorkerConfig& config, const DeviceChoice& device,
                           const Clock& clock, Metrics& metrics, Logger& log)
    : steps_(std::make_unique<Steps>(config, device, clock, metrics, log)) {}
WorkerLoader::~WorkerLoader() = default;

PlanReport WorkerLoader::Steps::Report() const {
  const model::Model& model = *worker_->model;
  PlanReport report;
  report.path = config_.model;
  report.model_id = model.model_id;
  report.family = model.config.family;
  report.device = worker_->backend->Description();
  report.numerics = Numerics();
  report.context = model.program.max_positions;
  report.request = memory_request_;
  report.plan = memory_plan_;
  report.quantisation = model::QuantisationText(model, RoundedActivations());
  report.weights = worker_->backend->FormsOfWeights(model.program);
  DescribeProgram(model.program, report);
  report.bandwidth_is_measured = config_.plan_bandwidth.value == 0 && device_.gpus.empty();
  if (!report.bandwidth_is_measured) {  // unknown for a GPU that is only planned for
    report.read_bytes_per_second = static_cast<double>(config_.plan_bandwidth.value);
    return report;
  }
  const int threads = ThreadsOfWorker(config_);
  constexpr int64_t kShareOfMemory = 8;  // the memory free here may be less than the plan assumes
  const MemoryLimit here = UsableMemory(ReadMemoryFiles("/"));
  report.read_bytes_per_second =
      MeasureReadBandwidth(clock_, threads, here.usable_bytes / kShareOfMemory);
  return report;
}

PlanReport WorkerLoader::Report() const { return steps_->Report(); }

bool WorkerLoader::Prepare(StartFailure& failure) {
  return steps_->Run({{&Steps::OpenDevice, kExitDeviceUnusable},
                      {&Steps::OpenModel, kExitModelUnusable},
                      {&Steps::CutModel, kExitBadArguments},
                      {&Steps::OpenDrafts, kExitModelUnusable},
                      {&Steps::ChooseContext, kExitBadArguments},
                      {&Steps::PlanMemory, kExitModelUnusable}},
                     failure);
}

std::unique_ptr<LoadedWorker> WorkerLoader::Load(StartFailure& failure) {
  const bool done = steps_->Run({{&Steps::PrepareConstraints, kExitFailed},
                                 {&Steps::LoadWeights, steps_->LoadExitCode()},
                                 {&Steps::BuildEngine, kExitFailed},
                                 {&Steps::Canary, kExitModelUnusable}},
                                failure);
  return done ? steps_->Take() : nullptr;
}

}  // namespace quire
