// The numbers that GGUF files give types of tensors, and those that are served.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/tensor.h"

namespace quire::load {

struct GgufTensorType {
  uint32_t number;
  const char* name;
  std::optional<kernels::DType> type;  // absent: known to the format, not served
};

inline constexpr GgufTensorType kGgufTensorTypes[] = {
    {0, "F32", kernels::DType::kF32},
    {1, "F16", kernels::DType::kF16},
    {2, "Q4_0", kernels::DType::kQ4_0},
    {3, "Q4_1", kernels::DType::kQ4_1},
    {6, "Q5_0", kernels::DType::kQ5_0},
    {7, "Q5_1", kernels::DType::kQ5_1},
    {8, "Q8_0", kernels::DType::kQ8_0},
    {9, "Q8_1", std::nullopt},
    {10, "Q2_K", kernels::DType::kQ2_K},
    {11, "Q3_K", kernels::DType::kQ3_K},
    {12, "Q4_K", kernels::DType::kQ4_K},
    {13, "Q5_K", kernels::DType::kQ5_K},
    {14, "Q6_K", kernels::DType::kQ6_K},
    {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", kernels::DType::kIQ2_XXS},
    {17, "IQ2_XS", kernels::DType::kIQ2_XS},
    {18, "IQ3_XXS", kernels::DType::kIQ3_XXS},
    {19, "IQ1_S", kernels::DType::kIQ1_S},
    {20, "IQ4_NL", kernels::DType::kIQ4_NL},
    {21, "IQ3_S", kernels::DType::kIQ3_S},
    {22, "IQ2_S", kernels::DType::kIQ2_S},
    {23, "IQ4_XS", kernels::DType::kIQ4_XS},
    {24, "I8", std::nullopt},
    {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},
    {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},
    {29, "IQ1_M", kernels::DType::kIQ1_M},
    {30, "BF16", kernels::DType::kBF16},
    {34, "TQ1_0", kernels::DType::kTQ1_0},
    {35, "TQ2_0", kernels::DType::kTQ2_0},
    {39, "MXFP4", kernels::DType::kMXFP4},
    {40, "NVFP4", kernels::DType::kNVFP4},
    {41, "Q1_0", kernels::DType::kQ1_0},
    {42, "Q2_0", kernels::DType::kQ2_0},
};
inline constexpr const char* kServedGgufTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q1_0, Q2_0, Q2_K to Q6_K, IQ1_S to IQ4_XS, "
    "TQ1_0, TQ2_0, MXFP4 and NVFP4";

// Null where the format has no such number.
constexpr const GgufTensorType* FindGgufTensorType(uint32_t number) {
  for (const GgufTensorType& entry : kGgufTensorTypes) {
    if (entry.number == number) return &entry;
  }
  return nullptr;
}

}  // namespace quire::load
