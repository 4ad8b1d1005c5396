// AMX's class of bfloat16: its products against a scalar model of the instruction, and bit for bit
// at every count of rows in the reference, in AVX-512 and, where there are any, on tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/vec16_plain.h"
#include "tests/kernels/double_model.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/model_tiles.h"
#include "tests/kernels/product.h"

namespace quire::kernels::test {
namespace {

struct Vec16Model : cpu::Vec16Plain {};

// The way of blocks through tile registers, over a model of these.
const cpu::KernelTable& ModelKernels() {
  using Unit = cpu::TileUnit<Vec16Model, ModelTiles<>>;
  static cpu::KernelTable table;
  table.name = "a model of tiles";
  table.tile_rows = cpu::kAmxTileRows;
  table.pack_tiles = cpu::PackBFloatRows<Vec16Model>;
  table.linear = cpu::LinearAmx<Vec16Model, Unit>;
  return table;
}

std::vector<const cpu::KernelTable*> HostTables() {
  std::vector<const cpu::KernelTable*> tables = {&cpu::ReferenceAmxKernels(), &ModelKernels()};
  if (cpu::HostHas(cpu::Isa::kAvx512Bf16)) tables.push_back(&cpu::AmxVectorKernels());
  if (cpu::HostHas(cpu::Isa::kAmx)) {
    tables.push_back(&cpu::AmxKernels());
  } else {
    std::puts("this host has no AMX: its tiles were not run");
  }
  return tables;
}

float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// TDPBF16PS over all of K, as Intel's manual writes it, for one output.
float ModelOfInstruction(const std::vector<float>& x, const std::vector<float>& w) {
  const auto fused = [](float a, float b, float c) {
    return Flushed(std::fma(Flushed(a), Flushed(b), Flushed(c)));
  };
  float sum = 0.0f;
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    float parts[2] = {0.0f, 0.0f};
    for (size_t k = begin; k < std::min(x.size(), begin + 32); ++k) {
      const float a = cpu::BFloatToFloat(cpu::FloatToBFloat(x[k]));
      const float b = cpu::BFloatToFloat(cpu::FloatToBFloat(w[k]));
      parts[k % 2] = fused(a, b, parts[k % 2]);
    }
    sum = Flushed(sum + Flushed(parts[0] + parts[1]));
  }
  return sum;
}

std::vector<float> AsFloats(const std::vector<double>& row) { return {row.begin(), row.end()}; }

// K that fills no block, no pair and no tile; more rows than two tiles hold.
TEST(Amx, IsWhatTheInstructionComputes) {
  constexpr int kRows = 37;
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t columns : {1, 31, 64, 129, 333}) {
      WeightStore store(3);
      const Weight weight = store.RandomWeight(type, 37, columns, 0.5f);
      Product product;
      product.matrix = Pack(weight, false);
      const std::vector<float> x = RandomRows(kRows * columns, store.random());
      for (const cpu::KernelTable* kernels : HostTables()) {
        const std::vector<float> got = product.Run(*kernels, x, kRows);
        for (int row = 0; row < kRows; ++row) {
          const std::vector<float> in(x.begin() + row * columns, x.begin() + (row + 1) * columns);
          for (int64_t out = 0; out < weight.rows; ++out) {
            ASSERT_EQ(got[row * weight.rows + out],
                      ModelOfInstruction(in, AsFloats(RowOf(weight, out))))
                << kernels->name << ", " << DTypeName(type) << ", K " << columns << ": " << row
                << ", " << out;
          }
        }
      }
    }
  }
}

// Products below the smallest normal number are lost, and such inputs are zero.
TEST(Amx, SubnormalNumbersAreZero) {
  WeightStore store(5);
  const Weight weight = store.RandomWeight(DType::kBF16, 16, 64, 1e-25f);
  Product product;
  product.matrix = Pack(weight, false);
  std::vector<float> x = RandomRows(9 * 64, store.random());
  for (float& value : x) value *= 1e-18f;
  for (int k = 0; k < 64; ++k) x[k] = 1e-39f;
  for (const cpu::KernelTable* kernels : HostTables()) {
    for (const float sum : product.Run(*kernels, x, 9)) EXPECT_EQ(sum, 0.0f) << kernels->name;
  }
}

class AmxFormat : public ::testing::TestWithParam<DType> {};

TEST_P(AmxFormat, HasTheSameBitsAtEveryRowCount) {
  constexpr int64_t kColumns = 768;
  constexpr int kMostRows = 70;
  WeightStore store(17);
  const Weight weight = TwoParts(store, GetParam(), kColumns);
  Product product;
  product.matrix = Pack(weight, false);
  const std::vector<float> x = RandomRows(kMostRows * kColumns, store.random());
  const std::vector<float> whole = product.Run(cpu::ReferenceAmxKernels(), x, kMostRows);
  for (const cpu::KernelTable* kernels : HostTables()) {
    for (const int rows : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 70}) {
      const std::vector<float> part = product.Run(*kernels, x, rows);
      ASSERT_TRUE(SameBits(part, {whole.begin(), whole.begin() + rows * weight.rows}))
          << kernels->name << " with " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Amx, AmxFormat, ::testing::ValuesIn(kAllTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(Amx, AModelIsNearFloat64AndTheSameInPieces) {
  const bool tiles = cpu::HostHas(cpu::Isa::kAmx);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ4_K}) {
    WeightStore store(11);
    ModelShape shape;
    shape.type = shape.second_type = type;
    const StepProgram program = MakeProgram(shape, store);
    const std::vector<int32_t> tokens = RandomTokens(70, 90, 12);
    const std::vector<std::vector<double>> exact = DoubleModel(program).Run(tokens);
    Logits first;
    for (const char* isa : {"reference", "amx"}) {
      if (isa == std::string("amx") && !tiles) continue;
      const CpuOptions cpu{.threads = 2, .isa = isa, .activation_dtype = "bfloat16"};
      PagedRunner runner(program, {.cpu = cpu});
      const Logits whole = runner.Step({{0, 0, tokens}});
      EXPECT_LT(WorstError(whole, exact), 3e-2) << DTypeName(type);
      if (first.empty()) first = whole;
      EXPECT_EQ(whole, first) << DTypeName(type);
      PagedRunner other(program, {.cpu = cpu, .sequences = 2});
      EXPECT_EQ(RunInChunks(other, tokens, 7, RandomTokens(5, 90, 13)), whole) << DTypeName(type);
      const std::string name = runner.backend().NumericsClass(program);
      EXPECT_NE(name.find("bfloat16-amx"), std::string::npos) << name;
    }
  }
}

TEST(Amx, TilesThatRoundInAnotherWayAreFound) {
  const cpu::AmxNumbers numbers = cpu::MakeAmxNumbers();
  EXPECT_TRUE((cpu::TilesAgree<Vec16Model, ModelTiles<>>(numbers)));
  EXPECT_FALSE((cpu::TilesAgree<Vec16Model, ModelTiles<TileFault::kOneChain>>(numbers)));
  EXPECT_FALSE((cpu::TilesAgree<Vec16Model, ModelTiles<TileFault::kNoFlush>>(numbers)));
  EXPECT_FALSE((cpu::TilesAgree<Vec16Model, ModelTiles<TileFault::kPanelsSwapped>>(numbers)));
}

TEST(Amx, TilesThatAreThereAgreeWithVectors) {
  if (!cpu::HostHas(cpu::Isa::kAmx)) GTEST_SKIP() << "this host has no AMX: not run";
  EXPECT_TRUE(cpu::AmxTilesAgree(cpu::MakeAmxNumbers()));
}

TEST(Amx, AHostWithoutTilesIsRefusedByName) {
  if (cpu::HostHas(cpu::Isa::kAmx)) GTEST_SKIP() << "this host has AMX";
  std::string error;
  EXPECT_EQ(MakeCpuBackend({.threads = 1, .isa = "amx", .activation_dtype = "bfloat16"}, error),
            nullptr);
  EXPECT_EQ(error.find("this processor lacks amx; here are auto, reference"), 0U) << error;
}

}  // namespace
}  // namespace quire::kernels::test
