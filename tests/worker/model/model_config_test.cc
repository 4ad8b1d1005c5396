// One ModelConfig from the spellings that are in use, and refusals that name the field.
#include <gtest/gtest.h>

#include <cmath>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "tests/worker/model/config_text.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using load::GgufMaker;
using load::ModelConfig;
using load::RopeConfig;

// In the order of the table.
std::string TitlesOfServed() {
  std::string titles;
  for (const Family* family : ServedFamilies()) {
    titles += (titles.empty() ? "" : ", ") + std::string(family->title);
  }
  return titles;
}

std::string GgufNamesOfServed() {
  std::string names;
  for (const Family* family : ServedFamilies()) {
    for (const std::string_view own : {family->gguf.architecture, family->gguf.with_experts}) {
      if (!own.empty()) names += (names.empty() ? "" : ", ") + std::string(own);
    }
  }
  return names;
}

// Files may hold Python's Infinity, where a limit means that there is none.
TEST(ModelConfigJson, InfinityIsNoNumberOfAModel) {
  ExpectRefused(Config("LlamaForCausalLM", R"(,"rope_theta":Infinity)"),
                "rope_theta must be a finite");
  ExpectRefused(Config("LlamaForCausalLM", R"(,"rms_norm_eps":-Infinity)"),
                "rms_norm_eps must be a finite");
  ExpectRefused(
      Config("LlamaForCausalLM",
             R"(,"rope_parameters":{"rope_type":"linear","rope_theta":1e4,"factor":Infinity})"),
      "factor must be a finite");
}

TEST(ModelConfigJson, LlamaDefaults) {
  const ModelConfig config = Good("LlamaForCausalLM", "");
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.attention_scale, 0.25);
  EXPECT_EQ(config.rope.theta, 10'000.0);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.layer_windows, (std::vector<int>{0, 0, 0, 0}));
}

TEST(ModelConfigJson, OlderAndNewerRopeSpellingsAgree) {
  const char* const kScaling =
      R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192)";
  const ModelConfig older =
      Good("LlamaForCausalLM",
           std::string(R"(,"rope_theta":500000,"rope_scaling":{"rope_type":"llama3",)") + kScaling +
               "}");
  const ModelConfig newer =
      Good("LlamaForCausalLM",
           std::string(R"(,"rope_parameters":{"rope_theta":500000,"rope_type":"llama3",)") +
               kScaling + "}");
  EXPECT_EQ(older.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(older.rope.theta, 500'000.0);
  EXPECT_EQ(older.rope.factor, 8.0);
  EXPECT_EQ(CanonicalText(older), CanonicalText(newer));
  const ModelConfig oldest =
      Good("LlamaForCausalLM", R"(,"rope_scaling":{"type":"linear","factor":2.0})");
  EXPECT_EQ(oldest.rope.scaling, RopeConfig::Scaling::kLinear);
  EXPECT_EQ(oldest.rope.factor, 2.0);
}

TEST(ModelConfigJson, Yarn) {
  const ModelConfig config = Good(
      "Qwen2ForCausalLM",
      R"(,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768})");
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(config.rope.original_context, 32'768.0);
  EXPECT_NEAR(config.rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
  // The context that it stretches to, whether or not the file says so already.
  EXPECT_EQ(config.max_positions, 131'072);
  const ModelConfig said =
      Good("Qwen2ForCausalLM",
           R"(,"max_position_embeddings":131072,"original_max_position_embeddings":32768,)"
           R"("rope_scaling":{"type":"yarn","factor":4.0})");
  EXPECT_EQ(CanonicalText(said), CanonicalText(config));
}

TEST(ModelConfigJson, TiedDefaultsFollowTheFamily) {
  EXPECT_FALSE(Good("Qwen2ForCausalLM", "").tied_embeddings);
  EXPECT_TRUE(Good("Gemma3ForCausalLM", "").tied_embeddings);
  EXPECT_TRUE(Good("OPTForCausalLM", R"(,"ffn_dim":96)").tied_embeddings);
  EXPECT_FALSE(Good("Gemma3ForCausalLM", R"(,"tie_word_embeddings":false)").tied_embeddings);
}

TEST(ModelConfigJson, Windows) {
  EXPECT_EQ(Good("MistralForCausalLM", R"(,"sliding_window":12)").layer_windows,
            (std::vector<int>{12, 12, 12, 12}));
  EXPECT_EQ(Good("MistralForCausalLM", R"(,"sliding_window":null)").layer_windows,
            (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(Good("MistralForCausalLM", "").layer_windows, (std::vector<int>(4, 4096)));
  EXPECT_EQ(Good("Qwen2ForCausalLM",
                 R"(,"use_sliding_window":true,"sliding_window":8,"max_window_layers":3)")
                .layer_windows,
            (std::vector<int>{0, 0, 0, 8}));
  EXPECT_EQ(Good("Qwen2ForCausalLM",
                 R"(,"use_sliding_window":false,"sliding_window":8,"max_window_layers":1)")
                .layer_windows,
            (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(
      Good("Gemma3ForCausalLM", R"(,"sliding_window":9,"sliding_window_pattern":2)").layer_windows,
      (std::vector<int>{9, 0, 9, 0}));
  EXPECT_EQ(Good("Gemma3ForCausalLM",
                 R"(,"sliding_window":9,"layer_types":["full_attention","sliding_attention",)"
                 R"("sliding_attention","full_attention"])")
                .layer_windows,
            (std::vector<int>{0, 9, 9, 0}));
}

TEST(ModelConfigJson, GemmaHasARopePerKindOfLayer) {
  const ModelConfig older = Good(
      "Gemma3ForCausalLM",
      R"(,"rope_theta":1000000,"rope_local_base_freq":10000,"rope_scaling":{"rope_type":"linear","factor":8})");
  const ModelConfig newer = Good(
      "Gemma3ForCausalLM",
      R"(,"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1000000},)"
      R"("sliding_attention":{"rope_type":"default","rope_theta":10000}})");
  EXPECT_EQ(older.rope.factor, 8.0);
  EXPECT_EQ(older.sliding_rope.theta, 10'000.0);
  EXPECT_EQ(older.sliding_rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(CanonicalText(older), CanonicalText(newer));
  EXPECT_EQ(older.norm_weight_offset, 1.0);
  EXPECT_EQ(older.attention_scale, 1.0 / 16.0);
}

TEST(ModelConfigJson, ImageAndTextCheckpointsKeepTheTextOneLevelDown) {
  const absl::StatusOr<ModelConfig> config = Parse(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","text_config":)" +
      Config("", R"(,"head_dim":32)") + "}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "gemma3");
  EXPECT_EQ(config->head_dim, 32);
}

// As google/gemma-3-4b-it publishes it.
TEST(ModelConfigJson, GemmaFillsInWhatImageAndTextCheckpointsLeaveOut) {
  const absl::StatusOr<ModelConfig> config = Parse(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"hidden_size":2560,)"
      R"("intermediate_size":10240,"model_type":"gemma3_text","num_hidden_layers":34,)"
      R"("rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->vocab_size, 262'208);
  EXPECT_EQ(config->heads, 8);
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_EQ(config->layer_windows[4], 1'024);
  EXPECT_EQ(config->layer_windows[5], 0);
  EXPECT_EQ(config->rope.factor, 8.0);
  EXPECT_TRUE(config->tied_embeddings);
}

TEST(ModelConfigJson, ModelTypeStandsInForArchitectures) {
  const absl::StatusOr<ModelConfig> config = Parse(
      R"({"model_type":"opt","vocab_size":100,"hidden_size":64,"ffn_dim":96,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"do_layer_norm_before":false,"word_embed_proj_dim":32})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "opt");
  EXPECT_FALSE(config->norm_before);
  EXPECT_FALSE(config->final_norm);
  EXPECT_EQ(config->embedding_size, 32);
  EXPECT_TRUE(config->mlp_bias);
}

TEST(ModelConfigJson, RefusesUnknownArchitecturesWithTheServedOnes) {
  ExpectRefused(Config("MambaForCausalLM", ""),
                "architecture \"MambaForCausalLM\" is not served; served are " + TitlesOfServed());
  ExpectRefused("{}", "architecture \"\" is not served");
}

TEST(ModelConfigJson, RefusesFieldsByName) {
  const std::string llama = "LlamaForCausalLM";
  ExpectRefused(R"({"architectures":["LlamaForCausalLM"]})", "vocab_size is missing");
  ExpectRefused(Config(llama, R"(,"num_key_value_heads":3)"), "num_key_value_heads 3");
  ExpectRefused(Config(llama, R"(,"num_key_value_heads":0)"), "num_key_value_heads is 0");
  ExpectRefused(Config(llama, R"(,"head_dim":15)"), "head_dim is 15");
  ExpectRefused(Config(llama, R"(,"head_dim":-2)"), "head_dim is -2");
  ExpectRefused(Config(llama, R"(,"max_position_embeddings":0)"), "max_position_embeddings is 0");
  ExpectRefused(Config(llama, R"(,"max_position_embeddings":1e18)"), "max_position_embeddings");
  ExpectRefused(Config(llama, R"(,"rope_scaling":{"type":"yarn","factor":-4})"), "rope factor");
  ExpectRefused(Config(llama, R"(,"rms_norm_eps":"small")"), "rms_norm_eps");
  ExpectRefused(Config(llama, R"(,"rms_norm_eps":2)"), "norm epsilon is 2");
  ExpectRefused(Config(llama, R"(,"hidden_act":"gelu")"), "hidden_act \"gelu\" is not served");
  ExpectRefused(Config(llama, R"(,"rope_theta":0)"), "rope_theta is 0");
  ExpectRefused(Config(llama, R"(,"rope_theta":-5)"), "rope_theta");
  ExpectRefused(Config(llama, R"(,"rope_scaling":{"rope_type":"longrope","factor":2})"),
                "rope short_factor has 0 numbers, it must have 8");
  ExpectRefused(
      Config(llama, R"(,"rope_scaling":{"rope_type":"dynamic","factor":2})"),
      "rope type \"dynamic\" is not served; served are default, linear, llama3, longrope and yarn");
  ExpectRefused(Config(llama, R"(,"rope_scaling":{"rope_type":"linear"})"), "needs a factor");
  ExpectRefused(Config(llama, R"(,"partial_rotary_factor":0.5)"), "partial_rotary_factor");
  ExpectRefused(Config("Gemma3ForCausalLM", R"(,"layer_types":["full_attention"])"),
                "layer_types has 1 entries for 4 layers");
  ExpectRefused(Config("Gemma3ForCausalLM", R"(,"sliding_window_pattern":0)"),
                "sliding_window_pattern");
  ExpectRefused(Config("Gemma3ForCausalLM", R"(,"query_pre_attn_scalar":0)"), "attention scale");
}

// As published: Phi-4-mini turns three quarters of a head, GLM-4 a half where its file says
// nothing.
TEST(ModelConfigJson, ScalesAreAboveZero) {
  const std::string granite = "GraniteForCausalLM";
  const absl::StatusOr<ModelConfig> config =
      Parse(Config(granite, R"(,"logits_scaling":8,"residual_multiplier":0.22)"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->logit_scale, 0.125);
  EXPECT_EQ(config->residual_scale, 0.22);
  ExpectRefused(Config(granite, R"(,"logits_scaling":0)"), "scale of the logits");
  ExpectRefused(Config(granite, R"(,"embedding_multiplier":-1)"), "embedding_multiplier is -1");
  ExpectRefused(Config(granite, R"(,"residual_multiplier":0)"), "residual_multiplier is 0");
  EXPECT_TRUE(Good("CohereForCausalLM", R"(,"use_qk_norm":true)").head_norms);
  ExpectRefused(Config("Cohere2ForCausalLM", R"(,"use_qk_norm":true,"sliding_window":8)"),
                "use_qk_norm is not served");
}

GgufMaker LlamaMetadata() {
  GgufMaker maker;
  maker.String("general.architecture", "llama").Uint32("llama.context_length", 128);
  maker.Uint32("llama.embedding_length", 64).Uint32("llama.block_count", 2);
  maker.Uint32("llama.feed_forward_length", 96).Uint32("llama.attention.head_count", 4);
  maker.Uint32("llama.attention.head_count_kv", 2);
  maker.Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  return maker;
}

absl::StatusOr<ModelConfig> FromGguf(const std::string& bytes) {
  const absl::StatusOr<load::GgufFile> file = load::GgufFile::Parse(load::AsBytes(bytes), "m.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return ModelConfigFromGguf(*file, "m.gguf");
}

TEST(ModelConfigGguf, ReadsMetadataAndTensors) {
  const absl::StatusOr<ModelConfig> config =
      FromGguf(LlamaMetadata().Tensor("token_embd.weight", {64, 100}, 0, 0).Make(25'600));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->vocab_size, 100);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_TRUE(config->interleaved_rope);
  EXPECT_EQ(config->layer_windows, (std::vector<int>{0, 0}));
}

TEST(ModelConfigGguf, RefusesByName) {
  const absl::StatusOr<ModelConfig> unknown =
      FromGguf(GgufMaker().String("general.architecture", "rwkv7").Make(0));
  EXPECT_NE(StatusMessage(unknown.status())
                .find("m.gguf: general.architecture \"rwkv7\" is not served; served in GGUF are " +
                      GgufNamesOfServed()),
            std::string::npos);
  const absl::StatusOr<ModelConfig> missing =
      FromGguf(GgufMaker().String("general.architecture", "llama").Make(0));
  EXPECT_NE(StatusMessage(missing.status()).find("\"llama.embedding_length\" is missing"),
            std::string::npos)
      << missing.status();
  const absl::StatusOr<ModelConfig> experts =
      FromGguf(LlamaMetadata()
                   .Uint32("llama.expert_count", 8)
                   .Tensor("token_embd.weight", {64, 100}, 0, 0)
                   .Make(25'600));
  EXPECT_NE(StatusMessage(experts.status()).find("\"llama.expert_used_count\" is missing"),
            std::string::npos)
      << experts.status();
  const absl::StatusOr<ModelConfig> rope =
      FromGguf(LlamaMetadata().String("llama.rope.scaling.type", "longrope").Make(0));
  EXPECT_NE(
      StatusMessage(rope.status()).find("m.gguf: llama.rope.scaling.type \"longrope\" is not"),
      std::string::npos)
      << rope.status();
  const absl::StatusOr<ModelConfig> nothing = FromGguf(GgufMaker().Make(0));
  EXPECT_EQ(nothing.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire::model
