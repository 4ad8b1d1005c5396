// Configurations with recurrent layers: what is read, and what is refused by its name.
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

constexpr const char* kSizes =
    R"("vocab_size":100,"hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4)";
constexpr const char* kWidth = R"(,"intermediate_size":96)";

std::string Hybrid(const std::string& architecture, const std::string& more) {
  return R"({"architectures":[")" + architecture + R"("],)" + kSizes + more + "}";
}

absl::StatusOr<ModelConfig> ReadHybrid(const std::string& text) {
  const absl::StatusOr<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return ModelConfigFromJson(value->as_object(), "m/config.json");
}

void ExpectRefusal(const std::string& text, std::string_view saying) {
  const absl::StatusOr<ModelConfig> config = ReadHybrid(text);
  ASSERT_FALSE(config.ok()) << text;
  EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
}

TEST(RecurrentConfig, Lfm2IsReadInBothSpellings) {
  const auto newer = ReadHybrid(
      Hybrid("Lfm2ForCausalLM",
             R"(,"intermediate_size":96,"layer_types":["conv","conv","full_attention","conv"],)"
             R"("block_multiple_of":32)"));
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_EQ(newer->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, 0, kNoKeys}));
  EXPECT_EQ(newer->intermediate_size, 64);
  EXPECT_EQ(newer->recurrent.taps, 3);
  EXPECT_EQ(newer->rope.theta, 1'000'000.0);
  EXPECT_TRUE(newer->tied_embeddings);
  const auto older = ReadHybrid(Hybrid(
      "Lfm2ForCausalLM",
      R"(,"block_ff_dim":96,"full_attn_idxs":[2],"block_multiple_of":32,"tie_embedding":true)"));
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(load::CanonicalText(*older), load::CanonicalText(*newer));
}

TEST(RecurrentConfig, Qwen35OfImagesAndTextIsReadForText) {
  const auto config = ReadHybrid(
      std::string(R"({"architectures":["Qwen3_5ForConditionalGeneration"],)") +
      R"("tie_word_embeddings":true,)" + R"("text_config":{)" + kSizes + kWidth +
      R"(,"linear_num_key_heads":2,"linear_num_value_heads":6,"num_key_value_heads":2,)"
      R"("rope_parameters":{"rope_theta":1e7,"mrope_section":[1,1,2]}},"vision_config":{}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, kNoKeys, 0}));
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_TRUE(config->gated_attention);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_EQ(config->rotary_dim, 64);
  EXPECT_EQ(config->norm_weight_offset, 1.0);
  EXPECT_EQ(config->recurrent.value_heads, 6);
  EXPECT_EQ(config->recurrent.key_dim, 128);
}

TEST(RecurrentConfig, GraniteIsReadWithAndWithoutExperts) {
  const std::string granite = "GraniteMoeHybridForCausalLM";
  const std::string mamba = R"(,"mamba_n_heads":4,"mamba_d_state":16,"layer_types":)"
                            R"(["mamba","mamba","attention","mamba"],)"
                            R"("shared_intermediate_size":24)";
  const auto dense = ReadHybrid(Hybrid(granite, kWidth + mamba + R"(,"num_local_experts":0)"));
  ASSERT_TRUE(dense.ok()) << dense.status();
  EXPECT_EQ(dense->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, 0, kNoKeys}));
  EXPECT_EQ(dense->recurrent.value_dim, 32);
  EXPECT_EQ(dense->intermediate_size, 24);
  EXPECT_FALSE(dense->rotary);
  const auto mixed = ReadHybrid(
      Hybrid(granite, kWidth + mamba + R"(,"num_local_experts":4,"num_experts_per_tok":2)"));
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(mixed->experts.width, 96);
  EXPECT_EQ(mixed->experts.shared_width, 24);
  EXPECT_FALSE(mixed->experts.shared_gated);
  const std::string plain = kWidth + mamba + R"(,"num_local_experts":0)";
  ExpectRefusal(Hybrid(granite, plain + R"(,"mamba_expand":0)"), "mamba_d_head is 0");
  ExpectRefusal(Hybrid(granite, plain + R"(,"mamba_n_groups":3)"),
                "mamba_n_heads is 4, no multiple of mamba_n_groups 3");
  ExpectRefusal(Hybrid(granite, plain + R"(,"mamba_proj_bias":true)"), "mamba_proj_bias");
  ExpectRefusal(Hybrid(granite, plain + R"(,"time_step_limit":[0.0,0.1])"), "time_step_limit");
  ExpectRefusal(Hybrid(granite, plain + R"(,"position_embedding_type":"alibi")"), "alibi");
}

TEST(RecurrentConfig, WhatIsNotServedIsRefusedByName) {
  const std::string lfm = "Lfm2ForCausalLM", qwen = "Qwen3_5ForCausalLM";
  const auto with = [](const std::string& more) { return kWidth + more; };
  ExpectRefusal(Hybrid(lfm, with(R"(,"layer_types":["conv","conv","mamba","conv"])")),
                "layer_types may hold \"full_attention\" and \"conv\" only");
  ExpectRefusal(Hybrid(lfm, with(R"(,"layer_types":["conv"])")), "layer_types has 1 entries");
  ExpectRefusal(Hybrid(lfm, with(R"(,"full_attn_idxs":[])")), "no layer has attention");
  ExpectRefusal(Hybrid(lfm, with(R"(,"full_attn_idxs":[0],"conv_L_cache":9)")),
                "conv_L_cache is 9, allowed are 2 to 8");
  ExpectRefusal(Hybrid(lfm, with(R"(,"block_multiple_of":0)")), "block_multiple_of");
  ExpectRefusal(Hybrid(lfm, with(R"(,"block_ffn_dim_multiplier":-1)")), "block_ffn_dim_multiplier");
  ExpectRefusal(Hybrid(qwen, with(R"(,"linear_num_key_heads":3,"linear_num_value_heads":4)")),
                "linear_num_value_heads is 4, no multiple of linear_num_key_heads 3");
  ExpectRefusal(Hybrid(qwen, with(R"(,"linear_key_head_dim":0)")), "linear_key_head_dim is 0");
  ExpectRefusal(Hybrid(qwen, with(R"(,"linear_conv_kernel_dim":1)")),
                "linear_conv_kernel_dim is 1");
  ExpectRefusal(Hybrid(qwen, with(R"(,"attn_output_gate":false)")), "attn_output_gate is false");
  ExpectRefusal(Hybrid(qwen, with(R"(,"attention_bias":true)")), "attention_bias");
  ExpectRefusal(Hybrid(qwen, with(R"(,"full_attention_interval":0)")), "full_attention_interval");
  ExpectRefusal(Hybrid("Qwen3NextForCausalLM", ""), "num_experts is missing");
  ExpectRefusal(Hybrid("Qwen3_5MoeForCausalLM",
                       R"(,"num_experts":4,"num_experts_per_tok":5,"moe_intermediate_size":8,)"
                       R"("shared_expert_intermediate_size":8)"),
                "num_experts_per_tok is 5");
}

}  // namespace
}  // namespace quire::model
