// Products with packed weights, for every count of rows: the same fma chains whether a weight is
// decoded in registers (few rows) or once into a scratch that register tiles read (many rows).
#pragma once

#include <algorithm>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_direct.h"
#include "kernels/cpu/linear_tiled.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

// Few rows form one tile, padded with zeros.
template <class V>
void PackDirect(const LinearJob& job, float* out) {
  const int count = DirectRows(job.rows);
  const int64_t k = job.weight->k;
  for (int r = 0; r < count; ++r) {
    const float* from = job.x + r * job.x_stride;
    for (int64_t i = 0; i < k; ++i) out[i * count + r] = r < job.rows ? from[i] : 0.0f;
  }
}

template <class V>
void PackTiles(const LinearJob& job, int tile_begin, int tile_end, float* out) {
  if (job.rows <= V::kDirectRows) return PackDirect<V>(job, out);
  const RowTiles tiles(job.rows, V::kTileRows);
  const int64_t k = job.weight->k;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    const int begin = tiles.Begin(tile);
    const int rows = tiles.Begin(tile + 1) - begin;
    float* to = out + begin * k;
    for (int r = 0; r < rows; ++r) {
      const float* from = job.x + (begin + r) * job.x_stride;
      for (int64_t i = 0; i < k; ++i) to[i * rows + r] = from[i];
    }
  }
}

// bias, scale, soft cap, activation, then the output; `y` are the sums of panel `panel`.
template <class V>
[[gnu::always_inline]] inline typename V::F Biased(const LinearJob& job, const Panel& panel,
                                                   typename V::F y) {
  if (job.bias == nullptr) return y;
  return V::Add(y, V::LoadPartial(job.bias + panel.out_row, panel.rows));
}

template <class V>
[[gnu::always_inline]] inline void PutOut(const LinearJob& job, int row, const Panel& panel,
                                          typename V::F y) {
  float* out = job.out + row * job.out_stride + panel.out_row;
  if (job.accumulate) y = V::Add(V::LoadPartial(out, panel.rows), y);
  V::StorePartial(out, y, panel.rows);
}

// `totals` belong to the rows given.
template <class V>
void FinishRows(const LinearJob& job, const Panel& a, const Panel& b, RowRange rows,
                const float* totals) {
  using Activation = LinearOp::Activation;
  for (int row = rows.begin; row < rows.end; ++row, totals += 32) {
    auto y = Biased<V>(job, a, V::Load(totals));
    auto z = Biased<V>(job, b, V::Load(totals + 16));
    if (job.activation == Activation::kSiluGated) {
      PutOut<V>(job, row, a, V::Mul(Silu<V>(y), z));
      continue;
    }
    if (job.activation == Activation::kGeluTanhGated) {
      PutOut<V>(job, row, a, V::Mul(GeluTanh<V>(y), z));
      continue;
    }
    if (job.activation == Activation::kClampedGated) {
      PutOut<V>(job, row, a, ClampedGate<V>(y, z));
      continue;
    }
    if (job.activation == Activation::kRelu || job.activation == Activation::kReluSquared) {
      y = V::Max(y, V::Zero());
      z = V::Max(z, V::Zero());
    }
    if (job.activation == Activation::kReluSquared) {
      y = V::Mul(y, y);
      z = V::Mul(z, z);
    }
    if (job.scale != 1.0f) {
      y = V::Mul(y, V::Set(job.scale));
      z = V::Mul(z, V::Set(job.scale));
    }
    if (job.softcap > 0.0f) {
      y = SoftCap<V>(y, job.softcap);
      z = SoftCap<V>(z, job.softcap);
    }
    PutOut<V>(job, row, a, y);
    if (&b != &a) PutOut<V>(job, row, b, z);
  }
}

template <class V>
void Linear(const LinearJob& job, int unit_begin, int unit_end, float* scratch) {
  const PackedMatrix& w = *job.weight;
  float* totals = scratch + 2 * 16 * kChunk;
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const Panel& a = w.panels[unit];
    const Panel& b = PartnerOf(w, unit);
    if (job.rows <= V::kDirectRows) {
      const float* x = job.x_tiles == nullptr ? job.x : job.x_tiles;
      WithDirectRows<V>(DirectRows(job.rows), [&](auto count) {
        DirectUnit<V, decltype(count)::value>(w, a, b, x, totals);
      });
      FinishRows<V>(job, a, b, {0, job.rows}, totals);
      continue;
    }
    for (TilePass pass(job.rows, V::kTileRows); pass.More(); pass.Next()) {
      TiledUnit<V>(job, a, b, pass, scratch);
      FinishRows<V>(job, a, b, {pass.BeginRow(), pass.EndRow()}, totals);
    }
  }
}

template <class V>
void Embed(const EmbedJob& job, int64_t row, float* out, float* scratch) {
  const PackedMatrix& table = *job.table;
  // All panels of one part but the last are full; there are few parts.
  size_t index = static_cast<size_t>(row / kPanelRows);
  while (index + 1 < table.panels.size() &&
         table.panels[index].out_row + table.panels[index].rows <= row) {
    ++index;
  }
  const Panel& panel = table.panels[index];
  const int lane = static_cast<int>(row - panel.out_row);
  for (int64_t begin = 0; begin < table.k; begin += kChunk) {
    const int64_t end = std::min<int64_t>(table.k, begin + kChunk);
    DecodeAny<V>(panel.data, table.geometries[panel.geometry], begin, end, scratch);
    for (int64_t k = begin; k < end; ++k) {
      const float value = scratch[(k - begin) * 16 + lane] * job.scale;
      out[k] = job.add ? out[k] + value : value;
    }
  }
}

}  // namespace quire::kernels::cpu
