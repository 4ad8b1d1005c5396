// Mixtures of experts: routing, two grouped products with the activation between them, the sum.
#include <algorithm>

#include "kernels/cuda/backend/activation_kind.h"
#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/backend/moe_places.h"
#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/grouped_product.h"

namespace quire::kernels::cuda {

// A slice of a step's tokens, and how wide the tiles of its products are.
struct CudaProgram::MoeSlice {
  const MoeOp& op;
  int begin = 0;
  int tokens = 0;
  int tile_rows = 0;
  MoePlaces places;

  int pairs() const { return tokens * op.rule.chosen; }
  int experts() const { return static_cast<int>(op.experts.size()); }
};

void CudaProgram::Do(const MoeStep& step) {
  for (int begin = 0; begin < step_.shape.tokens && error_.empty(); begin += kMoeTokens) {
    const int tokens = std::min(kMoeTokens, step_.shape.tokens - begin);
    const int experts = static_cast<int>(step.op.experts.size());
    RunMoeSlice(step.op, begin, tokens, ExpertTileRows(tokens * step.op.rule.chosen, experts));
  }
}

void CudaProgram::RunMoeSlice(const MoeOp& op, int begin, int tokens, int tile_rows) {
  const MoeOp::Expert& first = op.experts.front();
  const DeviceWeight& gate_up = weights_.At(first.gate_up);
  const DeviceWeight& down = weights_.At(first.down);
  const int width = lowered_.buffers[static_cast<size_t>(op.in)].width;
  const MoeShape shape{static_cast<int>(op.experts.size()), op.rule.chosen, width, gate_up.rows,
                       down.cols};
  const MoeSlice slice{op, begin, tokens, tile_rows, MoePlaces(shape, tokens)};
  Route(slice);
  auto* inner = reinterpret_cast<uint16_t*>(moe_workspace_ + slice.places.inner);
  auto* rows = moe_workspace_ + slice.places.rows;

  GroupedParams product;
  product.product.x = Rows(op.in) + static_cast<int64_t>(begin) * width;
  product.product.out = rows;
  product.per_row = op.rule.chosen;
  MultiplyExperts(slice, gate_up, weights_.At(first.gate_up_bias), product);

  ActivationParams activation;
  activation.in = reinterpret_cast<const uint16_t*>(rows);
  activation.out = inner;
  activation.rows = slice.pairs();
  activation.width = down.cols;
  activation.kind = KindOf(op.activation);
  Check(LaunchActivation(runtime_, stream_, activation));

  product = GroupedParams();
  product.product.x = inner;
  product.product.out = rows;
  product.product.out_float32 = true;
  MultiplyExperts(slice, down, weights_.At(first.down_bias), product);

  CombineParams sum;
  sum.rows = reinterpret_cast<const float*>(rows);
  sum.weights = reinterpret_cast<const float*>(moe_workspace_ + slice.places.weights);
  sum.out = Floats(op.out) + static_cast<int64_t>(begin) * width;
  sum.tokens = tokens;
  sum.chosen = op.rule.chosen;
  sum.width = width;
  sum.accumulate = op.accumulate;
  Check(LaunchCombine(runtime_, stream_, sum));
}

void CudaProgram::Route(const MoeSlice& slice) {
  const MoeOp& op = slice.op;
  const MoePlaces& places = slice.places;
  RouteParams params;
  params.width = lowered_.buffers[static_cast<size_t>(op.router_in)].width;
  params.x = Floats(op.router_in) + static_cast<int64_t>(slice.begin) * params.width;
  params.router = weights_.At(op.router).floats();
  params.bias = weights_.At(op.router_bias).floats();
  params.selection_bias = weights_.At(op.selection_bias).floats();
  params.expert_scales = weights_.At(op.expert_scales).floats();
  params.tokens = slice.tokens;
  params.experts = slice.experts();
  params.tile_rows = slice.tile_rows;
  params.rule = op.rule;
  params.logits = reinterpret_cast<float*>(moe_workspace_ + places.logits);
  params.chosen = reinterpret_cast<int32_t*>(moe_workspace_ + places.chosen);
  params.weights = reinterpret_cast<float*>(moe_workspace_ + places.weights);
  params.pairs = reinterpret_cast<int32_t*>(moe_workspace_ + places.pairs);
  params.tiles = reinterpret_cast<ExpertTile*>(moe_workspace_ + places.tiles);
  params.tile_count = reinterpret_cast<int32_t*>(moe_workspace_ + places.tile_count);
  params.counters = moe_counters_;
  Check(LaunchRoute(runtime_, stream_, params));
}

// One launch for each part of the weights. `product` has x, out and their kind.
void CudaProgram::MultiplyExperts(const MoeSlice& slice, const DeviceWeight& weight,
                                  const DeviceWeight& bias, const GroupedParams& product) {
  const MoePlaces& places = slice.places;
  const int tiles = MostExpertTiles(slice.pairs(), slice.experts(), slice.tile_rows);
  for (const DeviceWeightPart& part : weight.parts) {
    GroupedParams own = product;
    own.product.weight = part.data;
    own.product.quantised = part.quantised;
    own.product.n = part.rows;
    own.product.whole_n = weight.rows;
    own.product.k = weight.cols;
    own.product.half = weight.half;
    own.product.out_stride = weight.rows;
    if (bias.floats() != nullptr) own.product.bias = bias.floats() + part.first_row;
    own.product.out = static_cast<std::byte*>(product.product.out) +
                      part.first_row * (product.product.out_float32 ? 4 : 2);
    own.weight_bytes = static_cast<int64_t>(part.Bytes(weight.cols));
    own.bias_floats = bias.cols;
    own.tiles = reinterpret_cast<const ExpertTile*>(moe_workspace_ + places.tiles);
    own.tile_count = reinterpret_cast<const int32_t*>(moe_workspace_ + places.tile_count);
    own.pairs = reinterpret_cast<const int32_t*>(moe_workspace_ + places.pairs);
    Check(LaunchGroupedProduct(runtime_, stream_, own, slice.tile_rows, tiles));
  }
}

// A device loads a kernel when it first runs: each mixture with tiles of every width, over whatever
// a step before has left in its buffers.
void CudaProgram::WarmUpExperts() {
  for (const DeviceStep& step : lowered_.steps) {
    const auto* moe = std::get_if<MoeStep>(&step);
    if (moe == nullptr) continue;
    for (const int tile_rows : {8, 32, 128}) {
      if (error_.empty()) RunMoeSlice(moe->op, 0, 1, tile_rows);
    }
  }
  Finish();
}

}  // namespace quire::kernels::cuda
