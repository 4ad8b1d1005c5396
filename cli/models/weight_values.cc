#include "cli/models/weight_values.h"

#include <bit>
#include <cmath>

namespace quire::cli {
namespace {

// SplitMix64's step and finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators"): a counter through it is a generator that can start anywhere.
constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;

constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The sum of four words of 16 bits, less its mean: 18 bits and a sign, exact in a float.
constexpr int32_t kMeanOfFour = 4 * 65535 / 2;
// 1 / its standard deviation, sqrt(4 · (2^32 − 1) / 12).
constexpr double kPerDeviation = 1.0 / 37837.22746;

float Standard(uint64_t bits) {
  const uint32_t sum =
      static_cast<uint32_t>(bits & 0xffff) + static_cast<uint32_t>((bits >> 16) & 0xffff) +
      static_cast<uint32_t>((bits >> 32) & 0xffff) + static_cast<uint32_t>(bits >> 48);
  return static_cast<float>(static_cast<int32_t>(sum) - kMeanOfFour);
}

template <typename Store>
void Fill(uint64_t key, uint64_t first, WeightSpread spread, size_t count, Store store) {
  const float scale = static_cast<float>(static_cast<double>(spread.deviation) * kPerDeviation);
  for (size_t i = 0; i < count; ++i) {
    const float value = Standard(Mix(key + (first + i) * kStep)) * scale;
    store(i, value + spread.mean);
  }
}

void Store16(std::byte* at, uint16_t bits) {
  at[0] = static_cast<std::byte>(bits & 0xff);
  at[1] = static_cast<std::byte>(bits >> 8);
}

constexpr int64_t kQ4KBytes = 2 + 2 + 12 + 128;  // d, dmin, scales and minima, quants
constexpr int64_t kQ40Bytes = 2 + 16;            // d, quants
// Of sixteen equally likely quants, sqrt((16² − 1) / 12).
constexpr double kQuantDeviation = 4.609772228646444;
constexpr int kQ4KScales = 8;  // of a block, 32 … 63 here
// sqrt of the mean square of 32 … 63.
constexpr double kScaleDeviation = 48.38904834568799;

// Words of random bits of one block.
class BlockBits {
 public:
  BlockBits(uint64_t key, uint64_t block) : key_(Mix(key + block * kStep)) {}
  uint64_t Next() { return Mix(key_ + ++count_ * kStep); }
  void Fill(std::byte* at, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 8) {
      const uint64_t word = Next();
      for (int k = 0; k < 8; ++k) at[i + k] = static_cast<std::byte>(word >> (8 * k) & 0xff);
    }
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

// d · scale · (q − 7.5): the minimum of every part is its scale, under 7.5 times d.
void FillQ4K(BlockBits bits, float deviation, std::byte* at) {
  const double d = static_cast<double>(deviation) / (kQuantDeviation * kScaleDeviation);
  Store16(at, HalfFromFloat(static_cast<float>(d)));
  Store16(at + 2, HalfFromFloat(static_cast<float>(7.5 * d)));
  const uint64_t word = bits.Next();
  for (int j = 0; j < kQ4KScales / 2; ++j) {
    const auto scale = [word](int i) { return 32 + static_cast<int>(word >> (8 * i) & 31); };
    const int low = scale(j), high = scale(j + 4);
    at[4 + j] = at[8 + j] = static_cast<std::byte>(low | high >> 4 << 6);
    at[12 + j] = static_cast<std::byte>((high & 15) | (high & 15) << 4);
  }
  bits.Fill(at + 16, 128);
}

// d · (q − 8), whose mean is half a step below zero.
void FillQ40(BlockBits bits, float deviation, std::byte* at) {
  Store16(at, HalfFromFloat(static_cast<float>(static_cast<double>(deviation) / kQuantDeviation)));
  bits.Fill(at + 2, 16);
}

}  // namespace

WeightBlock BlockOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, 4};
    case WeightType::kQ4K:
      return {256, kQ4KBytes};
    case WeightType::kQ40:
      return {32, kQ40Bytes};
    default:
      return {1, 2};
  }
}

uint64_t TensorKey(uint64_t seed, std::string_view tensor) {
  uint64_t key = Mix(seed + kStep);
  for (const char c : tensor) key = Mix(key ^ (static_cast<unsigned char>(c) + kStep));
  return key;
}

void FillWeights(uint64_t key, uint64_t first, WeightSpread spread, WeightType type,
                 std::span<std::byte> out) {
  std::byte* const at = out.data();
  const WeightBlock block = BlockOf(type);
  const size_t count = out.size() / static_cast<size_t>(block.bytes);
  if (block.values > 1) {
    for (size_t i = 0; i < count; ++i) {
      const BlockBits bits(key, first / static_cast<uint64_t>(block.values) + i);
      std::byte* const to = at + i * static_cast<size_t>(block.bytes);
      if (type == WeightType::kQ4K) {
        FillQ4K(bits, spread.deviation, to);
      } else {
        FillQ40(bits, spread.deviation, to);
      }
    }
  } else if (type == WeightType::kBf16) {
    Fill(key, first, spread, count,
         [at](size_t i, float value) { Store16(at + 2 * i, BrainFromFloat(value)); });
  } else if (type == WeightType::kF16) {
    Fill(key, first, spread, count,
         [at](size_t i, float value) { Store16(at + 2 * i, HalfFromFloat(value)); });
  } else {
    Fill(key, first, spread, count, [at](size_t i, float value) {
      const uint32_t bits = std::bit_cast<uint32_t>(value);
      Store16(at + 4 * i, static_cast<uint16_t>(bits));
      Store16(at + 4 * i + 2, static_cast<uint16_t>(bits >> 16));
    });
  }
}

uint16_t BrainFromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t HalfFromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const int exponent = static_cast<int>((bits >> 23) & 0xff) - 127;
  if (exponent >= 16) return static_cast<uint16_t>(sign | 0x7c00);
  if (exponent < -25) return static_cast<uint16_t>(sign);
  const uint32_t fraction = (bits & 0x7fffff) | 0x800000;
  // A half below 2^-14 has no hidden bit: its fraction is shifted further.
  const int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;
  const uint32_t kept = fraction >> shift;
  const uint32_t rest = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
  const uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  // The hidden bit adds one to the exponent, and so does a fraction that rounds up to the next
  // power of two, to infinity at the top.
  const uint32_t base = exponent < -14 ? 0 : static_cast<uint32_t>(exponent + 14) << 10;
  return static_cast<uint16_t>(sign | (base + rounded));
}

}  // namespace quire::cli
