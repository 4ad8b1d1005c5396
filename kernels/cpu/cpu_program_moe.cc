// Mixtures of experts: routing, rows sorted by expert, two grouped products, the weighted sum.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"
#include "kernels/cpu/job_rows.h"
#include "kernels/step_times.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLeastRouterFloats = 8192;  // of router rows, for one thread
constexpr int kLeastMoeTokens = 16;

// The rows of one job as its product takes them; on one thread.
void PrepareRows(const KernelTable& kernels, const LinearJob& job, float* space) {
  if (job.x_rounded != nullptr) {
    const RowRange tiles{0, RowTiles(job.rows, kernels.rounded_tile_rows).count};
    const Roundings& roundings = job.weight->roundings;
    for (size_t i = 0; i < roundings.inputs.size(); ++i) {
      kernels.round(job, roundings.inputs[i], tiles, job.x_rounded[i]);
    }
  } else if (job.x_int8 != nullptr) {
    kernels.quantise(job, 0, QuantisedPieces(kernels, job), reinterpret_cast<int32_t*>(space));
  } else if (job.x_tiles != nullptr) {
    kernels.pack_tiles(job, 0, TileCount(kernels, job), space);
  }
}

}  // namespace

void CpuProgram::RunOp(const MoeOp& op) {
  const int count = RowCount(op.in);
  for (int begin = 0; begin < count; begin += kMoeTokens) {
    RunMoeSlice(op, begin, std::min(kMoeTokens, count - begin));
  }
}

void CpuProgram::Route(const MoeOp& op, int begin, int tokens) {
  const PartTimer timer(times_ != nullptr ? &times_->routing : nullptr);
  RouteJob job;
  const BufferId in = op.router_in == kNoId ? op.in : op.router_in;
  job.x = BufferData(in) + begin * Stride(in);
  job.x_stride = Stride(in);
  job.width = buffer_infos_[in].width;
  job.tokens = tokens;
  job.router = Vector(op.router);
  job.bias = Vector(op.router_bias);
  job.selection_bias = Vector(op.selection_bias);
  job.expert_scales = Vector(op.expert_scales);
  job.experts = op.ExpertCount();
  job.rule = op.rule;
  job.scores = moe_.scores;
  job.chosen = moe_.chosen;
  job.weights = moe_.weights;
  Share(job.experts, kLeastRouterFloats / job.width + 1,
        [&](int from, int to, int) { kernels_.router_logits(job, from, to); });
  Share(tokens, kLeastMoeTokens,
        [&](int from, int to, int) { kernels_.choose_experts(job, from, to); });
  moe_.SortByExpert(tokens, op.rule.chosen, op.first_expert, static_cast<int>(op.experts.size()));
}

void CpuProgram::RunMoeSlice(const MoeOp& op, int begin, int tokens) {
  Route(op, begin, tokens);
  const int width = buffer_infos_[op.in].width;
  const float* in = BufferData(op.in) + begin * Stride(op.in);
  const int64_t row_stride = BufferStride(width);
  Share(moe_.first_row.back(), kLeastMoeTokens, [&](int from, int to, int) {
    for (int row = from; row < to; ++row) {
      std::memcpy(moe_.rows + row * row_stride, in + moe_.token_of[row] * Stride(op.in),
                  static_cast<size_t>(width) * 4);
    }
  });
  const int inner = static_cast<int>(matrices_[op.experts.front().down].k);
  const int64_t inner_stride = BufferStride(inner);
  LinearJob job;
  job.x = moe_.rows;
  job.x_stride = row_stride;
  job.activation = op.activation;
  job.out = moe_.inner;
  job.out_stride = inner_stride;
  RunExperts(op, job, &MoeOp::Expert::gate_up, &MoeOp::Expert::gate_up_bias);
  job = LinearJob{};
  job.x = moe_.inner;
  job.x_stride = inner_stride;
  job.out = moe_.rows;
  job.out_stride = row_stride;
  RunExperts(op, job, &MoeOp::Expert::down, &MoeOp::Expert::down_bias);

  CombineJob sum;
  sum.results = moe_.rows;
  sum.results_stride = row_stride;
  sum.row_of = moe_.row_of;
  sum.weights = moe_.weights;
  sum.chosen = op.rule.chosen;
  sum.width = width;
  sum.accumulate = op.accumulate;
  sum.out = BufferData(op.out) + begin * Stride(op.out);
  sum.out_stride = Stride(op.out);
  Share(tokens, kLeastMoeTokens,
        [&](int from, int to, int) { kernels_.combine_experts(sum, from, to); });
}

// One product of every expert with its rows of `job`, all shared out together.
void CpuProgram::RunExperts(const MoeOp& op, const LinearJob& job, WeightId MoeOp::Expert::*matrix,
                            WeightId MoeOp::Expert::*bias) {
  group_.Clear();
  float* space = moe_.tiles;
  for (size_t e = 0; e < op.experts.size(); ++e) {
    const int first = moe_.first_row[e];
    LinearJob own = job;
    own.weight = &matrices_[op.experts[e].*matrix];
    own.bias = Vector(op.experts[e].*bias);
    own.rows = moe_.first_row[e + 1] - first;
    if (own.rows == 0) continue;
    own.x += first * job.x_stride;
    own.out += first * job.out_stride;
    AddToGroup(own, space);
    space += GroupSpaceFloats(kernels_, own);
  }
  RunGroup();
}

void CpuProgram::AddToGroup(LinearJob job, float* space) {
  if (Rounds(kernels_, *job.weight)) {
    RoundedInput* const places = group_.TakeRounded(job.weight->roundings.inputs.size());
    PlaceRounded(job, space, places);
    job.x_rounded = places;
  } else if (kernels_.quantise != nullptr && job.weight->takes_int8) {
    job.x_int8 = reinterpret_cast<int32_t*>(space);
  } else if (NeedsTiles(kernels_, job)) {
    job.x_tiles = space;
  }
  group_.spaces.push_back(space);
  group_.first_unit.push_back(group_.first_unit.back() + LinearUnits(*job.weight));
  group_.jobs.push_back(job);
}

void CpuProgram::RunGroup() {
  Share(static_cast<int>(group_.jobs.size()), 1, [&](int from, int to, int) {
    for (int i = from; i < to; ++i) {
      if (group_.spaces[i] != nullptr) PrepareRows(kernels_, group_.jobs[i], group_.spaces[i]);
    }
  });
  Share(group_.first_unit.back(), 1, [&](int from, int to, int thread) {
    const auto after = std::upper_bound(group_.first_unit.begin(), group_.first_unit.end(), from);
    for (auto i = after - group_.first_unit.begin() - 1; from < to; ++i) {
      const int end = std::min(to, group_.first_unit[i + 1]);
      kernels_.linear(group_.jobs[i], from - group_.first_unit[i], end - group_.first_unit[i],
                      Scratch(thread));
      from = end;
    }
  });
}

}  // namespace quire::kernels::cpu
