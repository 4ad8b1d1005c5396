#include "worker/draft_setup.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/text/tokenizer.h"
#include "worker/host_cpus.h"
#include "worker/rank_programs.h"
#include "worker/runner/cpu_runner.h"

namespace quire {
namespace {

// The name of what is wrong.
std::string_view KeyOf(const WorkerConfig& draft) {
  return draft.skipped_layers.empty() ? "--speculative-config: model"
                                      : "--speculative-config: skip_layers";
}

// The share of the larger vocabulary that both must have: they may be padded differently.
constexpr double kCommonShare = 0.9;

// A draft is an id: it must be the same text in both. Special tokens may have other names, since a
// wrong draft costs time alone.
absl::Status CheckSameVocabulary(const text::TextBundle& target, const text::TextBundle& draft) {
  if (target.tokenizer_json == draft.tokenizer_json) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const auto a, text::Tokenizer::FromJson(target.tokenizer_json));
  QUIRE_ASSIGN_OR_RETURN(const auto b, text::Tokenizer::FromJson(draft.tokenizer_json));
  const int32_t common = std::min(a->VocabSize(), b->VocabSize());
  const int32_t larger = std::max(a->VocabSize(), b->VocabSize());
  if (common < kCommonShare * larger) {
    return InvalidArgument("has a vocabulary of " + std::to_string(b->VocabSize()) +
                           " tokens, the model's has " + std::to_string(a->VocabSize()) +
                           "; use a smaller model of the same family");
  }
  for (int32_t id = 0; id < common; ++id) {
    if (!a->Exists(id) || !b->Exists(id) || a->IsSpecial(id) || b->IsSpecial(id)) continue;
    if (a->TokenBytes(id) == b->TokenBytes(id)) continue;
    return InvalidArgument("has another vocabulary: token " + std::to_string(id) + " is '" +
                           b->IdToPiece(id) + "', the model's is '" + a->IdToPiece(id) +
                           "'; use a smaller model of the same family");
  }
  return absl::OkStatus();
}

// The settings with which the draft model is loaded in the target's place.
WorkerConfig DraftConfig(const WorkerConfig& config, const Speculation& speculation) {
  WorkerConfig draft = config;
  if (!speculation.model.empty()) draft.model = speculation.model;
  if (!config.draft_model.empty()) draft.model = config.draft_model;
  draft.skipped_layers = speculation.skipped_layers;
  draft.tensor_parallel_size = 1;
  draft.rank_backend = "thread";
  draft.speculative_config.clear();
  draft.enable_lora = false;
  draft.max_model_len = 0;
  return draft;
}

}  // namespace

DraftModel::~DraftModel() = default;

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Open(const WorkerConfig& config,
                                                             const Speculation& speculation,
                                                             const model::Model& target,
                                                             kernels::Backend& backend) {
  std::unique_ptr<DraftModel> draft(new DraftModel());
  draft->config_ = DraftConfig(config, speculation);
  const std::string_view key = KeyOf(draft->config_);
  draft->target_vocab_size_ = target.program.vocab_size;
  draft->backend_ = &backend;
  if (HasRankGroup(config) && !HasRankGroup(draft->config_)) {
    QUIRE_ASSIGN_OR_RETURN(draft->own_backend_,
                           OpenBackend(draft->config_, ThreadsOfWorker(draft->config_)));
    draft->backend_ = draft->own_backend_.get();
  }
  model::LoadOptions load;
  load.allowed_roots = config.allowed_model_roots;
  load.float_type = FloatTypeOf(config);
  load.skipped_layers = speculation.skipped_layers;
  absl::StatusOr<std::unique_ptr<model::Model>> model =
      model::LoadModel(draft->config_.model, load);
  if (!model.ok()) return Annotate(model.status(), key);
  draft->model_ = *std::move(model);
  kernels::StepProgram& program = draft->model_->program;
  program.dequantize_weights = config.dequantize_weights;
  program.round_activations = config.cpu.activation_dtype == "w8a8";
  QUIRE_RETURN_IF_ERROR(Annotate(CheckSameVocabulary(target.bundle, draft->model_->bundle), key));
  if (!program.states.empty()) {
    return InvalidArgument(std::string(key) + ": " + draft->config_.model +
                           " has recurrent layers, whose states cannot step back behind a rejected "
                           "draft; use a model with attention alone");
  }
  draft->options_ = RankProgramOptions(draft->config_, program, *draft->backend_);
  draft->options_.max_positions = std::min(program.max_positions, target.program.max_positions);
  const std::string why = draft->backend_->Refusal(program, draft->options_);
  if (why.empty()) return draft;
  return InvalidArgument(std::string(key) + ": this device does not run it: " + why);
}

int64_t DraftModel::FixedBytes() const {
  return backend_->EstimateWeightBytes(model_->program) +
         backend_->EstimateWorkspaceBytes(model_->program, options_);
}

// A block of all kinds takes as many pages as there are groups.
int64_t DraftModel::BytesPerPage(const kernels::KvLayout& target) const {
  const int64_t block = options_.kv.page_bytes * static_cast<int64_t>(options_.kv.groups.size());
  const int64_t pages = std::max<int64_t>(1, static_cast<int64_t>(target.groups.size()));
  return (block + pages - 1) / pages;
}

absl::Status DraftModel::Load(int64_t page_bytes, const Clock& clock, Logger& log) {
  options_.page_count = std::max<int64_t>(static_cast<int64_t>(options_.kv.groups.size()),
                                          page_bytes / options_.kv.page_bytes);
  const absl::Status loaded = HasRankGroup(config_) ? StartRank(log) : LoadHere(clock);
  return Annotate(loaded, KeyOf(config_));
}

absl::Status DraftModel::LoadHere(const Clock& clock) {
  options_.release_source = [model = model_.get()](const void* data, int64_t bytes) {
    model->ReleaseSource(data, bytes);
  };
  QUIRE_RETURN_IF_ERROR(model_->FillWeights(backend_->TakesRowWriters()));
  program_ = backend_->Load(model_->program, options_);
  CpuRunnerOptions runner;
  runner.limits = Limits();
  runner.now_us = [&clock] { return clock.Now(); };
  runner_ = std::make_unique<CpuRunner>(*program_, std::move(runner));
  return absl::OkStatus();
}

// It computes one step at a time: the next one's tokens are the last one's.
absl::Status DraftModel::StartRank(Logger& log) {
  RankGroupOptions group = config_.ranks;
  group.setup.size = 1;
  group.setup.limits = Limits();
  group.setup.text_digest = model_->bundle_digest;
  group.setup.device = config_.device;
  group.identity =
      RankIdentity(model_->model_id, NumericsId(config_, *backend_, options_.kv.type, *model_));
  group.max_in_flight = backend_->MaxInFlight(model_->program);
  // The target's ranks decide whether the worker can live.
  group.on_hopeless = [&log](const std::string& what) {
    log.Warning("the draft model is lost: nothing is drafted any more", {{"why", what}});
  };
  rank_metrics_ = std::make_unique<RankMetrics>(rank_counts_);
  rank_host_ = MakeThreadRanks(MakeRankBuilder(config_));
  auto rank = std::make_unique<RankGroup>(std::move(group), *rank_host_, log, *rank_metrics_);
  RankGroup& started = *rank;
  runner_ = std::move(rank);
  QUIRE_RETURN_IF_ERROR(started.Start());
  options_.page_count = std::min(options_.page_count, started.page_count());
  return absl::OkStatus();
}

StepLimits DraftModel::Limits() const {
  StepLimits limits;
  limits.max_rows = config_.engine.max_num_seqs;
  limits.max_tokens = options_.max_tokens;
  limits.max_model_len = options_.max_positions;
  limits.block_size = options_.kv.block_size;
  limits.groups = static_cast<int32_t>(options_.kv.groups.size());
  limits.page_count = options_.page_count;
  limits.vocab_size = model_->program.vocab_size;
  return limits;
}

DraftRunner DraftModel::MakeRunner(Metrics& metrics) {
  QUIRE_CHECK(runner_ != nullptr);
  ModelDrafterOptions options;
  options.limits = Limits();
  options.kinds = CacheKindsOf(options_.kv);
  options.target_vocab_size = target_vocab_size_;
  const int64_t step_us = StepTimeMillis(config_, AsksForGpu(config_)) * kMicrosPerMilli;
  if (step_us > 0) options.max_catch_up_us = std::min(options.max_catch_up_us, step_us / 2);
  options.metrics = &metrics;
  return {std::move(options), runner_.get(), nullptr};
}

}  // namespace quire
