#include "kernels/cpu/packed_adapter.h"

namespace quire::kernels::cpu {
namespace {

Weight WeightOf(const WeightSource& source) { return {"", {source}, source.rows, source.cols}; }

// Moves the panels to `at` and returns where they end.
std::byte* Place(PackedMatrix& matrix, std::byte* at) {
  for (Panel& panel : matrix.panels) {
    panel.data = at;
    at += matrix.geometries[panel.geometry].bytes;
  }
  return at;
}

PackedMatrix Plan(const WeightSource& source) {
  PackedMatrix matrix = PlanMatrix(WeightOf(source), /*gated=*/false);
  matrix.takes_int8 = false;  // floats are multiplied by floats in every class
  return matrix;
}

}  // namespace

std::shared_ptr<const PackedAdapter> PackAdapter(const Adapter& adapter) {
  auto packed = std::make_shared<PackedAdapter>();
  packed->products.resize(adapter.targets.size());
  int64_t bytes = 0;
  for (size_t i = 0; i < adapter.targets.size(); ++i) {
    const AdapterMatrices& from = adapter.targets[i];
    if (from.a.rows == 0) continue;
    PackedAdapter::Product& product = packed->products[i];
    product.a = Plan(from.a);
    product.b = Plan(from.b);
    product.scale = from.scale;
    bytes += PackedBytes(product.a) + PackedBytes(product.b);
  }
  packed->memory = Pages(bytes, true);
  std::byte* at = packed->memory.data();
  for (size_t i = 0; i < adapter.targets.size(); ++i) {
    PackedAdapter::Product& product = packed->products[i];
    if (adapter.targets[i].a.rows == 0) continue;
    at = Place(product.a, at);
    at = Place(product.b, at);
    PackPanels(product.a, WeightOf(adapter.targets[i].a), 0, product.a.PanelCount());
    PackPanels(product.b, WeightOf(adapter.targets[i].b), 0, product.b.PanelCount());
  }
  return packed;
}

int64_t MostAdapterBytes(const std::vector<LoraTarget>& targets, int rank) {
  int64_t bytes = 0;
  for (const LoraTarget& target : targets) {
    const WeightSource a{DType::kF32, rank, target.col_count};
    const WeightSource b{DType::kF32, target.Width(), rank};
    bytes += PackedBytes(Plan(a)) + PackedBytes(Plan(b));
  }
  return bytes;
}

}  // namespace quire::kernels::cpu
