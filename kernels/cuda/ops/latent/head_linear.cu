#include "kernels/cuda/ops/latent/head_linear.h"

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/ops/gemm/gemm_tile.h"

namespace quire::kernels::cuda {

// The block of ops/gemm, 128 weights × some tokens, of one head: its ring, fragments and order of
// products. Block y is the y-th 128 weights of all heads.
template <int kTokensOfTile>
struct HeadTile : GemmTile<kTokensOfTile, 3> {
  using Base = GemmTile<kTokensOfTile, 3>;
  using Base::kOutStride, Base::kStages, Base::kTokens, Base::kStageBytes, Base::Swizzled,
      Base::sum;

  const HeadLinearParams& params;
  const uint16_t* weight;
  int head;
  int first_row;
  int first_token;

  QUIRE_DEVICE explicit HeadTile(const HeadLinearParams& p) : params(p) {
    const int tiles = (p.n + kGemmRows - 1) / kGemmRows;
    head = BlockY() / tiles;
    first_row = BlockY() % tiles * kGemmRows;
    first_token = BlockX() * kTokens;
    weight = p.weights[head];
  }

  // 64 of K from `k` on of `count` rows; zeros outside.
  template <int kRows>
  QUIRE_DEVICE void CopyRows(unsigned char* to, const uint16_t* from, size_t stride, int count,
                             int k) const {
    for (int i = ThreadIndex(); i < kRows * 8; i += kGemmThreads) {
      const int row = i / 8;
      const int at = k + i % 8 * 8;
      const bool inside = row < count && at < params.k;
      AsyncCopy16(to + Swizzled(row, i % 8), inside ? from + row * stride + at : from,
                  inside ? 16 : 0);
    }
  }
  QUIRE_DEVICE void FillWeights(int slot, int tile) const {
    CopyRows<kGemmRows>(SharedMemory() + slot * kStageBytes,
                        weight + static_cast<size_t>(first_row) * params.k,
                        static_cast<size_t>(params.k), params.n - first_row, tile * kGemmDepth);
  }
  QUIRE_DEVICE void FillTokens(int slot, int tile) const {
    const size_t stride = static_cast<size_t>(params.heads) * params.in_dim;
    CopyRows<kTokens>(SharedMemory() + slot * kStageBytes + kGemmRows * kGemmRowBytes,
                      params.x + first_token * stride + static_cast<size_t>(head) * params.in_dim,
                      stride, params.tokens - first_token, tile * kGemmDepth);
  }

  // The weights of the first stages are on their way before earlier kernels have ended.
  QUIRE_DEVICE void Sum() {
    const int tiles = (params.k + kGemmDepth - 1) / kGemmDepth;
    Base::Clear();
#pragma unroll
    for (int ahead = 0; ahead < kStages - 1; ++ahead) {
      if (ahead < tiles) FillWeights(ahead, ahead);
    }
    WaitForEarlierKernels();
    LetLaterKernelsBegin();
#pragma unroll
    for (int ahead = 0; ahead < kStages - 1; ++ahead) {
      if (ahead < tiles) FillTokens(ahead, ahead);
      AsyncCommit();
    }
    for (int tile = 0; tile < tiles; ++tile) {
      AsyncWait<kStages - 2>();
      // All copies of this stage have arrived, and all threads have finished the stage before it.
      BlockBarrier();
      const int next = tile + kStages - 1;
      if (next < tiles) {
        FillWeights(next % kStages, next);
        FillTokens(next % kStages, next);
      }
      AsyncCommit();
      Multiply(tile % kStages);
    }
    AsyncWait<0>();
    BlockBarrier();
  }

  QUIRE_DEVICE void Multiply(int slot) {
    if (params.half) {
      Base::template MultiplyStage<true>(slot);
    } else {
      Base::template MultiplyStage<false>(slot);
    }
  }

  QUIRE_DEVICE uint16_t* Out(int token) const {
    const size_t dim = static_cast<size_t>(params.n) + params.in_dim - params.k;
    return params.out + (static_cast<size_t>(token) * params.heads + head) * dim;
  }

  // Four neighbours of one row at a time, through shared memory.
  QUIRE_DEVICE void Store() const {
    float* turned = Shared<float>();
    const int row = WarpIndex() % Base::kRowWarps * Base::kRowFragments * 16 + Lane() / 4;
    const int token = WarpIndex() / Base::kRowWarps * Base::kOctets * 8 + Lane() % 4 * 2;
#pragma unroll
    for (int r = 0; r < Base::kRowFragments; ++r) {
#pragma unroll
      for (int o = 0; o < Base::kOctets; ++o) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          turned[(token + 8 * o + i % 2) * kOutStride + row + 16 * r + i / 2 * 8] = sum[r][o][i];
        }
      }
    }
    BlockBarrier();
    for (int i = ThreadIndex(); i < kTokens * kGemmRows / 4; i += kGemmThreads) {
      const int at = i / (kGemmRows / 4);
      const int column = i % (kGemmRows / 4) * 4;
      const Vector16 y = Load16(turned + at * kOutStride + column);
      if (first_token + at >= params.tokens || first_row + column >= params.n) continue;
      *reinterpret_cast<uint64_t*>(Out(first_token + at) + first_row + column) =
          PackBf16(FloatOfBits(y.word[0]), FloatOfBits(y.word[1])) |
          static_cast<uint64_t>(PackBf16(FloatOfBits(y.word[2]), FloatOfBits(y.word[3]))) << 32;
    }
  }

  QUIRE_DEVICE static uint32_t ToBf16(uint32_t halves) {
    return PackBf16(ToFloat(F16{static_cast<uint16_t>(halves)}),
                    ToFloat(F16{static_cast<uint16_t>(halves >> 16)}));
  }

  // What the weights have no columns for.
  QUIRE_DEVICE void CopyRest() const {
    const int fours = (params.in_dim - params.k) / 4;
    for (int i = ThreadIndex(); i < kTokens * fours; i += kGemmThreads) {
      const int token = first_token + i / fours;
      if (token >= params.tokens) return;
      const int element = i % fours * 4;
      const uint16_t* from =
          params.x + (static_cast<size_t>(token) * params.heads + head) * params.in_dim;
      uint64_t four = *reinterpret_cast<const uint64_t*>(from + params.k + element);
      if (params.half) {
        four = ToBf16(static_cast<uint32_t>(four)) |
               static_cast<uint64_t>(ToBf16(static_cast<uint32_t>(four >> 32))) << 32;
      }
      *reinterpret_cast<uint64_t*>(Out(token) + params.n + element) = four;
    }
  }
};

template <int kTokens>
QUIRE_DEVICE void HeadLinear(const HeadLinearParams& params) {
  HeadTile<kTokens> tile(params);
  tile.Sum();
  tile.Store();
  if (tile.first_row == 0 && params.in_dim > params.k) tile.CopyRest();
}

static_assert(HeadTile<128>::kSharedBytes <= static_cast<int>(runtime::kLeastSharedBytes));

QUIRE_KERNEL_AHEAD(head_linear_8, HeadLinearParams, kGemmThreads, 2) { HeadLinear<8>(params); }
QUIRE_KERNEL_AHEAD(head_linear_32, HeadLinearParams, kGemmThreads, 2) { HeadLinear<32>(params); }
QUIRE_KERNEL_AHEAD(head_linear_128, HeadLinearParams, kGemmThreads, 1) { HeadLinear<128>(params); }

runtime::Error LaunchHeadLinear(runtime::Runtime& runtime, runtime::StreamId stream,
                                const HeadLinearParams& params) {
  if (params.heads < 1 || params.n <= 0 || params.n % 4 != 0 || params.k <= 0 ||
      params.k % 8 != 0 || params.k > kMostHeadColumns) {
    return "head_linear: " + std::to_string(params.heads) + " weights [" +
           std::to_string(params.n) + ", " + std::to_string(params.k) +
           "]: rows in multiples of 4 and up to 1016 columns in multiples of 8 are served";
  }
  if (params.in_dim < params.k || params.in_dim % 8 != 0) {
    return "head_linear: heads of " + std::to_string(params.in_dim) + " elements for " +
           std::to_string(params.k) + " columns: a multiple of 8 from them on is needed";
  }
  if (params.tokens <= 0) return {};
  struct Form {
    runtime::KernelHandle kernel;
    int tokens;
    uint32_t shared_bytes;
  };
  const Form forms[] = {
      {QUIRE_KERNEL_OF(head_linear_8, kGemmThreads), 8, HeadTile<8>::kSharedBytes},
      {QUIRE_KERNEL_OF(head_linear_32, kGemmThreads), 32, HeadTile<32>::kSharedBytes},
      {QUIRE_KERNEL_OF(head_linear_128, kGemmThreads), 128, HeadTile<128>::kSharedBytes}};
  const Form& form = params.tokens <= 8 ? forms[0] : params.tokens <= 32 ? forms[1] : forms[2];
  const int rows = (params.n + kGemmRows - 1) / kGemmRows * params.heads;
  const int columns = (params.tokens + form.tokens - 1) / form.tokens;
  return runtime.Launch(stream, form.kernel,
                        runtime::ShapeOf(static_cast<uint32_t>(columns),
                                         static_cast<uint32_t>(rows), form.shared_bytes, params));
}

}  // namespace quire::kernels::cuda
