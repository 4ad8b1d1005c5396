#include "kernels/cuda/ops/latent/latent_attention.h"

#include <algorithm>

#include "kernels/cuda/ops/latent/latent_kernel.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kMostRank = 512;
constexpr int kMostDim = 576;

int Ceil(int a, int b) { return (a + b - 1) / b; }

bool IsNarrow(int rank, int dim) { return rank <= 64 && dim <= 128; }

int RowsOf(const LatentPlan& plan, int heads) { return plan.tile_queries * heads; }

template <class Block>
size_t BytesOfBlocks(int rows) {
  return static_cast<size_t>(Ceil(rows, Block::kRows)) * Block::kWorkspaceFloats * sizeof(float);
}

// Of one tile, in the form that needs the most; 0: nothing has to wait.
size_t TileBytes(const LatentPlan& plan, int heads, int rank, int dim) {
  if (plan.max_spans <= 1) return 0;
  const int rows = RowsOf(plan, heads);
  const size_t spans = plan.apart ? static_cast<size_t>(plan.max_spans) : 1;
  if (IsNarrow(rank, dim)) return spans * BytesOfBlocks<NarrowLatents<KvType::kBF16>>(rows);
  return spans * std::max(BytesOfBlocks<WideLatents16<KvType::kBF16>>(rows),
                          BytesOfBlocks<WideLatents64<KvType::kBF16>>(rows));
}

// Tiles that one launch takes, the same on every device.
int TilesAtOnce(const LatentPlan& plan, int heads, int rank, int dim) {
  const size_t bytes = TileBytes(plan, heads, rank, dim);
  if (bytes == 0) return plan.tile_count;
  const size_t fit = std::max<size_t>(1, plan.most_workspace_bytes / bytes);
  return static_cast<int>(std::min<size_t>(fit, static_cast<size_t>(plan.tile_count)));
}

LatentInstance Choose(const LatentPlan& plan, const LatentAttentionParams& params,
                      uint32_t shared_bytes) {
  const LatentInstances of = params.type == KvType::kF16   ? LatentsF16()
                             : params.type == KvType::kFp8 ? LatentsFp8()
                                                           : LatentsBf16();
  if (IsNarrow(params.rank, params.head_dim)) return of.narrow;
  const bool many = RowsOf(plan, params.heads) > of.wide16.rows;
  return many && shared_bytes >= of.wide64.shared_bytes ? of.wide64 : of.wide16;
}

}  // namespace

size_t LatentWorkspaceBytes(const LatentPlan& plan, int heads, int rank, int rope_dim) {
  const int dim = rank + rope_dim;
  return TileBytes(plan, heads, rank, dim) *
         static_cast<size_t>(TilesAtOnce(plan, heads, rank, dim));
}

size_t LatentCounters(const LatentPlan& plan, int heads) {
  if (!plan.apart) return 0;
  return static_cast<size_t>(plan.tile_count) * static_cast<size_t>(Ceil(RowsOf(plan, heads), 16));
}

runtime::Error LaunchLatentAttention(runtime::Runtime& runtime, runtime::StreamId stream,
                                     const LatentPlan& plan, LatentAttentionParams params) {
  if (params.rank < 8 || params.rank % 8 != 0 || params.rank > kMostRank ||
      params.head_dim < params.rank || params.head_dim % 8 != 0 || params.head_dim > kMostDim) {
    return "latent_attention: latents of " + std::to_string(params.rank) + " of " +
           std::to_string(params.head_dim) +
           " elements: multiples of 8, up to 512 of 576, are served";
  }
  const int unit = params.type == KvType::kFp8 ? 16 : 8;
  if (params.type == KvType::kF32) {
    return "latent_attention: pages of float32; bfloat16, float16 and fp8 are served";
  }
  if (params.token_stride < params.head_dim || params.token_stride % unit != 0) {
    return "latent_attention: tokens " + std::to_string(params.token_stride) +
           " elements apart for latents of " + std::to_string(params.head_dim) +
           ": a multiple of 16 bytes is needed";
  }
  if (params.heads < 1 || plan.tile_queries < 1) return "latent_attention: tiles without rows";
  if (params.block_shift < 4 || params.block_shift > 6) {
    return "latent_attention: pages of 16, 32 or 64 tokens are served";
  }
  if (plan.tile_count == 0) return {};
  params.tile_queries = plan.tile_queries;
  params.apart = plan.apart;
  params.window = 0;
  params.softcap = 0.0f;
  const LatentInstance instance = Choose(plan, params, runtime.SharedBytesPerBlock());
  const int blocks = Ceil(RowsOf(plan, params.heads), instance.rows);
  const int at_once = TilesAtOnce(plan, params.heads, params.rank, params.head_dim);
  for (int first = 0; first < plan.tile_count; first += at_once) {
    const int tiles = std::min(at_once, plan.tile_count - first);
    runtime::LaunchShape shape = runtime::ShapeOf(
        static_cast<uint32_t>(tiles), static_cast<uint32_t>(blocks), instance.shared_bytes, params);
    if (plan.apart) shape.grid_z = static_cast<uint32_t>(plan.max_spans);
    runtime::Error error = runtime.Launch(stream, instance.kernel, shape);
    if (!error.empty()) return error;
    params.tiles += tiles;
  }
  return {};
}

}  // namespace quire::kernels::cuda
