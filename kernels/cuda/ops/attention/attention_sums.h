// What a lane keeps of two rows of attention between tiles and spans of keys, and how two spans are
// merged.
#pragma once

#include "kernels/cuda/ops/attention/attention_parts.h"

namespace quire::kernels::cuda {

template <int kOctetsOfRow>
struct AttentionSums {
  static constexpr int kOctets = kOctetsOfRow;
  static constexpr int kVectors = kOctets + 1;  // of 16 bytes that a lane keeps in the workspace

  // Of the lane's rows g (0) and g + 8 (1): the maximum, the lane's own part of the sum until
  // FoldSums, and the output before division.
  float max[2];
  float sum[2];
  float out[kOctets][4];

  QUIRE_DEVICE void Clear() {
    max[0] = max[1] = kNoScore;
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[o][i] = 0.0f;
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

  // Merges the first span into the sinks of the lane's heads: scores that came before all keys and
  // have no value.
  QUIRE_DEVICE void AddSinks(const float* of_row, const float* of_other) {
    float mine[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sink = r == 0 ? *of_row : *of_other;
      const float raised = sink > max[r] ? sink : max[r];
      mine[r] = ExpOf(max[r] - raised);
      sum[r] = Fma(sum[r], mine[r], ExpOf(sink - raised));
      max[r] = raised;
    }
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[o][i] = out[o][i] * mine[i / 2];
    }
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
