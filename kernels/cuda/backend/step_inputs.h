// The kernels' inputs for one step, laid out in one piece of memory that one copy brings to the
// device.
//
// Pure. Owned by a CudaProgram. Offsets are in words of 32 bits from the begin of the piece, so
// that host and device read the same layout. Block tables are not in it but on the device, by slot:
// the piece names the changes to them. Where a step is replayed as a graph its layout depends on
// the bucket alone: the part that the step leaves unused is filled with padding, tokens on the
// spare pages that no sequence owns and that are not sampled.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace quire::kernels::cuda {

// Sizes of the contents of a piece; for one that is filled, of this step or of its bucket.
struct StepShape {
  int tokens = 0;
  int samples = 0;
  int groups = 0;   // whose pages are named by token: those of keys and values
  int slots = 0;    // of sequences, and one more without tokens
  int changes = 0;  // of block tables, at most
  int decode_tiles = 0;
  int prefill_tiles = 0;
  int full_prefill_tiles = 0;  // of layers with full attention, where these have other heads
  int max_spans = 1;           // of 512 keys, of the longest row
  int state_rows = 0;          // with recurrent layers: rows, and runs of tokens that begin them
  int state_runs = 0;          // … runs of kStateRun tokens, the former among them
  int lora_tokens = 0;         // whose rows have adapters
  int lora_tiles = 0;          // of these, at most
  int lora_tile_rows = 8;
};

// Where each part begins.
struct InputPlaces {
  explicit InputPlaces(const StepShape& shape);
  int64_t change_count = 0;
  int64_t changes = 0;       // [changes] places in the tables
  int64_t change_pages = 0;  // [changes]
  int64_t tokens = 0;
  int64_t positions = 0;
  int64_t pages = 0;          // [groups][tokens] the page of each token
  int64_t sequences = 0;      // [slots + 1] AttentionSequence
  int64_t decode_tiles = 0;   // AttentionTile
  int64_t prefill_tiles = 0;  // AttentionTile
  int64_t full_prefill_tiles = 0;
  int64_t state_runs = 0;   // StateRun, those that begin rows first
  int64_t lora_tokens = 0;  // by adapter
  int64_t lora_tiles = 0;   // ExpertTile, whose expert is an adapter's slot
  int64_t lora_tile_count = 0;
  int64_t samples = 0;       // [samples] rows of tokens
  int64_t sample_slots = 0;  // [samples]
  int64_t words = 0;         // of all
};

// How rows are cut into tiles, and where tables and padding are.
struct StepRules {
  int block_size = 16;
  int groups = 1;
  int state_groups = 0;  // of these, the last ones: they hold states
  int heads_per_kv_head = 1;
  int full_heads_per_kv_head = 0;  // of layers with full attention, where these have other heads
  int slots = 1;                   // rows of a table
  int blocks = 1;                  // of a slot's table: the tables are [groups][slots][blocks]
  int32_t spare_page = 0;          // the first of SparePages
  int max_loras = 0;               // slots of adapters
};

inline constexpr int kAttentionSpanKeys = 512;
// Of a tile: queries times heads that share a KV head, which of latents may be more.
inline constexpr int kDecodeTileRows = 16;
inline constexpr int kPrefillTileRows = 64;
inline constexpr int kWarmUpTokens = 129;  // of the largest step that is run at start

// Pages that no sequence has, for padding; each of its tokens has its own place.
constexpr int64_t SparePages(int rows, int block_size) {
  const int tokens = rows > kWarmUpTokens ? rows : kWarmUpTokens;
  return (tokens + block_size - 1) / block_size;
}

// The shape of a batch's step.
StepShape ShapeOfStep(const StepBatch& batch, const StepRules& rules);
// The shape of a bucket of this many rows of one token each; `adapters`: any of them may have one.
StepShape ShapeOfBucket(int rows, int max_spans, const StepRules& rules, bool adapters = false);
// The largest shape that steps of this many tokens, samples and rows can have.
struct StepMost {
  int tokens = 0;
  int samples = 0;
  int max_positions = 0;
};
StepShape LargestShape(const StepRules& rules, const StepMost& most);

// Whether a batch whose shape is `step` may be laid out as `bucket`.
bool FitsBucket(const StepBatch& batch, const StepShape& step, const StepShape& bucket);

// Fills `words` (InputPlaces(shape).words of them). `shape` is the batch's own, or a bucket that it
// fits. An empty batch fills it with padding alone.
void FillInputs(const StepBatch& batch, const StepRules& rules, const StepShape& shape,
                std::span<int32_t> words);

}  // namespace quire::kernels::cuda
