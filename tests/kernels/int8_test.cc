// The int8 class: its rule of sums, bit for bit, and its own parity with float64. Outputs and
// scratch start as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"
#include "tests/kernels/int8_model.h"
#include "tests/kernels/product.h"

namespace quire::kernels::cpu {
namespace {

using test::Fault;
using test::Int8Model;
using test::Pack;
using test::Product;
using test::RandomRows;
using test::SameBits;
using test::WeightStore;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const KernelTable*> HostInt8Kernels() {
  std::vector<const KernelTable*> tables = {&ReferenceInt8Kernels(), &Avx2Int8Kernels()};
  if (HostHas(Isa::kAvxVnni)) tables.push_back(&AvxVnniInt8Kernels());
  if (HostHas(Isa::kAvx512Vnni)) tables.push_back(&Avx512VnniKernels());
  return tables;
}

std::vector<DType> Int8Types() {
  std::vector<DType> types;
  for (const DType type : test::kAllTypes) {
    if (TakesInt8(type)) types.push_back(type);
  }
  return types;
}

// Outliers, as real activations have: most of a block's codes are then small.
std::vector<float> RowsWithOutliers(int64_t count, std::mt19937& random) {
  std::vector<float> x = RandomRows(count, random);
  for (float& v : x) {
    if (random() % 50 == 0) v *= 40.0f;
  }
  return x;
}

class EveryInt8Format : public ::testing::TestWithParam<DType> {};

// 72 rows in two parts leave a partial panel; K = 768 makes six chunks.
TEST_P(EveryInt8Format, FollowsTheRuleAtEveryRowCount) {
  WeightStore store(17);
  constexpr int64_t kColumns = 768;
  constexpr int kMostRows = 530;  // beyond one pass over the rows
  const Weight weight = test::TwoParts(store, GetParam(), kColumns);
  Product product;
  product.matrix = Pack(weight, false);
  const std::vector<float> x = RowsWithOutliers(kMostRows * kColumns, store.random());
  const Int8Model model(weight);
  std::vector<float> wanted;
  for (int row = 0; row < 33; ++row) {
    const std::vector<float> y = model.Run({x.data() + row * kColumns, kColumns});
    wanted.insert(wanted.end(), y.begin(), y.end());
  }
  const KernelTable& fastest = *HostInt8Kernels().back();
  const std::vector<float> whole = product.Run(fastest, x, kMostRows);
  ASSERT_TRUE(SameBits({whole.begin(), whole.begin() + 33 * weight.rows}, wanted));
  std::vector<int> counts = {31, 32, 33, 64, kMostRows};
  for (int rows = 1; rows <= 25; ++rows) counts.push_back(rows);
  for (const KernelTable* kernels : HostInt8Kernels()) {
    for (const int rows : counts) {
      if (kernels == &ReferenceInt8Kernels() && rows > 9) continue;
      const std::vector<float> part = product.Run(*kernels, x, rows);
      ASSERT_TRUE(SameBits(part, {whole.begin(), whole.begin() + rows * weight.rows}))
          << kernels->name << " with " << rows << " rows";
    }
  }
}

// The float64 product of the codes and scales that the rule starts from.
TEST_P(EveryInt8Format, AgreesWithFloat64) {
  WeightStore store(19);
  constexpr int64_t kColumns = 1024;
  const Weight weight = store.RandomWeight(GetParam(), 21, kColumns, 0.1f);
  Product product;
  product.matrix = Pack(weight, false);
  const std::vector<float> x = RowsWithOutliers(kColumns, store.random());
  const std::vector<float> y = product.Run(*HostInt8Kernels().back(), x, 1);
  std::vector<double> rounded(kColumns);
  for (int64_t k = 0; k < kColumns; ++k) rounded[k] = test::QuantisedValue(x, k);
  for (int64_t row = 0; row < weight.rows; ++row) {
    const std::vector<double> w = test::RowOf(weight, row);
    double sum = 0.0, size = 0.0, plain = 0.0;
    for (int64_t k = 0; k < kColumns; ++k) {
      sum += w[k] * rounded[k];
      plain += w[k] * x[k];
      size += std::fabs(w[k] * rounded[k]);
    }
    EXPECT_NEAR(y[row], sum, 1e-6 * size) << row;
    EXPECT_NEAR(y[row], plain, 2e-2 * size) << row;
  }
}

// A test that would pass with another rule proves nothing: each fault must show.
TEST_P(EveryInt8Format, OtherRulesHaveOtherBits) {
  WeightStore store(21);
  constexpr int64_t kColumns = 768;
  const Weight weight = store.RandomWeight(GetParam(), 64, kColumns, 0.1f);
  const std::vector<float> x = RowsWithOutliers(kColumns, store.random());
  const Int8Model model(weight);
  const std::vector<float> right = model.Run(x);
  for (const Fault fault : test::FaultsOf(GetParam())) {
    EXPECT_FALSE(SameBits(model.Run(x, fault), right)) << static_cast<int>(fault);
  }
}

// Blocks of zeros, of the smallest and of the largest numbers, at the edges of what is quantised.
TEST_P(EveryInt8Format, ZerosAndExtremes) {
  WeightStore store(23);
  constexpr int64_t kColumns = 256;
  const Weight weight = store.RandomWeight(GetParam(), 24, kColumns, 0.01f);
  Product product;
  product.matrix = Pack(weight, false);
  const Int8Model model(weight);
  std::vector<float> x(20 * kColumns, 0.0f);
  const float sizes[] = {1e-45f, 3.7e-37f, 3.8e-37f, 1e-20f, 1.0f, 1e20f, 1e30f};
  for (int row = 1; row < 20; ++row) {
    for (int64_t k = 0; k < kColumns; ++k) {
      const float sign = store.random()() % 2 == 0 ? 1.0f : -1.0f;
      x[row * kColumns + k] = (k / 32 + row) % 3 == 0 ? 0.0f : sign * sizes[(k / 32 + row) % 7];
    }
  }
  for (const KernelTable* kernels : HostInt8Kernels()) {
    for (const int rows : {1, 3, 20}) {
      const std::vector<float> y = product.Run(*kernels, x, rows);
      for (int row = 0; row < rows; ++row) {
        const std::vector<float> wanted = model.Run({x.data() + row * kColumns, kColumns});
        EXPECT_TRUE(SameBits({y.begin() + row * 24, y.begin() + row * 24 + 24}, wanted))
            << kernels->name << " row " << row << " of " << rows;
      }
      for (int i = 0; i < 24; ++i) EXPECT_EQ(y[i], 0.0f);
    }
  }
}

// What is not finite makes its own row NaN and no other.
TEST_P(EveryInt8Format, InfinitiesAndNaNStayInTheirRow) {
  WeightStore store(25);
  constexpr int64_t kColumns = 256;
  const Weight weight = store.RandomWeight(GetParam(), 20, kColumns, 0.1f);
  Product product;
  product.matrix = Pack(weight, false);
  for (const int rows : {1, 2, 4, 7, 16, 20}) {
    std::vector<float> x = RandomRows(rows * kColumns, store.random());
    const std::vector<float> clean = product.Run(*HostInt8Kernels().back(), x, rows);
    const int bad = rows / 2;
    for (const float value : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
      std::vector<float> spoilt = x;
      spoilt[bad * kColumns + 77] = value;
      for (const KernelTable* kernels : HostInt8Kernels()) {
        const std::vector<float> y = product.Run(*kernels, spoilt, rows);
        for (int i = 0; i < rows * 20; ++i) {
          if (i / 20 == bad) {
            EXPECT_TRUE(std::isnan(y[i])) << kernels->name << " " << value;
          } else {
            EXPECT_EQ(y[i], clean[i]) << kernels->name << " " << value;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Int8, EveryInt8Format, ::testing::ValuesIn(Int8Types()),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// The codes of a format's block, and the bytes that make its smallest and its largest codes.
struct CodeBytes {
  DType type;
  size_t begin;
  size_t count;
  int low;
  int high;
};
constexpr CodeBytes kCodeBytes[] = {
    {DType::kQ4_0, 2, 16, 0x00, 0xff},   {DType::kQ4_1, 4, 16, 0x00, 0xff},
    {DType::kQ5_0, 2, 20, 0x00, 0xff},   {DType::kQ5_1, 4, 20, 0x00, 0xff},
    {DType::kQ8_0, 2, 32, 0x80, 0x7f},   {DType::kQ2_K, 16, 64, 0x00, 0xff},
    {DType::kQ3_K, 0, 96, 0x00, 0xff},   {DType::kQ4_K, 16, 128, 0x00, 0xff},
    {DType::kQ5_K, 16, 160, 0x00, 0xff}, {DType::kQ6_K, 0, 192, 0x00, 0xff},
    {DType::kIQ4_NL, 2, 16, 0x00, 0xff}, {DType::kIQ4_XS, 8, 128, 0x00, 0xff},
    {DType::kMXFP4, 1, 16, 0xff, 0x77},
};

// Every product of a block as large as it can be, of one sign or of both in turns: where sums of
// products are kept in 16 bits, none may leave them.
TEST(Int8, TheLargestSumsOfABlock) {
  constexpr int64_t kColumns = 512;
  constexpr int kRows = 9;
  for (const CodeBytes& codes : kCodeBytes) {
    WeightStore store(29);
    Weight weight = store.RandomWeight(codes.type, 20, kColumns, 0.1f);
    WeightSource& source = weight.parts[0];
    std::vector<std::byte> bytes(source.data, source.data + source.Bytes());
    for (size_t block = 0; block * BlockBytes(codes.type) < bytes.size(); ++block) {
      const int value = block % 3 == 0 ? codes.low : codes.high;
      std::memset(bytes.data() + block * BlockBytes(codes.type) + codes.begin, value, codes.count);
    }
    source.data = bytes.data();
    Product product;
    product.matrix = Pack(weight, false);
    const Int8Model model(weight);
    std::vector<float> x(kRows * kColumns);
    for (int row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < kColumns; ++k) {
        x[row * kColumns + k] = (row % 3 == 2 ? k : row) % 2 == 0 ? 2.0f : -2.0f;
      }
    }
    for (const KernelTable* kernels : HostInt8Kernels()) {
      for (const int rows : {1, 2, 4, kRows}) {
        const std::vector<float> y = product.Run(*kernels, x, rows);
        for (int row = 0; row < rows; ++row) {
          const std::vector<float> wanted = model.Run({x.data() + row * kColumns, kColumns});
          EXPECT_TRUE(SameBits({y.begin() + row * 20, y.begin() + row * 20 + 20}, wanted))
              << DTypeName(codes.type) << ", " << kernels->name << ", row " << row << " of "
              << rows;
        }
      }
    }
  }
}

// One, three and five blocks of K: less than a chunk, and more by less than one.
TEST(Int8, RemaindersOfK) {
  for (const DType type : Int8Types()) {
    if (BlockElements(type) > 32) continue;
    for (const int64_t columns : {32, 96, 160}) {
      WeightStore store(27);
      const Weight weight = store.RandomWeight(type, 37, columns, 0.1f);
      Product product;
      product.matrix = Pack(weight, false);
      const Int8Model model(weight);
      const std::vector<float> x = RandomRows(40 * columns, store.random());
      for (const KernelTable* kernels : HostInt8Kernels()) {
        for (const int rows : {1, 2, 5, 16, 40}) {
          const std::vector<float> y = product.Run(*kernels, x, rows);
          const std::vector<float> wanted =
              model.Run({x.data() + (rows - 1) * columns, static_cast<size_t>(columns)});
          EXPECT_TRUE(SameBits({y.end() - 37, y.end()}, wanted))
              << kernels->name << " " << DTypeName(type) << " " << columns << " " << rows;
        }
      }
    }
  }
}

// q, k and v of different formats, and a gated pair: panels of two forms are partners.
TEST(Int8, MatricesOfMixedFormats) {
  WeightStore store(29);
  Weight weight;
  weight.cols = 256;
  weight.parts = {
      store.Random(DType::kQ4_K, 40, 256, 0.4f), store.Random(DType::kQ6_K, 16, 256, 0.4f),
      store.Random(DType::kQ8_0, 24, 256, 0.4f), store.Random(DType::kQ2_K, 16, 256, 0.4f)};
  weight.rows = 96;
  Product product;
  product.matrix = Pack(weight, false);
  const Int8Model model(weight);
  const std::vector<float> x = RandomRows(40 * 256, store.random());
  for (const KernelTable* kernels : HostInt8Kernels()) {
    for (const int rows : {1, 4, 16, 40}) {
      const std::vector<float> y = product.Run(*kernels, x, rows);
      EXPECT_TRUE(SameBits({y.end() - 96, y.end()}, model.Run({x.data() + (rows - 1) * 256, 256})))
          << kernels->name << " " << rows;
    }
  }
}

// A part that has no int8 product sends the whole matrix to the float32 class.
TEST(Int8, FloatPartsKeepTheFloat32Class) {
  WeightStore store(31);
  for (const DType second : {DType::kF16, DType::kF8}) {
    Weight weight;
    weight.cols = 256;
    weight.parts = {store.Random(DType::kQ4_0, 32, 256, 0.4f), store.Random(second, 16, 256, 0.4f)};
    weight.rows = 48;
    Product product;
    product.matrix = Pack(weight, false);
    EXPECT_FALSE(product.matrix.takes_int8);
    const std::vector<float> x = RandomRows(20 * 256, store.random());
    for (const int rows : {1, 5, 20}) {
      const std::vector<float> wanted = product.Run(ReferenceKernels(), x, rows);
      for (const KernelTable* kernels : HostInt8Kernels()) {
        EXPECT_TRUE(SameBits(product.Run(*kernels, x, rows), wanted)) << kernels->name << rows;
      }
    }
  }
}

}  // namespace
}  // namespace quire::kernels::cpu
