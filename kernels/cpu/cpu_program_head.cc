// The last ops of a step: from hidden states to logits, and from logits to tokens.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kScreenPause = 15;  // slices without a screen after one that gained nothing

// Greedy rows beside rows that read the whole head anyway: fewer cost less in that product.
constexpr int kLeastScreenedBesideOthers = 16;

}  // namespace

// Rows that the head's screen may take come first; each keeps its order among its like.
void CpuProgram::OrderSamples() {
  const StepBatch& batch = *step_.batch;
  for (int i = 0; i < step_.samples; ++i) sample_order_[static_cast<size_t>(i)] = i;
  step_.screened = 0;
  if (!screen_.present() || !step_.logits.empty() || batch.late_masks != nullptr) return;
  if (screen_pause_ > 0) {
    --screen_pause_;
    return;
  }
  // Prompt logprobs ask for logits of rows that are not sampled: those have no sample row.
  const auto screens = [&](int i) {
    const size_t row = static_cast<size_t>(step_.first_sample + i);
    return row < batch.sample_rows.size() && IsPlainlyGreedy(batch.sample_rows[row]);
  };
  int at = 0;
  for (const bool wanted : {true, false}) {
    for (int i = 0; i < step_.samples; ++i) {
      if (screens(i) == wanted) sample_order_[static_cast<size_t>(at++)] = i;
    }
    if (wanted) step_.screened = at;
  }
  if (step_.screened < std::min(step_.samples, kLeastScreenedBesideOthers)) step_.screened = 0;
}

void CpuProgram::RunOp(const GatherRowsOp& op) {
  const float* in = BufferData(op.in);
  float* out = BufferData(op.out);
  const size_t bytes = static_cast<size_t>(buffer_infos_[op.in].width) * 4;
  for (int i = 0; i < step_.samples; ++i) {
    const int32_t token = step_.batch->sampled_tokens[SampleAt(i)];
    std::memcpy(out + i * Stride(op.out), in + token * Stride(op.in), bytes);
  }
}

void CpuProgram::RunOp(const LogitsOp& op) {
  LinearJob job;
  job.weight = &matrices_[op.head];
  job.x = BufferData(op.in);
  job.x_stride = Stride(op.in);
  job.rows = RowCount(op.in);
  job.bias = Vector(op.bias);
  job.scale = op.scale;
  job.softcap = op.softcap;
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  step_.chosen = RunScreened(job, BufferData(op.in));
  LinearJob rest = job;
  rest.x += step_.chosen * job.x_stride;
  rest.out += step_.chosen * job.out_stride;
  rest.rows -= step_.chosen;
  RunLinear(rest);
  const int64_t count = vocabulary_.count;
  for (int row = step_.chosen; row < job.rows; ++row) {
    float* logits = job.out + row * job.out_stride;
    std::fill_n(logits + count, vocabulary_.width - count, sampling::kImpossible);
    if (step_.logits.empty()) continue;
    std::memcpy(step_.logits.data() + (step_.first_sample + row) * count, logits,
                static_cast<size_t>(count) * 4);
  }
}

// Returns how many rows, the first ones, have their token. The others need the whole product.
int CpuProgram::RunScreened(LinearJob job, float* inputs) {
  job.rows = step_.screened;
  if (job.rows == 0) return 0;
  LinearJob rough = job;
  rough.weight = &screen_.copy();
  QuantiseRows(*screen_kernels_, rough);
  Share(LinearUnits(*rough.weight), 1, [&](int begin, int end, int thread) {
    screen_kernels_->linear(rough, begin, end, Scratch(thread));
  });
  pool_.Run(job.rows, [&](int row, int thread) {
    LinearJob one = job;
    one.rows = 1;
    one.x += row * job.x_stride;
    one.x_tiles = one.x;  // a tile of one row
    one.out += row * job.out_stride;
    const auto multiply = [&](int32_t unit) {
      kernels_.linear(one, unit, unit + 1, Scratch(thread));
    };
    ScreenScratch& scratch = screen_scratch_[static_cast<size_t>(thread)];
    bool found = false;
    const int64_t leader = screen_.FindLeader(one.out, scratch);
    if (leader >= 0) {
      multiply(screen_.UnitOf(leader));
      found = screen_.FindUnits(one.out, leader, screen_.BoundOf(one.x), scratch);
    }
    screen_found_[static_cast<size_t>(row)] = found ? 1 : 0;
    if (!found) return;
    int64_t best = screen_.BestOfUnit(one.out, screen_.UnitOf(leader), leader);
    for (const int32_t unit : scratch.units) {
      multiply(unit);
      best = screen_.BestOfUnit(one.out, unit, best);
    }
    SampleOutput& output = step_.batch->sample_outputs[SampleAt(row)];
    output = SampleOutput();
    output.token = static_cast<int32_t>(best);
  });
  const int found = MoveFoundToFront(job, inputs);
  if (2 * found < job.rows) screen_pause_ = kScreenPause;
  screened_rows_ += found;
  return found;
}

int CpuProgram::MoveFoundToFront(const LinearJob& job, float* inputs) {
  int front = 0;
  for (int back = job.rows - 1; front <= back;) {
    if (screen_found_[static_cast<size_t>(front)] != 0) {
      ++front;
    } else if (screen_found_[static_cast<size_t>(back)] == 0) {
      --back;
    } else {
      float* const x = inputs + front * job.x_stride;
      std::swap_ranges(x, x + job.weight->k, inputs + back * job.x_stride);
      std::swap(sample_order_[static_cast<size_t>(front)],
                sample_order_[static_cast<size_t>(back)]);
      ++front;
      --back;
    }
  }
  return front;
}

void CpuProgram::RunOp(const SampleOp& op) {
  if (step_.batch->late_masks != nullptr) step_.batch->late_masks->Fill();
  float* logits = BufferData(op.logits);
  // Prompt logprobs ask for logits of rows that are not sampled: those have no sample row.
  const int first = step_.first_sample;
  const int rows = static_cast<int>(step_.batch->sample_rows.size());
  const int count = std::clamp(rows - first, 0, step_.samples);
  if (rank_sampling_ != nullptr) {
    const auto slice = [first, count](auto list) {
      return list.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    };
    if (count == 0) return;
    step_.failed =
        !rank_sampling_->Run({logits, Stride(op.logits)}, slice(step_.batch->sample_rows),
                             slice(step_.batch->sample_outputs), pool_);
    return;
  }
  pool_.Run(step_.samples - step_.chosen, [&](int rest, int thread) {
    const int i = step_.chosen + rest;
    const size_t sample = SampleAt(i);
    if (sample >= step_.batch->sample_rows.size()) return;
    samplers_[thread].Sample({logits + i * Stride(op.logits), static_cast<size_t>(vocab_size_)},
                             step_.batch->sample_rows[sample], step_.batch->sample_outputs[sample]);
  });
}

}  // namespace quire::kernels::cpu
