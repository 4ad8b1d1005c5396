// The router of a mixture of experts: from float32 rows to the experts that each token uses, their
// weights, and the rows of each expert side by side, in one launch and without the host.
//
// A logit is one chain of sixteen lanes (lane i takes k = i modulo 16), reduced in halves. All
// further arithmetic follows kernels/cpu/routing.h, in float32 and with the same exp, so that the
// same rows give the bits of the CPU backend. Equal scores go to the lower id, a NaN counts as −∞.
//
// A pair is a token and one of its choices: token · chosen + choice. Pairs of this rank's experts
// are sorted by expert, those of one expert in ascending order. A tile is up to `tile_rows`
// neighbours of one expert: the rows of one block of a product (grouped_product.h).
#pragma once

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/routing_rule.h"

namespace quire::kernels::cuda {

// The experts of one rank; a count of 0: all.
struct ExpertRange {
  int first = 0;
  int count = 0;
};

struct ExpertTile {
  int32_t expert = 0;  // of this rank
  int32_t first = 0;   // of `pairs`
  int32_t rows = 0;
};

struct RouteParams {
  const float* x = nullptr;       // [tokens, width]
  const float* router = nullptr;  // [experts, width]
  // [experts] or null: added to logits; added to scores for the choice alone; times the weights.
  const float* bias = nullptr;
  const float* selection_bias = nullptr;
  const float* expert_scales = nullptr;
  int tokens = 0;
  int width = 0;  // a multiple of 8
  int experts = 0;
  ExpertRange own;
  int tile_rows = 0;
  RoutingRule rule;
  float* logits = nullptr;      // [tokens, experts]
  int32_t* chosen = nullptr;    // [tokens, rule.chosen], the best first
  float* weights = nullptr;     // [tokens, rule.chosen]
  int32_t* pairs = nullptr;     // [tokens · rule.chosen]
  ExpertTile* tiles = nullptr;  // MostExpertTiles
  int32_t* tile_count = nullptr;
  // RouteCounters(tokens) words that are zero before the first launch and zero again after each.
  uint32_t* counters = nullptr;
};

int RouteCounters(int tokens);
// How many tiles pairs can make, whatever their experts are.
int MostExpertTiles(int pairs, int experts, int tile_rows);

runtime::Error LaunchRoute(runtime::Runtime& runtime, runtime::StreamId stream,
                           const RouteParams& params);

}  // namespace quire::kernels::cuda
