// Random weights in every file format, and an independent float64 reading of those formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/step_program.h"

namespace quire::kernels::test {

// All formats that a weight may have.
inline constexpr DType kAllTypes[] = {
    DType::kF32,    DType::kF16,     DType::kBF16,  DType::kQ8_0,  DType::kQ4_0,    DType::kQ4_1,
    DType::kQ5_0,   DType::kQ5_1,    DType::kQ4_K,  DType::kQ5_K,  DType::kQ6_K,    DType::kG4,
    DType::kG4_128, DType::kG8,      DType::kF8,    DType::kQ2_K,  DType::kQ3_K,    DType::kIQ4_NL,
    DType::kIQ4_XS, DType::kMXFP4,   DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kTQ2_0,   DType::kQ1_0,
    DType::kQ2_0,   DType::kNVFP4,   DType::kF4_16, DType::kNF4,   DType::kFP4};

// Owns the bytes that WeightSources point into.
class WeightStore {
 public:
  explicit WeightStore(uint32_t seed) : random_(seed) {}

  // Weights of about the given size, as a file would hold them.
  WeightSource Random(DType type, int64_t rows, int64_t cols, float size);
  // A weight of one part.
  Weight RandomWeight(DType type, int64_t rows, int64_t cols, float size);
  // A float32 vector with elements around `centre`.
  Weight RandomVector(int64_t cols, float centre, float size);
  std::mt19937& random() { return random_; }

 private:
  std::byte* Reserve(int64_t bytes);

  std::mt19937 random_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// Value of element (row, col), from the description of the format, in float64.
double ElementOf(const WeightSource& source, int64_t row, int64_t col);

// Row `row` of a weight of several parts.
std::vector<double> RowOf(const Weight& weight, int64_t row);

double HalfValue(uint16_t bits);
uint16_t HalfBits(float value);  // nearest, for normal values

}  // namespace quire::kernels::test
