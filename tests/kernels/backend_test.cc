// The backend's edges: what it refuses, what it reports, page copies, and the pool of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_program.h"
#include "tests/kernels/harness.h"

namespace quire::kernels::test {
namespace {

TEST(Backend, RefusesWhatItCannotServeAndNamesWhatItCan) {
  std::string error;
  EXPECT_EQ(MakeCpuBackend({.threads = -1}, error), nullptr);
  EXPECT_NE(error.find("threads"), std::string::npos);
  EXPECT_EQ(MakeCpuBackend({.threads = 1, .isa = "sse"}, error), nullptr);
  EXPECT_NE(error.find("avx2"), std::string::npos);
  EXPECT_EQ(MakeCpuBackend({.threads = 1, .activation_dtype = "int3"}, error), nullptr);
  EXPECT_NE(error.find("float32"), std::string::npos);
}

TEST(Backend, EveryInstructionSetHasTheSameNumericsClass) {
  std::string error;
  WeightStore store(1);
  const StepProgram program = MakeProgram(ModelShape{}, store);
  const auto reference = MakeCpuBackend({.threads = 1, .isa = "reference"}, error);
  for (const std::string& isa : AvailableIsas()) {
    const auto backend = MakeCpuBackend({.threads = 2, .isa = isa}, error);
    EXPECT_EQ(backend->NumericsClass(program), reference->NumericsClass(program));
    EXPECT_NE(backend->Description().find(isa), std::string::npos);
  }
}

// `auto` is int8 for files of K formats whose quantised weights are all of formats that passed.
TEST(Backend, AutoTakesInt8ForFormatsThatPassedItsGate) {
  struct Case {
    DType type;
    DType second;
    const char* wanted;
  };
  for (const Case& c :
       {Case{DType::kQ4_K, DType::kQ6_K, "int8"}, Case{DType::kQ8_0, DType::kQ6_K, "int8"},
        Case{DType::kQ8_0, DType::kQ8_0, "int8"}, Case{DType::kQ8_0, DType::kMXFP4, "int8"},
        Case{DType::kQ5_0, DType::kQ5_0, "float32"}, Case{DType::kQ4_K, DType::kQ4_0, "float32"},
        Case{DType::kG4, DType::kG4, "float32"}, Case{DType::kBF16, DType::kF32, "float32"}}) {
    WeightStore store(1);
    ModelShape shape;
    shape.type = c.type;
    shape.second_type = c.second;
    const StepProgram program = MakeProgram(shape, store);
    std::string error;
    const auto backend = MakeCpuBackend({.threads = 1, .activation_dtype = "auto"}, error);
    const auto plain = MakeCpuBackend({.threads = 1, .activation_dtype = c.wanted}, error);
    EXPECT_EQ(backend->NumericsClass(program), plain->NumericsClass(program));
    EXPECT_EQ(backend->PageShape(program, 16).type, plain->PageShape(program, 16).type);
    const std::vector<int32_t> tokens = RandomTokens(20, 90, 2);
    PagedRunner chosen(program, {.cpu = {.threads = 1, .activation_dtype = "auto"}});
    PagedRunner named(program, {.cpu = {.threads = 1, .activation_dtype = c.wanted}});
    EXPECT_EQ(chosen.Step({{0, 0, tokens}}), named.Step({{0, 0, tokens}})) << DTypeName(c.type);
  }
}

TEST(Backend, ReportsPackingAndReleasesEverySourceOnce) {
  WeightStore store(3);
  ModelShape shape;
  shape.type = DType::kQ4_0;
  const StepProgram program = MakeProgram(shape, store);
  std::string error;
  const auto backend = MakeCpuBackend({.threads = 2}, error);
  ProgramOptions options;
  options.kv = DealLayers(program.layer_windows, {.kv_heads = 2, .head_dim = 64});
  options.page_count = 4;
  int64_t last = 0;
  int64_t total = 0;
  int64_t released = 0;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  options.release_source = [&](const void*, int64_t bytes) { released += bytes; };
  const auto loaded = backend->Load(program, options);
  EXPECT_EQ(last, total);
  int64_t matrices = 0;
  for (const Weight& weight : program.weights) {
    for (const WeightSource& part : weight.parts) {
      if (weight.rows > 1) matrices += part.Bytes();
    }
  }
  EXPECT_EQ(released, matrices);
  EXPECT_EQ(loaded->WeightBytes(), backend->EstimateWeightBytes(program));
  EXPECT_EQ(loaded->WorkspaceBytes(), backend->EstimateWorkspaceBytes(program, options));
  EXPECT_EQ(loaded->PoolBytes(), 4 * options.kv.page_bytes);
}

// The int8 class keeps its rows in another form, and floats beside them only where it must.
TEST(Backend, Int8WorkspaceIsWhatThePlanSays) {
  std::string error;
  for (const DType second : {DType::kQ4_0, DType::kF16}) {
    WeightStore store(5);
    ModelShape shape;
    shape.type = DType::kQ4_0;
    shape.second_type = second;
    const StepProgram program = MakeProgram(shape, store);
    ProgramOptions options;
    options.kv = DealLayers(program.layer_windows, {.kv_heads = 2, .head_dim = 64});
    options.page_count = 4;
    const auto int8 = MakeCpuBackend({.threads = 2, .activation_dtype = "int8"}, error);
    const auto plain = MakeCpuBackend({.threads = 2}, error);
    const auto loaded = int8->Load(program, options);
    EXPECT_EQ(loaded->WorkspaceBytes(), int8->EstimateWorkspaceBytes(program, options));
    const int64_t of_floats = plain->EstimateWorkspaceBytes(program, options);
    EXPECT_EQ(loaded->WorkspaceBytes() < of_floats, second == DType::kQ4_0);
  }
}

TEST(Backend, CopiedPagesServeAnotherSequence) {
  WeightStore store(9);
  const StepProgram program = MakeProgram(ModelShape{}, store);
  std::string error;
  const auto backend = MakeCpuBackend({.threads = 1}, error);
  ProgramOptions options;
  options.kv = DealLayers(program.layer_windows, {.kv_heads = 2, .head_dim = 64});
  options.page_count = 2;
  const auto loaded = backend->Load(program, options);
  const std::vector<int32_t> tokens = RandomTokens(9, 90, 10);
  const auto run = [&](int32_t page, int begin, int end, std::vector<PageCopy> copies) {
    const std::vector<int32_t> table = {page};
    const std::vector<std::span<const int32_t>> tables = {table};
    std::vector<int32_t> positions;
    for (int i = begin; i < end; ++i) positions.push_back(i);
    const BatchRow row{.token_count = end - begin, .first_position = begin, .block_tables = tables};
    const std::vector<int32_t> sampled = {end - begin - 1};
    const std::vector<SampleRow> sample_rows(1);
    std::vector<SampleOutput> outputs(1);
    const StepBatch batch{std::span(tokens).subspan(begin, end - begin),
                          positions,
                          {&row, 1},
                          copies,
                          sampled,
                          sample_rows,
                          outputs};
    std::vector<float> logits(90, std::nanf(""));
    loaded->RunWithLogits(batch, logits);
    return logits;
  };
  run(0, 0, 8, {});
  loaded->PoisonPage(1);
  const auto wanted = run(0, 8, 9, {});
  EXPECT_EQ(run(1, 8, 9, {{0, 1}}), wanted);
}

}  // namespace
}  // namespace quire::kernels::test
