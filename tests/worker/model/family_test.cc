// A family is one file and a line: a made-up one loads in both formats, and what lists families
// follows the table.
#include "worker/model/family.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/worker/load/file_maker.h"
#include "worker/model/model.h"

namespace quire::model {

extern const Family kMadeUp;

namespace {

std::vector<const Family*> WithMadeUp() {
  const Families served = ServedFamilies();
  std::vector<const Family*> families(served.begin(), served.end());
  families.push_back(&kMadeUp);
  return families;
}

constexpr const char* kMadeUpConfig =
    R"({"architectures":["MadeUpForCausalLM"],"vocab_size":10,"hidden_size":8,"made_up_width":12,)"
    R"("num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1})";

load::Checkpoint MadeUpCheckpoint() {
  load::Checkpoint checkpoint = {{"trunk.embed_tokens.weight", {{10, 8}}},
                                 {"trunk.norm.weight", {{8}}},
                                 {"speaker.weight", {{10, 8}}}};
  const load::Checkpoint layer = {
      {"input_layernorm.weight", {{8}}},          {"self_attn.q_proj.weight", {{8, 8}}},
      {"self_attn.k_proj.weight", {{4, 8}}},      {"self_attn.v_proj.weight", {{4, 8}}},
      {"self_attn.q_proj.bias", {{8}}},           {"self_attn.k_proj.bias", {{4}}},
      {"self_attn.v_proj.bias", {{4}}},           {"self_attn.q_norm.weight", {{4}}},
      {"self_attn.k_norm.weight", {{4}}},         {"attention.out.weight", {{8, 8}}},
      {"post_attention_layernorm.weight", {{8}}}, {"mlp.gate_proj.weight", {{12, 8}}},
      {"mlp.up_proj.weight", {{12, 8}}},          {"mlp.down_proj.weight", {{8, 12}}}};
  for (const char* prefix : {"trunk.layers.0.", "trunk.layers.1."}) {
    for (const auto& [name, shape] : layer) checkpoint[prefix + name] = shape;
  }
  return checkpoint;
}

template <typename Op>
std::vector<Op> OpsOf(const kernels::StepProgram& program) {
  std::vector<Op> found;
  for (const kernels::Op& op : program.ops) {
    if (const auto* own = std::get_if<Op>(&op)) found.push_back(*own);
  }
  return found;
}

TEST(AddedFamily, LoadsFromHuggingFacesFormat) {
  const load::TempFolder folder;
  folder.Write("config.json", kMadeUpConfig);
  folder.Write("model.safetensors", load::Safetensors(MadeUpCheckpoint()));
  const std::vector<const Family*> families = WithMadeUp();
  const auto model = LoadModel(folder.path(), {.with_text = false, .families = families});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->family, &kMadeUp);
  const load::ModelConfig& config = (*model)->config;
  EXPECT_EQ(config.family, "made_up");
  EXPECT_EQ(config.intermediate_size, 12);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_EQ(config.layer_windows, (std::vector<int>{0, 5}));

  const kernels::StepProgram& program = (*model)->program;
  EXPECT_EQ(program.family, "made_up");
  const auto& embed = std::get<kernels::EmbedOp>(program.ops.front());
  EXPECT_EQ(embed.scale, std::sqrt(8.0f));
  const auto appends = OpsOf<kernels::RopeAppendOp>(program);
  ASSERT_EQ(appends.size(), 2u);
  for (const kernels::RopeAppendOp& append : appends) {
    EXPECT_NE(append.q_norm, kernels::kNoId);
    EXPECT_EQ(append.rope, 0);
  }
  EXPECT_EQ(OpsOf<kernels::AttentionOp>(program).back().window, 5);
  EXPECT_EQ(OpsOf<kernels::LinearOp>(program)[2].activation,
            kernels::LinearOp::Activation::kGeluTanhGated);
  const auto heads = OpsOf<kernels::LogitsOp>(program);
  ASSERT_EQ(heads.size(), 1u);
  EXPECT_EQ(program.weights[static_cast<size_t>(heads[0].head)].name, "speaker.weight");
  // Ranks share it as they share any other.
  const auto part = (*model)->BuildRank({1, 2});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->heads, 1);
}

TEST(AddedFamily, LoadsFromGguf) {
  load::GgufMaker maker;
  maker.String("general.architecture", "madeup").Uint32("madeup.context_length", 16);
  maker.Uint32("madeup.embedding_length", 8).Uint32("madeup.block_count", 1);
  maker.Uint32("madeup.feed_forward_length", 8).Uint32("madeup.attention.head_count", 2);
  maker.Uint32("madeup.attention.sliding_window", 7);
  maker.Float32("madeup.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors = {
      {"token_embd.weight", {8, 4}},     {"output_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}},   {"blk.0.attn_k.weight", {8, 8}},
      {"blk.0.attn_v.weight", {8, 8}},   {"blk.0.attn_output.weight", {8, 8}},
      {"blk.0.attn_q_norm.weight", {4}}, {"blk.0.attn_k_norm.weight", {4}},
      {"blk.0.attn_norm.weight", {8}},   {"blk.0.ffn_norm.weight", {8}},
      {"blk.0.ffn_gate.weight", {8, 8}}, {"blk.0.ffn_up.weight", {8, 8}},
      {"blk.0.ffn_down.weight", {8, 8}},
  };
  uint64_t offset = 0;
  for (const auto& [name, dimensions] : tensors) {
    maker.Tensor(name, dimensions, 0, offset);
    offset += dimensions.size() == 2 ? dimensions[0] * dimensions[1] * 4 : 32;
  }
  const load::TempFolder folder;
  const std::vector<const Family*> families = WithMadeUp();
  const auto model = LoadModel(folder.Write("m.gguf", maker.Make(offset)),
                               {.with_text = false, .families = families});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->family, &kMadeUp);
  EXPECT_EQ((*model)->config.family, "made_up");
  EXPECT_TRUE((*model)->config.interleaved_rope);
  EXPECT_EQ((*model)->config.layer_windows, (std::vector<int>{0}));
  EXPECT_EQ(OpsOf<kernels::LinearOp>((*model)->program)[2].activation,
            kernels::LinearOp::Activation::kGeluTanhGated);
}

// What lists the served families follows the table, and without the line it knows no such family.
TEST(AddedFamily, IsServedByItsLineAlone) {
  const std::vector<const Family*> families = WithMadeUp();
  std::string titles, names;
  for (const Family* family : families) {
    absl::StrAppend(&titles, titles.empty() ? "" : ", ", AbslView(family->title));
    if (family->gguf.architecture.empty()) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", AbslView(family->gguf.architecture));
    if (family->gguf.with_experts.empty()) continue;
    absl::StrAppend(&names, ", ", AbslView(family->gguf.with_experts));
  }
  const auto json = json::Parse(R"({"model_type":"mamba"})");
  ASSERT_TRUE(json.ok());
  EXPECT_NE(StatusMessage(ModelConfigFromJson(json->as_object(), "m", families).status())
                .find(absl::StrCat("\"mamba\" is not served; served are ", titles)),
            std::string::npos);
  const std::string bytes = load::GgufMaker().String("general.architecture", "mamba").Make(0);
  const auto gguf = load::GgufFile::Parse(load::AsBytes(bytes), "m");
  ASSERT_TRUE(gguf.ok());
  EXPECT_NE(StatusMessage(ModelConfigFromGguf(*gguf, "m", families).status())
                .find(absl::StrCat("served in GGUF are ", names)),
            std::string::npos);
  const auto known = json::Parse(R"({"model_type":"made_up_all"})");
  ASSERT_TRUE(known.ok());
  EXPECT_NE(StatusMessage(ModelConfigFromJson(known->as_object(), "m").status())
                .find("architecture \"made_up_all\" is not served"),
            std::string::npos);
  EXPECT_NE(StatusMessage(ModelConfigFromJson(known->as_object(), "m", families).status())
                .find("vocab_size is missing"),
            std::string::npos);
}

TEST(FamilyTable, NamesBelongToOneFamily) {
  std::set<std::string_view> names;
  std::set<std::string_view> architectures;
  std::set<std::string_view> ggufs;
  for (const Family* family : ServedFamilies()) {
    SCOPED_TRACE(std::string(family->name));
    EXPECT_TRUE(names.insert(family->name).second);
    EXPECT_FALSE(family->title.empty());
    EXPECT_FALSE(family->json.names[0].architecture.empty());
    for (const JsonForm::Name& name : family->json.names) {
      if (name.architecture.empty()) continue;
      EXPECT_TRUE(architectures.insert(name.architecture).second);
      EXPECT_TRUE(architectures.insert(name.model_type).second);
    }
    const GgufForm& gguf = family->gguf;
    EXPECT_TRUE(gguf.architecture.empty() || ggufs.insert(gguf.architecture).second);
    EXPECT_TRUE(gguf.with_experts.empty() || ggufs.insert(gguf.with_experts).second);
    EXPECT_TRUE(gguf.architecture.empty() || gguf.written_as.empty());
  }
  for (const Family* family : ServedFamilies()) {
    const std::string_view other = family->gguf.written_as;
    EXPECT_TRUE(other.empty() || ggufs.count(other) == 1) << family->title;
  }
}

// Files from before tokenizer.ggml.pre was written.
TEST(FamilyTable, TellsHowAFamilySplitsTexts) {
  const auto rule = [](const std::string& family) {
    load::ModelConfig config;
    config.family = family;
    return FamilyOf(config).gguf.splitting;
  };
  EXPECT_EQ(rule("qwen2").name, "qwen2");
  EXPECT_EQ(rule("qwen3").name, "qwen2");
  EXPECT_EQ(rule("qwen3").tokens, 0u);
  EXPECT_EQ(rule("llama").name, "llama-bpe");
  EXPECT_EQ(rule("llama").tokens, 128'256u);
  EXPECT_EQ(rule("gemma3").name, "");
}

// docs/models.md lists the table, row by row.
TEST(FamilyTable, IsInTheDocs) {
  std::string wanted =
      "| family | `architectures` in config.json | GGUF `general.architecture` |\n|---|---|---|\n";
  for (const Family* family : ServedFamilies()) {
    wanted += "| " + std::string(family->title) + " | ";
    std::string separator;
    for (const JsonForm::Name& name : family->json.names) {
      if (name.architecture.empty()) continue;
      wanted += separator + "`" + std::string(name.architecture) + "`";
      separator = ", ";
    }
    const GgufForm& gguf = family->gguf;
    const std::string written(gguf.architecture.empty() ? gguf.written_as : gguf.architecture);
    const std::string more =
        gguf.with_experts.empty() ? "" : ", `" + std::string(gguf.with_experts) + "`";
    wanted += written.empty() ? " | – |\n" : " | `" + written + "`" + more + " |\n";
  }
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/docs/models.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(page.find("\n" + wanted + "\n"), std::string::npos)
      << "docs/models.md must hold this table, with a blank line on each side:\n"
      << wanted;
}

}  // namespace
}  // namespace quire::model
