// Rows of x rounded for the class w8a8 (rounded_form.h has rule and layout).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/rounded_form.h"

namespace quire::kernels::cpu {

// The e4m3 nearest to a finite v within ±448, the even one of two. Where 2^e ≤ |v|, its last place
// is 2^(e − 3), at least 2^−9. A number that has this last place as a float32 rounds v when added.
[[gnu::always_inline]] inline float RoundToE4m3(float v) {
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(v) & 0x7f800000u, uint32_t{121} << 23);
  const float large = std::bit_cast<float>((exponent + (uint32_t{20} << 23)) | 0x00400000u);
  return std::copysign((v + large) - large, v);
}

// What the inputs under one scale are divided by, and what is added to their quotients.
struct InputScale {
  float scale = 0.0f;
  float zero = 0.0f;
  bool zeros = false;  // every code is zero
};

template <class V>
[[gnu::always_inline]] inline float LargestMagnitude(const float* x, int64_t count) {
  const auto sign = V::SetInt(0x7fffffffu);
  auto most = V::SetInt(0);
  int64_t i = 0;
  // As integers magnitudes keep their order, and whatever is not finite is above all that is.
  for (; i + 16 <= count; i += 16) {
    most = V::MaxInt(most, V::And(V::AsInt(V::Load(x + i)), sign));
  }
  uint32_t top = V::ReduceMaxInt(most);
  for (; i < count; ++i) top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(top);
}

template <class V>
InputScale ScaleOf(const ActivationRounding& rule, const float* x, int64_t count) {
  using Code = ActivationRounding::Code;
  const float largest = LargestMagnitude<V>(x, count);
  if (!(largest <= std::numeric_limits<float>::max())) {
    return {std::numeric_limits<float>::quiet_NaN(), 0.0f, true};
  }
  if (rule.scale != 0.0f) return {rule.scale, static_cast<float>(rule.zero), false};
  InputScale own;
  if (rule.code == Code::kE4m3) {
    own.scale = largest / 448.0f;
  } else if (rule.symmetric) {
    own.scale = largest / 127.5f;
  } else {
    float low = 0.0f, high = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    own.scale = (high - low) / 255.0f;
    own.zero = std::nearbyint(std::clamp(-128.0f - low / own.scale, -128.0f, 127.0f));
    if (!(own.scale <= std::numeric_limits<float>::max())) {
      return {std::numeric_limits<float>::quiet_NaN(), 0.0f, true};
    }
  }
  if (own.scale < std::numeric_limits<float>::min()) return {0.0f, 0.0f, true};
  return own;
}

// Sixteen int8 codes less their zero.
template <class V>
[[gnu::always_inline]] inline typename V::I Int8Codes(const float* x, const InputScale& s) {
  auto v = V::Div(V::Load(x), V::Set(s.scale));
  v = V::Add(v, V::Set(s.zero));
  v = V::Min(V::Max(v, V::Set(-128.0f)), V::Set(127.0f));
  return V::AddInt(V::RoundToInt(v), V::SetInt(static_cast<uint32_t>(-static_cast<int>(s.zero))));
}

// The pairs of words of four k of one row.
[[gnu::always_inline]] inline void PutWords(const int32_t (&q)[16], int rows, int32_t* at) {
  for (int four = 0; four < 4; ++four, at += 2 * rows) {
    const int32_t* const k = q + 4 * four;
    at[0] = (k[0] & 0xffff) | k[2] << 16;
    at[rows] = (k[1] & 0xffff) | k[3] << 16;
  }
}

template <class V>
void RoundToWords(const LinearJob& job, RowRange rows, const ActivationRounding& rule,
                  const RoundedInput& out) {
  const int64_t k = job.weight->k;
  const int count = rows.end - rows.begin;
  for (int row = rows.begin; row < rows.end; ++row) {
    const float* const x = job.x + row * job.x_stride;
    const InputScale s = ScaleOf<V>(rule, x, k);
    out.scales[row] = s.scale;
    for (int64_t begin = 0; begin < k; begin += kWordChunk) {
      const int64_t end = std::min<int64_t>(k, begin + kWordChunk);
      int32_t* at = out.words + WordPlace(begin, end, job.rows, rows.begin) + row - rows.begin;
      for (int64_t i = begin; i < end; i += 16, at += 8 * count) {
        int32_t q[16] = {};
        if (!s.zeros) V::StoreInts(q, Int8Codes<V>(x + i, s));
        PutWords(q, count, at);
      }
    }
  }
}

// The codes of up to 128 k as floats.
template <class V>
void RoundToFloats(const ActivationRounding& rule, const float* x, int count, const InputScale& s,
                   float* codes) {
  if (s.zeros) {
    std::fill_n(codes, count, 0.0f);
  } else if (rule.code == ActivationRounding::Code::kE4m3) {
    for (int i = 0; i < count; ++i) {
      codes[i] = RoundToE4m3(std::clamp(x[i] / s.scale, -448.0f, 448.0f));
    }
  } else {
    for (int i = 0; i < count; ++i) {
      codes[i] = std::nearbyint(std::clamp(x[i] / s.scale + s.zero, -128.0f, 127.0f)) - s.zero;
    }
  }
}

template <class V>
void RoundToTile(const LinearJob& job, RowRange rows, const ActivationRounding& rule,
                 const RoundedInput& out) {
  const int64_t k = job.weight->k;
  const int count = rows.end - rows.begin;
  float* const tile = out.floats + rows.begin * k;
  for (int row = rows.begin; row < rows.end; ++row) {
    const float* const x = job.x + row * job.x_stride;
    float* const to = tile + row - rows.begin;
    if (rule.code == ActivationRounding::Code::kNone) {
      for (int64_t i = 0; i < k; ++i) to[i * count] = x[i];
      continue;
    }
    InputScale s;
    if (rule.group == 0) {
      s = ScaleOf<V>(rule, x, k);
      out.scales[row] = s.scale;
    }
    for (int64_t begin = 0; begin < k; begin += kScaleGroup) {
      const int width = static_cast<int>(std::min<int64_t>(k - begin, kScaleGroup));
      if (rule.group != 0) {
        s = ScaleOf<V>(rule, x + begin, width);
        out.scales[begin / kScaleGroup * job.rows + row] = s.scale;
      }
      float codes[kScaleGroup];
      RoundToFloats<V>(rule, x + begin, width, s, codes);
      for (int i = 0; i < width; ++i) to[(begin + i) * count] = codes[i];
    }
  }
}

template <class V>
void Round(const LinearJob& job, const RoundingOfInput& input, RowRange range,
           const RoundedInput& out) {
  const RowTiles tiles(job.rows, V::kRoundedTileRows);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const RowRange rows{tiles.Begin(tile), tiles.Begin(tile + 1)};
    if (input.words) {
      RoundToWords<V>(job, rows, input.rule, out);
    } else {
      RoundToTile<V>(job, rows, input.rule, out);
    }
  }
}

}  // namespace quire::kernels::cpu
