// Mixtures of experts: routing, two grouped products with the activation between them, the sum.
#include <algorithm>

#include "kernels/cuda/backend/activation_kind.h"
#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/grouped_product.h"

namespace quire::kernels::cuda {
namespace {

// The weights of one kind of all experts.
struct ExpertWeights {
  const DeviceWeight& weight;
  const DeviceWeight& bias;
};

// A slice of a step's tokens in one mixture.
class MoeSlice {
 public:
  MoeSlice(const MoeShape& shape, const MoeMemory& memory, int tokens, int tile_rows)
      : shape_(shape),
        memory_(memory),
        places_(shape, tokens),
        tokens_(tokens),
        tile_rows_(tile_rows) {}

  int tokens() const { return tokens_; }
  int tile_rows() const { return tile_rows_; }
  int pairs() const { return tokens_ * shape_.chosen; }
  int most_tiles() const { return MostExpertTiles(pairs(), shape_.experts, tile_rows_); }
  uint32_t* counters() const { return memory_.counters; }
  float* logits() const { return At<float>(places_.logits); }
  int32_t* chosen() const { return At<int32_t>(places_.chosen); }
  float* weights() const { return At<float>(places_.weights); }
  int32_t* by_expert() const { return At<int32_t>(places_.pairs); }
  ExpertTile* tiles() const { return At<ExpertTile>(places_.tiles); }
  int32_t* tile_count() const { return At<int32_t>(places_.tile_count); }
  uint16_t* inner() const { return At<uint16_t>(places_.inner); }
  std::byte* rows() const { return At<std::byte>(places_.rows); }

 private:
  template <class T>
  T* At(size_t place) const {
    return reinterpret_cast<T*>(memory_.bytes + place);
  }

  const MoeShape& shape_;
  const MoeMemory& memory_;
  const MoePlaces places_;
  const int tokens_;
  const int tile_rows_;
};

// One launch for each part of the weights. `product` has x, out and their kind.
runtime::Error MultiplyExperts(runtime::Runtime& runtime, runtime::StreamId stream,
                               const MoeSlice& slice, const ExpertWeights& experts,
                               const GroupedParams& product) {
  const DeviceWeight& weight = experts.weight;
  for (const DeviceWeightPart& part : weight.parts) {
    GroupedParams own = product;
    own.product.weight = part.data;
    own.product.quantised = part.quantised;
    own.product.n = part.rows;
    own.product.whole_n = weight.rows;
    own.product.k = weight.cols;
    own.product.half = weight.half;
    own.product.out_stride = weight.rows;
    if (experts.bias.floats() != nullptr) {
      own.product.bias = experts.bias.floats() + part.first_row;
    }
    own.product.out = static_cast<std::byte*>(product.product.out) +
                      part.first_row * (product.product.out_float32 ? 4 : 2);
    own.weight_bytes = static_cast<int64_t>(part.Bytes(weight.cols));
    own.bias_floats = experts.bias.cols;
    own.tiles = slice.tiles();
    own.tile_count = slice.tile_count();
    own.pairs = slice.by_expert();
    runtime::Error error =
        LaunchGroupedProduct(runtime, stream, own, slice.tile_rows(), slice.most_tiles());
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace

void CudaProgram::Do(const MoeStep& step) {
  for (int begin = 0; begin < step_.shape.tokens && error_.empty(); begin += kMoeTokens) {
    const int tokens = std::min(kMoeTokens, step_.shape.tokens - begin);
    RunMixture(step.op, begin, tokens,
               ExpertTileRows(tokens * step.op.rule.chosen, step.op.ExpertCount()));
  }
}

void CudaProgram::RunMixture(const MoeOp& op, int begin, int tokens, int tile_rows) {
  const MoeOp::Expert& first = op.experts.front();
  const ExpertWeights up = {weights_.At(first.gate_up), weights_.At(first.gate_up_bias)};
  const ExpertWeights down = {weights_.At(first.down), weights_.At(first.down_bias)};
  const int width = lowered_.buffers[static_cast<size_t>(op.in)].width;
  const MoeShape shape{op.ExpertCount(), op.rule.chosen, width, up.weight.rows, down.weight.cols};
  const MoeSlice slice(shape, moe_, tokens, tile_rows);
  const int64_t first_element = int64_t{begin} * width;

  RouteParams route;
  route.x = Floats(op.router_in) + first_element;
  route.router = weights_.At(op.router).floats();
  route.bias = weights_.At(op.router_bias).floats();
  route.selection_bias = weights_.At(op.selection_bias).floats();
  route.expert_scales = weights_.At(op.expert_scales).floats();
  route.tokens = tokens;
  route.width = width;
  route.experts = shape.experts;
  route.own = {op.first_expert, static_cast<int>(op.experts.size())};
  route.tile_rows = tile_rows;
  route.rule = op.rule;
  route.logits = slice.logits();
  route.chosen = slice.chosen();
  route.weights = slice.weights();
  route.pairs = slice.by_expert();
  route.tiles = slice.tiles();
  route.tile_count = slice.tile_count();
  route.counters = slice.counters();
  Check(LaunchRoute(runtime_, stream_, route));

  GroupedParams product;
  product.product.x = Rows(op.in) + first_element;
  product.product.out = slice.rows();
  product.per_row = op.rule.chosen;
  Check(MultiplyExperts(runtime_, stream_, slice, up, product));

  ActivationParams activation;
  activation.in = reinterpret_cast<const uint16_t*>(slice.rows());
  activation.out = slice.inner();
  activation.rows = slice.pairs();
  activation.width = down.weight.cols;
  activation.kind = KindOf(op.activation);
  Check(LaunchActivation(runtime_, stream_, activation));

  product = GroupedParams();
  product.product.x = slice.inner();
  product.product.out = slice.rows();
  product.product.out_float32 = true;
  Check(MultiplyExperts(runtime_, stream_, slice, down, product));

  CombineParams sum;
  sum.rows = reinterpret_cast<const float*>(slice.rows());
  sum.weights = slice.weights();
  sum.out = Floats(op.out) + first_element;
  if (op.all_experts > 0) sum.experts = slice.chosen();
  sum.own = route.own;
  sum.tokens = tokens;
  sum.chosen = op.rule.chosen;
  sum.width = width;
  sum.accumulate = op.accumulate;
  Check(LaunchCombine(runtime_, stream_, sum));
}

// A device loads a kernel when it first runs: each mixture with tiles of every width, over whatever
// a step before has left in its buffers.
void CudaProgram::WarmUpExperts() {
  for (const DeviceStep& step : lowered_.steps) {
    const auto* moe = std::get_if<MoeStep>(&step);
    if (moe == nullptr) continue;
    for (const int tile_rows : {8, 32, 128}) {
      if (error_.empty()) RunMixture(moe->op, 0, 1, tile_rows);
    }
  }
  Finish();
}

}  // namespace quire::kernels::cuda
