// The block of attention: kWarps warps of sixteen rows share the tiles of keys and values of one KV
// head.
#pragma once

#include "kernels/cuda/ops/attention/attention_tiles.h"

namespace quire::kernels::cuda {

template <int kHeadDim, int kWarps, KvType kType>
struct AttentionBlock : AttentionTiles<kHeadDim, kWarps, kType> {
  using Tiles = AttentionTiles<kHeadDim, kWarps, kType>;
  using Rows = AttentionRows<kHeadDim, kType>;
  static constexpr int kWorkspaceFloats = kWarps * Rows::kVectors * 128;
  static constexpr bool kKeepsTotal = kHeadDim <= 128;  // registers hold two outputs

  QUIRE_DEVICE explicit AttentionBlock(const AttentionParams& p) : Tiles(p) {}
  using Tiles::CopyTile, Tiles::Exists, Tiles::HeadOf, Tiles::IsOfHead, Tiles::Multiplied,
      Tiles::TokenOf, Tiles::Widen, Tiles::group, Tiles::kFactorsAt, Tiles::kFp8, Tiles::kTileBytes,
      Tiles::kTurns, Tiles::params, Tiles::sequence, Tiles::tile;

  QUIRE_DEVICE RowKeys KeysOfRows() const { return this->KeysOfWarp(WarpIndex()); }

  // Keys of tiles [first, last] from a fresh start.
  QUIRE_DEVICE void RunSpan(int first, int last, const RowKeys& keys, Rows& rows) const {
    rows.Clear();
    if constexpr (kTurns) {
      RunInTurns(first, last, keys, rows);
    } else {
      RunAhead(first, last, keys, rows);
    }
    AsyncWait<0>();
    BlockBarrier();
    rows.FoldSums();
  }

  // A whole tile is copied while the one before it is multiplied.
  QUIRE_DEVICE void RunAhead(int first, int last, const RowKeys& keys, Rows& rows) const {
    CopyTile(first % 2, first);
    AsyncCommit();
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      AsyncWait<0>();
      // All copies of this tile are here, and all warps are done with the tile before it.
      BlockBarrier();
      if (key_tile < last) CopyTile((key_tile + 1) % 2, key_tile + 1);
      AsyncCommit();
      if constexpr (kFp8) {
        Widen(key_tile % 2, key_tile);
        BlockBarrier();
      }
      const unsigned char* tile_keys = Multiplied(key_tile % 2);
      float score[8][4];
      Score(key_tile, tile_keys, keys, rows, score);
      rows.AddValues(tile_keys + kTileBytes, ValueFactors(), score);
    }
  }

  // Values are copied while keys are multiplied, the next keys while values are; codes of the next
  // keys as soon as these are widened.
  QUIRE_DEVICE void RunInTurns(int first, int last, const RowKeys& keys, Rows& rows) const {
    this->template CopyTile<TilePart::kKeys>(0, first);
    AsyncCommit();
#pragma unroll 1
    for (int key_tile = first; key_tile <= last; ++key_tile) {
      AsyncWait<0>();
      // All copies of these keys are here, and all warps are done with the values before them.
      BlockBarrier();
      this->template CopyTile<TilePart::kValues>(0, key_tile);
      AsyncCommit();
      if constexpr (kFp8) {
        this->template Widen<TilePart::kKeys>(0, key_tile);
        BlockBarrier();
        CopyNextKeys(key_tile, last);
      }
      float score[8][4];
      Score(key_tile, Multiplied(0), keys, rows, score);
      AsyncWait<kFp8 ? 1 : 0>();
      // The values are here, and all warps are done with the keys.
      BlockBarrier();
      if constexpr (kFp8) {
        this->template Widen<TilePart::kValues>(0, key_tile);
        BlockBarrier();
      } else {
        CopyNextKeys(key_tile, last);
      }
      rows.AddValues(Multiplied(0) + (kFp8 ? 0 : kTileBytes), ValueFactors(), score);
    }
  }
  QUIRE_DEVICE void CopyNextKeys(int key_tile, int last) const {
    if (key_tile < last) this->template CopyTile<TilePart::kKeys>(0, key_tile + 1);
    AsyncCommit();
  }

  QUIRE_DEVICE void Score(int key_tile, const unsigned char* tile_keys, const RowKeys& keys,
                          Rows& rows, float (&score)[8][4]) const {
    const float* factors = kFp8 ? Shared<float>(kFactorsAt) : nullptr;
    Rows::Scores(SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes, tile_keys, score);
    rows.Softmax(params, keys, key_tile * kAttentionKeys, factors, score);
  }
  QUIRE_DEVICE static const float* ValueFactors() {
    return kFp8 ? Shared<float>(kFactorsAt) + kAttentionKeys : nullptr;
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

  // Merges the first span of rows into the sinks of their heads, where there are any.
  template <class Octets>
  QUIRE_DEVICE void AddSinks(Octets& rows) const {
    if constexpr (kHeadDim <= kMostSinkHeadDim) {
      if (params.sinks == nullptr) return;
      const int row = 16 * WarpIndex() + Lane() / 4;
      rows.AddSinks(params.sinks + HeadOf(row), params.sinks + HeadOf(row + 8));
    }
  }

  // Divides by the sums; octets from `first` on go to shared memory, where the queries were. The
  // analyser does not see that each block has a span, and so sums.
  template <class Octets>
  QUIRE_DEVICE void Turn(const Octets& rows, int first) const {
    unsigned char* own = SharedMemory() + WarpIndex() * 16 * Rows::kRowBytes;
#pragma unroll
    for (int o = 0; o < Octets::kOctets; ++o) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        unsigned char* to = own + Rows::Swizzled(Lane() / 4 + 8 * r, first + o) + Lane() % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) =
            PackBf16(rows.out[o][2 * r] / rows.sum[r],       // NOLINT
                     rows.out[o][2 * r + 1] / rows.sum[r]);  // NOLINT
      }
    }
  }

  // Merges the spans in slots [first, first + count), eight octets at a time.
  QUIRE_DEVICE void MergeAndTurn(size_t first, int count) const {
#pragma unroll 1
    for (int octet = 0; octet < Rows::kOctets; octet += 8) {
      AttentionSums<8> some;
      some.Load(Saved(first, octet));
      AddSinks(some);
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
