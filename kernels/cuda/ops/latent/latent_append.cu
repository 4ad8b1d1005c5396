#include "kernels/cuda/ops/latent/latent_append.h"

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/fp8.h"
#include "kernels/kv_fp8.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

constexpr int kAppendThreads = 128;
constexpr int kFoursOfThread = 4;  // of a query
constexpr int kFoursOfBlock = kAppendThreads * kFoursOfThread;

// Four elements of a row. Those of a part that turns are elements u, u + 1 and half + u, half + u +
// 1 of it, after the turn.
struct Four {
  float x[4];
};

QUIRE_DEVICE Four LoadFour(const float* from) {
  const Vector16 v = Load16(from);
  return {{FloatOfBits(v.word[0]), FloatOfBits(v.word[1]), FloatOfBits(v.word[2]),
           FloatOfBits(v.word[3])}};
}

struct Two {
  float x[2];
};
QUIRE_DEVICE Two LoadTwo(const float* from) {
  const uint64_t v = *reinterpret_cast<const uint64_t*>(from);
  return {{FloatOfBits(static_cast<uint32_t>(v)), FloatOfBits(static_cast<uint32_t>(v >> 32))}};
}

// Turns two pairs from number u on of the part that begins at `part`.
QUIRE_DEVICE Four Turned(const LatentAppendParams& params, const float* part, const float* angles,
                         int u) {
  const int half = params.rope_dim / 2;
  Two first;
  Two second;
  if (params.pairs) {
    const Four both = LoadFour(part + 2 * u);
    first = {{both.x[0], both.x[2]}};
    second = {{both.x[1], both.x[3]}};
  } else {
    first = LoadTwo(part + u);
    second = LoadTwo(part + half + u);
  }
  const Two cosine = LoadTwo(angles + u);
  const Two sine = LoadTwo(angles + half + u);
  Four y;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    y.x[i] = Fma(first.x[i], cosine.x[i], -(second.x[i] * sine.x[i]));
    y.x[2 + i] = Fma(second.x[i], cosine.x[i], first.x[i] * sine.x[i]);
  }
  return y;
}

QUIRE_DEVICE const float* AnglesOf(const LatentAppendParams& params, int token) {
  return params.angles + static_cast<size_t>(params.positions[token]) * params.rope_dim;
}

QUIRE_DEVICE uint32_t Pack(const LatentAppendParams& params, float a, float b) {
  return params.half ? PackFiniteF16(a, b) : PackBf16(a, b);
}

// Block y makes the y-th part of a query.
QUIRE_DEVICE void RoundQueries(const LatentAppendParams& params, int token, int part) {
  const int still = params.query_dim - params.rope_dim;
  const int fours = params.query_dim / 4;
  const float* row = params.queries + static_cast<size_t>(token) * params.queries_stride;
  uint16_t* out = params.q + static_cast<size_t>(token) * params.heads * params.query_dim;
  const float* angles = AnglesOf(params, token);
  for (int turn = 0; turn < kFoursOfThread; ++turn) {
    const int at = part * kFoursOfBlock + turn * kAppendThreads + ThreadIndex();
    if (at >= params.heads * fours) return;
    const size_t head = static_cast<size_t>(at / fours) * params.query_dim;
    const int element = at % fours * 4;
    if (element < still) {
      const Four e = LoadFour(row + head + element);
      *reinterpret_cast<uint64_t*>(out + head + element) =
          Pack(params, e.x[0], e.x[1]) | static_cast<uint64_t>(Pack(params, e.x[2], e.x[3])) << 32;
      continue;
    }
    const int u = (element - still) / 2;
    const Four e = Turned(params, row + head + still, angles, u);
    uint16_t* to = out + head + still + u;
    *reinterpret_cast<uint32_t*>(to) = Pack(params, e.x[0], e.x[1]);
    *reinterpret_cast<uint32_t*>(to + params.rope_dim / 2) = Pack(params, e.x[2], e.x[3]);
  }
}

// Two neighbours at element `at` of a latent's row in its page.
template <KvType kType>
QUIRE_DEVICE void StoreTwo(const LatentAppendParams& params, int64_t at, float a, float b,
                           const Fp8Scale& scale) {
  if constexpr (kType == KvType::kFp8) {
    const auto codes = static_cast<uint16_t>(ToFp8(a * scale.inverse) |
                                             static_cast<uint32_t>(ToFp8(b * scale.inverse)) << 8);
    *reinterpret_cast<uint16_t*>(static_cast<unsigned char*>(params.rows) + at) = codes;
  } else {
    const uint32_t word =
        kType == KvType::kF16 ? PackF16(SaturatedF16(a), SaturatedF16(b)) : PackBf16(a, b);
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(params.rows) + at) = word;
  }
}

// The scale of a latent that the warp holds.
template <int kFours>
QUIRE_DEVICE Fp8Scale ScaleOf(const Four (&held)[kFours]) {
  constexpr float kLargest = 3.402823466e38f;
  float largest = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kFours; ++piece) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float size = held[piece].x[i] < 0.0f ? -held[piece].x[i] : held[piece].x[i];
      if (!(size <= kLargest)) size = FloatOfBits(0x7f800000u);  // so that one maximum shows both
      if (size > largest) largest = size;
    }
  }
  largest = WarpMax(largest);
  return Fp8ScaleOf(largest, largest <= kLargest);
}

// One warp holds the latent, a lane every 32nd four of it. Its squares are summed by lane in order,
// then in halves.
template <KvType kType>
QUIRE_DEVICE void AppendLatent(const LatentAppendParams& params, int token) {
  constexpr int kFours = (kMostLatentDim / 4 + kWarpSize - 1) / kWarpSize;
  const float* row = params.latents + static_cast<size_t>(token) * params.latents_stride;
  const float* angles = AnglesOf(params, token);
  Four held[kFours];
  float squares = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kFours; ++piece) {
    const int element = 4 * (piece * kWarpSize + Lane());
    held[piece] = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (element >= params.rank + params.rope_dim) continue;
    if (element >= params.rank) {
      held[piece] = Turned(params, row + params.rank, angles, (element - params.rank) / 2);
      continue;
    }
    held[piece] = LoadFour(row + element);
#pragma unroll
    for (int i = 0; i < 4; ++i) squares = Fma(held[piece].x[i], held[piece].x[i], squares);
  }
  const float mean = WarpSum(squares) / static_cast<float>(params.rank);
  const float factor = 1.0f / Sqrt(mean + params.epsilon);
#pragma unroll
  for (int piece = 0; piece < kFours; ++piece) {
    const int element = 4 * (piece * kWarpSize + Lane());
    if (element >= params.rank) continue;
    const Four weight = LoadFour(params.norm + element);
#pragma unroll
    for (int i = 0; i < 4; ++i) held[piece].x[i] = held[piece].x[i] * factor * weight.x[i];
  }
  Fp8Scale scale;
  if constexpr (kType == KvType::kFp8) scale = ScaleOf(held);
  const int slot = params.positions[token] & ((1 << params.block_shift) - 1);
  const int64_t page = params.pages[token];
  const int64_t to = page * params.page_stride + static_cast<int64_t>(slot) * params.token_stride;
  if (kType == KvType::kFp8 && Lane() == 0) {
    params.scales[page * params.scale_page_stride + slot] = scale.scale;
  }
#pragma unroll
  for (int piece = 0; piece < kFours; ++piece) {
    const int element = 4 * (piece * kWarpSize + Lane());
    const Four& e = held[piece];
    if (element >= params.rank + params.rope_dim) continue;
    const bool turns = element >= params.rank;
    const int u = (element - params.rank) / 2;
    const int64_t first = to + (turns ? params.rank + u : element);
    StoreTwo<kType>(params, first, e.x[0], e.x[1], scale);
    StoreTwo<kType>(params, first + (turns ? params.rope_dim / 2 : 2), e.x[2], e.x[3], scale);
  }
}

template <KvType kType>
QUIRE_DEVICE void LatentAppend(const LatentAppendParams& params) {
  if (BlockY() > 0) return RoundQueries(params, BlockX(), BlockY() - 1);
  if (WarpIndex() == 0) AppendLatent<kType>(params, BlockX());
}

QUIRE_KERNEL(latent_append, LatentAppendParams, kAppendThreads, 1) {
  LatentAppend<KvType::kBF16>(params);
}
QUIRE_KERNEL(latent_append_f16, LatentAppendParams, kAppendThreads, 1) {
  LatentAppend<KvType::kF16>(params);
}
QUIRE_KERNEL(latent_append_fp8, LatentAppendParams, kAppendThreads, 1) {
  LatentAppend<KvType::kFp8>(params);
}

runtime::Error LaunchLatentAppend(runtime::Runtime& runtime, runtime::StreamId stream,
                                  const LatentAppendParams& params) {
  const int dim = params.rank + params.rope_dim;
  if (params.rank < 8 || params.rank % 8 != 0 || params.rope_dim < 8 || params.rope_dim % 8 != 0 ||
      dim > kMostLatentDim) {
    return "latent_append: latents of " + std::to_string(params.rank) + " and " +
           std::to_string(params.rope_dim) +
           " elements: multiples of 8, up to 576 together, "
           "are served";
  }
  if (params.query_dim % 4 != 0 || params.query_dim < params.rope_dim ||
      params.queries_stride % 4 != 0 || params.latents_stride % 4 != 0) {
    return "latent_append: queries of " + std::to_string(params.query_dim) +
           " elements: multiples of 4 from the part that turns on are served";
  }
  if (params.type == KvType::kF32) {
    return "latent_append: pages of float32; bfloat16, float16 and fp8 are served";
  }
  if (params.token_stride < dim || params.token_stride % 8 != 0) {
    return "latent_append: tokens " + std::to_string(params.token_stride) +
           " elements apart for latents of " + std::to_string(dim) + ": a multiple of 8 is needed";
  }
  if (params.tokens <= 0) return {};
  const auto kernel =
      params.type == KvType::kF16   ? QUIRE_KERNEL_OF(latent_append_f16, kAppendThreads)
      : params.type == KvType::kFp8 ? QUIRE_KERNEL_OF(latent_append_fp8, kAppendThreads)
                                    : QUIRE_KERNEL_OF(latent_append, kAppendThreads);
  const int fours = params.heads * params.query_dim / 4;
  const int parts = (fours + kFoursOfBlock - 1) / kFoursOfBlock;
  return runtime.Launch(stream, kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(params.tokens),
                                         static_cast<uint32_t>(1 + parts), 0, params));
}

}  // namespace quire::kernels::cuda
