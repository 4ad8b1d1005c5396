// Norms of heads in every kind, growth of queries and sums of squares against float64, and bits
// equal at every number of rows. Norms of pieces and with a scale.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/ops/attention/rope_append.h"
#include "kernels/cuda/ops/norm/head_squares.h"
#include "kernels/cuda/ops/norm/rms_norm.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

const int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                          12, 13, 14, 15, 16, 17, 31, 32, 33, 64};

struct NormsCase {
  HeadNorm norm = HeadNorm::kWhole;
  int head_dim = 64;
  int heads = 4;
  int kv_heads = 2;
  QueryGrowth growth{};
};

int PositionOf(int token) { return (token * 7 + 3) % 80; }

// The elements that other ranks hold, of kWhole: their squares.
constexpr double kOfOthers = 40.0;

class NormsBed {
 public:
  NormsBed(const NormsCase& c, uint64_t seed) : case_(c), bed_(seed) {}
  int Width() const { return (case_.heads + 2 * case_.kv_heads) * case_.head_dim; }
  size_t Weights(bool key) const {
    const int heads = key ? case_.kv_heads : case_.heads;
    return static_cast<size_t>(case_.norm == HeadNorm::kRms ? 1 : heads) * case_.head_dim;
  }
  std::vector<float> Input(int tokens) const {
    return RandomFloats(static_cast<size_t>(tokens) * Width(), 1);
  }
  double Squares(const float* row, bool key) const {
    const int first = key ? case_.heads * case_.head_dim : 0;
    const int count = (key ? case_.kv_heads : case_.heads) * case_.head_dim;
    double sum = kOfOthers;
    for (int i = 0; i < count; ++i) sum += static_cast<double>(row[first + i]) * row[first + i];
    return sum;
  }

  struct Result {
    std::vector<uint16_t> q;
    std::vector<uint16_t> keys;  // [tokens][kv_heads][head_dim]
  };
  Result Run(int tokens) {
    const NormsCase& c = case_;
    const auto in = Input(tokens);
    std::vector<float> squares;
    std::vector<int32_t> positions, pages;
    for (int t = 0; t < tokens; ++t) {
      const float* row = in.data() + static_cast<size_t>(t) * Width();
      for (const bool key : {false, true}) {
        squares.push_back(static_cast<float>(Squares(row, key)));
      }
      positions.push_back(PositionOf(t));
      pages.push_back(t);
    }
    const size_t page = static_cast<size_t>(2 * c.kv_heads * c.head_dim) << 4;
    auto* pool = bed_.New<uint16_t>(static_cast<size_t>(tokens) * page);
    RopeAppendParams params;
    params.qkv = bed_.Put(in);
    params.q = bed_.New<uint16_t>(static_cast<size_t>(tokens) * c.heads * c.head_dim);
    params.stride = Width();
    params.tokens = tokens;
    params.positions = bed_.Put(positions);
    params.pages = bed_.Put(pages);
    params.norm = c.norm;
    params.q_norm = bed_.Put(RandomFloats(Weights(false), 2));
    params.k_norm = bed_.Put(RandomFloats(Weights(true), 3));
    params.squares = bed_.Put(squares);
    params.squares_stride = 2;
    params.q_elements = 2 * c.heads * c.head_dim;
    params.k_elements = 2 * c.kv_heads * c.head_dim;
    params.growth = c.growth;
    params.keys = pool;
    params.values = pool + page / 2;
    params.page_stride = static_cast<int64_t>(page);
    params.head_stride = int64_t{c.head_dim} << 4;
    params.heads = c.heads;
    params.kv_heads = c.kv_heads;
    bed_.Check(LaunchRopeAppend(bed_.runtime(), bed_.stream(), c.head_dim, params));
    Result result{bed_.Get(params.q, static_cast<size_t>(tokens) * c.heads * c.head_dim), {}};
    const auto pages_of_keys = bed_.Get(pool, static_cast<size_t>(tokens) * page);
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < c.kv_heads; ++h) {
        const auto* at = &pages_of_keys[t * page + (static_cast<size_t>(h) * c.head_dim << 4) +
                                        static_cast<size_t>(PositionOf(t) % 16) * c.head_dim];
        result.keys.insert(result.keys.end(), at, at + c.head_dim);
      }
    }
    return result;
  }

  // Head `head` of q or k of a token, in float64.
  std::vector<double> Exact(const float* row, bool key, int head, int position) const {
    const NormsCase& c = case_;
    const float* x = row + (key ? c.heads + head : head) * c.head_dim;
    const auto weights = RandomFloats(Weights(key), key ? 3 : 2);
    double mean = 0.0;
    double squares = 0.0;
    if (c.norm == HeadNorm::kLayer) {
      for (int d = 0; d < c.head_dim; ++d) mean += x[d];
      mean /= c.head_dim;
    }
    for (int d = 0; d < c.head_dim; ++d) squares += (x[d] - mean) * (x[d] - mean);
    squares /= c.head_dim;
    if (c.norm == HeadNorm::kWhole) {
      squares = Squares(row, key) / (2.0 * (key ? c.kv_heads : c.heads) * c.head_dim);
    }
    double factor = 1.0 / std::sqrt(squares + 1e-6);
    const int steps = (position + c.growth.offset) / c.growth.interval;
    const double growth = key ? 1.0 : 1.0 + c.growth.rate * std::log(1.0 + steps);
    std::vector<double> y;
    for (int d = 0; d < c.head_dim; ++d) {
      const size_t w = (c.norm == HeadNorm::kRms ? 0 : static_cast<size_t>(head) * c.head_dim) + d;
      y.push_back((x[d] - mean) * factor * weights[w] * growth);
    }
    return y;
  }

 private:
  NormsCase case_;
  DeviceBed bed_;
};

TEST(CudaHeadNorms, EveryKindIsTheFloat64Meaning) {
  for (const NormsCase& c :
       {NormsCase{}, NormsCase{HeadNorm::kWhole, 16, 6, 2}, NormsCase{HeadNorm::kLayer, 64, 4, 2},
        NormsCase{HeadNorm::kLayer, 24, 5, 1}, NormsCase{HeadNorm::kLayer, 200, 2, 1},
        NormsCase{HeadNorm::kWhole, 128, 2, 2}, NormsCase{HeadNorm::kRms, 32, 4, 2},
        NormsCase{HeadNorm::kRms, 128, 4, 1, {0.1f, 0, 24}},
        NormsCase{HeadNorm::kRms, 64, 2, 1, {0.25f, 5, 8}}}) {
    SCOPED_TRACE(static_cast<int>(c.norm) * 1000 + c.head_dim);
    NormsBed bed(c, 5);
    const int tokens = 9;
    const auto got = bed.Run(tokens);
    const auto in = bed.Input(tokens);
    for (int t = 0; t < tokens; ++t) {
      const float* row = in.data() + static_cast<size_t>(t) * bed.Width();
      for (int h = 0; h < c.heads + c.kv_heads; ++h) {
        const bool key = h >= c.heads;
        const int head = key ? h - c.heads : h;
        const auto exact = bed.Exact(row, key, head, PositionOf(t));
        const auto& out = key ? got.keys : got.q;
        const size_t at = (static_cast<size_t>(t) * (key ? c.kv_heads : c.heads) + head) *
                          static_cast<size_t>(c.head_dim);
        for (int d = 0; d < c.head_dim; ++d) {
          ASSERT_NEAR(Widen(out[at + d]), exact[d], 1.01 * Bf16Rounding(exact[d]) + 1e-5)
              << "token " << t << " head " << h << " element " << d;
        }
      }
    }
  }
}

TEST(CudaHeadNorms, BitsOfATokenAreTheSameAtAnyNumberOfTokens) {
  for (const HeadNorm norm : {HeadNorm::kWhole, HeadNorm::kLayer}) {
    NormsBed bed({norm, 64, 4, 2, {0.1f, 0, 24}}, 6);
    const auto whole = bed.Run(64);
    for (const int tokens : kRowCounts) {
      const auto part = bed.Run(tokens);
      ASSERT_TRUE(std::equal(part.q.begin(), part.q.end(), whole.q.begin())) << tokens;
      ASSERT_TRUE(std::equal(part.keys.begin(), part.keys.end(), whole.keys.begin())) << tokens;
    }
  }
}

std::vector<float> RunSquares(DeviceBed& bed, int tokens, int q_width, int k_width, int stride) {
  HeadSquaresParams params;
  params.qkv = bed.Put(RandomFloats(static_cast<size_t>(tokens) * stride, 1));
  params.out = bed.New<float>(static_cast<size_t>(tokens) * 8);
  params.tokens = tokens;
  params.stride = stride;
  params.q_width = params.k_first = q_width;
  params.k_width = k_width;
  params.out_stride = 8;
  bed.Check(LaunchHeadSquares(bed.runtime(), bed.stream(), params));
  return bed.Get(params.out, static_cast<size_t>(tokens) * 8);
}

TEST(CudaHeadSquares, AreTheFloat64MeaningWithTheSameBitsAtAnyNumberOfTokens) {
  for (const auto& [q_width, k_width] : {std::pair{64, 32}, {4096, 1024}, {8, 0}, {1032, 4104}}) {
    const int stride = q_width + 2 * k_width + 8;
    DeviceBed bed(7);
    const auto whole = RunSquares(bed, 64, q_width, k_width, stride);
    const auto in = RandomFloats(static_cast<size_t>(64) * stride, 1);
    for (int t = 0; t < 64; ++t) {
      double sums[8] = {};
      for (int i = 0; i < q_width + k_width; ++i) {
        const double x = in[static_cast<size_t>(t) * stride + i];
        sums[i < q_width ? 0 : 1] += x * x;
      }
      for (int i = 0; i < 8; ++i) ASSERT_NEAR(whole[8 * t + i], sums[i], 2e-6 * sums[i]) << t;
    }
    for (const int tokens : kRowCounts) {
      const auto part = RunSquares(bed, tokens, q_width, k_width, stride);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << tokens;
    }
  }
}

TEST(CudaHeadSquares, KeepsItsBudget) {
  DeviceBed bed(8);
  RunSquares(bed, 16, 4096, 4096, 3 * 4096);
  ExpectWithinBudget(bed.runtime(), "head_squares", 16 * (4.0 * 8192 + 32), 0);
}

// Rows of `pieces` parts, each normalised alone; sums that are scaled; rows that end in zeros.
TEST(CudaHeadNorms, NormsOfPiecesWithAScaleAndOfPaddedRows) {
  struct Case {
    int width;
    int mean_width;
    bool sum;
    float scale;
  };
  for (const Case& c : {Case{64, 0, false, 0.5f}, Case{64, 0, true, 0.25f},
                        Case{32, 28, false, 1.0f}, Case{1040, 1034, true, 3.0f}}) {
    DeviceBed bed(9);
    const int rows = 6;
    const size_t n = static_cast<size_t>(rows) * c.width;
    const int real = c.mean_width > 0 ? c.mean_width : c.width;
    auto x = RandomFloats(n, 1);
    auto weight = RandomFloats(c.width, 2);
    for (size_t i = 0; i < n; ++i) {
      if (static_cast<int>(i % c.width) >= real) x[i] = 0.0f;
    }
    std::fill(weight.begin() + real, weight.end(), 0.0f);
    const auto there = RandomFloats(n, 3);
    RmsNormParams params;
    params.x = bed.Put(x);
    params.weight = bed.Put(weight);
    params.out.float32 = bed.Put(there);
    params.out.accumulate = c.sum;
    params.out.scale = c.scale;
    params.rows = rows;
    params.width = c.width;
    params.mean_width = c.mean_width;
    bed.Check(LaunchRmsNorm(bed.runtime(), bed.stream(), params));
    const auto out = bed.Get(params.out.float32, n);
    for (int r = 0; r < rows; ++r) {
      const size_t row = static_cast<size_t>(r) * c.width;
      double squares = 0.0;
      for (int i = 0; i < real; ++i) squares += static_cast<double>(x[row + i]) * x[row + i];
      const double factor = 1.0 / std::sqrt(squares / real + 1e-6);
      for (int i = 0; i < c.width; ++i) {
        double exact = x[row + i] * factor * weight[i];
        if (c.sum) exact += there[row + i];
        exact *= c.scale;
        ASSERT_NEAR(out[row + i], exact, 2e-6 * std::abs(exact) + 2e-5) << r << " " << i;
      }
    }
  }
}

TEST(CudaHeadNorms, WhatTheyCannotServeIsRefused) {
  DeviceBed bed;
  RopeAppendParams rope;
  rope.tokens = 1;
  rope.growth.interval = 0;
  EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, rope), "");
  HeadSquaresParams squares;
  squares.tokens = 1;
  squares.q_width = 12;
  EXPECT_NE(LaunchHeadSquares(bed.runtime(), bed.stream(), squares), "");
  squares.q_width = 8;
  squares.out_stride = 1;
  EXPECT_NE(LaunchHeadSquares(bed.runtime(), bed.stream(), squares), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
