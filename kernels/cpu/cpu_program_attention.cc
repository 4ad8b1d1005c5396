// Attention as tasks shared by the threads: some tokens of a row against some KV heads.
#include <algorithm>

#include "kernels/cpu/cpu_program.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kAttentionTasksPerThread = 4;  // so that they end together

// KV heads of one task when a row has one token. They lie side by side in a page, so a task of many
// reads longer runs of memory.
int HeadsOfTask(const AttentionJob& job, int threads) {
  if (job.latents) return 1;
  const int64_t tasks = static_cast<int64_t>(job.rows.size()) * job.kv_heads;
  const int group = job.heads / job.kv_heads;
  int chosen = 1;
  for (int heads = 2; heads <= std::min(kAttentionHeads, job.kv_heads); ++heads) {
    const bool fits = job.kv_heads % heads == 0 && group * heads <= kAttentionRows;
    if (fits && tasks >= int64_t{heads} * threads * kAttentionTasksPerThread) chosen = heads;
  }
  return chosen;
}

}  // namespace

void CpuProgram::RunOp(const AttentionOp& op) {
  AttentionJob job;
  job.qkv = BufferData(op.qkv);
  job.stride = Stride(op.qkv);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  job.heads = op.heads;
  job.kv_heads = op.kv_heads;
  job.head_dim = op.head_dim;
  job.value_dim = op.head_dim;
  job.scale = op.scale;
  job.window = op.window;
  job.softcap = op.softcap;
  job.sinks = Vector(op.sinks);
  job.pages = PagesOf(op.layer);
  job.rows = step_.batch->rows;
  RunAttention(job);
}

void CpuProgram::RunAttention(const AttentionJob& job) {
  // The last tokens of a prompt see the most keys: they go first, so that threads end together.
  attention_tasks_.clear();
  const int tokens = AttentionTokens(job.heads, job.kv_heads);
  const int most_heads = HeadsOfTask(job, pool_.threads());
  const int group = job.heads / job.kv_heads;
  for (int row = 0; row < static_cast<int>(job.rows.size()); ++row) {
    const int count = job.rows[row].token_count;
    const int heads = count * group * most_heads <= kAttentionRows ? most_heads : 1;
    for (int begin = (count - 1) / tokens * tokens; begin >= 0; begin -= tokens) {
      const int end = std::min(count, begin + tokens);
      for (int head = 0; head < job.kv_heads; head += heads) {
        attention_tasks_.push_back({row, head, begin, end, heads});
      }
    }
  }
  pool_.Run(static_cast<int>(attention_tasks_.size()), [&](int index, int thread) {
    kernels_.attend(job, attention_tasks_[index], Scratch(thread));
  });
}

}  // namespace quire::kernels::cpu
