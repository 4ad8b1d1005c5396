#include "kernels/cuda/ops/embedding/embedding_quantised.h"

#include "kernels/cuda/ops/gemm/quantised_lane.h"
#include "kernels/cuda/ops/rows/float_rows.h"

namespace quire::kernels::cuda {

constexpr int kLookUpThreads = 128;
constexpr int kLanesOfTile = 4;  // that take 64 of a row together
constexpr int kTilesOfBlock = kLookUpThreads / kLanesOfTile;

// Element i of four without an address that is known at run time only.
QUIRE_DEVICE uint32_t Pick(const uint32_t (&x)[4], int i) {
  return i < 2 ? (i == 0 ? x[0] : x[1]) : (i == 2 ? x[2] : x[3]);
}

// One row's 64 of K: lane t of four holds what lane t of its octet multiplies, which are the pairs
// 2t, 2t + 1 of each eight elements.
template <int kBits, QuantForm kForm>
struct RowOfTile {
  using Quants = LaneQuants<kBits, kForm>;
  static constexpr int kGroups = Quants::kGroups;

  bool half;          // what the numbers are rounded to: float16, or bfloat16
  uint32_t pairs[8];  // by eight of K

  // Scales are side by side for the fragment's rows: lane t reads those of group t, and the four
  // exchange them. All lanes of the warp call it; `row` < 0 reads nothing.
  QUIRE_DEVICE void Load(const QuantisedWeight& weight, const unsigned char* tile,
                         const unsigned char* super, int row) {
    const int t = Lane() % kLanesOfTile;
    Quants quants;
    QuantStep own{0.0f, 0.0f};
    if (row >= 0) {
      quants.LoadQuants(tile, row % 8 * 4 + t);
      own = StepAt<kBits, kForm>(weight, tile + Quants::Bytes::kScales, super, row, t % kGroups);
      // Codes less their offset, so that a product's zero keeps its sign.
      if (weight.offset != 0.0f) own.least = -0.0f;
    }
    const int first = Lane() - t;
    float step[kGroups];
    float least[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      step[group] = Shuffle(own.step, first + group);
      least[group] = Shuffle(own.least, first + group);
    }
    if (row >= 0) Expand(weight, quants, row / 8, step, least);
  }

  QUIRE_DEVICE void Expand(const QuantisedWeight& weight, const Quants& quants, int below,
                           const float (&step)[kGroups], const float (&least)[kGroups]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int group = kGroups == 4 ? w : w / 2;
      float q[8];
      quants.Numbers(weight, w, q);
#pragma unroll
      for (int right = 0; right < 2; ++right) {
        float value[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // Of both rows' elements, then of this row's: no array is indexed by what is not
          // constant.
          const float code = below == 0 ? q[4 * right + i] : q[4 * right + 2 + i];
          value[i] = Fma(step[group], code - weight.offset, least[group]);
        }
        pairs[2 * w + right] =
            half ? PackFiniteF16(value[0], value[1]) : PackBf16(value[0], value[1]);
      }
    }
  }

  // The lane's eights of K: its own number, and the fourth from it. All lanes of the warp call it.
  QUIRE_DEVICE Vector16 EightOf(int which) const {
    const int t = Lane() % kLanesOfTile;
    const uint32_t given[4] = {pairs[4 * which], pairs[4 * which + 1], pairs[4 * which + 2],
                               pairs[4 * which + 3]};
    uint32_t got[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) got[r] = Shuffle(Pick(given, t ^ r), Lane() ^ r);
    Vector16 eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) eight.word[i] = Pick(got, t ^ i);
    return eight;
  }
};

template <int kBits, QuantForm kForm = QuantForm::kBlocks>
QUIRE_DEVICE void LookUp(const EmbeddingParams& params) {
  const QuantisedWeight& weight = params.quantised;
  const int tile = BlockY() * kTilesOfBlock + ThreadIndex() / kLanesOfTile;
  const int token = params.tokens[BlockX()] - params.first_token;
  const bool there = token >= 0 && token < params.vocabulary && 64 * tile < params.width;
  const unsigned char* super = weight.data;
  const unsigned char* at = super;
  if (there) {
    super += token / 16 * weight.fragment_bytes;
    if (weight.super_bytes == 0) {
      at = super + static_cast<int64_t>(tile) * weight.tile_bytes;
    } else {
      super += static_cast<int64_t>(tile / 4) * (4 * weight.tile_bytes + weight.super_bytes);
      at = super + weight.super_bytes + tile % 4 * weight.tile_bytes;
    }
  }
  RowOfTile<kBits, kForm> row;
  row.half = params.half;
#pragma unroll
  for (int i = 0; i < 8; ++i) row.pairs[i] = 0;
  row.Load(weight, at, super, there ? token % 16 : -1);
  const RowsOut out{nullptr, false, params.out, params.accumulate};
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const Vector16 eight = row.EightOf(which);
    Eight e = params.half ? UnpackF16(eight) : UnpackBf16(eight);
#pragma unroll
    for (int i = 0; i < 8; ++i) e.x[i] = e.x[i] * params.scale;
    const int v = 8 * tile + Lane() % kLanesOfTile + 4 * which;
    StoreRow(out, static_cast<size_t>(BlockX()) * params.width, v, params.width / 8, e);
  }
}

QUIRE_KERNEL(embedding_q4, EmbeddingParams, kLookUpThreads, 1) { LookUp<4>(params); }
QUIRE_KERNEL(embedding_q5, EmbeddingParams, kLookUpThreads, 1) { LookUp<5>(params); }
QUIRE_KERNEL(embedding_q6, EmbeddingParams, kLookUpThreads, 1) { LookUp<6>(params); }
QUIRE_KERNEL(embedding_q8, EmbeddingParams, kLookUpThreads, 1) { LookUp<8>(params); }
QUIRE_KERNEL(embedding_t4, EmbeddingParams, kLookUpThreads, 1) {
  LookUp<4, QuantForm::kTable>(params);
}

runtime::Error LaunchQuantisedEmbedding(runtime::Runtime& runtime, runtime::StreamId stream,
                                        const EmbeddingParams& params) {
  if (params.width % params.quantised.block_elements != 0) {
    return "embedding: quantised rows of " + std::to_string(params.width) + ": whole blocks of " +
           std::to_string(params.quantised.block_elements) + " are needed";
  }
  if (!CanLookUp(params.quantised.form)) return "embedding: no kernel looks up rows of this form";
  const int bits = params.quantised.bits;
  const bool table = params.quantised.form == QuantForm::kTable;
  const auto kernel = table       ? QUIRE_KERNEL_OF(embedding_t4, kLookUpThreads)
                      : bits == 4 ? QUIRE_KERNEL_OF(embedding_q4, kLookUpThreads)
                      : bits == 5 ? QUIRE_KERNEL_OF(embedding_q5, kLookUpThreads)
                      : bits == 6 ? QUIRE_KERNEL_OF(embedding_q6, kLookUpThreads)
                                  : QUIRE_KERNEL_OF(embedding_q8, kLookUpThreads);
  const int tiles = (params.width + 63) / 64;
  const int blocks = (tiles + kTilesOfBlock - 1) / kTilesOfBlock;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.rows),
                                         static_cast<uint32_t>(blocks), 0, params));
}

}  // namespace quire::kernels::cuda
