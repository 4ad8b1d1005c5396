// A small decoder with random weights as a step program: real kernels without a model file.
#pragma once

#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "kernels/step_program.h"

namespace quire::test {

// What differs from a plain decoder.
struct TinyShape {
  // Layers have a mixture of so many in place of the mlp, two for each token, with gpt-oss' gate
  // and biases, and heads have sinks. The scores of experts 2 i and 2 i + 1 are equal.
  int experts = 0;
  // Recurrent layers, of the gated delta rule and of a short convolution, are in the place of the
  // sliding ones, and attention has a gate.
  bool hybrid = false;
  // All four layers have latent attention in the place of the other.
  bool latents = false;
};

// Two full-attention and two sliding layers (window 24), grouped queries, tied head, 97 tokens. Of
// several ranks (1, 2) each has its part of the heads, the inner width and the vocabulary, with
// weights of its own.
struct TinyProgram {
  explicit TinyProgram(uint64_t seed, int rank = 0, int ranks = 1, const TinyShape& shape = {});
  TinyProgram(const TinyProgram&) = delete;
  TinyProgram& operator=(const TinyProgram&) = delete;

  kernels::StepProgram program;  // its weights point into this object

 private:
  kernels::WeightId AddWeight(int64_t rows, int64_t cols, float scale, float offset);
  kernels::BufferId AddBuffer(int width, bool sampled_rows_only = false);
  kernels::BufferId AddNorm(kernels::BufferId hidden);
  // `hidden` is added to, in rank 0.
  void AddLinear(kernels::BufferId in, kernels::BufferId out, bool to_hidden = false,
                 kernels::LinearOp::Activation activation = kernels::LinearOp::Activation::kNone);
  void AddLayer(int layer, int window, kernels::BufferId hidden);
  void AddAttention(int layer, int window, kernels::BufferId hidden);
  void AddDelta(kernels::BufferId hidden);
  void AddConvolution(kernels::BufferId hidden);
  void AddSum(kernels::BufferId buffer);
  void AddLatents(int layer, kernels::BufferId hidden);
  void AddExperts(kernels::BufferId in, kernels::BufferId hidden);

  const TinyShape shape_;
  uint64_t state_;
  std::deque<std::vector<float>> memory_;
};

// The first op of a kind in a program.
template <class Wanted>
Wanted& First(kernels::StepProgram& program) {
  for (kernels::Op& op : program.ops) {
    if (auto* one = std::get_if<Wanted>(&op)) return *one;
  }
  throw std::out_of_range("no such op");
}

}  // namespace quire::test
