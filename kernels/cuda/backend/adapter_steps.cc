// Adapters of a program: their slots, and what they add to the rows of a step.
#include <utility>

#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/lora/adapter_product.h"

namespace quire::kernels::cuda {
namespace {

// A slot's memory, before a copy brings it there.
struct DeviceAdapter final : AdapterWeights {
  int64_t Bytes() const override { return static_cast<int64_t>(slot.size()); }
  std::vector<std::byte> slot;
};

}  // namespace

std::shared_ptr<const AdapterWeights> CudaProgram::PackAdapter(const Adapter& adapter) const {
  auto packed = std::make_shared<DeviceAdapter>();
  packed->slot.resize(adapters_.plan.slot_bytes);
  cuda::PackAdapter(adapter, lowered_, adapters_.plan, packed->slot);
  return packed;
}

void CudaProgram::SetAdapter(int slot, std::shared_ptr<const AdapterWeights> adapter) {
  const auto at = static_cast<size_t>(slot);
  adapters_.held[at] = adapter != nullptr;
  if (adapter == nullptr) return;
  // Only PackAdapter makes them.
  const auto& packed = static_cast<const DeviceAdapter&>(*adapter);
  Check(runtime_.Copy(stream_, adapters_.memory + at * adapters_.plan.slot_bytes,
                      packed.slot.data(), packed.slot.size()));
  Finish();
}

void CudaProgram::Do(const LoraStep& step) {
  const StepShape& shape = step_.shape;
  if (shape.lora_tokens == 0) return;
  const AdapterPlaces& places = adapters_.plan.steps[static_cast<size_t>(step.place)];
  AdapterProductParams params;
  params.tiles = Input<ExpertTile>(step_.places.lora_tiles);
  params.tile_count = Input<int32_t>(step_.places.lora_tile_count);
  params.tokens = Input<int32_t>(step_.places.lora_tokens);
  params.slot_bytes = static_cast<int64_t>(adapters_.plan.slot_bytes);
  const auto launch = [&](size_t weight) {
    params.product.weight = reinterpret_cast<const uint16_t*>(adapters_.memory + weight);
    Check(LaunchAdapterProduct(runtime_, stream_, params, shape.lora_tile_rows, shape.lora_tiles));
  };
  GemmParams& product = params.product;
  product.workspace = product_workspace_;
  product.counters = product_counters_;
  product.x = Rows(step.op.in);
  product.out = adapters_.inner;
  product.n = product.out_stride = places.inner;
  product.k = params.x_stride = places.width;
  product.half = step.half;
  launch(places.a);

  params.x_stride = places.inner;
  product.out_stride = lowered_.buffers[step.op.out].width;
  product.out_float32 = product.accumulate = true;
  product.half = false;
  product.scale = step.op.scale;
  for (const AdapterPlaces::Run& run : places.runs) {
    product.x = adapters_.inner + run.first * adapters_.plan.rank;
    product.out = Floats(step.op.out) + run.column;
    product.n = run.rows;
    product.k = run.joined * adapters_.plan.rank;
    params.slices = run.count;
    launch(run.b);
  }
}

// A device loads a kernel when it first runs: tiles of every width, without a row.
void CudaProgram::WarmUpAdapters() {
  if (rules_.max_loras == 0) return;
  for (const int tile_rows : {8, 32, 128}) {
    StepShape shape = ShapeOfBucket(1, 1, rules_, true);
    shape.lora_tile_rows = tile_rows;
    WarmUp(shape);
  }
}

}  // namespace quire::kernels::cuda
