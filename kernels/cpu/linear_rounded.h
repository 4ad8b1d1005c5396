// Products of the class w8a8 (rounded_form.h has the rule): a panel at a time, for every count of
// rows.
#pragma once

#include <algorithm>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_words.h"
#include "kernels/cpu/round_rows.h"

namespace quire::kernels::cpu {

// A panel, the rows of a pass, and where their sums go: totals[row of the pass][32].
struct RoundedPiece {
  const LinearJob& job;
  const Panel& panel;
  const TilePass& pass;
  float* weights;  // scratch for a chunk
  float* totals;

  const PanelGeometry& Geometry() const { return job.weight->geometries[panel.geometry]; }
  const RoundingOfPart& Part() const { return job.weight->roundings.parts[panel.part]; }
  const RoundingOfInput& Input() const { return job.weight->roundings.inputs[Part().input]; }
  const RoundedInput& X() const { return job.x_rounded[Part().input]; }
  // function(first row, rows as a constant, totals of the tile)
  template <class V, class Function>
  void ForTiles(Function&& function) const {
    for (int tile = pass.begin, first = pass.BeginRow(); tile < pass.end; ++tile) {
      const int next = pass.tiles.Begin(tile + 1);
      WithRows<V::kRoundedTileRows>(next - first, [&](auto rows) {
        function(first, rows, totals + (first - pass.BeginRow()) * 32);
      });
      first = next;
    }
  }
};

// y = float(S) · (scale · weight scale).
template <class V>
void FoldWords(const RoundedPiece& piece) {
  const auto w = V::AsFloat(V::LoadInt(piece.panel.data));
  float* y = piece.totals;
  for (int row = piece.pass.BeginRow(); row < piece.pass.EndRow(); ++row, y += 32) {
    const auto scale = V::Mul(V::Set(piece.X().scales[row]), w);
    V::Store(y, V::Mul(V::ToFloat(V::AsInt(V::Load(y))), scale));
  }
}

template <class V>
void MultiplyWords(const RoundedPiece& piece) {
  const int64_t k = piece.job.weight->k;
  for (int64_t begin = 0; begin < k; begin += kWordChunk) {
    const int64_t end = std::min<int64_t>(k, begin + kWordChunk);
    ReadWordChunk<V>(piece.panel.data, begin, end, piece.weights);
    piece.ForTiles<V>([&](int first, auto rows, float* totals) {
      const int32_t* x = piece.X().words + WordPlace(begin, end, piece.job.rows, first);
      WordTile<V, decltype(rows)::value>(x, piece.weights, static_cast<int>(end - begin) / 2,
                                         begin == 0, totals);
    });
  }
  FoldWords<V>(piece);
}

// The weights of a chunk as the way of their part multiplies them, and the scale of each row.
template <class V>
typename V::F ReadRoundedChunk(const RoundedPiece& piece, int64_t begin, int64_t end) {
  const PanelGeometry& geometry = piece.Geometry();
  if (piece.Part().way != RoundedWay::kCodes) {
    DecodeAny<V>(piece.panel.data, geometry, begin, end, piece.weights);
    return V::Set(1.0f);
  }
  const Scales<V> unscaled{V::Set(0x1p120f), V::Zero()};  // DecodeE4m3
  const BlockScales<V> one{{unscaled, unscaled}};
  for (int64_t k = begin; k < end; k += kBlock) {
    const std::byte* values = ValuesOf<DType::kF8>(piece.panel.data, k / kBlock);
    for (int quad = 0; quad < 8; ++quad) {
      float* to = piece.weights + (k - begin + 4 * quad) * 16;
      DecodeQuad<V, DType::kF8>(
          values, one, quad, [&](int i, typename V::F w) __attribute__((always_inline)) {
            V::Store(to + 16 * i, w);
          });
    }
  }
  return V::AsFloat(V::LoadInt(piece.panel.data + BlockOffset(DType::kF8, begin / kBlock)));
}

// What the sums of a chunk are multiplied with.
template <class V>
struct ChunkScales {
  const float* inputs;  // by row of the product; null: they are added as they are
  typename V::F weight;
  bool first;  // chunk: totals start from it
};

template <class V>
void FoldChunk(RowRange rows, const float* chains, const ChunkScales<V>& scales, float* totals) {
  for (int row = rows.begin; row < rows.end; ++row, chains += 16, totals += 32) {
    const auto c = V::Load(chains);
    if (scales.inputs == nullptr) {
      V::Store(totals, scales.first ? c : V::Add(V::Load(totals), c));
    } else {
      const auto scale = V::Mul(V::Set(scales.inputs[row]), scales.weight);
      V::Store(totals, V::Fma(c, scale, scales.first ? V::Zero() : V::Load(totals)));
    }
  }
}

template <class V>
void MultiplyFloats(const RoundedPiece& piece) {
  static_assert(kScaleGroup == kChunk);
  const int64_t k = piece.job.weight->k;
  const RoundedInput& x = piece.X();
  ChunkScales<V> scales{nullptr, V::Set(1.0f), true};
  float chains[V::kRoundedTileRows * 16];
  for (int64_t begin = 0; begin < k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(k, begin + kChunk);
    scales.weight = ReadRoundedChunk<V>(piece, begin, end);
    scales.first = begin == 0;
    if (piece.Part().by_chunk) {
      const bool own = piece.Input().rule.group != 0;
      scales.inputs = x.scales + (own ? begin / kScaleGroup * piece.job.rows : 0);
    }
    piece.ForTiles<V>([&](int first, auto rows, float* totals) {
      constexpr int kRows = decltype(rows)::value;
      const float* from = x.floats + first * k + begin * kRows;
      ChunkTile<V, kRows>(from, piece.weights, static_cast<int>(end - begin), chains);
      FoldChunk<V>({first, first + kRows}, chains, scales, totals);
    });
  }
  if (piece.Part().by_chunk || piece.Part().way == RoundedWay::kPlain) return;
  float* y = piece.totals;
  for (int row = piece.pass.BeginRow(); row < piece.pass.EndRow(); ++row, y += 32) {
    V::Store(y, V::Mul(V::Load(y), V::Mul(V::Set(x.scales[row]), scales.weight)));
  }
}

template <class V>
void MultiplyRounded(const RoundedPiece& piece) {
  if (piece.Part().way != RoundedWay::kWords) return MultiplyFloats<V>(piece);
  if (piece.job.rows > V::kWordDirectRows) return MultiplyWords<V>(piece);
  WithRows<V::kWordDirectRows>(piece.job.rows, [&](auto rows) {
    const std::byte* panels[1] = {piece.panel.data};
    WordDirect<V, decltype(rows)::value, 1>(panels, piece.job.weight->k, piece.X().words,
                                            piece.totals);
  });
  FoldWords<V>(piece);
}

// One row of two panels with words: both streams of memory together.
template <class V>
bool MultiplyPair(const RoundedPiece& a, const RoundedPiece& b) {
  const bool words = a.Part().way == RoundedWay::kWords && b.Part().way == RoundedWay::kWords;
  if (a.job.rows != 1 || !words || a.Part().input != b.Part().input) return false;
  const std::byte* panels[2] = {a.panel.data, b.panel.data};
  WordDirect<V, 1, 2>(panels, a.job.weight->k, a.X().words, a.totals);
  FoldWords<V>(a);
  FoldWords<V>(b);
  return true;
}

template <class V>
void LinearRounded(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  const PackedMatrix& w = *job.weight;
  if (!w.roundings.any()) return V::FloatKernels().linear(job, unit_begin, unit_end, scratch);
  float* totals = scratch + 2 * 16 * kChunk;
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel& a = w.panels[unit];
    const Panel& b = PartnerOf(w, unit);
    for (TilePass pass(job.rows, V::kRoundedTileRows); pass.More(); pass.Next()) {
      const RoundedPiece first{job, a, pass, scratch, totals};
      const RoundedPiece second{job, b, pass, scratch, totals + 16};
      if (!MultiplyPair<V>(first, second)) {
        MultiplyRounded<V>(first);
        if (&b != &a) MultiplyRounded<V>(second);
      }
      FinishRows<V>(job, a, b, {pass.BeginRow(), pass.EndRow()}, totals);
    }
  }
}

// Everything but the products is the float32 class's.
template <class V>
KernelTable RoundedTable(const char* name) {
  KernelTable table = V::FloatKernels();
  table.name = name;
  table.linear = LinearRounded<V>;
  table.round = Round<V>;
  table.rounded_tile_rows = V::kRoundedTileRows;
  return table;
}

}  // namespace quire::kernels::cpu
