// Medusa (Cai et al., arXiv 2401.10774): further heads beside the model's own. Each reads the last
// hidden state and predicts one further token. A head is some blocks x ← x + SiLU(W x + b) and a
// matrix over the vocabulary.
//
// Two layouts of tensors are read: that of the authors and of text-generation-inference
// ("0.0.linear.weight", "0.1.weight"), and vLLM's ("blocks.0.layers.0.weight", "lm_heads.0.weight",
// "token_map").
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/model/draft_head.h"
#include "worker/model/head_tensors.h"
#include "worker/model/json_config.h"

namespace quire::model {
namespace {

using kernels::BufferId;
using kernels::WeightId;

constexpr int64_t kMostHeads = 32;   // drafts of a row in a step
constexpr int64_t kMostBlocks = 16;  // of a head

class MedusaHead final : public DraftHead {
 public:
  MedusaHead(const HeadOptions& options, std::unique_ptr<load::ModelFiles> files)
      : options_(options), files_(std::move(files)), memory_(options.float_type) {}

  absl::Status ReadConfig();
  std::vector<int> Features(const load::ModelConfig& target) const override {
    return {target.layers};
  }
  absl::StatusOr<HeadPrograms> Build(Model& target) override;
  absl::Status FillWeights() override {
    return memory_.Fill([this](const void* data, int64_t bytes) { files_->Release(data, bytes); });
  }
  void ReleaseSource(const void* data, int64_t bytes) const override {
    files_->Release(data, bytes);
    memory_.Release(data, bytes);
  }

 private:
  std::string BlockName(int head, int block) const {
    return vllm_ ? absl::StrCat("blocks.", head, ".layers.", block)
                 : absl::StrCat(head, ".", block, ".linear");
  }
  std::string MatrixName(int head) const {
    if (!vllm_) return absl::StrCat(head, ".", blocks_, ".weight");
    return absl::StrCat("lm_heads.", one_matrix_ ? 0 : head, ".weight");
  }
  void AddBlocks(HeadTensors& tensors, int head, BufferId hidden, kernels::StepProgram& program);
  void Check(HeadTensors& tensors, const kernels::StepProgram& target) const;

  const HeadOptions options_;
  const std::unique_ptr<load::ModelFiles> files_;
  WeightMemory memory_;
  int heads_ = 0;
  int blocks_ = 0;
  int64_t hidden_size_ = 0;  // 0: the file does not say
  int64_t vocab_size_ = 0;   // the same
  bool vllm_ = false;
  bool one_matrix_ = false;  // all heads have the first one's
};

absl::Status MedusaHead::ReadConfig() {
  const std::string path = files_->path() + "/config.json";
  JsonReader reader(files_->config(), path);
  vllm_ = reader.Has("num_heads");
  heads_ =
      static_cast<int>(vllm_ ? reader.Int("num_heads", 0) : reader.RequiredInt("medusa_num_heads"));
  blocks_ = static_cast<int>(vllm_ ? reader.Int("num_hidden_layers", 1)
                                   : reader.Int("medusa_num_layers", 1));
  if (heads_ < 1 || heads_ > kMostHeads) {
    reader.Fail(absl::StrCat(vllm_ ? "num_heads" : "medusa_num_heads", " must be 1 to ", kMostHeads,
                             ", is ", heads_));
  }
  if (blocks_ < 0 || blocks_ > kMostBlocks) {
    reader.Fail(absl::StrCat(vllm_ ? "num_hidden_layers" : "medusa_num_layers", " must be 0 to ",
                             kMostBlocks, ", is ", blocks_));
  }
  hidden_size_ = reader.Int("hidden_size", 0);
  vocab_size_ = reader.Int("vocab_size", 0);
  one_matrix_ = reader.Bool("original_lm_head", false);
  if (reader.Double("logit_scale", 1.0) <= 0.0) reader.Fail("logit_scale must be above 0");
  QUIRE_RETURN_IF_ERROR(reader.status());
  if (options_.tokens <= heads_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": has ", heads_,
                                                 " heads, num_speculative_tokens is ",
                                                 options_.tokens, "; use at most ", heads_));
}

void MedusaHead::Check(HeadTensors& tensors, const kernels::StepProgram& target) const {
  if (hidden_size_ != 0 && hidden_size_ != target.hidden_size) {
    tensors.Fail(absl::StrCat("config.json: hidden_size is ", hidden_size_, ", the model's is ",
                              target.hidden_size, "; use heads that were trained for it"));
  }
  if (vocab_size_ != 0 && vocab_size_ != target.vocab_size) {
    tensors.Fail(absl::StrCat("config.json: vocab_size is ", vocab_size_, ", the model's is ",
                              target.vocab_size, "; use heads that were trained for it"));
  }
}

void MedusaHead::AddBlocks(HeadTensors& tensors, int head, BufferId hidden,
                           kernels::StepProgram& program) {
  const int64_t width = program.hidden_size;
  const BufferId inner = AddBuffer(program, "inner", width);
  for (int block = 0; block < blocks_; ++block) {
    const std::string name = BlockName(head, block);
    kernels::LinearOp linear;
    linear.weight = tensors.Matrix(program, {{name + ".weight", width}}, width);
    if (tensors.Has(name + ".bias")) {
      linear.bias = tensors.Vector(program, {{name + ".bias", width}});
    }
    linear.in = hidden;
    linear.out = inner;
    program.ops.emplace_back(linear);
    program.ops.emplace_back(kernels::GateOp{inner, inner, inner});  // SiLU
    program.ops.emplace_back(kernels::CopyOp{inner, hidden, 0, /*accumulate=*/true});
  }
}

absl::StatusOr<HeadPrograms> MedusaHead::Build(Model& target) {
  QUIRE_RETURN_IF_ERROR(CheckFeatures(target));
  const kernels::StepProgram& model = target.program;
  HeadTensors tensors(*files_, memory_, {"", "medusa_heads."});
  Check(tensors, model);
  HeadPrograms programs;
  if (vllm_ && tensors.Has("token_map")) {
    for (const int64_t id : tensors.Ids("token_map", -1)) {
      if (id < 0 || id >= model.vocab_size) {
        tensors.Fail(absl::StrCat("tensor \"token_map\" holds ", id,
                                  ", the model's vocabulary has ", model.vocab_size, " tokens"));
      }
      programs.token_map.push_back(static_cast<int32_t>(id));
    }
  }
  const auto mapped = static_cast<int64_t>(programs.token_map.size());
  const int64_t rows = mapped > 0 ? mapped : model.vocab_size;
  for (int head = 0; head < heads_ && tensors.ok(); ++head) {
    kernels::StepProgram program = HeadProgram(model, "medusa", rows);
    program.input_width = model.hidden_size;
    const BufferId state = AddBuffer(program, "state", model.hidden_size);
    const BufferId hidden = AddBuffer(program, "hidden", model.hidden_size);
    program.ops.emplace_back(kernels::InputOp{state});
    QUIRE_RETURN_IF_ERROR(AddFinalNorm(model, state, hidden, program));
    AddBlocks(tensors, head, hidden, program);
    const std::string name = MatrixName(head);
    const load::Tensor* whole = tensors.Look(name);
    const bool picks = mapped > 0 && whole != nullptr && !whole->shape.empty() &&
                       whole->shape.front() == model.vocab_size;
    HeadEnd end{.in = hidden};
    end.head = picks ? tensors.Picked(program, {name, model.vocab_size}, model.hidden_size,
                                      programs.token_map)
                     : tensors.Matrix(program, {{name, rows}}, model.hidden_size);
    AddHeadEnd(program, end);
    programs.guesses.push_back(std::move(program));
  }
  QUIRE_RETURN_IF_ERROR(tensors.Finish());
  // Those behind what is drafted cost memory and time alone.
  programs.guesses.resize(static_cast<size_t>(std::min(heads_, options_.tokens)));
  return programs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftHead>> OpenMedusa(const HeadOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<load::ModelFiles> files, OpenHeadFiles(options));
  auto head = std::make_unique<MedusaHead>(options, std::move(files));
  QUIRE_RETURN_IF_ERROR(head->ReadConfig());
  return head;
}

}  // namespace quire::model
