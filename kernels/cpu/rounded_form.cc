#include "kernels/cpu/rounded_form.h"

#include <algorithm>
#include <variant>

#include "kernels/cpu/program_needs.h"
#include "kernels/rounded_weights.h"

namespace quire::kernels::cpu {
namespace {

using Code = ActivationRounding::Code;

int64_t WholeLines(int64_t numbers) { return (numbers + 15) / 16 * 16; }

RoundedWay WayOf(const WeightSource& part) {
  const ActivationRounding& rule = part.rounding;
  if (rule.code == Code::kNone) return RoundedWay::kPlain;
  if (rule.code == Code::kInt8 && part.type == DType::kG8 && rule.weight_group == 0 &&
      rule.group == 0) {
    return RoundedWay::kWords;
  }
  const bool whole_chunks = rule.weight_group % kScaleGroup == 0;
  if (rule.code == Code::kE4m3 && part.type == DType::kF8 && whole_chunks) {
    return RoundedWay::kCodes;
  }
  return RoundedWay::kValues;
}

int64_t ScaleGroups(const RoundingOfInput& input, int64_t k) {
  return input.rule.group == 0 ? 1 : (k + kScaleGroup - 1) / kScaleGroup;
}

// The largest magnitude of S in one product must leave its sum over K an int32.
std::string RefuseWidth(const Weight& weight, const WeightSource& part) {
  if (WayOf(part) != RoundedWay::kWords) return "";
  constexpr int64_t kLargestWeight = 255;  // less a zero
  const int64_t largest = part.rounding.symmetric ? 128 : 255;
  const int64_t most = INT32_MAX / (kLargestWeight * largest);
  if (part.cols <= most) return "";
  return "activation dtype w8a8: \"" + weight.name + "\" has " + std::to_string(part.cols) +
         " inputs, sums of int8 products take at most " + std::to_string(most) +
         "; use --activation-dtype float32";
}

std::string RefuseWeight(const Weight& weight) {
  for (const WeightSource& part : weight.parts) {
    const ActivationRounding& rule = part.rounding;
    if (rule.unserved != nullptr) {
      return "activation dtype w8a8: \"" + weight.name + "\" asks for activations with " +
             rule.unserved +
             "; served are int8 and fp8 per token, fp8 per 128 inputs, and static scales; use "
             "--activation-dtype float32";
    }
    if (rule.code == Code::kNone) continue;
    if (std::string why = RefuseWidth(weight, part); !why.empty()) return why;
  }
  return "";
}

}  // namespace

Roundings RoundingsOf(const Weight& weight) {
  Roundings roundings;
  const auto asks = [](const WeightSource& part) { return part.rounding.code != Code::kNone; };
  if (!std::ranges::any_of(weight.parts, asks)) return roundings;
  for (const WeightSource& part : weight.parts) {
    RoundingOfPart own{WayOf(part)};
    own.by_chunk = part.rounding.group != 0 ||
                   (own.way == RoundedWay::kCodes && part.rounding.weight_group != 0);
    RoundingOfInput input{part.rounding, own.way == RoundedWay::kWords};
    input.rule.weight_group = 0;  // x is the same
    const auto same = std::ranges::find(roundings.inputs, input);
    own.input = static_cast<int>(same - roundings.inputs.begin());
    if (same == roundings.inputs.end()) roundings.inputs.push_back(input);
    roundings.parts.push_back(own);
  }
  return roundings;
}

int64_t RoundedCodes(const RoundingOfInput& input, int64_t k, int64_t rows) {
  return WholeLines(input.words ? k / 2 * rows : k * rows);
}

int64_t RoundedScales(const RoundingOfInput& input, int64_t k, int64_t rows) {
  return WholeLines(ScaleGroups(input, k) * rows);
}

int64_t RoundedBytes(const Roundings& roundings, int64_t k, int64_t rows) {
  int64_t numbers = 0;
  for (const RoundingOfInput& input : roundings.inputs) {
    numbers += RoundedCodes(input, k, rows) + RoundedScales(input, k, rows);
  }
  return 4 * numbers;
}

std::string RefuseRoundings(const StepProgram& program) {
  for (const Weight& weight : program.weights) {
    if (std::string why = RefuseWeight(weight); !why.empty()) return why;
  }
  return RefuseWithoutRoundings(program);
}

}  // namespace quire::kernels::cpu
