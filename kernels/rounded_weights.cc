#include "kernels/rounded_weights.h"

#include <set>

namespace quire::kernels {
namespace {

using Code = ActivationRounding::Code;

std::string Describe(const ActivationRounding& rule) {
  const std::string code = rule.code == Code::kInt8 ? "int8" : "fp8";
  if (rule.scale != 0.0f) return code + " under a static scale";
  if (rule.group != 0) return code + " per token and " + std::to_string(rule.group) + " inputs";
  return code + " per token" + (rule.symmetric ? "" : " with a zero");
}

}  // namespace

std::string DescribeRoundings(const StepProgram& program) {
  std::set<std::string> found;
  for (const Weight& weight : program.weights) {
    for (const WeightSource& part : weight.parts) {
      if (part.rounding.code != Code::kNone) found.insert(Describe(part.rounding));
    }
  }
  std::string text;
  for (const std::string& one : found) text += (text.empty() ? "" : " and ") + one;
  return text;
}

std::string RefuseWithoutRoundings(const StepProgram& program) {
  if (!DescribeRoundings(program).empty()) return "";
  return "activation dtype w8a8 needs a checkpoint that asks for rounded activations "
         "(compressed-tensors int-quantized and float-quantized with input_activations, fp8, "
         "modelopt FP8), this one asks for none; use --activation-dtype auto, float32 or int8";
}

}  // namespace quire::kernels
