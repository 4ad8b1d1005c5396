// How the rows of a product are divided and placed before it: packed, quantised or rounded.
//
// Pure functions, any thread.
#pragma once

#include <algorithm>

#include "kernels/cpu/job_group.h"
#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {

inline bool Rounds(const KernelTable& kernels, const PackedMatrix& weight) {
  return kernels.round != nullptr && weight.roundings.any();
}

// Whether floats are packed in register tiles.
inline bool NeedsTiles(const KernelTable& kernels, const LinearJob& job) {
  return job.rows > 1 || kernels.direct_rows == 0;
}

// Few rows are one tile, whatever the tile size of many.
inline int TileCount(const KernelTable& kernels, const LinearJob& job) {
  return job.rows <= kernels.direct_rows ? 1 : RowTiles(job.rows, kernels.tile_rows).count;
}

inline int Int8TileCount(const KernelTable& kernels, const LinearJob& job) {
  if (job.rows <= kernels.int8_direct_rows) return 1;
  return std::max(1, RowTiles(job.rows, kernels.int8_tile_rows).count);  // never none
}

// Pieces that KernelTable::quantise takes: chunks of K of the tiles.
inline int QuantisedPieces(const KernelTable& kernels, const LinearJob& job) {
  const auto chunks = static_cast<int>((job.weight->k + kChunk - 1) / kChunk);
  return Int8TileCount(kernels, job) * chunks;
}

// Gives each input of the matrix its part of `space`, which has RoundedBytes.
inline void PlaceRounded(const LinearJob& job, float* space, RoundedInput* places) {
  const Roundings& roundings = job.weight->roundings;
  for (size_t i = 0; i < roundings.inputs.size(); ++i) {
    const RoundingOfInput& input = roundings.inputs[i];
    float* const scales = space + RoundedCodes(input, job.weight->k, job.rows);
    places[i] = {reinterpret_cast<int32_t*>(space), space, scales};
    space = scales + RoundedScales(input, job.weight->k, job.rows);
  }
}

// What the rows of a job of a group take.
inline int64_t GroupSpaceFloats(const KernelTable& kernels, const LinearJob& job) {
  const PackedMatrix& weight = *job.weight;
  if (Rounds(kernels, weight)) return RoundedBytes(weight.roundings, weight.k, job.rows) / 4;
  return GroupTileFloats(job.rows, weight.k);
}

}  // namespace quire::kernels::cpu
