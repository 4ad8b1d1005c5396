// EAGLE-3 (Li et al., arXiv 2503.01840): one layer that reads, at each position, the embedding of
// the next token beside a mixture of three hidden states of the target, and predicts the token
// after the next. For further tokens it reads its own result in place of the mixture.
//
// Two formats are read: that of the authors, of SGLang and vLLM ("midlayer.…"), and that of
// speculators (transformer_layer_config, "layers.0.…"). Residual streams are shown as vLLM does:
// those that enter layers 2, n / 2 and n − 3, counted from 0, unless the file lists others.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/model/draft_head.h"
#include "worker/model/family.h"
#include "worker/model/head_tensors.h"
#include "worker/model/json_config.h"
#include "worker/model/rope.h"

namespace quire::model {

extern const Family kLlama;

namespace {

using kernels::BufferId;
using kernels::StepProgram;

constexpr size_t kMostFeatures = 16;  // streams that a head mixes

class EagleHead final : public DraftHead {
 public:
  EagleHead(const HeadOptions& options, std::unique_ptr<load::ModelFiles> files)
      : files_(std::move(files)), memory_(options.float_type) {}

  absl::Status ReadConfig();
  std::vector<int> Features(const load::ModelConfig& target) const override {
    if (!layers_.empty()) return layers_;
    std::vector<int> layers = {2, target.layers / 2, target.layers - 3};
    std::sort(layers.begin(), layers.end());
    return layers;
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
  // A tensor of the layer, in either format.
  std::string Of(const HeadTensors& tensors, const std::string& name) const {
    const std::string first = "midlayer." + name;
    return tensors.Has(first) ? first : "layers.0." + name;
  }
  absl::Status Check(const Model& target) const;
  std::vector<int32_t> ReadMap(HeadTensors& tensors, int64_t target_vocab) const;
  StepProgram MakeProject(HeadTensors& tensors, const StepProgram& target,
                          bool embeds_itself) const;
  StepProgram MakeLayer(HeadTensors& tensors, const StepProgram& target) const;
  void AddInputs(HeadTensors& tensors, BufferId hidden, BufferId both, StepProgram& program) const;
  void AddAttention(HeadTensors& tensors, BufferId both, BufferId hidden,
                    StepProgram& program) const;
  void AddMlp(HeadTensors& tensors, BufferId hidden, StepProgram& program) const;
  kernels::NormOp Norm(kernels::WeightId weight, BufferId in, BufferId out) const {
    kernels::NormOp norm;
    norm.weight = weight;
    norm.epsilon = static_cast<float>(config_.norm_epsilon);
    norm.in = in;
    norm.out = out;
    return norm;
  }

  const std::unique_ptr<load::ModelFiles> files_;
  WeightMemory memory_;
  load::ModelConfig config_;  // of the layer
  std::vector<int> layers_;   // empty: the usual ones
  int64_t draft_vocab_size_ = 0;
  int64_t target_hidden_size_ = 0;  // 0: the layer's own
  bool norm_before_residual_ = false;
};

// What the file may ask for and is not computed.
void RefuseOthers(JsonReader& reader) {
  for (const std::string_view key : {"norm_before_fc", "fc_norm", "parallel_drafting"}) {
    if (reader.Bool(key, false)) reader.Fail(absl::StrCat(AbslView(key), ": true is not served"));
  }
}

bool ScalesEmbeddings(const StepProgram& program) {
  return std::ranges::any_of(program.ops, [](const kernels::Op& op) {
    const auto* embed = std::get_if<kernels::EmbedOp>(&op);
    return embed != nullptr && embed->scale != 1.0f;
  });
}

void ReadLayerIds(JsonReader& reader, std::vector<int>& layers) {
  const json::Array* ids = reader.ArrayAt("eagle_aux_hidden_state_layer_ids");
  if (ids == nullptr) return;
  for (const json::Value& value : *ids) {
    const auto id = json::AsInt(value, "eagle_aux_hidden_state_layer_ids");
    if (!id.ok()) return reader.Fail(StatusMessage(id.status()));
    if (*id < 0 || *id > load::kMaxLayers) {
      return reader.Fail(absl::StrCat("eagle_aux_hidden_state_layer_ids holds ", *id));
    }
    layers.push_back(static_cast<int>(*id));
  }
  std::sort(layers.begin(), layers.end());
  const bool twice = std::adjacent_find(layers.begin(), layers.end()) != layers.end();
  if (layers.empty() || layers.size() > kMostFeatures || twice) {
    reader.Fail(absl::StrCat("eagle_aux_hidden_state_layer_ids must list 1 to ", kMostFeatures,
                             " different layers"));
  }
}

absl::Status EagleHead::ReadConfig() {
  const std::string path = files_->path() + "/config.json";
  JsonReader reader(files_->config(), path);
  const json::Object* inner = reader.ObjectAt("transformer_layer_config");
  json::Object layer = inner != nullptr ? *inner : files_->config();
  layer.erase("architectures");
  layer["model_type"] = "llama";
  draft_vocab_size_ = reader.Int("draft_vocab_size", 0);
  target_hidden_size_ = reader.Int("target_hidden_size", 0);
  norm_before_residual_ = reader.Bool("norm_before_residual", false);
  RefuseOthers(reader);
  ReadLayerIds(reader, layers_);
  QUIRE_RETURN_IF_ERROR(reader.status());
  if (const json::Object* eagle = reader.ObjectAt("eagle_config")) {
    JsonReader own(*eagle, path);
    if (!own.Bool("use_aux_hidden_state", true)) {
      own.Fail("use_aux_hidden_state: false is not served");
    }
    if (layers_.empty()) ReadLayerIds(own, layers_);
    QUIRE_RETURN_IF_ERROR(own.status());
  }
  const Family* const families[] = {&kLlama};
  QUIRE_ASSIGN_OR_RETURN(config_, ModelConfigFromJson(layer, path, families));
  if (config_.layers != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": num_hidden_layers is ", config_.layers, ", heads of EAGLE-3 have 1"));
  }
  if (draft_vocab_size_ == 0) draft_vocab_size_ = config_.vocab_size;
  if (target_hidden_size_ == 0) target_hidden_size_ = config_.hidden_size;
  return absl::OkStatus();
}

absl::Status EagleHead::Check(const Model& target) const {
  QUIRE_RETURN_IF_ERROR(CheckFeatures(target));
  const std::string path = files_->path() + "/config.json";
  const auto differs = [&path](std::string_view what, int64_t own, int64_t of_target) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", AbslView(what), " is ", own,
                                                   ", the model's is ", of_target,
                                                   "; use a head that was trained for it"));
  };
  const StepProgram& model = target.program;
  if (target_hidden_size_ != model.hidden_size) {
    return differs(
        target_hidden_size_ == config_.hidden_size ? "hidden_size" : "target_hidden_size",
        target_hidden_size_, model.hidden_size);
  }
  if (config_.vocab_size != model.vocab_size) {
    return differs("vocab_size", config_.vocab_size, model.vocab_size);
  }
  for (const int layer : Features(target.config)) {
    if (layer >= 0 && layer <= target.config.layers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the head reads the hidden state before layer ", layer,
                     ", the model has layers 0 to ", target.config.layers - 1));
  }
  return absl::OkStatus();
}

std::vector<int32_t> EagleHead::ReadMap(HeadTensors& tensors, int64_t target_vocab) const {
  std::vector<int32_t> map;
  tensors.Ignore("t2d", target_vocab);
  if (!tensors.Has("d2t") && draft_vocab_size_ == target_vocab) return map;
  const std::vector<int64_t> steps = tensors.Ids("d2t", draft_vocab_size_);
  for (size_t i = 0; i < steps.size(); ++i) {
    const int64_t own = static_cast<int64_t>(i);
    if (steps[i] < -own || steps[i] >= target_vocab - own) {
      tensors.Fail(absl::StrCat("tensor \"d2t\" adds ", steps[i], " to the id ", own,
                                ", the model's vocabulary has ", target_vocab, " tokens"));
      return {};
    }
    map.push_back(static_cast<int32_t>(own + steps[i]));
  }
  const bool same = draft_vocab_size_ == target_vocab &&
                    std::ranges::all_of(steps, [](int64_t step) { return step == 0; });
  return same ? std::vector<int32_t>() : map;
}

StepProgram EagleHead::MakeProject(HeadTensors& tensors, const StepProgram& target,
                                   bool embeds_itself) const {
  const auto count = static_cast<int64_t>(target.buffers[target.features].width);
  const int64_t width = config_.hidden_size;
  StepProgram program = HeadProgram(target, "eagle3", config_.vocab_size);
  program.input_width = static_cast<int>(count);
  const BufferId features = AddBuffer(program, "features", count);
  program.ops.emplace_back(kernels::InputOp{features});
  kernels::LinearOp mix;
  mix.weight = tensors.Matrix(program, {{"fc.weight", width}}, count);
  mix.in = features;
  mix.out = program.features = AddBuffer(program, "mixed", width);
  program.ops.emplace_back(mix);
  if (!embeds_itself) return program;
  kernels::EmbedOp embed;
  embed.table = tensors.Matrix(program, {{"embed_tokens.weight", config_.vocab_size}}, width);
  embed.out = AddBuffer(program, "embedding", width);
  program.ops.emplace_back(embed);
  return program;
}

// both = [norm(embedding), norm(hidden)].
void EagleHead::AddInputs(HeadTensors& tensors, BufferId hidden, BufferId both,
                          StepProgram& program) const {
  const int64_t width = config_.hidden_size;
  const BufferId embedding = AddBuffer(program, "embedding", width);
  const BufferId normed = AddBuffer(program, "normed", width);
  program.input_width = static_cast<int>(2 * width);
  program.ops.emplace_back(kernels::InputOp{hidden});
  program.ops.emplace_back(kernels::InputOp{embedding, static_cast<int>(width)});
  const auto weights = [&](const char* name) {
    return tensors.Vector(program, {{Of(tensors, name), width}});
  };
  program.ops.emplace_back(Norm(weights("input_layernorm.weight"), embedding, normed));
  program.ops.emplace_back(kernels::CopyOp{normed, both, 0});
  program.ops.emplace_back(Norm(weights("hidden_norm.weight"), hidden, normed));
  program.ops.emplace_back(kernels::CopyOp{normed, both, static_cast<int>(width)});
  if (norm_before_residual_) program.ops.emplace_back(kernels::CopyOp{normed, hidden, 0});
}

// hidden += attention over `both`.
void EagleHead::AddAttention(HeadTensors& tensors, BufferId both, BufferId hidden,
                             StepProgram& program) const {
  const int64_t width = config_.hidden_size;
  const int64_t queries = int64_t{config_.heads} * config_.head_dim;
  const int64_t keys = int64_t{config_.kv_heads} * config_.head_dim;
  const auto name = [&](const std::string& of, const char* suffix) {
    return Of(tensors, "self_attn." + of + "_proj." + suffix);
  };
  const BufferId qkv = AddBuffer(program, "qkv", queries + 2 * keys);
  kernels::LinearOp project;
  project.weight = tensors.Matrix(
      program,
      {{name("q", "weight"), queries}, {name("k", "weight"), keys}, {name("v", "weight"), keys}},
      2 * width);
  if (config_.qkv_bias) {
    project.bias = tensors.Vector(
        program,
        {{name("q", "bias"), queries}, {name("k", "bias"), keys}, {name("v", "bias"), keys}});
  }
  project.in = both;
  project.out = qkv;
  program.ops.emplace_back(project);

  kernels::RopeAppendOp append;
  append.qkv = qkv;
  append.layer = 0;
  append.heads = config_.heads;
  append.kv_heads = config_.kv_heads;
  append.head_dim = config_.head_dim;
  append.rope = 0;
  program.ops.emplace_back(append);

  kernels::AttentionOp attention;
  attention.qkv = qkv;
  attention.out = AddBuffer(program, "attended", queries);
  attention.layer = 0;
  attention.heads = config_.heads;
  attention.kv_heads = config_.kv_heads;
  attention.head_dim = config_.head_dim;
  attention.scale = static_cast<float>(config_.attention_scale);
  program.ops.emplace_back(attention);

  kernels::LinearOp output;
  output.weight = tensors.Matrix(program, {{name("o", "weight"), width}}, queries);
  if (config_.output_bias) output.bias = tensors.Vector(program, {{name("o", "bias"), width}});
  output.accumulate = true;
  output.in = attention.out;
  output.out = hidden;
  program.ops.emplace_back(output);
}

// hidden += mlp(norm(hidden)).
void EagleHead::AddMlp(HeadTensors& tensors, BufferId hidden, StepProgram& program) const {
  const int64_t width = config_.hidden_size;
  const int64_t inner = config_.intermediate_size;
  const auto name = [&](const std::string& of, const char* suffix) {
    return Of(tensors, "mlp." + of + "_proj." + suffix);
  };
  const BufferId normed = AddBuffer(program, "mlp_normed", width);
  program.ops.emplace_back(
      Norm(tensors.Vector(program, {{Of(tensors, "post_attention_layernorm.weight"), width}}),
           hidden, normed));
  kernels::LinearOp up;
  up.weight = tensors.Matrix(
      program, {{name("gate", "weight"), inner}, {name("up", "weight"), inner}}, width);
  if (config_.mlp_bias) {
    up.bias = tensors.Vector(program, {{name("gate", "bias"), inner}, {name("up", "bias"), inner}});
  }
  up.activation = kernels::LinearOp::Activation::kSiluGated;
  up.in = normed;
  up.out = AddBuffer(program, "gated", inner);
  program.ops.emplace_back(up);
  kernels::LinearOp down;
  down.weight = tensors.Matrix(program, {{name("down", "weight"), width}}, inner);
  if (config_.mlp_bias) down.bias = tensors.Vector(program, {{name("down", "bias"), width}});
  down.accumulate = true;
  down.in = up.out;
  down.out = hidden;
  program.ops.emplace_back(down);
}

StepProgram EagleHead::MakeLayer(HeadTensors& tensors, const StepProgram& target) const {
  const int64_t width = config_.hidden_size;
  StepProgram program = HeadProgram(target, "eagle3", draft_vocab_size_);
  program.hidden_size = config_.hidden_size;
  program.heads = config_.heads;
  program.kv_heads = config_.kv_heads;
  program.head_dim = config_.head_dim;
  program.layer_windows = {0};
  program.ropes.push_back(MakeRope(config_.rope, config_.RotaryDim(), {}));
  const BufferId hidden = program.features = AddBuffer(program, "hidden", width);
  const BufferId both = AddBuffer(program, "both", 2 * width);
  AddInputs(tensors, hidden, both, program);
  AddAttention(tensors, both, hidden, program);
  AddMlp(tensors, hidden, program);
  HeadEnd end{.in = hidden, .epsilon = static_cast<float>(config_.norm_epsilon)};
  end.norm = tensors.Vector(program, {{"norm.weight", width}});
  end.head = tensors.Matrix(program, {{"lm_head.weight", draft_vocab_size_}}, width);
  AddHeadEnd(program, end);
  return program;
}

absl::StatusOr<HeadPrograms> EagleHead::Build(Model& target) {
  QUIRE_RETURN_IF_ERROR(Check(target));
  HeadTensors tensors(*files_, memory_, {"", "model."});
  HeadPrograms programs;
  programs.embeds_itself = tensors.Has("embed_tokens.weight");
  if (!programs.embeds_itself && config_.hidden_size != target.program.hidden_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        files_->path(), ": tensor \"embed_tokens.weight\" is missing: the head's hidden_size is ",
        config_.hidden_size, ", the model's embeddings have ", target.program.hidden_size));
  }
  if (!programs.embeds_itself && ScalesEmbeddings(target.program)) {
    return absl::InvalidArgumentError(absl::StrCat(
        files_->path(), ": tensor \"embed_tokens.weight\" is missing: models of the family ",
        target.config.family, " scale their embeddings, so a head needs its own"));
  }
  programs.token_map = ReadMap(tensors, target.program.vocab_size);
  programs.project = MakeProject(tensors, target.program, programs.embeds_itself);
  programs.layer = MakeLayer(tensors, target.program);
  QUIRE_RETURN_IF_ERROR(tensors.Finish());
  return programs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftHead>> OpenEagle3(const HeadOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<load::ModelFiles> files, OpenHeadFiles(options));
  auto head = std::make_unique<EagleHead>(options, std::move(files));
  QUIRE_RETURN_IF_ERROR(head->ReadConfig());
  return head;
}

}  // namespace quire::model
