// Heads of q, k and v before they meet: norms, rotation, growth of queries, and keys and values
// into their pages. Sums have the lanes of norm.h.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/half.h"
#include "kernels/cpu/norm.h"
#include "kernels/kv_fp8.h"

namespace quire::kernels::cpu {

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
void HeadSquares(const SquaresJob& job, int token_begin, int token_end) {
  for (int t = token_begin; t < token_end; ++t) {
    const float* q = job.qkv + t * job.stride;
    float* out = job.out + t * job.out_stride;
    out[0] = SumOfSquares<V>(q, job.q_width, 0.0f);
    out[1] = SumOfSquares<V>(q + job.q_width, job.k_width, 0.0f);
  }
}

// x · factor · (weight + offset).
template <class V>
void ScaleHead(const RopeJob& job, const float* weight, float factor, float* x) {
  for (int i = 0; i < job.head_dim; i += 16) {
    const int left = job.head_dim - i;
    const auto y = V::Mul(LoadUpTo<V>(x + i, left), V::Set(factor));
    const auto w = V::Add(LoadUpTo<V>(weight + i, left), V::Set(job.weight_offset));
    StoreUpTo<V>(x + i, V::Mul(y, w), left);
  }
}

// Head `head` of q or k; `mean` is taken over the squares of all heads of its kind.
template <class V>
void NormHead(const RopeJob& job, const float* weight, int head, float mean, float* x) {
  if (weight == nullptr) return;
  if (job.norm != HeadNorm::kRms) weight += int64_t{head} * job.head_dim;
  if (job.norm == HeadNorm::kWhole) {
    return ScaleHead<V>(job, weight, 1.0f / std::sqrt(mean + job.epsilon), x);
  }
  NormJob norm;
  norm.kind = job.norm == HeadNorm::kLayer ? NormOp::Kind::kLayer : NormOp::Kind::kRms;
  norm.weight = weight;
  norm.epsilon = job.epsilon;
  norm.weight_offset = job.weight_offset;
  norm.width = job.head_dim;
  NormRow<V>(norm, x, x);
}

template <class V>
void NormValue(const RopeJob& job, float* v) {
  if (!job.v_norm) return;
  NormJob norm;
  norm.epsilon = job.epsilon;
  norm.width = job.head_dim;
  NormRow<V>(norm, v, v);
}

template <class V>
void GrowQueries(const RopeJob& job, int position, float* q) {
  if (job.growth.rate == 0.0f) return;
  const int steps = (position + job.growth.offset) / job.growth.interval;
  const float factor = 1.0f + job.growth.rate * std::log(1.0f + static_cast<float>(steps));
  for (int i = 0; i < job.heads * job.head_dim; ++i) q[i] *= factor;
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
    float means[2] = {};  // of the squares of all q, and of all k
    if (job.norm == HeadNorm::kWhole) {
      const float* squares = job.squares + token * job.squares_stride;
      means[0] = squares[0] / job.q_width;
      means[1] = squares[1] / job.k_width;
    }
    for (int head = 0; head < job.heads + job.kv_heads; ++head) {
      float* x = q + head * job.head_dim;
      const bool key = head >= job.heads;
      NormHead<V>(job, key ? job.k_norm : job.q_norm, key ? head - job.heads : head, means[key], x);
      if (half > 0) Rotate<V>(x, angles, half);
    }
    GrowQueries<V>(job, position, q);
    const int32_t page_id = row.block_tables[job.pages.group][position / job.pages.block_size];
    std::byte* page = job.pages.pool + page_id * job.pages.page_bytes;
    const int slot = position % job.pages.block_size;
    const float* k = q + job.heads * job.head_dim;
    float* v = q + (job.heads + job.kv_heads) * job.head_dim;
    for (int head = 0; head < job.kv_heads; ++head) {
      NormValue<V>(job, v + head * job.head_dim);
      StoreKey<V>(job, page, head, slot, k + head * job.head_dim);
      StoreValue<V>(job, page, head, slot, v + head * job.head_dim);
    }
  }
}

}  // namespace quire::kernels::cpu
