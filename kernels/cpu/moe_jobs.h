// The jobs of a mixture of experts beside its products: the router's logits, the choice, the sum.
#pragma once

#include <cstdint>

#include "kernels/routing_rule.h"

namespace quire::kernels::cpu {

struct RouteJob {
  const float* x = nullptr;  // [tokens, width]
  int64_t x_stride = 0;
  int width = 0;
  int tokens = 0;
  const float* router = nullptr;          // [experts, width]
  const float* bias = nullptr;            // [experts] or null: added to logits
  const float* selection_bias = nullptr;  // likewise: for the choice alone
  const float* expert_scales = nullptr;   // likewise: times the weights of those that are chosen
  int experts = 0;
  RoutingRule rule;
  // By token: the logits, which become scores, then the keys of the choice; each ScoreStride long.
  float* scores = nullptr;
  int32_t* chosen = nullptr;  // [tokens, rule.chosen], the best first
  float* weights = nullptr;   // likewise
};

inline int64_t ScoreStride(int64_t experts) { return (experts + 15) / 16 * 16; }

// out[t] = Σ weights[t, i] · results[row_of[t, i]], in the order of i; or out[t] += that.
struct CombineJob {
  const float* results = nullptr;
  int64_t results_stride = 0;
  const int32_t* row_of = nullptr;  // [tokens, chosen]; −1: another rank adds it
  const float* weights = nullptr;   // likewise
  int chosen = 0;
  int width = 0;
  bool accumulate = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

}  // namespace quire::kernels::cpu
