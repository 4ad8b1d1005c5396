// The block of attention: kWarps warps of sixteen rows share the tiles of keys and values of one KV
// head.
#pragma once

#include "kernels/cuda/ops/attention_tiles.h"

namespace quire::kernels::cuda {

template <int kHeadDim, int kWarps, KvType kType>
struct AttentionBlock : AttentionTiles<kHeadDim, kWarps, kType> {
  using Tiles = AttentionTiles<kHeadDim, kWarps, kType>;
  using Rows = AttentionRows<kHeadDim, kType>;
  static constexpr int kWorkspaceFloats = kWarps * Rows::kVectors * 128;

  QUIRE_DEVICE explicit AttentionBlock(const AttentionParams& p) : Tiles(p) {}
  using Tiles::CopyTile, Tiles::Exists, Tiles::HeadOf, Tiles::IsOfHead, Tiles::TokenOf,
      Tiles::Widen, Tiles::group, Tiles::kFactorsAt, Tiles::kFp8, Tiles::kQBytes, Tiles::kTileBytes,
      Tiles::params, Tiles::sequence, Tiles::tile;

  QUIRE_DEVICE RowKeys KeysOfRows() const {
    RowKeys rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * WarpIndex() + Lane() / 4 + 8 * r;
      const int position = sequence.first_position + tile.first_query + row / group;
      rows.first[r] = params.window > 0 ? position - params.window + 1 : 0;
      rows.last[r] = Exists(row) ? position : -1;
    }
    return rows;
  }

  // Keys of tiles [first, last] from a fresh start.
  QUIRE_DEVICE void RunSpan(int first, int last, const RowKeys& keys, Rows& rows) const {
    rows.Clear();
    CopyTile(first % 2, first);
    AsyncCommit();
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      AsyncWait<0>();
      // All copies of this tile are here, and all warps are done with the tile before it.
      BlockBarrier();
      if (key_tile < last) CopyTile((key_tile + 1) % 2, key_tile + 1);
      AsyncCommit();
      const unsigned char* tile_keys = SharedMemory() + kQBytes;
      const float* factors = nullptr;
      if constexpr (kFp8) {
        Widen(key_tile % 2, key_tile);
        BlockBarrier();
        factors = Shared<float>(kFactorsAt);
      } else {
        tile_keys += key_tile % 2 * 2 * kTileBytes;
      }
      float score[8][4];
      Rows::Scores(SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes, tile_keys, score);
      rows.Softmax(params, keys, key_tile * kAttentionKeys, factors, score);
      rows.AddValues(tile_keys + kTileBytes, factors + (kFp8 ? kAttentionKeys : 0), score);
    }
    AsyncWait<0>();
    BlockBarrier();
    rows.FoldSums();
  }

  // The lane's place in slot `slot` of the workspace, and what it saved there from an octet on.
  QUIRE_DEVICE float* Workspace(size_t slot) const {
    return params.workspace + slot * kWorkspaceFloats + WarpIndex() * Rows::kVectors * 128 +
           Lane() * 4;
  }
  QUIRE_DEVICE SavedRows Saved(size_t slot, int octet) const {
    const float* at = Workspace(slot);
    return {at + octet * 128, at + Rows::kOctets * 128};
  }

  // Divides by the sums; octets from `first` on go to shared memory, where the queries were.
  template <class Octets>
  QUIRE_DEVICE void Turn(const Octets& rows, int first) const {
    unsigned char* own = SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes;
#pragma unroll
    for (int o = 0; o < Octets::kOctets; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        unsigned char* to = own + Rows::Swizzled(Lane() / 4 + 8 * r, first + o) + Lane() % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) =
            PackBf16(rows.out[o][2 * r] / rows.sum[r], rows.out[o][2 * r + 1] / rows.sum[r]);
      }
    }
  }

  // Merges the spans in slots [first, first + count), eight octets at a time.
  QUIRE_DEVICE void MergeAndTurn(size_t first, int count) const {
#pragma unroll 1
    for (int octet = 0; octet < Rows::kOctets; octet += 8) {
      AttentionSums<8> some;
      some.Load(Saved(first, octet));
#pragma unroll 1
      for (int span = 1; span < count; ++span) {
        some.template Merge<false>(Saved(first + span, octet));
      }
      Turn(some, octet);
    }
  }

  // Writes whole rows from shared memory.
  QUIRE_DEVICE void WriteRows() const {
    const unsigned char* own = SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes;
    WarpBarrier();
    for (int i = Lane(); i < 16 * Rows::kPieces; i += kWarpSize) {
      const int local = i / Rows::kPieces;
      const int piece = i % Rows::kPieces;
      const int row = 16 * WarpIndex() + local;
      const Vector16 y = Load16(own + Rows::Swizzled(local, piece));
      if (!Exists(row) || !IsOfHead(piece)) continue;
      const size_t head = TokenOf(row) * params.heads + HeadOf(row);
      Store16(params.out + head * params.head_dim + 8 * piece, y);
    }
  }
};

}  // namespace quire::kernels::cuda
