// How a token's router logits become the experts that it uses and their weights.
//
// Scores are a softmax over all logits, or the sigmoid of each. A selection bias changes the choice
// and no weight. Equal scores go to the lower id, and a NaN counts as −∞. With groups (DeepSeek's
// group-limited routing, arXiv 2405.04434 and 2412.19437) only experts of the best groups can be
// chosen.
#pragma once

#include <cstdint>

namespace quire::kernels {

struct RoutingRule {
  enum class Scores : uint8_t { kSoftmax, kSigmoid };
  Scores scores = Scores::kSoftmax;
  int chosen = 1;
  int groups = 1;           // of neighbours, equally large
  int groups_used = 1;      // as many experts in them as are chosen, at least
  int best_of_group = 1;    // so many of its best scores sum up to a group's score
  bool renormalise = true;  // weights sum up to 1 before they are scaled
  float scale = 1.0f;
};

// The limits of a router, which bound what a step reserves.
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxChosenExperts = 64;

}  // namespace quire::kernels
