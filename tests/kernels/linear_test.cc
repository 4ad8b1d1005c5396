// Products of every format: against float64, and bit for bit at every count of rows, on every
// instruction set. Outputs start as NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/product.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cpu {
namespace {

using test::Pack;
using test::Product;
using test::RandomRows;
using test::SameBits;
using test::WeightStore;

std::vector<const KernelTable*> HostKernels() {
  std::vector<const KernelTable*> tables = {&ReferenceKernels(), &Avx2Kernels()};
  if (HostHas(Isa::kAvx512)) tables.push_back(&Avx512Kernels());
  return tables;
}

class EveryFormat : public ::testing::TestWithParam<DType> {};

// K = 768 makes six chunks.
TEST_P(EveryFormat, AgreesWithFloat64AndAtEveryRowCount) {
  const DType type = GetParam();
  WeightStore store(17);
  constexpr int64_t kColumns = 768;
  const Weight weight = test::TwoParts(store, type, kColumns);
  Product product;
  product.matrix = Pack(weight, false);
  constexpr int kMostRows = 512;
  const std::vector<float> x = RandomRows(kMostRows * kColumns, store.random());
  const std::vector<float> whole = product.Run(ReferenceKernels(), x, kMostRows);

  for (const int row : {0, 5, 511}) {
    for (int64_t out = 0; out < weight.rows; ++out) {
      const std::vector<double> w = test::RowOf(weight, out);
      double sum = 0.0;
      double size = 0.0;
      for (int64_t k = 0; k < kColumns; ++k) {
        sum += w[k] * x[row * kColumns + k];
        size += std::fabs(w[k] * x[row * kColumns + k]);
      }
      // Rounding of chunked sums: far below 1e-6 of the sum of magnitudes.
      ASSERT_NEAR(whole[row * weight.rows + out], sum, 1e-6 * size) << row << " " << out;
    }
  }
  std::vector<int> counts = {31, 32, 33, 64, 512};
  for (int rows = 1; rows <= 17; ++rows) counts.push_back(rows);
  for (const KernelTable* kernels : HostKernels()) {
    for (const int rows : counts) {
      if (kernels == &ReferenceKernels() && rows > 33) continue;
      const std::vector<float> part = product.Run(*kernels, x, rows);
      ASSERT_TRUE(SameBits(part, {whole.begin(), whole.begin() + rows * weight.rows}))
          << kernels->name << " with " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Linear, EveryFormat, ::testing::ValuesIn(test::kAllTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Sizes that fill neither vectors, pairs, blocks nor chunks.
TEST(Linear, OddSizesOfFloatWeights) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {1, 7, 33, 129, 200}) {
      WeightStore store(23);
      const Weight weight = store.RandomWeight(type, 21, columns, 0.5f);
      Product product;
      product.matrix = Pack(weight, false);
      const std::vector<float> x = RandomRows(20 * columns, store.random());
      const std::vector<float> first = product.Run(ReferenceKernels(), x, 20);
      double sum = 0.0;
      for (int64_t k = 0; k < columns; ++k) {
        sum += test::ElementOf(weight.parts[0], 20, k) * x[3 * columns + k];
      }
      EXPECT_NEAR(first[3 * 21 + 20], sum, 1e-5);
      for (const KernelTable* kernels : HostKernels()) {
        EXPECT_TRUE(SameBits(product.Run(*kernels, x, 20), first)) << kernels->name << columns;
        const std::vector<float> one = product.Run(*kernels, x, 1);
        EXPECT_TRUE(SameBits(one, {first.begin(), first.begin() + 21})) << kernels->name;
      }
    }
  }
}

double Activated(LinearOp::Activation activation, double gate, double up) {
  if (activation == LinearOp::Activation::kSiluGated) return gate / (1 + std::exp(-gate)) * up;
  const double inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
  return 0.5 * gate * (1 + std::tanh(inner)) * up;
}

TEST(Linear, GatedActivationsOfMixedFormats) {
  WeightStore store(29);
  Weight weight;
  weight.cols = 256;
  weight.parts = {store.Random(DType::kQ4_K, 24, 256, 0.4f),
                  store.Random(DType::kQ8_0, 24, 256, 0.4f)};
  weight.rows = 48;
  const std::vector<float> x = RandomRows(5 * 256, store.random());
  for (const auto activation :
       {LinearOp::Activation::kSiluGated, LinearOp::Activation::kGeluTanhGated}) {
    Product product;
    product.matrix = Pack(weight, true);
    product.activation = activation;
    const std::vector<float> got = product.Run(ReferenceKernels(), x, 5);
    for (int row = 0; row < 5; ++row) {
      for (int i = 0; i < 24; ++i) {
        double y[2] = {};
        for (int half = 0; half < 2; ++half) {
          const std::vector<double> w = test::RowOf(weight, i + 24 * half);
          for (int k = 0; k < 256; ++k) y[half] += w[k] * x[row * 256 + k];
        }
        const double wanted = Activated(activation, y[0], y[1]);
        EXPECT_NEAR(got[row * 24 + i], wanted, 1e-4 + 1e-5 * std::fabs(wanted));
      }
    }
    for (const KernelTable* kernels : HostKernels()) {
      EXPECT_TRUE(SameBits(product.Run(*kernels, x, 5), got)) << kernels->name;
    }
  }
}

TEST(Linear, BiasScaleAndSoftCap) {
  WeightStore store(31);
  const Weight weight = store.RandomWeight(DType::kF32, 19, 64, 0.5f);
  Product product;
  product.matrix = Pack(weight, false);
  const std::vector<float> x = RandomRows(3 * 64, store.random());
  const std::vector<float> plain = product.Run(ReferenceKernels(), x, 3);
  product.bias = RandomRows(19, store.random());
  product.scale = 0.25f;
  product.softcap = 2.0f;
  const std::vector<float> got = product.Run(ReferenceKernels(), x, 3);
  for (int i = 0; i < 3 * 19; ++i) {
    const double wanted = 2 * std::tanh((plain[i] + double{product.bias[i % 19]}) * 0.25 / 2);
    EXPECT_NEAR(got[i], wanted, 1e-6);
  }
  for (const KernelTable* kernels : HostKernels()) {
    EXPECT_TRUE(SameBits(product.Run(*kernels, x, 3), got)) << kernels->name;
  }
}

TEST(Linear, ReluAndItsSquare) {
  WeightStore store(37);
  const Weight weight = store.RandomWeight(DType::kF32, 37, 64, 0.5f);
  Product product;
  product.matrix = Pack(weight, false);
  product.bias = RandomRows(37, store.random());
  const std::vector<float> x = RandomRows(20 * 64, store.random());
  const std::vector<float> plain = product.Run(ReferenceKernels(), x, 20);
  for (const auto activation : {LinearOp::Activation::kRelu, LinearOp::Activation::kReluSquared}) {
    product.activation = activation;
    const std::vector<float> got = product.Run(ReferenceKernels(), x, 20);
    for (size_t i = 0; i < got.size(); ++i) {
      const float y = std::max(plain[i], 0.0f);
      EXPECT_EQ(got[i], activation == LinearOp::Activation::kRelu ? y : y * y);
    }
    for (const KernelTable* kernels : HostKernels()) {
      EXPECT_TRUE(SameBits(product.Run(*kernels, x, 20), got)) << kernels->name;
    }
  }
}

// Types that a file stores as indices are unpacked to two, three or four bits.
double MostOfTheFile(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
      return 1.61;
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XS:
      return 1.49;
    case DType::kIQ3_XXS:
      return 1.42;
    case DType::kIQ2_S:
      return 1.30;
    case DType::kIQ3_S:
      return 1.26;
    case DType::kTQ1_0:
      return 1.23;
    default:
      return 1.05;
  }
}

TEST(PackedMatrix, StaysNearTheSizeOfTheFile) {
  WeightStore store(37);
  for (const DType type : test::kAllTypes) {
    const Weight weight = store.RandomWeight(type, 64, 2048, 1.0f);
    const PackedMatrix matrix = PlanMatrix(weight, false);
    EXPECT_LE(PackedBytes(matrix),
              MostOfTheFile(type) * static_cast<double>(weight.parts[0].Bytes()))
        << DTypeName(type);
  }
}

}  // namespace
}  // namespace quire::kernels::cpu
