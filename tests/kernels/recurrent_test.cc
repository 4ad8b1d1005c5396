// Recurrent layers: convolutions, recurrences and gates against float64, the same bits in any chunk
// and company, and states that are kept at borders of blocks.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/ops.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

constexpr int kVocabulary = 90;

// One mixer of a layer; sizes are odd, so that lanes and units are left over.
struct MixerShape {
  const char* name;
  bool convolution_alone = false;
  RecurrenceOp::Kind kind = RecurrenceOp::Kind::kGatedDelta;
  int taps = 4;
  int key_heads = 2;
  int value_heads = 4;
  int key_dim = 20;
  int value_dim = 24;
  bool tiled = false;
};
const MixerShape kMixers[] = {
    {"short_convolution", true, {}, 3},
    {"gated_delta", false, RecurrenceOp::Kind::kGatedDelta},
    {"tiled", false, RecurrenceOp::Kind::kGatedDelta, 4, 2, 6, 20, 24, true},
    {"one_key_head", false, RecurrenceOp::Kind::kGatedDelta, 2, 1, 3, 5, 16},
    {"mamba2", false, RecurrenceOp::Kind::kMamba2, 4, 1, 6, 19, 9},
    {"wide", false, RecurrenceOp::Kind::kMamba2, 4, 2, 4, 64, 40},
};

// Embedding; attention with a gate; two layers of the mixer; logits.
class Maker {
 public:
  Maker(const MixerShape& shape, uint32_t seed) : store(seed), shape_(shape) {
    program.family = "test";
    program.vocab_size = kVocabulary;
    program.hidden_size = kHidden;
    program.max_positions = 1024;
    program.heads = 2;
    program.kv_heads = 1;
    program.head_dim = 32;
    program.layer_windows = {kNoKeys, 0, kNoKeys};
    const BufferId x = Add("x", kHidden), h = Add("h", kHidden);
    EmbedOp embed;
    embed.table = Matrix(kVocabulary, kHidden, 1.0f);
    embed.out = x;
    program.ops.push_back(embed);
    for (int layer = 0; layer < 3; ++layer) {
      NormOp norm;
      norm.weight = Numbers(kHidden, 1.0f);
      norm.in = x;
      norm.out = h;
      program.ops.push_back(norm);
      if (layer == 1) {
        Attend(layer, h, x);
      } else if (shape.convolution_alone) {
        Convolve(h, x);
      } else {
        Recur(h, x);
      }
    }
    const BufferId last = Add("last", kHidden, true), logits = Add("logits", kVocabulary, true);
    program.ops.push_back(GatherRowsOp{x, last});
    LogitsOp head;
    head.head = embed.table;
    head.in = last;
    head.out = logits;
    program.ops.push_back(head);
    program.ops.push_back(SampleOp{logits});
  }

  WeightStore store;
  StepProgram program;

 private:
  static constexpr int kHidden = 48;

  BufferId Add(const std::string& name, int width, bool sampled = false) {
    program.buffers.push_back({name, width, sampled});
    return static_cast<int>(program.buffers.size()) - 1;
  }
  WeightId Matrix(int64_t rows, int64_t cols, float size) {
    program.weights.push_back(store.RandomWeight(DType::kF32, rows, cols, size));
    return static_cast<int>(program.weights.size()) - 1;
  }
  WeightId Numbers(int64_t count, float centre, float spread = 0.2f) {
    program.weights.push_back(store.RandomVector(count, centre, spread));
    return static_cast<int>(program.weights.size()) - 1;
  }
  BufferId Product(BufferId in, int width, const std::string& name) {
    LinearOp op;
    const int from = program.buffers[static_cast<size_t>(in)].width;
    op.weight = Matrix(width, from, 1.5f / std::sqrt(static_cast<float>(from)));
    op.in = in;
    op.out = Add(name, width);
    program.ops.push_back(op);
    return op.out;
  }
  void AddBack(BufferId in, BufferId x) {
    LinearOp op;
    const int from = program.buffers[static_cast<size_t>(in)].width;
    op.weight = Matrix(kHidden, from, 1.0f / std::sqrt(static_cast<float>(from)));
    op.accumulate = true;
    op.in = in;
    op.out = x;
    program.ops.push_back(op);
  }

  void Attend(int layer, BufferId h, BufferId x) {
    RopeAppendOp append;
    append.qkv = Product(h, 4 * 32, "qkv");
    append.layer = layer;
    append.heads = 2;
    append.kv_heads = 1;
    append.head_dim = 32;
    program.ops.push_back(append);
    AttentionOp attention;
    attention.qkv = append.qkv;
    attention.out = Add("attended", 64);
    attention.layer = layer;
    attention.heads = 2;
    attention.kv_heads = 1;
    attention.head_dim = 32;
    attention.scale = 0.2f;
    const BufferId gate = Product(h, 64, "attention_gate");
    program.ops.push_back(attention);
    program.ops.push_back(GateOp{attention.out, gate, attention.out});
    AddBack(attention.out, x);
  }

  void Convolve(BufferId h, BufferId x) {
    constexpr int kChannels = 84;
    CausalConvOp op;
    op.layer = static_cast<int>(program.states.size());
    program.states.push_back({.channels = kChannels, .taps = shape_.taps});
    op.weight = Numbers(int64_t{shape_.taps} * kChannels, 0.1f, 0.5f);
    op.bias = Numbers(kChannels, 0.0f);
    op.gated = true;
    op.in = Product(h, 3 * kChannels, "bcx");
    op.out = Add("convolved", kChannels);
    program.ops.push_back(op);
    AddBack(op.out, x);
  }

  void Recur(BufferId h, BufferId x) {
    const bool delta = shape_.kind == RecurrenceOp::Kind::kGatedDelta;
    const int values = shape_.value_heads * shape_.value_dim;
    const int channels = 2 * shape_.key_heads * shape_.key_dim + values;
    CausalConvOp conv;
    conv.layer = static_cast<int>(program.states.size());
    program.states.push_back(
        {channels, shape_.taps, shape_.value_heads, shape_.key_dim, shape_.value_dim});
    conv.weight = Numbers(int64_t{shape_.taps} * channels, 0.3f, 0.5f);
    if (!delta) conv.bias = Numbers(channels, 0.0f);
    conv.silu = true;
    conv.in = Product(h, channels, "mixed");
    conv.out = Add("convolved", channels);
    program.ops.push_back(conv);
    RecurrenceOp op;
    op.kind = shape_.kind;
    op.layer = conv.layer;
    op.key_heads = shape_.key_heads;
    op.value_heads = shape_.value_heads;
    op.key_dim = shape_.key_dim;
    op.value_dim = shape_.value_dim;
    op.tiled = shape_.tiled;
    op.decay = Numbers(shape_.value_heads, -0.3f, 0.2f);
    op.bias = Numbers(shape_.value_heads, 0.2f);
    if (!delta) op.skip = Numbers(shape_.value_heads, 0.5f);
    op.in = conv.out;
    op.gates = Product(h, (delta ? 2 : 1) * shape_.value_heads, "gates");
    op.factors = Add("factors", 2 * shape_.value_heads);
    op.out = Add("recurred", values);
    program.ops.push_back(op);
    GatedNormOp norm;
    norm.group = delta ? shape_.value_dim : values / 2;
    norm.weight = Numbers(delta ? norm.group : values, 1.0f);
    norm.gate_first = !delta;
    norm.in = op.out;
    norm.gate = Product(h, values, "z");
    norm.out = Add("opened", values);
    program.ops.push_back(norm);
    AddBack(norm.out, x);
  }

  const MixerShape shape_;
};

class RecurrentLayers : public ::testing::TestWithParam<MixerShape> {};

TEST_P(RecurrentLayers, AgreeWithFloat64OnEveryInstructionSet) {
  const Maker made(GetParam(), 41);
  ASSERT_EQ(CheckProgram(made.program), "");
  const std::vector<int32_t> tokens = RandomTokens(150, kVocabulary, 42);
  const auto wanted = DoubleModel(made.program).Run(tokens);
  Logits first;
  for (const std::string& isa : AvailableIsas()) {
    PagedRunner runner(made.program, {.cpu = {.threads = 2, .isa = isa}});
    const Logits got = runner.Step({{0, 0, tokens}});
    EXPECT_LT(WorstError(got, wanted), 1e-5) << isa;
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << isa << " has other bits than the reference";
  }
}

// Neighbours, threads and chunks; a chunk of one token is decoding.
TEST_P(RecurrentLayers, HaveTheSameBitsInAnyCompany) {
  const Maker made(GetParam(), 43);
  const std::vector<int32_t> tokens = RandomTokens(100, kVocabulary, 44);
  const std::vector<int32_t> others = RandomTokens(64, kVocabulary, 45);
  PagedRunner whole(made.program, {.cpu = {.threads = 1}});
  const Logits wanted = whole.Step({{0, 0, tokens}});
  for (const int chunk : {1, 2, 3, 5, 16, 17, 31, 33, 64}) {
    PagedRunner runner(made.program, {.cpu = {.threads = 3}, .sequences = 2});
    Logits got;
    for (int begin = 0; begin < 100; begin += chunk) {
      const int end = std::min(100, begin + chunk);
      const std::vector<int32_t> piece(tokens.begin() + begin, tokens.begin() + end);
      const Logits part = runner.Step({{1, 0, others}, {0, begin, piece}});
      got.insert(got.end(), part.begin() + 64, part.end());
      runner.DropBehindWindow(0, end);
    }
    EXPECT_EQ(got, wanted) << "chunk " << chunk;
  }
}

// The state at the end of a block serves another sequence, also where it was kept for some blocks
// alone, and after the first sequence has gone on.
TEST_P(RecurrentLayers, ContinueFromAKeptState) {
  const Maker made(GetParam(), 46);
  const std::vector<int32_t> tokens = RandomTokens(120, kVocabulary, 47);
  PagedRunner whole(made.program, {.cpu = {.threads = 1}});
  const Logits wanted = whole.Step({{0, 0, tokens}});
  for (const int kept : {0, 2, 4}) {
    PagedRunner runner(made.program, {.cpu = {.threads = 2}, .sequences = 2});
    runner.MergeStates(0, 0, kept);
    runner.MergeStates(0, kept + 1, 6);
    const Logits all = runner.Step({{0, 0, tokens}});
    EXPECT_EQ(all, wanted);
    const int begin = (kept + 1) * 16;
    runner.ContinueAfter(1, 0, kept);
    const Logits got = runner.Step({{1, begin, {tokens.begin() + begin, tokens.end()}}});
    EXPECT_EQ(got, Logits(wanted.begin() + begin, wanted.end())) << "after block " << kept;
  }
}

INSTANTIATE_TEST_SUITE_P(Recurrent, RecurrentLayers, ::testing::ValuesIn(kMixers),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RecurrentOps, WrongShapesAreNamed) {
  Maker made(kMixers[1], 48);
  made.program.states[1].taps = 9;
  EXPECT_NE(CheckProgram(made.program).find("causal_conv): weight"), std::string::npos)
      << CheckProgram(made.program);
  made.program.states.resize(1);
  EXPECT_NE(CheckProgram(made.program).find("recurrent layer 1 does not exist"), std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::test
