// Mixtral: Mistral with experts in place of every mlp, whose weights are always renormalised.
#include "worker/model/family.h"

namespace quire::model {
namespace {

void ReadMixtral(JsonReader& reader, load::ModelConfig& config) {
  ReadExperts(reader, config,
              {.count = "num_local_experts", .width = "intermediate_size", .renormalise = true});
  config.experts.rule.renormalise = true;
  const int64_t window = reader.Int("sliding_window", 0);
  ReadWindows(reader, config, window, [window](int) { return window > 0; });
}

constexpr TensorName kMixtralTensors[] = {
    {Part::kRouter, "block_sparse_moe.gate"},
    {Part::kExpertGate, "block_sparse_moe.experts.*.w1"},
    {Part::kExpertUp, "block_sparse_moe.experts.*.w3"},
    {Part::kExpertDown, "block_sparse_moe.experts.*.w2"},
};

}  // namespace

extern const Family kMixtral{
    .name = "mixtral",
    .title = "Mixtral",
    .json = {.names = {{"MixtralForCausalLM", "mixtral"}},
             .kv_heads = 8,
             .max_positions = 131'072,
             .read = ReadMixtral},
    .gguf = {.written_as = "llama"},
    .tensors = {.own = kMixtralTensors},
};

}  // namespace quire::model
