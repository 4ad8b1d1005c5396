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

// Values of the last two are in GGUF's blocks of 256 and of 32.
enum class WeightType { kBf16, kF16, kF32, kQ4K, kQ40 };

// The least that can be written of a type.
struct WeightBlock {
  int64_t values = 1;
  int64_t bytes = 0;
};
WeightBlock BlockOf(WeightType type);
inline int64_t TensorBytes(WeightType type, int64_t values) {
  return values / BlockOf(type).values * BlockOf(type).bytes;
}

// Where the values of one tensor come from.
uint64_t TensorKey(uint64_t seed, std::string_view tensor);

// How the values of one tensor lie: around `mean`, with this standard deviation.
struct WeightSpread {
  float mean = 0.0f;
  float deviation = 0.0f;
};

// Values `first`, first + 1, … of the tensor as little-endian bytes; `out` holds whole blocks, and
// `first` begins one. Quants are spread evenly, under scales that give them the deviation; their
// mean is zero.
void FillWeights(uint64_t key, uint64_t first, WeightSpread spread, WeightType type,
                 std::span<std::byte> out);

// To nearest, ties to even; subnormal halves included, larger magnitudes become infinite.
uint16_t HalfFromFloat(float value);
uint16_t BrainFromFloat(float value);  // of a finite value

}  // namespace quire::cli
