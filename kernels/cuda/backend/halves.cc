#include "kernels/cuda/backend/halves.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "kernels/grouped_blocks.h"

namespace quire::kernels::cuda {
namespace {

constexpr size_t kNoNorm = static_cast<size_t>(-1);

// A product, and the step whose norm makes its rows.
struct Reader {
  WeightId weight = kNoId;
  size_t norm = kNoNorm;
};

// float16 holds what the file holds: numbers of float16, or scales of it times integers.
bool FitsHalf(const Weight& weight) {
  return !weight.parts.empty() &&
         std::all_of(weight.parts.begin(), weight.parts.end(), [](const WeightSource& source) {
           return source.type == DType::kF16 ||
                  (BlockElements(source.type) > 1 && source.type != DType::kMXFP4 &&
                   !grouped::IsGrouped(source.type));
         });
}

// Products in the order of the program. What a norm writes in 16 bits nothing else reads, but what
// adapters add to a product: their matrices are as its rows are.
std::vector<Reader> ReadersOf(const DeviceProgram& lowered) {
  std::vector<Reader> readers;
  std::vector<size_t> norm_of(lowered.buffers.size(), kNoNorm);
  for (size_t i = 0; i < lowered.steps.size(); ++i) {
    const DeviceStep& step = lowered.steps[i];
    if (const auto* norm = std::get_if<NormStep>(&step)) {
      norm_of[norm->out] = lowered.buffers[norm->out].is_float32 ? kNoNorm : i;
    } else if (const auto* product = std::get_if<ProductStep>(&step)) {
      readers.push_back({product->weight, norm_of[product->in]});
      norm_of[product->out] = kNoNorm;
    } else if (const auto* logits = std::get_if<LogitsOp>(&step)) {
      readers.push_back({logits->head, norm_of[logits->in]});
    } else if (const auto* moe = std::get_if<MoeStep>(&step)) {
      for (const MoeOp::Expert& expert : moe->op.experts) {
        readers.push_back({expert.gate_up, norm_of[moe->op.in]});
        readers.push_back({expert.down, kNoNorm});
      }
    } else if (const auto* round = std::get_if<RoundStep>(&step)) {
      norm_of[round->out] = kNoNorm;
    } else if (const auto* gate = std::get_if<ActivationStep>(&step)) {
      norm_of[gate->out] = kNoNorm;
    } else if (const auto* attention = std::get_if<AttentionOp>(&step)) {
      norm_of[attention->out] = kNoNorm;
    } else if (const auto* recurrent = std::get_if<RecurrentStep>(&step)) {
      std::visit([&](const auto& op) { norm_of[op.out] = kNoNorm; }, *recurrent);
    } else if (const auto* append = std::get_if<LatentAppendStep>(&step)) {
      norm_of[append->q] = kNoNorm;
    } else if (const auto* heads = std::get_if<HeadLinearStep>(&step)) {
      norm_of[heads->out] = kNoNorm;
    } else if (const auto* latents = std::get_if<LatentAttentionStep>(&step)) {
      norm_of[latents->op.out] = kNoNorm;
    }
  }
  return readers;
}

// Products of heads read queries and sums of normalised latents; both leave their kernels as the
// weights that they meet are. A query beyond ±65,504 becomes that.
void ChooseHalvesOfHeads(const StepProgram& program, DeviceProgram& lowered) {
  std::vector<bool*> writer(lowered.buffers.size(), nullptr);
  for (DeviceStep& step : lowered.steps) {
    if (auto* append = std::get_if<LatentAppendStep>(&step)) writer[append->q] = &append->half;
    if (auto* latents = std::get_if<LatentAttentionStep>(&step)) {
      writer[latents->op.out] = &latents->half;
    }
    auto* heads = std::get_if<HeadLinearStep>(&step);
    if (heads == nullptr || writer[heads->in] == nullptr) continue;
    heads->half = std::all_of(heads->weights.begin(), heads->weights.end(),
                              [&](WeightId id) { return FitsHalf(program.weights[id]); });
    *writer[heads->in] = heads->half;
    for (const WeightId id : heads->weights) lowered.weights[id].half = heads->half;
  }
}

}  // namespace

void ChooseHalves(const StepProgram& program, DeviceProgram& lowered) {
  const std::vector<Reader> readers = ReadersOf(lowered);
  std::vector<bool> norm_is_half(lowered.steps.size(), false);
  for (const Reader& reader : readers) {
    lowered.weights[reader.weight].half = FitsHalf(program.weights[reader.weight]);
    if (reader.norm != kNoNorm) norm_is_half[reader.norm] = true;
  }
  // One product that must be bfloat16 takes its norm and its weight with it, and so on.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Reader& reader : readers) {
      const bool weight = lowered.weights[reader.weight].half;
      const bool norm = reader.norm != kNoNorm && norm_is_half[reader.norm];
      if (weight == norm) continue;
      lowered.weights[reader.weight].half = false;
      if (reader.norm != kNoNorm) norm_is_half[reader.norm] = false;
      changed = true;
    }
  }
  std::vector<bool> is_half(lowered.buffers.size(), false);
  for (size_t i = 0; i < lowered.steps.size(); ++i) {
    if (auto* norm = std::get_if<NormStep>(&lowered.steps[i])) {
      norm->half = norm_is_half[i];
      is_half[norm->out] = norm->half;
    } else if (auto* lora = std::get_if<LoraStep>(&lowered.steps[i])) {
      lora->half = is_half[lora->op.in];
    }
  }
  ChooseHalvesOfHeads(program, lowered);
}

}  // namespace quire::kernels::cuda
