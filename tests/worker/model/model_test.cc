// From files to a step program: what is demanded of a checkpoint's tensors, and what the program
// then holds.
#include "worker/model/model.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"

namespace quire::model {
namespace {

using load::Append;
using load::Checkpoint;
using load::GgufMaker;
using load::Safetensors;
using load::TempFolder;

// The tensors of a one-layer Llama of width 8 with two heads and one KV head.
Checkpoint Llama() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {{10, 8}}},
          {"model.norm.weight", {{8}}},
          {"lm_head.weight", {{10, 8}}},
          {layer + "input_layernorm.weight", {{8}}},
          {layer + "self_attn.q_proj.weight", {{8, 8}}},
          {layer + "self_attn.k_proj.weight", {{4, 8}}},
          {layer + "self_attn.v_proj.weight", {{4, 8}}},
          {layer + "self_attn.o_proj.weight", {{8, 8}}},
          {layer + "post_attention_layernorm.weight", {{8}}},
          {layer + "mlp.gate_proj.weight", {{12, 8}}},
          {layer + "mlp.up_proj.weight", {{12, 8}}},
          {layer + "mlp.down_proj.weight", {{8, 12}}}};
}

constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"vocab_size":10,"hidden_size":8,)"
    R"("intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,)"
    R"("num_key_value_heads":1)";

void WriteCheckpoint(const TempFolder& folder, const Checkpoint& checkpoint,
                     const std::string& more = "") {
  folder.Write("config.json", kConfig + more + "}");
  folder.Write("model.safetensors", Safetensors(checkpoint));
}

absl::StatusOr<std::unique_ptr<Model>> Load(const Checkpoint& checkpoint,
                                            const std::string& more = "") {
  const TempFolder folder;
  WriteCheckpoint(folder, checkpoint, more);
  return LoadModel(folder.path(), {.with_text = false});
}

void ExpectRefused(const Checkpoint& checkpoint, std::string_view saying,
                   const std::string& more = "") {
  const auto model = Load(checkpoint, more);
  ASSERT_FALSE(model.ok()) << saying;
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(model.status()).find(saying), std::string::npos) << model.status();
  EXPECT_EQ(StatusMessage(model.status()).find('\n'), std::string::npos);
}

const kernels::LogitsOp& HeadOf(const kernels::StepProgram& program) {
  for (const kernels::Op& op : program.ops) {
    if (const auto* head = std::get_if<kernels::LogitsOp>(&op)) return *head;
  }
  ADD_FAILURE() << "no logits";
  static const kernels::LogitsOp kNone;
  return kNone;
}

TEST(LoadModel, WritesAProgramWhoseShapesAgree) {
  const auto model = Load(Llama());
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::StepProgram& program = (*model)->program;
  EXPECT_EQ(program.vocab_size, 10);
  EXPECT_EQ(program.head_dim, 4);
  EXPECT_EQ(program.layer_windows, (std::vector<int>{0}));
  for (const kernels::Weight& weight : program.weights) {
    int64_t rows = 0;
    for (const kernels::WeightSource& part : weight.parts) {
      EXPECT_EQ(part.cols, weight.cols) << weight.name;
      rows += part.rows;
    }
    EXPECT_EQ(rows, weight.rows) << weight.name;
  }
  EXPECT_TRUE(std::holds_alternative<kernels::EmbedOp>(program.ops.front()));
  EXPECT_TRUE(std::holds_alternative<kernels::SampleOp>(program.ops.back()));
  EXPECT_EQ((*model)->model_id.size(), 64u);
}

TEST(LoadModel, LayersCanBeLeftOut) {
  const std::string demo = QUIRE_SOURCE_DIR "/models/demo";
  const auto whole = LoadModel(demo);
  const auto part = LoadModel(demo, {.skipped_layers = {1, 3}});
  ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
  // The ops of two layers of four, the others in their order; skipped layers have no pages.
  const auto& all = (*whole)->program.ops;
  const auto& kept = (*part)->program.ops;
  const auto layers_of = [](const std::vector<kernels::Op>& ops) {
    std::vector<int> layers;
    for (const kernels::Op& op : ops) {
      if (const auto* attention = std::get_if<kernels::AttentionOp>(&op)) {
        layers.push_back(attention->layer);
      }
    }
    return layers;
  };
  EXPECT_EQ(layers_of(all), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(layers_of(kept), (std::vector<int>{0, 2}));
  constexpr size_t kOutside = 5;  // embedding, gather, norm, logits, sample
  EXPECT_EQ(2 * (kept.size() - kOutside), all.size() - kOutside);
  EXPECT_EQ((*part)->program.layer_windows,
            (std::vector<int>{0, kernels::kNoKeys, 0, kernels::kNoKeys}));
  const auto refused = [&](std::vector<int> layers, std::string_view what) {
    const auto model = LoadModel(demo, {.skipped_layers = std::move(layers)});
    ASSERT_FALSE(model.ok());
    EXPECT_NE(StatusMessage(model.status()).find(what), std::string::npos) << model.status();
  };
  refused({4}, "the model has 4");
  refused({-1}, "layer -1");
  refused({0, 1, 2, 3}, "no layer");
  const auto shared = LoadModel(QUIRE_SOURCE_DIR "/tests/golden/models/gemma4-e",
                                {.with_text = false, .skipped_layers = {0}});
  ASSERT_FALSE(shared.ok());
  EXPECT_NE(StatusMessage(shared.status()).find("reads the keys of layer"), std::string::npos)
      << shared.status();
}

TEST(LoadModel, TiedHeadsAreTheEmbedding) {
  Checkpoint checkpoint = Llama();
  const auto untied = Load(checkpoint);
  ASSERT_TRUE(untied.ok()) << untied.status();
  EXPECT_NE(HeadOf((*untied)->program).head,
            std::get<kernels::EmbedOp>((*untied)->program.ops.front()).table);
  checkpoint.erase("lm_head.weight");
  ExpectRefused(checkpoint, "tensor \"lm_head.weight\" is missing");
  const auto tied = Load(checkpoint, R"(,"tie_word_embeddings":true)");
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_EQ(HeadOf((*tied)->program).head,
            std::get<kernels::EmbedOp>((*tied)->program.ops.front()).table);
}

TEST(LoadModel, NamesTensorGotAndExpected) {
  Checkpoint checkpoint = Llama();
  checkpoint["model.layers.0.self_attn.k_proj.weight"] = {{8, 8}};
  ExpectRefused(checkpoint,
                "tensor \"model.layers.0.self_attn.k_proj.weight\" has shape [8, 8], the "
                "configuration demands [4, 8]");
  checkpoint = Llama();
  checkpoint["model.norm.weight"] = {{9}};
  ExpectRefused(checkpoint, "\"model.norm.weight\" has shape [9], the configuration demands [8]");
  checkpoint = Llama();
  checkpoint["model.embed_tokens.weight"] = {{80}};
  ExpectRefused(checkpoint, "has shape [80], the configuration demands [10, 8]");
}

TEST(LoadModel, NamesMissingTensors) {
  for (const auto& [name, shape] : Llama()) {
    Checkpoint checkpoint = Llama();
    checkpoint.erase(name);
    ExpectRefused(checkpoint, "tensor \"" + name + "\" is missing");
  }
  ExpectRefused(Llama(), "tensor \"model.layers.1.input_layernorm.weight\" is missing",
                R"(,"num_hidden_layers":2)");
  ExpectRefused(Llama(), "tensor \"model.layers.0.self_attn.q_proj.bias\" is missing",
                R"(,"attention_bias":true)");
}

TEST(LoadModel, NamesTypesThatCannotBeComputedWith) {
  Checkpoint checkpoint = Llama();
  checkpoint["model.layers.0.mlp.up_proj.weight"].type = "U8";
  ExpectRefused(checkpoint, "tensor \"model.layers.0.mlp.up_proj.weight\" has type U8");
}

TEST(LoadModel, FindsTheLanguageModelOfImageAndTextCheckpoints) {
  for (const char* prefix : {"language_model.", ""}) {
    Checkpoint checkpoint;
    for (const auto& [name, shape] : Llama()) checkpoint[prefix + name] = shape;
    EXPECT_TRUE(Load(checkpoint).ok()) << prefix << Load(checkpoint).status();
  }
}

TEST(LoadModel, TheSameModelElsewhereHasTheSameIdentity) {
  const auto here = Load(Llama());
  const auto there = Load(Llama());
  ASSERT_TRUE(here.ok() && there.ok());
  EXPECT_EQ((*here)->model_id, (*there)->model_id);
  const auto other = Load(Llama(), R"(,"rope_theta":5000)");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*here)->model_id, (*other)->model_id);
}

// Files may place numbers at odd addresses; kernels read them in place.
TEST(LoadModel, WeightsAreAligned) {
  Checkpoint checkpoint = Llama();
  checkpoint["a_byte"] = {{1}, "U8"};
  const auto model = Load(checkpoint);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const kernels::Weight& weight : (*model)->program.weights) {
    for (const kernels::WeightSource& part : weight.parts) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(part.data) % 2, 0u) << weight.name;
    }
  }
}

TEST(LoadModel, ReleasedSourcesStayReadable) {
  const TempFolder folder;
  WriteCheckpoint(folder, Llama());
  const auto model = LoadModel(folder.path(), {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const kernels::Weight& weight : (*model)->program.weights) {
    for (const kernels::WeightSource& part : weight.parts) {
      (*model)->ReleaseSource(part.data, part.Bytes());
      EXPECT_EQ(part.data[0], std::byte{0});
    }
  }
}

TEST(LoadModel, PassesOnWhatIsWrongWithTheFiles) {
  EXPECT_EQ(LoadModel("/nowhere").status().code(), absl::StatusCode::kNotFound);
  const TempFolder folder;
  const std::string path =
      folder.Write("m.gguf", GgufMaker().String("general.architecture", "rwkv").Make(0));
  const auto model = LoadModel(path);
  EXPECT_NE(StatusMessage(model.status()).find("architecture \"rwkv\" is not served"),
            std::string::npos);
}

// A one-layer GGUF Llama whose q and k rows hold their own number: pairs must come apart into
// halves.
TEST(LoadModel, GgufLlamaRowsAreDeinterleaved) {
  GgufMaker maker;
  maker.String("general.architecture", "llama").Uint32("llama.context_length", 16);
  maker.Uint32("llama.embedding_length", 8).Uint32("llama.block_count", 1);
  maker.Uint32("llama.feed_forward_length", 8).Uint32("llama.attention.head_count", 2);
  maker.Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors = {
      {"blk.0.attn_q.weight", {8, 8}},   {"blk.0.attn_k.weight", {8, 8}},
      {"blk.0.attn_v.weight", {8, 8}},   {"blk.0.attn_output.weight", {8, 8}},
      {"blk.0.ffn_gate.weight", {8, 8}}, {"blk.0.ffn_up.weight", {8, 8}},
      {"blk.0.ffn_down.weight", {8, 8}}, {"token_embd.weight", {8, 4}},
      {"blk.0.attn_norm.weight", {8}},   {"blk.0.ffn_norm.weight", {8}},
      {"output_norm.weight", {8}},
  };
  uint64_t offset = 0;
  for (const auto& [name, dimensions] : tensors) {
    maker.Tensor(name, dimensions, 0, offset);
    offset += dimensions.size() == 2 ? dimensions[0] * dimensions[1] * 4 : 32;
  }
  std::string bytes = maker.Make(offset);
  // q is first: row r is filled with r.
  for (int row = 0; row < 8; ++row) {
    std::string values;
    for (int i = 0; i < 8; ++i) Append(values, static_cast<float>(row));
    bytes.replace(bytes.size() - offset + static_cast<size_t>(row) * 32, 32, values);
  }
  const TempFolder folder;
  const auto model = LoadModel(folder.Write("m.gguf", bytes), {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::Weight* qkv = nullptr;
  for (const kernels::Weight& weight : (*model)->program.weights) {
    if (weight.name == "blk.0.attn_q.weight") qkv = &weight;
  }
  ASSERT_NE(qkv, nullptr);
  const auto* values = reinterpret_cast<const float*>(qkv->parts[0].data);
  const std::vector<float> expected = {0, 2, 1, 3, 4, 6, 5, 7};  // two heads of four
  for (size_t row = 0; row < expected.size(); ++row) {
    EXPECT_EQ(values[row * 8], expected[row]) << row;
  }
  // What stands in memory of its own goes when no model will load it.
}

// What stands in memory of its own goes when no model will load it.
kernels::WeightSource SourceOf(const std::vector<float>& values, int64_t rows) {
  return {kernels::DType::kF32, rows, static_cast<int64_t>(values.size()) / rows,
          reinterpret_cast<const std::byte*>(values.data())};
}

TEST(WeightMemory, ConvertsToTheNearestEvenWhenItIsFilled) {
  // 1 + 2^-8 and 1 + 3 × 2^-8 lie halfway between numbers of bfloat16.
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -2.5f, 0.0f, 1e-40f};
  WeightMemory memory(kernels::DType::kBF16);
  const kernels::WeightSource made = memory.Convert(SourceOf(values, 2), "w");
  EXPECT_EQ(made.type, kernels::DType::kBF16);
  EXPECT_EQ(made.rows, 2);
  EXPECT_EQ(made.cols, 3);
  EXPECT_EQ(FloatAt(made, 0), 0.0f) << "who only plans reads nothing";
  ASSERT_TRUE(memory.Fill().ok());
  const std::vector<float> wanted = {1.0f, 1.0f, 1.015625f, -2.5f, 0.0f};
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(FloatAt(made, static_cast<int64_t>(i)), wanted[i]) << i;
  }
  EXPECT_EQ(memory.converted_to(), kernels::DType::kBF16);
}

TEST(WeightMemory, ConvertsARankSColumns) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  kernels::WeightSource slice = SourceOf(values, 2);
  slice.row_stride = 4 * sizeof(float);
  slice.data += 2 * sizeof(float);
  slice.cols = 2;
  WeightMemory memory(kernels::DType::kF16);
  const kernels::WeightSource made = memory.Convert(slice, "w");
  ASSERT_TRUE(memory.Fill().ok());
  EXPECT_EQ(made.row_stride, 0);
  const float wanted[] = {3, 4, 7, 8};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(FloatAt(made, i), wanted[i]);
}

// Two rows that are the even columns of a matrix of four: gpt-oss' gates.
TEST(WeightMemory, GathersRowsThatAreColumns) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  kernels::WeightSource columns = SourceOf(values, 3);
  columns.rows = 2;
  columns.cols = 3;
  columns.row_stride = 2 * sizeof(float);
  for (const std::optional<kernels::DType> type :
       {std::optional<kernels::DType>(), std::optional(kernels::DType::kBF16)}) {
    WeightMemory memory(type);
    const kernels::WeightSource made = memory.Gather(columns, 4, "w");
    EXPECT_EQ(made.type, type.value_or(kernels::DType::kF32));
    ASSERT_TRUE(memory.Fill().ok());
    const float wanted[] = {1, 5, 9, 3, 7, 11};
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(FloatAt(made, i), wanted[i]) << i;
    EXPECT_EQ(memory.converted_to(), type);
  }
}

TEST(WeightMemory, LeavesTheWantedTypeAndBlocksAlone) {
  const std::vector<float> values(32, 1.0f);
  WeightMemory memory(kernels::DType::kF32);
  kernels::WeightSource source = SourceOf(values, 1);
  EXPECT_EQ(memory.Convert(source, "w").data, source.data);
  source.type = kernels::DType::kQ8_0;
  EXPECT_EQ(memory.Convert(source, "w").data, source.data);
  EXPECT_EQ(memory.converted_to(), std::nullopt);
  WeightMemory plain;
  source.type = kernels::DType::kF16;
  EXPECT_EQ(plain.Convert(source, "w").data, source.data);
}

TEST(WeightMemory, NamesWhatATypeCannotHold) {
  const std::vector<float> values = {65504.0f, 65520.0f};  // the second rounds to 2^16
  WeightMemory memory(kernels::DType::kF16);
  (void)memory.Convert(SourceOf(values, 1), "blk.0.w");
  const std::string message = StatusMessage(memory.Fill());
  EXPECT_NE(message.find("--dtype: tensor \"blk.0.w\" holds 65520"), std::string::npos) << message;
  EXPECT_FALSE(memory.ConvertVector(SourceOf(values, 1), "b").ok());
  const std::vector<float> fits = {65504.0f, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(memory.ConvertVector(SourceOf(fits, 1), "b").ok()) << "what was infinite stays so";
}

TEST(WeightMemory, GivesPagesBack) {
  WeightMemory memory;
  std::byte* const one = memory.Allocate(3 << 12);
  std::byte* const other = memory.Allocate(1 << 20);
  one[5000] = other[5000] = std::byte{7};
  memory.Release(one, 3 << 12);
  EXPECT_EQ(one[5000], std::byte{0});
  EXPECT_EQ(other[5000], std::byte{7});
}

}  // namespace
}  // namespace quire::model
