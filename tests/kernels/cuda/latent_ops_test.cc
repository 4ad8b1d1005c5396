// Latents into pages, and a product for each head: against float64 or the CPU's arithmetic, and
// bits equal at every number of rows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/latent/head_linear.h"
#include "kernels/cuda/ops/latent/latent_append.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/kv_head.h"

namespace quire::kernels::cuda::test {
namespace {

const int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                          12, 13, 14, 15, 16, 17, 31, 32, 33, 64};
constexpr int kShift = 4;
constexpr int kPages = 6;
constexpr int kPositions = 80;

struct AppendCase {
  int heads = 4;
  int query_dim = 40;
  int rank = 40;
  int rope = 16;
  bool pairs = true;
  KvType type = KvType::kBF16;
  bool half = false;
};

int PositionOf(int token) { return (token * 7 + 3) % kPositions; }
int PageOf(int token) { return (PositionOf(token) >> kShift) + 1; }

std::vector<float> Angles(int rope) {
  std::vector<float> angles;
  const int half = rope / 2;
  for (int p = 0; p < kPositions; ++p) {
    for (int i = 0; i < rope; ++i) {
      const double angle = p * std::pow(1000.0, -1.0 * (i % half) / half);
      angles.push_back(static_cast<float>(i < half ? std::cos(angle) : std::sin(angle)));
    }
  }
  return angles;
}

struct Appended {
  std::vector<uint16_t> q;
  std::vector<unsigned char> pool;  // begins as 0xff
};

class AppendBed {
 public:
  AppendBed(const AppendCase& c, uint64_t seed) : case_(c), bed_(seed) {
    layout_ = DealLayers({0}, {1 << kShift, 1, c.rank + c.rope, c.type, {}, true});
  }

  DeviceBed& bed() { return bed_; }
  const KvLayout& layout() const { return layout_; }
  size_t QueryWidth() const { return static_cast<size_t>(case_.heads) * case_.query_dim; }
  size_t Dim() const { return static_cast<size_t>(case_.rank + case_.rope); }
  std::vector<float> Queries(int tokens) const { return RandomFloats(tokens * QueryWidth(), 5); }
  std::vector<float> Latents(int tokens) const { return RandomFloats(tokens * Dim(), 6, 2.0f); }

  Appended Run(int tokens) { return Run(tokens, Latents(tokens)); }
  Appended Run(int tokens, const std::vector<float>& latents) {
    const KvSlot slot = SlotOf(layout_, 0);
    const auto bytes = static_cast<size_t>(kPages * layout_.page_bytes);
    auto* pool = bed_.New<unsigned char>(bytes);
    std::vector<int32_t> positions, pages;
    for (int t = 0; t < tokens; ++t) {
      positions.push_back(PositionOf(t));
      pages.push_back(PageOf(t));
    }
    LatentAppendParams params;
    params.queries = bed_.Put(Queries(tokens));
    params.queries_stride = static_cast<int>(QueryWidth());
    params.q = bed_.New<uint16_t>(tokens * QueryWidth());
    params.latents = bed_.Put(latents);
    params.latents_stride = static_cast<int>(Dim());
    params.tokens = tokens;
    params.positions = bed_.Put(positions);
    params.pages = bed_.Put(pages);
    params.angles = bed_.Put(Angles(case_.rope));
    params.norm = bed_.Put(RandomFloats(case_.rank, 7));
    params.pairs = case_.pairs;
    params.half = case_.half;
    params.heads = case_.heads;
    params.query_dim = case_.query_dim;
    params.rank = case_.rank;
    params.rope_dim = case_.rope;
    params.type = case_.type;
    params.rows = pool;
    params.page_stride = layout_.page_bytes / KvElementBytes(case_.type);
    params.token_stride = static_cast<int>(slot.head_elements >> kShift);
    params.scales = reinterpret_cast<float*>(pool + slot.key_scales);
    params.scale_page_stride = layout_.page_bytes / 4;
    params.block_shift = kShift;
    bed_.Check(LaunchLatentAppend(bed_.runtime(), bed_.stream(), params));
    return {bed_.Get(params.q, tokens * QueryWidth()), bed_.Get(pool, bytes)};
  }

  // The part that turns, in the order of the CPU's operations.
  std::vector<float> Turned(const float* x, int position) const {
    const int half = case_.rope / 2;
    const std::vector<float> angles = Angles(case_.rope);
    const float* row = angles.data() + static_cast<size_t>(position) * case_.rope;
    std::vector<float> y(case_.rope);
    for (int i = 0; i < half; ++i) {
      const float a = case_.pairs ? x[2 * i] : x[i];
      const float b = case_.pairs ? x[2 * i + 1] : x[half + i];
      y[i] = std::fma(a, row[i], -(b * row[half + i]));
      y[half + i] = std::fma(b, row[i], a * row[half + i]);
    }
    return y;
  }

 private:
  AppendCase case_;
  KvLayout layout_;
  DeviceBed bed_;
};

// What a token's row of its page says.
std::vector<double> Stored(const AppendBed& bed, const AppendCase& c,
                           const std::vector<unsigned char>& pool, int token) {
  const KvSlot slot = SlotOf(bed.layout(), 0);
  const size_t at = PositionOf(token) % (1 << kShift);
  const unsigned char* page =
      pool.data() + static_cast<size_t>(PageOf(token)) * bed.layout().page_bytes;
  const size_t element = static_cast<size_t>(KvElementBytes(c.type));
  const unsigned char* row = page + at * element * (slot.head_elements >> kShift);
  float scale = 1.0f;
  if (c.type == KvType::kFp8) memcpy(&scale, page + slot.key_scales + 4 * at, 4);
  std::vector<double> meaning;
  for (size_t i = 0; i < bed.Dim(); ++i) {
    uint16_t bits = 0;
    memcpy(&bits, row + i * element, element);
    meaning.push_back(c.type == KvType::kFp8
                          ? static_cast<double>(FromFp8(static_cast<uint8_t>(bits))) * scale
                          : Widen(bits, c.type == KvType::kF16));
  }
  return meaning;
}

const AppendCase kAppendCases[] = {{},
                                   {3, 24, 64, 24, false},
                                   {1, 8, 8, 8, true},
                                   {16, 192, 512, 64, true},
                                   {20, 56, 200, 32, false, KvType::kBF16, true}};

TEST(CudaLatentAppend, TurnsAndRoundsQueriesAsTheCpuDoes) {
  for (const AppendCase& c : kAppendCases) {
    AppendBed bed(c, 3);
    const int tokens = 5;
    const auto q = bed.Run(tokens).q;
    const auto from = bed.Queries(tokens);
    const int still = c.query_dim - c.rope;
    for (int t = 0; t < tokens; ++t) {
      for (int h = 0; h < c.heads; ++h) {
        const size_t head = t * bed.QueryWidth() + static_cast<size_t>(h) * c.query_dim;
        const auto turned = bed.Turned(&from[head + still], PositionOf(t));
        for (int d = 0; d < c.query_dim; ++d) {
          const float exact = d < still ? from[head + d] : turned[d - still];
          ASSERT_EQ(q[head + d], Narrow(exact, c.half)) << t << " " << h << " " << d;
        }
      }
    }
  }
}

// Pages against float64, within one rounding; pages of no sequence stay as they were.
TEST(CudaLatentAppend, LatentsAreTheFloat64MeaningInTheirPages) {
  for (AppendCase c : kAppendCases) {
    for (const KvType type : {KvType::kBF16, KvType::kF16, KvType::kFp8}) {
      c.type = type;
      SCOPED_TRACE(static_cast<int>(type) * 1000 + c.rank);
      AppendBed bed(c, 4);
      const int tokens = 7;
      const auto pool = bed.Run(tokens).pool;
      const auto from = bed.Latents(tokens);
      const auto norm = RandomFloats(c.rank, 7);
      for (int t = 0; t < tokens; ++t) {
        const float* x = &from[t * bed.Dim()];
        double squares = 0.0;
        for (int i = 0; i < c.rank; ++i) squares += static_cast<double>(x[i]) * x[i];
        const double factor = 1.0 / std::sqrt(squares / c.rank + 1e-6);
        std::vector<double> exact;
        for (int i = 0; i < c.rank; ++i) exact.push_back(x[i] * factor * norm[i]);
        for (const float y : bed.Turned(x + c.rank, PositionOf(t))) exact.push_back(y);
        double largest = 0.0;
        for (const double y : exact) largest = std::max(largest, std::abs(y));
        const auto stored = Stored(bed, c, pool, t);
        for (size_t i = 0; i < exact.size(); ++i) {
          // fp8: half a step of three bits, at least of the smallest.
          const double half = type == KvType::kBF16 ? std::abs(exact[i]) / 256
                              : type == KvType::kF16
                                  ? std::abs(exact[i]) / 2048
                                  : std::max(std::abs(exact[i]) / 16, largest / 448 / 1024);
          ASSERT_NEAR(stored[i], exact[i], 1.01 * half + 2e-6 * largest) << t << " " << i;
        }
      }
      const auto page0 = static_cast<size_t>(bed.layout().page_bytes);
      EXPECT_TRUE(std::all_of(pool.begin(), pool.begin() + static_cast<ptrdiff_t>(page0),
                              [](unsigned char byte) { return byte == 0xff; }));
    }
  }
}

TEST(CudaLatentAppend, BitsOfATokenAreTheSameAtAnyNumberOfTokens) {
  for (const KvType type : {KvType::kBF16, KvType::kFp8}) {
    AppendCase c;
    c.type = type;
    AppendBed bed(c, 8);
    const auto whole = bed.Run(64);
    for (const int tokens : kRowCounts) {
      const auto part = bed.Run(tokens);
      ASSERT_TRUE(std::equal(part.q.begin(), part.q.end(), whole.q.begin())) << tokens;
      for (int t = 0; t < tokens; ++t) {
        ASSERT_EQ(Stored(bed, c, part.pool, t), Stored(bed, c, whole.pool, t)) << tokens;
      }
    }
  }
}

TEST(CudaLatentAppend, ALatentThatIsNoNumberReadsAsNone) {
  AppendCase c;
  c.type = KvType::kFp8;
  AppendBed bed(c, 9);
  auto latents = bed.Latents(2);
  latents[45] = NAN;  // of the part that turns
  const auto pool = bed.Run(2, latents).pool;
  EXPECT_TRUE(std::isnan(Stored(bed, c, pool, 0)[3]));
  EXPECT_FALSE(std::isnan(Stored(bed, c, pool, 1)[3]));
}

TEST(CudaLatentAppend, KeepsItsBudget) {
  struct Shape {
    KvType type;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{KvType::kBF16, "latent_append"}, Shape{KvType::kF16, "latent_append_f16"},
        Shape{KvType::kFp8, "latent_append_fp8"}}) {
    const AppendCase c{16, 192, 512, 64, true, s.type};
    AppendBed bed(c, 30);
    const int tokens = 16;
    bed.Run(tokens);
    const double page = s.type == KvType::kFp8 ? 576 + 32 : 2 * 576;
    // Norm and angles are read for each token; those of its heads are counted without a cache.
    ExpectWithinBudget(bed.bed().runtime(), s.kernel,
                       tokens * (6.0 * 16 * 192 + 4 * 576 + page + 4 * 512 + 15 * 4 * 64), 0);
  }
}

TEST(CudaLatentAppend, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  LatentAppendParams served;
  served.tokens = 1;
  served.heads = 1;
  served.query_dim = 40;
  served.rank = 40;
  served.rope_dim = 16;
  served.token_stride = 64;
  const auto refused = [&](const LatentAppendParams& params) {
    return !LaunchLatentAppend(bed.runtime(), bed.stream(), params).empty();
  };
  for (const auto& [rank, rope] : {std::pair{0, 16}, {36, 16}, {40, 0}, {40, 12}, {568, 16}}) {
    LatentAppendParams params = served;
    params.rank = rank;
    params.rope_dim = rope;
    EXPECT_TRUE(refused(params)) << rank << " " << rope;
  }
  LatentAppendParams params = served;
  params.query_dim = 8;
  EXPECT_TRUE(refused(params));
  params = served;
  params.token_stride = 48;
  EXPECT_TRUE(refused(params));
  params = served;
  params.type = KvType::kF32;
  EXPECT_TRUE(refused(params));
}

struct HeadCase {
  int tokens;
  int heads;
  int n;
  int k;
  int rest = 0;
  bool half = false;
};

struct HeadInputs {
  explicit HeadInputs(const HeadCase& c)
      : x(RandomNarrow(static_cast<size_t>(c.tokens) * c.heads * (c.k + c.rest), 11, c.half)) {
    for (int h = 0; h < c.heads; ++h) {
      weights.push_back(RandomNarrow(static_cast<size_t>(c.n) * c.k, 100 + h, c.half));
    }
  }
  std::vector<uint16_t> x;
  std::vector<std::vector<uint16_t>> weights;
};

std::vector<uint16_t> RunHeads(DeviceBed& bed, const HeadCase& c) {
  const HeadInputs in(c);
  std::vector<const uint16_t*> places;
  for (const auto& weight : in.weights) places.push_back(bed.Put(weight));
  HeadLinearParams params;
  params.x = bed.Put(in.x);
  params.weights = bed.Put(places);
  const size_t count = static_cast<size_t>(c.tokens) * c.heads * (c.n + c.rest);
  params.out = bed.New<uint16_t>(count);
  params.tokens = c.tokens;
  params.heads = c.heads;
  params.n = c.n;
  params.k = c.k;
  params.in_dim = c.k + c.rest;
  params.half = c.half;
  bed.Check(LaunchHeadLinear(bed.runtime(), bed.stream(), params));
  return bed.Get(params.out, count);
}

TEST(CudaHeadLinear, IsTheFloat64MeaningAndCopiesTheRest) {
  for (const HeadCase& c :
       {HeadCase{5, 4, 40, 24, 16}, HeadCase{3, 2, 20, 40}, HeadCase{1, 3, 512, 128, 64},
        HeadCase{20, 2, 128, 512}, HeadCase{70, 1, 132, 72, 8}, HeadCase{9, 2, 64, 32, 16, true}}) {
    SCOPED_TRACE(c.n);
    DeviceBed bed(c.n);
    const HeadInputs in(c);
    const auto out = RunHeads(bed, c);
    for (int t = 0; t < c.tokens; ++t) {
      for (int h = 0; h < c.heads; ++h) {
        const size_t place = static_cast<size_t>(t) * c.heads + h;
        const uint16_t* x = &in.x[place * (c.k + c.rest)];
        const uint16_t* y = &out[place * (c.n + c.rest)];
        for (int n = 0; n < c.n; ++n) {
          double sum = 0.0;
          double magnitude = 1.0;
          for (int k = 0; k < c.k; ++k) {
            const double product = static_cast<double>(Widen(x[k], c.half)) *
                                   Widen(in.weights[h][n * c.k + k], c.half);
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(Widen(y[n]), sum, magnitude * (c.k / 16 + 8) * 0x1p-24 + Bf16Rounding(sum))
              << t << " " << h << " " << n;
        }
        for (int i = 0; i < c.rest; ++i)
          ASSERT_EQ(y[c.n + i], device::Bf16Bits(Widen(x[c.k + i], c.half))) << t << h;
      }
    }
  }
}

// Each head's product has the bits of the one product that ops/gemm computes.
TEST(CudaHeadLinear, HasTheBitsOfAProductOfItsOwn) {
  const HeadCase c{9, 3, 136, 200};
  DeviceBed bed(2);
  const HeadInputs in(c);
  const auto out = RunHeads(bed, c);
  for (int h = 0; h < c.heads; ++h) {
    std::vector<uint16_t> x;
    for (int t = 0; t < c.tokens; ++t) {
      const auto row = in.x.begin() + (t * c.heads + h) * c.k;
      x.insert(x.end(), row, row + c.k);
    }
    GemmParams params;
    params.x = bed.Put(x);
    params.weight = bed.Put(in.weights[h]);
    params.m = c.tokens;
    params.n = c.n;
    params.k = c.k;
    params.out = bed.New<uint16_t>(static_cast<size_t>(c.tokens) * c.n);
    params.counters = bed.Put(std::vector<uint32_t>(GemmCounters(c.tokens, c.n), 0));
    ASSERT_EQ(GemmSplits(c.n, kMostHeadColumns), 1);
    bed.Check(LaunchGemm(bed.runtime(), bed.stream(), params));
    const auto alone =
        bed.Get(static_cast<uint16_t*>(params.out), static_cast<size_t>(c.tokens) * c.n);
    for (int t = 0; t < c.tokens; ++t) {
      ASSERT_EQ(memcmp(&out[(t * c.heads + h) * c.n], &alone[t * c.n], 2 * c.n), 0) << h << t;
    }
  }
}

TEST(CudaHeadLinear, BitsOfATokenAreTheSameAtAnyNumberOfTokens) {
  HeadCase c{64, 2, 40, 72, 16};
  DeviceBed bed(3);
  const auto whole = RunHeads(bed, c);
  for (const int tokens : kRowCounts) {
    c.tokens = tokens;
    const auto part = RunHeads(bed, c);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << tokens;
  }
}

TEST(CudaHeadLinear, KeepsItsBudget) {
  struct Shape {
    HeadCase c;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{{8, 4, 512, 128, 64}, "head_linear_8"}, Shape{{32, 2, 128, 512}, "head_linear_32"},
        Shape{{128, 2, 128, 512}, "head_linear_128"}}) {
    DeviceBed bed(30);
    RunHeads(bed, s.c);
    const double weights = 2.0 * s.c.heads * s.c.n * s.c.k;
    // Each 128 rows of a head read its tokens again.
    const double reads = (s.c.n + 127) / 128 * 2.0 * s.c.tokens * s.c.heads * s.c.k;
    const double rest = 2.0 * s.c.tokens * s.c.heads * s.c.rest;
    const double out = 2.0 * s.c.tokens * s.c.heads * s.c.n;
    ExpectWithinBudget(bed.runtime(), s.kernel, weights + reads + 2 * rest + out,
                       static_cast<double>(s.c.heads) * s.c.tokens * s.c.n * s.c.k / 2048);
  }
}

TEST(CudaHeadLinear, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  for (const HeadCase& c :
       {HeadCase{1, 0, 8, 8}, HeadCase{1, 1, 6, 8}, HeadCase{1, 1, 8, 12}, HeadCase{1, 1, 8, 1024},
        HeadCase{1, 1, 8, 16, -8}, HeadCase{1, 1, 8, 16, 4}}) {
    HeadLinearParams params;
    params.tokens = c.tokens;
    params.heads = c.heads;
    params.n = c.n;
    params.k = c.k;
    params.in_dim = c.k + c.rest;
    EXPECT_NE(LaunchHeadLinear(bed.runtime(), bed.stream(), params), "") << c.n << " " << c.k;
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
