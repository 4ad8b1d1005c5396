// The launches of a step.
#include <algorithm>
#include <bit>

#include "kernels/cuda/backend/activation_kind.h"
#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/attention/rope_append.h"
#include "kernels/cuda/ops/embedding/embedding.h"
#include "kernels/cuda/ops/norm/head_squares.h"
#include "kernels/cuda/ops/norm/layer_norm.h"
#include "kernels/cuda/ops/norm/rms_norm.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "kernels/cuda/ops/rows/round_rows.h"

namespace quire::kernels::cuda {

void CudaProgram::Do(const EmbedStep& step) {
  EmbeddingParams params;
  params.table = weights_.At(step.table).data();
  params.quantised = weights_.At(step.table).quantised();
  params.half = weights_.At(step.table).half;
  params.tokens = Input<int32_t>(step.by_position ? step_.places.positions : step_.places.tokens);
  params.out = Floats(step.out);
  params.accumulate = step.accumulate;
  params.rows = step_.shape.tokens;
  params.width = lowered_.buffers[step.out].width;
  params.first_token = step.first_id;
  params.vocabulary = step.ids;
  params.scale = step.scale;
  Check(LaunchEmbedding(runtime_, stream_, params));
}

template <class Params>
Params CudaProgram::NormParams(const NormStep& step) const {
  Params params;
  params.x = Floats(step.in);
  params.weight = weights_.At(step.weight).floats();
  if (lowered_.buffers[step.out].is_float32) {
    params.out.float32 = Floats(step.out);
  } else {
    params.out.narrow = Rows(step.out);
    params.out.half = step.half;
    if (step.copy != kNoId) params.out.float32 = Floats(step.copy);
  }
  params.out.accumulate = step.accumulate;
  params.out.scale = step.scale;
  params.rows = RowsOf(step.in) * step.pieces;
  params.width = lowered_.buffers[step.in].width / step.pieces;
  params.epsilon = step.epsilon;
  params.weight_offset = step.weight_offset;
  return params;
}

void CudaProgram::Do(const NormStep& step) {
  if (step.kind == NormOp::Kind::kRms) {
    auto params = NormParams<RmsNormParams>(step);
    params.mean_width = step.width / step.pieces;
    Check(LaunchRmsNorm(runtime_, stream_, params));
    return;
  }
  auto params = NormParams<LayerNormParams>(step);
  params.bias = weights_.At(step.bias).floats();
  Check(LaunchLayerNorm(runtime_, stream_, params));
}

void CudaProgram::Do(const RoundStep& step) {
  RoundRowsParams params;
  params.in = Floats(step.in);
  params.out = Rows(step.out);
  params.count = int64_t{RowsOf(step.in)} * lowered_.buffers[step.in].width;
  Check(LaunchRoundRows(runtime_, stream_, params));
}

void CudaProgram::Do(const ProductStep& step) {
  GemmParams params = ProductParams(step.in, step.bias);
  params.out = Rows(step.out);
  params.out_float32 = lowered_.buffers[step.out].is_float32;
  params.accumulate = step.accumulate;
  params.relu = step.relu;
  params.relu_squared = step.relu_squared;
  params.scale = step.scale;
  Check(LaunchProduct(runtime_, stream_, weights_.At(step.weight), params, fast_products_.get()));
}

// The rows of a product, and where its pieces meet.
GemmParams CudaProgram::ProductParams(BufferId in, WeightId bias) const {
  GemmParams params;
  params.x = Rows(in);
  params.bias = weights_.At(bias).floats();
  params.m = RowsOf(in);
  params.workspace = product_workspace_;
  params.counters = product_counters_;
  return params;
}

void CudaProgram::Do(const ActivationStep& step) {
  ActivationParams params;
  if (lowered_.buffers[step.in].is_float32) {
    params.floats = Floats(step.in);
  } else {
    params.in = Rows(step.in);
  }
  params.out = Rows(step.out);
  params.rows = RowsOf(step.in);
  params.width = lowered_.buffers[step.out].width;
  params.kind = KindOf(step.kind);
  Check(LaunchActivation(runtime_, stream_, params));
}

// Where the layer's keys and values lie, for what writes them and what reads them.
template <class Params>
void CudaProgram::SetPages(int layer, Params& params) const {
  const KvSlot slot = SlotOf(kv_, layer);
  std::byte* base = pool_.begin() + kv_.layers[static_cast<size_t>(layer)].slot * slot.bytes;
  params.type = kv_.type;
  params.keys = base + slot.keys;
  params.values = base + slot.values;
  params.page_stride = kv_.page_bytes / KvElementBytes(kv_.type);
  params.head_stride = slot.head_elements;
  params.token_stride = static_cast<int>(slot.head_elements / kv_.block_size);
  params.block_shift = std::countr_zero(static_cast<uint32_t>(kv_.block_size));
  if (kv_.type != KvType::kFp8) return;
  params.key_scales = reinterpret_cast<float*>(base + slot.key_scales);
  params.value_scales = reinterpret_cast<float*>(base + slot.value_scales);
  params.scale_page_stride = kv_.page_bytes / static_cast<int64_t>(sizeof(float));
}

template void CudaProgram::SetPages(int layer, AttentionParams& params) const;

void CudaProgram::Do(const RopeStep& step) {
  const RopeAppendOp& op = step.op;
  const int group = kv_.layers[static_cast<size_t>(op.layer)].group;
  RopeAppendParams params;
  params.qkv = Floats(op.qkv);
  params.q = Rows(step.q);
  params.stride = lowered_.buffers[op.qkv].width;
  params.tokens = step_.shape.tokens;
  params.positions = Input<int32_t>(step_.places.positions);
  params.pages = Input<int32_t>(step_.places.pages + int64_t{group} * step_.shape.tokens);
  if (op.rope != kNoId) {
    params.angles = angles_[static_cast<size_t>(op.rope)].table;
    params.rotary_dim = angles_[static_cast<size_t>(op.rope)].rotary_dim;
  }
  params.norm = op.norm;
  params.v_norm = op.v_norm;
  params.q_norm = weights_.At(op.q_norm).floats();
  params.k_norm = weights_.At(op.k_norm).floats();
  if (op.norm == HeadNorm::kWhole) {
    params.squares = Floats(op.squares);
    params.squares_stride = lowered_.buffers[op.squares].width;
    params.q_elements = op.norm_heads * op.head_dim;
    params.k_elements = op.norm_kv_heads * op.head_dim;
  }
  params.growth = op.growth;
  params.epsilon = op.norm_epsilon;
  params.weight_offset = op.norm_weight_offset;
  SetPages(op.layer, params);
  params.heads = op.heads;
  params.kv_heads = op.kv_heads;
  Check(LaunchRopeAppend(runtime_, stream_, op.head_dim, params));
}

void CudaProgram::Do(const HeadSquaresOp& op) {
  HeadSquaresParams params;
  params.qkv = Floats(op.qkv);
  params.out = Floats(op.out);
  params.tokens = step_.shape.tokens;
  params.stride = lowered_.buffers[op.qkv].width;
  params.q_width = params.k_first = op.heads * op.head_dim;
  params.k_width = op.keys ? op.kv_heads * op.head_dim : 0;
  params.out_stride = lowered_.buffers[op.out].width;
  Check(LaunchHeadSquares(runtime_, stream_, params));
}

void CudaProgram::Do(const SliceGateStep& step) {
  SliceGateParams params;
  params.gate = Floats(step.op.gate);
  params.with = Floats(step.op.with) + step.op.first;
  params.out = Rows(step.out);
  params.with_stride = lowered_.buffers[step.op.with].width;
  params.rows = RowsOf(step.op.gate);
  params.width = lowered_.buffers[step.op.gate].width;
  params.scale = step.op.scale;
  Check(LaunchSliceGate(runtime_, stream_, params));
}

void CudaProgram::Do(const AttentionOp& op) {
  const int group = kv_.layers[static_cast<size_t>(op.layer)].group;
  const StepShape& shape = step_.shape;
  AttentionParams params;
  params.q = Rows(op.qkv);
  params.q_stride = lowered_.buffers[op.qkv].width;
  params.out = Rows(op.out);
  params.sequences = Input<AttentionSequence>(step_.places.sequences);
  params.block_tables = tables_ + int64_t{group} * rules_.slots * rules_.blocks;
  params.block_table_stride = rules_.blocks;
  SetPages(op.layer, params);
  params.heads = op.heads;
  params.kv_heads = op.kv_heads;
  params.window = op.window;
  params.scale = op.scale;
  params.softcap = op.softcap;
  params.sinks = weights_.At(op.sinks).floats();
  params.workspace = attention_workspace_;
  params.counters = attention_counters_;
  AttentionPlan plan;
  plan.max_spans = shape.max_spans;
  plan.tile_count = shape.decode_tiles;
  plan.rows_per_tile = 16;
  params.tiles = Input<AttentionTile>(step_.places.decode_tiles);
  Check(LaunchAttention(runtime_, stream_, op.head_dim, plan, params));
  const bool wide_group = rules_.full_heads_per_kv_head > 0 && op.window == 0;
  plan.tile_count = wide_group ? shape.full_prefill_tiles : shape.prefill_tiles;
  plan.rows_per_tile = 64;
  params.tiles = Input<AttentionTile>(wide_group ? step_.places.full_prefill_tiles
                                                 : step_.places.prefill_tiles);
  Check(LaunchAttention(runtime_, stream_, op.head_dim, plan, params));
}

void CudaProgram::Do(const GatherStep& step) {
  CopyRowsParams params;
  params.from = Rows(step.in);
  params.to = Rows(step.out);
  params.from_rows = Input<int32_t>(step_.places.samples + step_.first_sample);
  params.rows = step_.samples;
  params.row_bytes = int64_t{sizeof(float)} * lowered_.buffers[step.in].width;
  Check(LaunchCopyRows(runtime_, stream_, params));
}

void CudaProgram::MultiplyHead(const LogitsOp& op) {
  const DeviceWeight& head = weights_.At(op.head);
  GemmParams params = ProductParams(op.in, op.bias);
  params.out = buffers_[static_cast<size_t>(op.out)];
  // Not the head's own rows: the last rank may have fewer ids than its buffer has columns.
  params.out_stride = lowered_.buffers[static_cast<size_t>(op.out)].width;
  params.out_float32 = true;
  params.scale = op.scale;
  params.softcap = op.softcap;
  Check(LaunchProduct(runtime_, stream_, head, params, fast_products_.get()));
}

void CudaProgram::Do(const LogitsOp& op) {
  MultiplyHead(op);
  TellLogits(op);
}

void CudaProgram::Do(const SampleOp& op) {
  if (step_.batch == nullptr) return;
  if (step_.batch->late_masks != nullptr) step_.batch->late_masks->Fill();
  // Prompt logprobs ask for logits of rows that are not sampled: those have no sample row.
  const int rows = static_cast<int>(step_.batch->sample_rows.size());
  const int count = std::clamp(rows - step_.first_sample, 0, step_.samples);
  if (count == 0) return;
  const auto rows_of = [&](int first, int n) {
    return step_.batch->sample_rows.subspan(static_cast<size_t>(step_.first_sample + first),
                                            static_cast<size_t>(n));
  };
  // As many rows at a time as there is room for with their lists.
  for (int first = 0; first < count && error_.empty();) {
    int n = count - first;
    while (n > 1 && PackedBytes(rows_of(first, n)) > samples_.capacity) n = (n + 1) / 2;
    Sample(op, first, n);
    first += n;
  }
}

void CudaProgram::Do(const SumStep& step) {
  const DeviceBuffer& buffer = lowered_.buffers[static_cast<size_t>(step.buffer)];
  const size_t count = static_cast<size_t>(RowsOf(step.buffer)) * static_cast<size_t>(buffer.width);
  Check(exchange_->Sum(Floats(step.buffer), count));
}

}  // namespace quire::kernels::cuda
