#include "kernels/cuda/backend/latent_steps.h"

#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/latent/head_linear.h"
#include "kernels/cuda/ops/latent/latent_append.h"
#include "kernels/cuda/ops/latent/latent_attention.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kMostRank = 512;

std::string Shape(const LatentAppendOp& op) {
  return "latents of " + std::to_string(op.rank) + " elements and " + std::to_string(op.rope_dim) +
         " that turn";
}

}  // namespace

std::string RefuseLatents(const StepProgram& program) {
  if (program.head_dim % 8 == 0 && program.head_dim <= kMostLatentDim) return {};
  return "latents of " + std::to_string(program.head_dim) +
         " elements: multiples of 8 up to 576 are served";
}

std::string RefuseAppend(const LatentAppendOp& op) {
  if (op.rank % 8 != 0 || op.rank > kMostRank || op.rope_dim % 8 != 0 || op.rope_dim < 8) {
    return Shape(op) + ": multiples of 8, up to 512 and those, are served";
  }
  const int still = op.query_dim - op.rope_dim;
  if (still % 8 != 0) {
    return "heads of queries have " + std::to_string(still) +
           " elements that do not turn; multiples of 8 are served";
  }
  return {};
}

std::string RefuseHeads(const StepProgram& program, const HeadLinearOp& op) {
  const Weight& first = program.weights[op.weights.front()];
  if (program.buffers[op.out].width % 8 != 0) {
    return "the heads of a rank make " + std::to_string(program.buffers[op.out].width) +
           " elements; a multiple of 8 is served";
  }
  if (first.rows % 4 == 0 && first.cols % 8 == 0 && first.cols <= kMostHeadColumns) return {};
  return "the weight of a head, " + first.name + ", is [" + std::to_string(first.rows) + ", " +
         std::to_string(first.cols) +
         "]; rows in multiples of 4 and up to 1016 columns in multiples of 8 are served";
}

void CudaProgram::ReserveHeadTables() {
  if (!error_.empty()) return;  // not all weights have a place
  for (const DeviceStep& step : lowered_.steps) {
    const auto* heads = std::get_if<HeadLinearStep>(&step);
    if (heads == nullptr) continue;
    std::vector<const uint16_t*> places;
    for (const WeightId id : heads->weights) places.push_back(weights_.At(id).data());
    auto* table = heap_.New<const uint16_t*>(places.size());
    head_tables_.push_back(table);
    if (!heap_.error().empty()) return;
    Check(runtime_.Copy(stream_, table, places.data(), places.size() * sizeof(places[0])));
    Finish();  // the list is read until then
  }
}

void CudaProgram::Do(const LatentAppendStep& step) {
  const LatentAppendOp& op = step.op;
  const int group = kv_.layers[static_cast<size_t>(op.layer)].group;
  AttentionParams pages;
  SetPages(op.layer, pages);
  LatentAppendParams params;
  params.queries = Floats(op.queries);
  params.queries_stride = lowered_.buffers[op.queries].width;
  params.q = Rows(step.q);
  params.latents = Floats(op.latents);
  params.latents_stride = lowered_.buffers[op.latents].width;
  params.tokens = step_.shape.tokens;
  params.positions = Input<int32_t>(step_.places.positions);
  params.pages = Input<int32_t>(step_.places.pages + int64_t{group} * step_.shape.tokens);
  params.angles = angles_[static_cast<size_t>(op.rope)].table;
  params.norm = weights_.At(op.norm).floats();
  params.epsilon = op.norm_epsilon;
  params.pairs = op.pairs;
  params.half = step.half;
  params.heads = op.heads;
  params.query_dim = op.query_dim;
  params.rank = op.rank;
  params.rope_dim = op.rope_dim;
  params.type = pages.type;
  params.rows = const_cast<void*>(pages.keys);
  params.page_stride = pages.page_stride;
  params.token_stride = pages.token_stride;
  params.scales = const_cast<float*>(pages.key_scales);
  params.scale_page_stride = pages.scale_page_stride;
  params.block_shift = pages.block_shift;
  Check(LaunchLatentAppend(runtime_, stream_, params));
}

void CudaProgram::Do(const HeadLinearStep& step) {
  HeadLinearParams params;
  params.x = Rows(step.in);
  params.weights = head_tables_[step.table];
  params.out = Rows(step.out);
  params.tokens = RowsOf(step.in);
  params.heads = static_cast<int>(step.weights.size());
  params.n = step.n;
  params.k = step.k;
  params.in_dim = step.in_dim;
  params.half = step.half;
  Check(LaunchHeadLinear(runtime_, stream_, params));
}

void CudaProgram::Do(const LatentAttentionStep& step) {
  const LatentAttentionOp& op = step.op;
  const int group = kv_.layers[static_cast<size_t>(op.layer)].group;
  LatentAttentionParams params;
  params.q = Rows(op.queries);
  params.out = Rows(op.out);
  params.sequences = Input<AttentionSequence>(step_.places.sequences);
  params.block_tables = tables_ + int64_t{group} * rules_.slots * rules_.blocks;
  params.block_table_stride = rules_.blocks;
  SetPages<AttentionParams>(op.layer, params);
  params.heads = op.heads;
  params.scale = op.scale;
  params.head_dim = op.rank + op.rope_dim;
  params.rank = op.rank;
  params.half = step.half;
  params.workspace = attention_workspace_;
  params.counters = attention_counters_;
  LatentPlan plan;
  plan.max_spans = step_.shape.max_spans;
  plan.tile_count = step_.shape.decode_tiles;
  plan.tile_queries = LatentTileQueries(kDecodeTileRows, op.heads);
  params.tiles = Input<AttentionTile>(step_.places.decode_tiles);
  Check(LaunchLatentAttention(runtime_, stream_, plan, params));
  plan.tile_count = step_.shape.prefill_tiles;
  plan.tile_queries = LatentTileQueries(kPrefillTileRows, op.heads);
  plan.apart = false;
  params.tiles = Input<AttentionTile>(step_.places.prefill_tiles);
  Check(LaunchLatentAttention(runtime_, stream_, plan, params));
}

}  // namespace quire::kernels::cuda
