#include "kernels/cuda/backend/expert_stacks.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quire::kernels::cuda {
namespace {

bool AreAlike(const Weight& a, const Weight& b) {
  return std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                    [](const WeightSource& x, const WeightSource& y) {
                      return x.type == y.type && x.rows == y.rows && x.cols == y.cols &&
                             (x.order == nullptr) == (y.order == nullptr);
                    });
}

}  // namespace

std::string StackExperts(const StepProgram& program, const MoeOp& op, WeightId MoeOp::Expert::*kind,
                         bool is_matrix, DeviceProgram& lowered) {
  if (op.experts.front().*kind == kNoId) return {};
  std::vector<WeightId> stack;
  bool mixed = false;
  for (const MoeOp::Expert& expert : op.experts) {
    const WeightId id = expert.*kind;
    if (id == kNoId) return "some of its experts have a bias, others have none";
    const Weight& first = program.weights[stack.empty() ? id : stack[0]];
    mixed = mixed || !AreAlike(first, program.weights[id]);
    stack.push_back(id);
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    WeightRole& role = lowered.weights[stack[i]];
    if (role.stack != kNoId) return "an expert's weight has two places";
    role.used = true;
    role.is_matrix = is_matrix;
    role.by_codes = false;
    role.stack = static_cast<int>(lowered.stacks.size());
    role.place = static_cast<int>(i);
    role.mixed = mixed && is_matrix;
  }
  lowered.stacks.push_back(std::move(stack));
  return {};
}

}  // namespace quire::kernels::cuda
