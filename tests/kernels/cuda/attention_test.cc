// Paged attention against float64; bits equal in prefill, decode and any cut of a prompt.
#include "kernels/cuda/ops/attention/attention.h"

#include <algorithm>

#include "kernels/cuda/ops/fp8.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/kv_head.h"

namespace quire::kernels::cuda::test {
namespace {

struct AttentionCase {
  int head_dim = 64;
  int kv_heads = 1;
  int group = 4;
  int window = 0;
  float softcap = 0.0f;
  int block_shift = 4;
  KvType type = KvType::kBF16;
  bool sinks = false;
};

// Of each head, about as large as the largest scores.
std::vector<float> Sinks(int heads) { return RandomFloats(static_cast<size_t>(heads), 77, 2.0f); }

// One sequence's part of a step.
struct Part {
  int first_position;
  int token_count;
};

// Query, key and value of a sequence at a position: the same whatever the step.
std::vector<uint16_t> Vectors(int kind, int sequence, int position, int count) {
  return RandomBf16(static_cast<size_t>(count),
                    static_cast<uint64_t>(kind) * 1000003 + sequence * 65537 + position);
}

// Key (2 + 2 · head) or value (3 + 2 · head) as the pages hold it.
KvHead Stored(const AttentionCase& c, int kind, int sequence, int position) {
  std::vector<float> x;
  for (const uint16_t bits : Vectors(kind, sequence, position, c.head_dim)) {
    x.push_back(Widen(bits));
  }
  return StoredHead(c.type, x);
}

class AttentionBed {
 public:
  AttentionBed(const AttentionCase& c, uint64_t seed) : case_(c), bed_(seed), random_(seed) {}

  DeviceBed& bed() { return bed_; }
  // Less workspace than a step's tiles want at once.
  void LimitWorkspace(size_t bytes) { most_workspace_bytes_ = bytes; }

  // out of all tokens of the step, [tokens][heads · head_dim].
  std::vector<uint16_t> Run(const std::vector<Part>& parts, int rows_per_tile) {
    const AttentionCase& c = case_;
    const int heads = c.kv_heads * c.group;
    const int width = heads * c.head_dim;
    AttentionPlan plan;
    plan.rows_per_tile = rows_per_tile;
    std::vector<AttentionSequence> sequences;
    std::vector<AttentionTile> tiles;
    std::vector<uint16_t> q;
    int tokens = 0;
    int longest = 0;
    for (size_t s = 0; s < parts.size(); ++s) {
      const Part& part = parts[s];
      sequences.push_back({tokens, part.token_count, part.first_position});
      for (int first = 0; first < part.token_count; first += plan.TileQueries(heads, c.kv_heads)) {
        tiles.push_back({static_cast<int>(s), first});
      }
      for (int t = 0; t < part.token_count; ++t) {
        const auto row = Vectors(1, static_cast<int>(s), part.first_position + t, width);
        q.insert(q.end(), row.begin(), row.end());
      }
      tokens += part.token_count;
      longest = std::max(longest, part.first_position + part.token_count);
    }
    Shuffle(tiles, random_);
    plan.tile_count = static_cast<int>(tiles.size());
    plan.max_spans = (longest + 511) / 512;
    plan.most_workspace_bytes = most_workspace_bytes_;
    AttentionParams params;
    FillPages(parts, longest, params);
    params.q = bed_.Put(q);
    params.q_stride = width;
    params.out = bed_.New<uint16_t>(static_cast<size_t>(tokens) * width);
    params.sequences = bed_.Put(sequences);
    params.tiles = bed_.Put(tiles);
    params.heads = heads;
    params.kv_heads = c.kv_heads;
    params.window = c.window;
    params.scale = 0.125f;
    params.softcap = c.softcap;
    if (c.sinks) params.sinks = bed_.Put(Sinks(heads));
    params.block_shift = c.block_shift;
    const size_t workspace_bytes = AttentionWorkspaceBytes(plan, c.kv_heads, c.head_dim);
    EXPECT_LE(workspace_bytes, most_workspace_bytes_);
    params.workspace = bed_.New<float>(workspace_bytes / sizeof(float));
    const size_t counters = static_cast<size_t>(plan.tile_count) * c.kv_heads;
    params.counters = bed_.Put(std::vector<uint32_t>(counters, 0));
    bed_.Check(LaunchAttention(bed_.runtime(), bed_.stream(), c.head_dim, plan, params));
    for (const uint32_t left : bed_.Get(params.counters, counters)) EXPECT_EQ(left, 0u);
    return bed_.Get(params.out, static_cast<size_t>(tokens) * width);
  }

 private:
  // Keys and values up to each part's last position, in pages at random places. Pages of no
  // sequence, slots behind the end and slots behind the window are NaN; table entries behind the
  // window −1.
  void FillPages(const std::vector<Part>& parts, int longest, AttentionParams& params) {
    const AttentionCase& c = case_;
    const int page_tokens = 1 << c.block_shift;
    const int blocks = (longest + page_tokens - 1) / page_tokens;
    const std::vector<int32_t> pages = ShuffledPages(parts.size() * blocks + 3, random_);
    const KvPage page(c.type, c.head_dim, c.kv_heads, page_tokens);
    std::vector<unsigned char> pool(pages.size() * page.bytes, 0xff);
    std::vector<int32_t> table(parts.size() * blocks, -1);
    for (size_t s = 0; s < parts.size(); ++s) {
      const int begin = c.window > 0 ? std::max(0, parts[s].first_position - c.window + 1) : 0;
      for (int p = begin; p < parts[s].first_position + parts[s].token_count; ++p) {
        const size_t block = s * blocks + p / page_tokens;
        table[block] = pages[block];
        unsigned char* to = pool.data() + pages[block] * page.bytes;
        for (int h = 0; h < c.kv_heads; ++h) {
          for (const bool value : {false, true}) {
            const KvHead head = Stored(c, 2 + value + 2 * h, static_cast<int>(s), p);
            const int token = p % page_tokens;
            memcpy(to + page.Place(value, h, token), head.bytes.data(), head.bytes.size());
            if (c.type != KvType::kFp8) continue;
            const size_t scales = value ? page.value_scales : page.key_scales;
            memcpy(to + scales + 4 * (h * page_tokens + token), &head.scale, 4);
          }
        }
      }
    }
    params.block_tables = bed_.Put(table);
    params.block_table_stride = blocks;
    page.Fill(c.type, bed_.Put(pool), params);
  }

  AttentionCase case_;
  size_t most_workspace_bytes_ = kMostAttentionWorkspaceBytes;
  DeviceBed bed_;
  emulate::Random random_;
};

// Against float64. Weights are rounded to bfloat16 before they multiply values: 2⁻⁸ of Σ w |v|.
void ExpectExact(const AttentionCase& c, const std::vector<Part>& parts,
                 const std::vector<uint16_t>& out) {
  const int width = c.kv_heads * c.group * c.head_dim;
  size_t token = 0;
  for (size_t s = 0; s < parts.size(); ++s) {
    const int id = static_cast<int>(s);
    for (int t = 0; t < parts[s].token_count; ++t, ++token) {
      const int position = parts[s].first_position + t;
      const auto q = Vectors(1, id, position, width);
      const int begin = c.window > 0 ? std::max(0, position - c.window + 1) : 0;
      for (int h = 0; h < c.kv_heads * c.group; ++h) {
        std::vector<double> weight;
        std::vector<std::vector<double>> values;
        double sum = c.sinks ? std::exp(Sinks(c.kv_heads * c.group)[h]) : 0.0;
        for (int p = begin; p <= position; ++p) {
          const auto key = Stored(c, 2 + 2 * (h / c.group), id, p).meaning;
          double score = 0.0;
          for (int d = 0; d < c.head_dim; ++d) {
            score += static_cast<double>(Widen(q[h * c.head_dim + d])) * key[d];
          }
          score *= 0.125;
          if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
          weight.push_back(std::exp(score));
          sum += weight.back();
          values.push_back(Stored(c, 3 + 2 * (h / c.group), id, p).meaning);
        }
        for (int d = 0; d < c.head_dim; ++d) {
          double exact = 0.0;
          double magnitude = 0.0;
          for (size_t p = 0; p < weight.size(); ++p) {
            const double term = weight[p] / sum * values[p][d];
            exact += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(Widen(out[token * width + h * c.head_dim + d]), exact,
                      magnitude / 256 + 1.01 * Bf16Rounding(exact))
              << "sequence " << s << " position " << position << " head " << h << " dim " << d;
        }
      }
    }
  }
}

TEST(CudaAttention, IsTheFloat64MeaningInEveryKernel) {
  const AttentionCase cases[] = {
      {64, 2, 4, 0, 0.0f, 4},  {128, 1, 8, 0, 0.0f, 6},  {256, 1, 4, 0, 0.0f, 4},
      {64, 1, 3, 70, 0.0f, 5}, {64, 1, 16, 0, 20.0f, 4}, {128, 2, 1, 33, 0.0f, 4},
      {8, 2, 2, 0, 0.0f, 4},   {16, 1, 8, 20, 0.0f, 4},  {32, 2, 2, 0, 0.0f, 5},
      {80, 1, 4, 0, 0.0f, 4},  {96, 2, 1, 0, 0.0f, 4},   {200, 1, 2, 0, 0.0f, 4},
      {512, 2, 4, 0, 0.0f, 4}, {264, 1, 8, 70, 0.0f, 6}, {384, 1, 3, 0, 20.0f, 5}};
  uint64_t seed = 10;
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.head_dim * 1000 + c.window);
    const std::vector<Part> decode = {{0, 1}, {63, 1}, {64, 1}, {130, 1}, {17, 1}};
    AttentionBed small(c, ++seed);
    ExpectExact(c, decode, small.Run(decode, 16));
    const std::vector<Part> prefill = {{0, 19}, {60, 9}, {100, 1}};
    AttentionBed large(c, ++seed);
    ExpectExact(c, prefill, large.Run(prefill, 64));
  }
}

TEST(CudaAttention, IsTheFloat64MeaningOfWhatPagesOfOtherTypesHold) {
  uint64_t seed = 80;
  for (const KvType type : {KvType::kF16, KvType::kFp8}) {
    for (const AttentionCase& c :
         {AttentionCase{64, 2, 4, 0, 0.0f, 4, type}, AttentionCase{128, 1, 8, 33, 0.0f, 6, type},
          AttentionCase{256, 1, 4, 0, 20.0f, 4, type}, AttentionCase{8, 2, 2, 0, 0.0f, 5, type},
          AttentionCase{88, 1, 3, 70, 0.0f, 5, type}, AttentionCase{200, 1, 2, 0, 0.0f, 4, type},
          AttentionCase{512, 1, 16, 0, 0.0f, 4, type},
          AttentionCase{296, 2, 2, 33, 0.0f, 6, type}}) {
      SCOPED_TRACE(static_cast<int>(type) * 10000 + c.head_dim);
      const std::vector<Part> decode = {{0, 1}, {63, 1}, {130, 1}, {17, 1}};
      AttentionBed small(c, ++seed);
      ExpectExact(c, decode, small.Run(decode, 16));
      const std::vector<Part> prefill = {{0, 9}, {100, 1}};
      AttentionBed large(c, ++seed);
      ExpectExact(c, prefill, large.Run(prefill, 64));
    }
  }
}

TEST(CudaAttention, PagesOfOtherTypesGiveTheSameBitsInPrefillDecodeAndManySpans) {
  for (const KvType type : {KvType::kF16, KvType::kFp8}) {
    for (const AttentionCase& c :
         {AttentionCase{64, 2, 2, 0, 0.0f, 4, type}, AttentionCase{40, 1, 2, 300, 0.0f, 5, type},
          AttentionCase{256, 1, 2, 0, 0.0f, 6, type}, AttentionCase{512, 2, 2, 0, 0.0f, 4, type}}) {
      SCOPED_TRACE(static_cast<int>(type) * 10000 + c.head_dim);
      const auto width = static_cast<size_t>(c.kv_heads * c.group * c.head_dim);
      AttentionBed prefill_bed(c, 90);
      const std::vector<Part> prefill = {{510, 5}};
      const auto whole = prefill_bed.Run(prefill, 64);
      ExpectExact(c, prefill, whole);
      for (const int t : {0, 1, 2, 4}) {
        AttentionBed decode_bed(c, 91 + t);
        const auto one = decode_bed.Run({{510 + t, 1}}, 16);
        ASSERT_EQ(memcmp(one.data(), &whole[t * width], 2 * width), 0) << t;
      }
    }
  }
}

TEST(CudaAttention, ManySpansAreMergedByTheLastBlock) {
  AttentionCase c;
  const std::vector<Part> parts = {{1100, 1}, {511, 1}, {512, 1}, {3, 1}};
  AttentionBed bed(c, 30);
  ExpectExact(c, parts, bed.Run(parts, 16));
  c.window = 600;
  AttentionBed windowed(c, 31);
  ExpectExact(c, parts, windowed.Run(parts, 16));
}

// In one span and in several, before a window begins and behind, in every kernel.
TEST(CudaAttention, SpansAreMergedIntoTheSinksOfTheirHeads) {
  for (const KvType type : {KvType::kBF16, KvType::kF16, KvType::kFp8}) {
    for (const int head_dim : {64, 128}) {
      for (const int window : {0, 20}) {
        if (window > 0 && head_dim == 128) continue;
        SCOPED_TRACE(testing::Message() << static_cast<int>(type) << head_dim << window);
        const AttentionCase c{head_dim, 2, 2, window, 0.0f, 4, type, true};
        const auto width = static_cast<size_t>(c.kv_heads * c.group * c.head_dim);
        const std::vector<Part> few = {{0, 1}, {70, 1}};
        AttentionBed one_span(c, 60);
        ExpectExact(c, few, one_span.Run(few, 16));
        const std::vector<Part> parts = {{510, 4}};
        AttentionBed prefill_bed(c, 61);
        const auto whole = prefill_bed.Run(parts, 64);
        ExpectExact(c, parts, whole);
        for (const int t : {1, 2, 3}) {
          AttentionBed decode_bed(c, 62 + t);
          const auto one = decode_bed.Run({{510 + t, 1}}, 16);
          ASSERT_EQ(memcmp(one.data(), &whole[t * width], 2 * width), 0) << t;
        }
      }
    }
  }
}

// Many long rows: as many launches as the bound on what waits asks for.
TEST(CudaAttention, TilesThatDoNotFitTheWorkspaceAtOnceGiveTheSameBits) {
  const AttentionCase decode;
  AttentionCase prefill;
  prefill.head_dim = 200;
  AttentionCase wide;
  wide.head_dim = 512;
  for (const auto& [c, rows] :
       {std::pair{decode, 16}, std::pair{prefill, 64}, std::pair{wide, 16}, std::pair{wide, 64}}) {
    const std::vector<Part> parts = {{600, 1}, {511, 1}, {512, 1}, {3, 1}, {513, 1}};
    AttentionBed whole(c, 32);
    const auto expected = whole.Run(parts, rows);
    AttentionPlan one;
    one.tile_count = 1;
    one.max_spans = 2;
    one.rows_per_tile = rows;
    AttentionBed bed(c, 32);
    bed.LimitWorkspace(2 * AttentionWorkspaceBytes(one, c.kv_heads, c.head_dim) + 8);
    EXPECT_EQ(bed.Run(parts, rows), expected);
    for (const auto& [name, counters] : bed.bed().runtime().counters()) {
      EXPECT_EQ(counters.launches, 3u) << name;
    }
  }
}

TEST(CudaAttention, PrefillDecodeAndAnyCutGiveTheSameBits) {
  for (const int window : {0, 700}) {
    AttentionCase c;
    c.window = window;
    const int width = c.kv_heads * c.group * c.head_dim;
    const auto rows_of = [&](const std::vector<uint16_t>& out, int token) {
      return std::vector<uint16_t>(out.begin() + static_cast<size_t>(token) * width,
                                   out.begin() + static_cast<size_t>(token + 1) * width);
    };
    const int first = 1010;
    const int count = 40;
    AttentionBed whole_bed(c, 40);
    const auto whole = whole_bed.Run({{first, count}}, 64);
    AttentionBed cut_bed(c, 41);
    const auto head = cut_bed.Run({{first, 7}}, 64);
    const auto tail = cut_bed.Run({{first + 7, count - 7}}, 16);
    for (int t = 0; t < count; ++t) {
      ASSERT_EQ(rows_of(whole, t), t < 7 ? rows_of(head, t) : rows_of(tail, t - 7)) << t;
    }
    for (const int t : {0, 13, 14, 39}) {  // positions 1023 and 1024 among them
      AttentionBed one(c, 50 + t);
      ASSERT_EQ(rows_of(whole, t), one.Run({{first + t, 1}}, 16)) << t;
    }
  }
}

TEST(CudaAttention, OddHeadDimensionsGiveTheSameBitsInPrefillDecodeAndManySpans) {
  for (const int head_dim : {16, 80, 248, 504, 512}) {
    const AttentionCase c{head_dim, 2, 2, 0, 0.0f, 4};
    const auto width = static_cast<size_t>(c.kv_heads * c.group * head_dim);
    AttentionBed prefill_bed(c, 45);
    const std::vector<Part> prefill = {{510, 5}};
    const auto whole = prefill_bed.Run(prefill, 64);
    ExpectExact(c, prefill, whole);
    for (const int t : {0, 2, 4}) {
      AttentionBed decode_bed(c, 46 + t);
      const auto one = decode_bed.Run({{510 + t, 1}}, 16);
      ASSERT_EQ(memcmp(one.data(), &whole[t * width], 2 * width), 0) << head_dim << " " << t;
    }
  }
}

// What a device with less shared memory runs in the place of blocks of 64 rows.
TEST(CudaAttention, WideBlocksOfEitherFormGiveTheSameBits) {
  for (const KvType type : {KvType::kBF16, KvType::kF16, KvType::kFp8}) {
    for (const int group : {1, 3, 9, 16}) {
      const AttentionCase c{512, 2, group, group == 3 ? 300 : 0, 0.0f, 4, type};
      const std::vector<Part> parts = {{66, 1}, {500, 23}, {512, 1}};
      AttentionBed wide(c, 60);
      const auto expected = wide.Run(parts, 64);
      AttentionBed narrow(c, 61);
      narrow.bed().runtime().LimitShared(runtime::kLeastSharedBytes);
      ASSERT_EQ(narrow.Run(parts, 64), expected) << group;
      if (!wide.bed().runtime().counts()) continue;
      EXPECT_NE(wide.bed().runtime().counters().begin()->first,
                narrow.bed().runtime().counters().begin()->first);
    }
  }
}

TEST(CudaAttention, NeighboursChangeNoBit) {
  const AttentionCase c;
  const int width = c.kv_heads * c.group * c.head_dim;
  AttentionBed alone(c, 60);
  const auto expected = alone.Run({{77, 1}}, 16);
  for (const int rows : {2, 3, 8, 17, 31, 32, 33, 64}) {
    std::vector<Part> parts(rows, Part{5, 1});
    parts[0] = {77, 1};
    AttentionBed bed(c, 61 + rows);
    const auto out = bed.Run(parts, 16);
    ASSERT_EQ(std::vector<uint16_t>(out.begin(), out.begin() + width), expected) << rows;
  }
}

TEST(CudaAttention, KeepsItsBudget) {
  struct Shape {
    int head_dim;
    const char* kernel;
    int rows;
    Part part;
    KvType type = KvType::kBF16;
  };
  for (const Shape& s : {Shape{64, "attention_decode_64", 16, {1023, 1}},
                         Shape{128, "attention_decode_128", 16, {1023, 1}},
                         Shape{256, "attention_decode_256", 16, {511, 1}},
                         Shape{512, "attention_wide_16", 16, {511, 1}},
                         Shape{64, "attention_prefill_64", 64, {1020, 4}},
                         Shape{128, "attention_prefill_128", 64, {1020, 4}},
                         Shape{256, "attention_prefill_256", 64, {508, 4}},
                         Shape{512, "attention_wide_64", 64, {508, 4}},
                         Shape{64, "attention_decode_f16_64", 16, {1023, 1}, KvType::kF16},
                         Shape{128, "attention_decode_f16_128", 16, {1023, 1}, KvType::kF16},
                         Shape{256, "attention_decode_f16_256", 16, {511, 1}, KvType::kF16},
                         Shape{512, "attention_wide_f16_16", 16, {511, 1}, KvType::kF16},
                         Shape{64, "attention_prefill_f16_64", 64, {1020, 4}, KvType::kF16},
                         Shape{128, "attention_prefill_f16_128", 64, {1020, 4}, KvType::kF16},
                         Shape{256, "attention_prefill_f16_256", 64, {508, 4}, KvType::kF16},
                         Shape{512, "attention_wide_f16_64", 64, {508, 4}, KvType::kF16},
                         Shape{64, "attention_decode_fp8_64", 16, {511, 1}, KvType::kFp8},
                         Shape{128, "attention_decode_fp8_128", 16, {511, 1}, KvType::kFp8},
                         Shape{256, "attention_decode_fp8_256", 16, {511, 1}, KvType::kFp8},
                         Shape{512, "attention_wide_fp8_16", 16, {511, 1}, KvType::kFp8},
                         Shape{64, "attention_prefill_fp8_64", 64, {1020, 4}, KvType::kFp8},
                         Shape{128, "attention_prefill_fp8_128", 64, {1020, 4}, KvType::kFp8},
                         Shape{256, "attention_prefill_fp8_256", 64, {508, 4}, KvType::kFp8},
                         Shape{512, "attention_wide_fp8_64", 64, {508, 4}, KvType::kFp8}}) {
    AttentionCase c;
    c.head_dim = s.head_dim;
    c.kv_heads = 2;
    c.group = 16;
    c.type = s.type;
    AttentionBed bed(c, 70);
    bed.Run({s.part}, s.rows);
    const double keys = s.part.first_position + s.part.token_count;
    const double key_bytes = s.type == KvType::kFp8 ? s.head_dim + 4 : 2 * s.head_dim;
    const double row_bytes = 2.0 * s.part.token_count * c.group * 2 * s.head_dim;  // in and out
    const double tiles = 2.0 * s.part.token_count * c.group * keys * s.head_dim / (16 * 8 * 16);
    ExpectWithinBudget(bed.bed().runtime(), s.kernel,
                       c.kv_heads * (2 * keys * key_bytes + row_bytes), c.kv_heads * tiles);
  }
}

TEST(CudaAttention, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  AttentionParams params;
  AttentionPlan plan;
  plan.tile_count = 1;
  params.heads = params.kv_heads = 1;
  for (const int head_dim : {0, 12, 520, -8}) {
    EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), head_dim, plan, params), "");
  }
  params.heads = 17;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  params.heads = 3;
  params.kv_heads = 2;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  params.kv_heads = 3;
  params.block_shift = 7;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  params.block_shift = 4;
  plan.rows_per_tile = 32;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  plan.rows_per_tile = 16;
  params.type = KvType::kF32;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  const float sinks[17] = {};
  params.type = KvType::kBF16;
  params.sinks = sinks;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 136, plan, params), "");
  params.type = KvType::kFp8;
  params.token_stride = 72;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
  params.token_stride = 48;
  EXPECT_NE(LaunchAttention(bed.runtime(), bed.stream(), 64, plan, params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
