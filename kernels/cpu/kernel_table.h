// The kernels of one instruction set as a table of functions, and their jobs.
//
// A job is plain data that points into the loaded program. Its functions work on a range of units,
// so that threads can share a job; no result depends on the division of units.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/head_jobs.h"
#include "kernels/cpu/moe_jobs.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/recurrent_jobs.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

struct LatentJob;   // latent_job.h
struct AmxNumbers;  // amx_numbers.h

// Sums over K are cut every kChunk elements: each chunk starts from zero, chunks are added in
// order.
inline constexpr int kChunk = 128;
inline constexpr int kTileKeys = 64;   // keys that are scored together
inline constexpr int kSpanKeys = 512;  // keys that share one maximum and sum before merging

// y = x · Wᵀ and the operations after it, for one matrix. A unit is panel i of the first half of
// the panels (the gates of a gated matrix) and its partner in the second half: two streams through
// memory.
struct LinearJob {
  const PackedMatrix* weight = nullptr;
  const float* x = nullptr;  // [rows, k], stride x_stride
  int64_t x_stride = 0;
  // x in register tiles (pack_tiles). One row needs none where direct_rows is at least 1.
  const float* x_tiles = nullptr;
  const int32_t* x_int8 = nullptr;  // quantised (int8_form.h), where the class and the weight are
  const RoundedInput* x_rounded = nullptr;  // by Roundings::inputs, in the class w8a8
  int rows = 0;
  const float* bias = nullptr;  // [weight rows] or null
  LinearOp::Activation activation = LinearOp::Activation::kNone;
  bool accumulate = false;
  float scale = 1.0f;
  float softcap = 0.0f;
  float* out = nullptr;
  int64_t out_stride = 0;
};

inline int LinearUnits(const PackedMatrix& weight) { return (weight.PanelCount() + 1) / 2; }
// The other panel of a unit; the same where it has but one.
inline const Panel& PartnerOf(const PackedMatrix& weight, int unit) {
  const int partner = unit + LinearUnits(weight);
  return weight.panels[partner < weight.PanelCount() ? partner : unit];
}

// out = row · scale, or out += row · scale.
struct EmbedJob {
  const PackedMatrix* table = nullptr;
  float scale = 1.0f;
  bool add = false;
};

struct NormJob {
  NormOp::Kind kind = NormOp::Kind::kRms;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 0.0f;
  float weight_offset = 0.0f;
  bool accumulate = false;
  float scale = 1.0f;
  int width = 0;   // of a piece
  int pieces = 1;  // of a row
  const float* in = nullptr;
  int64_t in_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct AttentionJob {
  const float* qkv = nullptr;
  int64_t stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int value_dim = 0;     // of a head's result
  bool latents = false;  // keys and values are latents: kv_heads counts the heads of a task alone
  float scale = 1.0f;
  int window = 0;
  float softcap = 0.0f;
  const float* sinks = nullptr;  // [heads] or null
  LayerPages pages;
  std::span<const BatchRow> rows;
};

// Some query tokens of one row against some KV heads.
struct AttentionTask {
  int row = 0;
  int kv_head = 0;      // the first of them
  int token_begin = 0;  // within the row
  int token_end = 0;
  int kv_heads = 1;
};

struct KernelTable {
  const char* name = "";
  int tile_rows = 0;
  int direct_rows = 0;

  // Rewrites the rows of job.x as [tile][k][rows of the tile], tiles of tile_rows.
  void (*pack_tiles)(const LinearJob& job, int tile_begin, int tile_end, float* out);
  // `scratch` has LinearScratchFloats(rows) floats.
  void (*linear)(const LinearJob& job, int unit_begin, int unit_end, float* scratch);
  // One row of a table to out[0 … k). `scratch` as above.
  void (*embed)(const EmbedJob& job, int64_t row, float* out, float* scratch);
  void (*norm)(const NormJob& job, int row_begin, int row_end);
  void (*slice_gate)(const SliceGateJob& job, int token_begin, int token_end);
  void (*head_squares)(const SquaresJob& job, int token_begin, int token_end);
  // Tokens of the step, counted over all rows.
  void (*rope_append)(const RopeJob& job, int row, int token_begin, int token_end);
  void (*latent_append)(const LatentJob& job, int row, int token_begin, int token_end);
  void (*attend)(const AttentionJob& job, const AttentionTask& task, float* scratch);
  void (*router_logits)(const RouteJob& job, int expert_begin, int expert_end);
  void (*choose_experts)(const RouteJob& job, int token_begin, int token_end);
  void (*combine_experts)(const CombineJob& job, int token_begin, int token_end);
  void (*activate)(const ActivateJob& job, int row_begin, int row_end);
  RecurrentKernels recurrent;

  // The int8 class; null in others. Pieces of x are chunks of K of a tile (quantise.h).
  void (*quantise)(const LinearJob& job, int piece_begin, int piece_end, int32_t* out) = nullptr;
  int int8_tile_rows = 0;
  int int8_direct_rows = 0;

  // The class w8a8; null in others. The rows of some register tiles, of rounded_tile_rows, as
  // `input` says, into the places of `out`.
  void (*round)(const LinearJob& job, const RoundingOfInput& input, RowRange tiles,
                const RoundedInput& out) = nullptr;
  int rounded_tile_rows = 0;
};

inline int64_t LinearScratchFloats(int64_t rows) {
  return 2 * 16 * (kChunk + (rows < 16 ? 16 : rows)) + 64;
}

inline constexpr int kAttentionRows = 48;  // query rows (tokens × heads) of one task
inline constexpr int kAttentionHeads = 8;  // KV heads of one task

inline int AttentionTokens(int heads, int kv_heads) {
  const int group = heads / kv_heads;
  return group >= kAttentionRows ? 1 : kAttentionRows / group;
}

inline int64_t PaddedDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Floats of scratch that `attend` needs: queries, scores, sums of a span and of all spans, widened
// keys and values.
inline int64_t AttentionScratchFloats(int heads, int kv_heads, int head_dim) {
  const int64_t rows = int64_t{AttentionTokens(heads, kv_heads)} * (heads / kv_heads);
  const int64_t dim = PaddedDim(head_dim);
  constexpr int64_t kRounding = 9 * 16;  // of each head's arrays to lines
  return rows * (3 * dim + kTileKeys + 2 * 20) + 2 * kTileKeys * dim + kAttentionHeads * kRounding;
}

// One table per instruction set; the host must have it.
const KernelTable& ReferenceKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
// The bfloat16 class.
const KernelTable& Avx512Bf16Kernels();
// The class of AMX's tiles (linear_amx.h). "In vectors": the same bits without tiles, in AVX-512.
const KernelTable& ReferenceAmxKernels();
const KernelTable& AmxVectorKernels();
const KernelTable& AmxKernels();
// Whether this processor's tiles give the bits of vectors. The host has AMX.
bool AmxTilesAgree(const AmxNumbers& numbers);
// The int8 class.
const KernelTable& ReferenceInt8Kernels();
const KernelTable& Avx2Int8Kernels();
const KernelTable& AvxVnniInt8Kernels();
const KernelTable& Avx512VnniKernels();
// The class w8a8.
const KernelTable& ReferenceRoundedKernels();
const KernelTable& Avx2RoundedKernels();
const KernelTable& Avx512VnniRoundedKernels();

}  // namespace quire::kernels::cpu
