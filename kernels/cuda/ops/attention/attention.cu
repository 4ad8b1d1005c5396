#include "kernels/cuda/ops/attention/attention.h"

#include <algorithm>

#include "kernels/cuda/ops/attention/attention_instances.h"
#include "kernels/cuda/ops/attention/attention_wide.h"

namespace quire::kernels::cuda {

namespace {

// The least compiled head dimension that holds this one; 0: none does.
int PaddedHeadDim(int head_dim) {
  if (head_dim <= 0 || head_dim % 8 != 0 || head_dim > kWideHeadDim) return 0;
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : head_dim <= 256 ? 256 : kWideHeadDim;
}

AttentionInstance ChooseWide(bool decode, KvType type, uint32_t shared_bytes) {
  const WideInstances of = type == KvType::kF16   ? WideF16()
                           : type == KvType::kFp8 ? WideFp8()
                                                  : WideBf16();
  return !decode && shared_bytes >= of.of64.shared_bytes ? of.of64 : of.of16;
}

AttentionInstance Choose(bool decode, KvType type, int padded, uint32_t shared_bytes) {
  if (padded == kWideHeadDim) return ChooseWide(decode, type, shared_bytes);
  if (type == KvType::kF16) return decode ? DecodeF16(padded) : PrefillF16(padded);
  if (type == KvType::kFp8) return decode ? DecodeFp8(padded) : PrefillFp8(padded);
  return decode ? DecodeBf16(padded) : PrefillBf16(padded);
}

// Blocks of sixteen rows that share a tile of 64: where nine heads share a KV head, the tile has
// seven queries, and each block one.
constexpr int kMostParts = 7;
int PartsOf(const AttentionInstance& instance, const AttentionPlan& plan, int group) {
  if (instance.rows == 0 || instance.rows >= plan.rows_per_tile) return 1;
  const int queries = instance.rows / group;
  return (plan.rows_per_tile / group + queries - 1) / queries;
}

// Of a tile's rows and one span, in the form that needs the most.
size_t FloatsOfSlot(int rows, int padded) {
  if (padded < kWideHeadDim) return static_cast<size_t>(rows / 16) * (padded / 8 + 1) * 128;
  constexpr int k16 = WideBlock16<KvType::kBF16>::kWorkspaceFloats;
  constexpr int k64 = WideBlock64<KvType::kBF16>::kWorkspaceFloats;
  return rows == 16 ? k16 : std::max(kMostParts * k16, k64);
}

// Of one tile; 0: nothing has to wait.
size_t TileBytes(const AttentionPlan& plan, int kv_heads, int head_dim) {
  if (plan.max_spans <= 1) return 0;
  const size_t slots =
      static_cast<size_t>(kv_heads) * (plan.rows_per_tile == 16 ? plan.max_spans : 1);
  return slots * FloatsOfSlot(plan.rows_per_tile, PaddedHeadDim(head_dim)) * sizeof(float);
}

// Tiles that one launch takes.
int TilesAtOnce(const AttentionPlan& plan, int kv_heads, int head_dim) {
  const size_t bytes = TileBytes(plan, kv_heads, head_dim);
  if (bytes == 0) return plan.tile_count;
  const size_t fit = std::max<size_t>(1, plan.most_workspace_bytes / bytes);
  return static_cast<int>(std::min<size_t>(fit, static_cast<size_t>(plan.tile_count)));
}

}  // namespace

size_t AttentionWorkspaceBytes(const AttentionPlan& plan, int kv_heads, int head_dim) {
  return TileBytes(plan, kv_heads, head_dim) * TilesAtOnce(plan, kv_heads, head_dim);
}

runtime::Error LaunchAttention(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                               const AttentionPlan& plan, AttentionParams params) {
  const int padded = PaddedHeadDim(head_dim);
  if (padded == 0) {
    return "attention: head dimension " + std::to_string(head_dim) +
           "; multiples of 8 up to 512 are served";
  }
  params.head_dim = head_dim;
  if (params.token_stride == 0) params.token_stride = head_dim;
  const int unit = params.type == KvType::kFp8 ? 16 : 8;
  if (params.type == KvType::kF32) {
    return "attention: pages of float32; bfloat16, float16 and fp8 are served";
  }
  if (params.token_stride < head_dim || params.token_stride % unit != 0) {
    return "attention: tokens " + std::to_string(params.token_stride) +
           " elements apart for heads of " + std::to_string(head_dim) +
           ": a multiple of 16 bytes is needed";
  }
  const int group = params.kv_heads > 0 ? params.heads / params.kv_heads : 0;
  if (group < 1 || group > 16 || params.heads % params.kv_heads != 0) {
    return "attention: " + std::to_string(params.heads) + " heads on " +
           std::to_string(params.kv_heads) + " KV heads; 1 to 16 may share one";
  }
  if (params.block_shift < 4 || params.block_shift > 6) {
    return "attention: pages of 16, 32 or 64 tokens are served";
  }
  if (params.sinks != nullptr && head_dim > kMostSinkHeadDim) {
    return "attention: sinks of heads of " + std::to_string(head_dim) +
           " elements; up to 128 are served";
  }
  if (plan.rows_per_tile != 16 && plan.rows_per_tile != 64) {
    return "attention: tiles of 16 or 64 rows are served";
  }
  if (plan.tile_count == 0) return {};
  const bool decode = plan.rows_per_tile == 16;
  const AttentionInstance instance =
      Choose(decode, params.type, padded, runtime.SharedBytesPerBlock());
  params.apart = decode;
  const int at_once = TilesAtOnce(plan, params.kv_heads, head_dim);
  for (int first = 0; first < plan.tile_count; first += at_once) {
    const int tiles = std::min(at_once, plan.tile_count - first);
    runtime::LaunchShape shape =
        runtime::ShapeOf(static_cast<uint32_t>(tiles), static_cast<uint32_t>(params.kv_heads),
                         instance.shared_bytes, params);
    shape.grid_z = static_cast<uint32_t>(decode ? plan.max_spans : PartsOf(instance, plan, group));
    runtime::Error error = runtime.Launch(stream, instance.kernel, shape);
    if (!error.empty()) return error;
    params.tiles += tiles;
  }
  return {};
}

}  // namespace quire::kernels::cuda
