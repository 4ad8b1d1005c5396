// The choice of a token's experts and their weights, by one warp: the arithmetic of
// kernels/cpu/routing.h, in its order.
//
// Lane i holds experts (and groups) i, i + 32, …: bit j of a mask belongs to i + 32 j.
#pragma once

#include "kernels/cuda/ops/moe/route_logits.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

inline constexpr float kNoKey = -__builtin_huge_valf();

// e^x, held at e^88.02 above: the CPU's Exp. The polynomial takes any sign.
QUIRE_DEVICE float RouteExp(float x) { return sampling::ExpOfNegative(x > 88.02f ? 88.02f : x); }

QUIRE_DEVICE float NumberOrNone(float x) { return x == x ? x : kNoKey; }

// A key and its place; of equal keys the lower place is better.
struct BestKey {
  float key = kNoKey;
  int place = -1;  // none

  QUIRE_DEVICE void Take(float other, int other_place) {
    if (other_place < 0) return;
    const bool better = place < 0 || other > key || (other == key && other_place < place);
    key = better ? other : key;
    place = better ? other_place : place;
  }
  // The best of all lanes, in every lane.
  QUIRE_DEVICE void OfWarp() {
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
      const float other = ShuffleXor(key, mask);
      Take(other, static_cast<int>(ShuffleXor(static_cast<uint32_t>(place), mask)));
    }
  }
};

// One warp's tokens.
struct RouteChoice {
  const RouteParams& params;
  // Of this warp, in shared memory, each as long as there are experts.
  float* scores;
  float* keys;
  float* group_keys;
  uint32_t taken = 0;  // of the lane's experts

  QUIRE_DEVICE RouteChoice(const RouteParams& p, float* shared)
      : params(p),
        scores(shared + static_cast<size_t>(WarpIndex()) * 3 * p.experts),
        keys(scores + p.experts),
        group_keys(keys + p.experts) {}

  // Logits become the scores from which weights are made, and the keys of the choice.
  QUIRE_DEVICE void Score(const float* logits) {
    const int experts = params.experts;
    const bool softmax = params.rule.scores == RoutingRule::Scores::kSoftmax;
    float top = kNoKey;
    for (int e = Lane(); e < experts; e += kWarpSize) {
      keys[e] = NumberOrNone(logits[e]);
      top = keys[e] > top ? keys[e] : top;
    }
    top = WarpMax(top);
    for (int e = Lane(); e < experts; e += kWarpSize) {
      const float logit = logits[e];
      scores[e] = softmax ? RouteExp(logit - top) : 1.0f / (1.0f + RouteExp(-logit));
    }
    WarpBarrier();
    if (softmax && !params.rule.renormalise) {
      const float total = SumOfScores();
      for (int e = Lane(); e < experts; e += kWarpSize) scores[e] = scores[e] / total;
    }
    if (softmax && params.selection_bias == nullptr) return;  // the order of the scores
    for (int e = Lane(); e < experts; e += kWarpSize) {
      const float bias = params.selection_bias == nullptr ? 0.0f : params.selection_bias[e];
      keys[e] = NumberOrNone(params.selection_bias == nullptr ? scores[e] : scores[e] + bias);
    }
  }

  // In sixteen lanes, reduced in halves; all lanes have it afterwards.
  QUIRE_DEVICE float SumOfScores() const {
    float sum = 0.0f;
    if (Lane() < 16) {
      for (int e = Lane(); e < params.experts; e += 16) sum = sum + scores[e];
    }
    for (int mask = 8; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
    sum = Shuffle(sum, 0);
    WarpBarrier();  // the scores have been read
    return sum;
  }

  // The best expert that is not taken, which then is.
  QUIRE_DEVICE int TakeBest() {
    BestKey best;
    for (int e = Lane(), j = 0; e < params.experts; e += kWarpSize, ++j) {
      if ((taken >> j & 1u) == 0) best.Take(keys[e], e);
    }
    best.OfWarp();
    if (best.place % kWarpSize == Lane()) taken |= 1u << (best.place / kWarpSize);
    return best.place;
  }

  // The sum of the best keys of a group, by one lane, which changes none of them for good.
  QUIRE_DEVICE float KeyOfGroup(int begin, int end) const {
    float sum = 0.0f;
    BestKey last;
    for (int i = 0; i < params.rule.best_of_group; ++i) {
      BestKey best;
      for (int e = begin; e < end; ++e) {
        // Those that are behind the last one in the order of the choice.
        const bool later = i == 0 || keys[e] < last.key || (keys[e] == last.key && e > last.place);
        if (later) best.Take(keys[e], e);
      }
      sum = sum + best.key;
      last = best;
    }
    return sum;
  }

  // Takes the experts of all groups but the best.
  QUIRE_DEVICE void CloseGroups() {
    const RoutingRule& rule = params.rule;
    const int size = params.experts / rule.groups;
    WarpBarrier();  // all keys are there
    for (int g = Lane(); g < rule.groups; g += kWarpSize) {
      group_keys[g] = NumberOrNone(KeyOfGroup(g * size, (g + 1) * size));
    }
    uint32_t open = 0;  // of the lane's groups
    uint32_t closed = 0xffffffffu;
    for (int i = 0; i < rule.groups_used; ++i) {
      BestKey best;
      for (int g = Lane(), j = 0; g < rule.groups; g += kWarpSize, ++j) {
        if ((open >> j & 1u) == 0) best.Take(group_keys[g], g);
      }
      best.OfWarp();
      if (best.place % kWarpSize == Lane()) open |= 1u << (best.place / kWarpSize);
      for (int e = Lane(), j = 0; e < params.experts; e += kWarpSize, ++j) {
        if (e / size == best.place) closed &= ~(1u << j);
      }
    }
    taken = closed;
  }

  QUIRE_DEVICE void Choose(int token) {
    const RoutingRule& rule = params.rule;
    const size_t first = static_cast<size_t>(token) * rule.chosen;
    Score(params.logits + static_cast<size_t>(token) * params.experts);
    taken = 0;
    if (rule.groups_used < rule.groups) CloseGroups();
    WarpBarrier();  // all scores are there
    float sum = 0.0f;
    for (int i = 0; i < rule.chosen; ++i) {
      const int best = TakeBest();
      sum = sum + scores[best];
      if (i % kWarpSize == Lane()) params.chosen[first + i] = best;
    }
    // Sigmoids may all be next to zero.
    const float divisor = rule.renormalise ? sum + 1e-20f : 1.0f;
    for (int i = Lane(); i < rule.chosen; i += kWarpSize) {
      const int expert = params.chosen[first + i];  // the lane's own
      float w = scores[expert] / divisor * rule.scale;
      if (params.expert_scales != nullptr) w = w * params.expert_scales[expert];
      params.weights[first + i] = w;
    }
    WarpBarrier();  // the next token takes the place of this one's keys
  }
};

}  // namespace quire::kernels::cuda
