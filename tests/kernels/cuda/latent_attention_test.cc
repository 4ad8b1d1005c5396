// Attention over paged latents against float64; bits equal in prefill, decode, any cut of a prompt
// and both forms of block.
#include "kernels/cuda/ops/latent/latent_attention.h"

#include <algorithm>

#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/kv_head.h"

namespace quire::kernels::cuda::test {
namespace {

struct LatentCase {
  int rank = 40;
  int rope = 16;
  int heads = 4;
  int block_shift = 4;
  KvType type = KvType::kBF16;
  bool half = false;  // what it writes
  // Queries are zeros, so all keys weigh the same; the first keys of three spans have the values
  // 2^25, −2^25 and 1, others none. Only in this order is their sum 1.
  bool cancels = false;

  int Dim() const { return rank + rope; }
};

struct Part {
  int first_position;
  int token_count;
};

// Of a sequence at a position: the same whatever the step.
std::vector<uint16_t> QueryOf(const LatentCase& c, int sequence, int position) {
  if (c.cancels) return std::vector<uint16_t>(static_cast<size_t>(c.heads) * c.Dim(), 0);
  return RandomBf16(static_cast<size_t>(c.heads) * c.Dim(),
                    1000003u + sequence * 65537u + static_cast<unsigned>(position));
}
KvHead LatentOf(const LatentCase& c, int sequence, int position) {
  std::vector<float> x;
  if (c.cancels) {
    x.assign(static_cast<size_t>(c.Dim()), 0.0f);
    constexpr float kFirst[] = {0x1p25f, -0x1p25f, 1.0f};
    if (position % 512 == 0) x[0] = kFirst[position / 512];
    return StoredHead(c.type, x);
  }
  const auto bits = RandomBf16(static_cast<size_t>(c.Dim()),
                               7000003u + sequence * 65537u + static_cast<unsigned>(position));
  for (const uint16_t one : bits) x.push_back(Widen(one));
  return StoredHead(c.type, x);
}

float ScaleOf(const LatentCase& c) { return 1.0f / std::sqrt(static_cast<float>(c.Dim())); }

class LatentBed {
 public:
  LatentBed(const LatentCase& c, uint64_t seed) : case_(c), bed_(seed), random_(seed) {}

  DeviceBed& bed() { return bed_; }
  void LimitWorkspace(size_t bytes) { most_workspace_bytes_ = bytes; }

  // [tokens][heads · rank].
  std::vector<uint16_t> Run(const std::vector<Part>& parts, bool decode) {
    const LatentCase& c = case_;
    LatentPlan plan;
    plan.apart = decode;
    plan.tile_queries = LatentTileQueries(decode ? 16 : 64, c.heads);
    plan.most_workspace_bytes = most_workspace_bytes_;
    std::vector<AttentionSequence> sequences;
    std::vector<AttentionTile> tiles;
    std::vector<uint16_t> q;
    int tokens = 0;
    int longest = 0;
    for (size_t s = 0; s < parts.size(); ++s) {
      const Part& part = parts[s];
      sequences.push_back({tokens, part.token_count, part.first_position});
      for (int first = 0; first < part.token_count; first += plan.tile_queries) {
        tiles.push_back({static_cast<int>(s), first});
      }
      for (int t = 0; t < part.token_count; ++t) {
        const auto row = QueryOf(c, static_cast<int>(s), part.first_position + t);
        q.insert(q.end(), row.begin(), row.end());
      }
      tokens += part.token_count;
      longest = std::max(longest, part.first_position + part.token_count);
    }
    tiles.push_back({static_cast<int>(sequences.size()), 0});  // padding: a sequence without tokens
    sequences.push_back({0, 0, 0});
    plan.tile_count = static_cast<int>(tiles.size());
    plan.max_spans = (longest + 511) / 512;
    LatentAttentionParams params;
    FillPages(parts, longest, params);
    params.q = bed_.Put(q);
    params.out = bed_.New<uint16_t>(static_cast<size_t>(tokens) * c.heads * c.rank);
    params.sequences = bed_.Put(sequences);
    params.tiles = bed_.Put(tiles);
    params.heads = c.heads;
    params.rank = c.rank;
    params.half = c.half;
    params.head_dim = c.Dim();
    params.scale = ScaleOf(c);
    params.block_shift = c.block_shift;
    const size_t bytes = LatentWorkspaceBytes(plan, c.heads, c.rank, c.rope);
    params.workspace = bed_.New<float>(bytes / sizeof(float));
    const size_t counters = LatentCounters(plan, c.heads);
    params.counters = bed_.Put(std::vector<uint32_t>(counters, 0));
    bed_.Check(LaunchLatentAttention(bed_.runtime(), bed_.stream(), plan, params));
    for (const uint32_t left : bed_.Get(params.counters, counters)) EXPECT_EQ(left, 0u);
    return bed_.Get(params.out, static_cast<size_t>(tokens) * c.heads * c.rank);
  }

 private:
  // Pages at random places; pages of no sequence and slots behind the end are NaN.
  void FillPages(const std::vector<Part>& parts, int longest, LatentAttentionParams& params) {
    const LatentCase& c = case_;
    const int page_tokens = 1 << c.block_shift;
    const int blocks = (longest + page_tokens - 1) / page_tokens;
    const std::vector<int32_t> pages = ShuffledPages(parts.size() * blocks + 3, random_);
    const KvLayout layout = DealLayers({0}, {page_tokens, 1, c.Dim(), c.type, {}, true});
    const KvSlot slot = SlotOf(layout, 0);
    const auto page_bytes = static_cast<size_t>(layout.page_bytes);
    const size_t element = static_cast<size_t>(KvElementBytes(c.type));
    const size_t stride = static_cast<size_t>(slot.head_elements / page_tokens);
    std::vector<unsigned char> pool(pages.size() * page_bytes, 0xff);
    std::vector<int32_t> table((parts.size() + 1) * blocks, -1);
    for (size_t s = 0; s < parts.size(); ++s) {
      for (int p = 0; p < parts[s].first_position + parts[s].token_count; ++p) {
        const size_t block = s * blocks + p / page_tokens;
        table[block] = pages[block];
        unsigned char* to = pool.data() + pages[block] * page_bytes;
        const KvHead latent = LatentOf(c, static_cast<int>(s), p);
        const size_t token = p % page_tokens;
        memcpy(to + token * stride * element, latent.bytes.data(), latent.bytes.size());
        if (c.type != KvType::kFp8) continue;
        memcpy(to + slot.key_scales + 4 * token, &latent.scale, 4);
      }
    }
    params.block_tables = bed_.Put(table);
    params.block_table_stride = blocks;
    unsigned char* at = bed_.Put(pool);
    params.type = c.type;
    params.keys = at;
    params.page_stride = static_cast<int64_t>(page_bytes / element);
    params.token_stride = static_cast<int>(stride);
    params.key_scales = reinterpret_cast<float*>(at + slot.key_scales);
    params.scale_page_stride = static_cast<int64_t>(page_bytes / 4);
  }

  LatentCase case_;
  size_t most_workspace_bytes_ = kMostAttentionWorkspaceBytes;
  DeviceBed bed_;
  emulate::Random random_;
};

// Weights are rounded before they multiply values, as attention's are: 2⁻⁸ of Σ w |v|.
void ExpectExact(const LatentCase& c, const std::vector<Part>& parts,
                 const std::vector<uint16_t>& out) {
  size_t token = 0;
  for (size_t s = 0; s < parts.size(); ++s) {
    const int id = static_cast<int>(s);
    std::vector<std::vector<double>> latents;
    for (int p = 0; p < parts[s].first_position + parts[s].token_count; ++p) {
      latents.push_back(LatentOf(c, id, p).meaning);
    }
    for (int t = 0; t < parts[s].token_count; ++t, ++token) {
      const int position = parts[s].first_position + t;
      const auto q = QueryOf(c, id, position);
      for (int h = 0; h < c.heads; ++h) {
        std::vector<double> weight;
        double sum = 0.0;
        for (int p = 0; p <= position; ++p) {
          double score = 0.0;
          for (int d = 0; d < c.Dim(); ++d) {
            score += static_cast<double>(Widen(q[h * c.Dim() + d])) * latents[p][d];
          }
          weight.push_back(std::exp(score * ScaleOf(c)));
          sum += weight.back();
        }
        for (int d = 0; d < c.rank; ++d) {
          double exact = 0.0;
          double magnitude = 0.0;
          for (size_t p = 0; p < weight.size(); ++p) {
            exact += weight[p] / sum * latents[p][d];
            magnitude += std::abs(weight[p] / sum * latents[p][d]);
          }
          ASSERT_NEAR(Widen(out[(token * c.heads + h) * c.rank + d], c.half), exact,
                      magnitude / 256 + 1.01 * Bf16Rounding(exact))
              << "sequence " << s << " position " << position << " head " << h << " dim " << d;
        }
      }
    }
  }
}

constexpr KvType kPageTypes[] = {KvType::kBF16, KvType::kF16, KvType::kFp8};

// Ranks of tests and of published models, one head, heads that share a block, more than one block.
TEST(CudaLatentAttention, IsTheFloat64MeaningInEveryKernel) {
  uint64_t seed = 10;
  for (const KvType type : kPageTypes) {
    for (const LatentCase& c :
         {LatentCase{40, 16, 4, 4, type}, LatentCase{64, 8, 1, 5, type},
          LatentCase{8, 8, 20, 6, type, true}, LatentCase{512, 64, 2, 4, type},
          LatentCase{200, 24, 20, 4, type}}) {
      SCOPED_TRACE(static_cast<int>(type) * 1000 + c.rank);
      const std::vector<Part> decode = {{0, 1}, {63, 1}, {64, 1}, {17, 1}};
      LatentBed small(c, ++seed);
      ExpectExact(c, decode, small.Run(decode, true));
      const std::vector<Part> prefill = {{0, 9}, {60, 6}, {70, 1}};
      LatentBed large(c, ++seed);
      ExpectExact(c, prefill, large.Run(prefill, false));
    }
  }
}

TEST(CudaLatentAttention, ManySpansAreMergedByTheLastBlock) {
  for (const LatentCase& c : {LatentCase{}, LatentCase{128, 16, 17}}) {
    const std::vector<Part> parts = {{1030, 1}, {511, 1}, {512, 1}, {3, 1}};
    LatentBed bed(c, 30);
    ExpectExact(c, parts, bed.Run(parts, true));
  }
}

TEST(CudaLatentAttention, SpansAreMergedInAscendingOrder) {
  LatentCase c;
  c.cancels = true;
  const std::vector<Part> part = {{1030, 1}};
  for (const bool decode : {true, false}) {
    LatentBed bed(c, 31);
    const std::vector<uint16_t> out = bed.Run(part, decode);
    for (int h = 0; h < c.heads; ++h) {
      EXPECT_NEAR(Widen(out[static_cast<size_t>(h) * c.rank]), 1.0 / 1031, 1e-5) << h;
    }
  }
}

// A prompt at once, in two parts, and token by token; spans in order and apart.
TEST(CudaLatentAttention, PrefillDecodeAndAnyCutGiveTheSameBits) {
  for (const KvType type : kPageTypes) {
    for (const LatentCase& c : {LatentCase{40, 16, 4, 4, type}, LatentCase{72, 64, 3, 5, type}}) {
      SCOPED_TRACE(static_cast<int>(type) * 1000 + c.rank);
      const size_t width = static_cast<size_t>(c.heads) * c.rank;
      const int first = 1010;
      const int count = 30;
      LatentBed whole_bed(c, 40);
      const auto whole = whole_bed.Run({{first, count}}, false);
      const auto row = [&](const std::vector<uint16_t>& out, int t) {
        return std::vector<uint16_t>(out.begin() + t * width, out.begin() + (t + 1) * width);
      };
      LatentBed head_bed(c, 41);
      LatentBed tail_bed(c, 42);
      const auto head = head_bed.Run({{first, 7}}, false);
      const auto tail = tail_bed.Run({{first + 7, count - 7}}, true);
      for (int t = 0; t < count; ++t) {
        ASSERT_EQ(row(whole, t), t < 7 ? row(head, t) : row(tail, t - 7)) << t;
      }
      for (const int t : {0, 13, 14, 29}) {  // positions 1023 and 1024 among them
        LatentBed one(c, 50 + t);
        ASSERT_EQ(row(whole, t), one.Run({{first + t, 1}}, true)) << t;
      }
    }
  }
}

// What a device with less shared memory runs in the place of blocks of 64 rows.
TEST(CudaLatentAttention, BlocksOfEitherFormGiveTheSameBits) {
  for (const KvType type : kPageTypes) {
    const LatentCase c{512, 64, 33, 4, type};
    for (const bool decode : {false, true}) {
      const std::vector<Part> parts = {{66, 1}, {510, decode ? 1 : 3}, {512, 1}};
      LatentBed wide(c, 60);
      const auto expected = wide.Run(parts, decode);
      LatentBed narrow(c, 61);
      narrow.bed().runtime().LimitShared(runtime::kLeastSharedBytes);
      ASSERT_EQ(narrow.Run(parts, decode), expected);
      if (!wide.bed().runtime().counts()) continue;
      EXPECT_EQ(wide.bed().runtime().counters().size(), 1u);
      EXPECT_NE(wide.bed().runtime().counters().begin()->first,
                narrow.bed().runtime().counters().begin()->first);
      if (decode) ExpectExact(c, parts, expected);
    }
  }
}

TEST(CudaLatentAttention, TilesThatDoNotFitTheWorkspaceAtOnceGiveTheSameBits) {
  const LatentCase c;
  const std::vector<Part> parts = {{600, 1}, {511, 1}, {512, 1}, {3, 1}, {513, 1}};
  LatentBed whole(c, 32);
  const auto expected = whole.Run(parts, true);
  LatentPlan one;
  one.tile_count = 1;
  one.max_spans = 2;
  one.tile_queries = LatentTileQueries(16, c.heads);
  LatentBed bed(c, 32);
  bed.LimitWorkspace(2 * LatentWorkspaceBytes(one, c.heads, c.rank, c.rope) + 8);
  EXPECT_EQ(bed.Run(parts, true), expected);
  for (const auto& [name, counters] : bed.bed().runtime().counters()) {
    EXPECT_EQ(counters.launches, 3u) << name;
  }
}

TEST(CudaLatentAttention, NeighboursChangeNoBit) {
  const LatentCase c;
  const size_t width = static_cast<size_t>(c.heads) * c.rank;
  LatentBed alone(c, 60);
  const auto expected = alone.Run({{77, 1}}, true);
  for (const int rows : {2, 3, 8, 17, 31, 32, 33, 64}) {
    std::vector<Part> parts(rows, Part{5, 1});
    parts[0] = {77, 1};
    LatentBed bed(c, 61 + rows);
    const auto out = bed.Run(parts, true);
    ASSERT_EQ(std::vector<uint16_t>(out.begin(), out.begin() + width), expected) << rows;
  }
}

TEST(CudaLatentAttention, KeepsItsBudget) {
  struct Shape {
    LatentCase c;
    const char* kernel;
    bool decode;
    Part part;
  };
  std::vector<Shape> shapes;
  const char* const kNames[][3] = {
      {"latent_attention_narrow", "latent_attention_16", "latent_attention_64"},
      {"latent_attention_f16_narrow", "latent_attention_f16_16", "latent_attention_f16_64"},
      {"latent_attention_fp8_narrow", "latent_attention_fp8_16", "latent_attention_fp8_64"}};
  for (int i = 0; i < 3; ++i) {
    const KvType type = kPageTypes[i];
    shapes.push_back({{64, 64, 16, 4, type}, kNames[i][0], true, {511, 1}});
    shapes.push_back({{512, 64, 16, 4, type}, kNames[i][1], true, {511, 1}});
    shapes.push_back({{512, 64, 64, 4, type}, kNames[i][2], true, {255, 1}});
  }
  for (const Shape& s : shapes) {
    LatentBed bed(s.c, 70);
    bed.Run({s.part}, s.decode);
    const double keys = s.part.first_position + s.part.token_count;
    const double rows = static_cast<double>(s.part.token_count) * s.c.heads;
    const double key_bytes = s.c.type == KvType::kFp8 ? s.c.Dim() + 4 : 2 * s.c.Dim();
    const double row_bytes = 2.0 * rows * (s.c.Dim() + s.c.rank);
    ExpectWithinBudget(bed.bed().runtime(), s.kernel, keys * key_bytes + row_bytes,
                       rows * keys * (s.c.Dim() + s.c.rank) / (16 * 8 * 16));
  }
}

TEST(CudaLatentAttention, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  LatentPlan plan;
  plan.tile_count = 1;
  const auto refused = [&](const LatentAttentionParams& params) {
    return !LaunchLatentAttention(bed.runtime(), bed.stream(), plan, params).empty();
  };
  LatentAttentionParams served;
  served.heads = 1;
  served.rank = 40;
  served.head_dim = 56;
  served.token_stride = 64;
  for (const int rank : {0, 12, 520, -8}) {
    LatentAttentionParams params = served;
    params.rank = rank;
    EXPECT_TRUE(refused(params)) << rank;
  }
  for (const int dim : {32, 60, 584}) {
    LatentAttentionParams params = served;
    params.head_dim = dim;
    EXPECT_TRUE(refused(params)) << dim;
  }
  LatentAttentionParams params = served;
  params.heads = 0;
  EXPECT_TRUE(refused(params));
  params = served;
  params.block_shift = 7;
  EXPECT_TRUE(refused(params));
  params = served;
  params.type = KvType::kF32;
  EXPECT_TRUE(refused(params));
  params = served;
  params.token_stride = 48;
  EXPECT_TRUE(refused(params));
}

}  // namespace
}  // namespace quire::kernels::cuda::test
