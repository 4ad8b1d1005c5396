// RMSNorm, LayerNorm, activations, embedding and rounding against float64, and bits equal at every
// number of rows.
#include "kernels/cuda/ops/embedding/embedding.h"
#include "kernels/cuda/ops/norm/layer_norm.h"
#include "kernels/cuda/ops/norm/rms_norm.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "kernels/cuda/ops/rows/round_rows.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

const int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                          12, 13, 14, 15, 16, 17, 31, 32, 33, 64};

// How a norm's rows leave it.
enum class Out { kBf16, kHalf, kFloat32, kSum };

struct NormCase {
  int width;
  Out out;
  float weight_offset = 0.0f;  // of RMSNorm
  bool bias = false;           // of LayerNorm
};

// Where rows of a case go: NaN, or numbers to be added to.
RowsOut Destination(DeviceBed& bed, Out out, size_t n) {
  RowsOut to;
  if (out == Out::kBf16 || out == Out::kHalf) to.narrow = bed.New<uint16_t>(n);
  to.half = out == Out::kHalf;
  if (out == Out::kFloat32) to.float32 = bed.New<float>(n);
  if (out == Out::kSum) to.float32 = bed.Put(RandomFloats(n, 9));
  to.accumulate = out == Out::kSum;
  return to;
}

std::vector<float> Rows(DeviceBed& bed, const RowsOut& from, size_t n) {
  if (from.float32 != nullptr) return bed.Get(from.float32, n);
  std::vector<float> wide;
  for (const uint16_t bits : bed.Get(from.narrow, n)) wide.push_back(Widen(bits, from.half));
  return wide;
}

// What rounding the exact row may cost, and sums in float32 of up to 16,384 terms.
double Slack(Out out, double exact) {
  const double bf16 = 1.01 * Bf16Rounding(exact);
  return (out == Out::kBf16 ? bf16 : out == Out::kHalf ? bf16 / 8 : 2e-6 * std::abs(exact)) + 2e-5;
}

// One launch over `rows` rows.
std::vector<float> RunNorm(DeviceBed& bed, const NormCase& c, int rows) {
  const size_t n = static_cast<size_t>(rows) * c.width;
  RmsNormParams params;
  params.x = bed.Put(RandomFloats(n, 1));
  params.weight = bed.Put(RandomFloats(c.width, 3));
  params.out = Destination(bed, c.out, n);
  params.rows = rows;
  params.width = c.width;
  params.weight_offset = c.weight_offset;
  bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
  return Rows(bed, params.out, n);
}

TEST(CudaRmsNorm, IsTheFloat64Meaning) {
  for (const NormCase c :
       {NormCase{8, Out::kBf16}, NormCase{24, Out::kSum}, NormCase{640, Out::kBf16, 1.0f},
        NormCase{1024, Out::kFloat32}, NormCase{1032, Out::kBf16}, NormCase{4096, Out::kSum, 1.0f},
        NormCase{16384, Out::kBf16}, NormCase{16376, Out::kSum}, NormCase{1032, Out::kHalf},
        NormCase{24, Out::kHalf, 1.0f}}) {
    DeviceBed bed(c.width);
    const int rows = 5;
    const auto out = RunNorm(bed, c, rows);
    const size_t n = static_cast<size_t>(rows) * c.width;
    const auto x = RandomFloats(n, 1);
    const auto weight = RandomFloats(c.width, 3);
    const auto there = RandomFloats(n, 9);
    for (size_t row = 0; row < n; row += c.width) {
      double squares = 0.0;
      for (int i = 0; i < c.width; ++i) squares += static_cast<double>(x[row + i]) * x[row + i];
      const double factor = 1.0 / std::sqrt(squares / c.width + 1e-6);
      for (int i = 0; i < c.width; ++i) {
        double exact = x[row + i] * factor * (static_cast<double>(weight[i]) + c.weight_offset);
        const double slack = Slack(c.out, exact);
        if (c.out == Out::kSum) exact += there[row + i];
        ASSERT_NEAR(out[row + i], exact, slack) << c.width << " " << row << " " << i;
      }
    }
  }
}

TEST(CudaRmsNorm, BitsOfARowAreTheSameAtAnyNumberOfRows) {
  for (const Out out : {Out::kBf16, Out::kSum}) {
    const NormCase c{640, out};
    DeviceBed bed(3);
    const auto whole = RunNorm(bed, c, 600);  // more rows than blocks
    for (const int rows : kRowCounts) {
      const auto part = RunNorm(bed, c, rows);
      ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0) << rows;
    }
  }
}

// A product and a router read the same row: both get the factor once.
TEST(CudaRmsNorm, BothFormsOfARowHaveItsFactor) {
  DeviceBed bed(4);
  const int width = 648;
  const size_t n = 3 * static_cast<size_t>(width);
  RmsNormParams params;
  params.x = bed.Put(RandomFloats(n, 1));
  params.weight = bed.Put(RandomFloats(width, 3));
  params.rows = 3;
  params.width = width;
  params.out.float32 = bed.New<float>(n);
  bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
  const auto plain = bed.Get(params.out.float32, n);
  params.out.narrow = bed.New<uint16_t>(n);
  params.out.scale = 0.25f;
  bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
  const auto wide = bed.Get(params.out.float32, n);
  const auto narrow = bed.Get(params.out.narrow, n);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(wide[i], 0.25f * plain[i]) << i;
    ASSERT_EQ(narrow[i], device::Bf16Bits(wide[i])) << i;
  }
}

struct NormShape {
  int rows;
  int width;
  const char* kernel;
};
// The row, and what is written of it: bfloat16, or a sum that is read too.
double NormBytes(const NormShape& s, Out out) {
  return (out == Out::kBf16 ? 6.0 : 12.0) * s.rows * s.width;
}

TEST(CudaRmsNorm, RowsBeyondFloat16AreItsLargestAndNaNStays) {
  DeviceBed bed(6);
  std::vector<float> x(16, 1.0f);
  x[8] = std::nanf("");
  std::vector<float> weight = {1e5f, -1e5f, 65504.0f, 1.0f, 0x1p-24f, 0.0f, 1.0f, 1.0f};
  RmsNormParams params;
  params.x = bed.Put(x);
  params.weight = bed.Put(weight);
  params.out.narrow = bed.New<uint16_t>(16);
  params.out.half = true;
  params.rows = 2;
  params.width = 8;
  params.epsilon = 0.0f;
  bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
  const auto out = bed.Get(params.out.narrow, 16);
  const std::vector<uint16_t> expected = {0x7bff, 0xfbff, 0x7bff, 0x3c00, 1, 0, 0x3c00, 0x3c00};
  EXPECT_EQ(std::vector<uint16_t>(out.begin(), out.begin() + 8), expected);
  EXPECT_TRUE(std::isnan(Widen(out[8], true)));
}

TEST(CudaRmsNorm, KeepsItsBudget) {
  // Every block reads the weight: seven or eight rows each make that little, of a sum half of them.
  for (const NormShape& s :
       {NormShape{1848, 64, "rms_norm_narrow"}, NormShape{2112, 1032, "rms_norm_middle"},
        NormShape{1056, 6152, "rms_norm_wide"}}) {
    for (const Out out : {Out::kBf16, Out::kSum}) {
      DeviceBed bed(4);
      const NormShape own{out == Out::kSum ? s.rows / 2 : s.rows, s.width, s.kernel};
      RunNorm(bed, {s.width, out}, own.rows);
      ExpectWithinBudget(bed.runtime(), s.kernel, NormBytes(own, out) + s.width * 4, 0);
    }
  }
}

TEST(CudaRmsNorm, AWidthThatItCannotTakeIsRefused) {
  DeviceBed bed;
  RmsNormParams params;
  params.rows = 1;
  for (const int width : {0, -8, 12, kMaxRmsNormWidth + 8}) {
    params.width = width;
    EXPECT_NE(LaunchRmsNorm(bed.runtime(), bed.stream(), params), "") << width;
  }
}

std::vector<float> RunLayerNorm(DeviceBed& bed, const NormCase& c, int rows) {
  const size_t n = static_cast<size_t>(rows) * c.width;
  LayerNormParams params;
  params.x = bed.Put(RandomFloats(n, 1));
  params.weight = bed.Put(RandomFloats(c.width, 3));
  if (c.bias) params.bias = bed.Put(RandomFloats(c.width, 4));
  params.out = Destination(bed, c.out, n);
  params.rows = rows;
  params.width = c.width;
  bed.Check(LaunchLayerNorm(bed.runtime(), bed.stream(), params));
  return Rows(bed, params.out, n);
}

TEST(CudaLayerNorm, IsTheFloat64Meaning) {
  for (const NormCase c :
       {NormCase{8, Out::kBf16, 0, true}, NormCase{72, Out::kFloat32, 0, true},
        NormCase{1024, Out::kBf16}, NormCase{1032, Out::kFloat32, 0, true},
        NormCase{4096, Out::kSum, 0, true}, NormCase{16384, Out::kBf16, 0, true}}) {
    DeviceBed bed(c.width);
    const int rows = 3;
    const auto out = RunLayerNorm(bed, c, rows);
    const size_t n = static_cast<size_t>(rows) * c.width;
    const auto x = RandomFloats(n, 1);
    const auto weight = RandomFloats(c.width, 3);
    const auto bias = RandomFloats(c.width, 4);
    const auto there = RandomFloats(n, 9);
    for (size_t row = 0; row < n; row += c.width) {
      double mean = 0.0;
      for (int i = 0; i < c.width; ++i) mean += static_cast<double>(x[row + i]) / c.width;
      double variance = 0.0;
      for (int i = 0; i < c.width; ++i) {
        variance += (x[row + i] - mean) * (x[row + i] - mean) / c.width;
      }
      for (int i = 0; i < c.width; ++i) {
        const double normed = (x[row + i] - mean) / std::sqrt(variance + 1e-5);
        double exact = normed * weight[i] + (c.bias ? bias[i] : 0.0);
        const double slack = Slack(c.out, exact);
        if (c.out == Out::kSum) exact += there[row + i];
        ASSERT_NEAR(out[row + i], exact, slack) << c.width << " " << row << " " << i;
      }
    }
  }
}

TEST(CudaLayerNorm, BitsOfARowAreTheSameAtAnyNumberOfRows) {
  const NormCase c{264, Out::kBf16, 0, true};
  DeviceBed bed(3);
  const auto whole = RunLayerNorm(bed, c, 300);  // more rows than blocks
  for (const int rows : kRowCounts) {
    const auto part = RunLayerNorm(bed, c, rows);
    ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0) << rows;
  }
}

TEST(CudaLayerNorm, KeepsItsBudget) {
  // Every block reads the weight, and the bias: eight rows each make that little, where the bias
  // comes with rows that are added to.
  for (const NormShape& s :
       {NormShape{2112, 64, "layer_norm_narrow"}, NormShape{2112, 1032, "layer_norm_middle"},
        NormShape{1056, 6152, "layer_norm_wide"}}) {
    for (const Out out : {Out::kBf16, Out::kSum}) {
      const bool bias = out == Out::kSum;
      DeviceBed bed(4);
      RunLayerNorm(bed, {s.width, out, 0, bias}, s.rows);
      const double vectors = (bias ? 2.0 : 1.0) * s.width * 4;
      ExpectWithinBudget(bed.runtime(), s.kernel, NormBytes(s, out) + vectors, 0);
    }
  }
}

TEST(CudaLayerNorm, AWidthThatItCannotTakeIsRefused) {
  DeviceBed bed;
  LayerNormParams params;
  params.rows = 1;
  for (const int width : {0, -8, 12, kMaxLayerNormWidth + 8}) {
    params.width = width;
    EXPECT_NE(LaunchLayerNorm(bed.runtime(), bed.stream(), params), "") << width;
  }
}

std::vector<uint16_t> RunActivation(DeviceBed& bed, Activation kind, int rows, int width) {
  const int wide = kind == Activation::kRelu ? width : 2 * width;
  ActivationParams params;
  params.in = bed.Put(RandomBf16(static_cast<size_t>(rows) * wide, 5, 4.0f));
  params.out = bed.New<uint16_t>(static_cast<size_t>(rows) * width);
  params.rows = rows;
  params.width = width;
  params.kind = kind;
  bed.Check(LaunchActivation(bed.runtime(), bed.stream(), params));
  return bed.Get(params.out, static_cast<size_t>(rows) * width);
}

double ExactActivation(Activation kind, double x) {
  if (kind == Activation::kRelu) return x > 0 ? x : 0.0;
  if (kind == Activation::kSiluGated) return x / (1.0 + std::exp(-x));
  return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

TEST(CudaActivation, IsTheFloat64MeaningAtEveryNumberOfRowsAndKeepsItsBudget) {
  for (const Activation kind :
       {Activation::kSiluGated, Activation::kGeluTanhGated, Activation::kRelu}) {
    DeviceBed bed(6);
    const int width = 1536;
    const bool gated = kind != Activation::kRelu;
    const auto in = RandomBf16(static_cast<size_t>(64) * width * (gated ? 2 : 1), 5, 4.0f);
    const auto out = RunActivation(bed, kind, 64, width);
    for (size_t at = 0; at < out.size(); ++at) {
      const size_t r = at / width;
      const size_t from = gated ? at + r * width : at;
      double exact = ExactActivation(kind, Widen(in[from]));
      if (gated) exact *= Widen(in[from + width]);
      ASSERT_NEAR(Widen(out[at]), exact, 1.01 * Bf16Rounding(exact) + 1e-6) << at;
    }
    const char* names[] = {"silu_gated", "gelu_gated", "relu"};
    ExpectWithinBudget(bed.runtime(), names[static_cast<int>(kind)], 64.0 * width * (gated ? 6 : 4),
                       0);
    for (const int rows : kRowCounts) {
      const auto part = RunActivation(bed, kind, rows, width);
      ASSERT_EQ(memcmp(part.data(), out.data(), part.size() * 2), 0) << rows;
    }
  }
}

TEST(CudaSliceGate, IsTheFloat64MeaningAtEveryNumberOfRowsAndKeepsItsBudget) {
  for (const int width : {8, 256, 2056}) {
    DeviceBed bed(7);
    const int stride = 3 * width;
    const auto gate = RandomFloats(static_cast<size_t>(64) * width, 5, 4.0f);
    const auto with = RandomFloats(static_cast<size_t>(64) * stride, 6);
    const auto run = [&](int rows) {
      SliceGateParams params;
      params.gate = bed.Put(gate);
      params.with = bed.Put(with) + width;
      params.out = bed.New<uint16_t>(static_cast<size_t>(rows) * width);
      params.with_stride = stride;
      params.rows = rows;
      params.width = width;
      params.scale = 0.7f;
      bed.Check(LaunchSliceGate(bed.runtime(), bed.stream(), params));
      return bed.Get(params.out, static_cast<size_t>(rows) * width);
    };
    const auto out = run(64);
    for (size_t at = 0; at < out.size(); ++at) {
      const size_t row = at / width;
      const double exact = ExactActivation(Activation::kGeluTanhGated, gate[at]) *
                           with[row * stride + width + at % width] * 0.7f;
      ASSERT_NEAR(Widen(out[at]), exact, 1.01 * Bf16Rounding(exact) + 1e-6) << at;
    }
    if (width == 256) ExpectWithinBudget(bed.runtime(), "slice_gate", 64.0 * width * 10, 0);
    for (const int rows : kRowCounts) {
      const auto part = run(rows);
      ASSERT_EQ(memcmp(part.data(), out.data(), part.size() * 2), 0) << rows;
    }
  }
  DeviceBed bed(8);
  SliceGateParams odd;
  odd.rows = 1;
  odd.width = 12;
  EXPECT_NE(LaunchSliceGate(bed.runtime(), bed.stream(), odd), "");
}

TEST(CudaEmbedding, TakesRowsOfItsPartOfTheVocabularyAndKeepsItsBudget) {
  for (const bool accumulate : {false, true}) {
    for (const int rows : kRowCounts) {
      DeviceBed bed(rows);
      const int width = 648;
      const size_t n = static_cast<size_t>(rows) * width;
      const auto table = RandomBf16(static_cast<size_t>(100) * width, 7);
      const auto there = RandomFloats(n, 8);
      std::vector<int32_t> tokens(rows);
      for (int i = 0; i < rows; ++i) tokens[i] = rows == 64 ? 50 + i : (i * 41) % 200;
      EmbeddingParams params;
      params.table = bed.Put(table);
      params.tokens = bed.Put(tokens);
      params.out = accumulate ? bed.Put(there) : bed.New<float>(n);
      params.accumulate = accumulate;
      params.rows = rows;
      params.width = width;
      params.first_token = 50;
      params.vocabulary = 100;
      params.scale = 25.25f;
      bed.Check(LaunchEmbedding(bed.runtime(), bed.stream(), params));
      const auto out = bed.Get(params.out, n);
      for (size_t at = 0; at < n; ++at) {
        const int token = tokens[at / width] - 50;
        const bool mine = token >= 0 && token < 100;
        const float row =
            mine ? Widen(table[static_cast<size_t>(token) * width + at % width]) * 25.25f : 0.0f;
        ASSERT_EQ(out[at], accumulate ? there[at] + row : row) << at;
      }
      if (rows != 64) continue;
      ExpectWithinBudget(bed.runtime(), "embedding", (accumulate ? 10.0 : 6.0) * n + 64 * 4, 0);
    }
  }
}

TEST(CudaRoundRows, RoundsEveryElementAndKeepsItsBudget) {
  for (const int count : {8, 16, 1016, 1024, 1032, 65536}) {
    DeviceBed bed(count);
    const auto in = RandomFloats(count, 11);
    RoundRowsParams params;
    params.in = bed.Put(in);
    params.out = bed.New<uint16_t>(count);
    params.count = count;
    bed.Check(LaunchRoundRows(bed.runtime(), bed.stream(), params));
    const auto out = bed.Get(params.out, count);
    for (int i = 0; i < count; ++i) ASSERT_EQ(out[i], device::Bf16Bits(in[i])) << i;
    if (count == 65536) ExpectWithinBudget(bed.runtime(), "round_rows", 6.0 * count, 0);
    params.count = count + 4;
    EXPECT_NE(LaunchRoundRows(bed.runtime(), bed.stream(), params), "");
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
