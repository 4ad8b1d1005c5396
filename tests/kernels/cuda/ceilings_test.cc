// What a device can do at most, what its runtime promises, and how near kernels come: figures where
// it is a GPU, and the same calls at tiny sizes where it is emulated.
//
// A figure is a line of output that begins with "figure ", for ./dev gpu to record.
#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "kernels/cuda/ops/rows/rank_sum.h"
#include "kernels/cuda/ops/sample/sample.h"
#include "kernels/cuda/runtime/device_timer.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/figures.h"
#include "tests/kernels/cuda/random_product.h"

namespace quire::kernels::cuda::test {
namespace {

class Ceilings : public testing::Test {
 protected:
  // `real` on a GPU; emulated, where time means nothing, `tiny`.
  template <class T>
  T Size(T real, T tiny) {
    return bed_.runtime().counts() ? tiny : real;
  }

  // Seconds on the device of one `work(copy)`, by its own clock: see device_timer.h.
  double Seconds(int copies, const std::function<runtime::Error(int)>& work) {
    double seconds = 0.0;
    bed_.Check(
        runtime::TimeOnDevice(bed_.runtime(), bed_.stream(), {.copies = copies}, work, &seconds));
    return seconds;
  }

  // Seconds of the host that `work` takes from an idle device to an idle one: the median of
  // `rounds`. For what the host does, such as launching.
  double HostSeconds(int rounds, const std::function<void()>& work) {
    std::vector<double> took;
    for (int i = 0; i <= rounds; ++i) {
      bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
      const auto begin = std::chrono::steady_clock::now();
      work();
      bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      if (i > 0) took.push_back(seconds.count());  // the first one warms up
    }
    std::sort(took.begin(), took.end());
    return took[took.size() / 2];
  }

  static void Tell(const std::string& name, double value, const char* unit) {
    TellFigure(name, value, unit);
  }

  CopyRowsParams Copy(int rows, int64_t row_bytes) {
    CopyRowsParams params;
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(row_bytes);
    auto* from = bed_.New<unsigned char>(bytes);
    bed_.Check(bed_.runtime().Fill(bed_.stream(), from, 0x5a, bytes));
    params.from = from;
    params.to = bed_.New<unsigned char>(bytes);
    params.rows = rows;
    params.row_bytes = row_bytes;
    return params;
  }
  void Launch(const CopyRowsParams& params) {
    bed_.Check(LaunchCopyRows(bed_.runtime(), bed_.stream(), params));
  }

  // What was timed has also been done, to its last byte.
  void ExpectCopied(const CopyRowsParams& params) {
    const size_t bytes = static_cast<size_t>(params.rows) * static_cast<size_t>(params.row_bytes);
    const auto got = bed_.Get(static_cast<const unsigned char*>(params.to), bytes);
    EXPECT_EQ(std::count(got.begin(), got.end(), 0x5a), static_cast<int64_t>(bytes));
  }

  // Elements here and there against float64.
  void ExpectProduct(const GemmParams& params) {
    const auto x = RandomBf16(static_cast<size_t>(params.m) * params.k, 1);
    const auto weight = RandomBf16(static_cast<size_t>(params.n) * params.k, 2);
    const auto out = bed_.Get(static_cast<const uint16_t*>(params.out),
                              static_cast<size_t>(params.m) * params.n);
    for (size_t at = 0; at < out.size(); at += out.size() / 16 + 1) {
      double sum = 0.0;
      double magnitude = 1.0;
      for (size_t k = 0; k < static_cast<size_t>(params.k); ++k) {
        const double term = static_cast<double>(Widen(x[at / params.n * params.k + k])) *
                            Widen(weight[at % params.n * params.k + k]);
        sum += term;
        magnitude += std::abs(term);
      }
      EXPECT_NEAR(Widen(out[at]), sum, Bf16Rounding(sum) + magnitude * params.k * 0x1p-24) << at;
    }
  }

  // Two copies of the weights take turns: 67 MB or 235, more than the caches hold.
  double ProductSeconds(const GemmParams& params) {
    GemmParams other = params;
    const size_t elements = static_cast<size_t>(params.n) * params.k;
    auto* weight = bed_.New<uint16_t>(elements);
    bed_.Check(bed_.runtime().Copy(bed_.stream(), weight, params.weight, elements * 2));
    other.weight = weight;
    return Seconds(2, [&](int copy) {
      return LaunchGemm(bed_.runtime(), bed_.stream(), copy == 0 ? params : other);
    });
  }

  // Elements that repeat a piece of random ones.
  template <class T>
  T* Repeated(size_t count, const std::vector<T>& piece) {
    T* all = bed_.New<T>(count);
    const T* from = bed_.Put(piece);
    for (size_t at = 0; at < count; at += piece.size()) {
      const size_t bytes = std::min(piece.size(), count - at) * sizeof(T);
      bed_.Check(bed_.runtime().Copy(bed_.stream(), all + at, from, bytes));
    }
    bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
    return all;
  }

  DeviceBed bed_;
};

// Eight reads for a write, by the kernel that sums over ranks.
TEST_F(Ceilings, ReadBandwidth) {
  constexpr int kParts = 8;
  RankSumParams params;
  params.ranks = kParts;
  params.count = Size(int64_t{64} << 20, int64_t{1024});
  params.parts = Repeated<float>(static_cast<size_t>(kParts * params.count),
                                 std::vector<float>(Size(1 << 20, 256), 1.25f));
  params.out = bed_.New<float>(static_cast<size_t>(params.count));
  const double seconds =
      Seconds(1, [&](int) { return LaunchRankSum(bed_.runtime(), bed_.stream(), params); });
  Tell("read_bandwidth", 4.0 * (kParts + 1) * static_cast<double>(params.count) / seconds, "B/s");
  const auto sums = bed_.Get(params.out, static_cast<size_t>(params.count));
  EXPECT_EQ(std::count(sums.begin(), sums.end(), kParts * 1.25f), params.count);
}

TEST_F(Ceilings, CopyBandwidth) {
  const CopyRowsParams params = Copy(Size(16'384, 2), Size(65'536, 1024));
  const double seconds =
      Seconds(1, [&](int) { return LaunchCopyRows(bed_.runtime(), bed_.stream(), params); });
  Tell("copy_bandwidth", 2.0 * params.rows * static_cast<double>(params.row_bytes) / seconds,
       "B/s");
  ExpectCopied(params);
}

TEST_F(Ceilings, LaunchGap) {
  const CopyRowsParams params = Copy(1, 16);
  const int launches = Size(2000, 3);
  const double seconds = HostSeconds(Size(10, 1), [&] {
    for (int i = 0; i < launches; ++i) Launch(params);
  });
  Tell("launch", seconds / launches * 1e6, "us");
  ExpectCopied(params);
}

TEST_F(Ceilings, GraphGap) {
  const CopyRowsParams params = Copy(1, 16);
  const int nodes = Size(500, 3);
  const double seconds =
      Seconds(nodes, [&](int) { return LaunchCopyRows(bed_.runtime(), bed_.stream(), params); });
  Tell("graph_node", seconds * 1e6, "us");
  ExpectCopied(params);
}

TEST_F(Ceilings, ProductOfManyRows) {
  const int side = Size(4096, 64);
  const GemmParams params = RandomProduct(bed_, side, side, side);
  const double seconds = ProductSeconds(params);
  Tell("gemm_4096_bf16", 2.0 * side * side * side / seconds, "FLOP/s");
  ExpectProduct(params);
}

TEST_F(Ceilings, ProductOfFewRowsReadsItsWeights) {
  const int n = Size(14'336, 64), k = Size(4096, 64);
  for (const int m : {1, 16, 64}) {
    const GemmParams params = RandomProduct(bed_, m, n, k);
    const double seconds = ProductSeconds(params);
    Tell("gemm_" + std::to_string(m) + "_rows_weight_bandwidth", 2.0 * n * k / seconds, "B/s");
    ExpectProduct(params);
  }
}

class Rates : public Ceilings {
 protected:
  static constexpr int kKvHeads = 8, kGroup = 4, kHeadDim = 128, kPageShift = 6;

  // Sequences of `keys` keys of which the last `queries` ask. Seconds of one layer.
  double Attention(int sequences, int keys, int queries) {
    constexpr int64_t kHeadStride = (int64_t{1} << kPageShift) * kHeadDim;
    const int blocks = (keys + (1 << kPageShift) - 1) >> kPageShift;
    AttentionPlan plan;
    plan.rows_per_tile = queries == 1 ? 16 : 64;
    plan.max_spans = (keys + 511) / 512;
    std::vector<AttentionSequence> rows;
    std::vector<AttentionTile> tiles;
    std::vector<int32_t> tables;
    for (int s = 0; s < sequences; ++s) {
      rows.push_back({s * queries, queries, keys - queries});
      for (int q = 0; q < queries; q += plan.TileQueries(kKvHeads * kGroup, kKvHeads)) {
        tiles.push_back({s, q});
      }
      for (int b = 0; b < blocks; ++b) tables.push_back(b * sequences + s);  // far apart
    }
    plan.tile_count = static_cast<int>(tiles.size());
    AttentionParams params;
    params.heads = kKvHeads * kGroup;
    params.kv_heads = kKvHeads;
    params.scale = 0.088f;
    params.block_shift = kPageShift;
    params.q_stride = params.heads * kHeadDim;
    params.head_stride = kHeadStride;
    params.page_stride = 2 * kKvHeads * kHeadStride;
    params.block_table_stride = blocks;
    const auto elements = static_cast<size_t>(sequences) * queries * params.q_stride;
    const std::vector<uint16_t> piece = RandomBf16(Size(1 << 20, 1 << 10), 5);
    params.q = Repeated(elements, piece);
    params.out = bed_.New<uint16_t>(elements);
    const auto* pages = Repeated(tables.size() * static_cast<size_t>(params.page_stride), piece);
    params.keys = pages;
    params.values = pages + kKvHeads * kHeadStride;
    params.sequences = bed_.Put(rows);
    params.tiles = bed_.Put(tiles);
    params.block_tables = bed_.Put(tables);
    params.workspace =
        bed_.New<float>(AttentionWorkspaceBytes(plan, kKvHeads, kHeadDim) / sizeof(float));
    params.counters = bed_.Put(std::vector<uint32_t>(tiles.size() * kKvHeads, 0));
    const double seconds = Seconds(1, [&](int) {
      return LaunchAttention(bed_.runtime(), bed_.stream(), kHeadDim, plan, params);
    });
    ExpectMeans(bed_.Get(params.out, elements), piece);
    return seconds;
  }

  // A weighted mean of values lies between the least and the largest of them.
  static void ExpectMeans(const std::vector<uint16_t>& out, const std::vector<uint16_t>& values) {
    float most = 0.0f;
    for (const uint16_t value : values) most = std::max(most, std::abs(Widen(value)));
    int64_t outside = 0;
    int64_t zeros = 0;
    for (const uint16_t mean : out) {
      outside += std::abs(Widen(mean)) <= most * 1.01f ? 0 : 1;  // a NaN is outside
      zeros += (mean & 0x7fff) == 0 ? 1 : 0;
    }
    EXPECT_EQ(outside, 0);
    EXPECT_LT(zeros, static_cast<int64_t>(out.size() / 100 + 1));
  }
};

TEST_F(Rates, DecodeAttentionOf32RowsAnd4kKeys) {
  const int rows = Size(32, 2), keys = Size(4096, 64);
  const double seconds = Attention(rows, keys, 1);
  Tell("decode_attention_bandwidth", 4.0 * rows * keys * kKvHeads * kHeadDim / seconds, "B/s");
}

TEST_F(Rates, PrefillAttentionOf8kTokens) {
  const double tokens = Size(8192, 16);
  const double seconds = Attention(1, static_cast<int>(tokens), static_cast<int>(tokens));
  Tell("prefill_attention", 2.0 * tokens * tokens * kKvHeads * kGroup * kHeadDim / seconds,
       "FLOP/s");
}

TEST_F(Rates, TopKAndTopPOf256RowsAnd128kLogits) {
  SampleParams params;
  params.rows = Size(256, 2);
  params.vocabulary = Size(128'256, 1000);
  params.stride = params.vocabulary;
  std::vector<float> piece(Size(1'000'003, 997));
  emulate::Random random(3);
  for (float& x : piece) x = static_cast<float>(random.Next() >> 40) * 0x1p-20f;
  const auto elements = static_cast<size_t>(params.rows * params.stride);
  params.logits = Repeated(elements, piece);
  float* others = Repeated(elements, piece);  // of the other copy: 131 MB each
  std::vector<SampleRow> rows(static_cast<size_t>(params.rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].temperature = 0.8f;
    rows[i].top_k = 50;
    rows[i].top_p = 0.9f;
    rows[i].seed = i;
  }
  const size_t bytes = PackedSampleRowsBytes(rows);
  auto* packed = bed_.New<unsigned char>(bytes);
  std::vector<uint64_t> host((bytes + 15) / 16 * 2);
  params.plain = PackSampleRows(rows, host.data(), packed);
  bed_.Check(bed_.runtime().Copy(bed_.stream(), packed, host.data(), bytes));
  params.sample_rows = reinterpret_cast<const DeviceSampleRow*>(packed);
  params.outputs = bed_.New<SampleOutput>(rows.size());
  const double seconds = Seconds(2, [&](int copy) {
    SampleParams row = params;
    if (copy == 1) row.logits = others;
    return LaunchSample(bed_.runtime(), bed_.stream(), row);
  });
  Tell("sample_256_rows", seconds * 1e6, "us");
  const auto outputs = bed_.Get(params.outputs, rows.size());
  for (size_t i = 0; i < rows.size(); i += rows.size() - 1) {
    std::vector<float> logits = bed_.Get(params.logits + i * static_cast<size_t>(params.stride),
                                         static_cast<size_t>(params.vocabulary));
    ASSERT_TRUE(outputs[i].token >= 0 && outputs[i].token < params.vocabulary) << i;
    const float drawn = logits[static_cast<size_t>(outputs[i].token)];
    std::nth_element(logits.begin(), logits.begin() + 49, logits.end(), std::greater<>());
    EXPECT_GE(drawn, logits[49]) << i << ": beyond the fifty best";
  }
}

TEST(CudaRuntime, AGraphReplaysWhatWasCaptured) {
  DeviceBed bed;
  std::vector<unsigned char> host(1024);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 7);
  CopyRowsParams params;
  auto* from = bed.Put(host);
  auto* to = bed.New<unsigned char>(host.size());
  params.from = from;
  params.to = to;
  params.rows = 2;
  params.row_bytes = 512;
  runtime::GraphId graph{};
  bed.Check(bed.runtime().BeginCapture(bed.stream()));
  bed.Check(LaunchCopyRows(bed.runtime(), bed.stream(), params));
  bed.Check(bed.runtime().EndCapture(bed.stream(), &graph));
  EXPECT_NE(bed.Get(to, host.size()), host) << "a captured launch ran";
  for (int round = 0; round < 2; ++round) {
    bed.Check(bed.runtime().Fill(bed.stream(), to, 0, host.size()));
    bed.Check(bed.runtime().LaunchGraph(graph, bed.stream()));
    EXPECT_EQ(bed.Get(to, host.size()), host);
  }
  bed.Check(bed.runtime().DestroyGraph(graph));
}

TEST(CudaRuntime, AnEventOrdersTwoStreams) {
  DeviceBed bed;
  runtime::StreamId second{};
  bed.Check(bed.runtime().CreateStream(&second));
  runtime::EventId event{};
  bed.Check(bed.runtime().CreateEvent(&event));
  auto* words = bed.New<uint32_t>(4);
  for (int round = 0; round < 16; ++round) {
    const uint8_t byte = static_cast<uint8_t>(round);
    bed.Check(bed.runtime().Fill(bed.stream(), words, 0xee, 16));
    bed.Check(bed.runtime().Record(event, bed.stream()));
    bed.Check(bed.runtime().Wait(second, event));
    bed.Check(bed.runtime().Fill(second, words, byte, 16));
    bed.Check(bed.runtime().Synchronize(second));
    EXPECT_EQ(bed.Get(words, 4), std::vector<uint32_t>(4, 0x01010101u * byte));
  }
}

TEST(CudaRuntime, MappedMemoryIsSeenByBothSides) {
  DeviceBed bed;
  void *host = nullptr, *device = nullptr;
  bed.Check(bed.runtime().AllocateMapped(64, &host, &device));
  runtime::EventId event{};
  bed.Check(bed.runtime().CreateEvent(&event));
  bed.Check(bed.runtime().Fill(bed.stream(), device, 0x5a, 64));
  bed.Check(bed.runtime().Record(event, bed.stream()));
  bed.Check(bed.runtime().Synchronize(event));
  for (int i = 0; i < 64; ++i) EXPECT_EQ(static_cast<unsigned char*>(host)[i], 0x5a);
  bed.Check(bed.runtime().FreeMapped(host));
}

}  // namespace
}  // namespace quire::kernels::cuda::test
