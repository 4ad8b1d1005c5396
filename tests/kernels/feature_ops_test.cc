// What programs show and read: features of all tokens, inputs from outside, and embeddings alone.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

constexpr int kWidth = 37;  // fills no lanes
constexpr int kVocabulary = 50;
constexpr int kTokens = 70;

// shown = [input, 2 · embedding]: the input is columns 5 … of what comes from outside, and the
// second half gets the embedding twice, once by a sum.
StepProgram ShowingProgram(WeightStore& store) {
  StepProgram program;
  program.family = "test";
  program.vocab_size = kVocabulary;
  program.hidden_size = kWidth;
  program.max_positions = 100;
  program.heads = program.kv_heads = 1;
  program.head_dim = 8;
  program.input_width = kWidth + 7;
  program.weights.push_back(
      {"table", {store.Random(DType::kF32, kVocabulary, kWidth, 1.0f)}, kVocabulary, kWidth});
  program.buffers = {{"input", kWidth}, {"embedding", kWidth}, {"shown", 2 * kWidth}};
  EmbedOp embed;
  embed.table = 0;
  embed.out = 1;
  program.ops = {InputOp{0, 5}, embed, CopyOp{0, 2, 0}, CopyOp{1, 2, kWidth},
                 CopyOp{1, 2, kWidth, /*accumulate=*/true}};
  program.features = 2;
  return program;
}

struct Loaded {
  explicit Loaded(const StepProgram& program) {
    std::string error;
    backend = MakeCpuBackend({.threads = 3}, error);
    ProgramOptions options;
    options.max_tokens = kTokens;
    loaded = backend->Load(program, options);
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<LoadedProgram> loaded;
};

std::vector<float> Inputs(int64_t tokens) {
  std::vector<float> inputs;
  for (int64_t i = 0; i < tokens * (kWidth + 7); ++i) {
    inputs.push_back(static_cast<float>(i % 97) * 0.25f - 3.0f);
  }
  return inputs;
}

TEST(FeatureOps, AgreeWithFloat64AtAnyNumberOfTokens) {
  WeightStore store(3);
  const StepProgram program = ShowingProgram(store);
  ASSERT_EQ(CheckProgram(program), "");
  const Loaded device(program);
  for (const int count : {1, 2, 17, kTokens}) {
    const std::vector<int32_t> tokens = RandomTokens(count, kVocabulary, 4);
    const std::vector<int32_t> positions(tokens.size(), 0);
    const std::vector<float> inputs = Inputs(count);
    DoubleModel model(program);
    model.SetInputs(inputs);
    model.Run(tokens);
    StepBatch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.inputs = inputs;
    device.loaded->Run(batch);
    const FeatureRows shown = device.loaded->Features();
    for (int t = 0; t < count; ++t) {
      for (int i = 0; i < 2 * kWidth; ++i) {
        EXPECT_EQ(
            shown.Row(t)[i],
            static_cast<float>(model.BufferRows(2)[static_cast<size_t>(t)][static_cast<size_t>(i)]))
            << t << " " << i;
      }
    }
    // Embeddings alone leave what the step has shown.
    const std::vector<float> before(shown.Row(0), shown.Row(0) + 2 * kWidth);
    const std::vector<int32_t> others = RandomTokens(kTokens, kVocabulary, 9);
    const FeatureRows embedded = device.loaded->Embed(others);
    const auto* table = reinterpret_cast<const float*>(program.weights[0].parts[0].data);
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kWidth; ++i) {
        EXPECT_EQ(embedded.Row(t)[i], table[others[static_cast<size_t>(t)] * kWidth + i]);
      }
    }
    EXPECT_EQ(std::vector<float>(device.loaded->Features().Row(0),
                                 device.loaded->Features().Row(0) + 2 * kWidth),
              before);
  }
}

TEST(FeatureOps, ChecksNameWhatIsWrong) {
  WeightStore store(3);
  const StepProgram good = ShowingProgram(store);
  const auto complaint = [&good](const auto& change) {
    StepProgram program = good;
    change(program);
    return CheckProgram(program);
  };
  EXPECT_EQ(complaint([](StepProgram& p) { p.features = 3; }), "features do not exist");
  EXPECT_EQ(complaint([](StepProgram& p) { p.buffers[2].sampled_rows_only = true; }),
            "features are of all tokens");
  EXPECT_EQ(complaint([](StepProgram& p) {
              p.ops[0] = InputOp{0, 8};
            }),
            "op 0 (input): it ends after the inputs, which are 44 wide");
  EXPECT_EQ(complaint([](StepProgram& p) {
              p.ops[2] = CopyOp{0, 2, kWidth + 1};
            }),
            "op 2 (copy): it ends after out");
}

}  // namespace
}  // namespace quire::kernels::test
