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

Needs NeedsOf(const StepProgram& program, int max_tokens) {
  Needs needs;
  const int64_t tokens = std::min(max_tokens, kMoeTokens);
  for (const Op& op : program.ops) {
    const auto* moe = std::get_if<MoeOp>(&op);
    if (moe == nullptr) continue;
    const auto experts = static_cast<int64_t>(moe->experts.size());
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
  }
  return needs;
}

}  // namespace

int64_t MoeWorkspace::Estimate(const StepProgram& program, int max_tokens) {
  return NeedsOf(program, max_tokens).Bytes();
}

MoeWorkspace::MoeWorkspace(const StepProgram& program, int max_tokens) {
  const Needs needs = NeedsOf(program, max_tokens);
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

void MoeWorkspace::SortByExpert(int tokens, int per_token, int experts) {
  const int count = tokens * per_token;
  first_row.assign(static_cast<size_t>(experts) + 1, 0);
  for (int i = 0; i < count; ++i) ++first_row[static_cast<size_t>(chosen[i]) + 1];
  for (size_t e = 1; e < first_row.size(); ++e) first_row[e] += first_row[e - 1];
  next_row.assign(first_row.begin(), first_row.end() - 1);
  for (int i = 0; i < count; ++i) {
    const int row = next_row[static_cast<size_t>(chosen[i])]++;
    row_of[i] = row;
    token_of[row] = i / per_token;
  }
}

}  // namespace quire::kernels::cpu
