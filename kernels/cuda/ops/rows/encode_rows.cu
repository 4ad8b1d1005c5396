#include "kernels/cuda/ops/rows/encode_rows.h"

#include "kernels/cuda/ops/rows/float_rows.h"
#include "kernels/kv_fp8.h"

namespace quire::kernels::cuda {

constexpr int kEncodeThreads = 256;
constexpr int kEncodeWarps = kEncodeThreads / kWarpSize;
constexpr int kLanesOfGroup = kEncodeGroup / 8;

QUIRE_DEVICE float Larger(float a, float b) { return a > b ? a : b; }

// The largest magnitude, infinite where one is no finite number.
QUIRE_DEVICE float LargestOf(const Eight& e) {
  constexpr float kLargest = 3.402823466e38f;
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float size = e.x[i] < 0.0f ? -e.x[i] : e.x[i];
    largest = Larger(largest, size <= kLargest ? size : FloatOfBits(0x7f800000u));
  }
  return largest;
}

// NaN where numbers are not finite, 0 where codes are zeros.
QUIRE_DEVICE float ScaleOf(const EncodeRowsParams& params, float largest) {
  constexpr float kLargest = 3.402823466e38f;
  constexpr float kLeast = 1.17549435e-38f;
  if (!(largest <= kLargest)) return FloatOfBits(0x7fc00000u);
  if (params.scale > 0.0f) return params.scale;
  const float scale = largest / (params.e4m3 ? 448.0f : 127.5f);
  return scale < kLeast ? 0.0f : scale;
}

// To the nearest even integer within −128 … 127, as a byte.
QUIRE_DEVICE uint32_t Int8Code(float x) {
  constexpr float kRound = 12582912.0f;  // 2^23 + 2^22: no place below one
  const float bounded = x > 127.0f ? 127.0f : x < -128.0f ? -128.0f : x;
  return BitsOfFloat(bounded + kRound) & 0xffu;
}

QUIRE_DEVICE void StoreCodes(const EncodeRowsParams& params, const Eight& e, float scale,
                             uint8_t* to) {
  uint32_t words[2] = {0, 0};
  if (scale > 0.0f) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float x = e.x[i] / scale;
      const uint32_t code = params.e4m3 ? ToFp8(x) : Int8Code(x);
      words[i / 4] |= code << (8 * (i % 4));
    }
  }
  // Two lanes store 16 bytes: the even one's codes and the odd one's.
  const uint32_t other[2] = {ShuffleXor(words[0], 1), ShuffleXor(words[1], 1)};
  if (Lane() % 2 == 0 && to != nullptr) {
    Store16(to, Vector16{{words[0], words[1], other[0], other[1]}});
  }
}

// A block encodes a row; a thread holds kPieces eights of it.
template <int kPieces>
QUIRE_DEVICE void EncodeRow(const EncodeRowsParams& params) {
  auto* of_warps = Shared<float>();
  const int eights = params.width / 8;
  const size_t row = static_cast<size_t>(BlockX()) * params.width;
  Vector16 held[kPieces];
  float largest = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int v = piece * kEncodeThreads + ThreadIndex();
    held[piece] = Vector16{{0, 0, 0, 0}};
    if (v < eights) held[piece] = Load16(params.in + row + 8 * v);
  }
  const auto widen = [&](const Vector16& v) { return params.half ? UnpackF16(v) : UnpackBf16(v); };
  float scale = 0.0f;
  if (!params.by_group) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      largest = Larger(largest, LargestOf(widen(held[piece])));
    }
#pragma unroll
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
      largest = Larger(largest, ShuffleXor(largest, mask));
    }
    if (Lane() == 0) of_warps[WarpIndex()] = largest;
    BlockBarrier();
#pragma unroll
    for (int w = 0; w < kEncodeWarps; ++w) largest = Larger(largest, of_warps[w]);
    scale = ScaleOf(params, largest);
    if (ThreadIndex() == 0) params.scales[BlockX()] = scale;
  }
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int v = piece * kEncodeThreads + ThreadIndex();
    const Eight e = widen(held[piece]);
    if (params.by_group) {
      largest = LargestOf(e);
#pragma unroll
      for (int mask = kLanesOfGroup / 2; mask > 0; mask /= 2) {
        largest = Larger(largest, ShuffleXor(largest, mask));
      }
      scale = ScaleOf(params, largest);
      const int groups = (params.width + kEncodeGroup - 1) / kEncodeGroup;
      if (v < eights && v % kLanesOfGroup == 0) {
        params.scales[static_cast<size_t>(BlockX()) * groups + v / kLanesOfGroup] = scale;
      }
    }
    StoreCodes(params, e, scale, v < eights ? params.codes + row + 8 * v : nullptr);
  }
}

QUIRE_KERNEL(encode_rows_narrow, EncodeRowsParams, kEncodeThreads, 1) { EncodeRow<4>(params); }
QUIRE_KERNEL(encode_rows_wide, EncodeRowsParams, kEncodeThreads, 1) { EncodeRow<16>(params); }

runtime::Error LaunchEncodeRows(runtime::Runtime& runtime, runtime::StreamId stream,
                                const EncodeRowsParams& params) {
  if (params.width <= 0 || params.width % 32 != 0 || params.width > kMostEncoded) {
    return "encode_rows: width " + std::to_string(params.width) +
           ": a multiple of 32 up to 32768 is needed";
  }
  if (params.rows <= 0) return {};
  const auto kernel = params.width <= 4 * 8 * kEncodeThreads
                          ? QUIRE_KERNEL_OF(encode_rows_narrow, kEncodeThreads)
                          : QUIRE_KERNEL_OF(encode_rows_wide, kEncodeThreads);
  return runtime.Launch(
      stream, kernel,
      runtime::ShapeOf(static_cast<uint32_t>(params.rows), 1, 4 * kEncodeWarps, params));
}

}  // namespace quire::kernels::cuda
