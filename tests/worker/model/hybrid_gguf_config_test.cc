// GGUF metadata of Nemotron-H, Granite 4 H, Qwen3-Next, Qwen3.5 and Gemma 4: what a layer is
// follows from its numbers, and numbers that do not fit are named.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/kv_layout.h"
#include "tests/worker/load/file_maker.h"
#include "worker/model/family.h"

namespace quire::model {
namespace {

using kernels::kNoKeys;
using load::GgufMaker;
using load::ModelConfig;
using Mixer = ModelConfig::Mixer;

// Metadata of one architecture; a case replaces what it is about.
class HybridGguf {
 public:
  explicit HybridGguf(std::string architecture) : architecture_(std::move(architecture)) {}
  HybridGguf& Number(const std::string& key, uint32_t value) {
    return Numbers(key, {value}, false);
  }
  HybridGguf& Numbers(const std::string& key, std::vector<uint32_t> values, bool array = true) {
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.values = std::move(values);
      entry.array = array;
      return *this;
    }
    entries_.push_back({key, std::move(values), array});
    return *this;
  }
  HybridGguf& Switch(const std::string& key, bool on) {
    switches_.emplace_back(key, on);
    return *this;
  }
  HybridGguf& Tensor(const std::string& name) {
    tensors_.push_back(name);
    return *this;
  }
  absl::StatusOr<ModelConfig> Read() const {
    GgufMaker maker;
    maker.String("general.architecture", architecture_);
    maker.Float32(architecture_ + ".attention.layer_norm_rms_epsilon", 1e-5f);
    for (const Entry& entry : entries_) {
      const std::string key = architecture_ + "." + entry.key;
      if (!entry.array) {
        maker.Uint32(key, entry.values[0]);
        continue;
      }
      constexpr uint32_t kUint32 = 4, kArray = 9;
      std::string bytes;
      load::Append(bytes, kUint32);
      load::Append(bytes, static_cast<uint64_t>(entry.values.size()));
      for (const uint32_t value : entry.values) load::Append(bytes, value);
      maker.Pair(key, kArray, bytes);
    }
    constexpr uint32_t kBool = 7;
    for (const auto& [key, on] : switches_) {
      maker.Pair(architecture_ + "." + key, kBool, std::string(1, on ? '\1' : '\0'));
    }
    maker.Tensor("token_embd.weight", {64, 100}, 0, 0);
    uint64_t end = 64 * 100 * 4;
    for (const std::string& name : tensors_) {
      maker.Tensor(name, {64}, 0, end);
      end += 64 * 4;
    }
    const std::string file = maker.Make(end);
    const auto gguf = load::GgufFile::Parse(load::AsBytes(file), "m.gguf");
    EXPECT_TRUE(gguf.ok()) << gguf.status();
    if (!gguf.ok()) return gguf.status();
    return ModelConfigFromGguf(*gguf, "m.gguf");
  }
  void ExpectRefusal(std::string_view saying) const {
    const absl::StatusOr<ModelConfig> config = Read();
    ASSERT_FALSE(config.ok()) << saying;
    EXPECT_NE(StatusMessage(config.status()).find(saying), std::string::npos) << config.status();
  }

 private:
  struct Entry {
    std::string key;
    std::vector<uint32_t> values;
    bool array;
  };
  std::string architecture_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, bool>> switches_;
  std::vector<std::string> tensors_;
};

HybridGguf Common(const std::string& architecture) {
  HybridGguf file(architecture);
  file.Number("embedding_length", 64).Number("block_count", 4).Number("context_length", 512);
  file.Number("attention.head_count", 4).Number("feed_forward_length", 96);
  file.Number("attention.head_count_kv", 2).Number("attention.key_length", 32);
  file.Number("attention.value_length", 32).Number("rope.dimension_count", 32);
  file.Number("ssm.conv_kernel", 4).Number("ssm.group_count", 2).Number("ssm.state_size", 20);
  return file.Number("ssm.time_step_rank", 6).Number("ssm.inner_size", 144);
}

HybridGguf Nemotron() {
  HybridGguf file = Common("nemotron_h");
  file.Number("rope.dimension_count", 16);  // of a rotation that there is not
  file.Numbers("attention.head_count_kv", {0, 0, 2, 0});
  return file.Numbers("feed_forward_length", {0, 96, 0, 0});
}

TEST(HybridGgufConfig, NumbersOfLayersSayWhatTheyAre) {
  const auto config = Nemotron().Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->mixers, (std::vector<Mixer>{Mixer::kRecurrent, Mixer::kMlp, Mixer::kAttention,
                                                Mixer::kRecurrent}));
  EXPECT_EQ(config->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, 0, kNoKeys}));
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->recurrent.value_dim, 24);
  EXPECT_FALSE(config->rotary);
  // The last block predicts further tokens.
  const auto more = Nemotron()
                        .Number("block_count", 5)
                        .Number("nextn_predict_layers", 1)
                        .Numbers("attention.head_count_kv", {0, 0, 2, 0, 2})
                        .Numbers("feed_forward_length", {0, 96, 0, 0, 96})
                        .Read();
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(load::CanonicalText(*more), load::CanonicalText(*config));
}

TEST(HybridGgufConfig, WhatNemotronDoesNotServeIsNamed) {
  Nemotron().Numbers("feed_forward_length", {0, 96, 0}).ExpectRefusal("feed_forward_length must");
  Nemotron().Numbers("feed_forward_length", {0, 96, 0, 64}).ExpectRefusal("layers that differ");
  Nemotron().Numbers("attention.head_count_kv", {0, 0, 0, 0}).ExpectRefusal("no number above 0");
  Nemotron()
      .Numbers("feed_forward_length", {96, 96, 0, 96})
      .ExpectRefusal("leaves no layer of Mamba-2");
  Nemotron().Number("ssm.time_step_rank", 5).ExpectRefusal("must divide ssm.inner_size");
  Nemotron().Number("ssm.time_step_rank", 0).ExpectRefusal("must divide ssm.inner_size");
  Nemotron().Number("ssm.group_count", 4).ExpectRefusal("no multiple of n_groups 4");
  Nemotron().Number("moe_latent_size", 16).ExpectRefusal("moe_latent_size");
}

TEST(HybridGgufConfig, Qwen35HasItsValueHeadsApart) {
  HybridGguf file = Common("qwen35").Number("ssm.state_size", 24);
  const auto config = file.Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layer_windows, (std::vector<int>{kNoKeys, kNoKeys, kNoKeys, 0}));
  EXPECT_TRUE(config->recurrent.tiled);
  EXPECT_TRUE(config->gated_attention);
  EXPECT_EQ(config->norm_weight_offset, 0.0);
  const auto listed = file.Numbers("attention.recurrent_layers", {0, 1, 1, 0}).Read();
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->layer_windows, (std::vector<int>{0, kNoKeys, kNoKeys, 0}));
  const auto even = file.Number("ssm.group_count", 6).Read();
  ASSERT_TRUE(even.ok()) << even.status();
  EXPECT_FALSE(even->recurrent.tiled);
  file.Numbers("attention.recurrent_layers", {0, 1}).ExpectRefusal("recurrent_layers must have 4");
  Common("qwen35").Number("full_attention_interval", 0).ExpectRefusal("full_attention_interval");
  Common("qwen35").Number("ssm.time_step_rank", 7).ExpectRefusal("must divide ssm.inner_size");
}

// Both forms of files keep the value heads of a key head together.
TEST(HybridGgufConfig, Qwen3NextHasItsGatesByKeyHead) {
  HybridGguf file = Common("qwen3next");
  file.Number("expert_count", 4).Number("expert_used_count", 2);
  const auto config = file.Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->recurrent.tiled);
  EXPECT_TRUE(config->recurrent.packed_gates);
  EXPECT_FALSE(config->recurrent.packed);
  EXPECT_TRUE(config->experts.rule.renormalise);
  const auto older = file.Tensor("blk.1.ssm_in.weight").Read();
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_TRUE(older->recurrent.packed);
}

HybridGguf Granite() {
  HybridGguf file = Common("granitehybrid");
  file.Numbers("attention.head_count_kv", {0, 2, 0, 0});
  return file.Number("expert_shared_feed_forward_length", 128);
}

TEST(HybridGgufConfig, LayersOfGraniteWithoutKvHeadsAreOfMamba) {
  HybridGguf dense = Granite().Switch("rope.scaling.finetuned", false);
  const auto config = dense.Read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layer_windows, (std::vector<int>{kNoKeys, 0, kNoKeys, kNoKeys}));
  EXPECT_EQ(config->intermediate_size, 128);
  EXPECT_FALSE(config->rotary);
  EXPECT_FALSE(config->recurrent.biases);
  HybridGguf biases = Granite().Switch("rope.scaling.finetuned", false);
  const auto with = biases.Tensor("blk.2.ssm_conv1d.bias").Tensor("blk.1.attn_q.bias").Read();
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_TRUE(with->recurrent.biases);
  EXPECT_TRUE(with->qkv_bias);
  const auto experts = dense.Number("expert_count", 4).Number("expert_used_count", 2).Read();
  ASSERT_TRUE(experts.ok()) << experts.status();
  EXPECT_EQ(experts->experts.width, 96);
  EXPECT_EQ(experts->experts.shared_width, 128);
  EXPECT_FALSE(experts->experts.shared_gated);
}

TEST(HybridGgufConfig, WhatGraniteDoesNotServeIsNamed) {
  Granite().ExpectRefusal("rope.scaling.finetuned is true");
  Granite()
      .Switch("rope.scaling.finetuned", true)
      .ExpectRefusal("served are files where they do not");
  Granite().Numbers("attention.head_count_kv", {2, 2, 2, 2}).ExpectRefusal("no layer of Mamba-2");
  Granite().Number("attention.head_count_kv", 2).ExpectRefusal("no layer of Mamba-2");
  Granite().Numbers("attention.head_count_kv", {0, 2, 0}).ExpectRefusal("must have 4 numbers");
  Granite().Number("ssm.time_step_rank", 5).ExpectRefusal("must divide ssm.inner_size");
}

HybridGguf Gemma() {
  HybridGguf file = Common("gemma4");
  file.Number("attention.key_length_swa", 16).Number("attention.sliding_window", 12);
  return file.Numbers("attention.sliding_window_pattern", {1, 1, 0, 0});
}

TEST(HybridGgufConfig, WhatGemma4DoesNotServeIsNamed) {
  Gemma().ExpectRefusal("rope_freqs.weight must hold 16 numbers");
  Gemma().Numbers("attention.head_count_kv", {2, 1, 1, 1}).ExpectRefusal("layers of one kind");
  Gemma().Numbers("feed_forward_length", {96, 64, 96, 96}).ExpectRefusal("layer 1 has 64");
  Gemma().Numbers("feed_forward_length", {96, 96, 96, 192}).ExpectRefusal("layer 3 has 192");
  Gemma().Numbers("attention.sliding_window_pattern", {1}).ExpectRefusal("pattern must have 4");
  Gemma().Number("attention.sliding_window", 0).ExpectRefusal("sliding_window must be above 0");
  Gemma().Number("attention.shared_kv_layers", 4).ExpectRefusal("shared_kv_layers is 4 of 4");
  Gemma().Number("rope.dimension_count_swa", 8).ExpectRefusal("rope.dimension_count_swa is 8");
}

}  // namespace
}  // namespace quire::model
