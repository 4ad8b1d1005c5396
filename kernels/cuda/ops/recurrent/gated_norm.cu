#include "kernels/cuda/ops/recurrent/gated_norm.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/recurrent/gates.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kNarrowThreads = 128;
constexpr int kNarrowWarps = kNarrowThreads / kWarpSize;
constexpr int kNarrowPieces = 8;  // elements of a lane
constexpr int kNarrowGroup = kNarrowPieces * kWarpSize;
constexpr int kWideThreads = 512;

// The sum over the lower half of a warp, in all of its lanes: halves 8, 4, 2, 1.
QUIRE_DEVICE float HalfWarpSum(float x) {
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) x = x + ShuffleXor(x, mask);
  return Shuffle(x, 0);
}

// One over the root mean square.
QUIRE_DEVICE float FactorOf(const GatedNormParams& params, float squares) {
  return 1.0f / Sqrt(squares / static_cast<float>(params.group) + params.epsilon);
}

// Where a group begins.
struct GroupPlace {
  int64_t at;  // in all rows
  int in_row;
};

// Element i of a group, divided by the root mean square.
QUIRE_DEVICE void Store(const GatedNormParams& params, const GroupPlace& group, int i,
                        float divided, float gate) {
  float y = divided * params.weight[params.weight_per_group ? group.in_row + i : i];
  if (!params.gate_first) y = y * Silu(gate);
  params.out[group.at + i] = Bf16Bits(y);
}

// A warp has a group in registers. Element i is in lane i modulo 32; the chain of virtual lane l
// takes those of lanes l and l + 16 in turns.
QUIRE_KERNEL(gated_norm_narrow, GatedNormParams, kNarrowThreads, 1) {
  const int groups = params.width / params.group;
  const int64_t index = int64_t{BlockX()} * kNarrowWarps + WarpIndex();
  if (index >= int64_t{params.rows} * groups) return;
  const int in_row = static_cast<int>(index % groups) * params.group;
  const GroupPlace group{index / groups * params.width + in_row, in_row};
  float x[kNarrowPieces];
  float gate[kNarrowPieces];
  float squares = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kNarrowPieces; ++piece) {
    const int i = piece * kWarpSize + Lane();
    x[piece] = gate[piece] = 0.0f;
    if (i < params.group) {
      x[piece] = params.in[group.at + i];
      gate[piece] = params.gate[group.at + i];
    }
    if (params.gate_first) x[piece] = x[piece] * Silu(gate[piece]);
    squares = Fma(x[piece], x[piece], squares);
    const float other = ShuffleXor(x[piece], 16);
    squares = Fma(other, other, squares);
  }
  const float factor = FactorOf(params, HalfWarpSum(squares));
#pragma unroll
  for (int piece = 0; piece < kNarrowPieces; ++piece) {
    const int i = piece * kWarpSize + Lane();
    if (i < params.group) Store(params, group, i, x[piece] * factor, gate[piece]);
  }
}

// A block has a group in shared memory, and sixteen lanes sum it.
QUIRE_KERNEL(gated_norm_wide, GatedNormParams, kWideThreads, 1) {
  float* x = Shared<float>();
  float* factor = x + params.group;
  const int in_row = BlockY() * params.group;
  const GroupPlace group{int64_t{BlockX()} * params.width + in_row, in_row};
  for (int i = ThreadIndex(); i < params.group; i += kWideThreads) {
    const float in = params.in[group.at + i];
    x[i] = params.gate_first ? in * Silu(params.gate[group.at + i]) : in;
  }
  BlockBarrier();
  if (WarpIndex() == 0) {
    float squares = 0.0f;
    if (Lane() < 16) {
      for (int i = Lane(); i < params.group; i += 16) squares = Fma(x[i], x[i], squares);
    }
    squares = HalfWarpSum(squares);
    if (Lane() == 0) *factor = FactorOf(params, squares);
  }
  BlockBarrier();
  const float by = *factor;
  for (int i = ThreadIndex(); i < params.group; i += kWideThreads) {
    const float gate = params.gate_first ? 0.0f : params.gate[group.at + i];
    Store(params, group, i, x[i] * by, gate);
  }
}

runtime::Error LaunchGatedNorm(runtime::Runtime& runtime, runtime::StreamId stream,
                               const GatedNormParams& params) {
  if (params.group <= 0 || params.group > kMostGatedNormGroup || params.width % params.group != 0) {
    return "gated_norm: groups of " + std::to_string(params.group) + " in rows of " +
           std::to_string(params.width) + ": whole ones of up to 24576 are needed";
  }
  if (params.rows <= 0) return {};
  const int groups = params.width / params.group;
  if (params.group > kNarrowGroup) {
    const size_t shared = sizeof(float) * (static_cast<size_t>(params.group) + 1);
    return runtime.Launch(
        stream, QUIRE_KERNEL_OF(gated_norm_wide, kWideThreads),
        runtime::ShapeOf(static_cast<uint32_t>(params.rows), static_cast<uint32_t>(groups),
                         static_cast<uint32_t>(shared), params));
  }
  const int64_t all = int64_t{params.rows} * groups;
  const int64_t blocks = (all + kNarrowWarps - 1) / kNarrowWarps;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(gated_norm_narrow, kNarrowThreads),
                        runtime::ShapeOf(static_cast<uint32_t>(blocks), 1, 0, params));
}

}  // namespace quire::kernels::cuda
