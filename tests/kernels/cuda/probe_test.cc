// What no emulator can know of a device, each in a second or two: ./dev gpu asks it before anything
// else. A figure is a line of output that begins with "figure ".
#include <algorithm>

#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "kernels/cuda/runtime/device_timer.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/figures.h"

namespace quire::kernels::cuda::test {
namespace {

class CudaProbe : public testing::Test {
 protected:
  bool emulated() { return bed_.runtime().counts(); }

  DeviceBed bed_;
};

// Equal rows times equal columns: every element has the same bits, wherever in a tile, and in
// whichever tile, it is computed. Batch invariance rests on this.
TEST_F(CudaProbe, ProductsHaveTheSameBitsAtEveryPlaceOfATile) {
  const int k = emulated() ? 128 : 4096, n = emulated() ? 72 : 1032;
  const std::vector<uint16_t> row = RandomBf16(static_cast<size_t>(k), 1);
  const std::vector<uint16_t> column = RandomBf16(static_cast<size_t>(k), 2);
  const auto repeated = [](const std::vector<uint16_t>& one, int times) {
    std::vector<uint16_t> all;
    for (int i = 0; i < times; ++i) all.insert(all.end(), one.begin(), one.end());
    return all;
  };
  std::vector<uint32_t> bits;  // of each number of rows
  for (const int m : {1, 7, 16, 17, 33, 64, emulated() ? 65 : 130}) {
    GemmParams params;
    params.m = m;
    params.n = n;
    params.k = k;
    params.x = bed_.Put(repeated(row, m));
    params.weight = bed_.Put(repeated(column, n));
    params.out_float32 = true;
    params.out = bed_.New<float>(static_cast<size_t>(m) * n);
    params.workspace = bed_.New<float>(GemmWorkspaceBytes(m, n, k) / sizeof(float));
    params.counters = bed_.Put(std::vector<uint32_t>(GemmCounters(m, n), 0));
    bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
    const auto* out = static_cast<const uint32_t*>(static_cast<const void*>(params.out));
    const std::vector<uint32_t> got = bed_.Get(out, static_cast<size_t>(m) * n);
    EXPECT_EQ(std::count(got.begin(), got.end(), got[0]), static_cast<int64_t>(got.size())) << m;
    bits.push_back(got[0]);
  }
  EXPECT_EQ(std::count(bits.begin(), bits.end(), bits[0]), static_cast<int64_t>(bits.size()));
}

// A tile that is not full starts asynchronous copies of zero bytes from the beginning of the pages.
// Nothing may be read there: a worker's pool has addresses before it has memory.
TEST_F(CudaProbe, PaddingReadsNothingOfAPageWithoutMemory) {
  constexpr int kHeadDim = 64, kPageShift = 4, kKeys = 5;
  constexpr int64_t kHeadStride = (int64_t{1} << kPageShift) * kHeadDim;
  size_t granularity = 0;
  bed_.Check(bed_.runtime().RangeGranularity(&granularity));
  void* range = nullptr;
  bed_.Check(bed_.runtime().ReserveRange(2 * granularity, &range));
  bed_.Check(bed_.runtime().MapRange(range, granularity, granularity));
  // The one page that has keys begins where the memory does.
  auto* pages = static_cast<uint16_t*>(range);
  const auto first = static_cast<int64_t>(granularity / sizeof(uint16_t));
  const std::vector<uint16_t> values = RandomBf16(2 * kHeadStride, 3);
  bed_.Check(bed_.runtime().Copy(bed_.stream(), pages + first, values.data(),
                                 values.size() * sizeof(uint16_t)));
  bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
  AttentionPlan plan;
  plan.rows_per_tile = 16;
  plan.max_spans = 1;
  plan.tile_count = 1;
  AttentionParams params;
  params.heads = 1;
  params.kv_heads = 1;
  params.scale = 0.125f;
  params.block_shift = kPageShift;
  params.q_stride = kHeadDim;
  params.head_stride = kHeadStride;
  params.page_stride = first;  // page 1 is the one with memory
  params.block_table_stride = 1;
  params.q = bed_.Put(RandomBf16(kHeadDim, 4));
  params.out = bed_.New<uint16_t>(kHeadDim);
  params.keys = pages;
  params.values = pages + kHeadStride;
  params.sequences = bed_.Put(std::vector<AttentionSequence>{{0, 1, kKeys - 1}});
  params.tiles = bed_.Put(std::vector<AttentionTile>{{0, 0}});
  params.block_tables = bed_.Put(std::vector<int32_t>{1});
  params.workspace = bed_.New<float>(AttentionWorkspaceBytes(plan, 1, kHeadDim) / sizeof(float));
  params.counters = bed_.Put(std::vector<uint32_t>(1, 0));
  bed_.Check(LaunchAttention(bed_.runtime(), bed_.stream(), kHeadDim, plan, params));
  float most = 0.0f;
  for (const uint16_t value : values) most = std::max(most, std::abs(Widen(value)));
  for (const uint16_t mean : bed_.Get(params.out, kHeadDim)) {
    EXPECT_LE(std::abs(Widen(mean)), most * 1.01f) << "a weighted mean of five values";
  }
  bed_.Check(bed_.runtime().FreeRange(range));
}

// A pool of pages takes its memory in one piece.
TEST_F(CudaProbe, OnePieceOfMostOfTheMemory) {
  size_t free = 0, total = 0, granularity = 0;
  bed_.Check(bed_.runtime().MemoryInfo(&free, &total));
  bed_.Check(bed_.runtime().RangeGranularity(&granularity));
  const size_t wanted = emulated() ? granularity : free / 10 * 9;
  const size_t bytes = wanted / granularity * granularity;
  void* range = nullptr;
  bed_.Check(bed_.runtime().ReserveRange(bytes, &range));
  bed_.Check(bed_.runtime().MapRange(range, 0, bytes));
  auto* last = static_cast<unsigned char*>(range) + bytes - 16;
  bed_.Check(bed_.runtime().Fill(bed_.stream(), last, 0x5a, 16));
  EXPECT_EQ(bed_.Get(last, 16), std::vector<unsigned char>(16, 0x5a));
  bed_.Check(bed_.runtime().FreeRange(range));
  TellFigure("one_piece_of_memory", static_cast<double>(bytes), "B");
}

// From one launch of a graph to the next: what a step costs where its kernels take nothing.
TEST_F(CudaProbe, GapBetweenGraphs) {
  CopyRowsParams params;
  params.from = bed_.Put(std::vector<unsigned char>(16, 0x5a));
  params.to = bed_.New<unsigned char>(16);
  params.rows = 1;
  params.row_bytes = 16;
  const auto work = [&](int) { return LaunchCopyRows(bed_.runtime(), bed_.stream(), params); };
  double seconds = 0.0;
  bed_.Check(runtime::TimeOnDevice(bed_.runtime(), bed_.stream(), {}, work, &seconds));
  TellFigure("graph_launch", seconds * 1e6, "us");
  EXPECT_GT(seconds, 0.0);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
