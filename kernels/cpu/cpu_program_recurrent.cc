// The ops of recurrent layers, each as jobs shared by the threads.
#include <algorithm>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLeastGatedFloats = 8192;  // smaller jobs cost less than waking a thread
constexpr int kLeastPreparedTokens = 4;

}  // namespace

StatePages CpuProgram::PagesOfState(const StatePart& part) const {
  StatePages pages;
  pages.pool = pages_.data();
  pages.page_bytes = kv_.page_bytes;
  pages.block_size = kv_.block_size;
  pages.first_group = kv_.states.first_group;
  pages.part = part;
  return pages;
}

void CpuProgram::RunOp(const CausalConvOp& op) {
  ConvJob job;
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  job.channels = buffer_infos_[op.out].width;
  job.taps = states_[static_cast<size_t>(op.layer)].taps;
  job.weight = Vector(op.weight);
  job.bias = Vector(op.bias);
  job.silu = op.silu;
  job.gated = op.gated;
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  job.pages = PagesOfState(kv_.states.layers[static_cast<size_t>(op.layer)].inputs);
  job.rows = step_.batch->rows;
  const int units = (job.channels + kStateChannels - 1) / kStateChannels;
  const int rows = static_cast<int>(job.rows.size());
  const int least = kLeastGatedFloats * rows / (kStateChannels * std::max(1, step_.tokens)) + 1;
  Share(rows * units, least, [&](int begin, int end, int) {
    for (int i = begin; i < end;) {
      const int unit = i % units;
      const int count = std::min(units - unit, end - i);
      kernels_.recurrent.causal_conv(job, i / units, unit, unit + count);
      i += count;
    }
  });
}

void CpuProgram::RunOp(const RecurrenceOp& op) {
  RecurrenceJob job;
  job.kind = op.kind;
  job.key_heads = op.key_heads;
  job.tiled = op.tiled;
  job.value_heads = op.value_heads;
  job.key_dim = op.key_dim;
  job.value_dim = op.value_dim;
  job.decay = Vector(op.decay);
  job.bias = Vector(op.bias);
  job.skip = Vector(op.skip);
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  const int keys = op.key_heads * op.key_dim;
  const int values = op.value_heads * op.value_dim;
  const bool delta = op.kind == RecurrenceOp::Kind::kGatedDelta;
  job.q = delta ? 0 : values + keys;
  job.k = delta ? keys : values;
  job.v = delta ? 2 * keys : 0;
  job.gates = BufferData(op.gates);
  job.gates_stride = Stride(op.gates);
  job.factors = BufferData(op.factors);
  job.factors_stride = Stride(op.factors);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  job.pages = PagesOfState(kv_.states.layers[static_cast<size_t>(op.layer)].matrices);
  job.rows = step_.batch->rows;
  Share(step_.tokens, kLeastPreparedTokens,
        [&](int begin, int end, int) { kernels_.recurrent.prepare(job, begin, end); });
  const int strips = (op.value_dim + 15) / 16;
  const int of_row = strips * op.value_heads;
  Share(static_cast<int>(job.rows.size()) * of_row, 1, [&](int begin, int end, int thread) {
    for (int i = begin; i < end; ++i) {
      const RecurrenceTask task{i / of_row, i % of_row / strips, i % strips};
      kernels_.recurrent.recur(job, task, Scratch(thread));
    }
  });
}

void CpuProgram::RunOp(const GatedNormOp& op) {
  GatedNormJob job;
  job.weight = Vector(op.weight);
  job.width = buffer_infos_[op.in].width;
  job.group = op.group;
  job.weight_per_group = static_cast<int>(vectors_[op.weight].size()) > op.group;
  job.epsilon = op.epsilon;
  job.gate_first = op.gate_first;
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  job.gate = BufferData(op.gate);
  job.gate_stride = Stride(op.gate);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  Share(RowCount(op.in), kLeastGatedFloats / job.width + 1,
        [&](int begin, int end, int) { kernels_.recurrent.gated_norm(job, begin, end); });
}

void CpuProgram::RunOp(const GateOp& op) {
  GateJob job;
  job.width = buffer_infos_[op.in].width;
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  job.gate = BufferData(op.gate);
  job.gate_stride = Stride(op.gate);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  Share(RowCount(op.in), kLeastGatedFloats / job.width + 1,
        [&](int begin, int end, int) { kernels_.recurrent.gate(job, begin, end); });
}

}  // namespace quire::kernels::cpu
