// The logits of a router: a block has 8 experts and 32 tokens, whose rows pass through a ring in
// shared memory.
#pragma once

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

inline constexpr int kRouteThreads = 256;
inline constexpr int kRouteWarps = kRouteThreads / kWarpSize;
inline constexpr int kRouteExperts = 8;
inline constexpr int kRouteTokens = 32;
inline constexpr int kRouteTokensOfWarp = kRouteTokens / kRouteWarps;
inline constexpr int kRouteDepth = 128;  // of K in a stage
inline constexpr int kRouteStages = 4;
// Rows of experts are half a turn of the banks apart, so that two of them meet no bank twice.
inline constexpr int kRouteRowBytes = kRouteDepth * 4;
inline constexpr int kRouteExpertBytes = kRouteRowBytes + 64;
inline constexpr int kRouteStageBytes =
    kRouteExperts * kRouteExpertBytes + kRouteTokens * kRouteRowBytes;
inline constexpr int kRouteRingBytes = kRouteStages * kRouteStageBytes;

struct RouteKernelParams {
  RouteParams route;
  int flag_at = 0;  // of LastToArrive, in shared memory
};

// The first token and expert of a block.
struct RouteCorner {
  int token;
  int expert;
};

// Starts the copies of one stage; zeros behind the end of a row and in place of absent experts.
QUIRE_DEVICE void FillRouteStage(const RouteParams& params, const RouteCorner& corner, int stage) {
  constexpr int kVectors = kRouteDepth / 4;
  unsigned char* to = SharedMemory() + stage % kRouteStages * kRouteStageBytes;
  const int k = stage * kRouteDepth;
  for (int i = ThreadIndex(); i < (kRouteExperts + kRouteTokens) * kVectors; i += kRouteThreads) {
    const bool is_expert = i < kRouteExperts * kVectors;
    const int row = is_expert ? i / kVectors : i / kVectors - kRouteExperts;
    const int at = k + i % kVectors * 4;
    const int place = is_expert ? corner.expert + row : corner.token + row;
    const bool inside = place < (is_expert ? params.experts : params.tokens) && at < params.width;
    const float* from = is_expert ? params.router : params.x;
    if (inside) from += static_cast<size_t>(place) * params.width + at;
    unsigned char* row_at = is_expert
                                ? to + row * kRouteExpertBytes
                                : to + kRouteExperts * kRouteExpertBytes + row * kRouteRowBytes;
    AsyncCopy16(row_at + i % kVectors * 16, from, inside ? 16 : 0);
  }
}

// A lane has one expert, four of the sixteen chains, and the warp's tokens.
struct RouteSums {
  float sum[kRouteTokensOfWarp][4];

  // Adds what a stage holds, in the order of k.
  QUIRE_DEVICE void AddStage(int stage, int depth) {
    const unsigned char* from = SharedMemory() + stage % kRouteStages * kRouteStageBytes;
    const unsigned char* expert = from + Lane() / 4 * kRouteExpertBytes + Lane() % 4 * 16;
    const unsigned char* tokens = from + kRouteExperts * kRouteExpertBytes +
                                  WarpIndex() * kRouteTokensOfWarp * kRouteRowBytes +
                                  Lane() % 4 * 16;
#pragma unroll 2
    for (int k = 0; k < depth; k += 16) {
      const Vector16 w = Load16(expert + 4 * k);
#pragma unroll
      for (int t = 0; t < kRouteTokensOfWarp; ++t) {
        const Vector16 x = Load16(tokens + t * kRouteRowBytes + 4 * k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[t][i] = Fma(FloatOfBits(x.word[i]), FloatOfBits(w.word[i]), sum[t][i]);
        }
      }
    }
  }

  // The sixteen chains of a token in halves 8, 4, 2, 1.
  QUIRE_DEVICE float Logit(int t) const {
    float half[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      half[i] = sum[t][i] + ShuffleXor(sum[t][i], 2);
      half[i] = half[i] + ShuffleXor(half[i], 1);
    }
    return (half[0] + half[2]) + (half[1] + half[3]);
  }
};

QUIRE_DEVICE void RouteLogits(const RouteParams& params, const RouteCorner& corner) {
  const int stages = (params.width + kRouteDepth - 1) / kRouteDepth;
  RouteSums sums;
#pragma unroll
  for (auto& token : sums.sum) {
#pragma unroll
    for (float& chain : token) chain = 0.0f;
  }
#pragma unroll
  for (int ahead = 0; ahead < kRouteStages - 1; ++ahead) {
    if (ahead < stages) FillRouteStage(params, corner, ahead);
    AsyncCommit();
  }
  for (int stage = 0; stage < stages; ++stage) {
    AsyncWait<kRouteStages - 2>();
    // This stage has arrived, and all threads are done with the one whose place is filled next.
    BlockBarrier();
    const int next = stage + kRouteStages - 1;
    if (next < stages) FillRouteStage(params, corner, next);
    AsyncCommit();
    const int left = params.width - stage * kRouteDepth;
    sums.AddStage(stage, left < kRouteDepth ? left : kRouteDepth);
  }
  AsyncWait<0>();
  const int expert = corner.expert + Lane() / 4;
#pragma unroll
  for (int t = 0; t < kRouteTokensOfWarp; ++t) {
    float logit = sums.Logit(t);
    const int token = corner.token + WarpIndex() * kRouteTokensOfWarp + t;
    if (Lane() % 4 != 0 || expert >= params.experts || token >= params.tokens) continue;
    if (params.bias != nullptr) logit = logit + params.bias[expert];
    params.logits[static_cast<size_t>(token) * params.experts + expert] = logit;
  }
}

}  // namespace quire::kernels::cuda
