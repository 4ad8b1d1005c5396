// RMSNorm, LayerNorm, activations and embedding against float64, and bits equal at every number of
// rows.
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "kernels/cuda/ops/rms_norm.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

const int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                          12, 13, 14, 15, 16, 17, 31, 32, 33, 64};

struct NormCase {
  int width;
  bool residual;
  float weight_offset;
};

// One launch over `rows` rows; `residual` receives x + delta.
std::vector<uint16_t> RunNorm(DeviceBed& bed, const NormCase& c, int rows,
                              std::vector<uint16_t>* residual = nullptr) {
  const size_t n = static_cast<size_t>(rows) * c.width;
  RmsNormParams params;
  params.x = bed.Put(RandomBf16(n, 1));
  params.weight = bed.Put(RandomBf16(c.width, 3));
  uint16_t* sum = bed.New<uint16_t>(n);
  if (c.residual) {
    params.delta = bed.Put(RandomBf16(n, 2));
    params.residual_out = sum;
  }
  params.out = bed.New<uint16_t>(n);
  params.rows = rows;
  params.width = c.width;
  params.weight_offset = c.weight_offset;
  bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
  if (residual != nullptr) *residual = bed.Get(sum, n);
  return bed.Get(params.out, n);
}

TEST(CudaRmsNorm, IsTheFloat64MeaningOfItsRoundedInputs) {
  for (const NormCase c :
       {NormCase{8, false, 0.0f}, NormCase{640, true, 1.0f}, NormCase{1024, true, 0.0f},
        NormCase{1032, false, 0.0f}, NormCase{4096, true, 0.0f}, NormCase{16384, true, 0.0f}}) {
    DeviceBed bed(c.width);
    const int rows = 5;
    std::vector<uint16_t> sum;
    const auto out = RunNorm(bed, c, rows, &sum);
    const size_t n = static_cast<size_t>(rows) * c.width;
    const auto x = RandomBf16(n, 1);
    const auto delta = RandomBf16(n, 2);
    const auto weight = RandomBf16(c.width, 3);
    for (int r = 0; r < rows; ++r) {
      std::vector<double> h(c.width);
      double squares = 0.0;
      for (int i = 0; i < c.width; ++i) {
        const size_t at = static_cast<size_t>(r) * c.width + i;
        h[i] = Widen(x[at]);
        if (c.residual) {
          const uint16_t expected = device::Bf16Bits(Widen(x[at]) + Widen(delta[at]));
          ASSERT_EQ(sum[at], expected);
          h[i] = Widen(expected);
        }
        squares += h[i] * h[i];
      }
      const double factor = 1.0 / std::sqrt(squares / c.width + 1e-6);
      for (int i = 0; i < c.width; ++i) {
        const double exact =
            h[i] * factor * (static_cast<double>(Widen(weight[i])) + c.weight_offset);
        const double got = Widen(out[static_cast<size_t>(r) * c.width + i]);
        ASSERT_NEAR(got, exact, 1.01 * Bf16Rounding(exact)) << c.width << " " << r << " " << i;
      }
    }
  }
}

TEST(CudaRmsNorm, BitsOfARowAreTheSameAtAnyNumberOfRows) {
  const NormCase c{640, true, 0.0f};
  DeviceBed bed(3);
  const auto whole = RunNorm(bed, c, 600);  // more rows than blocks
  for (const int rows : kRowCounts) {
    const auto part = RunNorm(bed, c, rows);
    ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * 2), 0) << rows;
  }
}

TEST(CudaRmsNorm, KeepsItsBudget) {
  struct Shape {
    int rows;
    int width;
    const char* kernel;
  };
  for (const Shape& s : {Shape{1056, 512, "rms_norm_narrow"}, Shape{1056, 1536, "rms_norm_middle"},
                         Shape{528, 6400, "rms_norm_wide"}}) {
    DeviceBed bed(4);
    RunNorm(bed, {s.width, true, 0.0f}, s.rows);
    ExpectWithinBudget(bed.runtime(), s.kernel, 8.0 * s.rows * s.width + s.width * 2, 0);
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

struct LayerNormCase {
  int width;
  bool residual;
  bool bias;
};

std::vector<uint16_t> RunLayerNorm(DeviceBed& bed, const LayerNormCase& c, int rows,
                                   std::vector<uint16_t>* residual = nullptr) {
  const size_t n = static_cast<size_t>(rows) * c.width;
  LayerNormParams params;
  params.x = bed.Put(RandomBf16(n, 1));
  params.weight = bed.Put(RandomBf16(c.width, 3));
  if (c.bias) params.bias = bed.Put(RandomBf16(c.width, 4));
  uint16_t* sum = bed.New<uint16_t>(n);
  if (c.residual) {
    params.delta = bed.Put(RandomBf16(n, 2));
    params.residual_out = sum;
  }
  params.out = bed.New<uint16_t>(n);
  params.rows = rows;
  params.width = c.width;
  bed.Check(LaunchLayerNorm(bed.runtime(), bed.stream(), params));
  if (residual != nullptr) *residual = bed.Get(sum, n);
  return bed.Get(params.out, n);
}

TEST(CudaLayerNorm, IsTheFloat64MeaningOfItsRoundedInputs) {
  for (const LayerNormCase c :
       {LayerNormCase{8, false, true}, LayerNormCase{64, true, true},
        LayerNormCase{1024, true, false}, LayerNormCase{1032, false, true},
        LayerNormCase{4096, true, true}, LayerNormCase{16384, true, true}}) {
    DeviceBed bed(c.width);
    const int rows = 3;
    std::vector<uint16_t> sum;
    const auto out = RunLayerNorm(bed, c, rows, &sum);
    const size_t n = static_cast<size_t>(rows) * c.width;
    const auto x = RandomBf16(n, 1);
    const auto delta = RandomBf16(n, 2);
    const auto weight = RandomBf16(c.width, 3);
    const auto bias = RandomBf16(c.width, 4);
    for (int r = 0; r < rows; ++r) {
      std::vector<double> h(c.width);
      double mean = 0.0;
      for (int i = 0; i < c.width; ++i) {
        const size_t at = static_cast<size_t>(r) * c.width + i;
        h[i] = Widen(x[at]);
        if (c.residual) {
          const uint16_t expected = device::Bf16Bits(Widen(x[at]) + Widen(delta[at]));
          ASSERT_EQ(sum[at], expected);
          h[i] = Widen(expected);
        }
        mean += h[i] / c.width;
      }
      double variance = 0.0;
      for (const double value : h) variance += (value - mean) * (value - mean) / c.width;
      for (int i = 0; i < c.width; ++i) {
        const double normed = (h[i] - mean) / std::sqrt(variance + 1e-5);
        const double exact = normed * Widen(weight[i]) + (c.bias ? Widen(bias[i]) : 0.0);
        const double got = Widen(out[static_cast<size_t>(r) * c.width + i]);
        ASSERT_NEAR(got, exact, 1.01 * Bf16Rounding(exact) + 2e-5)
            << c.width << " " << r << " " << i;
      }
    }
  }
}

TEST(CudaLayerNorm, BitsOfARowAreTheSameAtAnyNumberOfRows) {
  const LayerNormCase c{264, true, true};
  DeviceBed bed(3);
  const auto whole = RunLayerNorm(bed, c, 300);  // more rows than blocks
  for (const int rows : kRowCounts) {
    const auto part = RunLayerNorm(bed, c, rows);
    ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * 2), 0) << rows;
  }
}

TEST(CudaLayerNorm, KeepsItsBudget) {
  struct Shape {
    int rows;
    int width;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{1584, 64, "layer_norm_narrow"}, Shape{1584, 1040, "layer_norm_middle"},
        Shape{792, 6160, "layer_norm_wide"}}) {
    DeviceBed bed(4);
    RunLayerNorm(bed, {s.width, true, true}, s.rows);
    ExpectWithinBudget(bed.runtime(), s.kernel, 8.0 * s.rows * s.width + s.width * 4, 0);
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

TEST(CudaEmbedding, TakesRowsOfItsPartOfTheVocabularyAndKeepsItsBudget) {
  for (const int rows : kRowCounts) {
    DeviceBed bed(rows);
    const int width = 640;
    const auto table = RandomBf16(static_cast<size_t>(100) * width, 7);
    std::vector<int32_t> tokens(rows);
    for (int i = 0; i < rows; ++i) tokens[i] = rows == 64 ? 50 + i : (i * 41) % 200;
    EmbeddingParams params;
    params.table = bed.Put(table);
    params.tokens = bed.Put(tokens);
    params.out = bed.New<uint16_t>(static_cast<size_t>(rows) * width);
    params.rows = rows;
    params.width = width;
    params.first_token = 50;
    params.vocabulary = 100;
    params.scale = 25.25f;
    bed.Check(LaunchEmbedding(bed.runtime(), bed.stream(), params));
    const auto out = bed.Get(params.out, static_cast<size_t>(rows) * width);
    for (int r = 0; r < rows; ++r) {
      const int token = tokens[r] - 50;
      for (int i = 0; i < width; ++i) {
        const bool mine = token >= 0 && token < 100;
        const uint16_t expected =
            mine ? device::Bf16Bits(Widen(table[static_cast<size_t>(token) * width + i]) * 25.25f)
                 : 0;
        ASSERT_EQ(out[static_cast<size_t>(r) * width + i], expected) << r << " " << i;
      }
    }
    if (rows == 64) ExpectWithinBudget(bed.runtime(), "embedding", 64.0 * width * 4 + 64 * 4, 0);
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
