// What kernels are told about one step, laid out in one piece of memory that one copy brings to the
// device.
//
// Pure. Owned by a CudaProgram. Offsets are in words of 32 bits from the begin of the piece, so
// that host and device read the same layout.
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

// How rows are cut into tiles.
struct StepRules {
  int block_size = 16;
  int groups = 1;
  int heads_per_kv_head = 1;
};

inline constexpr int kAttentionSpanKeys = 512;

// The shape of a batch's step.
StepShape ShapeOfStep(const StepBatch& batch, const StepRules& rules);
// The largest shape that steps of so many tokens, rows and samples can have.
StepShape LargestShape(const StepRules& rules, const StepShape& limits, int max_positions);

// Fills `words` (InputPlaces(shape).words of them). `shape` is that of the batch.
void FillInputs(const StepBatch& batch, const StepRules& rules, const StepShape& shape,
                std::span<int32_t> words);

}  // namespace quire::kernels::cuda
