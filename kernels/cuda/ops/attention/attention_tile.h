// One warp's sixteen rows of attention: scores, softmax and output of a tile of 64 keys.
//
// Rows of shared memory hold head_dim elements whose 16-byte pieces are permuted by the row's
// number modulo 8, so that copies and matrix loads meet no bank twice.
#pragma once

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/tensor_core.h"
#include "kernels/cuda/ops/attention/attention_sums.h"

namespace quire::kernels::cuda {

// score[o] = q · keys 8 (first + o) … of a tile for eight keys each, as the tensor core lays it
// out. Rows says how long rows of shared memory are, how their pieces lie, and what multiplies
// them.
template <class Rows, int kOctets>
QUIRE_DEVICE void ScoreKeys(const unsigned char* q, const unsigned char* keys, int first,
                            float (&score)[kOctets][4]) {
  const int lane = Lane();
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
#pragma unroll
    for (int i = 0; i < 4; ++i) score[o][i] = 0.0f;
  }
#pragma unroll 2
  for (int piece = 0; piece < Rows::kPieces; piece += 2) {
    uint32_t a[4];
    LoadMatrices4(a, q + Rows::Swizzled(lane % 16, piece + lane / 16));
#pragma unroll
    for (int o = 0; o < kOctets; o += 2) {
      uint32_t b[4];
      const int key = 8 * (first + o) + lane / 16 * 8 + lane % 8;
      LoadMatrices4(b, keys + Rows::Swizzled(key, piece + lane / 8 % 2));
      Rows::Multiply(score[o], a, b[0], b[1]);
      Rows::Multiply(score[o + 1], a, b[2], b[3]);
    }
  }
}

template <int kHeadDim, KvType kType = KvType::kBF16>
struct AttentionRows : AttentionSums<kHeadDim / 8> {
  using Sums = AttentionSums<kHeadDim / 8>;
  using Sums::kOctets, Sums::max, Sums::sum, Sums::out;
  static constexpr bool kScaled = kType == KvType::kFp8;
  static constexpr int kPieces = kHeadDim / 8;  // of 16 bytes in a row
  static constexpr int kRowBytes = kHeadDim * 2;

  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kRowBytes + (piece ^ (row & 7)) * 16;
  }

  QUIRE_DEVICE static void Multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
    if constexpr (kType == KvType::kF16) {
      MultiplyF16(d, a, b0, b1);
    } else {
      MultiplyBf16(d, a, b0, b1);
    }
  }

  // Of the 64 keys of a tile.
  QUIRE_DEVICE static void Scores(const unsigned char* q, const unsigned char* keys,
                                  float (&score)[8][4]) {
    ScoreKeys<AttentionRows>(q, keys, 0, score);
  }

  // Scales and masks scores, raises the maxima, turns scores into weights e^(score − max), adds
  // them to the sums: a lane its own columns in ascending order. `factors`: what the scores of the
  // tile's keys are multiplied by, where keys have scales.
  QUIRE_DEVICE void Softmax(const AttentionParams& params, const RowKeys& rows, int first_key,
                            const float* factors, float (&score)[8][4]) {
    float top[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * o + Lane() % 4 * 2 + i % 2;
        const int key = first_key + column;
        float s = score[o][i] * (kScaled ? factors[column] : params.scale);
        if (params.softcap > 0.0f) s = SoftCap(s, params.softcap);
        const bool seen = key >= rows.first[i / 2] && key <= rows.last[i / 2];
        score[o][i] = seen ? s : kNoScore;
        if (score[o][i] > top[i / 2]) top[i / 2] = score[o][i];
      }
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int mask = 1; mask <= 2; mask *= 2) {
        const float other = ShuffleXor(top[r], mask);
        if (other > top[r]) top[r] = other;
      }
      const float raised = top[r] > max[r] ? top[r] : max[r];
      factor[r] = ExpOf(max[r] - raised);
      max[r] = raised;
      sum[r] = sum[r] * factor[r];
    }
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // A key that is not seen weighs nothing, also where the row has seen none yet.
        const float weight = score[o][i] == kNoScore ? 0.0f : ExpOf(score[o][i] - max[i / 2]);
        score[o][i] = weight;
        sum[i / 2] = sum[i / 2] + weight;
      }
    }
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[o][i] = out[o][i] * factor[i / 2];
    }
  }

  // Two neighbouring weights, times their values' scales, as the tensor core takes them.
  QUIRE_DEVICE static uint32_t PackWeights(float a, float b, const float* factors) {
    if constexpr (kType == KvType::kF16) {
      return PackF16(a, b);
    } else if constexpr (kScaled) {
      return PackBf16(a * factors[0], b * factors[1]);
    } else {
      return PackBf16(a, b);
    }
  }

  // out += weights · values, weights rounded to the type of the product.
  QUIRE_DEVICE void AddValues(const unsigned char* values, const float* factors,
                              const float (&weight)[8][4]) {
    AddValuesAt(factors, weight,
                [values](int key, int octet) { return values + Swizzled(key, octet); });
  }
  // The same with eight values of a key at place(key, octet).
  template <class Place>
  QUIRE_DEVICE void AddValuesAt(const float* factors, const float (&weight)[8][4], Place place) {
    const int lane = Lane();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float(&left)[4] = weight[2 * step];
      const float(&right)[4] = weight[2 * step + 1];
      const float* own = kScaled ? factors + 16 * step + lane % 4 * 2 : nullptr;
      const float* next = kScaled ? own + 8 : nullptr;
      const uint32_t a[4] = {PackWeights(left[0], left[1], own), PackWeights(left[2], left[3], own),
                             PackWeights(right[0], right[1], next),
                             PackWeights(right[2], right[3], next)};
#pragma unroll
      for (int o = 0; o < kOctets; o += 2) {
        uint32_t b[4];
        LoadMatrices4Transposed(b, place(16 * step + lane % 16, o + lane / 16));
        Multiply(out[o], a, b[0], b[1]);
        Multiply(out[o + 1], a, b[2], b[3]);
      }
    }
  }
};

}  // namespace quire::kernels::cuda
