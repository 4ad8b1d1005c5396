#include "kernels/cpu/moe_workspace.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_program.h"

namespace quire::kernels::cpu {
namespace {

// The most that any mixture of a program needs, in numbers of four bytes.
struct Needs {
  int64_t experts = 0;
  int64_t scores = 0;
  int64_t choices = 0;
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t tiles = 0;

  int64_t Bytes() const { return 4 * (scores + 4 * choices + rows + inner + tiles); }
};

int64_t Whole(int64_t numbers) { return (numbers + 15) / 16 * 16; }

// Floats that all rows take once they are rounded for a matrix of one expert; parts of less than a
// line are left behind each job.
int64_t RoundedFloats(const Weight& weight, int64_t rows, int64_t experts) {
  const Roundings roundings = RoundingsOf(weight);
  const int64_t jobs = std::min(experts, rows);
  const auto inputs = static_cast<int64_t>(roundings.inputs.size());
  return RoundedBytes(roundings, weight.cols, rows) / 4 + jobs * inputs * 2 * 16;
}

Needs NeedsOf(const StepProgram& program, int max_tokens, bool rounds) {
  Needs needs;
  const int64_t tokens = std::min(max_tokens, kMoeTokens);
  for (const Op& op : program.ops) {
    const auto* moe = std::get_if<MoeOp>(&op);
    if (moe == nullptr) continue;
    const int64_t experts = moe->ExpertCount();
    const int64_t width = program.buffers[moe->in].width;
    const int64_t inner = program.weights[moe->experts.front().down].cols;
    const int64_t rows = tokens * moe->rule.chosen;
    needs.experts = std::max(needs.experts, experts);
    needs.scores = std::max(needs.scores, tokens * 2 * ScoreStride(experts));
    needs.choices = std::max(needs.choices, Whole(rows));
    needs.rows = std::max(needs.rows, rows * BufferStride(static_cast<int>(width)));
    needs.inner = std::max(needs.inner, rows * BufferStride(static_cast<int>(inner)));
    // Few rows of an expert are padded, to less than twice as many.
    needs.tiles = std::max(needs.tiles, 2 * rows * Whole(std::max(width, inner)));
    for (size_t e = 0; rounds && e < moe->experts.size(); ++e) {
      for (const WeightId id : {moe->experts[e].gate_up, moe->experts[e].down}) {
        const int64_t floats = RoundedFloats(program.weights[id], rows, experts);
        needs.tiles = std::max(needs.tiles, floats);
      }
    }
  }
  return needs;
}

}  // namespace

int64_t MoeWorkspace::Estimate(const StepProgram& program, int max_tokens, bool rounds) {
  return NeedsOf(program, max_tokens, rounds).Bytes();
}

MoeWorkspace::MoeWorkspace(const StepProgram& program, int max_tokens, bool rounds) {
  const Needs needs = NeedsOf(program, max_tokens, rounds);
  memory_ = Pages(needs.Bytes());
  auto* next = reinterpret_cast<float*>(memory_.data());
  const auto take = [&next](int64_t numbers) {
    float* begin = next;
    next += numbers;
    return begin;
  };
  scores = take(needs.scores);
  rows = take(needs.rows);
  inner = take(needs.inner);
  tiles = take(needs.tiles);
  weights = take(needs.choices);
  chosen = reinterpret_cast<int32_t*>(take(needs.choices));
  row_of = reinterpret_cast<int32_t*>(take(needs.choices));
  token_of = reinterpret_cast<int32_t*>(take(needs.choices));
  first_row.reserve(static_cast<size_t>(needs.experts) + 1);
  next_row.reserve(static_cast<size_t>(needs.experts));
}

void MoeWorkspace::Poison() {
  std::memset(memory_.data(), 0xff, static_cast<size_t>(memory_.size()));
}

void MoeWorkspace::SortByExpert(int tokens, int per_token, int first, int experts) {
  const int count = tokens * per_token;
  const auto is_own = [&](int i) { return chosen[i] >= first && chosen[i] < first + experts; };
  first_row.assign(static_cast<size_t>(experts) + 1, 0);
  for (int i = 0; i < count; ++i) {
    if (is_own(i)) ++first_row[static_cast<size_t>(chosen[i] - first) + 1];
  }
  for (size_t e = 1; e < first_row.size(); ++e) first_row[e] += first_row[e - 1];
  next_row.assign(first_row.begin(), first_row.end() - 1);
  for (int i = 0; i < count; ++i) {
    row_of[i] = -1;
    if (!is_own(i)) continue;
    const int row = next_row[static_cast<size_t>(chosen[i] - first)]++;
    row_of[i] = row;
    token_of[row] = i / per_token;
  }
}

}  // namespace quire::kernels::cpu
