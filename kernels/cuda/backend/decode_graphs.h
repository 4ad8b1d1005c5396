// Steps that only decode, captured once for a handful of sizes and replayed.
//
// Owned by a CudaProgram. A graph has the launches from the step's begin to its logits, for one
// count of rows and one class of the longest context: grids are fixed, their inputs are on the
// device. Sampling follows outside, for the rows that there are.
#pragma once

#include <vector>

#include "kernels/cuda/backend/step_inputs.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/step_batch.h"

namespace quire::kernels::cuda {

struct DecodeGraph {
  StepShape shape;
  runtime::GraphId graph{};
};

class DecodeGraphs {
 public:
  // Shapes to be captured: rows 1, 2, 4 … up to `most_rows`, itself included, each with spans 1, 4,
  // 16 … up to those of the longest context. Rows by rows, spans ascending. Where there may be
  // adapters, each count of rows once more for steps with some of them, behind those without.
  static std::vector<StepShape> Shapes(int most_rows, int max_spans, const StepRules& rules);

  // In the order of Shapes.
  void Add(const DecodeGraph& graph) { graphs_.push_back(graph); }
  void Clear() { graphs_.clear(); }
  // The smallest that holds the batch, whose own shape is `step`. Null: it runs without a graph.
  const DecodeGraph* Find(const StepBatch& batch, const StepShape& step) const;
  const std::vector<DecodeGraph>& all() const { return graphs_; }

 private:
  std::vector<DecodeGraph> graphs_;
};

}  // namespace quire::kernels::cuda
