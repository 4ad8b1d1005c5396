// How the inputs of a weight are rounded in the class of numerics w8a8: what the configuration of a
// quantised checkpoint asks for. A value; kernels/cpu/rounded_form.h has the arithmetic.
#pragma once

#include <cstdint>

namespace quire::kernels {

inline constexpr int64_t kRoundedGroup = 128;  // the only ActivationRounding::group beside 0

struct ActivationRounding {
  enum class Code : uint8_t { kNone, kInt8, kE4m3 };
  Code code = Code::kNone;
  bool symmetric = true;  // int8: else codes have a zero
  int64_t group = 0;      // inputs of a token that share a scale; 0: all of them
  float scale = 0.0f;     // of every token, where it is static; 0: each token's own
  int zero = 0;           // of a static scale that is not symmetric
  // Inputs that share a scale of the weight, counted from its first one; 0: the whole row.
  int64_t weight_group = 0;
  // What the checkpoint asks for and the class does not compute, for messages; null: nothing.
  const char* unserved = nullptr;

  friend bool operator==(const ActivationRounding&, const ActivationRounding&) = default;
};

}  // namespace quire::kernels
