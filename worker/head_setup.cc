#include "worker/head_setup.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/draft/layer_drafter.h"
#include "worker/draft/medusa_drafter.h"
#include "worker/rank_programs.h"

namespace quire {
namespace {

constexpr std::string_view kFlag = "--speculative-config";

using OpenHead = absl::StatusOr<std::unique_ptr<model::DraftHead>> (*)(const model::HeadOptions&);

OpenHead OpenerOf(HeadMethod method) {
  switch (method) {
    case HeadMethod::kMedusa:
      return model::OpenMedusa;
    case HeadMethod::kEagle3:
      return model::OpenEagle3;
    case HeadMethod::kMtp:
      return model::OpenMtp;
    case HeadMethod::kNone:
      break;
  }
  QUIRE_CHECK_MSG(false, "a method without a head has no opener");
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftHeadSetup>> DraftHeadSetup::Open(
    const WorkerConfig& config, const Speculation& speculation) {
  if (HasRankGroup(config)) {
    return InvalidArgument(std::string(kFlag) + ": method " + speculation.method +
                           " computes beside one rank in the worker's own thread on the CPU; use "
                           "method draft_model or ngram with several ranks, processes or GPUs");
  }
  std::unique_ptr<DraftHeadSetup> setup(new DraftHeadSetup(config, speculation));
  model::HeadOptions options;
  options.path = config.draft_model.empty() ? speculation.model : config.draft_model;
  options.allowed_roots = config.allowed_model_roots;
  options.float_type = FloatTypeOf(config);
  options.tokens = speculation.num_speculative_tokens;
  absl::StatusOr<std::unique_ptr<model::DraftHead>> head = OpenerOf(speculation.head)(options);
  if (!head.ok()) return Annotate(head.status(), kFlag);
  setup->head_ = *std::move(head);
  return setup;
}

absl::Status DraftHeadSetup::Attach(model::Model& target, kernels::Backend& backend) {
  target_ = &target;
  backend_ = &backend;
  absl::StatusOr<model::HeadPrograms> programs = head_->Build(target);
  if (!programs.ok()) return Annotate(programs.status(), kFlag);
  programs_ = *std::move(programs);
  for (kernels::StepProgram& program : programs_.guesses) {
    program.dequantize_weights = config_.dequantize_weights;
  }
  layer_options_.kv = {};
  if (!programs_.layer.has_value()) return absl::OkStatus();
  programs_.layer->dequantize_weights = config_.dequantize_weights;
  programs_.layer->round_activations = config_.cpu.activation_dtype == "w8a8";
  kernels::ProgramOptions options = RankProgramOptions(config_, *programs_.layer, backend);
  layer_options_ = SmallOptions();
  layer_options_.kv = std::move(options.kv);
  const std::string why = backend.Refusal(*programs_.layer, layer_options_);
  if (why.empty()) return absl::OkStatus();
  return InvalidArgument(std::string(kFlag) + ": this device does not run the head: " + why);
}

absl::Status DraftHeadSetup::Follow(const kernels::KvLayout& target) {
  if (!programs_.layer.has_value()) return absl::OkStatus();
  for (size_t group = 0; group < target.groups.size(); ++group) {
    const kernels::KvKind& kind = target.kinds[static_cast<size_t>(target.groups[group].kind)];
    if (kind.window != 0 || kind.state_interval != 0) continue;
    group_ = static_cast<int32_t>(group);
    return absl::OkStatus();
  }
  return InvalidArgument(std::string(kFlag) + ": all layers of " + config_.model +
                         " forget keys behind a window, which a head of method " +
                         speculation_.method + " needs; use method medusa, draft_model or ngram");
}

kernels::ProgramOptions DraftHeadSetup::SmallOptions() const {
  kernels::ProgramOptions options;
  options.max_tokens =
      std::min(kMaxHeadTokens, RankProgramOptions(config_, target_->program, *backend_).max_tokens);
  options.max_rows = options.max_samples = kMaxHeadRows;
  return options;
}

int64_t DraftHeadSetup::OwnPages() const {
  return int64_t{kMaxHeadRows} *
         DraftPages(speculation_.num_speculative_tokens, BlockSizeOf(config_));
}

int64_t DraftHeadSetup::FixedBytes() const {
  const kernels::StepProgram& target = target_->program;
  const kernels::ProgramOptions small = SmallOptions();
  int64_t bytes = 0;
  for (const kernels::StepProgram& program : programs_.guesses) bytes += BytesOf(program, small);
  if (programs_.project.has_value()) bytes += BytesOf(*programs_.project, small);
  if (programs_.layer.has_value()) {
    bytes += BytesOf(*programs_.layer, layer_options_);
    bytes += OwnPages() * layer_options_.kv.page_bytes;
    // The drafter keeps each row's pages until the row drafts.
    const int64_t context =
        config_.max_model_len > 0 ? config_.max_model_len : target.max_positions;
    bytes += 4 * int64_t{config_.engine.max_num_seqs} * (context / BlockSizeOf(config_) + 1);
  }
  // The drafter's states by row, and what it brings to a head's step.
  const int64_t features = target.buffers[static_cast<size_t>(target.features)].width;
  const int64_t of_step = small.max_tokens * (features + 3 * int64_t{target.hidden_size});
  const int64_t of_rows = int64_t{config_.engine.max_num_seqs} * target.hidden_size;
  return bytes + 4 * (of_step + of_rows);
}

std::unique_ptr<kernels::LoadedProgram> DraftHeadSetup::LoadProgram(
    const kernels::StepProgram& program, kernels::ProgramOptions options) {
  options.release_source = [head = head_.get(), target = target_](const void* data, int64_t bytes) {
    head->ReleaseSource(data, bytes);
    target->ReleaseSource(data, bytes);
  };
  return backend_->Load(program, options);
}

absl::Status DraftHeadSetup::Load(int64_t page_count) {
  page_count_ = page_count;
  const absl::Status filled = head_->FillWeights();
  if (!filled.ok()) return Annotate(filled, kFlag);
  for (const kernels::StepProgram& program : programs_.guesses) {
    guesses_.push_back(LoadProgram(program, SmallOptions()));
  }
  if (programs_.project.has_value()) project_ = LoadProgram(*programs_.project, SmallOptions());
  if (programs_.layer.has_value()) {
    layer_options_.page_count = page_count + OwnPages();
    layer_ = LoadProgram(*programs_.layer, layer_options_);
  }
  return absl::OkStatus();
}

std::unique_ptr<HeadDrafter> DraftHeadSetup::MakeDrafter(kernels::LoadedProgram& target,
                                                         int32_t max_model_len, const Clock& clock,
                                                         Metrics& metrics) {
  const kernels::StepProgram& program = target_->program;
  HeadDrafterOptions options;
  options.max_rows = config_.engine.max_num_seqs;
  options.max_tokens = SmallOptions().max_tokens;
  options.block_size = BlockSizeOf(config_);
  options.max_positions = max_model_len;
  options.feature_width = program.buffers[static_cast<size_t>(program.features)].width;
  options.target_vocab_size = program.vocab_size;
  options.max_drafts = speculation_.num_speculative_tokens;
  options.token_map = programs_.token_map;
  options.now_us = [&clock] { return clock.Now(); };
  options.metrics = &metrics;
  options.hidden_size = program.hidden_size;
  if (!programs_.layer.has_value()) {
    std::vector<kernels::LoadedProgram*> heads;
    for (const auto& guess : guesses_) heads.push_back(guess.get());
    return std::make_unique<MedusaDrafter>(std::move(options), std::move(heads));
  }
  options.hidden_size = programs_.layer->hidden_size;
  LayerPrograms programs;
  programs.embedder = programs_.embeds_itself ? project_.get() : &target;
  programs.project = project_.get();
  programs.layer = layer_.get();
  programs.group = group_;
  programs.page_count = static_cast<int32_t>(page_count_);
  return std::make_unique<LayerDrafter>(std::move(options), programs);
}

}  // namespace quire
