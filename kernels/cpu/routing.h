// Routing of tokens to experts, in float32 whatever class the products are: the choice is
// discontinuous, so a logit has one order of its sum (sixteen lanes, as in norms) everywhere.
#pragma once

#include <limits>

#include "kernels/cpu/decode.h"
#include "kernels/cpu/moe_jobs.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

// Logits of kTokens tokens from `token` on with kExperts experts from `expert` on.
template <class V, int kTokens, int kExperts>
void LogitBlock(const RouteJob& job, int token, int expert) {
  typename V::F acc[kTokens][kExperts];
  for (auto& row : acc) {
    for (auto& sum : row) sum = V::Zero();
  }
  const float* x = job.x + token * job.x_stride;
  const float* w = job.router + static_cast<int64_t>(expert) * job.width;
  for (int i = 0; i < job.width; i += 16) {
    typename V::F weights[kExperts];
    Unroll<kExperts>([&](auto e) __attribute__((always_inline)) {
      weights[e] = LoadUpTo<V>(w + static_cast<int64_t>(e) * job.width + i, job.width - i);
    });
    Unroll<kTokens>([&](auto t) __attribute__((always_inline)) {
      const auto value = LoadUpTo<V>(x + t * job.x_stride + i, job.width - i);
      Unroll<kExperts>([&](auto e) __attribute__((always_inline)) {
        acc[t][e] = V::Fma(value, weights[e], acc[t][e]);
      });
    });
  }
  for (int t = 0; t < kTokens; ++t) {
    float* out = job.scores + (token + t) * 2 * ScoreStride(job.experts) + expert;
    for (int e = 0; e < kExperts; ++e) {
      out[e] = V::ReduceAdd(acc[t][e]);
      if (job.bias != nullptr) out[e] += job.bias[expert + e];
    }
  }
}

// Of all tokens with experts expert_begin … expert_end − 1.
template <class V>
void RouterLogits(const RouteJob& job, int expert_begin, int expert_end) {
  constexpr int kSide = V::kTileRows >= 12 ? 4 : 2;  // as many sums as there are registers for
  for (int token = 0; token < job.tokens;) {
    const bool wide = token + kSide <= job.tokens;
    for (int expert = expert_begin; expert < expert_end;) {
      const bool high = expert + kSide <= expert_end;
      if (wide && high) LogitBlock<V, kSide, kSide>(job, token, expert);
      if (wide && !high) LogitBlock<V, kSide, 1>(job, token, expert);
      if (!wide && high) LogitBlock<V, 1, kSide>(job, token, expert);
      if (!wide && !high) LogitBlock<V, 1, 1>(job, token, expert);
      expert += high ? kSide : 1;
    }
    token += wide ? kSide : 1;
  }
}

// Logits become the scores from which weights are made, and the keys of the choice.
template <class V>
void ScoreToken(const RouteJob& job, float* scores, float* keys) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int experts = job.experts;
  float top = kLowest;
  for (int e = 0; e < experts; ++e) {
    keys[e] = scores[e] == scores[e] ? scores[e] : kLowest;
    top = keys[e] > top ? keys[e] : top;
  }
  const bool softmax = job.rule.scores == RoutingRule::Scores::kSoftmax;
  auto sum = V::Zero();
  for (int e = 0; e < experts; e += 16) {
    const int left = experts - e;
    const auto logit = LoadUpTo<V>(scores + e, left);
    const auto score =
        softmax ? Exp<V>(V::Sub(logit, V::Set(top))) : GatedBySigmoid<V>(V::Set(1.0f), logit);
    StoreUpTo<V>(scores + e, score, left);
    sum = V::Add(sum, V::KeepRange(score, 0, left < 16 ? left : 16, 0.0f));
  }
  if (softmax && !job.rule.renormalise) {
    const auto total = V::Set(V::ReduceAdd(sum));
    for (int e = 0; e < experts; e += 16) {
      const int left = experts - e;
      StoreUpTo<V>(scores + e, V::Div(LoadUpTo<V>(scores + e, left), total), left);
    }
  }
  if (softmax && job.selection_bias == nullptr) return;  // the logits have the order of the scores
  for (int e = 0; e < experts; ++e) {
    const float key = job.selection_bias == nullptr ? scores[e] : scores[e] + job.selection_bias[e];
    keys[e] = key == key ? key : kLowest;
  }
}

// The largest of the keys that are not taken, the first of equal ones. One at least is not. A
// template, like all here, so that no two instruction sets share its code.
template <class V>
int BestKey(const float* keys, const bool* taken, int begin, int end) {
  int best = -1;
  for (int i = begin; i < end; ++i) {
    if (!taken[i] && (best < 0 || keys[i] > keys[best])) best = i;
  }
  return best;
}

// Marks the experts of all groups but the best as taken.
template <class V>
void CloseGroups(const RouteJob& job, const float* keys, bool* taken) {
  const RoutingRule& rule = job.rule;
  const int size = job.experts / rule.groups;
  float group_keys[kMaxExperts];
  for (int g = 0; g < rule.groups; ++g) {
    float sum = 0.0f;
    for (int i = 0; i < rule.best_of_group; ++i) {
      const int best = BestKey<V>(keys, taken, g * size, (g + 1) * size);
      taken[best] = true;
      sum += keys[best];
    }
    for (int e = g * size; e < (g + 1) * size; ++e) taken[e] = false;
    group_keys[g] = sum;
  }
  bool open[kMaxExperts] = {};
  for (int i = 0; i < rule.groups_used; ++i)
    open[BestKey<V>(group_keys, open, 0, rule.groups)] = true;
  for (int e = 0; e < job.experts; ++e) taken[e] = !open[e / size];
}

template <class V>
void ChooseExperts(const RouteJob& job, int token_begin, int token_end) {
  const RoutingRule& rule = job.rule;
  for (int token = token_begin; token < token_end; ++token) {
    float* scores = job.scores + token * 2 * ScoreStride(job.experts);
    float* keys = scores + ScoreStride(job.experts);
    ScoreToken<V>(job, scores, keys);
    bool taken[kMaxExperts] = {};
    if (rule.groups_used < rule.groups) CloseGroups<V>(job, keys, taken);
    int32_t* chosen = job.chosen + int64_t{token} * rule.chosen;
    float* weights = job.weights + int64_t{token} * rule.chosen;
    float sum = 0.0f;
    for (int i = 0; i < rule.chosen; ++i) {
      chosen[i] = BestKey<V>(keys, taken, 0, job.experts);
      taken[chosen[i]] = true;
      weights[i] = scores[chosen[i]];
      sum += weights[i];
    }
    // Sigmoids may all be next to zero.
    const float divisor = rule.renormalise ? sum + 1e-20f : 1.0f;
    for (int i = 0; i < rule.chosen; ++i) {
      weights[i] = weights[i] / divisor * rule.scale;
      if (job.expert_scales != nullptr) weights[i] *= job.expert_scales[chosen[i]];
    }
  }
}

template <class V>
void CombineExperts(const CombineJob& job, int token_begin, int token_end) {
  for (int token = token_begin; token < token_end; ++token) {
    const int32_t* row_of = job.row_of + int64_t{token} * job.chosen;
    const float* weights = job.weights + int64_t{token} * job.chosen;
    float* out = job.out + token * job.out_stride;
    for (int i = 0; i < job.width; i += 16) {
      const int left = job.width - i;
      auto sum = V::Zero();
      for (int e = 0; e < job.chosen; ++e) {
        if (row_of[e] < 0) continue;
        const float* from = job.results + row_of[e] * job.results_stride + i;
        sum = V::Fma(V::Set(weights[e]), LoadUpTo<V>(from, left), sum);
      }
      if (job.accumulate) sum = V::Add(LoadUpTo<V>(out + i, left), sum);
      StoreUpTo<V>(out + i, sum, left);
    }
  }
}

}  // namespace quire::kernels::cpu
