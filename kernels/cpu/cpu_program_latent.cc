// Multi-head latent attention: latents into pages, a product for each head, attention over latents.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"
#include "kernels/cpu/latent_job.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLeastAppendedTokens = 4;
constexpr int kLeastCopiedTokens = 16;
constexpr int kTasksPerThread = 1;

}  // namespace

int LatentHeadsOfTask(int heads, int64_t tokens, int threads) {
  int chosen = 1;
  for (int group = std::min(heads, kAttentionRows); group >= 1; --group) {
    if (heads % group != 0) continue;
    chosen = group;
    const int64_t pieces = (tokens * group + kAttentionRows - 1) / kAttentionRows;
    if (pieces * (heads / group) >= int64_t{threads} * kTasksPerThread || group <= 4) break;
  }
  return chosen;
}

void CpuProgram::RunOp(const LatentAppendOp& op) {
  LatentJob job;
  job.queries = BufferData(op.queries);
  job.queries_stride = Stride(op.queries);
  job.latents = BufferData(op.latents);
  job.latents_stride = Stride(op.latents);
  job.heads = op.heads;
  job.query_dim = op.query_dim;
  job.rank = op.rank;
  job.rope_dim = op.rope_dim;
  job.norm = Vector(op.norm);
  job.epsilon = op.norm_epsilon;
  job.pairs = op.pairs;
  job.angles = reinterpret_cast<const float*>(angles_[op.rope].data());
  job.pages = PagesOf(op.layer);
  job.rows = step_.batch->rows;
  ShareRows(kLeastAppendedTokens,
            [&](int row, int from, int to) { kernels_.latent_append(job, row, from, to); });
}

// All heads that fit into the memory for tiles go together.
void CpuProgram::RunOp(const HeadLinearOp& op) {
  const int heads = static_cast<int>(op.weights.size());
  const PackedMatrix& first = matrices_[op.weights.front()];
  const int in_dim = buffer_infos_[op.in].width / heads;
  const int out_dim = buffer_infos_[op.out].width / heads;
  LinearJob job;
  job.x_stride = Stride(op.in);
  job.out_stride = Stride(op.out);
  job.rows = RowCount(op.in);
  if (job.rows == 0) return;
  const int64_t tile_floats = GroupTileFloats(job.rows, first.k);
  const int64_t fitting = tiles_.size() / (4 * tile_floats);
  const int at_once = static_cast<int>(std::clamp<int64_t>(fitting, 1, heads));
  for (int begin = 0; begin < heads; begin += at_once) {
    group_.Clear();
    float* tiles = reinterpret_cast<float*>(tiles_.data());
    for (int head = begin; head < std::min(heads, begin + at_once); ++head) {
      job.weight = &matrices_[op.weights[head]];
      job.x = BufferData(op.in) + head * in_dim;
      job.out = BufferData(op.out) + head * out_dim;
      AddToGroup(job, tiles);
      tiles += tile_floats;
    }
    RunGroup();
  }
  const auto rest = static_cast<size_t>(in_dim - first.k);
  if (rest == 0) return;
  Share(job.rows, kLeastCopiedTokens, [&](int from, int to, int) {
    for (int row = from; row < to; ++row) {
      const float* in = BufferData(op.in) + row * job.x_stride;
      float* out = BufferData(op.out) + row * job.out_stride;
      for (int head = 0; head < heads; ++head) {
        std::memcpy(out + (head + 1) * out_dim - rest, in + (head + 1) * in_dim - rest, 4 * rest);
      }
    }
  });
}

void CpuProgram::RunOp(const LatentAttentionOp& op) {
  AttentionJob job;
  job.qkv = BufferData(op.queries);
  job.stride = Stride(op.queries);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  job.heads = op.heads;
  // Heads are divided among tasks as those of several heads of keys are; all read the same latents.
  job.kv_heads = op.heads / LatentHeadsOfTask(op.heads, step_.tokens, pool_.threads());
  job.latents = true;
  job.head_dim = op.rank + op.rope_dim;
  job.value_dim = op.rank;
  job.scale = op.scale;
  job.pages = PagesOf(op.layer);
  job.rows = step_.batch->rows;
  RunAttention(job);
}

}  // namespace quire::kernels::cpu
