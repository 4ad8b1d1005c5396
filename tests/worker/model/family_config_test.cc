// What single families read of a configuration: experts, two kinds of heads, ropes of their own.
#include <gtest/gtest.h>

#include <cmath>

#include "common/status.h"
#include "tests/worker/model/config_text.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using load::ModelConfig;
using load::RopeConfig;

constexpr const char* kLongRope =
    R"(,"max_position_embeddings":512,"original_max_position_embeddings":128,"rope_scaling":)"
    R"({"type":"su","long_factor":[1,2,3,4,5,6,7,8],"short_factor":[1,1,1,1,1,1,1,2]})";

TEST(ModelConfigJson, LongRopesFactorsFollowFromTheLongestContext) {
  const ModelConfig read = Good("Phi3ForCausalLM", kLongRope);
  EXPECT_EQ(read.rope.scaling, load::RopeConfig::Scaling::kLongRope);
  EXPECT_EQ(read.rope.original_context, 128.0);
  EXPECT_NEAR(read.rope.attention_factor, std::sqrt(1.0 + std::log(4.0) / std::log(128.0)), 1e-12);
  const auto chosen = [&read](int64_t max_model_len) {
    ModelConfig config = read;
    load::ChooseContext(config, max_model_len);
    EXPECT_EQ(config.rope.long_context, config.sliding_rope.long_context);
    return config;
  };
  EXPECT_TRUE(chosen(0).rope.long_context) << "the model's own context is longer";
  EXPECT_TRUE(chosen(129).rope.long_context);
  EXPECT_EQ(chosen(129).max_positions, 512);
  EXPECT_FALSE(chosen(128).rope.long_context);
  EXPECT_EQ(chosen(128).max_positions, 128) << "nothing beyond the border";
  // Workers that choose differently are other models.
  EXPECT_EQ(CanonicalText(chosen(0)), CanonicalText(chosen(129)));
  EXPECT_NE(CanonicalText(chosen(128)), CanonicalText(chosen(129)));
}

TEST(ModelConfigJson, LongRopeNeedsAFactorForEachFrequency) {
  const auto config = [](const std::string& rope) {
    return Config("Phi3ForCausalLM", R"(,"rope_scaling":{"type":"longrope",)" + rope + "}");
  };
  ExpectRefused(config(R"("long_factor":[1],"short_factor":[1,1,1,1,1,1,1,1])"),
                "rope long_factor has 1 numbers, it must have 8");
  ExpectRefused(config(R"("long_factor":[1,1,1,1,1,1,1,0],"short_factor":[1,1,1,1,1,1,1,1])"),
                "long_factor is 0, it must be above 0");
  ExpectRefused(config(R"("long_factor":["1"],"short_factor":[])"), "long_factor");
  std::string many = "[1";
  for (int i = 0; i < load::kMaxHeadDimension / 2; ++i) many += ",1";
  ExpectRefused(config("\"long_factor\":" + many + "]"),
                "long_factor has 513 numbers, at most 512");
  ExpectRefused(config(R"("original_max_position_embeddings":1,"long_factor":[1])"),
                "longrope needs original_max_position_embeddings");
}

TEST(ModelConfigJson, QueriesOfMinistralGrow) {
  const std::string rope =
      R"(,"rope_parameters":{"rope_type":"yarn","rope_theta":1e6,"factor":16,"mscale":1,)"
      R"("mscale_all_dim":1,"llama_4_scaling_beta":0.1,"original_max_position_embeddings":)";
  const ModelConfig config = Good("Ministral3ForCausalLM", rope + "16384}");
  EXPECT_EQ(config.query_growth.rate, 0.1f);
  EXPECT_EQ(config.query_growth.interval, 16'384);
  EXPECT_EQ(config.rope.attention_factor, 1.0);
  EXPECT_EQ(config.layer_windows, std::vector<int>(4, 0));
  ExpectRefused(Config("Ministral3ForCausalLM", rope + "0}"),
                "rope original_max_position_embeddings is 0, it must be above 0");
  // Mistral Small 3.1 has the older text part: nothing grows.
  const ModelConfig older =
      Good("Mistral3ForConditionalGeneration",
           R"(,"text_config":{"model_type":"mistral","vocab_size":100,"hidden_size":64,)"
           R"("intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,)"
           R"("head_dim":32,"sliding_window":null})");
  EXPECT_EQ(older.query_growth.rate, 0.0f);
  EXPECT_EQ(older.head_dim, 32);
  EXPECT_EQ(older.layer_windows, std::vector<int>(2, 0));
}

TEST(ModelConfigJson, Gemma4HasTwoKindsOfHeads) {
  const std::string own =
      R"(,"num_key_value_heads":2,"head_dim":16,"sliding_window":8,"attention_k_eq_v":true,)"
      R"("num_kv_shared_layers":2,"hidden_size_per_layer_input":0,"layer_types":)"
      R"(["sliding_attention","full_attention","sliding_attention","full_attention"])";
  const std::string older = R"(,"global_head_dim":32,"num_global_key_value_heads":1)";
  const ModelConfig config = Good("Gemma4ForCausalLM", own + older);
  EXPECT_EQ(config.gemma.full_head_dim, 32);
  EXPECT_EQ(config.gemma.full_kv_heads, 1);
  EXPECT_EQ(config.attention_scale, 1.0);
  EXPECT_EQ(config.KeysOf(1), 1);
  EXPECT_EQ(config.KeysOf(2), 0);
  EXPECT_EQ(config.KeysOf(3), 1);
  EXPECT_EQ(config.rope.scaling, load::RopeConfig::Scaling::kProportional);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.sliding_rope.theta, 1e4);
  // The newer spelling means the same.
  const ModelConfig newer =
      Good("Gemma4ForCausalLM",
           own + R"(,"per_layer_config":{"1":{"head_dim":32,"num_key_value_heads":1},)"
                 R"("3":{"head_dim":32,"num_key_value_heads":1}})");
  EXPECT_EQ(CanonicalText(newer), CanonicalText(config));
  const auto refused = [&own](const std::string& more, std::string_view saying) {
    ExpectRefused(Config("Gemma4ForCausalLM", own + more), saying);
  };
  refused(R"(,"per_layer_config":{"1":{"head_dim":32},"3":{"head_dim":64}})",
          "per_layer_config: layer 3 has other heads than the layers of its kind");
  refused(R"(,"per_layer_config":{"0":{"head_dim":32}})", "per_layer_config: layer 0");
  refused(R"(,"global_head_dim":33)", "global_head_dim is 33, it must be even");
  refused(R"(,"num_global_key_value_heads":3)", "num_global_key_value_heads is 3");
  refused(R"(,"enable_moe_block":true,"num_experts":4,"moe_intermediate_size":8)",
          "top_k_experts is missing");
  refused(R"(,"use_bidirectional_attention":"all")", "use_bidirectional_attention");
  ExpectRefused(
      Config("Gemma4ForCausalLM", R"(,"num_kv_shared_layers":4,"hidden_size_per_layer_input":0)"),
      "num_kv_shared_layers is 4, allowed are 0 to 3");
  ExpectRefused(
      Config("Gemma4ForCausalLM", R"(,"num_kv_shared_layers":3,"hidden_size_per_layer_input":0)"),
      "no layer of the kind of layer 3 is left");
  ExpectRefused(Config("Gemma4ForCausalLM", ""), "vocab_size_per_layer_input is 262144");
}

TEST(ModelConfigJson, Olmo3ScalesTheRopeOfFullLayersAlone) {
  const ModelConfig config = Good(
      "Olmo3ForCausalLM",
      R"(,"sliding_window":8,"rope_theta":500000,"rope_scaling":{"rope_type":"yarn","factor":8})");
  EXPECT_EQ(config.layer_windows, (std::vector<int>{8, 8, 8, 0}));
  EXPECT_EQ(config.rope.scaling, load::RopeConfig::Scaling::kYarn);
  EXPECT_EQ(config.sliding_rope.scaling, load::RopeConfig::Scaling::kNone);
  EXPECT_EQ(config.sliding_rope.theta, 500'000.0);
  ExpectRefused(
      Config("OlmoeForCausalLM", R"(,"num_experts":4,"num_experts_per_tok":2,"clip_qkv":8)"),
      "clip_qkv is not served");
}

TEST(ModelConfigJson, APartOfAHeadMayTurn) {
  const absl::StatusOr<ModelConfig> phi =
      Parse(Config("Phi3ForCausalLM", R"(,"partial_rotary_factor":0.75)"));
  ASSERT_TRUE(phi.ok()) << phi.status();
  EXPECT_EQ(phi->RotaryDim(), 12);
  EXPECT_FALSE(phi->interleaved_rope);
  const absl::StatusOr<ModelConfig> glm = Parse(Config("Glm4ForCausalLM", ""));
  ASSERT_TRUE(glm.ok()) << glm.status();
  EXPECT_EQ(glm->RotaryDim(), 64);
  EXPECT_TRUE(glm->interleaved_rope);
  EXPECT_TRUE(glm->qkv_bias);
  const std::string inner = R"(,"rope_parameters":{"rope_theta":5e4,"partial_rotary_factor":)";
  const absl::StatusOr<ModelConfig> nested = Parse(Config("Phi3ForCausalLM", inner + "0.5}"));
  ASSERT_TRUE(nested.ok()) << nested.status();
  EXPECT_EQ(nested->RotaryDim(), 8);
  EXPECT_EQ(nested->rope.theta, 5e4);
  ExpectRefused(Config("Phi3ForCausalLM", inner + "1.5}"), "partial_rotary_factor is 1.5");
  ExpectRefused(Config("Phi3ForCausalLM", R"(,"partial_rotary_factor":0.06)"),
                "partial_rotary_factor is 0.06, it leaves nothing of 16");
  ExpectRefused(Config("Phi3ForCausalLM", R"(,"partial_rotary_factor":0.2)"),
                "partial_rotary_factor makes 3 of 16");
  ExpectRefused(Config("LlamaForCausalLM", inner + "0.5}"),
                "partial_rotary_factor is not served for this family");
}

TEST(ModelConfigJson, LayersMayStayUnturned) {
  const std::string smol = "SmolLM3ForCausalLM";
  const absl::StatusOr<ModelConfig> config = Parse(Config(smol, ""));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->HasRope(0));
  EXPECT_FALSE(config->HasRope(3));
  // An entry of 1 turns.
  const absl::StatusOr<ModelConfig> listed = Parse(Config(smol, R"(,"no_rope_layers":[0,1,1,1])"));
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_FALSE(listed->HasRope(0));
  EXPECT_TRUE(listed->HasRope(3));
  ExpectRefused(Config(smol, R"(,"no_rope_layers":[1])"), "no_rope_layers has 1 entries");
  ExpectRefused(Config(smol, R"(,"no_rope_layers":[1,2,1,1])"), "no_rope_layers may hold 0 and 1");
  const absl::StatusOr<ModelConfig> cohere = Parse(Config("Cohere2ForCausalLM", ""));
  ASSERT_TRUE(cohere.ok()) << cohere.status();
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(cohere->HasRope(layer), layer != 3);
    EXPECT_EQ(cohere->layer_windows[static_cast<size_t>(layer)], layer != 3 ? 4'096 : 0);
  }
}

constexpr const char* kExperts =
    R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":24)";

// As Qwen/Qwen3-30B-A3B publishes it, where norm_topk_prob is true; it is false where it is absent.
TEST(ModelConfigJson, ReadsExperts) {
  const std::string qwen = "Qwen3MoeForCausalLM";
  const absl::StatusOr<ModelConfig> config = Parse(
      Config(qwen, std::string(kExperts) + R"(,"norm_topk_prob":true,"mlp_only_layers":[2])"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.width, 24);
  EXPECT_EQ(config->experts.rule.chosen, 2);
  EXPECT_TRUE(config->experts.rule.renormalise);
  EXPECT_EQ(config->experts.layers, (std::vector<bool>{true, true, false, true}));
  const absl::StatusOr<ModelConfig> plain = Parse(Config(qwen, kExperts));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->experts.rule.renormalise);
  EXPECT_NE(load::CanonicalText(*plain), load::CanonicalText(*config));
}

TEST(ModelConfigJson, RefusesExpertsByName) {
  const std::string qwen = "Qwen3MoeForCausalLM";
  const std::string some = R"(,"moe_intermediate_size":24,"num_experts":8)";
  ExpectRefused(Config(qwen, some), "num_experts_per_tok is missing");
  ExpectRefused(Config(qwen, R"(,"num_experts_per_tok":2)"), "num_experts is missing");
  ExpectRefused(Config(qwen, some + R"(,"num_experts_per_tok":9)"),
                "num_experts_per_tok is 9, allowed are 1 to 8");
  ExpectRefused(Config(qwen, some + R"(,"num_experts_per_tok":0)"), "num_experts_per_tok is 0");
  ExpectRefused(Config(qwen, R"(,"num_experts":1025,"num_experts_per_tok":1,)"
                             R"("moe_intermediate_size":24)"),
                "num_experts is 1025, allowed are 1 to 1024");
  const std::string experts = kExperts;
  ExpectRefused(Config(qwen, experts + R"(,"decoder_sparse_step":0)"), "decoder_sparse_step");
  ExpectRefused(Config(qwen, experts + R"(,"mlp_only_layers":[4])"),
                "mlp_only_layers may hold numbers of layers from 0 to 3");
  ExpectRefused(Config("Qwen2MoeForCausalLM", kExperts),
                "shared_expert_intermediate_size is missing");
}

TEST(ModelConfigJson, ReadsGptOss) {
  const std::string oss = "GptOssForCausalLM";
  const std::string experts = R"(,"num_local_experts":8,"num_experts_per_tok":4)";
  const absl::StatusOr<ModelConfig> config = Parse(Config(oss, experts));
  EXPECT_FALSE(config.ok()) << "as many heads as are published do not share 4";
  const std::string heads = experts + R"(,"num_key_value_heads":2)";
  const absl::StatusOr<ModelConfig> good = Parse(Config(oss, heads));
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(good->experts.biases);
  EXPECT_TRUE(good->experts.rule.renormalise);
  EXPECT_EQ(good->layer_windows, (std::vector<int>{128, 0, 128, 0}));
  ExpectRefused(Config(oss, heads + R"(,"swiglu_limit":6)"), "swiglu_limit is 6, served is 7");
  ExpectRefused(Config(oss, heads + R"(,"swiglu_alpha":1)"), "swiglu_alpha is 1, served is 1.702");
}

TEST(ModelConfigJson, ChecksGroupsOfExperts) {
  absl::StatusOr<ModelConfig> config = Parse(Config("Qwen3MoeForCausalLM", kExperts));
  ASSERT_TRUE(config.ok());
  config->experts.rule.groups = 3;
  EXPECT_NE(StatusMessage(CheckModelConfig(*config)).find("n_group is 3, num_experts 8 does not"),
            std::string::npos);
  config->experts.rule.groups = 8;
  EXPECT_NE(StatusMessage(CheckModelConfig(*config)).find("topk_group is 1, groups of 1 experts"),
            std::string::npos);
  config->experts.rule.groups_used = 9;
  EXPECT_NE(StatusMessage(CheckModelConfig(*config)).find("topk_group is 9, allowed are 1 to 8"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::model
