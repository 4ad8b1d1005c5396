// What kernels are told about one step, laid out in one piece of memory that one copy brings to the
// device.
//
// Pure. Owned by a CudaProgram. Offsets are in words of 32 bits from the begin of the piece, so
// that host and device read the same layout. Where a step is replayed as a graph its layout depends
// on the bucket alone: rows up to it are filled with rows of one token that see the spare pages
// alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace quire::kernels::cuda {

// Sizes of what a piece holds; for one that is filled, of this step.
struct StepShape {
  int tokens = 0;
  int rows = 0;
  int samples = 0;
  int groups = 0;
  int blocks = 0;  // of the longest row: stride of the block tables
  int decode_tiles = 0;
  int prefill_tiles = 0;
  int max_spans = 1;  // of 512 keys, of the longest row
};

// Where things begin.
struct InputPlaces {
  explicit InputPlaces(const StepShape& shape);
  int64_t tokens = 0;
  int64_t positions = 0;
  int64_t pages = 0;          // [groups][tokens] the page of each token
  int64_t tables = 0;         // [groups][rows][blocks]
  int64_t sequences = 0;      // [rows] AttentionSequence
  int64_t decode_tiles = 0;   // AttentionTile
  int64_t prefill_tiles = 0;  // AttentionTile
  int64_t samples = 0;        // [samples] rows of tokens
  int64_t words = 0;          // of all
};

// How rows are cut into tiles, and where padding points.
struct StepRules {
  int block_size = 16;
  int groups = 1;
  int heads_per_kv_head = 1;
  int32_t spare_page = 0;  // the first of SparePages
};

inline constexpr int kAttentionSpanKeys = 512;

// Pages that no request has, for the rows that fill a bucket of so many.
constexpr int64_t SparePages(int rows, int block_size) {
  return (rows + block_size - 1) / block_size;
}

// The shape of a batch's step.
StepShape ShapeOfStep(const StepBatch& batch, const StepRules& rules);
// The largest shape that steps of so many tokens, rows and samples can have.
StepShape LargestShape(const StepRules& rules, const StepShape& limits, int max_positions);

// Fills `words` (InputPlaces(shape).words of them). `shape` is that of the batch, or one of a
// bucket that has as many or more rows of one token.
void FillInputs(const StepBatch& batch, const StepRules& rules, const StepShape& shape,
                std::span<int32_t> words);

}  // namespace quire::kernels::cuda
