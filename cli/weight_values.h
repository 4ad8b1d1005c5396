// The numbers of made-up weights: each follows from (seed, tensor, place) alone, so that threads,
// order and machine change no bit.
//
// Pure functions, any thread. Values are near normal (Irwin-Hall of four uniform words) in integer
// arithmetic, one exact conversion and two roundings; nothing of a standard library's generators
// takes part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quire::cli {

enum class WeightType { kBf16, kF16, kF32 };
size_t WeightBytes(WeightType type);  // of one value

// Where the values of one tensor come from.
uint64_t TensorKey(uint64_t seed, std::string_view tensor);

// How the values of one tensor lie: around `mean`, with this standard deviation.
struct WeightSpread {
  float mean = 0.0f;
  float deviation = 0.0f;
};

// Values `first`, first + 1, … of the tensor as little-endian bytes; `out` holds whole values.
void FillWeights(uint64_t key, uint64_t first, WeightSpread spread, WeightType type,
                 std::span<std::byte> out);

// To nearest, ties to even; subnormal halves included, larger magnitudes become infinite.
uint16_t HalfFromFloat(float value);
uint16_t BrainFromFloat(float value);  // of a finite value

}  // namespace quire::cli
