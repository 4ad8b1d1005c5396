// Mixtures of experts from files to a program: what is demanded of their tensors, and the parts of
// ranks.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "worker/model/model.h"

namespace quire::model {
namespace {

using load::Checkpoint;
using load::TempFolder;

// A Qwen2-MoE of two layers, of which the second has three experts and a shared one.
Checkpoint SmallMixture() {
  Checkpoint checkpoint = {{"model.embed_tokens.weight", {{10, 8}}},
                           {"model.norm.weight", {{8}}},
                           {"lm_head.weight", {{10, 8}}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      checkpoint[layer + norm] = {{8}};
    }
    for (const std::string part : {"q_proj", "k_proj", "v_proj"}) {
      checkpoint[layer + "self_attn." + part + ".weight"] = {{8, 8}};
      checkpoint[layer + "self_attn." + part + ".bias"] = {{8}};
    }
    checkpoint[layer + "self_attn.o_proj.weight"] = {{8, 8}};
  }
  const auto mlp = [&checkpoint](const std::string& name, int inner) {
    checkpoint[name + ".gate_proj.weight"] = {{inner, 8}};
    checkpoint[name + ".up_proj.weight"] = {{inner, 8}};
    checkpoint[name + ".down_proj.weight"] = {{8, inner}};
  };
  mlp("model.layers.0.mlp", 12);
  const std::string block = "model.layers.1.mlp.";
  for (int expert = 0; expert < 3; ++expert) mlp(block + "experts." + std::to_string(expert), 6);
  mlp(block + "shared_expert", 10);
  checkpoint[block + "gate.weight"] = {{3, 8}};
  checkpoint[block + "shared_expert_gate.weight"] = {{1, 8}};
  return checkpoint;
}

constexpr const char* kMixtureConfig =
    R"({"architectures":["Qwen2MoeForCausalLM"],"vocab_size":10,"hidden_size":8,)"
    R"("intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_experts":3,)"
    R"("num_experts_per_tok":2,"moe_intermediate_size":6,"shared_expert_intermediate_size":10,)"
    R"("decoder_sparse_step":2})";

absl::StatusOr<std::unique_ptr<Model>> LoadMixture(const Checkpoint& checkpoint) {
  const TempFolder folder;
  folder.Write("config.json", kMixtureConfig);
  folder.Write("model.safetensors", load::Safetensors(checkpoint));
  return LoadModel(folder.path(), {.with_text = false});
}

void ExpectMixtureRefused(const Checkpoint& checkpoint, std::string_view saying) {
  const auto model = LoadMixture(checkpoint);
  ASSERT_FALSE(model.ok()) << saying;
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(model.status()).find(saying), std::string::npos) << model.status();
}

std::vector<kernels::MoeOp> MixturesOf(const kernels::StepProgram& program) {
  std::vector<kernels::MoeOp> found;
  for (const kernels::Op& op : program.ops) {
    if (const auto* moe = std::get_if<kernels::MoeOp>(&op)) found.push_back(*moe);
  }
  return found;
}

TEST(LoadExperts, RoutedAndSharedOnes) {
  const auto model = LoadMixture(SmallMixture());
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::StepProgram& program = (*model)->program;
  const auto mixtures = MixturesOf(program);
  ASSERT_EQ(mixtures.size(), 2u);
  EXPECT_EQ(mixtures[0].experts.size(), 3u);
  EXPECT_EQ(mixtures[0].rule.chosen, 2);
  EXPECT_FALSE(mixtures[0].rule.renormalise);
  EXPECT_TRUE(mixtures[0].accumulate);
  EXPECT_EQ(mixtures[1].experts.size(), 1u);
  EXPECT_EQ(mixtures[1].rule.scores, kernels::RoutingRule::Scores::kSigmoid);
  const auto& second = program.weights[static_cast<size_t>(mixtures[0].experts[1].down)];
  EXPECT_EQ(second.name, "model.layers.1.mlp.experts.1.down_proj.weight");
  EXPECT_EQ(second.cols, 6);
}

TEST(LoadExperts, NamesWhatIsMissingOrMisshapen) {
  for (const char* name : {"gate.weight", "shared_expert_gate.weight", "experts.2.up_proj.weight",
                           "experts.0.down_proj.weight", "shared_expert.gate_proj.weight"}) {
    Checkpoint checkpoint = SmallMixture();
    const std::string tensor = std::string("model.layers.1.mlp.") + name;
    checkpoint.erase(tensor);
    ExpectMixtureRefused(checkpoint, "tensor \"" + tensor + "\" is missing");
  }
  Checkpoint checkpoint = SmallMixture();
  checkpoint["model.layers.1.mlp.gate.weight"] = {{4, 8}};
  ExpectMixtureRefused(checkpoint, "has shape [4, 8], the configuration demands [3, 8]");
  checkpoint = SmallMixture();
  checkpoint["model.layers.1.mlp.experts.1.up_proj.weight"] = {{8, 6}};
  ExpectMixtureRefused(checkpoint, "has shape [8, 6], the configuration demands [6, 8]");
  checkpoint = SmallMixture();
  checkpoint["model.layers.1.mlp.gate.weight"].type = "U8";
  ExpectMixtureRefused(checkpoint, "mlp.gate.weight\" has type U8");
}

// An expert that nothing would read is a wrong count, and any other name a part that is not
// computed.
TEST(LoadExperts, RefusesTensorsThatNothingUses) {
  for (const char* name :
       {"mlp.experts.3.up_proj.weight", "mlp.up_proj.weight", "self_attn.q_norm.weight"}) {
    Checkpoint checkpoint = SmallMixture();
    checkpoint[std::string("model.layers.1.") + name] = {{6, 8}};
    ExpectMixtureRefused(checkpoint, std::string("tensor \"model.layers.1.") + name +
                                         "\" of shape [6, 8] belongs to no part of a model of the "
                                         "family qwen2_moe");
  }
  Checkpoint beside = SmallMixture();
  beside["model.layers.1.self_attn.rotary_emb.inv_freq"] = {{4}};
  beside["model.layers.2.eh_proj.weight"] = {{8, 16}};  // predicts a further token
  beside["model.layers_of_another.weight"] = {{8}};
  EXPECT_TRUE(LoadMixture(beside).ok()) << LoadMixture(beside).status();
}

// Experts are cut along their inner width; every rank routes alike, and the first alone adds to
// what is there.
TEST(LoadExperts, RanksCutThemAlongTheInnerWidth) {
  const auto model = LoadMixture(SmallMixture());
  ASSERT_TRUE(model.ok()) << model.status();
  for (int rank = 0; rank < 2; ++rank) {
    const auto program = (*model)->BuildRank({rank, 2});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto mixtures = MixturesOf(*program);
    ASSERT_EQ(mixtures.size(), 2u);
    const auto cols = [&](const kernels::MoeOp& op) {
      return program->weights[static_cast<size_t>(op.experts.back().down)].cols;
    };
    EXPECT_EQ(cols(mixtures[0]), 3);
    EXPECT_EQ(cols(mixtures[1]), 5);
    EXPECT_EQ(program->weights[static_cast<size_t>(mixtures[0].router)].rows, 3);
    EXPECT_EQ(mixtures[0].accumulate, rank == 0);
    EXPECT_TRUE(mixtures[1].accumulate);
  }
  const auto many = (*model)->BuildRank({0, 8});
  EXPECT_FALSE(many.ok());
}

}  // namespace
}  // namespace quire::model
