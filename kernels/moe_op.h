// The op of a step program that is a mixture of experts.
#pragma once

#include <vector>

#include "kernels/activation.h"
#include "kernels/program_ids.h"
#include "kernels/routing_rule.h"

namespace quire::kernels {

// A mixture of experts: router · in gives each token one logit per expert, `rule` chooses experts
// and weighs them, and y = Σ weight_e · (down_e · act(gate_up_e · in)) in the order of choice; then
// out = y, or out += y. Routing is computed in float32 and depends on the token's row alone.
struct MoeOp {
  // The two matrices of one expert; the first holds rows [gate; up], or those of up alone where the
  // activation is not gated.
  struct Expert {
    WeightId gate_up = kNoId, down = kNoId;
    WeightId gate_up_bias = kNoId, down_bias = kNoId;
  };
  WeightId router = kNoId;          // [experts, width], floats
  WeightId router_bias = kNoId;     // [experts]: added to logits
  WeightId selection_bias = kNoId;  // [experts]: added to scores for the choice alone
  WeightId expert_scales = kNoId;   // [experts]: times the weights of those that are chosen
  RoutingRule rule;
  std::vector<Expert> experts;  // of this rank: first_expert …
  int first_expert = 0;
  int all_experts = 0;  // of all ranks, which the router knows; 0: `experts` are all
  int ExpertCount() const {
    return all_experts > 0 ? all_experts : static_cast<int>(experts.size());
  }
  Activation activation = Activation::kSiluGated;
  bool accumulate = false;
  BufferId in = kNoId;
  BufferId router_in = kNoId;  // what the router reads in the stead of `in`
  BufferId out = kNoId;
};

}  // namespace quire::kernels
