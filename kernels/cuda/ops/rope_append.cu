#include "kernels/cuda/ops/rope_append.h"

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kRopeThreads = 64;  // each warp reads the angles once

struct Eight {
  float x[8];
};

QUIRE_DEVICE Eight Unpack(const Vector16& v) {
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.x[2 * i] = LowBf16(v.word[i]);
    e.x[2 * i + 1] = HighBf16(v.word[i]);
  }
  return e;
}

QUIRE_DEVICE Vector16 Pack(const Eight& e) {
  Vector16 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.word[i] = PackBf16(e.x[2 * i], e.x[2 * i + 1]);
  return v;
}

// The cosines or sines of the elements `first` … first + 7 of a head, four of which never lie in
// both halves.
QUIRE_DEVICE Eight LoadAngles(const float* from, int first, int half) {
  Eight e{};
#pragma unroll
  for (int part = 0; part < 8; part += 4) {
    const int at = first + part;
    if (at >= 2 * half) continue;
    const Vector16 v = Load16(from + (at < half ? at : at - half));
#pragma unroll
    for (int i = 0; i < 4; ++i) e.x[part + i] = FloatOfBits(v.word[i]);
  }
  return e;
}

// kHeadDim / 8 neighbouring lanes hold one head, eight elements each, those behind the head's real
// dimension zeros; a warp holds 256 / kHeadDim heads. All lanes take part in shuffles, those
// without a head with zeros.
template <int kHeadDim>
struct HeadLanes {
  static constexpr int kLanes = kHeadDim / 8;

  // x / sqrt(mean x² + epsilon) · (weight + offset); a lane's squares in order, then halves.
  QUIRE_DEVICE static void Normalise(const RopeAppendParams& params, const uint16_t* weight,
                                     Eight& e) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = Fma(e.x[i], e.x[i], sum);
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
    const int first = Lane() % kLanes * 8;
    if (weight == nullptr || first >= params.head_dim) return;
    const float factor = 1.0f / Sqrt(sum / static_cast<float>(params.head_dim) + params.epsilon);
    const Eight w = Unpack(Load16(weight + first));
#pragma unroll
    for (int i = 0; i < 8; ++i) e.x[i] = e.x[i] * factor * (w.x[i] + params.weight_offset);
  }

  // The pair of element i is i ± half: that of a lane half / 8 away or, where half is an odd
  // multiple of 4, the fourth element from this one's of that lane or its neighbour.
  QUIRE_DEVICE static void Rotate(int half, const Eight& cosine, const Eight& sine, Eight& e) {
    const int first = Lane() % kLanes * 8;
    const int head = Lane() - Lane() % kLanes;
    const bool odd = half % 8 != 0;
    Eight other;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = first + i;
      const int pair = at < half ? at + half : at < 2 * half ? at - half : at;
      other.x[i] = Shuffle(odd ? e.x[(i + 4) % 8] : e.x[i], head + pair / 8);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float product = other.x[i] * sine.x[i];
      if (first + i >= 2 * half) continue;
      e.x[i] = Fma(e.x[i], cosine.x[i], first + i >= half ? product : -product);
    }
  }
};

template <int kHeadDim>
QUIRE_DEVICE void RopeAppend(const RopeAppendParams& params) {
  using Lanes = HeadLanes<kHeadDim>;
  constexpr int kHeadsPerRound = kRopeThreads / Lanes::kLanes;
  const int token = BlockX();
  const int position = params.positions[token];
  const int element = Lane() % Lanes::kLanes * 8;
  const bool of_head = element < params.head_dim;
  const int half = params.rotary_dim / 2;
  const float* angles = params.angles + static_cast<size_t>(position) * 2 * half;
  const Eight cosine = LoadAngles(angles, element, half);
  const Eight sine = LoadAngles(angles + half, element, half);
  uint16_t* row = params.qkv + static_cast<size_t>(token) * params.stride;
  const int slot = position & ((1 << params.block_shift) - 1);
  const int64_t place = params.pages[token] * params.page_stride +
                        static_cast<int64_t>(slot) * params.head_dim + element;
  const int turned = params.heads + params.kv_heads;
  const int all = turned + params.kv_heads;
  for (int first = 0; first < all; first += kHeadsPerRound) {
    const int head = first + ThreadIndex() / Lanes::kLanes;
    const bool exists = head < all && of_head;
    Vector16 raw{{0, 0, 0, 0}};
    if (exists) raw = Load16(row + head * params.head_dim + element);
    Eight e = Unpack(raw);
    Lanes::Normalise(params, head < params.heads ? params.q_norm : params.k_norm, e);
    Lanes::Rotate(half, cosine, sine, e);
    if (!exists) continue;
    if (head < params.heads) {
      Store16(row + head * params.head_dim + element, Pack(e));
    } else if (head < turned) {
      Store16(params.keys + place + (head - params.heads) * params.head_stride, Pack(e));
    } else {
      Store16(params.values + place + (head - turned) * params.head_stride, raw);
    }
  }
}

QUIRE_KERNEL(rope_append_64, RopeAppendParams, kRopeThreads, 1) { RopeAppend<64>(params); }
QUIRE_KERNEL(rope_append_128, RopeAppendParams, kRopeThreads, 1) { RopeAppend<128>(params); }
QUIRE_KERNEL(rope_append_256, RopeAppendParams, kRopeThreads, 1) { RopeAppend<256>(params); }

runtime::Error LaunchRopeAppend(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                                RopeAppendParams params) {
  if (head_dim <= 0 || head_dim % 8 != 0 || head_dim > 256) {
    return "rope_append: head dimension " + std::to_string(head_dim) +
           "; multiples of 8 up to 256 are served";
  }
  if (params.rotary_dim < 0 || params.rotary_dim % 8 != 0 || params.rotary_dim > head_dim) {
    return "rope_append: rotary dimension " + std::to_string(params.rotary_dim) +
           ": a multiple of 8 up to the head dimension is needed";
  }
  if (params.stride % 8 != 0) return "rope_append: the stride of qkv must be a multiple of 8";
  if (params.tokens <= 0) return {};
  params.head_dim = head_dim;
  const auto kernel = head_dim <= 64    ? QUIRE_KERNEL_OF(rope_append_64, kRopeThreads)
                      : head_dim <= 128 ? QUIRE_KERNEL_OF(rope_append_128, kRopeThreads)
                                        : QUIRE_KERNEL_OF(rope_append_256, kRopeThreads);
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.tokens), 1, 0, params));
}

}  // namespace quire::kernels::cuda
