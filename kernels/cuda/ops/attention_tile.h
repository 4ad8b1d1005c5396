// One warp's sixteen rows of attention: scores, softmax and output of a tile of 64 keys.
//
// Rows of shared memory hold head_dim elements whose 16-byte pieces are permuted by the row's
// number modulo 8, so that copies and matrix loads meet no bank twice.
#pragma once

#include "kernels/cuda/device/tensor_core.h"
#include "kernels/cuda/ops/attention_parts.h"

namespace quire::kernels::cuda {

template <int kHeadDim>
struct AttentionRows {
  static constexpr int kPieces = kHeadDim / 8;  // of 16 bytes in a row
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kOctets = kHeadDim / 8;
  static constexpr int kVectors = kOctets + 1;  // of 16 bytes that a lane keeps in the workspace

  // Of the lane's rows g (0) and g + 8 (1): the maximum, the lane's own part of the sum until
  // FoldSums, and the output before division.
  float max[2];
  float sum[2];
  float out[kOctets][4];

  QUIRE_DEVICE static int Swizzled(int row, int piece) {
    return row * kRowBytes + (piece ^ (row & 7)) * 16;
  }

  QUIRE_DEVICE void Clear() {
    max[0] = max[1] = kNoScore;
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[o][i] = 0.0f;
    }
  }

  // score[o] = q · keys 8o … 8o + 7 of the tile, as the tensor core lays it out.
  QUIRE_DEVICE static void Scores(const unsigned char* q, const unsigned char* keys,
                                  float (&score)[8][4]) {
    const int lane = Lane();
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[o][i] = 0.0f;
    }
#pragma unroll 2
    for (int piece = 0; piece < kPieces; piece += 2) {
      uint32_t a[4];
      LoadMatrices4(a, q + Swizzled(lane % 16, piece + lane / 16));
#pragma unroll
      for (int o = 0; o < 8; o += 2) {
        uint32_t b[4];
        LoadMatrices4(b, keys + Swizzled(8 * o + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2));
        MultiplyBf16(score[o], a, b[0], b[1]);
        MultiplyBf16(score[o + 1], a, b[2], b[3]);
      }
    }
  }

  // Scales and masks scores, raises the maxima, turns scores into weights e^(score − max), adds
  // them to the sums: a lane its own columns in ascending order.
  QUIRE_DEVICE void Softmax(const AttentionParams& params, const RowKeys& rows, int first_key,
                            float (&score)[8][4]) {
    float top[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int o = 0; o < 8; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + 8 * o + Lane() % 4 * 2 + i % 2;
        float s = score[o][i] * params.scale;
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

  // out += weights · values, weights rounded to bfloat16.
  QUIRE_DEVICE void AddValues(const unsigned char* values, const float (&weight)[8][4]) {
    const int lane = Lane();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const float(&left)[4] = weight[2 * step];
      const float(&right)[4] = weight[2 * step + 1];
      const uint32_t a[4] = {PackBf16(left[0], left[1]), PackBf16(left[2], left[3]),
                             PackBf16(right[0], right[1]), PackBf16(right[2], right[3])};
#pragma unroll
      for (int o = 0; o < kOctets; o += 2) {
        uint32_t b[4];
        LoadMatrices4Transposed(b, values + Swizzled(16 * step + lane % 16, o + lane / 16));
        MultiplyBf16(out[o], a, b[0], b[1]);
        MultiplyBf16(out[o + 1], a, b[2], b[3]);
      }
    }
  }

  // The four lanes of a row add up their parts of its sum: all of them hold the whole afterwards.
  QUIRE_DEVICE void FoldSums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] = sum[r] + ShuffleXor(sum[r], 1);
      sum[r] = sum[r] + ShuffleXor(sum[r], 2);
    }
  }

  // A lane's vectors in the workspace, at a distance of 32 lanes from each other.
  QUIRE_DEVICE void Store(float* to) const {
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
      Store16(to + o * 128, Vector16{{BitsOfFloat(out[o][0]), BitsOfFloat(out[o][1]),
                                      BitsOfFloat(out[o][2]), BitsOfFloat(out[o][3])}});
    }
    Store16(to + kOctets * 128, Vector16{{BitsOfFloat(max[0]), BitsOfFloat(sum[0]),
                                          BitsOfFloat(max[1]), BitsOfFloat(sum[1])}});
  }

  QUIRE_DEVICE void Load(const SavedRows& saved) {
#pragma unroll
    for (int o = 0; o < kOctets; ++o) saved.Octet(o, out[o]);
    float tail[4];
    saved.Tail(tail);
#pragma unroll
    for (int i = 0; i < 4; ++i) (i % 2 == 0 ? max : sum)[i / 2] = tail[i];
  }

  QUIRE_DEVICE void Octet(int o, float (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = out[o][i];
  }
  QUIRE_DEVICE void Tail(float (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i % 2 == 0 ? max[i / 2] : sum[i / 2];
  }

  // Merges other rows (these, or SavedRows) that came before (kEarlier) or after these. The earlier
  // one's terms are multiplied first, so both ways give the same bits.
  template <bool kEarlier, class Other>
  QUIRE_DEVICE void Merge(const Other& other) {
    float tail[4];
    other.Tail(tail);
    float mine[2];
    float others[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float other_max = tail[2 * r];
      const float other_sum = tail[2 * r + 1];
      const float raised = other_max > max[r] ? other_max : max[r];
      mine[r] = ExpOf(max[r] - raised);
      others[r] = ExpOf(other_max - raised);
      sum[r] = kEarlier ? Fma(sum[r], mine[r], other_sum * others[r])
                        : Fma(other_sum, others[r], sum[r] * mine[r]);
      max[r] = raised;
    }
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
      float there[4];
      other.Octet(o, there);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[o][i] = kEarlier ? Fma(out[o][i], mine[i / 2], there[i] * others[i / 2])
                             : Fma(there[i], others[i / 2], out[o][i] * mine[i / 2]);
      }
    }
  }
};

}  // namespace quire::kernels::cuda
