// Latent attention from files to a program: what configurations mean, refusals by name, tensors,
// the parts of ranks.
#include <gtest/gtest.h>

#include <cmath>
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

// Two dense layers of four heads of 4 + 2 elements; `more` begins with a comma.
std::string LatentConfigText(const std::string& architecture, const std::string& more) {
  return R"({"architectures":[")" + architecture +
         R"("],"vocab_size":10,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,)"
         R"("num_attention_heads":4,"num_key_value_heads":4,"head_dim":2,"n_routed_experts":4,)"
         R"("num_experts_per_tok":2,"moe_intermediate_size":6,"first_k_dense_replace":2,)"
         R"("n_group":1,"topk_group":1)" +
         more + "}";
}

constexpr const char* kLatentFields =
    R"(,"q_lora_rank":6,"kv_lora_rank":5,"qk_nope_head_dim":4,"qk_rope_head_dim":2,"v_head_dim":3)";
constexpr const char* kLatentYarn =
    R"(,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0,)"
    R"("original_max_position_embeddings":4096})";

absl::StatusOr<ModelConfig> ParseLatent(const std::string& text) {
  const absl::StatusOr<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return ModelConfigFromJson(value->as_object(), "m/config.json");
}

TEST(LatentConfigs, FieldsOfDeepSeekV3) {
  const auto config = ParseLatent(
      LatentConfigText("DeepseekV3ForCausalLM", std::string(kLatentFields) + kLatentYarn));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "deepseek_v3");
  EXPECT_EQ(config->latent.rank, 5);
  EXPECT_EQ(config->latent.query_rank, 6);
  EXPECT_EQ(config->latent.value_dim, 3);
  EXPECT_TRUE(config->latent.pairs);
  // The file's head_dim is the part that turns.
  EXPECT_EQ(config->head_dim, 6);
  EXPECT_EQ(config->RotaryDim(), 2);
  EXPECT_EQ(config->CacheDim(), 7);
  EXPECT_EQ(config->kv_heads, 1);
  // Both factors are there, so that cosines keep their size and scores grow.
  const double magnitude = 0.1 * std::log(40.0) + 1.0;
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 1.0);
  EXPECT_DOUBLE_EQ(config->attention_scale, magnitude * magnitude / std::sqrt(6.0));
  EXPECT_EQ(config->experts.rule.scale, 2.5f);
  EXPECT_FALSE(config->HasExperts(1));
}

TEST(LatentConfigs, FieldsOfDeepSeekV2Lite) {
  const auto config = ParseLatent(LatentConfigText(
      "DeepseekV2ForCausalLM",
      R"(,"q_lora_rank":null,"kv_lora_rank":5,"qk_nope_head_dim":4,"qk_rope_head_dim":2,)"
      R"("v_head_dim":3,"scoring_func":"softmax","topk_method":"greedy")"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->latent.query_rank, 0);
  EXPECT_FALSE(config->experts.rule.renormalise);
  EXPECT_FALSE(config->experts.selection_bias);
  EXPECT_DOUBLE_EQ(config->attention_scale, 1.0 / std::sqrt(6.0));
}

TEST(LatentConfigs, GroupsOfDeepSeekV2AreAsGoodAsTheirBestExpert) {
  const auto once = ParseLatent(
      R"({"model_type":"deepseek_v2","vocab_size":10,"hidden_size":8,"intermediate_size":12,)"
      R"("num_hidden_layers":2,"num_attention_heads":4,"n_routed_experts":4,)"
      R"("num_experts_per_tok":2,"moe_intermediate_size":6,"topk_method":"group_limited_greedy",)"
      R"("n_group":2,"topk_group":1)" +
      std::string(kLatentFields) + "}");
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_EQ(once->experts.rule.groups, 2);
  EXPECT_EQ(once->experts.rule.best_of_group, 1);
}

void ExpectLatentRefused(const std::string& architecture, const std::string& more,
                         std::string_view saying) {
  const auto config = ParseLatent(LatentConfigText(architecture, more));
  ASSERT_FALSE(config.ok()) << saying;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
  EXPECT_EQ(StatusMessage(config.status()).find('\n'), std::string::npos);
}

TEST(LatentConfigs, RefuseByName) {
  const std::string v3 = "DeepseekV3ForCausalLM", v2 = "DeepseekV2ForCausalLM";
  const std::string fields = kLatentFields;
  ExpectLatentRefused(v3, "", "kv_lora_rank is missing");
  ExpectLatentRefused(v3,
                      R"(,"kv_lora_rank":0,"qk_nope_head_dim":4,"qk_rope_head_dim":2,)"
                      R"("v_head_dim":3)",
                      "kv_lora_rank must be at least 1");
  ExpectLatentRefused(v3,
                      R"(,"kv_lora_rank":1023,"qk_nope_head_dim":4,"qk_rope_head_dim":2,)"
                      R"("v_head_dim":3)",
                      "kv_lora_rank is 1023, allowed are 1 to 1022");
  ExpectLatentRefused(v3,
                      R"(,"kv_lora_rank":5,"qk_nope_head_dim":4,"qk_rope_head_dim":3,)"
                      R"("v_head_dim":3)",
                      "3 of 7 elements of a head turn, it must be an even number");
  ExpectLatentRefused(v3,
                      R"(,"kv_lora_rank":5,"qk_nope_head_dim":0,"qk_rope_head_dim":2,)"
                      R"("v_head_dim":3)",
                      "qk_rope_head_dim is 2, allowed are 2 to 1");
  ExpectLatentRefused(v3,
                      R"(,"kv_lora_rank":5,"qk_nope_head_dim":4,"qk_rope_head_dim":2,)"
                      R"("v_head_dim":0)",
                      "v_head_dim is 0");
  ExpectLatentRefused(v3, fields + R"(,"index_topk":64)", "index_topk: sparse attention");
  ExpectLatentRefused(v2, fields + R"(,"norm_topk_prob":true)", "norm_topk_prob is true");
  ExpectLatentRefused(v3, fields + R"(,"rope_scaling":{"type":"dynamic","factor":2})",
                      "rope type \"dynamic\" is not served");
  for (const char* name :
       {"DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "GlmMoeDsaForCausalLM"}) {
    ExpectLatentRefused(name, fields,
                        std::string("architecture \"") + name +
                            "\" is not served: it has sparse attention with an indexer; served");
  }
  ExpectLatentRefused("Glm4MoeLiteForCausalLM", fields + R"(,"mlp_layer_types":["dense"])",
                      "experts are named for 1 of 2 layers");
  ExpectLatentRefused("Glm4MoeLiteForCausalLM", fields + R"(,"mlp_layer_types":["none","dense"])",
                      "mlp_layer_types may hold");
}

Checkpoint SmallLatent() {
  Checkpoint checkpoint = {{"model.embed_tokens.weight", {{10, 8}}},
                           {"model.norm.weight", {{8}}},
                           {"lm_head.weight", {{10, 8}}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    checkpoint[layer + "input_layernorm.weight"] = {{8}};
    checkpoint[layer + "post_attention_layernorm.weight"] = {{8}};
    checkpoint[layer + "self_attn.q_a_proj.weight"] = {{6, 8}};
    checkpoint[layer + "self_attn.q_a_layernorm.weight"] = {{6}};
    checkpoint[layer + "self_attn.q_b_proj.weight"] = {{24, 6}};
    checkpoint[layer + "self_attn.kv_a_proj_with_mqa.weight"] = {{7, 8}};
    checkpoint[layer + "self_attn.kv_a_layernorm.weight"] = {{5}};
    checkpoint[layer + "self_attn.kv_b_proj.weight"] = {{28, 5}};
    checkpoint[layer + "self_attn.o_proj.weight"] = {{8, 12}};
    checkpoint[layer + "mlp.gate_proj.weight"] = {{12, 8}};
    checkpoint[layer + "mlp.up_proj.weight"] = {{12, 8}};
    checkpoint[layer + "mlp.down_proj.weight"] = {{8, 12}};
  }
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Model>> LoadLatent(const Checkpoint& checkpoint) {
  const load::TempFolder folder;
  folder.Write("config.json", LatentConfigText("DeepseekV3ForCausalLM", kLatentFields));
  folder.Write("model.safetensors", load::Safetensors(checkpoint));
  return LoadModel(folder.path(), {.with_text = false});
}

template <typename Op>
std::vector<Op> LatentOps(const kernels::StepProgram& program) {
  std::vector<Op> found;
  for (const kernels::Op& op : program.ops) {
    if (const auto* own = std::get_if<Op>(&op)) found.push_back(*own);
  }
  return found;
}

// Heads are divided among ranks, and every rank has the whole latent.
TEST(LatentModels, RanksShareHeadsAndRepeatLatents) {
  const auto model = LoadLatent(SmallLatent());
  ASSERT_TRUE(model.ok()) << model.status();
  for (const int ranks : {1, 2, 4}) {
    const auto program = (*model)->BuildRank({ranks - 1, ranks});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(program->latents);
    EXPECT_EQ(program->kv_heads, 1);
    EXPECT_EQ(program->head_dim, 7);
    EXPECT_EQ(program->heads, 4 / ranks);
    const auto heads = LatentOps<kernels::HeadLinearOp>(*program);
    ASSERT_EQ(heads.size(), 4u);
    EXPECT_EQ(heads[0].weights.size(), static_cast<size_t>(4 / ranks));
    const auto& keys = program->weights[static_cast<size_t>(heads[0].weights[0])];
    EXPECT_EQ(keys.rows, 5);
    EXPECT_EQ(keys.cols, 4);
    const auto& values = program->weights[static_cast<size_t>(heads[1].weights[0])];
    EXPECT_EQ(values.rows, 3);
    EXPECT_EQ(values.cols, 5);
    const auto attention = LatentOps<kernels::LatentAttentionOp>(*program);
    ASSERT_EQ(attention.size(), 2u);
    EXPECT_EQ(attention[0].heads, 4 / ranks);
    EXPECT_TRUE(LatentOps<kernels::AttentionOp>(*program).empty());
  }
  const auto three = (*model)->BuildRank({0, 3});
  ASSERT_FALSE(three.ok());
  EXPECT_NE(StatusMessage(three.status()).find("4 attention heads do not divide among 3 ranks"),
            std::string::npos);
}

TEST(LatentModels, NameTensorsThatAreMissingOrMisshapen) {
  const std::string attention = "model.layers.1.self_attn.";
  for (const auto& [name, shape] : SmallLatent()) {
    if (name.find(attention) == std::string::npos) continue;
    Checkpoint checkpoint = SmallLatent();
    checkpoint.erase(name);
    auto model = LoadLatent(checkpoint);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(StatusMessage(model.status()).find("\"" + name + "\" is missing"), std::string::npos)
        << model.status();
    checkpoint[name] = shape;
    checkpoint[name].dimensions.front() += 2;
    model = LoadLatent(checkpoint);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(StatusMessage(model.status()).find("the configuration demands"), std::string::npos)
        << model.status();
  }
  Checkpoint checkpoint = SmallLatent();
  checkpoint[attention + "kv_b_proj.weight"].type = "U8";
  const auto model = LoadLatent(checkpoint);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(StatusMessage(model.status()).find("kv_b_proj.weight\" has type U8"), std::string::npos)
      << model.status();
  checkpoint = SmallLatent();
  checkpoint[attention + "indexer.wk.weight"] = {{4, 8}};
  EXPECT_NE(StatusMessage(LoadLatent(checkpoint).status()).find("indexer.wk.weight"),
            std::string::npos);
}

load::GgufMaker LatentGguf() {
  load::GgufMaker maker;
  maker.String("general.architecture", "deepseek2").Uint32("deepseek2.context_length", 16);
  maker.Uint32("deepseek2.embedding_length", 8).Uint32("deepseek2.block_count", 1);
  maker.Uint32("deepseek2.feed_forward_length", 8).Uint32("deepseek2.attention.head_count", 2);
  maker.Uint32("deepseek2.attention.head_count_kv", 1);
  maker.Float32("deepseek2.attention.layer_norm_rms_epsilon", 1e-5f);
  maker.Uint32("deepseek2.attention.kv_lora_rank", 6).Uint32("deepseek2.rope.dimension_count", 2);
  return maker;
}

absl::StatusOr<ModelConfig> ReadLatentGguf(load::GgufMaker& maker) {
  const std::string bytes = maker.Tensor("token_embd.weight", {8, 4}, 0, 0).Make(128);
  const auto file = load::GgufFile::Parse(load::AsBytes(bytes), "m.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return ModelConfigFromGguf(*file, "m.gguf");
}

TEST(LatentGguf, SizesAndYarn) {
  load::GgufMaker maker = LatentGguf();
  maker.Uint32("deepseek2.attention.key_length", 8).Uint32("deepseek2.attention.value_length", 6);
  maker.Uint32("deepseek2.attention.key_length_mla", 6);
  maker.Uint32("deepseek2.attention.value_length_mla", 4);
  maker.String("deepseek2.rope.scaling.type", "yarn");
  maker.Float32("deepseek2.rope.scaling.factor", 4.0f);
  maker.Uint32("deepseek2.rope.scaling.original_context_length", 16);
  maker.Float32("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
  const auto config = ReadLatentGguf(maker);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 6);
  EXPECT_EQ(config->CacheDim(), 8);
  EXPECT_EQ(config->latent.value_dim, 4);
  EXPECT_EQ(config->rope.attention_factor, 1.0);
  const double magnitude = 0.1 * std::log(4.0) + 1.0;
  EXPECT_NEAR(config->attention_scale, magnitude * magnitude / std::sqrt(6.0), 1e-7);
}

TEST(LatentGguf, RefusesByName) {
  load::GgufMaker older = LatentGguf();
  older.Uint32("deepseek2.attention.key_length", 6);
  const auto joined = ReadLatentGguf(older);
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(StatusMessage(joined.status()).find("deepseek2.attention.key_length_mla is missing"),
            std::string::npos);
  load::GgufMaker wrong = LatentGguf();
  wrong.Uint32("deepseek2.attention.key_length", 9);
  wrong.Uint32("deepseek2.attention.key_length_mla", 6);
  wrong.Uint32("deepseek2.attention.value_length_mla", 4);
  EXPECT_NE(StatusMessage(ReadLatentGguf(wrong).status())
                .find("attention.key_length is 9, expected is 8"),
            std::string::npos);
  load::GgufMaker many = LatentGguf();
  many.Uint32("deepseek2.attention.key_length_mla", 6);
  many.Uint32("deepseek2.attention.value_length_mla", 4);
  many.Uint32("deepseek2.expert_count", 4).Uint32("deepseek2.expert_used_count", 2);
  many.Uint32("deepseek2.expert_feed_forward_length", 1 << 20);
  many.Uint32("deepseek2.expert_shared_count", 0xffffffff);
  EXPECT_NE(StatusMessage(ReadLatentGguf(many).status()).find("shared_expert_intermediate_size is"),
            std::string::npos);
  load::GgufMaker sparse;
  sparse.String("general.architecture", "deepseek32");
  EXPECT_NE(StatusMessage(ReadLatentGguf(sparse).status())
                .find("\"deepseek32\" is not served: it has sparse attention with an indexer"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::model
