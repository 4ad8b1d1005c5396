#include "kernels/cuda/backend/device_weights.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/backend/weight_loader.h"

namespace quire::kernels::cuda {
namespace {

int Whole(int64_t n) { return static_cast<int>((n + 7) / 8 * 8); }

int64_t SourceBytes(const Weight& weight) {
  int64_t bytes = 0;
  for (const WeightSource& source : weight.parts) bytes += source.Bytes();
  return bytes;
}

bool IsQuantised(const Weight& weight) {
  return std::any_of(weight.parts.begin(), weight.parts.end(),
                     [](const WeightSource& source) { return BlockElements(source.type) > 1; });
}

bool HasKernel(DType type) { return CanStayQuantised(type, BlockElements(type)); }

// Why no part may stay quantised; null: those of quantised types do.
const char* WhyExpanded(const Weight& weight, const WeightRole& role) {
  if (role.expand) return "as was asked for";
  DType before{};
  int64_t row = 0;
  for (const WeightSource& source : weight.parts) {
    if (BlockElements(source.type) > 1 && !HasKernel(source.type)) {
      return "no kernel of a GPU reads its format yet";
    }
    if (BlockElements(source.type) > 1 && !CanStayQuantised(source.type, source.cols)) {
      return "its rows are no whole blocks";
    }
    if (BlockElements(source.type) > 1 && role.is_table &&
        !CanLookUp(QuantisedLayout(source.type, source.cols).form)) {
      return "rows are looked up in it, and no kernel of a GPU looks them up in its format";
    }
    if (row > 0 && source.type != before) {
      if (role.is_table) return "rows are looked up in it, and it has several types";
      if (row % 8 != 0) return "a type of weights begins within eight rows";
    }
    before = source.type;
    row += source.rows;
  }
  return nullptr;
}

DeviceWeight PlanVector(const Weight& weight) {
  int64_t elements = 0;
  for (const WeightSource& source : weight.parts) elements += source.rows * source.cols;
  DeviceWeightPart part;
  part.rows = 1;
  part.is_vector = true;
  part.source_count = weight.parts.size();
  return {1, Whole(elements), false, {part}};
}

// Neighbours of one quantised type are one part, as are neighbours of any types that are expanded.
DeviceWeight PlanMatrix(const Weight& weight, bool half, bool expand) {
  DeviceWeight planned{Whole(weight.rows), static_cast<int>(weight.cols), half, {}};
  const auto form = [&](size_t source) {  // 0: expanded
    const DType type = weight.parts[source].type;
    return expand || BlockElements(type) == 1 ? 0 : 1 + static_cast<int>(type);
  };
  int row = 0;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    if (i == 0 || form(i) != form(i - 1)) {
      DeviceWeightPart part;
      part.first_row = row;
      part.first_source = i;
      if (form(i) != 0) part.quantised = QuantisedLayout(weight.parts[i].type, weight.cols);
      planned.parts.push_back(part);
    }
    planned.parts.back().rows += static_cast<int>(weight.parts[i].rows);
    ++planned.parts.back().source_count;
    row += static_cast<int>(weight.parts[i].rows);
  }
  if (!planned.parts.empty()) planned.parts.back().rows += planned.rows - row;
  return planned;
}

}  // namespace

size_t DeviceWeightPart::Bytes(int cols) const {
  if (quantised.bits > 0) return QuantisedBytes(quantised, rows);
  return (is_vector ? 4 : 2) * static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

DeviceWeight PlanWeight(const Weight& weight, const WeightRole& role) {
  if (!role.used) return {};
  if (!role.is_matrix) return PlanVector(weight);
  return PlanMatrix(weight, role.half, WhyExpanded(weight, role) != nullptr);
}

int64_t PlanWeightBytes(const StepProgram& program, const DeviceProgram& lowered) {
  size_t bytes = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const DeviceWeight planned = PlanWeight(program.weights[id], lowered.weights[id]);
    for (const DeviceWeightPart& part : planned.parts) bytes += part.Bytes(planned.cols);
  }
  return static_cast<int64_t>(bytes);
}

WeightForms PlanWeightForms(const StepProgram& program, const DeviceProgram& lowered) {
  WeightForms forms;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    const WeightRole& role = lowered.weights[id];
    if (!role.used || !IsQuantised(weight)) continue;
    const char* why = role.is_matrix ? WhyExpanded(weight, role) : "it is a vector";
    ++(why == nullptr ? forms.quantised : forms.expanded);
    if (why != nullptr && forms.expanded == 1) forms.expanded_why = weight.name + ": " + why;
  }
  return forms;
}

runtime::Error DeviceWeights::Load(const StepProgram& program, const DeviceProgram& lowered,
                                   const ProgramOptions& options, runtime::Runtime& runtime,
                                   DeviceHeap& heap) {
  WeightLoader loader(options, runtime);
  if (runtime::Error error = loader.Begin(); !error.empty()) return error;
  int64_t total = 0;
  for (const Weight& weight : program.weights) total += SourceBytes(weight);
  int64_t done = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    DeviceWeight to = PlanWeight(weight, lowered.weights[id]);
    for (DeviceWeightPart& part : to.parts) {
      auto* at = heap.New<std::byte>(part.Bytes(to.cols));
      if (!heap.error().empty()) return weight.name + ": " + heap.error();
      if (part.is_vector) {
        part.floats = reinterpret_cast<float*>(at);
      } else if (part.quantised.bits > 0) {
        part.quantised.data = reinterpret_cast<unsigned char*>(at);
      } else {
        part.data = reinterpret_cast<uint16_t*>(at);
      }
      runtime::Error error = lowered.weights[id].is_matrix ? loader.LoadMatrix(weight, to, part, at)
                                                           : loader.LoadVector(weight, to, at);
      if (!error.empty()) return weight.name + ": " + error;
    }
    weights_.push_back(std::move(to));
    done += SourceBytes(weight);
    if (options.progress) options.progress(done, total);
  }
  return loader.End();
}

}  // namespace quire::kernels::cuda
