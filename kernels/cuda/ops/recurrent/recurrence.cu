#include "kernels/cuda/ops/recurrent/recurrence.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/recurrent/gates.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kRecurThreads = 128;
constexpr int kRecurWarps = kRecurThreads / kWarpSize;
constexpr int kRecurValues =
    8 * kRecurWarps;           // of a block: four lanes, one for each chain, share one
constexpr int kRecurTile = 8;  // tokens whose inputs are in shared memory

// What a block has of a tile's tokens in shared memory.
template <int kKeys>
struct RecurTile {
  float keys[kRecurTile][2][kKeys];  // q and k, zeros behind key_dim
  float values[kRecurTile][kRecurValues];
  float factors[kRecurTile][2];  // decay and step
};

// Which head and values are a block's, and where a row of `in` has them.
struct RecurPlace {
  int head;
  int first_value;
  int q, k, v;
};

QUIRE_DEVICE RecurPlace PlaceOfBlock(const RecurrenceParams& params, bool delta) {
  const int parts = (params.value_dim + kRecurValues - 1) / kRecurValues;
  RecurPlace place;
  place.head = BlockY() / parts;
  place.first_value = BlockY() % parts * kRecurValues;
  const int key_head = params.tiled ? place.head % params.key_heads
                                    : place.head / (params.value_heads / params.key_heads);
  const int keys = params.key_heads * params.key_dim;
  const int values = params.value_heads * params.value_dim;
  place.q = (delta ? 0 : values + keys) + key_head * params.key_dim;
  place.k = (delta ? keys : values) + key_head * params.key_dim;
  place.v = (delta ? 2 * keys : 0) + place.head * params.value_dim + place.first_value;
  return place;
}

// Tokens from `token` on, `count` of them.
template <int kKeys, bool kDelta>
QUIRE_DEVICE void LoadTile(const RecurrenceParams& params, const RecurPlace& place, int64_t token,
                           int count, RecurTile<kKeys>& tile) {
  for (int i = ThreadIndex(); i < count * 2 * kKeys; i += kRecurThreads) {
    const int key = i % kKeys;
    const int which = i / kKeys % 2;
    const int t = i / (2 * kKeys);
    const float* in = params.in + (token + t) * params.in_stride + (which == 0 ? place.q : place.k);
    tile.keys[t][which][key] = key < params.key_dim ? in[key] : 0.0f;
  }
  for (int i = ThreadIndex(); i < count * kRecurValues; i += kRecurThreads) {
    const int t = i / kRecurValues;
    const int value = i % kRecurValues;
    const float* in = params.in + (token + t) * params.in_stride + place.v;
    tile.values[t][value] = place.first_value + value < params.value_dim ? in[value] : 0.0f;
  }
  const int t = ThreadIndex();
  if (t >= count) return;
  const float* gates = params.gates + (token + t) * params.gates_stride + place.head;
  const float step = Softplus(gates[kDelta ? params.value_heads : 0] + params.bias[place.head]);
  tile.factors[t][0] = sampling::ExpOfNegative(params.decay[place.head] * step);
  tile.factors[t][1] = kDelta ? Sigmoid(gates[0]) : step;
}

// Divides q and k by their lengths: half a warp each, in sixteen virtual lanes.
template <int kKeys>
QUIRE_DEVICE void DivideByLengths(const RecurrenceParams& params, int count,
                                  RecurTile<kKeys>& tile) {
  constexpr float kEpsilon = 1e-6f;
  const int which = Lane() / 16;
  const float scale = which == 0 ? 1.0f / Sqrt(static_cast<float>(params.key_dim)) : 1.0f;
  for (int t = WarpIndex(); t < count; t += kRecurWarps) {
    float* x = tile.keys[t][which];
    float sum = 0.0f;
    for (int i = Lane() % 16; i < params.key_dim; i += 16) sum = Fma(x[i], x[i], sum);
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
    const float factor = 1.0f / Sqrt(sum + kEpsilon);
    for (int i = Lane() % 16; i < params.key_dim; i += 16) x[i] = x[i] * factor * scale;
  }
}

// The sum of four lanes' chains.
QUIRE_DEVICE float SumOfChains(float chain) {
  chain = chain + ShuffleXor(chain, 1);
  return chain + ShuffleXor(chain, 2);
}

// One token: `s` are the keys chain, chain + 4, … of one value.
template <int kPer, bool kDelta>
QUIRE_DEVICE float RecurToken(const RecurTile<4 * kPer>& tile, int t, int chain, float v,
                              float (&s)[kPer]) {
  const float* q = tile.keys[t][0] + chain;
  const float* k = tile.keys[t][1] + chain;
  const float decay = tile.factors[t][0];
  float from = v;
  if (kDelta) {
    float seen = 0.0f;
#pragma unroll
    for (int n = 0; n < kPer; ++n) {
      s[n] = decay * s[n];
      seen = Fma(k[4 * n], s[n], seen);
    }
    from = v - SumOfChains(seen);
  }
  const float change = tile.factors[t][1] * from;
  float out = 0.0f;
#pragma unroll
  for (int n = 0; n < kPer; ++n) {
    if (!kDelta) s[n] = decay * s[n];
    s[n] = Fma(k[4 * n], change, s[n]);
    out = Fma(q[4 * n], s[n], out);
  }
  return SumOfChains(out);
}

// A block has up to kRecurValues values of one head of one row.
template <int kPer, bool kDelta>
QUIRE_DEVICE void Recur(const RecurrenceParams& params) {
  const int slot = params.runs.runs[BlockX()].sequence;
  const AttentionSequence row = params.runs.sequences[slot];
  if (row.token_count == 0) return;  // padding
  auto& tile = *Shared<RecurTile<4 * kPer>>();
  const RecurPlace place = PlaceOfBlock(params, kDelta);
  const int chain = Lane() % 4;
  const int local = WarpIndex() * 8 + Lane() / 4;
  const int value = place.first_value + local;
  const bool mine = value < params.value_dim;
  const UnitOfRow unit = UnitOf(params.pages, row, slot, place.head);
  // The key `chain + 4 n` of the value.
  const int64_t at = int64_t{16} * (value / 16 * params.key_dim + chain) + value % 16;
  float s[kPer];
  const float* before = row.first_position > 0 ? unit.Before() + at : nullptr;
#pragma unroll
  for (int n = 0; n < kPer; ++n) {
    const bool there = mine && before != nullptr && chain + 4 * n < params.key_dim;
    s[n] = there ? before[64 * n] : 0.0f;
  }
  for (int begin = 0; begin < row.token_count; begin += kRecurTile) {
    const int left = row.token_count - begin;
    const int count = left < kRecurTile ? left : kRecurTile;
    if (begin > 0) BlockBarrier();
    LoadTile<4 * kPer, kDelta>(params, place, row.first_token + begin, count, tile);
    BlockBarrier();
    if (kDelta) {
      DivideByLengths(params, count, tile);
      BlockBarrier();
    }
    for (int t = 0; t < count; ++t) {
      const float v = tile.values[t][local];
      float out = RecurToken<kPer, kDelta>(tile, t, chain, v, s);
      if (params.skip != nullptr) out = Fma(params.skip[place.head], v, out);
      const int i = begin + t;
      const int64_t to = (row.first_token + i) * int64_t{params.out_stride};
      if (mine && chain == 0) params.out[to + place.head * params.value_dim + value] = out;
      if (!mine || !unit.Stays(i)) continue;
      float* behind = unit.Behind(i) + at;
#pragma unroll
      for (int n = 0; n < kPer; ++n) {
        if (chain + 4 * n < params.key_dim) behind[64 * n] = s[n];
      }
    }
  }
}

QUIRE_KERNEL(gated_delta_128, RecurrenceParams, kRecurThreads, 1) { Recur<32, true>(params); }
QUIRE_KERNEL(gated_delta_256, RecurrenceParams, kRecurThreads, 1) { Recur<64, true>(params); }
QUIRE_KERNEL(mamba2_128, RecurrenceParams, kRecurThreads, 1) { Recur<32, false>(params); }
QUIRE_KERNEL(mamba2_256, RecurrenceParams, kRecurThreads, 1) { Recur<64, false>(params); }

static_assert(sizeof(RecurTile<kMostKeyDim>) <= runtime::kLeastSharedBytes);

runtime::Error LaunchRecurrence(runtime::Runtime& runtime, runtime::StreamId stream,
                                const RecurrenceParams& params) {
  if (params.key_dim <= 0 || params.key_dim > kMostKeyDim || params.value_dim <= 0) {
    return "recurrence: heads of " + std::to_string(params.key_dim) + " keys and " +
           std::to_string(params.value_dim) + " values: up to 256 keys are served";
  }
  if (params.key_heads <= 0 || params.value_heads % params.key_heads != 0) {
    return "recurrence: " + std::to_string(params.value_heads) + " heads do not share " +
           std::to_string(params.key_heads);
  }
  if (params.runs.rows <= 0) return {};
  const bool delta = params.kind == RecurrenceOp::Kind::kGatedDelta;
  const bool narrow = params.key_dim <= 128;
  const auto kernel = delta ? (narrow ? QUIRE_KERNEL_OF(gated_delta_128, kRecurThreads)
                                      : QUIRE_KERNEL_OF(gated_delta_256, kRecurThreads))
                            : (narrow ? QUIRE_KERNEL_OF(mamba2_128, kRecurThreads)
                                      : QUIRE_KERNEL_OF(mamba2_256, kRecurThreads));
  const int parts = (params.value_dim + kRecurValues - 1) / kRecurValues;
  const size_t shared = narrow ? sizeof(RecurTile<128>) : sizeof(RecurTile<256>);
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.runs.rows),
                                         static_cast<uint32_t>(params.value_heads * parts),
                                         static_cast<uint32_t>(shared), params));
}

}  // namespace quire::kernels::cuda
