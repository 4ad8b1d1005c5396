#include "tests/kernels/rounded_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/grouped_blocks.h"

namespace quire::kernels::test {
namespace {

using Code = ActivationRounding::Code;

constexpr int64_t kGroup = 128;

struct Rounded {
  std::vector<float> codes;   // less the zero
  std::vector<float> scales;  // by 128 inputs
};

float ToWhole(float v, RoundedFault fault) {
  return fault == RoundedFault::kUpwards ? std::round(v) : std::nearbyint(v);
}

void RoundSome(const ActivationRounding& rule, std::span<const float> x, RoundedFault fault,
               Rounded& to) {
  float low = 0.0f, high = 0.0f;
  bool finite = true;
  for (const float v : x) {
    low = std::min(low, v);
    high = std::max(high, v);
    finite = finite && std::isfinite(v);
  }
  const float largest = std::max(-low, high);
  float scale = largest / (fault == RoundedFault::kOf127 ? 127.0f : 127.5f);
  float zero = 0.0f;
  if (rule.code == Code::kE4m3) scale = largest / 448.0f;
  if (!rule.symmetric) {
    scale = (high - low) / 255.0f;
    zero = std::nearbyint(std::clamp(-128.0f - low / scale, -128.0f, 127.0f));
  }
  if (rule.scale != 0.0f) {
    scale = rule.scale;
    zero = static_cast<float>(rule.zero);
  }
  if (!finite) scale = std::nanf("");
  if (scale < std::numeric_limits<float>::min()) scale = 0.0f;
  for (const float v : x) {
    float code = 0.0f;
    if (scale > 0.0f) {
      const float quotient = fault == RoundedFault::kInverse ? v * (1.0f / scale) : v / scale;
      if (rule.code == Code::kE4m3) {
        code = NearestE4m3(std::clamp(quotient, -448.0f, 448.0f));
      } else {
        code = ToWhole(std::clamp(quotient + zero, -128.0f, 127.0f), fault) - zero;
      }
    }
    to.codes.push_back(code);
  }
  to.scales.resize((to.codes.size() + kGroup - 1) / kGroup, scale);
}

Rounded RoundRow(const ActivationRounding& rule, std::span<const float> x, RoundedFault fault) {
  Rounded rounded;
  const size_t step = rule.group == 0 ? x.size() : static_cast<size_t>(rule.group);
  for (size_t begin = 0; begin < x.size(); begin += step) {
    RoundSome(rule, x.subspan(begin, std::min(step, x.size() - begin)), fault, rounded);
  }
  return rounded;
}

const std::byte* BlockAt(const WeightSource& part, int64_t row, int64_t k) {
  return part.Row(row) + k / BlockElements(part.type) * BlockBytes(part.type);
}

// An exact sum, one product with the scales.
float SumOfIntegers(const WeightSource& part, int64_t row, const Rounded& x, RoundedFault fault) {
  int64_t sum = 0;
  for (int64_t k = 0; k < part.cols; ++k) {
    const std::byte* at = BlockAt(part, row, k);
    const int byte = std::to_integer<int>(at[grouped::HeadBytes(part.type) + k % 32]);
    const int code = byte < 128 ? byte : byte - 256;
    sum += int64_t{code - grouped::Zero(at)} * static_cast<int64_t>(x.codes[k]);
  }
  const float weight_scale = grouped::Scale(BlockAt(part, row, 0));
  const float value = static_cast<float>(static_cast<int32_t>(sum));
  if (fault == RoundedFault::kScaleBeforeWeight) return value * x.scales[0] * weight_scale;
  return value * (x.scales[0] * weight_scale);
}

// `rounded`: x by the rule of the part.
float Output(const WeightSource& part, int64_t row, std::span<const float> x,
             const Rounded& rounded, RoundedFault fault) {
  const ActivationRounding& rule = part.rounding;
  if (rule.code == Code::kInt8 && part.type == DType::kG8 && rule.weight_group == 0) {
    return SumOfIntegers(part, row, rounded, fault);
  }
  const bool codes =
      rule.code == Code::kE4m3 && part.type == DType::kF8 && rule.weight_group % kGroup == 0;
  const bool by_chunk = rule.group != 0 || (codes && rule.weight_group != 0);
  float total = 0.0f, weight_scale = 1.0f;
  for (int64_t begin = 0; begin < part.cols; begin += kGroup) {
    float chunk = 0.0f;
    if (codes) weight_scale = grouped::Scale(BlockAt(part, row, begin));
    for (int64_t k = begin; k < std::min(part.cols, begin + kGroup); ++k) {
      float w = static_cast<float>(ElementOf(part, row, k));  // one rounding of code · scale
      if (codes) {
        w = grouped::E4m3(static_cast<uint8_t>(BlockAt(part, row, k)[4 + k % 32]));
      }
      const float product_x = rule.code == Code::kNone ? x[k] : rounded.codes[k];
      float& chain = fault == RoundedFault::kOneChain ? total : chunk;
      chain = std::fma(w, product_x, chain);
    }
    if (fault == RoundedFault::kOneChain) continue;
    if (by_chunk) {
      const float scale = rounded.scales[begin / kGroup] * weight_scale;
      total = fault == RoundedFault::kSeparateRounding ? total + chunk * scale
                                                       : std::fma(chunk, scale, total);
    } else {
      total = begin == 0 ? chunk : total + chunk;
    }
  }
  if (by_chunk || rule.code == Code::kNone) return total;
  if (fault == RoundedFault::kScaleBeforeWeight) return total * rounded.scales[0] * weight_scale;
  return total * (rounded.scales[0] * weight_scale);
}

}  // namespace

float NearestE4m3(float v) {
  float best = 0.0f;
  int best_code = 0;
  for (int code = 0; code < 256; ++code) {
    if (grouped::IsE4m3Nan(static_cast<uint8_t>(code))) continue;
    const float value = grouped::E4m3(static_cast<uint8_t>(code));
    const double own = std::fabs(static_cast<double>(value) - v);
    const double least = std::fabs(static_cast<double>(best) - v);
    if (own > least || (own == least && (code % 2 != 0 || best_code % 2 == 0))) continue;
    best = value;
    best_code = code;
  }
  return best;
}

std::vector<float> RoundedModel::Run(std::span<const float> x, RoundedFault fault) const {
  std::vector<float> y;
  for (const WeightSource& part : weight_.parts) {
    const Rounded rounded = RoundRow(part.rounding, x, fault);
    for (int64_t row = 0; row < part.rows; ++row) y.push_back(Output(part, row, x, rounded, fault));
  }
  return y;
}

}  // namespace quire::kernels::test
