// Adapters' ops: agreement with float64, bits that neighbours, rows, threads and instruction sets
// do not change, and rows without an adapter that keep theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/packed_adapter.h"
#include "kernels/ops.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

ModelShape LoraShape(DType type, bool relu = false) {
  ModelShape shape;
  shape.type = type;
  shape.second_type = type;
  shape.hidden = 256;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.inner = 256;
  shape.layer_norm = relu;
  shape.block_scale = 0.5f;
  return shape;
}

// The program with ops of adapters behind every product, as a model's builder writes them.
StepProgram WithAdapterOps(const StepProgram& plain) {
  StepProgram program = plain;
  program.ops.clear();
  for (const Op& op : plain.ops) {
    const auto* found = std::get_if<LinearOp>(&op);
    if (found == nullptr) {
      program.ops.push_back(op);
      continue;
    }
    LinearOp linear = *found;
    const Weight& weight = plain.weights[static_cast<size_t>(linear.weight)];
    LoraOp lora;
    lora.scale = linear.scale;
    lora.in = linear.in;
    // Products of several matrices have a slice for each.
    std::vector<int64_t> heights;
    for (const WeightSource& part : weight.parts) heights.push_back(part.rows);
    int column = 0;
    for (const int64_t height : heights) {
      lora.slices.push_back({static_cast<int>(program.lora_targets.size()), column});
      program.lora_targets.push_back({{"m"}, height, weight.cols, {{0, height}}, 0, weight.cols});
      column += static_cast<int>(height);
    }
    const LinearOp::Activation activation = linear.activation;
    const BufferId out = linear.out;
    if (activation != LinearOp::Activation::kNone) {
      program.buffers.push_back({"before", static_cast<int>(weight.rows)});
      linear.activation = LinearOp::Activation::kNone;
      linear.out = static_cast<BufferId>(program.buffers.size()) - 1;
    }
    lora.out = linear.out;
    program.ops.emplace_back(linear);
    program.ops.emplace_back(lora);
    if (activation != LinearOp::Activation::kNone) {
      program.ops.emplace_back(ActivateOp{activation, linear.out, out});
    }
  }
  return program;
}

// Leaves every `skip`-th target alone.
Adapter RandomAdapter(const StepProgram& program, WeightStore& store, DType type, int rank,
                      size_t skip = 0) {
  Adapter adapter;
  for (size_t i = 0; i < program.lora_targets.size(); ++i) {
    const LoraTarget& target = program.lora_targets[i];
    AdapterMatrices& own = adapter.targets.emplace_back();
    if (skip > 0 && i % skip == 0) continue;
    own.a = store.Random(type, rank, target.col_count, 0.06f);
    own.b = store.Random(type, target.Width(), rank, 0.1f);
    own.scale = 0.75f;
  }
  return adapter;
}

PagedRunner::Options With(const std::string& isa, int threads, int sequences = 1) {
  return {.cpu = {.threads = threads, .isa = isa},
          .sequences = sequences,
          .max_loras = 3,
          .max_lora_rank = 64};
}

void Install(PagedRunner& runner, int slot, const Adapter& adapter) {
  runner.program().SetAdapter(slot, runner.program().PackAdapter(adapter));
}

TEST(Lora, AgreesWithFloat64OnEveryInstructionSet) {
  for (const bool relu : {false, true}) {
    for (const int rank : {1, 3, 8, 16, 17, 64}) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << (relu ? ", relu" : ""));
      WeightStore store(51);
      const StepProgram program =
          WithAdapterOps(MakeProgram(LoraShape(relu ? DType::kBF16 : DType::kQ4_0, relu), store));
      ASSERT_EQ(CheckProgram(program), "");
      const DType type = rank == 3 ? DType::kBF16 : rank == 17 ? DType::kF16 : DType::kF32;
      const Adapter adapter = RandomAdapter(program, store, type, rank, rank == 8 ? 3 : 0);
      const std::vector<int32_t> tokens = RandomTokens(37, 90, 52);
      DoubleModel model(program);
      model.SetAdapter(adapter);
      const auto wanted = model.Run(tokens);
      Logits first;
      for (const std::string& isa : AvailableIsas()) {
        PagedRunner runner(program, With(isa, 2));
        Install(runner, 1, adapter);
        const Logits got = runner.Step({{0, 0, tokens, 1}});
        EXPECT_LT(WorstError(got, wanted), 1e-5) << isa;
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << isa << " has other bits than the reference";
      }
    }
  }
}

TEST(Lora, RowsWithoutAnAdapterKeepTheirBits) {
  for (const DType type : {DType::kF32, DType::kQ4_0, DType::kQ6_K, DType::kG8}) {
    for (const char* activations : {"float32", "int8", "w8a8"}) {
      const bool rounds = std::string(activations) == "w8a8";
      if (rounds && type != DType::kG8) continue;
      SCOPED_TRACE(std::string(DTypeName(type)) + " " + activations);
      WeightStore store(53);
      StepProgram plain = MakeProgram(LoraShape(type), store);
      for (Weight& weight : plain.weights) {
        for (WeightSource& part : weight.parts) {
          if (rounds && part.type == type) part.rounding.code = ActivationRounding::Code::kInt8;
        }
      }
      const StepProgram program = WithAdapterOps(plain);
      const Adapter adapter = RandomAdapter(program, store, DType::kF32, 16);
      const std::vector<int32_t> tokens = RandomTokens(60, 90, 54);
      const std::vector<int32_t> others = RandomTokens(40, 90, 55);
      PagedRunner alone(plain, {.cpu = {.threads = 1, .activation_dtype = activations}});
      const Logits wanted = alone.Step({{0, 0, tokens}});
      PagedRunner::Options options = With("auto", 3, 3);
      options.cpu.activation_dtype = activations;
      PagedRunner runner(program, options);
      Install(runner, 0, adapter);
      const Logits got = runner.Step({{1, 0, others, 0}, {0, 0, tokens}, {2, 0, others, 0}});
      EXPECT_EQ(Logits(got.begin() + 40, got.begin() + 100), wanted);
    }
  }
}

// Of a row with an adapter: chunk, neighbours and theirs, threads.
TEST(Lora, HasTheSameBitsInAnyCompany) {
  WeightStore store(56);
  const StepProgram program = WithAdapterOps(MakeProgram(LoraShape(DType::kQ8_0), store));
  const Adapter one = RandomAdapter(program, store, DType::kBF16, 8);
  const Adapter two = RandomAdapter(program, store, DType::kF32, 33, 2);
  const std::vector<int32_t> tokens = RandomTokens(96, 90, 57);
  const std::vector<int32_t> others = RandomTokens(33, 90, 58);
  PagedRunner whole(program, With("auto", 1));
  Install(whole, 2, one);
  const Logits wanted = whole.Step({{0, 0, tokens, 2}});
  for (const int chunk : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64}) {
    for (const int neighbour : {-1, 0, 1}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", beside " << neighbour);
      PagedRunner runner(program, With("auto", 3, 3));
      Install(runner, 0, one);
      Install(runner, 1, two);
      Logits got;
      for (int begin = 0; begin < 96; begin += chunk) {
        const int end = std::min(96, begin + chunk);
        const std::vector<int32_t> piece(tokens.begin() + begin, tokens.begin() + end);
        const Logits part = runner.Step(
            {{1, 0, others, neighbour}, {0, begin, piece, 0}, {2, 0, others, neighbour}});
        got.insert(got.end(), part.begin() + 33, part.end() - 33);
      }
      EXPECT_EQ(got, wanted);
    }
  }
}

// More tokens than are taken at a time.
TEST(Lora, LongStepsAreCutIntoSlices) {
  WeightStore store(59);
  const StepProgram program = WithAdapterOps(MakeProgram(LoraShape(DType::kQ8_0), store));
  const Adapter adapter = RandomAdapter(program, store, DType::kF32, 16);
  const std::vector<int32_t> tokens = RandomTokens(1024, 90, 60);
  PagedRunner runner(program, With("auto", 2));
  Install(runner, 0, adapter);
  const Logits whole = runner.Step({{0, 0, tokens, 0}});
  PagedRunner pieces(program, With("auto", 2));
  Install(pieces, 0, adapter);
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + 300);
  const std::vector<int32_t> tail(tokens.begin() + 300, tokens.end());
  Logits got = pieces.Step({{0, 0, head, 0}});
  const Logits rest = pieces.Step({{0, 300, tail, 0}});
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, whole);
}

// A slot that gets another adapter computes with that one.
TEST(Lora, ASlotHoldsWhatWasSetLast) {
  WeightStore store(61);
  const StepProgram program = WithAdapterOps(MakeProgram(LoraShape(DType::kF32), store));
  const Adapter one = RandomAdapter(program, store, DType::kF32, 4);
  const Adapter two = RandomAdapter(program, store, DType::kF32, 4);
  const std::vector<int32_t> tokens = RandomTokens(9, 90, 62);
  PagedRunner first(program, With("auto", 1));
  Install(first, 0, one);
  const Logits of_one = first.Step({{0, 0, tokens, 0}});
  PagedRunner runner(program, With("auto", 1));
  Install(runner, 0, two);
  EXPECT_NE(runner.Step({{0, 0, tokens, 0}}), of_one);
  Install(runner, 0, one);
  EXPECT_EQ(runner.Step({{0, 0, tokens, 0}}), of_one);
}

TEST(Lora, MemoryIsWhatWasEstimatedAtMost) {
  WeightStore store(63);
  const StepProgram program = WithAdapterOps(MakeProgram(LoraShape(DType::kF32), store));
  const int64_t most = cpu::MostAdapterBytes(program.lora_targets, 17);
  EXPECT_EQ(cpu::PackAdapter(RandomAdapter(program, store, DType::kF32, 17))->Bytes(), most);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int rank : {1, 16, 17}) {
      EXPECT_LE(cpu::PackAdapter(RandomAdapter(program, store, type, rank))->Bytes(), most);
    }
  }
  PagedRunner runner(program, With("auto", 2));
  ProgramOptions options;
  options.kv = DealLayers(program.layer_windows, KvShapeOf(program, 16, KvType::kF32));
  options.max_tokens = options.max_samples = 1024;
  options.max_loras = 3;
  options.max_lora_rank = 64;
  EXPECT_EQ(runner.backend().EstimateWorkspaceBytes(program, options),
            runner.program().WorkspaceBytes());
}

TEST(Lora, AProgramWhoseTargetsDoNotAgreeIsNamed) {
  const auto error = [](auto spoil) {
    WeightStore store(64);
    StepProgram program = WithAdapterOps(MakeProgram(LoraShape(DType::kF32), store));
    for (Op& op : program.ops) {
      if (auto* lora = std::get_if<LoraOp>(&op)) {
        spoil(*lora, program.lora_targets.front());
        break;
      }
    }
    return CheckProgram(program);
  };
  const auto says = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  EXPECT_EQ(error([](LoraOp&, LoraTarget&) {}), "");
  says(error([](LoraOp& op, LoraTarget&) { op.slices[0].target = 99; }), "target 99");
  says(error([](LoraOp& op, LoraTarget&) { op.slices[2].column += 1; }), "after out");
  says(error([](LoraOp& op, LoraTarget&) { op.in = op.out; }), "one buffer");
  says(error([](LoraOp&, LoraTarget& target) { target.col_count -= 1; }), "columns of a target");
  says(error([](LoraOp&, LoraTarget& target) { target.first_col = 1; }), "beyond its module's");
  says(error([](LoraOp&, LoraTarget& target) { target.rows -= 1; }), "rows of a target");
}

}  // namespace
}  // namespace quire::kernels::test
