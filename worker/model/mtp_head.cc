// The layer that predicts a further token in checkpoints of DeepSeek-V3 (arXiv 2412.19437, section
// 2.2) and of families that write it the same way (GLM-4.5). At each position it reads the
// embedding of the next token beside the target's last hidden state, each through a norm and both
// through one matrix; behind it stand a norm and the model's head.
//
// For tokens after its first it reads what it gave to the head, as SGLang does. The checkpoint's
// own copy of the embeddings is the target's and is not read.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/model/decoder_blocks.h"
#include "worker/model/draft_head.h"

namespace quire::model {
namespace {

using kernels::BufferId;

class MtpHead final : public DraftHead {
 public:
  std::vector<int> Features(const load::ModelConfig& target) const override {
    return {target.layers};
  }
  absl::StatusOr<HeadPrograms> Build(Model& target) override;

 private:
  // The target's configuration with its next layer and without the others.
  static load::ModelConfig LayerConfig(const load::ModelConfig& target);

  load::ModelConfig config_;
};

const load::Tensor* FindOf(const Model& target, Part part) {
  for (const std::string& name :
       TensorNames(target.family->tensors, /*gguf=*/false, part, target.config.layers, "weight")) {
    if (const load::Tensor* tensor = target.files->tensors().Find(name)) return tensor;
  }
  return nullptr;
}

load::ModelConfig MtpHead::LayerConfig(const load::ModelConfig& target) {
  load::ModelConfig config = target;
  for (int layer = 0; layer < target.layers; ++layer) config.skipped_layers.push_back(layer);
  ++config.layers;
  config.layer_windows.push_back(0);
  if (!config.layers_without_rope.empty()) config.layers_without_rope.push_back(false);
  if (config.experts.count > 0) config.experts.layers.push_back(true);
  return config;
}

absl::Status Check(const Model& target) {
  QUIRE_RETURN_IF_ERROR(CheckFeatures(target));
  if (target.files->is_gguf()) {
    return absl::InvalidArgumentError(
        absl::StrCat(target.files->path(),
                     ": method mtp reads checkpoints of Hugging Face, this is a GGUF file; "
                     "use method draft_model or ngram"));
  }
  if (FindOf(target, Part::kNextProjection) == nullptr) {
    const std::vector<std::string> names =
        TensorNames(target.family->tensors, /*gguf=*/false, Part::kNextProjection,
                    target.config.layers, "weight");
    return absl::InvalidArgumentError(
        absl::StrCat(target.files->path(), ": tensor \"", names.front(),
                     "\" is missing: the checkpoint has no layer that predicts a further token; "
                     "use method draft_model or ngram"));
  }
  if (target.family->write == WriteDecoder && target.config.mixers.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layers of the family ", target.config.family,
                   " that predict further tokens are not served; use method draft_model or ngram"));
}

// hidden = projection · [norm(embedding), norm(previous)].
void AddInputs(ProgramBuilder& builder, int layer, BufferId hidden) {
  const int64_t width = builder.config().hidden_size;
  const BufferId previous = builder.Buffer("previous", width);
  const BufferId embedding = builder.Buffer("embedding", width);
  const BufferId both = builder.Buffer("both", 2 * width);
  builder.ReadInputs(2 * width);
  builder.Add(kernels::InputOp{previous, 0});
  builder.Add(kernels::InputOp{embedding, static_cast<int>(width)});
  builder.Ignore(Part::kNextEmbedding, layer);
  AddNorm(builder, {Part::kNextEmbeddingNorm, layer, embedding, embedding});
  AddNorm(builder, {Part::kNextHiddenNorm, layer, previous, previous});
  builder.Add(kernels::CopyOp{embedding, both, 0});
  builder.Add(kernels::CopyOp{previous, both, static_cast<int>(width)});
  kernels::LinearOp project;
  project.weight = builder.Matrix({{Part::kNextProjection, width}}, 2 * width, layer);
  project.in = both;
  project.out = hidden;
  builder.Add(project);
}

absl::StatusOr<HeadPrograms> MtpHead::Build(Model& target) {
  QUIRE_RETURN_IF_ERROR(Check(target));
  config_ = LayerConfig(target.config);
  HeadPrograms programs;
  QUIRE_ASSIGN_OR_RETURN(const Shard shard,
                         CutModel(target.family->tensors, config_, *target.files, Rank()));
  ProgramBuilder builder(target.family->tensors, config_, *target.files, *target.memory, shard);
  const DecoderForm& form = target.family->decoder;
  const int layer = target.config.layers;
  const DecoderBuffers buffers = MakeBuffers(builder, form);
  const DecoderRopes ropes = AddRopes(builder, form);
  AddInputs(builder, layer, buffers.hidden);
  AddLayer(builder, form, buffers, ropes, layer);
  const BufferId last = builder.Buffer("shown", config_.hidden_size);
  AddNorm(builder, {Part::kNextNorm, layer, buffers.hidden, last});
  builder.Show(last);
  const BufferId sampled = builder.Buffer("last", config_.hidden_size, true);
  builder.Add(kernels::GatherRowsOp{last, sampled});
  kernels::LogitsOp logits;
  const bool own_head = FindOf(target, Part::kNextHead) != nullptr;
  const Part head = own_head                        ? Part::kNextHead
                    : target.config.tied_embeddings ? Part::kEmbedding
                                                    : Part::kHead;
  logits.head = builder.Matrix({{head, config_.vocab_size}}, config_.hidden_size,
                               own_head ? Place(layer) : Place());
  logits.scale = static_cast<float>(config_.logit_scale);
  logits.in = sampled;
  logits.out =
      builder.Buffer("logits", kernels::VocabularyOf(config_.vocab_size, 0, 1).width, true);
  builder.Add(logits);
  builder.Add(kernels::SampleOp{logits.out});
  absl::StatusOr<kernels::StepProgram> program = builder.Finish();
  if (!program.ok()) return program.status();
  programs.layer = *std::move(program);

  kernels::StepProgram project = HeadProgram(target.program, "mtp", 1);
  project.input_width = project.hidden_size;
  const BufferId state = AddBuffer(project, "state", project.hidden_size);
  project.features = AddBuffer(project, "normed", project.hidden_size);
  project.ops.emplace_back(kernels::InputOp{state});
  QUIRE_RETURN_IF_ERROR(AddFinalNorm(target.program, state, project.features, project));
  programs.project = std::move(project);
  return programs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftHead>> OpenMtp(const HeadOptions& /*options*/) {
  return std::make_unique<MtpHead>();
}

}  // namespace quire::model
