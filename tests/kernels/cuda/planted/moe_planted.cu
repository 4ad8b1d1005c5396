#include "tests/kernels/cuda/planted/moe_planted.h"

#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/route_choice.h"
#include "kernels/cuda/ops/moe/route_sort.h"

namespace quire::kernels::cuda::test {

using namespace device;  // NOLINT: a kernel file's vocabulary

// Replaces the chosen experts of a token by the last of those with the same logit.
QUIRE_DEVICE void TakeLastOfEqual(const RouteParams& params, int token) {
  const int chosen = params.rule.chosen;
  const float* logits = params.logits + static_cast<size_t>(token) * params.experts;
  int32_t* ids = params.chosen + static_cast<size_t>(token) * chosen;
  for (int i = 0; i < chosen; ++i) {
    for (int e = params.experts - 1; e > ids[i]; --e) {
      bool taken = false;
      for (int other = 0; other < chosen; ++other) taken = taken || ids[other] == e;
      if (!taken && logits[e] == logits[ids[i]]) ids[i] = e;
    }
  }
}

QUIRE_KERNEL(planted_route, RouteKernelParams, kRouteThreads, 1) {
  const RouteParams& own = params.route;
  auto* flag = Shared<uint32_t>(params.flag_at);
  const RouteCorner corner{BlockY() * kRouteTokens, BlockX() * kRouteExperts};
  RouteLogits(own, corner);
  if (!LastToArrive(own.counters + BlockY(), static_cast<uint32_t>(GridX()), flag)) return;
  RouteChoice choice(own, Shared<float>());
  for (int t = 0; t < kRouteTokensOfWarp; ++t) {
    const int token = corner.token + WarpIndex() * kRouteTokensOfWarp + t;
    if (token >= own.tokens) continue;
    choice.Choose(token);
    if (token % 2 != 0 && Lane() == 0) TakeLastOfEqual(own, token);
    WarpBarrier();
  }
  if (!LastToArrive(own.counters + GridY(), static_cast<uint32_t>(GridY()), flag)) return;
  RouteSort(own, SharedMemory()).Run();
}

QUIRE_KERNEL(planted_combine, CombineParams, 128, 1) {
  const int v = BlockY() * 128 + ThreadIndex();
  if (v >= params.width / 4) return;
  const int token = BlockX();
  float* out = params.out + static_cast<size_t>(token) * params.width + 4 * v;
  for (int j = 0; j < 4; ++j) {
    float sum = params.accumulate ? out[j] : 0.0f;
    for (int i = 0; i < params.chosen; ++i) {
      const size_t pair = static_cast<size_t>(token) * params.chosen + (token + i) % params.chosen;
      sum = Fma(params.weights[pair], params.rows[pair * params.width + 4 * v + j], sum);
    }
    out[j] = sum;
  }
}

runtime::KernelHandle RouteWithTiesByPosition() {
  return QUIRE_KERNEL_OF(planted_route, kRouteThreads);
}
runtime::KernelHandle CombineInOrderOfBatch() { return QUIRE_KERNEL_OF(planted_combine, 128); }

}  // namespace quire::kernels::cuda::test
