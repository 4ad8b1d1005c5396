// Pairs by expert, those of one expert in ascending order, and the tiles that they make: a counting
// sort by one block.
//
// Each warp has a range of pairs and goes through it in order. It counts them by expert; starts
// follow from the counts of all warps; then it gives each pair its place. 32 pairs at a time find
// those of the same expert by votes on the bits of its number.
#pragma once

#include "kernels/cuda/ops/moe/route_logits.h"

namespace quire::kernels::cuda {

// In shared memory: [warps][experts] counts, which become the next place of each warp's pairs, and
// the sums of warps.
struct RouteSort {
  const RouteParams& params;
  uint32_t* places;
  uint64_t* warp_sums;

  static constexpr size_t Bytes(int experts) {
    return sizeof(uint32_t) * kRouteWarps * static_cast<size_t>((experts + 1) / 2 * 2) +
           sizeof(uint64_t) * kRouteWarps;
  }

  QUIRE_DEVICE RouteSort(const RouteParams& p, unsigned char* shared)
      : params(p),
        places(reinterpret_cast<uint32_t*>(shared)),
        warp_sums(reinterpret_cast<uint64_t*>(places + kRouteWarps * ((p.experts + 1) / 2 * 2))) {}

  QUIRE_DEVICE uint32_t* PlaceOf(int warp, int expert) const {
    return places + warp * ((params.experts + 1) / 2 * 2) + expert;
  }

  // The inclusive sum over the threads of the block, in their order.
  QUIRE_DEVICE uint64_t SumUpTo(uint64_t x) const {
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint64_t before = Shuffle(x, Lane() >= step ? Lane() - step : Lane());
      if (Lane() >= step) x += before;
    }
    BlockBarrier();  // the sums before have been read
    if (Lane() == kWarpSize - 1) warp_sums[WarpIndex()] = x;
    BlockBarrier();
    for (int warp = 0; warp < WarpIndex(); ++warp) x += warp_sums[warp];
    return x;
  }

  QUIRE_DEVICE bool IsOwn(int expert) const {
    return expert >= params.own.first && expert < params.own.first + params.own.count;
  }

  // Lanes whose expert is this lane's. All lanes call it.
  QUIRE_DEVICE uint32_t SameExpert(int expert, bool there) const {
    uint32_t same = Ballot(there);
    for (int bit = 0; (params.experts - 1) >> bit != 0; ++bit) {
      const bool set = (expert >> bit & 1) != 0;
      const uint32_t votes = Ballot(set);
      same &= set ? votes : ~votes;
    }
    return same;
  }

  QUIRE_DEVICE void Count(int begin, int end) const {
    for (int pair = begin + Lane(); pair < end; pair += kWarpSize) {
      const int expert = params.chosen[pair];
      if (IsOwn(expert)) AtomicAdd(PlaceOf(WarpIndex(), expert), 1u);
    }
  }

  // Starts of all warps' pairs, and the tiles.
  QUIRE_DEVICE void Place() const {
    uint64_t before = 0;  // rows, and above them tiles, of the experts before
    for (int first = 0; first < params.experts; first += kRouteThreads) {
      const int expert = first + ThreadIndex();
      const bool there = expert < params.experts;
      uint32_t rows = 0;
      for (int warp = 0; there && warp < kRouteWarps; ++warp) rows += *PlaceOf(warp, expert);
      const uint32_t tiles = (rows + params.tile_rows - 1) / params.tile_rows;
      const uint64_t own = rows | static_cast<uint64_t>(tiles) << 32;
      const uint64_t up_to = SumUpTo(own);
      const uint64_t start = before + up_to - own;
      if (there) PlaceExpert(expert, rows, start);
      before += BlockTotal();
    }
    if (ThreadIndex() == 0) *params.tile_count = static_cast<int32_t>(before >> 32);
  }
  // Of the last SumUpTo.
  QUIRE_DEVICE uint64_t BlockTotal() const {
    uint64_t total = 0;
    for (int warp = 0; warp < kRouteWarps; ++warp) total += warp_sums[warp];
    return total;
  }
  QUIRE_DEVICE void PlaceExpert(int expert, uint32_t rows, uint64_t start) const {
    auto place = static_cast<uint32_t>(start);
    for (int warp = 0; warp < kRouteWarps; ++warp) {
      const uint32_t count = *PlaceOf(warp, expert);
      *PlaceOf(warp, expert) = place;
      place += count;
    }
    ExpertTile* tile = params.tiles + (start >> 32);
    auto first = static_cast<int32_t>(static_cast<uint32_t>(start));
    for (auto left = static_cast<int32_t>(rows); left > 0; left -= params.tile_rows) {
      *tile++ = {expert - params.own.first, first,
                 left < params.tile_rows ? left : params.tile_rows};
      first += params.tile_rows;
    }
  }

  QUIRE_DEVICE void Sort(int begin, int end) const {
    for (int at = begin; at < end; at += kWarpSize) {
      const int pair = at + Lane();
      const int expert = pair < end ? params.chosen[pair] : 0;
      const bool there = pair < end && IsOwn(expert);
      const uint32_t same = SameExpert(expert, there);
      const uint32_t lower = same & ((1u << Lane()) - 1u);
      uint32_t* place = PlaceOf(WarpIndex(), expert);
      if (there) params.pairs[*place + CountBits(lower)] = pair;
      WarpBarrier();  // all lanes have read their place
      if (there && lower == 0) *place += CountBits(same);
      WarpBarrier();
    }
  }

  QUIRE_DEVICE void Run() const {
    const int pairs = params.tokens * params.rule.chosen;
    for (int i = ThreadIndex(); i < kRouteWarps * params.experts; i += kRouteThreads) {
      *PlaceOf(i / params.experts, i % params.experts) = 0;
    }
    BlockBarrier();
    const int each = (pairs + kRouteThreads - 1) / kRouteThreads * kWarpSize;
    const int begin = WarpIndex() * each < pairs ? WarpIndex() * each : pairs;
    const int end = begin + each < pairs ? begin + each : pairs;
    Count(begin, end);
    BlockBarrier();
    Place();
    BlockBarrier();
    Sort(begin, end);
  }
};

}  // namespace quire::kernels::cuda
