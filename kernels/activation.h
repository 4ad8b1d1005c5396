// What a product does with its result before it is written.
//
// Values; part of a step program.
#pragma once

#include <cstdint>

namespace quire::kernels {

// The gated forms take rows [gate; up] of equal height: y = act(gate) * up, half as wide.
// kClampedGated (gpt-oss): g = min(gate, 7), u = up within ±7, y = g · σ(1.702 g) · (u + 1).
// kReluSquared: y = max(y, 0)².
enum class Activation : uint8_t {
  kNone,
  kRelu,
  kReluSquared,
  kSiluGated,
  kGeluTanhGated,
  kClampedGated,
};

constexpr bool IsGated(Activation activation) { return activation >= Activation::kSiluGated; }

}  // namespace quire::kernels
