#include "kernels/cuda/backend/decode_graphs.h"

#include <algorithm>

namespace quire::kernels::cuda {
namespace {

// 1, factor, factor² … below `last`, and `last`.
std::vector<int> Ladder(int factor, int last) {
  std::vector<int> steps;
  for (int step = 1; step < last; step *= factor) steps.push_back(step);
  steps.push_back(last);
  return steps;
}

}  // namespace

std::vector<StepShape> DecodeGraphs::Shapes(int most_rows, int max_spans, const StepRules& rules) {
  std::vector<StepShape> shapes;
  if (most_rows < 1) return shapes;
  for (const int rows : Ladder(2, most_rows)) {
    for (const bool adapters : {false, true}) {
      if (adapters && rules.max_loras == 0) continue;
      for (const int spans : Ladder(4, max_spans)) {
        shapes.push_back(ShapeOfBucket(rows, spans, rules, adapters));
      }
    }
  }
  return shapes;
}

const DecodeGraph* DecodeGraphs::Find(const StepBatch& batch, const StepShape& step) const {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const DecodeGraph& graph) {
    return FitsBucket(batch, step, graph.shape);
  });
  return found == graphs_.end() ? nullptr : &*found;
}

}  // namespace quire::kernels::cuda
