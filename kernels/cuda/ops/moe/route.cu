#include "kernels/cuda/ops/moe/route.h"

#include <algorithm>

#include "kernels/cuda/ops/moe/route_choice.h"
#include "kernels/cuda/ops/moe/route_sort.h"

namespace quire::kernels::cuda {
namespace {

// Where the words of LastToArrive are: behind the most that any part needs.
uint32_t SharedBytes(int experts) {
  const size_t choice = sizeof(float) * 3 * kRouteWarps * static_cast<size_t>(experts);
  const size_t most =
      std::max({static_cast<size_t>(kRouteRingBytes), choice, RouteSort::Bytes(experts)});
  return static_cast<uint32_t>((most + 15) / 16 * 16);
}

static_assert(sizeof(float) * 3 * kRouteWarps * kMaxExperts + 16 <= runtime::kLeastSharedBytes);
static_assert(kRouteRingBytes + 16 <= static_cast<int>(runtime::kLeastSharedBytes));

}  // namespace

// Blocks are [experts / 8, tokens / 32]. The last of a row of blocks chooses for its tokens; the
// last of those sorts the pairs of all.
QUIRE_KERNEL(route, RouteKernelParams, kRouteThreads, 1) {
  const RouteParams& own = params.route;
  auto* flag = Shared<uint32_t>(params.flag_at);
  const RouteCorner corner{BlockY() * kRouteTokens, BlockX() * kRouteExperts};
  RouteLogits(own, corner);
  if (!LastToArrive(own.counters + BlockY(), static_cast<uint32_t>(GridX()), flag)) return;
  RouteChoice choice(own, Shared<float>());
  for (int t = 0; t < kRouteTokensOfWarp; ++t) {
    const int token = corner.token + WarpIndex() * kRouteTokensOfWarp + t;
    if (token < own.tokens) choice.Choose(token);
  }
  if (!LastToArrive(own.counters + GridY(), static_cast<uint32_t>(GridY()), flag)) return;
  RouteSort(own, SharedMemory()).Run();
}

int RouteCounters(int tokens) { return (tokens + kRouteTokens - 1) / kRouteTokens + 1; }

int MostExpertTiles(int pairs, int experts, int tile_rows) {
  const int begun = std::min(pairs, experts);  // an expert's last tile may have one row
  return begun + (pairs - begun) / tile_rows;
}

runtime::Error LaunchRoute(runtime::Runtime& runtime, runtime::StreamId stream,
                           const RouteParams& params) {
  if (params.width <= 0 || params.width % 8 != 0) {
    return "route: width " + std::to_string(params.width) + ": a multiple of 8 is needed";
  }
  if (params.experts < 1 || params.experts > kMaxExperts || params.rule.chosen < 1 ||
      params.rule.chosen > std::min(params.experts, kMaxChosenExperts)) {
    return "route: " + std::to_string(params.rule.chosen) + " of " +
           std::to_string(params.experts) + " experts: up to " + std::to_string(kMaxChosenExperts) +
           " of up to " + std::to_string(kMaxExperts) + " are served";
  }
  if (params.own.first < 0 || params.own.count < 0 ||
      params.own.first + params.own.count > params.experts) {
    return "route: experts from " + std::to_string(params.own.first) + " on, " +
           std::to_string(params.own.count) + " of " + std::to_string(params.experts);
  }
  if (params.tile_rows <= 0) return "route: tiles without rows";
  if (params.tokens <= 0) return {};
  const uint32_t bytes = SharedBytes(params.experts);
  RouteKernelParams all{params, static_cast<int>(bytes)};
  if (params.own.count == 0) all.route.own = {0, params.experts};
  return runtime.Launch(
      stream, QUIRE_KERNEL_OF(route, kRouteThreads),
      runtime::ShapeOf(static_cast<uint32_t>((params.experts + kRouteExperts - 1) / kRouteExperts),
                       static_cast<uint32_t>((params.tokens + kRouteTokens - 1) / kRouteTokens),
                       bytes + 16, all));
}

}  // namespace quire::kernels::cuda
