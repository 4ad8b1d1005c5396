// Configurations of Nemotron-H: both spellings of its layers, and what is refused by its name.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "common/json/json.h"
#include "common/status.h"
#include "kernels/kv_layout.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using kernels::kNoKeys;
using load::ModelConfig;
using Mixer = ModelConfig::Mixer;

constexpr const char* kNemotronSizes =
    R"("vocab_size":100,"hidden_size":64,"intermediate_size":96,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"mlp_hidden_act":"relu2","layer_norm_epsilon":1e-4)";
constexpr const char* kNemotronMamba =
    R"(,"mamba_num_heads":4,"mamba_head_dim":24,"ssm_state_size":20,"n_groups":2,"conv_kernel":4)";
constexpr const char* kNemotronExperts =
    R"(,"n_routed_experts":6,"num_experts_per_tok":2,"moe_intermediate_size":24,)"
    R"("moe_shared_expert_intermediate_size":40)";

absl::StatusOr<ModelConfig> ReadNemotronText(const std::string& more) {
  const absl::StatusOr<json::Value> value =
      json::Parse(R"({"architectures":["NemotronHForCausalLM"],)" + (kNemotronSizes + more) + "}");
  EXPECT_TRUE(value.ok()) << more;
  return ModelConfigFromJson(value->as_object(), "m/config.json");
}

absl::StatusOr<ModelConfig> ReadNemotron(const std::string& more) {
  return ReadNemotronText(kNemotronMamba + more);
}

// With the pattern "M-*E".
absl::StatusOr<ModelConfig> ReadMixedNemotron(const std::string& more) {
  return ReadNemotron(R"(,"hybrid_override_pattern":"M-*E")" + (kNemotronExperts + more));
}

void ExpectNemotronRefusal(const absl::StatusOr<ModelConfig>& config, std::string_view saying) {
  ASSERT_FALSE(config.ok()) << saying;
  EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
}

TEST(NemotronConfig, APatternAndAListSayTheSame) {
  const auto pattern = ReadMixedNemotron(R"(,"num_hidden_layers":4)");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  EXPECT_EQ(pattern->layers, 4);
  EXPECT_EQ(pattern->mixers, (std::vector<Mixer>{Mixer::kRecurrent, Mixer::kMlp, Mixer::kAttention,
                                                 Mixer::kExperts}));
  EXPECT_EQ(pattern->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, 0, kNoKeys}));
  EXPECT_EQ(pattern->experts.layers, (std::vector<bool>{false, false, false, true}));
  EXPECT_TRUE(pattern->IsRecurrent(0));
  EXPECT_FALSE(pattern->IsRecurrent(1));
  EXPECT_TRUE(pattern->HasMlp());
  EXPECT_FALSE(pattern->rotary);
  EXPECT_EQ(pattern->activation, ModelConfig::Activation::kReluSquared);
  EXPECT_EQ(pattern->norm_epsilon, 1e-4);
  EXPECT_EQ(pattern->head_dim, 128);
  EXPECT_EQ(pattern->recurrent.value_dim, 24);
  EXPECT_EQ(pattern->experts.shared_width, 40);
  EXPECT_TRUE(pattern->experts.selection_bias);
  EXPECT_TRUE(pattern->experts.rule.renormalise);
  for (const std::string types : {R"(["mamba","mlp","attention","moe"])",
                                  R"(["linear_attention","mlp","full_attention","moe"])"}) {
    for (const std::string key : {"layers_block_type", "layer_types"}) {
      const auto list = ReadNemotron(",\"" + key + "\":" + types + kNemotronExperts);
      ASSERT_TRUE(list.ok()) << list.status();
      EXPECT_EQ(load::CanonicalText(*list), load::CanonicalText(*pattern));
    }
  }
}

TEST(NemotronConfig, ModelsWithoutExpertsNeedNoneOfTheirFields) {
  const auto config = ReadNemotron(R"(,"hybrid_override_pattern":"M*M","attention_head_dim":16,)"
                                   R"("time_step_limit":[0.0,1e308],"time_step_min":0.001)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->experts.count, 0);
  EXPECT_FALSE(config->HasMlp());
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->attention_scale, 0.25);
  const auto other = ReadNemotron(R"(,"hybrid_override_pattern":"MM*","attention_head_dim":16)");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(load::CanonicalText(*other), load::CanonicalText(*config));
  const auto order = ReadNemotron(R"(,"hybrid_override_pattern":"M*-","attention_head_dim":16)");
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_NE(load::CanonicalText(*order), load::CanonicalText(*other));
}

TEST(NemotronConfig, LayersThatAreNotServedAreNamed) {
  ExpectNemotronRefusal(ReadNemotron(""), "hybrid_override_pattern is missing");
  ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"")"),
                        "hybrid_override_pattern is missing");
  ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"M*X")"),
                        "hybrid_override_pattern has the letter \"X\", served are M, *, - and E");
  ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"M*-","num_hidden_layers":4)"),
                        "hybrid_override_pattern has 3 entries for 4 layers of num_hidden_layers");
  ExpectNemotronRefusal(
      ReadNemotron(R"(,"layers_block_type":["mamba","attention"],"num_hidden_layers":3)"),
      "layers_block_type has 2 entries for 3 layers");
  ExpectNemotronRefusal(ReadNemotron(R"(,"layers_block_type":["mamba","conv"])"),
                        "layers_block_type may hold");
  ExpectNemotronRefusal(ReadNemotron(R"(,"layers_block_type":["mamba",1])"),
                        "layers_block_type may hold");
  ExpectNemotronRefusal(ReadNemotron(R"(,"layers_block_type":[])"), "layers_block_type is missing");
  ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"-*-")"),
                        "names no layer of Mamba-2");
  ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"M-M")"),
                        "no layer has attention");
  ExpectNemotronRefusal(
      ReadNemotron(R"(,"hybrid_override_pattern":")" + std::string(1'025, 'M') + "*\""),
      "num_hidden_layers is 1026");
}

TEST(NemotronConfig, MissingFieldsAreNamed) {
  const std::string pattern = R"(,"hybrid_override_pattern":"M*")";
  for (const std::string field :
       {"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"}) {
    std::string mamba = kNemotronMamba;
    mamba.replace(mamba.find(field), field.size(), "x");
    ExpectNemotronRefusal(ReadNemotronText(mamba + pattern), field + " is missing");
  }
  for (const std::string field :
       {"n_routed_experts", "num_experts_per_tok", "\"moe_intermediate_size",
        "moe_shared_expert_intermediate_size"}) {
    std::string experts = kNemotronExperts;
    experts.replace(experts.find(field), field.size(), field[0] == '"' ? "\"x" : "x");
    ExpectNemotronRefusal(ReadNemotron(R"(,"hybrid_override_pattern":"M*E")" + experts),
                          field.substr(field[0] == '"' ? 1 : 0) + " is missing");
  }
}

TEST(NemotronConfig, WhatIsNotComputedIsRefusedByName) {
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"time_step_limit":[0.0,0.1])"), "time_step_limit");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"time_step_limit":[0.001,1e308])"),
                        "time_step_limit");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"time_step_limit":[0.0])"), "time_step_limit");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"use_bias":true)"), "use_bias is not served");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"mamba_proj_bias":true)"),
                        "mamba_proj_bias is not served");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"mamba_hidden_act":"gelu")"),
                        "mamba_hidden_act \"gelu\"");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"mlp_hidden_act":"silu")"),
                        "mlp_hidden_act \"silu\"");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"sliding_window":512)"), "sliding_window");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"moe_latent_size":16)"), "moe_latent_size");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"n_shared_experts":2)"), "n_shared_experts");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"mlp_bias":true)"),
                        "mlp_bias is not served beside experts");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"n_group":4,"topk_group":1)"), "n_group is 4");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"mamba_num_heads":5)"),
                        "mamba_num_heads is 5, no multiple of n_groups 2");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"ssm_state_size":0)"), "ssm_state_size is 0");
  ExpectNemotronRefusal(ReadMixedNemotron(R"(,"conv_kernel":9)"),
                        "conv_kernel is 9, allowed are 2 to 8");
  // Python writes it in three ways.
  for (const char* const none : {"null", R"({"__float__":"Infinity"})", R"("Infinity")"}) {
    EXPECT_TRUE(ReadMixedNemotron(absl::StrCat(R"(,"time_step_limit":[0.0,)", none, "]")).ok());
  }
}

}  // namespace
}  // namespace quire::model
