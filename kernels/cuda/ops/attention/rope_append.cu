#include "kernels/cuda/ops/attention/rope_append.h"

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/ops/fp8.h"
#include "kernels/cuda/ops/rows/float_rows.h"
#include "kernels/kv_fp8.h"
#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::cuda {

constexpr int kRopeThreads = 64;  // each warp reads the angles once

QUIRE_DEVICE Vector16 PackHalves(const Eight& e) {
  Vector16 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.word[i] = PackF16(SaturatedF16(e.x[2 * i]), SaturatedF16(e.x[2 * i + 1]));
  }
  return v;
}

// Where eight elements of a key or value go, and their head's scale.
struct EightPlace {
  void* base;
  int64_t element;
  float* scale;  // null in all lanes of a head but the first
};

// The cosines or sines of the elements `first` … first + 7 of a head. Each four of them are within
// one half.
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

// kLanes neighbouring lanes hold one head, eight elements each and in wide heads eight more at a
// distance of 256, those after the head's real dimension zeros; a warp holds 32 / kLanes heads. All
// lanes take part in shuffles, those without a head with zeros.
template <int kHeadDim>
struct HeadLanes {
  static constexpr int kEights = kHeadDim > 256 ? kHeadDim / 256 : 1;  // of a lane
  static constexpr int kLanes = kHeadDim / 8 / kEights;
  struct Part {
    Eight of[kEights];
  };

  // Which eight of the head is the lane's p-th.
  QUIRE_DEVICE static int EightOf(int p) { return Lane() % kLanes + p * kLanes; }

  QUIRE_DEVICE static Part Load(const float* head, int eights) {
    Part e;
#pragma unroll
    for (int p = 0; p < kEights; ++p) e.of[p] = LoadEight(head, EightOf(p), eights);
    return e;
  }
  QUIRE_DEVICE static Part Angles(const float* from, int half) {
    Part e;
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
      // Where all of a wide head turns, a lane's eights are pairs.
      const bool same = p > 0 && half == 8 * kLanes;
      e.of[p] = same ? e.of[0] : LoadAngles(from, 8 * EightOf(p), half);
    }
    return e;
  }

  // A lane's own part in order, then halves.
  QUIRE_DEVICE static float SumOfHead(float sum) {
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
    return sum;
  }
  QUIRE_DEVICE static float SumOfSquares(const Part& e) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = Fma(e.of[p].x[i], e.of[p].x[i], sum);
    }
    return SumOfHead(sum);
  }

  // Takes the mean from the head's elements; those after its dimension stay zeros.
  QUIRE_DEVICE static void Centre(const RopeAppendParams& params, Part& e) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = sum + e.of[p].x[i];
    }
    const float mean = SumOfHead(sum) / static_cast<float>(params.head_dim);
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
      if (EightOf(p) >= params.head_dim / 8) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) e.of[p].x[i] = e.of[p].x[i] - mean;
    }
  }

  // x / sqrt(mean x² + epsilon) · (weight + offset), without a weight only where `plain` says so;
  // `whole`: the mean over all heads, of kWhole.
  QUIRE_DEVICE static void Normalise(const RopeAppendParams& params, const float* weight,
                                     bool plain, float whole, Part& e) {
    if (params.q_norm == nullptr && params.k_norm == nullptr && !params.v_norm) return;
    // Heads of q, k and v may share a warp, and a sum or a load takes all of its lanes.
    const int eights = weight != nullptr ? params.head_dim / 8 : 0;
    Part x = e;
    if (params.norm == HeadNorm::kLayer) Centre(params, x);
    const float own = SumOfSquares(x) / static_cast<float>(params.head_dim);
    const Part w = Load(weight, eights);
    if (weight == nullptr && !plain) return;
    const float mean = params.norm == HeadNorm::kWhole ? whole : own;
    const float factor = 1.0f / Sqrt(mean + params.epsilon);
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
      if (EightOf(p) >= params.head_dim / 8) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float scaled = x.of[p].x[i] * factor;
        e.of[p].x[i] = plain ? scaled : scaled * (w.of[p].x[i] + params.weight_offset);
      }
    }
  }

  // The pair of element i is i ± half: that of a lane half / 8 away or, where half is an odd
  // multiple of 4, the fourth element from this one's of that lane or its neighbour.
  QUIRE_DEVICE static void Rotate(int half, const Part& cosine, const Part& sine, Part& e) {
    const int head = Lane() - Lane() % kLanes;
    const bool odd = half % 8 != 0;
    Part other;
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int at = 8 * EightOf(p) + i;
        const int pair = at < half ? at + half : at < 2 * half ? at - half : at;
        const int eight = pair / 8;
        other.of[p].x[i] = 0.0f;
#pragma unroll
        for (int from = 0; from < kEights; ++from) {
          const float mine = odd ? e.of[from].x[(i + 4) % 8] : e.of[from].x[i];
          const float got = Shuffle(mine, head + eight % kLanes);
          if (kEights == 1 || eight / kLanes == from) other.of[p].x[i] = got;
        }
      }
    }
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int at = 8 * EightOf(p) + i;
        const float product = other.of[p].x[i] * sine.of[p].x[i];
        if (at >= 2 * half) continue;
        e.of[p].x[i] = Fma(e.of[p].x[i], cosine.of[p].x[i], at >= half ? product : -product);
      }
    }
  }

  // The scale of a head.
  QUIRE_DEVICE static Fp8Scale ScaleOf(const Part& e) {
    constexpr float kLargest = 3.402823466e38f;
    float largest = 0.0f;
#pragma unroll
    for (int p = 0; p < kEights; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float x = e.of[p].x[i];
        float size = x < 0.0f ? -x : x;
        if (!(size <= kLargest)) size = FloatOfBits(0x7f800000u);  // so that one maximum shows both
        if (size > largest) largest = size;
      }
    }
#pragma unroll
    for (int mask = kLanes / 2; mask > 0; mask /= 2) {
      const float other = ShuffleXor(largest, mask);
      if (other > largest) largest = other;
    }
    return Fp8ScaleOf(largest, largest <= kLargest);
  }
};

// The weights of head `head` of q, or of k behind those; null where they have none, and for v.
QUIRE_DEVICE const float* NormWeights(const RopeAppendParams& params, int head) {
  const bool key = head >= params.heads;
  const float* weight = key ? params.k_norm : params.q_norm;
  if (weight == nullptr || head >= params.heads + params.kv_heads) return nullptr;
  const int own = params.norm == HeadNorm::kRms ? 0 : key ? head - params.heads : head;
  return weight + static_cast<size_t>(own) * params.head_dim;
}

QUIRE_DEVICE float GrowthAt(const QueryGrowth& growth, int position) {
  if (growth.rate == 0.0f) return 1.0f;
  const int steps = (position + growth.offset) / growth.interval;
  return 1.0f + growth.rate * static_cast<float>(sampling::Log(1.0 + steps));
}

template <KvType kType>
QUIRE_DEVICE void StoreInPage(const EightPlace& to, const Eight& e, const Fp8Scale& scale) {
  if constexpr (kType == KvType::kFp8) {
    uint64_t codes = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      codes |= static_cast<uint64_t>(ToFp8(e.x[i] * scale.inverse)) << (8 * i);
    }
    *reinterpret_cast<uint64_t*>(static_cast<unsigned char*>(to.base) + to.element) = codes;
    if (to.scale != nullptr) *to.scale = scale.scale;
  } else {
    Store16(static_cast<uint16_t*>(to.base) + to.element,
            kType == KvType::kF16 ? PackHalves(e) : PackBf16(e));
  }
}

template <int kHeadDim, KvType kType>
QUIRE_DEVICE void RopeAppend(const RopeAppendParams& params) {
  using Lanes = HeadLanes<kHeadDim>;
  constexpr int kHeadsPerRound = kRopeThreads / Lanes::kLanes;
  const int token = BlockX();
  const int position = params.positions[token];
  const int half = params.rotary_dim / 2;
  const float* angles = params.angles + static_cast<size_t>(position) * 2 * half;
  const typename Lanes::Part cosine = Lanes::Angles(angles, half);
  const typename Lanes::Part sine = Lanes::Angles(angles + half, half);
  const float* row = params.qkv + static_cast<size_t>(token) * params.stride;
  uint16_t* q = params.q + static_cast<size_t>(token) * params.heads * params.head_dim;
  const int slot = position & ((1 << params.block_shift) - 1);
  const int64_t page = params.pages[token];
  const int64_t place =
      page * params.page_stride + static_cast<int64_t>(slot) * params.token_stride;
  const int turned = params.heads + params.kv_heads;
  const int all = turned + params.kv_heads;
  const float growth = GrowthAt(params.growth, position);
  float whole_q = 0.0f;  // means over all heads
  float whole_k = 0.0f;
  if (params.norm == HeadNorm::kWhole) {
    const float* squares = params.squares + static_cast<size_t>(token) * params.squares_stride;
    whole_q = squares[0] / static_cast<float>(params.q_elements);
    whole_k = squares[1] / static_cast<float>(params.k_elements);
  }
  for (int first = 0; first < all; first += kHeadsPerRound) {
    const int head = first + ThreadIndex() / Lanes::kLanes;
    const int eights = head < all ? params.head_dim / 8 : 0;
    typename Lanes::Part e = Lanes::Load(row + static_cast<size_t>(head) * params.head_dim, eights);
    const bool is_value = head >= turned;
    Lanes::Normalise(params, NormWeights(params, head), is_value && params.v_norm,
                     head < params.heads ? whole_q : whole_k, e);
    const typename Lanes::Part still = e;
    Lanes::Rotate(half, cosine, sine, e);
    if (is_value) e = still;
    Fp8Scale scale;
    if constexpr (kType == KvType::kFp8) scale = Lanes::ScaleOf(e);
#pragma unroll
    for (int p = 0; p < Lanes::kEights; ++p) {
      const int element = 8 * Lanes::EightOf(p);
      Eight& eight = e.of[p];
      if (element / 8 >= eights) continue;
      if (head < params.heads) {
#pragma unroll
        for (int i = 0; i < 8; ++i) eight.x[i] = eight.x[i] * growth;
        Store16(q + head * params.head_dim + element, PackBf16(eight));
        continue;
      }
      const int kv_head = head - (is_value ? turned : params.heads);
      EightPlace to{is_value ? params.values : params.keys,
                    place + kv_head * params.head_stride + element, nullptr};
      if (kType == KvType::kFp8 && element == 0) {
        to.scale = (is_value ? params.value_scales : params.key_scales) +
                   page * params.scale_page_stride + (kv_head << params.block_shift) + slot;
      }
      StoreInPage<kType>(to, eight, scale);
    }
  }
}

QUIRE_KERNEL(rope_append_64, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<64, KvType::kBF16>(params);
}
QUIRE_KERNEL(rope_append_128, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<128, KvType::kBF16>(params);
}
QUIRE_KERNEL(rope_append_256, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<256, KvType::kBF16>(params);
}
QUIRE_KERNEL(rope_append_512, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<512, KvType::kBF16>(params);
}
QUIRE_KERNEL(rope_append_f16_64, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<64, KvType::kF16>(params);
}
QUIRE_KERNEL(rope_append_f16_128, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<128, KvType::kF16>(params);
}
QUIRE_KERNEL(rope_append_f16_256, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<256, KvType::kF16>(params);
}
QUIRE_KERNEL(rope_append_f16_512, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<512, KvType::kF16>(params);
}
QUIRE_KERNEL(rope_append_fp8_64, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<64, KvType::kFp8>(params);
}
QUIRE_KERNEL(rope_append_fp8_128, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<128, KvType::kFp8>(params);
}
QUIRE_KERNEL(rope_append_fp8_256, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<256, KvType::kFp8>(params);
}
QUIRE_KERNEL(rope_append_fp8_512, RopeAppendParams, kRopeThreads, 1) {
  RopeAppend<512, KvType::kFp8>(params);
}

namespace {

// The least compiled head dimension that holds this one.
runtime::KernelHandle KernelFor(KvType type, int head_dim) {
  const int size = head_dim <= 64 ? 0 : head_dim <= 128 ? 1 : head_dim <= 256 ? 2 : 3;
  const runtime::KernelHandle of_bf16[] = {QUIRE_KERNEL_OF(rope_append_64, kRopeThreads),
                                           QUIRE_KERNEL_OF(rope_append_128, kRopeThreads),
                                           QUIRE_KERNEL_OF(rope_append_256, kRopeThreads),
                                           QUIRE_KERNEL_OF(rope_append_512, kRopeThreads)};
  const runtime::KernelHandle of_f16[] = {QUIRE_KERNEL_OF(rope_append_f16_64, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_f16_128, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_f16_256, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_f16_512, kRopeThreads)};
  const runtime::KernelHandle of_fp8[] = {QUIRE_KERNEL_OF(rope_append_fp8_64, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_fp8_128, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_fp8_256, kRopeThreads),
                                          QUIRE_KERNEL_OF(rope_append_fp8_512, kRopeThreads)};
  return type == KvType::kF16 ? of_f16[size] : type == KvType::kFp8 ? of_fp8[size] : of_bf16[size];
}

}  // namespace

runtime::Error LaunchRopeAppend(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                                RopeAppendParams params) {
  if (head_dim <= 0 || head_dim % 8 != 0 || head_dim > 512) {
    return "rope_append: head dimension " + std::to_string(head_dim) +
           "; multiples of 8 up to 512 are served";
  }
  if (params.rotary_dim < 0 || params.rotary_dim % 8 != 0 || params.rotary_dim > head_dim) {
    return "rope_append: rotary dimension " + std::to_string(params.rotary_dim) +
           ": a multiple of 8 up to the head dimension is needed";
  }
  if (params.stride % 8 != 0) return "rope_append: the stride of qkv must be a multiple of 8";
  if (params.token_stride == 0) params.token_stride = head_dim;
  if (params.type == KvType::kF32) {
    return "rope_append: pages of float32; bfloat16, float16 and fp8 are served";
  }
  if (params.token_stride < head_dim || params.token_stride % 8 != 0) {
    return "rope_append: tokens " + std::to_string(params.token_stride) +
           " elements apart for heads of " + std::to_string(head_dim) +
           ": a multiple of 8 is needed";
  }
  if (params.growth.interval < 1) return "rope_append: queries grow at an interval of at least 1";
  if (params.tokens <= 0) return {};
  params.head_dim = head_dim;
  return runtime.Launch(stream, KernelFor(params.type, head_dim),
                        runtime::ShapeOf(static_cast<uint32_t>(params.tokens), 1, 0, params));
}

}  // namespace quire::kernels::cuda
