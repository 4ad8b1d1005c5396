// Rows of float32 in registers, eight neighbours to a lane.
//
// Eight floats are a sector of 32 bytes, and an access moves 16: so two lanes fill the sectors of
// both together, each the half that its number selects, and exchange the other halves.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/rows/rows_out.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

struct Eight {
  float x[8];
};

// Eights `v` of a row that has `count` of them; zeros from there on. All lanes of a warp call it,
// and v is odd in odd lanes alone, with the even lane before it at v − 1 of the same row.
QUIRE_DEVICE Eight LoadEight(const float* row, int v, int count) {
  const bool odd = v % 2 != 0;
  const int even = odd ? v - 1 : v;
  const float* half = row + 8 * even + (odd ? 4 : 0);
  Vector16 first{{0, 0, 0, 0}};
  Vector16 second{{0, 0, 0, 0}};
  if (even < count) first = Load16(half);
  if (even + 1 < count) second = Load16(half + 8);
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t got = ShuffleXor(odd ? first.word[i] : second.word[i], 1);
    e.x[i] = FloatOfBits(odd ? got : first.word[i]);
    e.x[4 + i] = FloatOfBits(odd ? second.word[i] : got);
  }
  return e;
}

// The reverse.
QUIRE_DEVICE void StoreEight(float* row, int v, int count, const Eight& e) {
  const bool odd = v % 2 != 0;
  const int even = odd ? v - 1 : v;
  float* half = row + 8 * even + (odd ? 4 : 0);
  Vector16 first;
  Vector16 second;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t got = ShuffleXor(BitsOfFloat(odd ? e.x[i] : e.x[4 + i]), 1);
    first.word[i] = odd ? got : BitsOfFloat(e.x[i]);
    second.word[i] = odd ? BitsOfFloat(e.x[4 + i]) : got;
  }
  if (even < count) Store16(half, first);
  if (even + 1 < count) Store16(half + 8, second);
}

QUIRE_DEVICE Eight UnpackBf16(const Vector16& v) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[2 * i] = LowBf16(v.word[i]);
    e.x[2 * i + 1] = HighBf16(v.word[i]);
  }
  return e;
}

QUIRE_DEVICE Vector16 PackBf16(const Eight& e) {
  Vector16 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.word[i] = device::PackBf16(e.x[2 * i], e.x[2 * i + 1]);
  return v;
}

QUIRE_DEVICE Eight UnpackF16(const Vector16& v) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[2 * i] = ToFloat(F16{static_cast<uint16_t>(v.word[i])});
    e.x[2 * i + 1] = ToFloat(F16{static_cast<uint16_t>(v.word[i] >> 16)});
  }
  return e;
}

QUIRE_DEVICE Vector16 PackFiniteF16(const Eight& e) {
  Vector16 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.word[i] = device::PackFiniteF16(e.x[2 * i], e.x[2 * i + 1]);
  return v;
}

// Eight `v` of the row that begins at element `row`, as StoreEight is called.
QUIRE_DEVICE void StoreRow(const RowsOut& out, size_t row, int v, int count, Eight e) {
  if (out.narrow != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) e.x[i] = e.x[i] * out.scale;
    if (v < count) Store16(out.narrow + row + 8 * v, out.half ? PackFiniteF16(e) : PackBf16(e));
    if (out.float32 != nullptr) StoreEight(out.float32 + row, v, count, e);
    return;
  }
  if (out.accumulate) {
    const Eight there = LoadEight(out.float32 + row, v, count);
#pragma unroll
    for (int i = 0; i < 8; ++i) e.x[i] = there.x[i] + e.x[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) e.x[i] = e.x[i] * out.scale;
  StoreEight(out.float32 + row, v, count, e);
}

}  // namespace quire::kernels::cuda
