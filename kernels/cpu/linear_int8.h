// Products of the int8 class: for few rows codes are read into registers and used at once, for many
// a chunk of both panels is read once into a scratch in L1 that register tiles walk over.
#pragma once

#include <algorithm>

#include "kernels/cpu/int8_block.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/quantise.h"

namespace quire::kernels::cpu {

// How far ahead of use packed weights are fetched: the hardware alone is faster with few rows.
constexpr int Int8Prefetch(DType type, int rows) {
  if (rows < 8) return rows < 4 || ValueBytes(type) == 512 ? 0 : kPrefetchBytes;
  return ValueBytes(type) == 512 ? 2 * kPrefetchBytes : kPrefetchBytes;
}

// totals[row][32] of kRows rows, which are one tile. More than four rows of one panel take its
// codes from registers four at a time.
template <class V, DType kType, int kRows, int kPanels>
[[gnu::noinline]] void Int8DirectPanels(const std::byte* const (&panels)[kPanels], int64_t k,
                                        const int32_t* x, float* totals) {
  constexpr int kGroup = std::min(kRows, 4);
  constexpr int kGroups = kRows / kGroup;
  constexpr Int8Form kForm = FormFor<V>(kType);
  constexpr int kAhead = Int8Prefetch(kType, kRows);
  typename V::F acc[kGroups][kGroup][kPanels];
  Unroll<kGroups>([&](auto g) __attribute__((always_inline)) {
    ForEachOf<V, kGroup, kPanels>([&](int r, int p)
                                      __attribute__((always_inline)) { acc[g][r][p] = V::Zero(); });
  });
  for (int64_t block = 0; block < k / kBlock; ++block, x += kInt8BlockWords * kRows) {
    Int8Scales<V> scales[kPanels];
    const std::byte* values[kPanels];
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      scales[p] = ReadInt8Scales<V, kType>(panels[p], block);
      values[p] = ValuesOf<kType>(panels[p], block);
      for (int line = 0; kAhead > 0 && line < PackedBlockBytes(kType); line += 64) {
        __builtin_prefetch(values[p] + kAhead + line);
      }
    });
    const auto read = [&](int quad, int p) __attribute__((always_inline)) {
      return ReadDotCodes<V, kType>(values[p], quad);
    };
    if constexpr (kGroups == 1) {
      Int8Block<V, kForm, kGroup, kPanels>(acc[0], x, kRows, scales, read);
    } else {
      typename V::I codes[8][kPanels];
      Unroll<8>([&](auto quad) __attribute__((always_inline)) { codes[quad][0] = read(quad, 0); });
      Unroll<kGroups>([&](auto g) __attribute__((always_inline)) {
        Int8Block<V, kForm, kGroup, kPanels>(
            acc[g], x + kGroup * g, kRows,
            scales, [&](int quad, int p) __attribute__((always_inline)) { return codes[quad][p]; });
      });
    }
  }
  Unroll<kGroups>([&](auto g) __attribute__((always_inline)) {
    ForEachOf<V, kGroup, kPanels>([&](int r, int p) __attribute__((always_inline)) {
      V::Store(totals + (kGroup * g + r) * 32 + p * 16, acc[g][r][p]);
    });
  });
}

// Calls function(integral_constant<DType, type>) for the types of the int8 class.
template <class Function>
[[gnu::always_inline]] inline void WithInt8Type(DType type, Function&& function) {
  WithType(
      type, [&](auto constant) __attribute__((always_inline)) {
        if constexpr (TakesInt8(decltype(constant)::value)) function(constant);
      });
}

template <class V, int kRows>
void Int8DirectUnit(const PackedMatrix& w, const Panel& a, const Panel& b, const int32_t* x,
                    float* totals) {
  const DType type_a = w.geometries[a.geometry].type;
  const DType type_b = w.geometries[b.geometry].type;
  if constexpr (kRows <= V::kInt8DirectPairRows) {
    if (type_a == type_b) {
      return WithInt8Type(type_a, [&](auto type) {
        const std::byte* panels[2] = {a.data, b.data};
        Int8DirectPanels<V, decltype(type)::value, kRows, 2>(panels, w.k, x, totals);
      });
    }
  }
  const Panel* both[2] = {&a, &b};
  for (int p = 0; p < 2; ++p) {
    WithInt8Type(w.geometries[both[p]->geometry].type, [&](auto type) {
      const std::byte* panels[1] = {both[p]->data};
      Int8DirectPanels<V, decltype(type)::value, kRows, 1>(panels, w.k, x, totals + 16 * p);
    });
  }
}

// A chunk of K of two panels in L1: codes as [panel][quad][16 words], scales as
// [panel][block][6][16].
struct Int8Chunk {
  float* codes;
  float* scales;
  bool first = true;  // of its panels: sums start at zero
  explicit Int8Chunk(float* scratch) : codes(scratch), scales(scratch + 2 * 16 * kChunk / 4) {}
  float* Codes(int panel, int quad) const { return codes + (panel * (kChunk / 4) + quad) * 16; }
  float* Scales(int panel, int block) const {
    return scales + (panel * (kChunk / kBlock) + block) * 96;
  }
};

template <class V, DType kType>
[[gnu::noinline]] void Int8ReadChunk(const std::byte* panel, int64_t begin, int64_t end,
                                     const Int8Chunk& to, int index) {
  for (int64_t block = begin / kBlock; block < end / kBlock; ++block) {
    const int local = static_cast<int>(block - begin / kBlock);
    const std::byte* values = ValuesOf<kType>(panel, block);
    for (int line = 0; line < PackedBlockBytes(kType); line += 64) {
      __builtin_prefetch(values + 8 * PackedBlockBytes(kType) + line, 0, 2);  // into L2
    }
    const auto s = ReadInt8Scales<V, kType>(panel, block);
    float* scales = to.Scales(index, local);
    V::Store(scales, s.scale);
    V::Store(scales + 16, s.minimum);
    for (int h = 0; h < 2 && HasHalves(kType); ++h) {
      V::Store(scales + 32 + 16 * h, s.half[h]);
      if (HasMinimum(kType)) V::Store(scales + 64 + 16 * h, s.half_minimum[h]);
    }
    ForEachQuad<V>([&](int quad) __attribute__((always_inline)) {
      V::Store(to.Codes(index, 8 * local + quad), V::AsFloat(ReadDotCodes<V, kType>(values, quad)));
    });
  }
}

// Adds a chunk to totals[row][32] of kRows of the kTile rows of a tile.
template <class V, Int8Form kForm, int kRows, int kTile, int kPanels>
void Int8TileRows(const int32_t* x, const Int8Chunk& chunk, int panel, int blocks, float* totals) {
  typename V::F acc[kRows][kPanels];
  ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
    acc[r][p] = chunk.first ? V::Zero() : V::Load(totals + r * 32 + (panel + p) * 16);
  });
  for (int block = 0; block < blocks; ++block, x += kInt8BlockWords * kTile) {
    Int8Scales<V> scales[kPanels];
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      const float* at = chunk.Scales(panel + p, block);
      scales[p] = {V::Load(at),
                   V::Load(at + 16),
                   {V::Load(at + 32), V::Load(at + 48)},
                   {V::Load(at + 64), V::Load(at + 80)}};
    });
    Int8Block<V, kForm, kRows, kPanels>(
        acc, x, kTile, scales, [&](int quad, int p) __attribute__((always_inline)) {
          return V::AsInt(V::Load(chunk.Codes(panel + p, 8 * block + quad)));
        });
  }
  ForEachOf<V, kRows, kPanels>([&](int r, int p) __attribute__((always_inline)) {
    V::Store(totals + r * 32 + (panel + p) * 16, acc[r][p]);
  });
}

// Halves need half as many registers again for each row, where they are scaled as floats, so that a
// tile of them goes in two.
template <class V, Int8Form kForm, int kTile, int kPanels>
[[gnu::noinline]] void Int8Tile(const int32_t* x, const Int8Chunk& chunk, int panel, int blocks,
                                float* totals) {
  constexpr int kFirst = kForm.halves && !V::kDotsInWords ? (kTile + 1) / 2 : kTile;
  Int8TileRows<V, kForm, kFirst, kTile, kPanels>(x, chunk, panel, blocks, totals);
  if constexpr (kFirst < kTile) {
    Int8TileRows<V, kForm, kTile - kFirst, kTile, kPanels>(x + kFirst, chunk, panel, blocks,
                                                           totals + 32 * kFirst);
  }
}

}  // namespace quire::kernels::cpu
