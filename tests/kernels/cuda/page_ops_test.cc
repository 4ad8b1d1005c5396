// RoPE with append into pages against float64, and copies of rows and pages.
#include <algorithm>

#include "kernels/cuda/ops/attention/rope_append.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

struct RopeCase {
  int head_dim = 64;
  int heads = 4;
  int kv_heads = 2;
  int rotary_dim = 64;
  bool norm = false;
  int block_shift = 4;
  bool v_norm = false;
};

constexpr int kPages = 9;
constexpr int kPositions = 80;

double Angle(const RopeCase& c, int position, int i) {
  return position * std::pow(10000.0, -2.0 * i / std::max(c.rotary_dim, 1));
}

struct RopeResult {
  std::vector<uint16_t> q;
  std::vector<uint16_t> pool;
};

int Position(int token) { return (token * 7 + 3) % kPositions; }
int Page(const RopeCase& c, int token) { return (Position(token) >> c.block_shift) * 2 % kPages; }

class RopeBed {
 public:
  RopeBed(const RopeCase& c, uint64_t seed) : case_(c), bed_(seed) {}
  DeviceBed& bed() { return bed_; }
  int Width() const { return (case_.heads + 2 * case_.kv_heads) * case_.head_dim; }
  size_t HeadStride() const { return static_cast<size_t>(case_.head_dim) << case_.block_shift; }
  size_t PageStride() const { return 2 * case_.kv_heads * HeadStride(); }

  // Tokens 0 … tokens − 1 of one stream of numbers; token t stands at Position(t).
  RopeResult Run(int tokens) {
    const RopeCase& c = case_;
    const int half = c.rotary_dim / 2;
    std::vector<float> angles(static_cast<size_t>(kPositions) * 2 * half);
    for (int p = 0; p < kPositions; ++p) {
      for (int i = 0; i < half; ++i) {
        angles[static_cast<size_t>(p) * 2 * half + i] =
            static_cast<float>(std::cos(Angle(c, p, i)));
        angles[static_cast<size_t>(p) * 2 * half + half + i] =
            static_cast<float>(std::sin(Angle(c, p, i)));
      }
    }
    std::vector<int32_t> positions;
    std::vector<int32_t> pages;
    for (int t = 0; t < tokens; ++t) {
      positions.push_back(Position(t));
      pages.push_back(Page(c, t));
    }
    const size_t pool = kPages * PageStride();
    RopeAppendParams params;
    params.qkv = bed_.Put(RandomFloats(static_cast<size_t>(tokens) * Width(), 1));
    const size_t queries = static_cast<size_t>(tokens) * c.heads * c.head_dim;
    params.q = bed_.New<uint16_t>(queries);
    params.stride = Width();
    params.tokens = tokens;
    params.positions = bed_.Put(positions);
    params.pages = bed_.Put(pages);
    params.angles = bed_.Put(angles);
    params.rotary_dim = c.rotary_dim;
    params.v_norm = c.v_norm;
    if (c.norm) {
      params.q_norm = bed_.Put(RandomFloats(c.head_dim, 2));
      params.k_norm = bed_.Put(RandomFloats(c.head_dim, 3));
    }
    auto* pages_of_layer = bed_.New<uint16_t>(pool);
    params.keys = pages_of_layer;
    params.values = pages_of_layer + c.kv_heads * HeadStride();
    params.page_stride = static_cast<int64_t>(PageStride());
    params.head_stride = static_cast<int64_t>(HeadStride());
    params.block_shift = c.block_shift;
    params.heads = c.heads;
    params.kv_heads = c.kv_heads;
    bed_.Check(LaunchRopeAppend(bed_.runtime(), bed_.stream(), c.head_dim, params));
    return {bed_.Get(params.q, queries), bed_.Get(pages_of_layer, pool)};
  }

  // The first element of a token's key (or value) of one head in the pool.
  size_t Place(int token, int head, bool value) const {
    const int slot = Position(token) & ((1 << case_.block_shift) - 1);
    return Page(case_, token) * PageStride() + (value ? case_.kv_heads * HeadStride() : 0) +
           head * HeadStride() + static_cast<size_t>(slot) * case_.head_dim;
  }

 private:
  RopeCase case_;
  DeviceBed bed_;
};

// What a head must become, in float64.
enum class HeadKind { kQuery, kKey, kValue };
std::vector<double> ExactHead(const RopeCase& c, const float* in, HeadKind kind, int position) {
  std::vector<double> x(c.head_dim);
  double squares = 0.0;
  for (int d = 0; d < c.head_dim; ++d) {
    x[d] = in[d];
    squares += x[d] * x[d];
  }
  const bool is_value = kind == HeadKind::kValue;
  if (is_value ? c.v_norm : c.norm) {
    const auto weight = RandomFloats(c.head_dim, kind == HeadKind::kKey ? 3 : 2);
    const double factor = 1.0 / std::sqrt(squares / c.head_dim + 1e-6);
    for (int d = 0; d < c.head_dim; ++d) x[d] *= factor * (is_value ? 1.0 : weight[d]);
  }
  if (is_value) return x;
  std::vector<double> y = x;
  const int half = c.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double cosine = std::cos(Angle(c, position, i));
    const double sine = std::sin(Angle(c, position, i));
    y[i] = x[i] * cosine - x[i + half] * sine;
    y[i + half] = x[i + half] * cosine + x[i] * sine;
  }
  return y;
}

TEST(CudaRopeAppend, IsTheFloat64MeaningAndTouchesNoOtherSlot) {
  uint64_t seed = 1;
  for (const RopeCase& c :
       {RopeCase{64, 4, 2, 64, false, 4}, RopeCase{64, 3, 1, 32, true, 5},
        RopeCase{128, 8, 2, 128, true, 4}, RopeCase{256, 4, 1, 256, true, 6},
        RopeCase{128, 2, 2, 0, false, 4}, RopeCase{8, 3, 2, 8, true, 4},
        RopeCase{16, 4, 1, 16, true, 4}, RopeCase{80, 2, 1, 80, true, 4},
        RopeCase{96, 2, 2, 24, true, 5}, RopeCase{248, 2, 1, 248, false, 4},
        RopeCase{512, 3, 1, 512, true, 4, true}, RopeCase{512, 2, 0, 512, true, 4},
        RopeCase{504, 2, 1, 504, false, 5}, RopeCase{320, 2, 2, 96, true, 4, true},
        RopeCase{264, 1, 1, 264, true, 4}, RopeCase{64, 1, 1, 64, false, 4, true},
        RopeCase{64, 4, 0, 64, true, 4, true}}) {
    SCOPED_TRACE(c.head_dim * 1000 + c.rotary_dim);
    RopeBed bed(c, ++seed);
    const int tokens = 13;
    const RopeResult got = bed.Run(tokens);
    const auto in = RandomFloats(static_cast<size_t>(tokens) * bed.Width(), 1);
    std::vector<char> written(got.pool.size(), 0);
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < c.heads + 2 * c.kv_heads; ++h) {
        const size_t from = static_cast<size_t>(t) * bed.Width() + h * c.head_dim;
        const bool is_query = h < c.heads;
        const bool is_value = h >= c.heads + c.kv_heads;
        const int kv_head = is_query ? 0 : (h - c.heads) % c.kv_heads;
        const size_t place = is_query ? (static_cast<size_t>(t) * c.heads + h) * c.head_dim
                                      : bed.Place(t, kv_head, is_value);
        const HeadKind kind = is_query   ? HeadKind::kQuery
                              : is_value ? HeadKind::kValue
                                         : HeadKind::kKey;
        const auto exact = ExactHead(c, in.data() + from, kind, Position(t));
        for (int d = 0; d < c.head_dim; ++d) {
          const uint16_t bits = is_query ? got.q[place + d] : got.pool[place + d];
          if (is_value && !c.v_norm) {
            ASSERT_EQ(bits, device::Bf16Bits(in[from + d]));
          } else {
            ASSERT_NEAR(Widen(bits), exact[d], 1.01 * Bf16Rounding(exact[d]) + 4e-6)
                << t << " " << h << " " << d;
          }
          if (!is_query) written[place + d] = 1;
        }
      }
    }
    for (size_t i = 0; i < written.size(); ++i) {
      ASSERT_TRUE(written[i] != 0 || got.pool[i] == 0xffff) << i;
    }
  }
}

TEST(CudaRopeAppend, BitsOfATokenAreTheSameAtAnyNumberOfTokens) {
  const RopeCase c{64, 4, 2, 64, true, 4};
  RopeBed bed(c, 9);
  const RopeResult whole = bed.Run(64);
  for (const int tokens : {1, 2, 3, 7, 8, 16, 17, 31, 32, 33}) {
    const RopeResult part = bed.Run(tokens);
    ASSERT_EQ(memcmp(part.q.data(), whole.q.data(), part.q.size() * 2), 0) << tokens;
    for (int t = 0; t < tokens; ++t) {
      const size_t at = bed.Place(t, 1, false);
      ASSERT_EQ(memcmp(&part.pool[at], &whole.pool[at], 2 * c.head_dim), 0) << tokens;
    }
  }
}

TEST(CudaRopeAppend, KeepsItsBudget) {
  const std::pair<int, const char*> kernels[] = {{64, "rope_append_64"},
                                                 {128, "rope_append_128"},
                                                 {256, "rope_append_256"},
                                                 {512, "rope_append_512"}};
  for (const auto& [head_dim, kernel] : kernels) {
    RopeBed bed(RopeCase{head_dim, 32, 8, head_dim, false, 4}, 11);
    bed.Run(16);
    ExpectWithinBudget(bed.bed().runtime(), kernel,
                       16.0 * (4.0 * bed.Width() + 2.0 * bed.Width() + head_dim * 4 + 8), 0);
  }
}

TEST(CudaRopeAppend, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  RopeAppendParams params;
  params.tokens = 1;
  for (const int head_dim : {0, 12, 520}) {
    EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), head_dim, params), "");
  }
  params.rotary_dim = 20;
  EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, params), "");
  params.rotary_dim = 80;
  EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, params), "");
  params.rotary_dim = 64;
  params.stride = 12;
  EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, params), "");
}

TEST(CudaCopyRows, GathersScattersAndCopiesPagesInPlace) {
  DeviceBed bed(12);
  const int64_t row_bytes = 16 * 700;  // more than a block's share, and no multiple of it
  const size_t row = row_bytes / 2;
  const auto host = RandomBf16(8 * row, 1);
  auto* pool = bed.Put(host);
  CopyRowsParams params;
  params.from = pool;
  params.to = bed.New<uint16_t>(3 * row);
  params.from_rows = bed.Put(std::vector<int32_t>{6, 1, 1});
  params.rows = 3;
  params.row_bytes = row_bytes;
  bed.Check(LaunchCopyRows(bed.runtime(), bed.stream(), params));
  const auto gathered = bed.Get(static_cast<const uint16_t*>(params.to), 3 * row);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(memcmp(&gathered[i * row], &host[(i == 0 ? 6 : 1) * row], row_bytes), 0) << i;
  }
  bed.runtime().ClearCounters();
  params.to = pool;
  params.from_rows = bed.Put(std::vector<int32_t>{0, 3});
  params.to_rows = bed.Put(std::vector<int32_t>{5, 7});
  params.rows = 2;
  bed.Check(LaunchCopyRows(bed.runtime(), bed.stream(), params));
  const auto copied = bed.Get(pool, 8 * row);
  const int source[] = {0, 1, 2, 3, 4, 0, 6, 3};
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(memcmp(&copied[i * row], &host[source[i] * row], row_bytes), 0) << i;
  }
  ExpectWithinBudget(bed.runtime(), "copy_rows", 2.0 * 2 * row_bytes, 0);
  params.row_bytes = 24;
  EXPECT_NE(LaunchCopyRows(bed.runtime(), bed.stream(), params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
