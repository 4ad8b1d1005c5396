// A block whose warps share rows: sixteen rows to a row warp, and to each of its column warps some
// columns of their output. What a warp saves of them, and how its spans are merged.
#pragma once

#include "kernels/cuda/ops/attention/attention_sums.h"

namespace quire::kernels::cuda {

// Tile has Rows, with the sums of one warp, kRowWarps, kColumnWarps, params, and Pack(a, b): two
// neighbouring elements of the output.
template <class Tile>
struct AttentionColumns : Tile {
  using Rows = typename Tile::Rows;
  static constexpr int kWorkspaceFloats =
      Tile::kRowWarps * Tile::kColumnWarps * Rows::kVectors * 128;

  int row_warp;     // which sixteen rows are this warp's
  int column_warp;  // and which part of the keys and columns

  template <class Params>
  QUIRE_DEVICE explicit AttentionColumns(const Params& p)
      : Tile(p),
        row_warp(WarpIndex() % Tile::kRowWarps),
        column_warp(WarpIndex() / Tile::kRowWarps) {}

  // The lane's place in slot `slot` of the workspace, and what it saved there from an octet on.
  QUIRE_DEVICE float* Workspace(size_t slot) const {
    return this->params.workspace + slot * kWorkspaceFloats + WarpIndex() * Rows::kVectors * 128 +
           Lane() * 4;
  }
  QUIRE_DEVICE SavedRows Saved(size_t slot, int octet) const {
    const float* at = Workspace(slot);
    return {at + octet * 128, at + Rows::kOctets * 128};
  }

  // Divides by the sums; the warp's octets from `first` on go to shared memory, where the queries
  // were.
  template <class Octets>
  QUIRE_DEVICE void Turn(const Octets& sums, int first) const {
#pragma unroll
    for (int o = 0; o < Octets::kOctets; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 16 * row_warp + Lane() / 4 + 8 * r;
        const int octet = column_warp * Rows::kOctets + first + o;
        unsigned char* to = SharedMemory() + Rows::Swizzled(row, octet) + Lane() % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) =
            this->Pack(sums.out[o][2 * r] / sums.sum[r],       // NOLINT: each block has a span
                       sums.out[o][2 * r + 1] / sums.sum[r]);  // NOLINT
      }
    }
  }

  // Merges the spans in slots [first, first + count), some octets at a time.
  QUIRE_DEVICE void MergeAndTurn(size_t first, int count) const {
#pragma unroll 1
    for (int octet = 0; octet < Rows::kOctets; octet += Rows::kMergeOctets) {
      AttentionSums<Rows::kMergeOctets> some;
      some.Load(Saved(first, octet));
#pragma unroll 1
      for (int span = 1; span < count; ++span) {
        some.template Merge<false>(Saved(first + span, octet));
      }
      Turn(some, octet);
    }
  }
};

}  // namespace quire::kernels::cuda
