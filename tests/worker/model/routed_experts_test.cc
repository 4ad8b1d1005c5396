// Mixtures of experts as DeepSeek's configuration describes them: what the fields mean, which
// tensors a layer then has, and refusals by name.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "worker/model/model.h"

namespace quire::model {
namespace {

using load::Checkpoint;
using load::ModelConfig;
using Scores = kernels::RoutingRule::Scores;

// A GLM-4-MoE of three layers, of which the first is dense; `more` begins with a comma.
std::string RoutedConfig(const std::string& more) {
  return R"({"architectures":["Glm4MoeForCausalLM"],"vocab_size":10,"hidden_size":8,)"
         R"("intermediate_size":12,"num_hidden_layers":3,"num_attention_heads":2,)"
         R"("num_key_value_heads":1,"moe_intermediate_size":6)" +
         more + "}";
}

constexpr const char* kRoutingFields =
    R"(,"n_routed_experts":4,"num_experts_per_tok":2,"n_group":2,"topk_group":1,)"
    R"("routed_scaling_factor":2.5,"n_shared_experts":2)";

absl::StatusOr<ModelConfig> ParseRouted(const std::string& text) {
  const absl::StatusOr<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return ModelConfigFromJson(value->as_object(), "m/config.json");
}

void ExpectRoutingRefused(const std::string& more, std::string_view saying) {
  const absl::StatusOr<ModelConfig> config = ParseRouted(RoutedConfig(more));
  ASSERT_FALSE(config.ok()) << saying;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
  EXPECT_EQ(StatusMessage(config.status()).find('\n'), std::string::npos);
}

TEST(RoutedExperts, FieldsOfTheConfiguration) {
  const absl::StatusOr<ModelConfig> config = ParseRouted(RoutedConfig(kRoutingFields));
  ASSERT_TRUE(config.ok()) << config.status();
  const load::ExpertConfig& experts = config->experts;
  EXPECT_EQ(experts.count, 4);
  EXPECT_EQ(experts.width, 6);
  EXPECT_EQ(experts.shared_width, 12);
  EXPECT_FALSE(experts.shared_gated);
  EXPECT_TRUE(experts.selection_bias);
  EXPECT_EQ(experts.rule.scores, Scores::kSigmoid);
  EXPECT_EQ(experts.rule.groups, 2);
  EXPECT_EQ(experts.rule.groups_used, 1);
  EXPECT_EQ(experts.rule.best_of_group, 2);
  EXPECT_TRUE(experts.rule.renormalise);
  EXPECT_EQ(experts.rule.scale, 2.5f);
  EXPECT_EQ(experts.layers, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(config->rotary_dim, 2);
}

TEST(RoutedExperts, OneGroupIsNone) {
  const absl::StatusOr<ModelConfig> config = ParseRouted(
      RoutedConfig(R"(,"n_routed_experts":3,"num_experts_per_tok":2,"n_group":1,"topk_group":1,)"
                   R"("first_k_dense_replace":0,"moe_layer_freq":2)"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->experts.rule.groups, 1);
  EXPECT_EQ(config->experts.rule.best_of_group, 1);
  EXPECT_EQ(config->experts.layers, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(config->experts.shared_width, 6);
}

TEST(RoutedExperts, RefusesByName) {
  const std::string some = R"(,"n_routed_experts":6,"num_experts_per_tok":)";
  ExpectRoutingRefused(R"(,"num_experts_per_tok":2)", "n_routed_experts is missing");
  ExpectRoutingRefused(some + "7", "num_experts_per_tok is 7, allowed are 1 to 6");
  ExpectRoutingRefused(some + R"(2,"n_group":4,"topk_group":1)",
                       "n_group is 4, num_experts 6 does not divide into so many groups");
  ExpectRoutingRefused(some + R"(4,"n_group":3,"topk_group":1)",
                       "topk_group is 1, groups of 2 experts");
  ExpectRoutingRefused(some + R"(2,"n_group":3,"topk_group":4)",
                       "topk_group is 4, allowed are 1 to 3");
  ExpectRoutingRefused(some + R"(2,"n_group":3)", "topk_group is missing");
  ExpectRoutingRefused(some + R"(2,"scoring_func":"tanh")", "scoring_func \"tanh\" is not served");
  ExpectRoutingRefused(some + R"(2,"topk_method":"hash")", "topk_method \"hash\" is not served");
  ExpectRoutingRefused(some + R"(2,"routed_scaling_factor":0)", "routed_scaling_factor is 0");
  ExpectRoutingRefused(some + R"(2,"first_k_dense_replace":-1)", "first_k_dense_replace must be");
  ExpectRoutingRefused(some + R"(2,"moe_layer_freq":0)", "moe_layer_freq must be at least 1");
  ExpectRoutingRefused(some + R"(2,"n_shared_experts":2000)", "n_shared_experts is 2000");
}

Checkpoint SmallRouted() {
  Checkpoint checkpoint = {{"model.embed_tokens.weight", {{10, 8}}},
                           {"model.norm.weight", {{8}}},
                           {"lm_head.weight", {{10, 8}}}};
  const auto mlp = [&checkpoint](const std::string& name, int inner) {
    checkpoint[name + ".gate_proj.weight"] = {{inner, 8}};
    checkpoint[name + ".up_proj.weight"] = {{inner, 8}};
    checkpoint[name + ".down_proj.weight"] = {{8, inner}};
  };
  for (const std::string index : {"0", "1", "2"}) {
    const std::string layer = "model.layers." + index + ".";
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      checkpoint[layer + norm] = {{8}};
    }
    checkpoint[layer + "self_attn.q_proj.weight"] = {{8, 8}};
    checkpoint[layer + "self_attn.k_proj.weight"] = {{4, 8}};
    checkpoint[layer + "self_attn.v_proj.weight"] = {{4, 8}};
    checkpoint[layer + "self_attn.o_proj.weight"] = {{8, 8}};
    if (index == "0") {
      mlp(layer + "mlp", 12);
      continue;
    }
    for (int expert = 0; expert < 4; ++expert) {
      mlp(layer + "mlp.experts." + std::to_string(expert), 6);
    }
    mlp(layer + "mlp.shared_experts", 12);
    checkpoint[layer + "mlp.gate.weight"] = {{4, 8}, "F32"};
    checkpoint[layer + "mlp.gate.e_score_correction_bias"] = {{4}, "F32"};
  }
  // What predicts further tokens has a layer of its own, with names that no part has.
  checkpoint["model.layers.3.eh_proj.weight"] = {{8, 16}};
  checkpoint["model.layers.3.shared_head.head.weight"] = {{10, 8}};
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Model>> LoadRouted(const Checkpoint& checkpoint,
                                                  const LoadOptions& options = {
                                                      .with_text = false}) {
  const load::TempFolder folder;
  folder.Write("config.json", RoutedConfig(kRoutingFields));
  folder.Write("model.safetensors", load::Safetensors(checkpoint));
  return LoadModel(folder.path(), options);
}

template <typename Op>
std::vector<Op> RoutedOps(const kernels::StepProgram& program) {
  std::vector<Op> found;
  for (const kernels::Op& op : program.ops) {
    if (const auto* own = std::get_if<Op>(&op)) found.push_back(*own);
  }
  return found;
}

TEST(RoutedExperts, LoadWithSharedOnesAndWithoutTheLayerBehind) {
  const auto model = LoadRouted(SmallRouted());
  ASSERT_TRUE(model.ok()) << model.status();
  for (const int ranks : {1, 2}) {
    const auto program = (*model)->BuildRank({ranks - 1, ranks});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto mixtures = RoutedOps<kernels::MoeOp>(*program);
    ASSERT_EQ(mixtures.size(), 2u);
    EXPECT_EQ(mixtures[0].experts.size(), 4u);
    EXPECT_NE(mixtures[0].selection_bias, kernels::kNoId);
    const auto linear = RoutedOps<kernels::LinearOp>(*program);
    // Attention has two a layer, the mlp and each shared expert have two.
    ASSERT_EQ(linear.size(), 12u);
    const auto& down = program->weights[static_cast<size_t>(linear.back().weight)];
    EXPECT_EQ(down.name, "model.layers.2.mlp.shared_experts.down_proj.weight");
    EXPECT_EQ(down.cols, 12 / ranks);
    EXPECT_TRUE(linear.back().accumulate);
    EXPECT_EQ(linear.back().out, mixtures[1].out);
  }
}

// GLM-5.2's biases lie in 6.8–7.1: in bfloat16 nearly all would be equal.
TEST(RoutedExperts, TheBiasOfTheChoiceKeepsItsType) {
  LoadOptions options{.with_text = false};
  options.float_type = kernels::DType::kBF16;
  const auto model = LoadRouted(SmallRouted(), options);
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::StepProgram& program = (*model)->program;
  const auto mixtures = RoutedOps<kernels::MoeOp>(program);
  for (const kernels::WeightId id : {mixtures[0].selection_bias, mixtures[0].router}) {
    EXPECT_EQ(program.weights[static_cast<size_t>(id)].parts[0].type, kernels::DType::kF32);
  }
}

TEST(RoutedExperts, NameTensorsThatAreMissingOrMisshapen) {
  const std::string mlp = "model.layers.1.mlp.";
  for (const char* name : {"gate.e_score_correction_bias", "gate.weight",
                           "shared_experts.up_proj.weight", "experts.3.down_proj.weight"}) {
    Checkpoint checkpoint = SmallRouted();
    checkpoint.erase(mlp + name);
    const auto model = LoadRouted(checkpoint);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(StatusMessage(model.status()).find("\"" + mlp + name + "\" is missing"),
              std::string::npos)
        << model.status();
  }
  const std::pair<const char*, std::vector<int>> shapes[] = {
      {"gate.weight", {5, 8}},
      {"gate.e_score_correction_bias", {3}},
      {"shared_experts.down_proj.weight", {8, 6}}};
  for (const auto& [name, shape] : shapes) {
    Checkpoint checkpoint = SmallRouted();
    checkpoint[mlp + name] = {shape};
    const auto model = LoadRouted(checkpoint);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(StatusMessage(model.status()).find("the configuration demands"), std::string::npos)
        << model.status();
  }
}

}  // namespace
}  // namespace quire::model
