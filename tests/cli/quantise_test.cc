// Which tensors of a model `quire quantize` touches, and which type each gets.
#include <gtest/gtest.h>

#include "cli/quantise/formats.h"

namespace quire::cli {
namespace {

using kernels::DType;

constexpr std::byte kSome[1] = {};

load::Tensor Matrix(const std::string& name, std::vector<int64_t> shape) {
  return {.name = name,
          .type_name = "F16",
          .type = DType::kF16,
          .shape = std::move(shape),
          .bytes = kSome,
          .file = "m"};
}

DType TypeOf(std::string_view format, const GgufModelTraits& traits, const std::string& name,
             std::vector<int64_t> shape = {512, 512}) {
  return GgufTypeFor(*FindQuantiseFormat(format), traits, Matrix(name, std::move(shape)));
}

bool Packs(std::string_view format, const std::string& name, std::vector<int64_t> shape) {
  return IsPacked(*FindQuantiseFormat(format), Matrix(name, std::move(shape)));
}

TEST(QuantiseFormats, MixedOnesGiveMoreBitsToTheSameMatricesAsLlamaCpp) {
  const GgufModelTraits traits{.layers = 32};
  std::string more;  // of 32 layers: the first and last four, and every third between them
  for (int layer = 0; layer < 32; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const DType values = TypeOf("q4_k_m", traits, prefix + "attn_v.weight");
    EXPECT_EQ(TypeOf("q4_k_m", traits, prefix + "ffn_down.weight"), values);
    EXPECT_EQ(TypeOf("q4_k_m", traits, prefix + "attn_q.weight"), DType::kQ4_K);
    EXPECT_EQ(TypeOf("q4_k_s", traits, prefix + "attn_v.weight"), DType::kQ4_K);
    more += values == DType::kQ6_K ? '6' : '4';
  }
  EXPECT_EQ(more, "66664464464464464464464464466666");
  EXPECT_EQ(TypeOf("q5_k_m", traits, "blk.0.attn_v.weight"), DType::kQ6_K);
  EXPECT_EQ(TypeOf("q4_k_m", traits, "blk.5.attn_qkv.weight"), DType::kQ5_K);
  EXPECT_EQ(TypeOf("q4_k_m", traits, "output.weight"), DType::kQ6_K);
  EXPECT_EQ(TypeOf("q4_k_m", traits, "token_embd.weight"), DType::kQ4_K);
  const GgufModelTraits mixture{.layers = 32, .experts = 8, .tied = true};
  EXPECT_EQ(TypeOf("q4_k_m", mixture, "blk.5.attn_v.weight"), DType::kQ8_0);
  EXPECT_EQ(TypeOf("q4_k_m", mixture, "token_embd.weight"), DType::kQ6_K) << "it is the head";
}

TEST(QuantiseFormats, WhatNoProductReadsStaysAsItIs) {
  const GgufModelTraits traits{.layers = 2};
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight", "rope_freqs.weight",
        "blk.0.attn_q.bias", "blk.0.shortconv.conv.weight"}) {
    EXPECT_EQ(TypeOf("q8_0", traits, name), DType::kF16) << name;
  }
  EXPECT_EQ(TypeOf("q8_0", traits, "blk.0.attn_q.weight", {512}), DType::kF16);
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
        "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.shared_expert_gate.weight",
        "visual.blocks.0.attn.proj.weight", "model.layers.0.self_attn.q_proj.bias"}) {
    EXPECT_FALSE(Packs("fp8", name, {512, 512})) << name;
  }
  EXPECT_TRUE(Packs("fp8", "model.layers.0.mlp.gate_proj.weight", {512, 512}));
}

TEST(QuantiseFormats, RowsThatFitNoBlockGetTheNextTypeAndOddOnesStay) {
  const GgufModelTraits traits{.layers = 32};
  const std::string name = "blk.5.attn_q.weight";
  EXPECT_EQ(TypeOf("q4_k_m", traits, name, {8, 288}), DType::kQ5_0);
  EXPECT_EQ(TypeOf("q5_k_m", traits, name, {8, 288}), DType::kQ5_1);
  EXPECT_EQ(TypeOf("q6_k", traits, name, {8, 288}), DType::kQ8_0);
  EXPECT_EQ(TypeOf("q4_0", traits, name, {8, 40}), DType::kF16);
  EXPECT_TRUE(Packs("w4a16", "a.b_proj.weight", {8, 256}));
  EXPECT_FALSE(Packs("w4a16", "a.b_proj.weight", {8, 192})) << "no whole groups";
  EXPECT_TRUE(Packs("w8a8", "a.b_proj.weight", {8, 192}));
}

// A row is held as floats: its width has a limit, and an empty one divides nothing.
TEST(QuantiseFormats, EmptyRowsAndThoseAboveTheLimitStay) {
  const GgufModelTraits traits{.layers = 32};
  const std::string name = "blk.5.attn_q.weight";
  EXPECT_EQ(TypeOf("q8_0", traits, name, {1, kMaxQuantisedCols}), DType::kQ8_0);
  EXPECT_EQ(TypeOf("q8_0", traits, name, {1, kMaxQuantisedCols + 32}), DType::kF16);
  EXPECT_EQ(TypeOf("q8_0", traits, name, {4, 0}), DType::kF16);
  EXPECT_TRUE(Packs("fp8", "a.b_proj.weight", {1, kMaxQuantisedCols}));
  EXPECT_FALSE(Packs("fp8", "a.b_proj.weight", {1, kMaxQuantisedCols + 4}));
  EXPECT_FALSE(Packs("fp8", "a.b_proj.weight", {4, 0}));
}

}  // namespace
}  // namespace quire::cli
