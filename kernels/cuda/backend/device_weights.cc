#include "kernels/cuda/backend/device_weights.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/backend/weight_loader.h"
#include "kernels/cuda/ops/rows/encode_rows.h"

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

bool AsksForCodes(const WeightSource& source) {
  return source.rounding.code != ActivationRounding::Code::kNone;
}

// Whether two sources of a weight can be one part of it.
bool AreAlike(const WeightSource& a, const WeightSource& b, bool by_codes) {
  return a.type == b.type && (!by_codes || a.rounding == b.rounding);
}

// Why no part may stay quantised; null: those of quantised types do.
const char* WhyExpanded(const Weight& weight, const WeightRole& role) {
  if (role.of_head) return "products of heads have no quantised form on a GPU";
  if (role.expand) return "as was asked for";
  if (role.mixed) return "the experts of its layer have weights of several types";
  const WeightSource* before = nullptr;
  int64_t row = 0;
  for (const WeightSource& source : weight.parts) {
    if (source.order != nullptr) return "its inputs are in the order of their groups";
    if (BlockElements(source.type) > 1 && !CanStayQuantised(source.type, source.cols)) {
      return "its rows are no whole blocks";
    }
    if (BlockElements(source.type) > 1 && role.is_table &&
        !CanLookUp(QuantisedLayout(source.type, source.cols).form)) {
      return "rows are looked up in it, and no kernel of a GPU looks them up in its format";
    }
    if (before != nullptr && !AreAlike(source, *before, role.by_codes)) {
      if (role.is_table) return "rows are looked up in it, and it has several types";
      if (row % 8 != 0) return "a type of weights begins within eight rows";
    }
    before = &source;
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

// Neighbours of one quantised type and rounding are one part, as are neighbours of any types that
// are expanded.
DeviceWeight PlanMatrix(const Weight& weight, const WeightRole& role) {
  const bool expand = WhyExpanded(weight, role) != nullptr;
  // Quantised rows are whole blocks already.
  DeviceWeight planned{Whole(weight.rows), Whole(weight.cols), role.half, {}};
  const auto is_float = [&](const WeightSource& source) {
    return expand || BlockElements(source.type) == 1;
  };
  int row = 0;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const WeightSource& source = weight.parts[i];
    const WeightSource* before = i == 0 ? nullptr : &weight.parts[i - 1];
    if (before == nullptr || is_float(source) != is_float(*before) ||
        (!is_float(source) && !AreAlike(source, *before, role.by_codes))) {
      DeviceWeightPart part;
      part.first_row = row;
      part.first_source = i;
      if (!is_float(source) && role.by_codes && AsksForCodes(source)) {
        part.rounding = source.rounding;
        part.quantised = LayoutByCodes(source.type, weight.cols, source.rounding.weight_group == 0);
      } else if (!is_float(source)) {
        part.quantised = QuantisedLayout(source.type, weight.cols);
      }
      planned.parts.push_back(part);
    }
    planned.parts.back().rows += static_cast<int>(weight.parts[i].rows);
    ++planned.parts.back().source_count;
    row += static_cast<int>(weight.parts[i].rows);
  }
  if (!planned.parts.empty()) planned.parts.back().rows += planned.rows - row;
  return planned;
}

// What of a source that asks for rounded inputs no kernel computes; null: nothing.
const char* WithoutKernel(const WeightSource& source) {
  const ActivationRounding& rule = source.rounding;
  if (source.cols > kMostEncoded) return "more inputs than 32768";
  const auto whole_or_run = [](int64_t group) { return group == 0 || group == kRoundedGroup; };
  if (rule.code == ActivationRounding::Code::kInt8) {
    if (!rule.symmetric) return "codes with a zero";
    if (rule.group != 0 || rule.weight_group != 0 || source.type != DType::kG8) {
      return "int8 scales of groups, or rows that are no whole runs of 32";
    }
    return nullptr;
  }
  if (!whole_or_run(rule.group) || !whole_or_run(rule.weight_group) || source.type != DType::kF8) {
    return "fp8 scales of other groups than 128, or rows that are no whole runs of 32";
  }
  return nullptr;
}

}  // namespace

const char* WhyNotByCodes(const Weight& weight, const WeightRole& role) {
  bool asks = false;
  for (const WeightSource& source : weight.parts) {
    if (source.rounding.unserved != nullptr) return source.rounding.unserved;
    if (!role.used || !AsksForCodes(source)) continue;
    if (role.stack != kNoId) return "experts multiply 16 bits";
    if (const char* what = WithoutKernel(source)) return what;
    asks = true;
  }
  return asks ? WhyExpanded(weight, role) : nullptr;
}

size_t DeviceWeightPart::Bytes(int cols) const {
  if (quantised.bits > 0) return QuantisedBytes(quantised, rows);
  return (is_vector ? 4 : 2) * static_cast<size_t>(rows) * static_cast<size_t>(cols);
}

DeviceWeight PlanWeight(const Weight& weight, const WeightRole& role) {
  if (!role.used) return {};
  if (!role.is_matrix) return PlanVector(weight);
  return PlanMatrix(weight, role);
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

// Memory for a part: its own, or its place in that of its stack.
std::byte* DeviceWeights::Reserve(const DeviceProgram& lowered, const WeightRole& role, size_t part,
                                  size_t bytes, DeviceHeap& heap) {
  if (role.stack == kNoId) return heap.New<std::byte>(bytes);
  const auto stack = static_cast<size_t>(role.stack);
  std::vector<std::byte*>& parts = stack_memory_[stack];
  if (part == parts.size()) {
    parts.push_back(heap.New<std::byte>(bytes * lowered.stacks[stack].size()));
  }
  return parts[part] == nullptr ? nullptr : parts[part] + bytes * static_cast<size_t>(role.place);
}

// What holds for the first of a stack holds for all.
void DeviceWeights::JoinStacks(const DeviceProgram& lowered) {
  for (const std::vector<WeightId>& stack : lowered.stacks) {
    DeviceWeight& first = weights_[stack.front()];
    for (size_t part = 0; part < first.parts.size(); ++part) {
      first.parts[part].quantised.narrow_steps =
          std::all_of(stack.begin(), stack.end(),
                      [&](WeightId id) { return weights_[id].parts[part].quantised.narrow_steps; });
    }
  }
}

runtime::Error DeviceWeights::Load(const StepProgram& program, const DeviceProgram& lowered,
                                   const ProgramOptions& options, runtime::Runtime& runtime,
                                   DeviceHeap& heap) {
  WeightLoader loader(options, runtime);
  if (runtime::Error error = loader.Begin(); !error.empty()) return error;
  int64_t total = 0;
  for (const Weight& weight : program.weights) total += SourceBytes(weight);
  int64_t done = 0;
  stack_memory_.resize(lowered.stacks.size());
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    DeviceWeight to = PlanWeight(weight, lowered.weights[id]);
    for (DeviceWeightPart& part : to.parts) {
      auto* at = Reserve(lowered, lowered.weights[id], static_cast<size_t>(&part - to.parts.data()),
                         part.Bytes(to.cols), heap);
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
  JoinStacks(lowered);
  return loader.End();
}

}  // namespace quire::kernels::cuda
