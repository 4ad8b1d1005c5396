// Norms over a row and rotation of heads: sums in sixteen virtual lanes, lane i taking k = i
// modulo 16.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/kv_fp8.h"

namespace quire::kernels::cpu {

template <class V>
[[gnu::always_inline]] inline typename V::F LoadUpTo(const float* p, int left) {
  return left >= 16 ? V::Load(p) : V::LoadPartial(p, left);
}

template <class V>
[[gnu::always_inline]] inline void StoreUpTo(float* p, typename V::F x, int left) {
  if (left >= 16) {
    V::Store(p, x);
  } else {
    V::StorePartial(p, x, left);
  }
}

// Σ (x − mean)² over the row; lanes past its end add nothing.
template <class V>
float SumOfSquares(const float* x, int width, float mean) {
  auto sum = V::Zero();
  const auto centre = V::Set(mean);
  int i = 0;
  for (; i + 16 <= width; i += 16) {
    const auto d = V::Sub(V::Load(x + i), centre);
    sum = V::Fma(d, d, sum);
  }
  if (i < width) {
    const auto d = V::KeepRange(V::Sub(V::LoadPartial(x + i, width - i), centre), 0, width - i, 0);
    sum = V::Fma(d, d, sum);
  }
  return V::ReduceAdd(sum);
}

template <class V>
float Sum(const float* x, int width) {
  auto sum = V::Zero();
  for (int i = 0; i < width; i += 16) sum = V::Add(sum, LoadUpTo<V>(x + i, width - i));
  return V::ReduceAdd(sum);
}

template <class V>
void NormRow(const NormJob& job, const float* x, float* out) {
  const float width = static_cast<float>(job.width);
  const float mean = job.kind == NormOp::Kind::kLayer ? Sum<V>(x, job.width) / width : 0.0f;
  const float variance = SumOfSquares<V>(x, job.width, mean) / width;
  const auto factor = V::Set(1.0f / std::sqrt(variance + job.epsilon));
  const auto centre = V::Set(mean);
  for (int i = 0; i < job.width; i += 16) {
    const int left = job.width - i;
    auto y = V::Mul(V::Sub(LoadUpTo<V>(x + i, left), centre), factor);
    if (job.weight != nullptr) {
      y = V::Mul(y, V::Add(LoadUpTo<V>(job.weight + i, left), V::Set(job.weight_offset)));
    }
    if (job.bias != nullptr) y = V::Add(y, LoadUpTo<V>(job.bias + i, left));
    if (job.accumulate) y = V::Add(LoadUpTo<V>(out + i, left), y);
    StoreUpTo<V>(out + i, y, left);
  }
}

template <class V>
void Norm(const NormJob& job, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    NormRow<V>(job, job.in + row * job.in_stride, job.out + row * job.out_stride);
  }
}

// Pairs (i, i + n): x_i · cos − x_{i+n} · sin and x_{i+n} · cos + x_i · sin.
template <class V>
void Rotate(float* x, const float* angles, int half) {
  for (int i = 0; i < half; i += 16) {
    const int left = half - i;
    const auto c = LoadUpTo<V>(angles + i, left);
    const auto s = LoadUpTo<V>(angles + half + i, left);
    const auto a = LoadUpTo<V>(x + i, left);
    const auto b = LoadUpTo<V>(x + half + i, left);
    StoreUpTo<V>(x + i, V::Fma(a, c, V::Neg(V::Mul(b, s))), left);
    StoreUpTo<V>(x + half + i, V::Fma(b, c, V::Mul(a, s)), left);
  }
}

// The scale of one head's key or value of a token, which it also stores.
inline Fp8Scale StoreScale(const RopeJob& job, std::byte* scales, int head, int slot,
                           const float* x) {
  float largest = 0.0f;
  bool finite = true;
  for (int d = 0; d < job.head_dim; ++d) {
    const float magnitude = std::fabs(x[d]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    largest = magnitude > largest ? magnitude : largest;
  }
  const Fp8Scale scale = Fp8ScaleOf(largest, finite);
  reinterpret_cast<float*>(scales)[head * job.pages.block_size + slot] = scale.scale;
  return scale;
}

inline float Saturated(float x) {
  return x > kF16Largest ? kF16Largest : x < -kF16Largest ? -kF16Largest : x;
}

// One key into its page: element d of token t is at [t / 16][d][t % 16].
template <class V>
void StoreKey(const RopeJob& job, std::byte* page, int head, int slot, const float* k) {
  std::byte* base = page + job.pages.key_offset;
  const int64_t first =
      head * job.pages.head_elements + slot / 16 * (16 * PaddedDim(job.head_dim)) + slot % 16;
  if (job.pages.type == KvType::kF32) {
    float* to = reinterpret_cast<float*>(base) + first;
    for (int d = 0; d < job.head_dim; ++d) to[16 * d] = k[d];
  } else if (job.pages.type == KvType::kFp8) {
    const Fp8Scale scale = StoreScale(job, page + job.pages.key_scale_offset, head, slot, k);
    uint8_t* to = reinterpret_cast<uint8_t*>(base) + first;
    for (int d = 0; d < job.head_dim; ++d) to[16 * d] = ToFp8(k[d] * scale.inverse);
  } else {
    const bool half = job.pages.type == KvType::kF16;
    uint16_t* to = reinterpret_cast<uint16_t*>(base) + first;
    for (int d = 0; d < job.head_dim; ++d) {
      to[16 * d] = half ? FloatToHalf(Saturated(k[d])) : FloatToBFloat(k[d]);
    }
  }
}

// One value into its page; the padding after head_dim becomes zero.
template <class V>
void StoreValue(const RopeJob& job, std::byte* page, int head, int slot, const float* v) {
  std::byte* base = page + job.pages.value_offset;
  const int64_t first = head * job.pages.head_elements + slot * PaddedDim(job.head_dim);
  if (job.pages.type == KvType::kFp8) {
    const Fp8Scale scale = StoreScale(job, page + job.pages.value_scale_offset, head, slot, v);
    uint8_t* to = reinterpret_cast<uint8_t*>(base) + first;
    for (int d = 0; d < PaddedDim(job.head_dim); ++d) {
      to[d] = d < job.head_dim ? ToFp8(v[d] * scale.inverse) : uint8_t{0};
    }
    return;
  }
  for (int d = 0; d < job.head_dim; d += 16) {
    const auto x = LoadUpTo<V>(v + d, job.head_dim - d);
    if (job.pages.type == KvType::kF32) {
      V::Store(reinterpret_cast<float*>(base) + first + d, x);
    } else if (job.pages.type == KvType::kF16) {
      // In this order a NaN passes through both.
      V::StoreHalf(base + 2 * (first + d),
                   V::Max(V::Set(-kF16Largest), V::Min(V::Set(kF16Largest), x)));
    } else {
      V::StoreBFloat(base + 2 * (first + d), x);
    }
  }
}

template <class V>
void NormHead(const RopeJob& job, const float* weight, float* x) {
  if (weight == nullptr) return;
  NormJob norm;
  norm.weight = weight;
  norm.epsilon = job.epsilon;
  norm.weight_offset = job.weight_offset;
  norm.width = job.head_dim;
  NormRow<V>(norm, x, x);
}

template <class V>
void RopeAppend(const RopeJob& job, int row_index, int token_begin, int token_end) {
  const BatchRow& row = job.rows[row_index];
  const int half = job.rotary_dim / 2;
  for (int i = token_begin; i < token_end; ++i) {
    const int token = row.first_token + i;
    const int position = row.first_position + i;
    float* q = job.qkv + token * job.stride;
    const float* angles = job.angles + static_cast<int64_t>(token) * 2 * half;
    for (int head = 0; head < job.heads + job.kv_heads; ++head) {
      float* x = q + head * job.head_dim;
      NormHead<V>(job, head < job.heads ? job.q_norm : job.k_norm, x);
      if (half > 0) Rotate<V>(x, angles, half);
    }
    const int32_t page_id = row.block_tables[job.pages.group][position / job.pages.block_size];
    std::byte* page = job.pages.pool + page_id * job.pages.page_bytes;
    const int slot = position % job.pages.block_size;
    const float* k = q + job.heads * job.head_dim;
    const float* v = k + job.kv_heads * job.head_dim;
    for (int head = 0; head < job.kv_heads; ++head) {
      StoreKey<V>(job, page, head, slot, k + head * job.head_dim);
      StoreValue<V>(job, page, head, slot, v + head * job.head_dim);
    }
  }
}

}  // namespace quire::kernels::cpu
