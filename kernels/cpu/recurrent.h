// Causal convolutions and linear recurrences on sixteen lanes: token by token, whatever the chunk
// is.
//
// Lanes are channels, or values of a head, so no sum crosses them: a sum over taps is one chain in
// their order, one over keys four chains (i modulo 4) that are added as (0 + 1) + (2 + 3). The
// gated delta rule is the recurrent form in Yang et al. (Gated DeltaNet, 2025).
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent_gates.h"
#include "kernels/cpu/recurrent_jobs.h"
#include "kernels/cpu/vec_math.h"

namespace quire::kernels::cpu {

// Sixteen channels over a row's tokens, in a unit of the state: [taps − 1][kStateChannels].
template <class V>
void ConvolveLanes(const ConvJob& job, const StateOfRow<V>& state, const BatchRow& row,
                   int channel) {
  using F = typename V::F;
  const int lane = channel % kStateChannels;
  const int left = job.channels - channel;
  const int kept = job.taps - 1;
  F inputs[kMostTaps];  // the oldest first, the token's own last
  F weights[kMostTaps];
  const float* before = state.Before();
  for (int j = 0; j < kept; ++j) {
    inputs[j] = before == nullptr ? V::Zero() : V::Load(before + j * kStateChannels + lane);
  }
  for (int j = 0; j < job.taps; ++j) {
    weights[j] = LoadUpTo<V>(job.weight + static_cast<int64_t>(j) * job.channels + channel, left);
  }
  const F bias = job.bias == nullptr ? V::Zero() : LoadUpTo<V>(job.bias + channel, left);
  int end = 0;
  for (int i = 0; i < row.token_count; ++i) {
    if (i == end) end = state.EndOfPlace(i);
    const int64_t token = row.first_token + i;
    const float* in = job.in + token * job.in_stride + channel;
    F x = LoadUpTo<V>(job.gated ? in + 2 * job.channels : in, left);
    if (job.gated) x = V::Mul(LoadUpTo<V>(in, left), x);
    inputs[kept] = x;
    F sum = bias;
    for (int j = 0; j < job.taps; ++j) sum = V::Fma(weights[j], inputs[j], sum);
    if (job.silu) sum = Silu<V>(sum);
    if (job.gated) sum = V::Mul(LoadUpTo<V>(in + job.channels, left), sum);
    StoreUpTo<V>(job.out + token * job.out_stride + channel, sum, left);
    for (int j = 0; j < kept; ++j) inputs[j] = inputs[j + 1];
    if (i + 1 < end) continue;
    float* to = state.Behind(i);
    for (int j = 0; j < kept; ++j) V::Store(to + j * kStateChannels + lane, inputs[j]);
  }
}

template <class V>
void CausalConv(const ConvJob& job, int row_index, int unit_begin, int unit_end) {
  const BatchRow& row = job.rows[row_index];
  for (int unit = unit_begin; unit < unit_end; ++unit) {
    const StateOfRow<V> state(job.pages, row, unit);
    const int begin = unit * kStateChannels;
    for (int lane = 0; lane < kStateChannels && begin + lane < job.channels; lane += 16) {
      ConvolveLanes<V>(job, state, row, begin + lane);
    }
  }
}

// x divided by its length, times `scale`.
template <class V>
void DivideByLength(float* x, int width, float scale) {
  constexpr float kEpsilon = 1e-6f;
  const float sum = SumOfSquares<V>(x, width, 0.0f);
  const auto factor = V::Set(1.0f / std::sqrt(sum + kEpsilon));
  for (int i = 0; i < width; i += 16) {
    const int left = width - i;
    StoreUpTo<V>(x + i, V::Mul(V::Mul(LoadUpTo<V>(x + i, left), factor), V::Set(scale)), left);
  }
}

template <class V>
void PrepareRecurrence(const RecurrenceJob& job, int token_begin, int token_end) {
  const bool delta = job.kind == RecurrenceOp::Kind::kGatedDelta;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(job.key_dim));
  for (int64_t token = token_begin; token < token_end; ++token) {
    float* in = job.in + token * job.in_stride;
    for (int head = 0; delta && head < job.key_heads; ++head) {
      DivideByLength<V>(in + job.q + head * job.key_dim, job.key_dim, q_scale);
      DivideByLength<V>(in + job.k + head * job.key_dim, job.key_dim, 1.0f);
    }
    const float* gates = job.gates + token * job.gates_stride;
    float* factors = job.factors + token * job.factors_stride;
    for (int head = 0; head < job.value_heads; ++head) {
      const float step = Softplus(gates[delta ? job.value_heads + head : head] + job.bias[head]);
      factors[head] = sampling::ExpOfNegative(job.decay[head] * step);
      factors[job.value_heads + head] = delta ? Sigmoid(gates[head]) : step;
    }
  }
}

// The sum of four chains; add(i, chain) extends the one of i.
template <class V, class Add>
[[gnu::always_inline]] inline typename V::F SumOverKeys(int keys, const Add& add) {
  typename V::F chains[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  int i = 0;
  for (; i + 4 <= keys; i += 4) {
    for (int j = 0; j < 4; ++j) add(i + j, chains[j]);
  }
  if (i < keys) add(i, chains[0]);
  if (i + 1 < keys) add(i + 1, chains[1]);
  if (i + 2 < keys) add(i + 2, chains[2]);
  return V::Add(V::Add(chains[0], chains[1]), V::Add(chains[2], chains[3]));
}

struct RecurrentToken {
  const float* q;
  const float* k;
  float decay;
  float step;
};

// One token of a strip: `s` is [keys][16].
template <class V, bool kDelta>
[[gnu::always_inline]] inline typename V::F RecurToken(const RecurrentToken& token, int keys,
                                                       typename V::F v, float* s) {
  using F = typename V::F;
  const F decay = V::Set(token.decay);
  const float* const q = token.q;
  const float* const k = token.k;
  if constexpr (kDelta) {
    v = V::Sub(v, SumOverKeys<V>(
                      keys, [&](int i, F& chain) __attribute__((always_inline)) {
                        const F decayed = V::Mul(decay, V::Load(s + 16 * i));
                        V::Store(s + 16 * i, decayed);
                        chain = V::Fma(V::Set(k[i]), decayed, chain);
                      }));
  }
  const F change = V::Mul(V::Set(token.step), v);
  return SumOverKeys<V>(
      keys, [&](int i, F& chain) __attribute__((always_inline)) {
        F state = V::Load(s + 16 * i);
        if constexpr (!kDelta) state = V::Mul(decay, state);
        state = V::Fma(V::Set(k[i]), change, state);
        V::Store(s + 16 * i, state);
        chain = V::Fma(V::Set(q[i]), state, chain);
      });
}

template <class V, bool kDelta>
void RecurStrip(const RecurrenceJob& job, const RecurrenceTask& task, float* s) {
  using F = typename V::F;
  const BatchRow& row = job.rows[task.row];
  const StateOfRow<V> state(job.pages, row, task.head);
  const int64_t floats = RecurrenceScratchFloats(job.key_dim);
  const int64_t strip = task.strip * floats;
  const float* before = state.Before();
  if (before == nullptr) {
    std::memset(s, 0, static_cast<size_t>(floats) * 4);
  } else {
    std::memcpy(s, before + strip, static_cast<size_t>(floats) * 4);
  }
  const int key_head =
      job.tiled ? task.head % job.key_heads : task.head / (job.value_heads / job.key_heads);
  const int key = key_head * job.key_dim;
  const int value = task.head * job.value_dim + task.strip * 16;
  const int left = job.value_dim - task.strip * 16;
  int end = 0;
  for (int i = 0; i < row.token_count; ++i) {
    if (i == end) end = state.EndOfPlace(i);
    const int64_t token = row.first_token + i;
    const float* in = job.in + token * job.in_stride;
    const float* factors = job.factors + token * job.factors_stride + task.head;
    const RecurrentToken inputs{in + job.q + key, in + job.k + key, factors[0],
                                factors[job.value_heads]};
    const F v = LoadUpTo<V>(in + job.v + value, left);
    F out = RecurToken<V, kDelta>(inputs, job.key_dim, v, s);
    if (job.skip != nullptr) out = V::Fma(V::Set(job.skip[task.head]), v, out);
    StoreUpTo<V>(job.out + token * job.out_stride + value, out, left);
    if (i + 1 < end) continue;
    std::memcpy(state.Behind(i) + strip, s, static_cast<size_t>(floats) * 4);
  }
}

template <class V>
void Recur(const RecurrenceJob& job, const RecurrenceTask& task, float* scratch) {
  if (job.kind == RecurrenceOp::Kind::kGatedDelta) {
    RecurStrip<V, true>(job, task, scratch);
  } else {
    RecurStrip<V, false>(job, task, scratch);
  }
}

template <class V>
constexpr RecurrentKernels RecurrentTable() {
  return {CausalConv<V>, PrepareRecurrence<V>, Recur<V>, GatedNorm<V>, Gate<V>};
}

}  // namespace quire::kernels::cpu
