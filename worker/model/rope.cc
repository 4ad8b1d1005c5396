#include "worker/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/check.h"

namespace quire::model {
namespace {

using Scaling = load::RopeConfig::Scaling;

// Long waves are divided by the factor, short ones kept, those between blended.
float Llama3Frequency(const load::RopeConfig& config, float frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < config.original_context / config.high_frequency_factor) return frequency;
  if (wavelength > config.original_context / config.low_frequency_factor) {
    return static_cast<float>(frequency / config.factor);
  }
  const double smooth = (config.original_context / wavelength - config.low_frequency_factor) /
                        (config.high_frequency_factor - config.low_frequency_factor);
  return static_cast<float>((1.0 - smooth) * frequency / config.factor + smooth * frequency);
}

// The dimension whose wave turns `rotations` times within the original context.
double YarnDimension(const load::RopeConfig& config, int rotary_dim, double rotations) {
  return rotary_dim * std::log(config.original_context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.theta));
}

struct YarnRange {
  double low = 0.0;
  double high = 0.0;
};

YarnRange FindYarnRange(const load::RopeConfig& config, int rotary_dim) {
  YarnRange range{YarnDimension(config, rotary_dim, config.beta_fast),
                  YarnDimension(config, rotary_dim, config.beta_slow)};
  if (config.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range.low = std::max(range.low, 0.0);
  range.high = std::min(range.high, rotary_dim - 1.0);
  if (range.low == range.high) range.high += 0.001;  // a ramp needs some width
  return range;
}

float YarnFrequency(const load::RopeConfig& config, const YarnRange& range, float frequency,
                    int i) {
  const double ramp = std::clamp((i - range.low) / (range.high - range.low), 0.0, 1.0);
  return static_cast<float>(frequency / config.factor * ramp + frequency * (1.0 - ramp));
}

}  // namespace

kernels::Rope MakeRope(const load::RopeConfig& config, int rotary_dim,
                       std::span<const float> factors) {
  QUIRE_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0);
  QUIRE_CHECK(factors.empty() || factors.size() == static_cast<size_t>(rotary_dim / 2));
  kernels::Rope rope;
  rope.rotary_dim = rotary_dim;
  rope.attention_factor = config.attention_factor;
  const YarnRange range =
      config.scaling == Scaling::kYarn ? FindYarnRange(config, rotary_dim) : YarnRange{};
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    float wave = std::pow(static_cast<float>(config.theta), exponent);
    if (config.scaling == Scaling::kLongRope) {
      const auto& own = config.long_context ? config.long_factors : config.short_factors;
      wave *= static_cast<float>(own[static_cast<size_t>(i)]);
    }
    float frequency = 1.0f / wave;
    if (config.scaling == Scaling::kLinear) frequency /= static_cast<float>(config.factor);
    if (config.scaling == Scaling::kLlama3) frequency = Llama3Frequency(config, frequency);
    if (config.scaling == Scaling::kYarn) frequency = YarnFrequency(config, range, frequency, i);
    if (config.scaling == Scaling::kProportional) {
      const bool turns = i < static_cast<int>(std::floor(config.proportion * rotary_dim / 2.0));
      frequency = turns ? frequency / static_cast<float>(config.factor) : 0.0f;
    }
    if (!factors.empty()) frequency /= factors[static_cast<size_t>(i)];
    rope.inverse_frequency.push_back(frequency);
  }
  return rope;
}

}  // namespace quire::model
